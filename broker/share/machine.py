"""One share partition: the state of each record, which member has acquired it, and how these change. Pure.

    AVAILABLE     may be delivered; also every record without a known state
    ACQUIRED      was delivered to a member, which has it until its deadline
    PENDING       acknowledged in a transaction that is open: nobody acquires it before that ends
    ACKNOWLEDGED  done with
    ARCHIVED      done with, too: rejected, delivered too often, or without data for consumers

The window is from `start` to `end`: all records below it are done with, none above it was delivered. Its length is
limited; records inside it that are done with count.

The rules. Methods named decide_… change nothing: they return what to log. Durable state is changed only by the methods
named apply… and by settle(), live and in a replay alike. Locks are in memory only: an acquisition is not logged before
its record is acknowledged or released, and a restart makes a record that was ACQUIRED what it was before. `deliveries`
counts acquisitions. It falls only by a restart or a reset, which forget acquisitions that were not logged. A record
leaves PENDING only by the marker of its transaction, unless the log start offset passes it or its topic is deleted.
Source: KIP-932, Kafka's SharePartition and InFlightState; KAFKA-19476, 19859, 19953, 19972.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from ...protocol.errors import ErrorCode, KafkaError
from .acquiring import Limits, Taken, take
from .runs import Change, Run, Runs, Standing, StateColumns, Transaction, is_final, standing_of
from .values import (
    UNCHANGED,
    AckType,
    AcquiredRange,
    Found,
    Snapshot,
    State,
    StateBatch,
    Update,
    Wanted,
    append_or_extend,
)

STALE_ALARMS_KEPT = 64
_new = tuple.__new__  # makes a NamedTuple faster than its class does: one step makes thousands

Range = tuple[int, int]
Ack = tuple[int, int, int]
"""A range, and how it is acknowledged."""
Alarm = tuple[int, int, int]
"""A deadline, and the range that was acquired until then."""


class Decision(NamedTuple):
    """The changes that some acknowledgements make.

    runs: the runs (ranges of records) with their new states. batches: the states to be logged. renewed_until_ms: the
    new deadline of renewed locks; None if none is renewed.
    """

    runs: list[Run]
    batches: list[StateBatch]
    renewed_until_ms: int | None = None


class SharePartition:
    """The state of one share partition."""

    __slots__ = ("_alarms", "_look_from", "_pending", "end", "runs", "start", "state_epoch")

    def __init__(self, start: int, state_epoch: int = 0) -> None:
        self.start = start
        self.end = start - 1
        self.state_epoch = state_epoch
        self.runs = Runs()
        self._pending: dict[Transaction, dict[int, set[Range]]] = {}  # by position of the record in the log
        self._alarms: list[Alarm] = []  # a heap; some are of locks that have ended
        self._look_from = start  # nothing below is available

    # ---- questions -------------------------------------------------------------------------------------------

    @property
    def next_offset(self) -> int:
        """The first offset that may be delivered: of an available record in the window, or after the window."""
        self._look_from = self.runs.first_open(max(self.start, self._look_from))
        return self._look_from

    def room(self, limit: int) -> int:
        """Return by how many records the window may grow. limit: how many records it has at most."""
        return limit - (self.end - self.start + 1)

    def pending_ranges(self, transaction: Transaction) -> int:
        """Return how many ranges of records this transaction has pending here."""
        return sum(map(len, self._pending.get(transaction, {}).values()))

    @property
    def transactions(self) -> list[Transaction]:
        """The transactions that have pending acknowledgements in this share partition."""
        return list(self._pending)

    @property
    def earliest_pending(self) -> int | None:
        """The lowest log offset of a record that made acknowledgements pending; None if nothing is pending."""
        return min((position for logged in self._pending.values() for position in logged), default=None)

    def pending_of(self, transaction: Transaction) -> Iterator[Run]:
        """Yield the runs that a transaction has pending here, in offset order."""
        if transaction in self._pending:
            yield from (run for run in self.runs if run[2].transaction == transaction)

    def pending_batches(self) -> Iterator[tuple[Transaction, int, StateBatch]]:
        """Yield every pending range: its transaction, its record's offset in the log, and the states logged there."""
        for transaction in self._pending:
            for position, first, last, standing in self._pending_pieces(transaction):
                batch = StateBatch(first, last, standing.becomes, standing.deliveries, standing.member)
                yield transaction, position, batch

    def pending_runs(self) -> list[Run]:
        """Return the runs that transactions have pending, in offset order."""
        return [run for run in self.runs if run[2].state is State.PENDING] if self._pending else []

    def _pending_pieces(self, transaction: Transaction) -> Iterator[tuple[int, int, int, Standing]]:
        """Yield a transaction's pending ranges: offset of their record in the log, first offset, last offset, state.

        A replay may repeat what a snapshot contains; no offset is yielded twice.
        """
        logged = self._pending.get(transaction, {})
        ranges = sorted((first, last, position) for position, of_record in logged.items() for first, last in of_record)
        at = self.start
        for first, last, position in ranges:
            for begins, ends, standing in self.runs.pieces(max(first, at), last):
                if standing is not None and standing.transaction == transaction:
                    yield position, begins, ends, standing
            at = max(at, last + 1)

    def durable(self) -> list[StateBatch]:
        """Return the states that a restart would restore: acquired and pending records count as available."""
        return durable_states(self.runs)

    # ---- decisions: nothing changes --------------------------------------------------------------------------

    def decide_acks(self, member: str, acks: Iterable[Ack], above: int, limit: int, until_ms: int | None) -> Decision:
        """Decide what these acknowledgements change. Nothing is changed yet.

        above: the last offset acknowledged before them in the same request, which they must exceed. limit: how often
        a record is delivered at most. until_ms: the deadline of renewed locks; None: locks are not renewed. Raises
        KafkaError INVALID_RECORD_STATE or INVALID_REQUEST; then none of them counts.
        """
        runs: list[Run] = []
        batches: list[StateBatch] = []
        renewed_until_ms: int | None = None
        for first, last, standing, kind in self._acquired(member, acks, above):
            if kind == AckType.RENEW:
                if until_ms is None:
                    raise _not_acquired("locks of this group are not renewed (share.renew.acknowledge.enable)")
                renewed_until_ms = until_ms
                runs.append((first, last, standing._replace(deadline_ms=until_ms)))
                continue
            state = _state_after(kind, standing.deliveries, limit)
            runs.append((first, last, standing_of(int(state), standing.deliveries)))
            append_or_extend(batches, first, last, state, standing.deliveries)
        return Decision(runs, batches, renewed_until_ms)

    def decide_pending(self, member: str, acks: Iterable[Ack], above: int, transaction: Transaction) -> Decision:
        """Decide which records these acknowledgements make pending in the transaction. Nothing is changed yet. Raises
        KafkaError as decide_acks() does, and also for an offset below the window, or a type that is neither ACCEPT nor
        REJECT.
        """
        runs: list[Run] = []
        batches: list[StateBatch] = []
        acks = list(acks)
        if acks and acks[0][0] < self.start:
            raise _not_acquired(f"the window begins at offset {self.start}")
        for first, last, standing, kind in self._acquired(member, acks, above):
            if kind not in (AckType.ACCEPT, AckType.REJECT):
                raise KafkaError(ErrorCode.INVALID_REQUEST, "a transaction can accept and reject")
            state = State.ACKNOWLEDGED if kind == AckType.ACCEPT else State.ARCHIVED
            runs.append((first, last, _pending(standing.deliveries, member, transaction, state)))
            append_or_extend(batches, first, last, state, standing.deliveries, member)
        return Decision(runs, batches)

    def _acquired(self, member: str, acks: Iterable[Ack], above: int) -> Iterator[tuple[int, int, Standing, int]]:
        """Yield the acknowledged ranges in the window: first offset, last offset, state, type of acknowledgement.

        Ranges below the window are skipped. Raises KafkaError if the member has not acquired all the others, or if the
        ranges are not in order above `above`.
        """
        for first, last, kind in acks:
            if first <= above:
                raise _not_acquired(f"offset {first} is acknowledged twice")
            above = last
            if last < self.start:
                continue
            if self.end >= self.start and last > self.end:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"offset {last} was not given out, {self.end} was the last")
            for begins, ends, standing in self.runs.pieces(max(first, self.start), last):
                if standing is None or standing.state is not State.ACQUIRED or standing.member != member:
                    raise _not_acquired(f"offset {begins} is not acquired by this member")
                yield begins, ends, standing, kind

    def decide_release(self, acks: Iterable[Ack], limit: int) -> Decision:
        """Decide the changes when the locks of these records end; those that are not acquired any more do not change.
        limit: how often a record is delivered at most.
        """
        runs: list[Run] = []
        batches: list[StateBatch] = []
        for first, last, kind in acks:
            for begins, ends, standing in self.runs.pieces(first, last):
                if standing is not None and standing.state is State.ACQUIRED:
                    state = _state_after(kind, standing.deliveries, limit)
                    runs.append((begins, ends, standing_of(int(state), standing.deliveries)))
                    append_or_extend(batches, begins, ends, state, standing.deliveries)
        return Decision(runs, batches)

    def decide_abort(self, transaction: Transaction, limit: int) -> Update | None:
        """Return the update that an abort of the transaction needs, which archives its records at the delivery limit;
        None if there are no such records.
        """
        batches: list[StateBatch] = []
        for first, last, standing in self.pending_of(transaction):
            if standing.deliveries >= limit:
                append_or_extend(batches, first, last, State.ARCHIVED, standing.deliveries)
        return self._update(batches) if batches else None

    def decide_start(self, offset: int) -> Update | None:
        """Return the update that moves the window up to this log start offset; None if it begins there or above."""
        return self._update([], offset) if offset > self.start else None

    def decide_acquisition(self, offset: int, found: Sequence[Found], wanted: Wanted, limits: Limits) -> Taken:
        """Decide which records of these batches a member acquires, and which are archived. See acquiring.take."""
        return take(self.runs, (self.start, self.end), offset, found, wanted, limits)

    def decide_archive(self, batches: Sequence[StateBatch]) -> Update | None:
        """Return the update that archives these ranges, which have no data for consumers; None for no ranges."""
        return self._update(batches) if batches else None

    def _update(self, batches: Sequence[StateBatch], start: int | None = None) -> Update:
        """Return the update to log for a change that is not applied yet. batches: new states, in order. start: the new
        start of the window; None: it moves only as far as these states require.
        """
        start = self._start_after(batches, self.start if start is None else start)
        complete = self.runs.complete  # records of the window that are acknowledged or archived
        for first, last, state, *_ in batches:
            if state is not State.AVAILABLE:
                complete += last - max(first, start) + 1 if last >= start else 0
        complete -= sum(
            last - first + 1 for first, last, standing in self.runs.pieces(self.start, start - 1) if is_final(standing)
        )
        return Update(start, complete, batches)

    def _start_after(self, batches: Sequence[StateBatch], at: int) -> int:
        """Return the window's start after these batches are applied. at: its start before."""
        new = iter(batches)
        batch = next(new, None)
        while True:
            while batch is not None and batch.last < at:
                batch = next(new, None)
            if batch is not None and batch.first <= at:
                if batch.state is State.AVAILABLE:
                    return at
                at = batch.last + 1
                continue
            run = self.runs.at(at)
            if run is None or not is_final(run[2]):
                return at
            at = run[1] + 1 if batch is None else min(run[1] + 1, batch.first)

    def start_with(self, changes: Sequence[Change]) -> int:
        """Return the window's start after these changes, which are in order and not made yet."""
        at = self.runs.final_until(self.start)  # the start as far as it is known; each change may move it
        for change in changes:
            if at < change.first:
                break
            if at <= change.last:
                at = change.after.final_until(at)
        return at if changes and at <= changes[-1].last else self.runs.final_until(at)

    # ---- what is in memory only ------------------------------------------------------------------------------

    def acquire(self, ranges: Sequence[AcquiredRange], member: str, deadline_ms: int) -> None:
        """Let the member acquire these ranges, until the deadline."""
        for first, last, deliveries in ranges:
            self.runs.put(first, last, Standing(State.ACQUIRED, deliveries, member, deadline_ms))
            self.end = max(self.end, last)
            self.set_alarm((deadline_ms, first, last))

    def set_alarm(self, alarm: Alarm) -> None:
        """Note that the locks in this range may end at this deadline. If there are many alarms, drop old ones."""
        heappush(self._alarms, alarm)
        if len(self._alarms) > 2 * len(self.runs) + STALE_ALARMS_KEPT:
            self._alarms = [(run[2].deadline_ms, run[0], run[1]) for run in self.runs if run[2].state is State.ACQUIRED]
            heapify(self._alarms)

    @property
    def alarm_ms(self) -> int | None:
        """The earliest deadline that has an alarm; its lock may have ended meanwhile. None if there is no alarm."""
        return self._alarms[0][0] if self._alarms else None

    def due_alarms(self, now_ms: int, max_runs: int) -> tuple[list[Alarm], int]:
        """Remove and return the alarms that are due, for about max_runs runs at most; and how many runs these are."""
        due: list[Alarm] = []
        runs = 0
        while runs < max_runs and self._alarms and self._alarms[0][0] <= now_ms:
            deadline_ms, first, last = heappop(self._alarms)
            begins = max(first, self.start)
            ends = self.runs.last_of(begins, max_runs - runs)
            if ends is not None and ends < last:
                heappush(self._alarms, (deadline_ms, ends + 1, last))
                last = ends
            runs += max(1, self.runs.count(begins, last))
            due.append((deadline_ms, first, last))
        return due, runs

    def put_off(self, due: Sequence[Alarm]) -> None:
        """Set these alarms, which due_alarms() returned, again, because the end of their locks could not be logged."""
        for alarm in due:
            heappush(self._alarms, alarm)

    def end_locks(self, runs: Sequence[Run], now_ms: int) -> None:
        """Set the deadline of these acquired runs to now, so that the timer ends their locks."""
        for first, last, standing in runs:
            self.runs.put(first, last, standing._replace(deadline_ms=now_ms))
            self.set_alarm((now_ms, first, last))

    # ---- changes: live and in a replay alike -----------------------------------------------------------------

    def apply(self, update: Update) -> None:
        """Apply an update that was read from the log, or has been written to it."""
        batches = update.batches
        if isinstance(batches, StateColumns) and batches.has_no_gaps and batches.firsts[0] >= self.start:
            self._store_states(batches)
        else:
            self._store_runs(
                [(first, last, standing_of(int(state), given)) for first, last, state, given, _ in batches]
            )
        if update.start != UNCHANGED:
            self._begin_at(update.start)
        self._advance()

    def apply_decided(self, changes: Sequence[Change], freed: int | None = None) -> None:
        """Apply changes that were decided before, faster than apply(). freed: the first offset made available."""
        self.runs.replace(changes)
        if freed is not None:
            self._look_from = min(self._look_from, freed)
        self._advance()

    def apply_decided_pending(
        self, transaction: Transaction, position: int, changes: Sequence[Change], ranges: Collection[Range]
    ) -> None:
        """Make these changes pending, as apply_pending() does, but faster.

        position: the offset of their record in the log. ranges: the ranges of offsets in that record.
        """
        if ranges:
            self._pending.setdefault(transaction, {}).setdefault(position, set()).update(ranges)
            self.runs.replace(changes)

    def apply_snapshot(self, snapshot: Snapshot) -> None:
        """Replace the state by a snapshot. Pending records stay pending. Acquired records stay acquired, unless an
        admin has set the offset.
        """
        same = snapshot.state_epoch == self.state_epoch
        kept = [
            run
            for run in self.runs
            if run[1] >= snapshot.start and (run[2].state is State.PENDING or (same and run[2].state is State.ACQUIRED))
        ]
        self.state_epoch, self.start = snapshot.state_epoch, snapshot.start
        self.runs = Runs.of_states(snapshot.batches)
        self.runs.cut(self.start)
        for first, last, standing in kept:
            self.runs.put(max(first, self.start), last, standing)
        last = self.start - 1 if self.runs.last is None else self.runs.last
        self.end = max(self.end, last) if same else last
        self._look_from = self.start
        self._advance()

    def apply_pending(self, transaction: Transaction, position: int, batches: Sequence[StateBatch]) -> None:
        """Make these ranges pending in the transaction. position: the log offset of the record that has them."""
        if not batches:
            return
        of_record = self._pending.setdefault(transaction, {}).setdefault(position, set())
        of_record.update((first, last) for first, last, *_ in batches)
        self._store_runs(
            [
                (first, last, _pending(deliveries, member, transaction, state))
                for first, last, state, deliveries, member in batches
            ]
        )

    def settle(self, transaction: Transaction, position: int, *, commit: bool) -> None:
        """Apply a transaction's marker at this log offset to the records that the transaction made pending below it:
        a commit makes them acknowledged or archived, as the transaction asked; an abort makes them available.
        """
        logged = self._pending.pop(transaction, {})
        left = {at: ranges for at, ranges in logged.items() if at >= position}
        if left:
            self._pending[transaction] = logged
            ended = [run[1:] for run in self._pending_pieces(transaction) if run[0] < position]
            self._store_runs([(first, last, _settled(one, commit)) for first, last, one in ended])
            self._pending[transaction] = left
        elif logged:
            self.runs.exchange(lambda one: _settled(one, commit) if one.transaction == transaction else one)
            if not commit:
                self._look_from = min(self._look_from, min(first for ranges in logged.values() for first, _ in ranges))
        self._advance()

    def _store_runs(self, runs: Sequence[Run]) -> None:
        """Set the states of these runs, which are in order. Offsets below the window are ignored."""
        if runs and runs[0][0] < self.start:
            runs = [(max(first, self.start), last, one) for first, last, one in runs if last >= self.start]
        if not runs:
            return
        self.runs.put_all(
            [
                (first, last, one if one.deliveries or one.state is not State.AVAILABLE else None)
                for first, last, one in runs
            ]
        )
        self.end = max(self.end, runs[-1][1])
        opened = next((first for first, _, one in runs if one.state is State.AVAILABLE), self._look_from)
        self._look_from = min(self._look_from, opened)

    def _store_states(self, states: StateColumns) -> None:
        """Set these states, which have no gaps and begin in the window. Faster than _store_runs() for thousands."""
        first, last = states.firsts[0], states.lasts[-1]
        before, after = Runs.of(self.runs.part(first, last)), Runs.of_states(states)
        self.runs.replace([Change(first, last, before, after)])
        self.end = max(self.end, last)
        opened = next((begins for begins, _, one in after if one.state is State.AVAILABLE), self._look_from)
        self._look_from = min(self._look_from, opened)

    def _begin_at(self, offset: int) -> None:
        """Move the window's start up to this offset, and forget the records below. A lower offset changes nothing."""
        if offset > self.start:
            if self._pending:
                self._forget_pending(offset)
            self.start = offset
            self.runs.cut(offset)
            self.end = max(self.end, offset - 1)

    def _forget_pending(self, offset: int) -> None:
        """Forget the pending ranges that end below this offset."""
        passed = {standing.transaction for *_, standing in self.runs.pieces(self.start, offset - 1) if standing}
        for transaction in passed:
            if transaction in self._pending:
                logged = self._pending.pop(transaction).items()
                ends = {at: {each for each in ranges if each[1] >= offset} for at, ranges in logged}
                left = {at: ranges for at, ranges in ends.items() if ranges}
                if left:
                    self._pending[transaction] = left

    def _advance(self) -> None:
        """Move the window's start up to the first record that is neither acknowledged nor archived."""
        self._begin_at(self.runs.final_until(self.start))


def durable_states(runs: Iterable[Run]) -> list[StateBatch]:
    """Return the states that a restart would restore: acquired and pending records count as available."""
    found: list[StateBatch] = []
    available, acquired = State.AVAILABLE, State.ACQUIRED
    begins, ends, before, given = 0, -1, available, 0  # a range, added if it was delivered or is done with
    for first, last, (state, deliveries, *_) in runs:
        if state is acquired:
            state, deliveries = available, deliveries - 1
        elif state is State.PENDING:
            state = available
        if state is before and deliveries == given and first == ends + 1:
            ends = last
            continue
        if given or before is not available:
            found.append(_new(StateBatch, (begins, ends, before, given, "")))
        begins, ends, before, given = first, last, state, deliveries
    if given or before is not available:
        found.append(StateBatch(begins, ends, before, given))
    return found


def _state_after(kind: int, deliveries: int, limit: int) -> State:
    """Return a record's state after an acknowledgement of this type. A released record becomes available if it was
    delivered less often than the limit, else it is archived.
    """
    if kind == AckType.ACCEPT:
        return State.ACKNOWLEDGED
    if kind == AckType.RELEASE and deliveries < limit:
        return State.AVAILABLE
    return State.ARCHIVED


def _settled(pending: Standing, commit: bool) -> Standing:
    """Return a pending record's state after its transaction: as acknowledged in it after a commit, else available."""
    return standing_of(int(pending.becomes if commit else State.AVAILABLE), pending.deliveries)


@lru_cache(maxsize=8)
def _pending(deliveries: int, member: str, transaction: Transaction, becomes: State) -> Standing:
    """Return the state of a pending record. becomes: its state after a commit. Cached, as many runs have the same."""
    return Standing(State.PENDING, deliveries, member, 0, transaction, becomes)


def _not_acquired(text: str) -> KafkaError:
    """Return the error for an acknowledgement of records that the member has not acquired."""
    return KafkaError(ErrorCode.INVALID_RECORD_STATE, text)
