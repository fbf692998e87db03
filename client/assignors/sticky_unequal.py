"""The sticky assignment if members want different topics: move partitions one by one while that helps. Pure.

The rule: the member with the fewest partitions comes first; a partition rather goes back to its previous owner than to
another member; two partitions of a topic never move in opposite directions between two members. If the result is not
better balanced, nothing is moved. Source: Kafka's AbstractStickyAssignor, GeneralAssignmentBuilder and
PartitionMovements (KIP-54).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, cast

from sortedcontainers import SortedKeyList

from ..values import TopicPartition
from .assignment import Assigned, Partitions, partitions_of
from .java_order import hash_order, partition_hash

Before = Mapping[TopicPartition, tuple[str, int]]


def assign_unequal(
    partitions: Partitions,
    topics: Mapping[str, Sequence[str]],
    owned: Mapping[str, Sequence[TopicPartition]],
    before: Before,
) -> Assigned:
    """Return the assignment. topics: each member's subscription; before: a partition's owner in an older generation."""
    return _Unequal(partitions, topics, owned, before).assign()


class _ByLoad(Protocol):
    """Members sorted by how many partitions they have. The type of a SortedKeyList, which has no annotations."""

    def add(self, value: str) -> None:
        """Insert a member id at its sorted place."""
        ...

    def remove(self, value: str) -> None:
        """Remove a member id."""
        ...

    def __getitem__(self, index: int) -> str: ...
    def __iter__(self) -> Iterator[str]: ...


class _Unequal:
    def __init__(
        self,
        partitions: Partitions,
        topics: Mapping[str, Sequence[str]],
        owned: Mapping[str, Sequence[TopicPartition]],
        before: Before,
    ) -> None:
        self._partitions = partitions
        self._before = before
        self._wants = {m: {t for t in wanted if t in partitions} for m, wanted in topics.items()}
        self._readers = {t: [m for m, wanted in self._wants.items() if t in wanted] for t in partitions}
        rarest_first = sorted(partitions, key=lambda topic: (len(self._readers[topic]), topic))
        self._everything = partitions_of(rarest_first, partitions)
        self._moves = _Moves()
        self._assigned: Assigned = {}
        self._owner: dict[TopicPartition, str] = {}
        self._lost_a_topic = False  # whether a member has partitions of a topic it no longer wants
        for member, places in owned.items():
            self._assigned[member] = [place for place in places if place.topic in self._wants[member]]
            self._lost_a_topic |= len(self._assigned[member]) < len(places)
            self._owner.update((place, member) for place in self._assigned[member])
        self._by_load = cast("_ByLoad", SortedKeyList(self._assigned, key=self._load))

    def _load(self, member: str) -> tuple[int, str]:
        return len(self._assigned[member]), member

    def assign(self) -> Assigned:
        """Assign all partitions where members subscribe to different topics: free ones first, then moves that balance
        the load.
        """
        initial = not self._assigned[self._by_load[-1]]
        free = [place for place in self._everything if place not in self._owner]
        for place in free:
            self._give(place)
        movable = {topic for topic, readers in self._readers.items() if len(readers) > 1}
        fixed = {member: places for member, places in self._assigned.items() if not self._may_change(member, movable)}
        for member in fixed:
            self._by_load.remove(member)
            del self._assigned[member]
        if self._assigned:
            self._balance([p for p in free if p.topic in movable], movable, initial)
        self._assigned.update(fixed)
        return self._assigned

    def _give(self, place: TopicPartition) -> None:
        """Assign the partition to the subscriber of its topic with the fewest partitions."""
        member = self._least_loaded(place.topic)
        if member is not None:
            self._by_load.remove(member)
            self._assigned[member].append(place)
            self._owner[place] = member
            self._by_load.add(member)

    def _least_loaded(self, topic: str) -> str | None:
        return next((member for member in self._by_load if topic in self._wants[member]), None)

    def _may_change(self, member: str, movable: set[str]) -> bool:
        """Return whether the member could get more, or has partitions that another member could get."""
        if len(self._assigned[member]) < self._reach(member):
            return True
        return any(place.topic in movable for place in self._assigned[member])

    def _reach(self, member: str) -> int:
        """Return how many partitions the member's subscribed topics have."""
        return sum(self._partitions[topic] for topic in self._wants[member])

    # ---- moving ----------------------------------------------------------------------------------------------

    def _balance(self, new: list[TopicPartition], movable: set[str], initial: bool) -> None:
        """Move partitions to balance the members, first the `new` ones, which had no owner, then all of the movable
        topics. The moves are undone if they do not make it better, except at an initial assignment.
        """
        assigned_before = {member: list(places) for member, places in self._assigned.items()}
        if not self._lost_a_topic:
            self._move_while_better(new)
        moved = self._move_while_better([place for place in self._everything if place.topic in movable])
        if not initial and moved and _imbalance(self._assigned) >= _imbalance(assigned_before):
            self._assigned = assigned_before

    def _move_while_better(self, candidates: list[TopicPartition]) -> bool:
        """Move these partitions between members until all is balanced or no move improves it. Returns whether any was
        moved.
        """
        moved = False
        modified = True
        while modified:
            modified = False
            for place in candidates:
                if self._is_balanced():
                    break
                if self._move_to_better_owner(place):
                    moved = modified = True
        return moved

    def _move_to_better_owner(self, place: TopicPartition) -> bool:
        """Move the partition to a member with fewer, if that improves the balance. Returns whether it was moved."""
        owner = self._owner[place]
        enough = len(self._assigned[owner]) - 1
        if place in self._before:
            earlier = self._before[place][0]
            wanted = earlier in self._assigned and place.topic in self._wants[earlier]  # Kafka does not check this
            if wanted and enough > len(self._assigned[earlier]):
                self._hand_over(place, earlier)
                return True
        if all(enough <= len(self._assigned[reader]) for reader in self._readers[place.topic]):
            return False
        receiver = self._least_loaded(place.topic)
        assert receiver is not None, "the topic has readers"
        self._hand_over(place, receiver)
        return True

    def _hand_over(self, place: TopicPartition, receiver: str) -> None:
        """Move the partition, or another one of its topic that undoes an earlier move, to the receiver."""
        place = self._moves.instead_of(place, self._owner[place], receiver)
        giver = self._owner[place]
        self._by_load.remove(giver)
        if receiver != giver:
            self._by_load.remove(receiver)
        self._moves.moved(place, giver, receiver)
        self._assigned[giver].remove(place)
        self._assigned[receiver].append(place)
        self._owner[place] = receiver
        self._by_load.add(receiver)
        if receiver != giver:
            self._by_load.add(giver)

    def _is_balanced(self) -> bool:
        """Return whether no member could take a partition from a member that has more."""
        if len(self._assigned[self._by_load[0]]) >= len(self._assigned[self._by_load[-1]]) - 1:
            return True
        for member in self._by_load:
            count = len(self._assigned[member])
            if count == self._reach(member):
                continue
            for place in partitions_of(self._wants[member], self._partitions):
                owner = self._owner[place]
                if owner != member and owner in self._assigned and count < len(self._assigned[owner]):
                    return False
        return True


def _imbalance(assigned: Assigned) -> int:
    """Return the sum, over all pairs of members, of the difference between their numbers of partitions."""
    sizes = sorted(len(places) for places in assigned.values())
    # each size is added once for every smaller one, and subtracted once for every larger one
    return sum(size * (2 * place - len(sizes) + 1) for place, size in enumerate(sizes))


class _Moves:
    """Which partition moved from which member to which, so that no partition of the topic moves the other way."""

    def __init__(self) -> None:
        self._pair: dict[TopicPartition, tuple[str, str]] = {}
        self._by_topic: dict[str, dict[tuple[str, str], dict[TopicPartition, None]]] = {}

    def moved(self, place: TopicPartition, giver: str, receiver: str) -> None:
        """Record that a partition moved from giver to receiver. Several moves of one partition are recorded as one,
        from its first giver; a move back to that giver removes the record.
        """
        pair = self._pair.pop(place, None)
        if pair is None:
            self._record(place, (giver, receiver))
            return
        pairs = self._by_topic[place.topic]
        del pairs[pair][place]
        if not pairs[pair]:
            del pairs[pair]
        if pair[0] != receiver:
            self._record(place, (pair[0], receiver))

    def _record(self, place: TopicPartition, pair: tuple[str, str]) -> None:
        """Note that a partition moves between two members. pair: the member that loses the partition, and the one that
        gets it.
        """
        self._pair[place] = pair
        self._by_topic.setdefault(place.topic, {}).setdefault(pair, {})[place] = None

    def instead_of(self, place: TopicPartition, giver: str, receiver: str) -> TopicPartition:
        """Return which partition to move from giver to receiver: one of the same topic that was moved from receiver to
        giver before, so that this move is undone; `place` if there is none.
        """
        giver = self._pair[place][0] if place in self._pair else giver
        opposite = self._by_topic.get(place.topic, {}).get((receiver, giver))
        return hash_order(opposite, partition_hash)[0] if opposite else place
