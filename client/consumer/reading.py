"""Returns fetched records to the application, from the partitions in turn; notes those since the last commit or abort.

The rule: reading moves positions only here, by the records that were really returned, and never waits. While
`async for` iterates over a run of records, the position is behind; `settle` updates it before other code uses it. Pure.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import NoOffsetError, OffsetOutOfRangeError
from ..group.subscription import Need, PartitionState, Subscription
from ..records.fetched import Fetched
from ..settings import ConsumerSettings
from ..values import ConsumerGroupMetadata, OffsetAndMetadata, Record, TopicPartition
from .batches import Batch
from .positions import RESETS

NO_RECORDS: Iterator[Record] = iter(())


class _Given(NamedTuple):
    """The records of one partition that were returned and are not known to be committed.

    first: the position before them. went_back: whether the reader went back by a seek between them, so that the group's
    committed offset proves nothing about them.
    """

    first: int
    went_back: bool = False


class Reading:
    """Returns fetched records to the application, and notes which are not committed yet. run: the records over which
    `async for` iterates now.
    """

    __slots__ = (
        "__weakref__",
        "_assignments",
        "_commits_itself",
        "_failed",
        "_parts",
        "_policy",
        "_run_length",
        "_run_records",
        "_running",
        "_since",
        "_since_group",
        "_subscription",
        "_turn",
        "_unfinished",
        "last",
        "on_given",
        "run",
        "spans",
    )

    def __init__(self, settings: ConsumerSettings, subscription: Subscription, parts: Any = None) -> None:
        """parts: the consumer's Polls, for its batches."""
        self._parts = parts
        self._subscription = subscription
        self._assignments = 0  # the subscription's count when `_since` was last cleaned up
        self._commits_itself = settings.enable_auto_commit
        self._policy = RESETS.get(settings.auto_offset_reset or "none")
        self._turn = 0
        self._failed: PartitionState | None = None  # its error is raised by the next call, as this one had records
        self._running: tuple[PartitionState, Fetched] | None = None
        self._since: dict[PartitionState, _Given] = {}  # what was returned since the last commit or abort
        self._since_group: ConsumerGroupMetadata | None = None  # the group when the first of them was returned
        self.last: Batch | None = None
        self.run: Iterator[Record] = NO_RECORDS
        self._run_length = 0
        self._run_records: list[Record] = []
        self._unfinished: dict[PartitionState, int] = {}  # the first offset of what was returned last
        self.on_given: Callable[[PartitionState, int], None] | None = None  # counts, for ClientMetrics
        self.spans: Any = None  # a ConsumerSpans, where they are traced

    # ---- available records -------------------------------------------------------------------------------------

    def _candidates(self, wanted: Collection[TopicPartition]) -> list[PartitionState]:
        """Return the partitions with records or an error. Each call begins with another of them, so that none waits for
        long; but a partition whose error the last call has put off comes first.

        If one has an error and no records left, raises the error before other partitions return more.
        """
        found = [state for state in self._subscription.assigned.values() if _has_some(state, wanted)]
        if len(found) > 1:
            self._turn += 1
            first = self._turn % len(found)
            found = found[first:] + found[:first]
            if self._failed in found:
                found.sort(key=lambda state: state is not self._failed)
        self._failed = None
        for state in found:
            if state.refused is not None and not state.fetched:
                self._raise_refused(state)
        return found

    def has_some(self, wanted: Collection[TopicPartition]) -> bool:
        return any(_has_some(state, wanted) for state in self._subscription.assigned.values())

    def at_most(self) -> int:
        """Return an upper limit of the number of fetched records; how many they are is known when they are decoded."""
        states = self._subscription.assigned.values()
        return sum(found.at_most for state in states if not state.paused for found in state.fetched)

    def is_full(self, most_bytes: int) -> bool:
        """Return whether a partition has reached the limit of fetching ahead, so that waiting brings no more of it."""
        return any(state.fetched_bytes >= most_bytes for state in self._subscription.assigned.values())

    # ---- returning records -------------------------------------------------------------------------------------

    def settle(self) -> None:
        """End the current run: keep its records that were not returned, and set the position after those that were."""
        if self._running is None:
            return
        (state, fetched), self._running = self._running, None
        run, self.run = self.run, NO_RECORDS
        hint: Any = getattr(run, "__length_hint__", None)
        left = hint() if hint is not None else 0
        fetched.give_back(left)
        if left < self._run_length:
            self._unfinished = {state: self._run_records[self._run_length - left - 1].offset}
        self._run_records = []
        if self.on_given is not None:
            self.on_given(state, self._run_length - left)
        if self.spans is not None:
            self.spans.run_ended(self._run_length - left)
        if state.fetched and state.fetched[0] is fetched:
            self._update_position(state, fetched)

    def given_of_run(self) -> tuple[TopicPartition, int] | None:
        """Return the partition of the current run, and how many of its records were returned; None without a run.
        Thread-safe.
        """
        running, hint = self._running, getattr(self.run, "__length_hint__", None)
        if running is None:
            return None
        return running[0].tp, max(0, self._run_length - (hint() if hint is not None else 0))

    def _update_position(self, state: PartitionState, fetched: Fetched) -> None:
        """Set the position after the records that were read; remove the fetched bytes if all were."""
        state.position, state.position_epoch = fetched.position, fetched.leader_epoch
        if fetched.is_done:
            state.fetched.popleft()
            state.fetched_bytes -= fetched.size

    def take(
        self, most: int, wanted: Collection[TopicPartition], group: ConsumerGroupMetadata | None
    ) -> dict[PartitionState, tuple[int, list[Record]]]:
        """Return at most `most` records: for each partition its position before them, and the records. Positions also
        move over records that the consumer may not see (markers, aborted ones).

        Raises an error only if there are no records yet; else the next call raises it. wanted: the partitions to read,
        empty for all.
        """
        taken: dict[PartitionState, tuple[int, list[Record]]] = {}
        for state in self._candidates(wanted):
            first = state.position
            records: list[Record] = []
            try:
                while state.fetched and len(records) < most:
                    fetched = state.fetched[0]
                    run = fetched.run(most - len(records))
                    records = records + run if records else run
                    fetched.skip_hidden()
                    self._update_position(state, fetched)
            except Exception:
                if not taken and not records:
                    raise
                self._failed = self._failed or state
            if records:
                taken[state] = first, records
                if self.on_given is not None:
                    self.on_given(state, len(records))
                most -= len(records)
                if most <= 0:
                    break
            else:
                state.note_nothing_given(first)
        firsts = {state: first for state, (first, _) in taken.items()}
        self._unfinished = firsts
        self._remember(firsts, group)
        if self.spans is not None:
            self.spans.returned([records for _, records in taken.values()])
        return taken

    def begin_run(
        self, most: int, wanted: Collection[TopicPartition], group: ConsumerGroupMetadata | None
    ) -> Iterator[Record] | None:
        """Return an iterator over the next records of one partition, valid until settle(). None if there are
        none yet.
        """
        for state in self._candidates(wanted):
            while state.fetched:
                fetched = state.fetched[0]
                first = state.position
                records = fetched.run(most)
                if records:
                    self._remember({state: first}, group)
                    self._running = state, fetched
                    self.run, self._run_length, self._run_records = iter(records), len(records), records
                    if self.spans is not None:
                        self.spans.run_began(records)
                    return self.run
                self._update_position(state, fetched)
                state.note_nothing_given(first)
        return None

    def _raise_refused(self, state: PartitionState) -> None:
        """Raise a partition's error, once. After that, an error about its offset is resolved by auto_offset_reset."""
        error = state.refused
        assert error is not None
        if not isinstance(error, OffsetOutOfRangeError | NoOffsetError):
            state.refused = None
        elif self._policy is not None:
            if state.fallback is not None:
                state.move(state.fallback)
            else:
                state.look_up(Need.OFFSET, self._policy)
        self._subscription.on_change()  # fetch it again now: the next read only waits
        raise error

    # ---- what the application may be working on ----------------------------------------------------------------

    def note_asked(self) -> None:
        """Note that the application asks for more: it has processed what was returned before."""
        self.settle()
        self._unfinished = {}

    def unfinished(self) -> dict[TopicPartition, int]:
        """Return, by partition, the first offset of the records that were returned last. Returns nothing if the
        application has asked for more since, or they are committed.
        """
        self.settle()
        states = self._unfinished.items()
        return {state.tp: first for state, first in states if self._subscription.is_current(state)}

    # ---- since the last commit or abort ------------------------------------------------------------------------

    def _remember(self, firsts: dict[PartitionState, int], group: ConsumerGroupMetadata | None) -> None:
        """Note that records were returned from these first offsets on and are not committed. group: the member that
        read them.
        """
        since = self._since
        if self._assignments != self._subscription.assignments:
            self._assignments = self._subscription.assignments
            for revoked in [state for state in since if not self._subscription.is_current(state)]:
                del since[revoked]
        if not firsts:
            return
        self.last = None
        self._since_group = self._since_group or group
        for state, first in firsts.items():
            before = since.get(state)
            if before is None:
                since[state] = _Given(first)
            elif first < before.first:
                since[state] = _Given(first, went_back=True)

    def first_given(self, state: PartitionState) -> int | None:
        """Return the first offset of what was returned of this partition and is not known to be committed; None if
        there is nothing.
        """
        self.settle()
        given = self._since.get(state)
        return None if given is None else given.first

    def batch(
        self, taken: dict[PartitionState, tuple[int, list[Record]]], group: ConsumerGroupMetadata | None
    ) -> Batch:
        """Make a batch of the records that take() returned."""
        runs = [records for _, records in taken.values()]
        records = runs[0] if len(runs) == 1 else [record for run in runs for record in run]
        firsts = {state: first for state, (first, _) in taken.items()}
        batch = self._make_batch(records, firsts, group)
        firsts_since = {state: given.first for state, given in self._since.items()}
        if firsts == firsts_since and group == self._since_group:
            self.last = batch  # nothing was returned before it
        return batch

    def last_batch(self) -> Batch | None:
        """Return a batch with the offsets of all records returned since the last commit or abort; None if there are
        none. It contains the records themselves only if they were returned as one batch.
        """
        if self.last is not None:
            return self.last
        self.settle()
        found = {
            state: given
            for state, given in self._since.items()
            if self._subscription.is_current(state) and state.position > given.first
        }
        if not found:
            return None
        firsts = {state: given.first for state, given in found.items()}
        asks = {state for state, given in found.items() if not given.went_back}  # some may be committed by number
        return self._make_batch((), firsts, self._since_group, asks)

    def _make_batch(
        self,
        records: Sequence[Record],
        firsts: dict[PartitionState, int],
        group: ConsumerGroupMetadata | None,
        asks: Collection[PartitionState] = (),
    ) -> Batch:
        """Make the Batch that a poll returns. firsts: by partition, the offset of its first record. asks: partitions
        of which some records may be committed already, so that the group is asked after an abort.
        """
        itself = self._commits_itself
        batch = Batch(records, firsts, self._subscription, group, self._settle, asks=asks, commits_itself=itself)
        batch.parts = self._parts
        return batch

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop tracking the records of these partitions that the application was given: they are committed, or will be
        delivered again.
        """
        self.settle()
        for tp in partitions:
            self._since.pop(self._subscription.state(tp), None)
        self._forget_group()
        self.last = None

    def note_committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Note that records below these offsets were committed without a transaction."""
        for state in [*self._unfinished]:
            if state.tp in offsets:
                self._unfinished[state] = max(self._unfinished[state], offsets[state.tp].offset)
        self._settle_to(offsets)
        self.last = None

    def _settle_to(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Note that records below these offsets are committed or aborted; later ones are still uncommitted."""
        self.settle()
        for state, given in [*self._since.items()]:
            if state.tp in offsets:
                after = offsets[state.tp].offset
                if state.position > after:
                    self._since[state] = given._replace(first=max(given.first, after))
                else:
                    del self._since[state]
        self._forget_group()

    def _forget_group(self) -> None:
        """Forget which member read the uncommitted records, if there are none any more.

        Called when records are committed or will be returned again, not when their partition is revoked. After a
        revocation the member stays noted, so that the group refuses the offsets of records that are returned later: the
        revoked records are part of the same work.
        """
        if not self._since:
            self._since_group = None

    def _settle(self, batch: Batch) -> None:
        self._settle_to(batch.offsets)


def _has_some(state: PartitionState, wanted: Collection[TopicPartition]) -> bool:
    """Return whether the partition has records or an error for the reader now."""
    if state.paused or state.held or (wanted and state.tp not in wanted):
        return False
    return bool(state.fetched) or state.refused is not None
