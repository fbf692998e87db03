"""What a consumer reads: its topics, the partitions it has, and where it stands in each.

The rule: a partition that is taken away loses its state for good; one that comes back gets a new `PartitionState`, so
whoever kept the old one can tell (`is_current`). A position is only moved through the methods here, and each that moves
it drops what was fetched ahead. Source: Kafka's SubscriptionState.
"""

import re
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from enum import Enum, auto
from math import inf
from operator import itemgetter
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from ..errors import IllegalStateError
from ..values import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from ..records.fetched import Fetched
    from ..transactions.sources import Sources

EARLIEST = -2
LATEST = -1


class Need(Enum):
    """What has to be asked before a partition can be fetched."""

    NOTHING = auto()
    COMMITTED = auto()  # the group's committed offset; where there is none, the reset policy
    OFFSET = auto()  # the offset at `reset_to`


class Rewinds:
    """How often a partition was read again from an earlier offset, and how far back."""

    __slots__ = ("_lowest", "count")

    KEPT = 1_000

    def __init__(self) -> None:
        self.count = 0
        # (count, offset): both increase. An entry tells the lowest offset from that rewind on
        self._lowest: list[tuple[int, int]] = []

    def add(self, offset: int) -> None:
        """Reading begins at `offset` again."""
        self.count += 1
        while self._lowest and self._lowest[-1][1] >= offset:
            self._lowest.pop()
        self._lowest.append((self.count, offset))
        if len(self._lowest) > self.KEPT:  # for whoever is as old as that, the lower offset is the safe answer
            self._lowest[:2] = [(self._lowest[1][0], self._lowest[0][1])]

    def lowest_since(self, count: int) -> float:
        """The lowest offset that any rewind after the first `count` went back to, infinite if there was none."""
        following = bisect_right(self._lowest, count, key=itemgetter(0))
        return self._lowest[following][1] if following < len(self._lowest) else inf


class PartitionState:
    """Where a consumer stands in one partition.

    position: the next offset to give to the application, -1 while it is not known. `fetch_offset` is ahead of it by
    what lies in `fetched`. `fallback` is where to go when there turns out to be no committed offset, None for the
    reset policy. `epoch` counts the jumps: an answer to a fetch from before one is not for this position. `rewinds`
    are those back to what was rolled back: it comes again. `jumps` counts all other ones.
    claimed_by: the open transaction that works on batches of this partition. claimed_end: (jumps, offset) where the
    last of them ends. committed: the same, up to where transactions have committed batches. Both hold for batches that
    were read after so many jumps. committed_below: every offset given since the last jump that is lower than this is
    known to be committed. held: nothing is given before on_partitions_assigned is done, which may seek.
    """

    __slots__ = (
        "__weakref__",
        "claimed_by",
        "claimed_end",
        "committed",
        "committed_below",
        "epoch",
        "fallback",
        "fetch_offset",
        "fetched",
        "fetched_bytes",
        "held",
        "high_watermark",
        "jumps",
        "last_stable_offset",
        "leader_epoch",
        "log_start_offset",
        "need",
        "paused",
        "position",
        "position_epoch",
        "refused",
        "replica",
        "replica_epoch",
        "replica_until_ms",
        "reset_to",
        "retry_at_ms",
        "rewinds",
        "topic_id",
        "tp",
    )

    def __init__(self, tp: TopicPartition, need: Need) -> None:
        self.tp = tp
        self.fetched: deque[Fetched] = deque()
        self.fetched_bytes = 0
        self.position = -1
        self.position_epoch = -1  # leader epoch of the record before the position
        self.leader_epoch = -1  # leader epoch of the last record fetched
        self.fetch_offset = -1
        self.need = need
        self.reset_to = LATEST  # a timestamp, or EARLIEST or LATEST
        self.fallback: int | None = None
        self.refused: Exception | None = None  # raised at the next read, once
        self.retry_at_ms = 0
        self.replica = -1  # the follower that the leader named for our rack (KIP-392)
        self.replica_epoch = -1  # the leader's epoch when it did
        self.replica_until_ms = 0  # how long to believe it; without a replica: until when not to ask for another
        self.epoch = 0
        self.rewinds = Rewinds()
        self.jumps = 0
        self.claimed_by: Sources | None = None
        self.claimed_end: tuple[int, int] = (0, -1)
        self.committed: tuple[int, int] = (0, -1)
        self.committed_below = -1
        self.paused = False
        self.held = False
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start_offset = -1
        self.topic_id: bytes | None = None

    def __repr__(self) -> str:
        return f"PartitionState({self.tp}, position={self.position}, need={self.need.name})"

    @property
    def is_known(self) -> bool:
        """Whether nothing has to be asked before reading goes on at the position."""
        return self.position >= 0 and self.need is Need.NOTHING

    @property
    def offset(self) -> OffsetAndMetadata:
        """The position, as it is committed."""
        return OffsetAndMetadata(self.position, "", self.position_epoch)

    def drop_fetched(self) -> int:
        """Forget what was fetched ahead. Returns its bytes."""
        dropped = self.fetched_bytes
        self.fetched.clear()
        self.fetched_bytes = 0
        self.fetch_offset = self.position
        self.leader_epoch = self.position_epoch
        self.epoch += 1
        return dropped

    def move(self, offset: int, leader_epoch: int = -1) -> None:
        """Jump to this offset. leader_epoch: of the record before it, where it is known."""
        self.jumps += 1
        self.committed_below = offset
        self.go_on(offset, leader_epoch)

    def go_on(self, offset: int, leader_epoch: int = -1) -> None:
        """As move, within what was read since the last jump: back to what was rolled back, or again behind it."""
        self.position = offset
        self.position_epoch = leader_epoch
        self.need = Need.NOTHING
        self.fallback = None
        self.refused = None
        self.retry_at_ms = 0
        self.drop_fetched()

    def note_committed(self, offset: int) -> None:
        """The group has committed this offset, of what was given since the last jump."""
        self.committed_below = max(self.committed_below, offset)

    def note_nothing_given(self, since: int) -> None:
        """From the offset `since` up to the position there was nothing for the application: markers, hidden records."""
        if since <= self.committed_below:
            self.note_committed(self.position)

    def roll_back(self, offset: int) -> None:
        """Read again from `offset`, where a batch that was rolled back begins, or from before it.

        What was given before the batch may have been part of the same work without being committed. Where that is
        possible, the group's committed offset decides, and without one reading goes on at the first such record.
        """
        first = self.committed_below = min(offset, self.committed_below)
        self.rewinds.add(first)
        self.go_on(first)
        if first < offset:
            self.need = Need.COMMITTED
            self.fallback = first

    def ask(self, need: Need, reset_to: int = LATEST, fallback: int | None = None) -> None:
        """The position has to be asked for: from now on there is none."""
        self.jumps += 1
        self.position = self.position_epoch = -1
        self.need = need
        self.reset_to = reset_to
        self.fallback = fallback
        self.refused = None
        self.retry_at_ms = 0
        self.drop_fetched()


class Subscription:
    """What to read, and the state of each partition assigned.

    on_change is called after every change of the assignment or of a position.
    """

    def __init__(self, has_group: bool = False) -> None:
        self.has_group = has_group
        self.topics: frozenset[str] = frozenset()
        self.pattern: re.Pattern[str] | None = None
        self.listener: Any = None
        self.manual = False
        self.assigned: dict[TopicPartition, PartitionState] = {}
        self._given_away: WeakSet[PartitionState] = WeakSet()  # as long as a batch knows them
        self.assignments = 0  # grows with every change of `assigned`
        self.asked_for = False  # whether an assignment was made at all, be it of no partitions
        self.on_change: Callable[[], None] = lambda: None

    # What is wanted

    def subscribe(
        self, topics: Collection[str], pattern: "re.Pattern[str] | None" = None, listener: Any = None
    ) -> None:
        """Share these topics, or those whose names match, with the group. Partitions are kept until it says otherwise.

        Raises: IllegalStateError after `assign`.
        """
        if self.manual:
            raise IllegalStateError("subscribe() cannot be used after assign()", hint="call unsubscribe() first")
        self.topics, self.pattern, self.listener = frozenset(topics), pattern, listener
        self.on_change()

    def match(self, names: Iterable[str]) -> frozenset[str]:
        """The topics subscribed to, of all there are; a pattern takes those whose whole name it matches."""
        if self.pattern is None:
            return self.topics
        self.topics = frozenset(name for name in names if self.pattern.fullmatch(name))
        return self.topics

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these, without sharing.

        Raises: IllegalStateError after `subscribe`, and for a partition that was given away and comes back while a
        transaction still works on a batch of it: nobody else shares it, so no generation would fence that commit, and
        the same records would be read again for another one.
        """
        if self.is_subscribed:
            raise IllegalStateError("assign() cannot be used after subscribe()", hint="call unsubscribe() first")
        partitions = list(partitions)
        for tp in partitions:
            if any(state.tp == tp and state.claimed_by is not None for state in self._given_away):
                raise IllegalStateError(
                    f"an open transaction uses a batch of {TopicPartition(*tp)}, read before the partition was revoked",
                    hint="end that transaction, then assign the partition again",
                )
        self.manual = True
        self._set(partitions)

    def unsubscribe(self) -> None:
        """Read nothing."""
        self.topics, self.pattern, self.listener, self.manual = frozenset(), None, None, False
        self.asked_for = False
        self._set(())
        self.asked_for = False

    @property
    def is_subscribed(self) -> bool:
        return bool(self.topics) or self.pattern is not None

    # What the group says

    def assign_from_group(self, partitions: Iterable[TopicPartition], held: Collection[TopicPartition] = ()) -> None:
        """These are the member's now, and no others. Those it had keep their positions. held: until `release`."""
        self._set(partitions, held=held)

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        """Their listener is done: they may be read."""
        for tp in partitions:
            if (state := self.assigned.get(tp)) is not None:
                state.held = False
        self.on_change()

    def revoke(self, partitions: Iterable[TopicPartition]) -> None:
        """These are not the member's any more; what was fetched of them is dropped."""
        gone = set(partitions)
        self._set([tp for tp in self.assigned if tp not in gone], asked_for=self.asked_for)

    def _set(
        self, partitions: Iterable[TopicPartition], *, asked_for: bool = True, held: Collection[TopicPartition] = ()
    ) -> None:
        before = self.assigned
        need = Need.COMMITTED
        self.assigned = {tp: before.get(tp) or PartitionState(tp, need) for tp in dict.fromkeys(partitions)}
        self._given_away.update(state for tp, state in before.items() if tp not in self.assigned)
        for tp in held:
            self.assigned[tp].held = True
        self.assignments += 1
        self.asked_for = asked_for
        self.on_change()

    # Where it stands

    def state(self, tp: TopicPartition) -> PartitionState:
        """Raises: IllegalStateError for a partition that is not assigned."""
        state = self.assigned.get(tp)
        if state is None:
            raise IllegalStateError(f"{TopicPartition(*tp)} is not assigned to this consumer")
        return state

    def is_current(self, state: PartitionState) -> bool:
        """Whether the partition was assigned all the time since this state was made."""
        return self.assigned.get(state.tp) is state

    def seek(self, tp: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
        self.state(tp).move(offset, leader_epoch)
        self.on_change()

    def seek_to_end_of_log(self, partitions: Iterable[TopicPartition], reset_to: int) -> None:
        """To EARLIEST or LATEST, found when it is needed."""
        states = [self.state(tp) for tp in partitions]
        for state in states:
            state.ask(Need.OFFSET, reset_to)
        self.on_change()

    def seek_to_committed(self, partitions: Iterable[TopicPartition]) -> None:
        states = [self.state(tp) for tp in partitions]
        for state in states:
            state.ask(Need.COMMITTED)
        self.on_change()

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The position of every partition that has one: what to commit."""
        return {tp: state.offset for tp, state in self.assigned.items() if state.is_known}

    def needing(self, need: Need, now_ms: int) -> list[PartitionState]:
        """The partitions that need this, and may be asked for now."""
        return [
            state
            for state in self.assigned.values()
            if state.need is need and state.refused is None and state.retry_at_ms <= now_ms
        ]

    @property
    def needs_positions(self) -> bool:
        return any(state.need is not Need.NOTHING for state in self.assigned.values())

    # Pausing

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Give nothing of these until `resume`; what was fetched is kept."""
        states = [self.state(tp) for tp in partitions]
        for state in states:
            state.paused = True
        self.on_change()

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        states = [self.state(tp) for tp in partitions]
        for state in states:
            state.paused = False
        self.on_change()

    def paused(self) -> Iterator[TopicPartition]:
        return (tp for tp, state in self.assigned.items() if state.paused)
