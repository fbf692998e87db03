"""The subscription of a consumer: its topics, its assigned partitions, and its position in each. Pure.

The rule: a revoked partition loses its state; if it is assigned again, it gets a new `PartitionState`, which differs
from the old one (`is_current`). A position changes only by the methods here, and each of them drops the records that
were fetched ahead. Source: Kafka's SubscriptionState.
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
    """What must be looked up before a partition can be fetched."""

    NOTHING = auto()
    COMMITTED = auto()  # the group's committed offset; without one, the reset policy decides
    OFFSET = auto()  # the offset at `reset_to`


class Rewinds:
    """How often the position of a partition went back by a rollback, and how far."""

    __slots__ = ("_lowest", "count")

    KEPT = 1_000

    def __init__(self) -> None:
        self.count = 0
        # (count, offset), both increasing: the lowest offset of the rewinds from this count on
        self._lowest: list[tuple[int, int]] = []

    def add(self, offset: int) -> None:
        """Count a rewind of the position to `offset`."""
        self.count += 1
        while self._lowest and self._lowest[-1][1] >= offset:
            self._lowest.pop()
        self._lowest.append((self.count, offset))
        if len(self._lowest) > self.KEPT:  # merge the oldest two; the lower offset is safe
            self._lowest[:2] = [(self._lowest[1][0], self._lowest[0][1])]

    def lowest_since(self, count: int) -> float:
        """Return the lowest offset of the rewinds after the first `count` ones; infinite if there was none."""
        following = bisect_right(self._lowest, count, key=itemgetter(0))
        return self._lowest[following][1] if following < len(self._lowest) else inf


class PartitionState:
    """A consumer's position in one partition, and its fetched records.

    position: the next offset to return to the application, -1 while it is not known. fetch_offset: after the records
    in `fetched`. fallback: the lowest position, also without a committed offset; None for the reset policy. epoch:
    counts changes of the position, so that responses to earlier fetches are ignored. rewinds: changes by a rollback,
    after which records are read again. jumps: counts all other changes, such as seeks.
    claimed_by: the open transaction that uses batches of this partition. claimed_end: (jumps, offset) of the end of the
    last of them. committed: the same for the end of batches that transactions have committed. Both are only for batches
    that were read after this count of jumps. committed_below: all offsets below it, returned since the last jump, are
    known to be committed. held: no records are returned until on_partitions_assigned, which may seek, has ended.
    """

    __slots__ = (
        "__weakref__",
        "claimed_by",
        "claimed_end",
        "committed",
        "committed_below",
        "epoch",
        "fallback",
        "fallback_below",
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
        "unstable_since_ms",
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
        self.fallback_below = -1  # a committed offset above this is of what was returned before a seek back
        self.refused: Exception | None = None  # the error that the next read raises, once
        self.retry_at_ms = 0
        self.replica = -1  # the follower that the leader named for our rack (KIP-392)
        self.replica_epoch = -1  # the leader's epoch at that time
        self.replica_until_ms = 0  # until when to use it; without a replica: until when to fetch from the leader only
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
        self.unstable_since_ms: int | None = None  # since when an open transaction holds the group's committed offset

    def __repr__(self) -> str:
        return f"PartitionState({self.tp}, position={self.position}, need={self.need.name})"

    @property
    def is_known(self) -> bool:
        """Return whether the position is known and need not be looked up."""
        return self.position >= 0 and self.need is Need.NOTHING

    def unstable_ms(self, now_ms: int) -> int:
        """Return for how many milliseconds an open transaction that holds the group's committed offset has kept this
        partition from being read; 0 if none does.
        """
        waits = self.need is Need.COMMITTED and self.unstable_since_ms is not None
        return now_ms - self.unstable_since_ms if waits and self.unstable_since_ms is not None else 0

    @property
    def offset(self) -> OffsetAndMetadata:
        """The position as an offset to commit."""
        return OffsetAndMetadata(self.position, "", self.position_epoch)

    def drop_fetched(self) -> int:
        """Drop the records that were fetched ahead and not returned. Returns how many bytes they had."""
        dropped = self.fetched_bytes
        self.fetched.clear()
        self.fetched_bytes = 0
        self.fetch_offset = self.position
        self.leader_epoch = self.position_epoch
        self.epoch += 1
        return dropped

    def move(self, offset: int, leader_epoch: int = -1) -> None:
        """Set the position to an offset anywhere in the log, after a seek or a lookup. leader_epoch: of the record
        before it, if known.
        """
        self.jumps += 1
        self.committed_below = offset
        self.go_on(offset, leader_epoch)

    def go_on(self, offset: int, leader_epoch: int = -1) -> None:
        """Set the position without counting a jump (a seek or lookup): back, after a rollback, or forward, over records
        that were read since the last jump.
        """
        self.position = offset
        self.position_epoch = leader_epoch
        self.need = Need.NOTHING
        self.fallback = None
        self.refused = None
        self.retry_at_ms = 0
        self.drop_fetched()

    def note_committed(self, offset: int) -> None:
        """Note that the group has committed this offset, of a record returned since the last jump (seek or lookup)."""
        self.committed_below = max(self.committed_below, offset)

    def note_nothing_given(self, since: int) -> None:
        """Note that there was nothing to return from offset `since` up to the position: only markers and aborted
        records.
        """
        if since <= self.committed_below:
            self.note_committed(self.position)

    def roll_back(self, offset: int, *, asks: bool = False) -> None:
        """Read again from `offset`, where a batch that was rolled back begins, or from an earlier offset.

        Records returned before the batch may belong to the same work without being committed. If there are such
        records, or if `asks` is true, the group's committed offset is looked up and becomes the position, unless it is
        below the first such record.
        """
        first = self.committed_below = min(offset, self.committed_below)
        self._note_fallback_below()
        self.rewinds.add(first)
        self.go_on(first)
        if asks or first < offset:
            self.need = Need.COMMITTED
            self.fallback = first

    def _note_fallback_below(self) -> None:
        """Remember how far the position was. A committed offset above it is not used: it is from before a seek back."""
        before = self.fallback_below if self.need is Need.COMMITTED else -1  # a look-up is still under way
        self.fallback_below = max(self.position, before)

    def look_up(self, need: Need, reset_to: int = LATEST, fallback: int | None = None) -> None:
        """Forget the position, so that it is looked up. need: how; reset_to: EARLIEST or LATEST, for Need.OFFSET.
        fallback: the lowest offset to use, also if there is no committed offset.
        """
        self.jumps += 1
        self._note_fallback_below()
        self.position = self.position_epoch = -1
        self.need = need
        self.reset_to = reset_to
        self.fallback = fallback
        self.refused = None
        self.retry_at_ms = 0
        self.drop_fetched()


class Subscription:
    """The subscription, and the state of each assigned partition.

    on_change: called after every change of the assignment or of a position.
    """

    def __init__(self, has_group: bool = False) -> None:
        self.has_group = has_group
        self.topics: frozenset[str] = frozenset()
        self.pattern: re.Pattern[str] | None = None
        self.expression: str | None = None  # a pattern that the broker evaluates
        self.listener: Any = None
        self.manual = False
        self.assigned: dict[TopicPartition, PartitionState] = {}
        self._revoked: WeakSet[PartitionState] = WeakSet()  # while a batch refers to them
        self.assignments = 0  # counts changes of `assigned`
        self.has_assignment = False  # also true for an assignment without partitions
        self.on_change: Callable[[], None] = lambda: None

    # ---- subscription ----------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Collection[str],
        pattern: "re.Pattern[str] | None" = None,
        listener: Any = None,
        *,
        expression: str | None = None,
    ) -> None:
        """Subscribe to these topics, or to those whose names match. The assignment stays until the group changes it.

        expression: a pattern that the broker evaluates. Raises IllegalStateError after `assign`.
        """
        if self.manual:
            raise IllegalStateError("subscribe() cannot be used after assign()", hint="call unsubscribe() first")
        self.topics, self.pattern, self.listener = frozenset(topics), pattern, listener
        self.expression = expression
        self.on_change()

    def match(self, names: Iterable[str]) -> frozenset[str]:
        """Update and return the subscribed topics. names: of all topics; a pattern must match the whole name."""
        if self.pattern is None:
            return self.topics
        self.topics = frozenset(name for name in names if self.pattern.fullmatch(name))
        return self.topics

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions.

        Raises IllegalStateError after `subscribe`, and for a partition that was unassigned and is assigned again while
        an open transaction uses a batch of it: no generation would fence that commit, and the same records would be
        read again for another transaction.
        """
        if self.is_subscribed:
            raise IllegalStateError("assign() cannot be used after subscribe()", hint="call unsubscribe() first")
        partitions = list(partitions)
        for tp in partitions:
            if any(state.tp == tp and state.claimed_by is not None for state in self._revoked):
                raise IllegalStateError(
                    f"an open transaction uses a batch of {TopicPartition(*tp)}, read before the partition was revoked",
                    hint="end that transaction, then assign the partition again",
                )
        self.manual = True
        self._set(partitions)

    def unsubscribe(self) -> None:
        """Remove the subscription and the assignment."""
        self.topics, self.pattern, self.listener, self.manual = frozenset(), None, None, False
        self.expression = None
        self.has_assignment = False
        self._set(())
        self.has_assignment = False

    @property
    def is_subscribed(self) -> bool:
        return bool(self.topics) or self.pattern is not None or self.expression is not None

    # ---- assignment by the group -----------------------------------------------------------------------------

    def assign_from_group(self, partitions: Iterable[TopicPartition], held: Collection[TopicPartition] = ()) -> None:
        """Assign exactly these partitions; those that stay keep their positions. held: not read until `release`."""
        self._set(partitions, held=held)

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        """Allow reading these partitions: their rebalance listener is done."""
        for tp in partitions:
            if (state := self.assigned.get(tp)) is not None:
                state.held = False
        self.on_change()

    def revoke(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove these partitions from the assignment."""
        revoked = set(partitions)
        self._set([tp for tp in self.assigned if tp not in revoked], has_assignment=self.has_assignment)

    def _set(
        self,
        partitions: Iterable[TopicPartition],
        *,
        has_assignment: bool = True,
        held: Collection[TopicPartition] = (),
    ) -> None:
        """Set the assigned partitions; those that stay keep their state. held: not read until `release`."""
        before = self.assigned
        chosen = dict.fromkeys(partitions)
        self.assigned = {tp: before.get(tp) or PartitionState(tp, Need.COMMITTED) for tp in chosen}
        self._revoked.update(state for tp, state in before.items() if tp not in self.assigned)
        for tp in held:
            self.assigned[tp].held = True
        self.assignments += 1
        self.has_assignment = has_assignment
        self.on_change()

    # ---- positions -------------------------------------------------------------------------------------------

    def state(self, tp: TopicPartition) -> PartitionState:
        """Return the state of an assigned partition. Raises IllegalStateError for one that is not assigned."""
        state = self.assigned.get(tp)
        if state is None:
            raise IllegalStateError(f"{TopicPartition(*tp)} is not assigned to this consumer")
        return state

    def is_current(self, state: PartitionState) -> bool:
        """Return whether the partition was assigned all the time since this state was created."""
        return self.assigned.get(state.tp) is state

    def seek(self, tp: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
        self.state(tp).move(offset, leader_epoch)
        self.on_change()

    def seek_to_earliest_or_latest(self, partitions: Iterable[TopicPartition], which: int) -> None:
        """Seek to `which`, EARLIEST or LATEST; the offset is looked up later."""
        states = [self.state(tp) for tp in partitions]
        for state in states:
            state.look_up(Need.OFFSET, which)
        self.on_change()

    def seek_to_committed(self, partitions: Iterable[TopicPartition]) -> None:
        """Look up the group's committed offsets of these partitions, and continue there."""
        states = [self.state(tp) for tp in partitions]
        for state in states:
            state.look_up(Need.COMMITTED)
        self.on_change()

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the known positions, as offsets to commit."""
        return {tp: state.offset for tp, state in self.assigned.items() if state.is_known}

    def needing(self, need: Need, now_ms: int) -> list[PartitionState]:
        """Return the partitions that need this lookup and do not wait for a retry."""
        return [
            state
            for state in self.assigned.values()
            if state.need is need and state.refused is None and state.retry_at_ms <= now_ms
        ]

    @property
    def needs_positions(self) -> bool:
        return any(state.need is not Need.NOTHING for state in self.assigned.values())

    # ---- pausing ---------------------------------------------------------------------------------------------

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these until `resume`; fetched records are kept."""
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
