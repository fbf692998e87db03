"""Which task of a mirror reads which partition, and that all tasks of a mirror have the same source. Pure.

Members of a group must have an assignor in common, else the target refuses the later ones
(INCONSISTENT_GROUP_PROTOCOL). The name of this one contains the source's cluster id. So a mirror with the name of
another one, from another source, cannot join its group: it waits until that one has left.
"""

from ..assignors.sticky import StickyAssignor
from .names import PREFIX


class MirrorAssignor(StickyAssignor):
    """The sticky assignor, named for one source. All tasks give up all partitions in a rebalance."""

    def __init__(self, source_cluster_id: str) -> None:
        self.name = f"{PREFIX}-{source_cluster_id}"
