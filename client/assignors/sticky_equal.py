"""The sticky assignment if all members want the same topics: in one pass, with two quotas. Pure.

The rule: each member gets the floor or the ceiling of the mean. Members keep what they have up to that number, the
first ones one partition more; the low partition numbers of all topics are kept before all of one topic (KAFKA-16277).
Free partitions, ordered by topic and number, go in turn to members, ordered by id.
Source: Kafka's AbstractStickyAssignor.ConstrainedAssignmentBuilder.
"""

from collections import deque
from collections.abc import Mapping, Sequence

from ..values import TopicPartition
from .assignment import Assigned, Partitions, partitions_of


def assign_equal(
    partitions: Partitions, owned: Mapping[str, Sequence[TopicPartition]], disputed: set[TopicPartition]
) -> tuple[Assigned, dict[TopicPartition, str]]:
    """Return the assignment, and its partitions that another member has now, each with its new member. The order of
    `owned` decides ties.
    """
    return _Equal(partitions, owned, disputed).assign()


class _Equal:
    def __init__(
        self, partitions: Partitions, owned: Mapping[str, Sequence[TopicPartition]], disputed: set[TopicPartition]
    ) -> None:
        self._everything = partitions_of(sorted(partitions), partitions)
        self._owned = owned
        self._disputed = disputed
        self._least, self._with_more = divmod(len(self._everything), len(owned))
        self._most = self._least + (self._with_more > 0)
        self._above = 0  # how many members have more than the least
        self._assigned: Assigned = {member: [] for member in owned}
        self._revoked: dict[TopicPartition, str] = {}
        self._below: list[str] = []  # members below the least: they get partitions first
        self._at_least: deque[str] = deque()  # members at the least: they may get one more

    def assign(self) -> tuple[Assigned, dict[TopicPartition, str]]:
        """Return the assignment, and the partitions that move from another member, with their new one."""
        for member, places in self._owned.items():
            undisputed = (place for place in places if place not in self._disputed)
            self._keep(member, sorted(undisputed, key=lambda place: (place.partition, place.topic)))
        kept = {place for places in self._assigned.values() for place in places}
        moving = self._go_around([place for place in self._everything if place not in kept])
        return self._assigned, moving

    def _keep(self, member: str, places: list[TopicPartition]) -> None:
        """Let the member keep as many of its partitions as its fair share allows."""
        if len(places) < self._least:
            keeps = len(places)
            self._below.append(member)
        elif len(places) >= self._most and self._above < self._with_more:
            keeps = self._most
            self._above += 1
            if self._above == self._with_more:
                self._at_least.clear()
        else:
            keeps = self._least
            if self._above < self._with_more:
                self._at_least.append(member)
        self._assigned[member] += places[:keeps]
        self._revoked.update(dict.fromkeys(places[keeps:], member))

    def _go_around(self, free: list[TopicPartition]) -> dict[TopicPartition, str]:
        """Give the free partitions to the members in turn. Returns the new owner of each partition that changes its
        owner.
        """
        self._below.sort()
        self._at_least = deque(sorted(self._at_least))
        moving: dict[TopicPartition, str] = {}
        turn = 0
        for place in free:
            if self._below:
                turn %= len(self._below)
                member = self._below[turn]
            else:
                member = self._at_least.popleft()
            self._assigned[member].append(place)
            if self._revoked.get(place, member) != member or place in self._disputed:
                moving[place] = member
            turn += 1
            if self._below and len(self._assigned[member]) == self._least:
                self._below.remove(member)
                self._at_least.append(member)
                turn -= 1
        return moving
