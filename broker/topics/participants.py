"""What other modules add to a transaction's markers in their own topics: committed offsets, acknowledgements of share
groups.

The rule: what is pending in such a module is stored in a partition of an internal topic, and the transaction's marker
in that partition decides about it. Before the unit with the marker is committed, the module is asked which batches must
follow the marker, and it is called again after the commit. So what a transaction writes and what it acknowledges take
effect in one step.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ...protocol.batches import Batch
from ...storage.log.partition_log import PartitionLog

Append = tuple[PartitionLog, Batch]
"""A batch, and the log that it is for."""


class Settlement(NamedTuple):
    """What the end of a transaction changes in one partition of a participant's topic.

    appends: batches that follow the marker in the same unit. apply: called with the marker's offset once the unit is
    committed.
    """

    appends: Sequence[Append]
    apply: Callable[[int], None]


Settle = Callable[[int, int, bool], Settlement]
"""The partition, the producer id, whether the transaction is committed; nothing changes."""

Participants = Mapping[str, Settle]
"""By the name of the internal topic."""
