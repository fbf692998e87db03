"""Bugs of a mirror: which entries of its map it removes, what it takes for its own, and whom a cutover looks at."""

from bisect import bisect_right
from contextlib import ExitStack
from typing import Any

from fencepost.client.mirror.cutover.looking import Looking
from fencepost.client.mirror.leftovers import Leftovers
from simulation.planting import around, breaks, killed_by, replaced

MAP = "tests/client/mirror/test_map_and_cutover.py"
EXACTLY_NEXT = "mirror.md: becomes the target offset of the first mirrored record at or above it"
RUN_AGAIN = "mirror.md: finishes what was committed, or takes back what was not"


@killed_by(MAP)
@breaks(EXACTLY_NEXT)
def the_newest_entry_of_the_map_is_removed_by_where_it_once_ended(stack: ExitStack) -> None:
    def gone(self: Any, starts: Any) -> Any:
        return [
            key
            for tp, position in self._positions.items()
            for firsts in [self._firsts.get(tp, {}).get(position.topic_id, [])]
            for key in self._keys(tp, position.topic_id, firsts[: bisect_right(firsts, starts.get(tp, 0) - 1)])
        ]

    replaced(stack, Leftovers.gone, gone)


@killed_by(MAP)
@breaks("mirror.md: to delete that group is to forget the mirror")
def the_map_of_an_earlier_copy_stays(stack: ExitStack) -> None:
    replaced(stack, Leftovers.of_earlier_copies, lambda self, partitions: [])


@killed_by(MAP)
@breaks(RUN_AGAIN)
def a_cutover_looks_only_at_groups_that_it_was_asked_for(stack: ExitStack) -> None:
    def wrapper(find: Any) -> Any:
        async def found(self: Any, topics: Any, *, waits_for_stable: bool, named: Any = None) -> Any:
            return await find(self, topics, waits_for_stable=waits_for_stable)

        return found

    around(stack, Looking.find_groups, wrapper)
