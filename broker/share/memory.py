"""Limits how much memory the runs (ranges of records in the same state) of all share partitions take. Pure.

The rules: members can create many runs by what they acknowledge, so all runs together have a limit. Above it, a share
partition gets more only within its own part. The part is the limit divided by the number of groups that have runs, and
by the number of the group's share partitions that have runs. So share partitions with few runs need not wait for those
with many. All parts together are at most the limit.
"""

from .values import SharePartitionKey

RUN_BYTES = 100  # two offsets, and a standing that many runs share


class RunMemory:
    """Counts the runs (ranges of records in the same state) of all share partitions, to limit their memory."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._counted: dict[SharePartitionKey, int] = {}
        self._of_group: dict[str, int] = {}  # share partitions that have runs

    def count(self, key: SharePartitionKey, runs: int) -> None:
        """Set the number of runs that this share partition has; 0 for one that was deleted."""
        before = self._counted.get(key, 0)
        self.size_bytes += RUN_BYTES * (runs - before)
        if bool(runs) is not bool(before):
            self._count_in_group(key.group, 1 if runs else -1)
        if runs:
            self._counted[key] = runs
        else:
            self._counted.pop(key, None)

    def _count_in_group(self, group: str, more: int) -> None:
        """Add `more` (1 or −1) to the number of the group's share partitions that have runs; forget the group at 0."""
        count = self._of_group.get(group, 0) + more
        if count:
            self._of_group[group] = count
        else:
            del self._of_group[group]

    def part_bytes(self, key: SharePartitionKey, max_bytes: int) -> int:
        """Return how many bytes of the limit max_bytes are reserved for this share partition, however many
        others use.
        """
        groups = len(self._of_group) + (key.group not in self._of_group)
        share_partitions = self._of_group.get(key.group, 0) + (key not in self._counted)
        return max_bytes // groups // share_partitions

    def has_room(self, key: SharePartitionKey, max_bytes: int, more_runs: int = 0, times: int = 1) -> bool:
        """Return whether the share partition may have more_runs more runs.

        It may while all share partitions together take less than `times` the limit max_bytes; otherwise only while it
        takes no more than part_bytes() itself.
        """
        if self.size_bytes < times * max_bytes:
            return True
        return RUN_BYTES * (self._counted.get(key, 0) + more_runs) <= self.part_bytes(key, max_bytes)
