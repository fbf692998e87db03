"""Rules about what fetches must show, given what was answered and shown before them. Pure.

A rule's docstring says what must hold. The rule yields an Anomaly for each place where a history contradicts it.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterator
from operator import itemgetter
from typing import Any, NamedTuple

from simulation.cleanup_rules import Replaced
from simulation.facts import NEVER, Anomaly, Facts
from simulation.history import FAIL, OK, Op, Place, Restart


class _Known(NamedTuple):
    """From this moment on every reader (or every committed one) must find this."""

    since: int
    offset: int
    value: str
    op: Op  # that says so
    why: str


class _Expected:
    """What a reader of one kind must find in one place, growing with the moments."""

    def __init__(self, replaced: Replaced) -> None:
        self._replaced = replaced
        self._offsets: list[int] = []
        self._known: dict[int, _Known] = {}

    def learn(self, known: _Known) -> None:
        if known.offset not in self._known:
            insort(self._offsets, known.offset)
            self._known[known.offset] = known

    def learn_all(self, read: Op) -> None:
        """Expect what this read shows in all that begin after it ends."""
        known = self._known
        for offset, value in read.result.records:
            if offset not in known:
                self.learn(_Known(read.done, offset, value, read, "phantom read"))

    def missing(self, op: Op, start: int, end: int, got: dict[int, str]) -> Iterator[Anomaly]:
        first = bisect_left(self._offsets, start)
        for offset in self._offsets[first : bisect_left(self._offsets, end)]:
            known = self._known[offset]
            if got.get(offset) != known.value and not self._replaced.excuses(op, offset, known.value, got):
                text = f"{known.value!r} at {offset} is not there, but {got.get(offset)!r}"
                yield Anomaly(known.why, text, (known.op, op))


def covering_reads(facts: Facts) -> Iterator[Anomaly]:
    """Lost writes, torn transactions, phantoms: what was answered or shown is in every later read that passes its
    offset.
    """
    learned = _learned(facts)
    for place in {*facts.reads, *facts.dumps}:
        replaced = Replaced(facts, place)
        every, committed = _Expected(replaced), _Expected(replaced)
        events: list[tuple[int, int, int, Any]] = []  # moment, kind, a number of its own, subject
        for known in learned[place]:
            events.append((known[1].since, 0, len(events), known))
        for op, _ in facts.reads[place]:
            events.append((op.invoked, 1, len(events), op))
            events.append((op.done, 0, len(events), op))
        if place in facts.dumps:
            events.append((facts.dumps[place].invoked, 2, len(events), facts.dumps[place]))
        events.sort()
        for _, kind, _, subject in events:
            if kind == 0:
                _learn(every, committed, subject)
            elif kind == 1:
                seen = subject.result
                start = max(subject.what.start, seen.log_start)  # UNTOLD is less than all
                expected = committed if subject.what.committed else every
                yield from expected.missing(subject, start, seen.next_offset, dict(seen.records))
            else:
                entries = subject.result
                got = {offset: value for entry in entries for offset, value in entry.records}
                begins = 0 if not facts.loses_its_beginning(place) else entries[0].offset if entries else NEVER
                yield from every.missing(subject, begins, NEVER, got)


def _learn(every: _Expected, committed: _Expected, subject: Any) -> None:
    """Expect later reads to show what this subject shows: a read that was answered (an Op), or a pair of _learned().

    The pair is (True for read_uncommitted readers or False for read_committed ones, what is known).
    """
    if isinstance(subject, Op):
        every.learn_all(subject)
        if subject.what.committed:
            committed.learn_all(subject)
    else:
        (every if subject[0] else committed).learn(subject[1])


def _learned(facts: Facts) -> dict[Place, list[tuple[bool, _Known]]]:
    learned: dict[Place, list[tuple[bool, _Known]]] = defaultdict(list)
    for op, send, offset, value in facts.answered():
        known = _Known(op.done, offset, value, op, "lost write")
        learned[send.place].append((True, known))
        if send.txn is None:
            learned[send.place].append((False, known))
            continue
        fate = facts.fate(send.txn)
        if fate.decided < NEVER:
            why = "torn transaction" if fate.seen_by is not None else "lost write"
            given = fate.committed or fate.seen_by
            assert given is not None
            learned[send.place].append((False, _Known(max(op.done, fate.decided), offset, value, given, why)))
    return learned


def ends_only_grow(facts: Facts) -> Iterator[Anomaly]:
    """High watermark, last stable offset and log start never go back, over all readers of brokers that were not taken
    over from.
    """
    for every in facts.reads.values():
        reads = [op for op, _ in every if op.result.tells_ends]
        events = sorted([(op.invoked, op) for op in reads] + [(op.done, op) for op in reads], key=lambda e: e[0])
        told: dict[str, tuple[int, Op]] = {}  # the highest so far
        for moment, op in events:
            for name in ("high_watermark", "last_stable", "log_start"):
                value = getattr(op.result, name)
                highest, first = told.get(name, (-1, op))
                if moment == op.done:
                    if value > highest:
                        told[name] = value, op
                elif value < highest and not facts.may_be_outdated(op):
                    yield Anomaly(f"regression of {name}", f"{value} after {highest}", (first, op))


def trimmed_too_far(facts: Facts) -> Iterator[Anomaly]:
    """A log begins at the highest offset that was asked for in DeleteRecords, or below: nothing above is deleted."""
    for place, reads in facts.reads.items():
        if facts.loses_its_beginning(place) and place not in facts.trimmed:
            continue  # retention has a rule of its own
        trims = facts.trimmed.get(place, ())
        for op, _ in reads:
            asked = (trim.offset for given, trim in trims if given.invoked < op.done and given.outcome != FAIL)
            if op.result.log_start > max(asked, default=0):
                yield Anomaly(
                    "log begins too late", f"{place} begins at {op.result.log_start}, which nobody asked for", (op,)
                )
                break


def stalls(facts: Facts) -> Iterator[Anomaly]:
    """A last stable offset below the high watermark grows within stall_ms, and in the end it is the high watermark.

    Time in which the store failed what the broker wrote is not counted, because no transaction can end then.
    """
    restarts = [op.invoked for op, _ in facts.history.of(Restart)]
    for place, reads in facts.reads.items():
        stands: tuple[int, int] | None = None
        began: Op | None = None
        for op, _ in sorted(reads, key=lambda one: one[0].done):
            seen = op.result
            if not seen.tells_ends:
                continue
            # By when it ended: a read may begin before the broker that answers it.
            here = (
                seen.last_stable,
                bisect_left(restarts, op.done),
            )
            if seen.last_stable >= seen.high_watermark:
                stands = None
            elif stands != here or began is None:
                stands, began = here, op
            elif facts.could_write_ms(began.done_ms, op.invoked_ms) > facts.history.stall_ms:
                yield Anomaly("LSO stall", f"{place} stands at {seen.last_stable} for too long", (began, op))
                break
        final = [op for op, _ in reads if op.client == "final"]
        if final and final[-1].result.last_stable < final[-1].result.high_watermark:
            yield Anomaly("LSO stall", f"{place} never comes to its end", (final[-1],))


def unseen(facts: Facts) -> Iterator[Anomaly]:
    """In the end, the last readers get to every record that was acknowledged."""
    answered = defaultdict(list)
    for answer in facts.answered():
        answered[answer[1].place].append(answer)
    for place, reads in facts.reads.items():
        replaced = Replaced(facts, place)
        for committed in (False, True):
            ends = [op.result.next_offset for op, read in reads if op.client == "final" and read.committed is committed]
            end = max(ends, default=NEVER)
            for op, send, offset, value in answered[place]:
                if offset >= end and not (committed and _not_surely(facts, send.txn)):
                    if replaced.excuses(reads[-1][0], offset, value, {}):
                        continue
                    yield Anomaly("unseen", f"{value!r} at {offset}, where reading ends at {end}", (op,))


def _not_surely(facts: Facts, txn: str | None) -> bool:
    return txn is not None and facts.fate(txn).decided == NEVER


def late_commits(facts: Facts) -> Iterator[Anomaly]:
    """Once a commit was answered, it is visible (in Apache Kafka perhaps later), unless other open transactions begin
    below its records.
    """
    needs: dict[Place, list[tuple[int, int, str, Op]]] = defaultdict(list)  # offset, since, transaction, who said so
    for fate in facts.fates.values():
        if (given := fate.committed) is not None:
            for op, send in fate.sends:
                if op.outcome == OK:
                    needs[send.place].append((op.result + len(send.values) - 1, given.done, fate.txn, given))
    for place, reads in facts.reads.items():
        excuses = Excuses(facts, place)
        needs[place].sort(key=itemgetter(0, 1))
        offsets = [need[0] for need in needs[place]]
        for op, read in reads:
            if not read.committed or not op.result.tells_ends or facts.may_be_outdated(op):
                continue
            for offset, since, txn, given in needs[place][bisect_left(offsets, op.result.last_stable) :]:
                if since < op.invoked and not excuses.hold(op, txn, offset):
                    yield Anomaly("late commit", f"{txn} has {offset}, which is not stable yet", (given, op))


class Excuses:
    """Transactions that may be open in one place, and thus hold back its last stable offset."""

    def __init__(self, facts: Facts, place: Place) -> None:
        self._open = facts.open_in.get(place, ())

    def hold(self, read: Op, txn: str, offset: int) -> bool:
        for until, other, since, first in self._open:
            if until < read.invoked:
                return False
            if other != txn and since <= read.done and first <= offset:
                return True
        return False


READING_RULES = [covering_reads, ends_only_grow, trimmed_too_far, stalls, unseen, late_commits]
