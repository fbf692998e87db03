"""Rules about share consumers of the SDK: what one gives its application, and what it says in its name. Pure.

A record is returned once for each time that it was acquired, while its lock lasts. Nothing is accepted, rejected or
acknowledged in a transaction but what the application said, as it said it last; what it has committed was taken.

A rule's docstring says what must hold. The rule yields an Anomaly for each place where a history contradicts it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from simulation.facts import Anomaly, Facts
from simulation.history import FAIL, INFO, OK, Op, Place
from simulation.share_rules import ACCEPT, GAP, REJECT, RENEW, Acknowledge, Acquire, Queue

FINAL = {GAP, ACCEPT, REJECT}


class Returned(NamedTuple):
    """An application asks a share consumer for records. Result: for each (place, offset, value, how often)."""

    group: str
    member: str


class Said(NamedTuple):
    """An application says what became of a record. Failed if the consumer refuses that."""

    group: str
    place: Place
    member: str
    offset: int
    kind: int
    txn: str | None = None


class Committed(NamedTuple):
    """An application waits until all that it said, outside of transactions, was taken."""

    group: str
    member: str


Record = tuple[str, Place, int]
"""A member, and a record that it has."""


class _Consumers:
    """What happened to each record in the hands of each consumer of the SDK."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        history = facts.history
        self.returned = [(op, what) for op, what in history.of(Returned, only_ok=False)]
        members = {what.member for _, what in self.returned}
        self.acquired: dict[Record, list[tuple[Op, str, int]]] = defaultdict(list)
        for op, what in history.of(Acquire):
            if what.member in members:
                for offset, value, count in op.result:
                    self.acquired[what.member, what.place, offset].append((op, value, count))
        self.said: dict[Record, list[Op]] = defaultdict(list)
        for op, said in history.of(Said, only_ok=False):
            if op.outcome != FAIL:
                self.said[said.member, said.place, said.offset].append(op)
        self.sent: dict[Record, list[tuple[Op, int]]] = defaultdict(list)
        for op, ack in history.of(Acknowledge, only_ok=False):
            if ack.member in members:
                for first, last, kind in ack.acks:
                    for offset in range(first, last + 1):
                        self.sent[ack.member, ack.place, offset].append((op, kind))
        self.lock_ms = {queue.place: queue.lock_ms for _, queue in history.of(Queue)}

    def last_said(self, record: Record, since: int, until: int, txn: str | None) -> Op | None:
        ops = [op for op in self.said[record] if since < op.invoked < until and op.what.txn == txn]
        return ops[-1] if ops else None


def records_are_returned_once(facts: Facts) -> Iterator[Anomaly]:
    """A record is returned at most once for each time that it was acquired, and not after its lock has ended."""
    consumers = _Consumers(facts)
    given: Counter[tuple[Record, str, int]] = Counter()
    for op, what in consumers.returned:
        for place, offset, value, count in op.result if op.outcome == OK else ():
            record = (what.member, place, offset)
            acquired = [
                each for each, *found in consumers.acquired[record] if found == [value, count] and each.done < op.done
            ]
            given[record, value, count] += 1
            if len(acquired) < given[record, value, count]:
                yield Anomaly("returned wrongly", f"{value!r} of {place} {offset} was not acquired", (*acquired, op))
                continue
            renewed = [each for each, kind in consumers.sent[record] if kind == RENEW and each.outcome == OK]
            begun_ms = max(each.done_ms for each in (*acquired, *renewed) if each.done < op.done)
            if op.done_ms > begun_ms + consumers.lock_ms[place]:
                text = f"{value!r} of {place} {offset} is returned after its lock"
                yield Anomaly("returned wrongly", text, (acquired[-1], op))


def nothing_is_said_for_the_application(facts: Facts) -> Iterator[Anomaly]:
    """A consumer accepts or rejects a record, or calls it a gap, only if its application said so last. By itself it may
    only release or renew.
    """
    consumers = _Consumers(facts)
    for record, sent in consumers.sent.items():
        for op, kind in sent:
            if kind not in FINAL:
                continue
            since = max((each.done for each, *_ in consumers.acquired[record] if each.done < op.invoked), default=0)
            said = consumers.last_said(record, since, op.invoked, op.what.txn)
            if said is None or said.what.kind != kind:
                text = f"{record[1]} {record[2]} is acknowledged ({kind}), of which nobody said so"
                yield Anomaly("said by nobody", text, (op,) if said is None else (said, op))


def what_is_committed_was_taken(facts: Facts) -> Iterator[Anomaly]:
    """All that the application said before a commit() that succeeded was acknowledged when commit() returned."""
    consumers = _Consumers(facts)
    commits: dict[str, list[Op]] = defaultdict(list)
    for op, what in facts.history.of(Committed, only_ok=False):
        commits[what.member].append(op)
    for record, said in consumers.said.items():
        for index, op in enumerate(said):
            following = said[index + 1].invoked if index + 1 < len(said) else 1 << 60
            commit = next((each for each in commits[record[0]] if each.invoked > op.invoked), None)
            if commit is None or commit.outcome != OK or following < commit.invoked:
                continue
            if op.what.txn is not None or op.what.kind not in FINAL:
                continue
            taken = [
                each
                for each, kind in consumers.sent[record]
                if kind == op.what.kind and op.invoked < each.invoked and each.done < commit.done and each.outcome == OK
            ]
            if not taken:
                text = f"{record[1]} {record[2]} is committed, and was not acknowledged"
                yield Anomaly("lost acknowledgement", text, (op, commit))


def transactions_have_all_acknowledgements(facts: Facts) -> Iterator[Anomaly]:
    """No transaction is committed without one of its acknowledgements, or with one of unknown outcome."""
    consumers = _Consumers(facts)
    for record, said in consumers.said.items():
        for op in said:
            fate = None if op.what.txn is None else facts.fate(op.what.txn)
            if fate is not None and fate.committed is not None and op.outcome == OK:
                sent = [each for each, _ in consumers.sent[record] if each.what.txn == op.what.txn]
                if not any(each.outcome == OK for each in sent):
                    text = f"{op.what.txn} is committed without its acknowledgement of {record[1]} {record[2]}"
                    yield Anomaly("torn transaction", text, (op, fate.committed))
    for op, ack in facts.history.of(Acknowledge, only_ok=False):
        if ack.txn is not None and op.outcome == INFO:
            committed = facts.fate(ack.txn).committed
            if committed is not None:
                yield Anomaly("torn transaction", f"{ack.txn} is committed in doubt", (op, committed))


SHARE_CONSUMER_RULES = [
    records_are_returned_once,
    nothing_is_said_for_the_application,
    what_is_committed_was_taken,
    transactions_have_all_acknowledgements,
]
