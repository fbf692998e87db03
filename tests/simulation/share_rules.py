"""Rules about share groups: who has a record, until when, how often it is given, what an acknowledgement means. Pure.

A record is a member's from an answer that gives it until its lock ends, the member says what became of it, its session
ends or the broker is restarted. Whether a session ended meanwhile nobody may know: then nothing is concluded. In a
transaction an acknowledgement counts if the transaction's records are shown, and only then.

A rule's docstring says what must hold. The rule yields an Anomaly for each place where a history contradicts it.
"""

from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from simulation.facts import NEVER, Anomaly, Facts
from simulation.history import FAIL, INFO, OK, Init, Kill, Op, Place, Restart

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
INVALID_RECORD_STATE = 121
BATCH = 3  # records: whole batches are given, so a window may be longer by so many, less one
LATE_MS = 8_000  # after so long a request that was not answered is not on its way any more
BEGINS_MS = 1_000  # a broker may have served for so long before it says that it has begun

Ack = tuple[int, int, int]
"""First and last offset, and what became of them."""


class Queue(NamedTuple):
    """A share group and the place that it reads, from the beginning, committed records alone. Always ok."""

    group: str
    place: Place
    lock_ms: int
    deliveries: int
    window: int


class Acquire(NamedTuple):
    """A member asks for records. Result: for each (offset, value, how often it was given)."""

    group: str
    place: Place
    member: str


class Acknowledge(NamedTuple):
    """A member says what became of records: of all or, if it is refused, of none. txn: in which transaction."""

    group: str
    place: Place
    member: str
    acks: tuple[Ack, ...]
    txn: str | None = None

    def kinds_of(self, offset: int) -> Iterator[int]:
        return (kind for first, last, kind in self.acks if first <= offset <= last)


class SessionEnd(NamedTuple):
    """A member's session ends, on purpose or not. since: the moment until which it surely lasted."""

    group: str
    member: str
    since: int


class Reset(NamedTuple):
    """Somebody sets the offset: from there on all is available, and was never delivered. Locks are gone."""

    group: str
    place: Place
    offset: int


class Drained(NamedTuple):
    """After all is healed, all that is given is accepted, until nothing was given for longer than a lock lasts."""

    group: str
    place: Place


def may_be_reset(facts: Facts, record: tuple[Place, int], first: Op, second: Op) -> bool:
    """Return whether the group's offset may have been set to this record, or below it, between two operations."""
    place, offset = record
    return any(
        (what.place, op.outcome != FAIL) == (place, True)
        and what.offset <= offset
        and op.done > first.invoked
        and op.invoked < second.done
        for op, what in facts.history.of(Reset, only_ok=False)
    )


class _Given(NamedTuple):
    op: Op
    value: str
    count: int


class _Queue:
    """What happened to the records of one share partition."""

    def __init__(self, facts: Facts, made: Op) -> None:
        self.facts = facts
        self.queue: Queue = made.what
        history, key = facts.history, made.what[:2]
        self.asked = [op for op, what in history.of(Acquire, only_ok=False) if what[:2] == key]
        self.given: dict[int, list[_Given]] = defaultdict(list)
        for op in self.asked:
            for offset, value, count in op.result if op.outcome == OK else ():
                self.given[offset].append(_Given(op, value, count))
        self.acknowledged: dict[int, list[Op]] = defaultdict(list)  # refused or not
        for op, what in history.of(Acknowledge, only_ok=False):
            if what[:2] == key:
                for first, last, _ in what.acks:
                    for offset in range(first, last + 1):
                        self.acknowledged[offset].append(op)
        self._ends: dict[str, list[Op]] = defaultdict(list)
        for op, end in history.of(SessionEnd, only_ok=False):
            if end.group == self.queue.group:
                self._ends[end.member].append(op)

    @cached_property
    def restarts(self) -> list[Op]:
        return [op for op, _ in self.facts.history.of(Restart)]

    def same_life(self, begin: Op, end: Op) -> bool:
        """Return whether one broker served from the beginning of an operation to the end of another."""
        return not any(op.invoked > begin.invoked and op.invoked_ms <= end.done_ms + BEGINS_MS for op in self.restarts)

    def may_be_reset(self, offset: int, first: Op, second: Op) -> bool:
        return may_be_reset(self.facts, (self.queue.place, offset), first, second)

    def holds(self, offset: int, given: Op, until: Op) -> bool:
        """Return whether a member that was given a record surely still has it at the end of another operation."""
        if not self.same_life(given, until) or self.may_be_reset(offset, given, until):
            return False
        member, locked_ms = given.what.member, given.invoked_ms
        for op in self.acknowledged[offset]:
            if op is until or op.what.member != member or op.invoked > until.done or op.done < given.invoked:
                continue
            if op.outcome == FAIL:
                continue
            if set(op.what.kinds_of(offset)) != {RENEW} or op.what.txn is not None:
                return False
            if op.outcome == OK and op.done < until.invoked:
                locked_ms = max(locked_ms, op.invoked_ms)
        if until.done_ms >= locked_ms + self.queue.lock_ms:
            return False
        return not any(op.what.since <= until.done and op.done >= given.invoked for op in self._ends[member])

    # ---- acknowledgements in transactions --------------------------------------------------------------------

    def is_shown(self, txn: str) -> bool:
        fate = self.facts.fate(txn)
        return fate.committed is not None or fate.seen_by is not None

    def may_end_at(self, txn: str) -> tuple[int, int]:
        """Return the earliest moment, and the earliest time in ms, at which a transaction may be over."""
        fate = self.facts.fate(txn)
        begin = fate.begin
        assert begin is not None
        transactional_id = begin.what.transactional_id
        moments = [op.invoked for op, _ in fate.ends]
        for kind in (Init, Kill):
            for op, what in self.facts.history.of(kind, only_ok=False):
                if what.transactional_id in (transactional_id, None if kind is Kill else transactional_id):
                    moments += [max(op.invoked, begin.invoked)] if op.done > begin.invoked else []
        return min(moments, default=NEVER), begin.invoked_ms + begin.what.timeout_ms


def _queues(facts: Facts) -> list[_Queue]:
    return [_Queue(facts, op) for op, _ in facts.history.of(Queue)]


def what_is_done_is_not_delivered_again(facts: Facts) -> Iterator[Anomaly]:
    """A record that was accepted, rejected or called a gap is neither delivered nor accepted again. In a transaction
    this counts once that is committed.
    """
    for queue in _queues(facts):
        for offset, ops in queue.acknowledged.items():
            final: list[Op] = []
            for op in ops:
                if op.outcome != OK or not {ACCEPT, REJECT, GAP} & set(op.what.kinds_of(offset)):
                    continue
                if op.what.txn is not None and not queue.is_shown(op.what.txn):
                    continue
                final.append(op)
            for op in final:
                for given in queue.given[offset]:
                    if given.op.invoked > op.done and not queue.may_be_reset(offset, op, given.op):
                        yield Anomaly("doubled", f"{queue.queue.place} {offset} is delivered again", (op, given.op))
                for other in final:
                    if other.what.txn in (None, op.what.txn) or other.invoked <= op.done:
                        continue
                    if not queue.may_be_reset(offset, op, other):
                        yield Anomaly("doubled", f"{queue.queue.place} {offset} is accepted again", (op, other))


def one_member_has_a_record(facts: Facts) -> Iterator[Anomaly]:
    """Until the lock of a record ends, nobody else is given it, and the member that has it may acknowledge it."""
    for queue in _queues(facts):
        place = queue.queue.place
        for offset, all_given in queue.given.items():
            for index, given in enumerate(all_given):
                for other in all_given[index + 1 :]:
                    if _are_both_held(queue, offset, given.op, other.op):
                        name = "early" if other.op.what.member == given.op.what.member else "poached"
                        yield Anomaly(name, f"{place} {offset} is delivered while it is held", (given.op, other.op))
        for op, what in facts.history.of(Acknowledge, only_ok=False):
            if op.outcome != FAIL or op.error != INVALID_RECORD_STATE or what[:2] != queue.queue[:2]:
                continue
            offsets = [offset for first, last, _ in what.acks for offset in range(first, last + 1)]
            if len(offsets) == len(set(offsets)) and all(_is_held(queue, offset, op) for offset in offsets):
                yield Anomaly("poached", f"{place} {offsets} are held, and their owner is refused", (op,))


def _are_both_held(queue: _Queue, offset: int, first: Op, second: Op) -> bool:
    """Return whether a record is surely held by both of two deliveries. first: the one that was invoked first. If they
    overlap, it is unknown which was served first.
    """
    if not queue.holds(offset, first, second):
        return False
    return first.done < second.invoked or queue.holds(offset, second, first)


def _is_held(queue: _Queue, offset: int, op: Op) -> bool:
    """Return whether a record is surely held by the member that acknowledges it."""
    member = op.what.member
    return any(
        one.op.what.member == member and one.op.done < op.invoked and queue.holds(offset, one.op, op)
        for one in queue.given[offset]
    )


def foreign_acknowledgements_change_nothing(facts: Facts) -> Iterator[Anomaly]:
    """An acknowledgement by a member that was never given the record is refused, unless the record is done with, and is
    not delivered later.
    """
    for queue in _queues(facts):
        unsure = {op.what.member for op in queue.asked if op.outcome == INFO}
        for offset, ops in queue.acknowledged.items():
            for op in ops:
                if op.outcome != OK or op.what.member in unsure:
                    continue
                was_given = any(
                    one.op.what.member == op.what.member and one.op.invoked < op.done for one in queue.given[offset]
                )
                later = [one.op for one in queue.given[offset] if one.op.invoked > op.done]
                if not was_given and later and not queue.may_be_reset(offset, op, later[0]):
                    yield Anomaly(
                        "poached",
                        f"{queue.queue.place} {offset} is acknowledged by whom it was not given to",
                        (op, later[0]),
                    )


def what_is_pending_is_nobodys(facts: Facts) -> Iterator[Anomaly]:
    """A record that is acknowledged in an open transaction is given to nobody, and nobody may acknowledge it, also over
    restarts.
    """
    for queue in _queues(facts):
        for offset, ops in queue.acknowledged.items():
            for op in ops:
                if op.outcome != OK or op.what.txn is None:
                    continue
                moment, at_ms = queue.may_end_at(op.what.txn)
                for given in queue.given[offset]:
                    if op.done < given.op.invoked and given.op.done < moment and given.op.done_ms < at_ms:
                        text = f"{queue.queue.place} {offset} is delivered while it is pending in {op.what.txn}"
                        yield Anomaly("poached", text, (op, given.op))
                for other in ops:
                    if (
                        other.outcome == OK
                        and op.done < other.invoked
                        and other.done < moment
                        and other.done_ms < at_ms
                    ):
                        text = f"{queue.queue.place} {offset} is acknowledged while it is pending in {op.what.txn}"
                        yield Anomaly("poached", text, (op, other))


def what_is_not_done_is_delivered(facts: Facts) -> Iterator[Anomaly]:
    """In the end each record is acknowledged, archived by the limit, or delivered."""
    for queue in _queues(facts):
        for drained, what in facts.history.of(Drained):
            if what[:2] == queue.queue[:2]:
                yield from _missing(queue, drained)


def _missing(queue: _Queue, drained: Op) -> Iterator[Anomaly]:
    facts, place = queue.facts, queue.queue.place
    unanswered = [op.invoked_ms for op in queue.asked if op.outcome == INFO]  # each may have been given anything
    for sent, send, offset, _ in facts.answered():
        if send.place != place or sent.done > drained.invoked:
            continue
        if send.txn is not None and facts.fate(send.txn).decided > drained.invoked:
            continue
        given = queue.given[offset]
        if any(one.op.invoked > drained.invoked for one in given):
            continue
        counted = max((one.count for one in given), default=0)
        counted_ms = max((one.op.done_ms for one in given), default=0)
        more = sum(asked_ms >= counted_ms - LATE_MS for asked_ms in unanswered)
        if counted + more >= queue.queue.deliveries:
            continue
        acks = [op for op in queue.acknowledged[offset] if op.outcome != FAIL]
        if any(_may_be_final(queue, op, offset) for op in acks):
            continue
        pending = [op for op in acks if op.what.txn is not None]
        name = "pending for ever" if pending else "lost"
        yield Anomaly(name, f"{place} {offset} is not done, and not delivered", (*pending[:1], sent, drained))


def _may_be_final(queue: _Queue, op: Op, offset: int) -> bool:
    if op.what.txn is None:
        return bool({GAP, ACCEPT, REJECT} & set(op.what.kinds_of(offset)))
    return queue.is_shown(op.what.txn)


def aborted_records_are_not_delivered(facts: Facts) -> Iterator[Anomaly]:
    """No record is delivered whose transaction is aborted or not committed yet, nor one that was refused or
    never sent.
    """
    for queue in _queues(facts):
        for offset, all_given in queue.given.items():
            for given in all_given:
                found = facts.writer.get(given.value)
                text = f"{given.value[:80]!r} of {queue.queue.place} {offset} is delivered"
                if found is None or found[0].outcome == FAIL or found[0].invoked > given.op.done:
                    yield Anomaly("aborted shown", f"{text}, and was not sent or was refused", (given.op,))
                elif found[1].txn is not None:
                    fate = facts.fate(found[1].txn)
                    if fate.aborted or given.op.done < fate.may_show_from:
                        yield Anomaly("aborted shown", text, (found[0], given.op))


def windows_are_bounded(facts: Facts) -> Iterator[Anomaly]:
    """From the first record that is not done to the last that was given there are no more records than the window may
    have.
    """
    for queue in _queues(facts):
        last_given = {offset: all_given[-1].op for offset, all_given in queue.given.items() if all_given}
        limit = queue.queue.window + BATCH - 1
        for op in queue.asked:
            highest = max((offset for offset, _, _ in op.result), default=-1) if op.outcome == OK else -1
            for offset, later in last_given.items():
                is_behind = highest - offset + 1 > limit and later.invoked > op.done
                if is_behind and not queue.may_be_reset(offset, op, later):
                    text = f"{queue.queue.place} {highest} is delivered, and {offset} is not done"
                    yield Anomaly("over the window", text, (op, later))
                    break


def counts_do_not_fall(facts: Facts) -> Iterator[Anomaly]:
    """The delivery count of a record grows with each delivery; only a restart may forget the last one."""
    for queue in _queues(facts):
        for offset, all_given in queue.given.items():
            for one in all_given:
                for other in all_given:
                    if one.op.done >= other.op.invoked or queue.may_be_reset(offset, one.op, other.op):
                        continue
                    least = one.count + queue.same_life(one.op, other.op)
                    if other.count < least:
                        text = f"{queue.queue.place} {offset} is delivered for the {other.count}. time"
                        yield Anomaly("count fell", text, (one.op, other.op))


SHARE_RULES = [
    what_is_done_is_not_delivered_again,
    one_member_has_a_record,
    foreign_acknowledgements_change_nothing,
    what_is_pending_is_nobodys,
    what_is_not_done_is_delivered,
    aborted_records_are_not_delivered,
    windows_are_bounded,
    counts_do_not_fall,
]
