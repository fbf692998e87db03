"""One share partition: which of its records are whose, and what becomes of them. Pure.

    AVAILABLE     to be given out; also all of which nothing is known
    ACQUIRED      a member has it, until its deadline
    PENDING       acknowledged in a transaction that is open: no one has it before that ends
    ACKNOWLEDGED  done with
    ARCHIVED      done with too: rejected, given out too often, or nothing that anybody is to see

The window is from `start` to `end`: below all is done with, above nothing was given out. Its length is limited, and
counts what is done with inside it.

The rules. What is durable changes by apply..., put... and settle alone, live and in a replay alike; decisions change
nothing, and say what to log. Locks are in memory only: a record that is ACQUIRED is logged with the next change, and
after a restart it is what it was before it was acquired. `deliveries` counts acquisitions and never falls.
A record leaves PENDING only by the marker of its transaction, unless the log's start passes it or its topic goes.
Source: KIP-932, Kafka's SharePartition and InFlightState; KAFKA-19476, 19859, 19953, 19972.
"""

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from ...protocol.errors import ErrorCode, KafkaError
from .acquiring import Limits, Taken, take
from .runs import Runs, Standing, Transaction, is_final
from .values import UNCHANGED, AckRange, AckType, AcquiredRange, Found, Snapshot, State, StateBatch, Update, Wanted

STALE_ALARMS_KEPT = 64
_KINDS = frozenset(int(kind) for kind in AckType)

Range = tuple[int, int]
Alarm = tuple[int, int, int]
"""A deadline, and the range that was acquired until then."""


class Decided(NamedTuple):
    """What acknowledgements come to. update: to be logged; None if nothing changes that lasts. renewed: locks."""

    update: Update | None
    renewed: Sequence[Range] = ()


class Pending(NamedTuple):
    """What one record of the log made pending. position: where that stands in its log."""

    position: int
    first: int
    last: int


class SharePartition:
    """The state of one share partition."""

    __slots__ = ("_alarms", "_look_from", "_pending", "end", "runs", "start", "state_epoch")

    def __init__(self, start: int, state_epoch: int = 0) -> None:
        self.start = start
        self.end = start - 1
        self.state_epoch = state_epoch
        self.runs = Runs()
        self._pending: dict[Transaction, set[Pending]] = {}
        self._alarms: list[Alarm] = []  # a heap; some are of locks that are gone
        self._look_from = start  # nothing below is available

    # ---- questions -------------------------------------------------------------------------------------------

    @property
    def next_offset(self) -> int:
        """The first offset that may be given out; above `end` if there is none in the window."""
        self._look_from = self.runs.first_open(max(self.start, self._look_from))
        return self._look_from

    def room(self, limit: int) -> int:
        """How many records the window may grow by."""
        return limit - (self.end - self.start + 1)

    @property
    def transactions(self) -> list[Transaction]:
        """Those that have something pending here."""
        return list(self._pending)

    @property
    def earliest_pending(self) -> int | None:
        """Where the first of all that is pending stands in the log; None if nothing is."""
        return min((entry.position for entries in self._pending.values() for entry in entries), default=None)

    def pending_of(self, transaction: Transaction, before: int | None = None) -> Iterator[tuple[int, int, Standing]]:
        """What a transaction has pending here, in order. before: only what was logged before this position."""
        for position, first, last, standing in self._pending_pieces(transaction):
            if before is None or position < before:
                yield first, last, standing

    def pending_batches(self) -> Iterator[tuple[Transaction, int, StateBatch]]:
        """All that is pending here: of which transaction, where it stands in the log, and what it said."""
        for transaction in self._pending:
            for position, first, last, standing in self._pending_pieces(transaction):
                batch = StateBatch(first, last, standing.becomes, standing.deliveries, standing.member)
                yield transaction, position, batch

    def _pending_pieces(self, transaction: Transaction) -> Iterator[tuple[int, int, int, Standing]]:
        """Position, first and last offset. A replay may bring what a snapshot knew again: nothing comes twice."""
        at = self.start
        for entry in sorted(self._pending.get(transaction, ()), key=_first):
            for first, last, standing in self.runs.pieces(max(entry.first, at), entry.last):
                if standing is not None and standing.transaction == transaction:
                    yield entry.position, first, last, standing
            at = max(at, entry.last + 1)

    def durable(self) -> list[StateBatch]:
        """What a restart would know of the records, what is pending left out: it is what it will be if that aborts."""
        found: list[StateBatch] = []
        for first, last, standing in self.runs:
            state, deliveries = standing.state, standing.deliveries
            if state is State.ACQUIRED:
                deliveries -= 1
            if not is_final(standing):
                state = State.AVAILABLE
                if not deliveries:
                    continue
            before = found[-1] if found else None
            if before is not None and before.last + 1 == first and before[2:4] == (state, deliveries):
                found[-1] = before._replace(last=last)
            else:
                found.append(StateBatch(first, last, state, deliveries))
        return found

    # ---- decisions: nothing changes --------------------------------------------------------------------------

    def acknowledge(self, member: str, acks: Sequence[AckRange], limit: int, *, may_renew: bool) -> Decided:
        """What these acknowledgements of one request come to. limit: of deliveries.

        Raises KafkaError INVALID_RECORD_STATE, INVALID_REQUEST, for all of them together.
        """
        batches: list[StateBatch] = []
        renewed: list[Range] = []
        for first, last, standing, kind in self._acquired(member, acks):
            if kind == AckType.RENEW:
                if not may_renew:
                    raise _not_acquired("locks of this group are not renewed (share.renew.acknowledge.enable)")
                renewed.append((first, last))
                continue
            state = _state_after(kind, standing.deliveries, limit)
            _add(batches, StateBatch(first, last, state, standing.deliveries))
        return Decided(self._update(batches) if batches else None, renewed)

    def acknowledge_in_transaction(self, member: str, acks: Sequence[AckRange]) -> list[StateBatch]:
        """What a transaction makes pending by these. Raises KafkaError as acknowledge(), also below the window."""
        batches: list[StateBatch] = []
        if any(ack.first < self.start for ack in acks):
            raise _not_acquired(f"the window begins at offset {self.start}")
        for first, last, standing, kind in self._acquired(member, acks):
            if kind not in (AckType.ACCEPT, AckType.REJECT):
                raise KafkaError(ErrorCode.INVALID_REQUEST, "a transaction can accept and reject")
            state = State.ACKNOWLEDGED if kind == AckType.ACCEPT else State.ARCHIVED
            _add(batches, StateBatch(first, last, state, standing.deliveries, member))
        return batches

    def _acquired(self, member: str, acks: Sequence[AckRange]) -> Iterator[tuple[int, int, Standing, int]]:
        """The ranges that are acknowledged, each of one kind, all of them the member's. Below the window: nothing."""
        before = -1
        for first, last, kind in _by_kind(acks):
            if first <= before:
                raise _not_acquired(f"offset {first} is acknowledged twice")
            before = last
            if last < self.start:
                continue
            if self.end >= self.start and last > self.end:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"offset {last} was not given out, {self.end} was the last")
            for begins, ends, standing in self.runs.pieces(max(first, self.start), last):
                if standing is None or standing.state is not State.ACQUIRED or standing.member != member:
                    raise _not_acquired(f"offset {begins} is not acquired by this member")
                yield begins, ends, standing, kind

    def release(self, member: str, limit: int) -> Update | None:
        """Its session ended: what it has acquired is given out again. None if that is nothing."""
        theirs = [run for run in self.runs if run[2].state is State.ACQUIRED and run[2].member == member]
        return self._released(theirs, limit)

    def expire(self, due: Sequence[Alarm], limit: int) -> Update | None:
        """The deadlines of these alarms have come: what is still acquired until then is given out again."""
        horizon_ms = max((deadline_ms for deadline_ms, _, _ in due), default=0)
        found: list[tuple[int, int, Standing]] = []
        at = self.start
        for first, last in sorted((first, last) for _, first, last in due):
            found += [
                (begins, ends, standing)
                for begins, ends, standing in self.runs.pieces(max(first, at), last)
                if standing is not None and standing.state is State.ACQUIRED and standing.deadline_ms <= horizon_ms
            ]
            at = max(at, last + 1)
        return self._released(found, limit)

    def _released(self, runs: Sequence[tuple[int, int, Standing]], limit: int) -> Update | None:
        batches: list[StateBatch] = []
        for first, last, standing in runs:
            state = _state_after(AckType.RELEASE, standing.deliveries, limit)
            _add(batches, StateBatch(first, last, state, standing.deliveries))
        return self._update(batches) if batches else None

    def archived_by_abort(self, transaction: Transaction, limit: int) -> Update | None:
        """What is given out no more if the transaction aborts; to be applied once that is settled."""
        batches: list[StateBatch] = []
        for first, last, standing in self.pending_of(transaction):
            if standing.deliveries >= limit:
                _add(batches, StateBatch(first, last, State.ARCHIVED, standing.deliveries))
        return self._update(batches) if batches else None

    def log_begins(self, offset: int) -> Update | None:
        """The partition's log begins there. None if the window does already, or later."""
        return self._update([], offset) if offset > self.start else None

    def take(self, offset: int, found: Sequence[Found], wanted: Wanted, limits: Limits) -> Taken:
        """What of these batches a member gets, and what is to be archived. See acquiring.take."""
        return take(self.runs, (self.start, self.end), offset, found, wanted, limits)

    def archive(self, batches: Sequence[StateBatch]) -> Update | None:
        """These are no data."""
        return self._update(batches) if batches else None

    def _update(self, batches: Sequence[StateBatch], start: int | None = None) -> Update:
        """What is logged of a change, before it is applied. batches: in order."""
        start = self._start_after(batches, self.start if start is None else start)
        complete = self.runs.complete
        for first, last, state, *_ in batches:
            if state is not State.AVAILABLE:
                complete += last - max(first, start) + 1 if last >= start else 0
        complete -= sum(
            last - first + 1 for first, last, standing in self.runs.pieces(self.start, start - 1) if is_final(standing)
        )
        return Update(start, complete, batches)

    def _start_after(self, batches: Sequence[StateBatch], at: int) -> int:
        """Where the window begins once these batches are applied, if it begins at `at` before."""
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

    # ---- what is in memory only ------------------------------------------------------------------------------

    def acquire(self, ranges: Sequence[AcquiredRange], member: str, deadline_ms: int) -> None:
        """These are the member's from now on."""
        for first, last, deliveries in ranges:
            self.runs.put(first, last, Standing(State.ACQUIRED, deliveries, member, deadline_ms))
            self.end = max(self.end, last)
            self._set_alarm((deadline_ms, first, last))

    def renew(self, ranges: Sequence[Range], deadline_ms: int) -> None:
        """The locks of these last until then."""
        for first, last in ranges:
            for begins, ends, standing in list(self.runs.pieces(first, last)):
                if standing is not None and standing.state is State.ACQUIRED:
                    self.runs.put(begins, ends, standing._replace(deadline_ms=deadline_ms))
            self._set_alarm((deadline_ms, first, last))

    def _set_alarm(self, alarm: Alarm) -> None:
        heappush(self._alarms, alarm)
        if len(self._alarms) > 2 * len(self.runs) + STALE_ALARMS_KEPT:
            self._alarms = [(run[2].deadline_ms, run[0], run[1]) for run in self.runs if run[2].state is State.ACQUIRED]
            heapify(self._alarms)

    @property
    def alarm_ms(self) -> int | None:
        """The earliest deadline of a lock, or an earlier one that is no more; None if there is none."""
        return self._alarms[0][0] if self._alarms else None

    def due_alarms(self, now_ms: int) -> list[Alarm]:
        """Take the alarms whose deadlines have come."""
        due: list[Alarm] = []
        while self._alarms and self._alarms[0][0] <= now_ms:
            due.append(heappop(self._alarms))
        return due

    def put_off(self, due: Sequence[Alarm]) -> None:
        """These were taken, and what is due could not be logged."""
        for alarm in due:
            heappush(self._alarms, alarm)

    def end_locks(self, member: str, now_ms: int) -> None:
        """The deadlines of all that the member has acquired are now."""
        for first, last, standing in list(self.runs):
            if standing.state is State.ACQUIRED and standing.member == member:
                self.renew([(first, last)], now_ms)

    # ---- changes: live and in a replay alike -----------------------------------------------------------------

    def apply(self, update: Update) -> None:
        """An update of the log."""
        for batch in update.batches:
            self._put(batch.first, batch.last, _standing(batch))
        if update.start != UNCHANGED:
            self._begin_at(update.start)
        self._advance()

    def apply_snapshot(self, snapshot: Snapshot) -> None:
        """A snapshot of the log. What is pending stays, and so do locks if nobody has set the offset."""
        same = snapshot.state_epoch == self.state_epoch
        kept = [
            run
            for run in self.runs
            if run[1] >= snapshot.start and (run[2].state is State.PENDING or (same and run[2].state is State.ACQUIRED))
        ]
        self.state_epoch, self.start = snapshot.state_epoch, snapshot.start
        self.runs = Runs((batch.first, batch.last, _standing(batch)) for batch in snapshot.batches if _is_known(batch))
        self.runs.cut(self.start)
        for first, last, standing in kept:
            self.runs.put(max(first, self.start), last, standing)
        known = self.start - 1 if self.runs.last is None else self.runs.last
        self.end = max(self.end, known, self.start - 1) if same else known
        self._look_from = self.start
        self._advance()

    def apply_pending(self, transaction: Transaction, position: int, batches: Sequence[StateBatch]) -> None:
        """An update of the log that is in a transaction."""
        entries = self._pending.setdefault(transaction, set())
        for first, last, state, deliveries, member in batches:
            entries.add(Pending(position, first, last))
            self._put(first, last, Standing(State.PENDING, deliveries, member, 0, transaction, state))

    def settle(self, transaction: Transaction, position: int, *, commit: bool) -> None:
        """The marker of a transaction, at this position of the log: what was made pending before it is decided."""
        for first, last, standing in list(self.pending_of(transaction, before=position)):
            state = standing.becomes if commit else State.AVAILABLE
            self._put(first, last, Standing(state, standing.deliveries))
        left = {entry for entry in self._pending.pop(transaction, ()) if entry.position >= position}
        if left:
            self._pending[transaction] = left
        self._advance()

    def _put(self, first: int, last: int, standing: Standing) -> None:
        first = max(first, self.start)
        if first > last:
            return
        is_open = standing.state is State.AVAILABLE
        self.runs.put(first, last, None if is_open and not standing.deliveries else standing)
        self.end = max(self.end, last)
        if is_open:
            self._look_from = min(self._look_from, first)

    def _begin_at(self, offset: int) -> None:
        if offset > self.start:
            if self._pending:
                self._forget_pending(offset)
            self.start = offset
            self.runs.cut(offset)
            self.end = max(self.end, offset - 1)

    def _forget_pending(self, offset: int) -> None:
        """What is pending below is gone."""
        for _, _, standing in self.runs.pieces(self.start, offset - 1):
            transaction = standing and standing.transaction
            if transaction in self._pending:
                left = {entry for entry in self._pending.pop(transaction) if entry.last >= offset}
                if left:
                    self._pending[transaction] = left

    def _advance(self) -> None:
        """The window begins with something that is not done with."""
        self._begin_at(self._start_after((), self.start))


def _first(entry: Pending) -> int:
    return entry.first


def _by_kind(acks: Sequence[AckRange]) -> Iterator[tuple[int, int, int]]:
    """(first, last, type) of each range of one type. Raises KafkaError INVALID_REQUEST."""
    before = -1
    for first, last, types in acks:
        if first > last or first < before:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"offsets {first} to {last} are out of order")
        before = last
        if not types or not _KINDS.issuperset(types):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"offsets {first} to {last} have types that there are not")
        if len(types) == 1:
            yield first, last, types[0]
            continue
        if len(types) != last - first + 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{len(types)} types for {last - first + 1} offsets")
        begins = 0
        for index in range(1, len(types) + 1):
            if index == len(types) or types[index] != types[begins]:
                yield first + begins, first + index - 1, types[begins]
                begins = index


def _state_after(kind: int, deliveries: int, limit: int) -> State:
    if kind == AckType.ACCEPT:
        return State.ACKNOWLEDGED
    if kind == AckType.RELEASE and deliveries < limit:
        return State.AVAILABLE
    return State.ARCHIVED


def _add(batches: list[StateBatch], batch: StateBatch) -> None:
    """As a part of the last one, if it goes on there."""
    if batches and batches[-1].last + 1 == batch.first and batches[-1][2:] == batch[2:]:
        batches[-1] = batches[-1]._replace(last=batch.last)
    else:
        batches.append(batch)


def _standing(batch: StateBatch) -> Standing:
    return Standing(batch.state, batch.deliveries)


def _is_known(batch: StateBatch) -> bool:
    return batch.state is not State.AVAILABLE or batch.deliveries > 0


def _not_acquired(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD_STATE, text)
