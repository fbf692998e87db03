"""Rules about logs that lose records by themselves: retention and compaction. Pure.

Retention removes from the beginning only, and never what is younger or more than what is configured allows. Compaction
keeps the newest committed record of each key; a tombstone stays longer than all that it deletes.

A rule's docstring says what must hold. The rule yields an Anomaly for each place where a history contradicts it.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from simulation.facts import NEVER, Anomaly, Facts
from simulation.history import FAIL, INFO, OK, Op, Place, Send, is_tombstone, key_of

BATCH_BYTES, MARKER_BYTES = 61, 78
RECORD_BYTES = 11  # beside its value, at most; such topics have no keys


class Replaced:
    """Tells which records of one place compaction may have removed; none if the place is not compacted."""

    def __init__(self, facts: Facts, place: Place) -> None:
        self._facts = facts
        self._place = place
        self._cleanup = facts.cleanups.get(place)
        self._compacts = facts.is_compacted(place)
        self._by_key: dict[str, list[tuple[Op, Send, int]]] = defaultdict(list)  # the number of a value in its batch
        if self._compacts:
            for op, send in facts.sends:
                if send.place == place and op.outcome != FAIL:
                    for number, value in enumerate(send.values):
                        self._by_key[key_of(value) or ""].append((op, send, number))

    def excuses(self, read: Op, offset: int, value: str, got: Mapping[int, str]) -> bool:
        """Return whether a read may lack this record, because compaction may have removed it. got: what the read has by
        offset; another record at this offset is never excused.
        """
        if not self._compacts or offset in got or value not in self._facts.writer:
            return False
        sent, send = self._facts.writer[value]
        if send.txn is not None and self._facts.fate(send.txn).decided == NEVER:
            return True  # perhaps aborted
        assert self._cleanup is not None
        if is_tombstone(value) and read.done_ms - sent.invoked_ms >= self._cleanup.tombstones_ms:
            return True
        return any(
            self._may_replace(read, op, newer)
            and (
                (newer.values[number] != value and (op.outcome == INFO or op.result + number > offset))
                or self._facts.forgot_writer(self._place, newer.values[number])  # a repetition may stand higher
            )
            for op, newer, number in reversed(self._by_key[key_of(value) or ""])
        )

    def _may_replace(self, read: Op, op: Op, send: Send) -> bool:
        if op.invoked > read.done:
            return False
        fate = None if send.txn is None else self._facts.fate(send.txn)
        return fate is None or (fate.may_show_from < read.done and not fate.aborted)


def resurrected(facts: Facts) -> Iterator[Anomaly]:
    """Where a committed tombstone has been removed from a log, no older record of its key is left."""
    for place, dump in facts.dumps.items():
        if not facts.is_compacted(place):
            continue
        oldest: dict[str, tuple[int, str]] = {}
        there: set[str] = set()
        for offset, value in (record for entry in dump.result for record in entry.records):
            there.add(value)
            if key := key_of(value):
                oldest.setdefault(key, (offset, value))
        for op, send, offset, value in facts.answered():
            if send.place != place or value in there or not is_tombstone(value):
                continue
            if send.txn is not None and facts.fate(send.txn).decided == NEVER:
                continue
            older, what = oldest.get(key_of(value) or "", (NEVER, ""))
            if older < offset:
                text = f"{what!r} stands in {place} at {older}, and its tombstone {value!r} at {offset} is gone"
                yield Anomaly("resurrected", text, (op, dump))


def retained_too_little(facts: Facts) -> Iterator[Anomaly]:
    """Retention removes only records that are old enough, or that a log has beyond its retention bytes."""
    for place, cleanup in facts.cleanups.items():
        if cleanup.compacts or place in facts.trimmed:
            continue
        sends = [
            (op, send) for op, send in facts.sends if send.place == place and op.outcome != FAIL and not send.again
        ]
        highest = 0
        for op, start in _beginnings(facts, place):
            if start <= highest:
                continue
            highest = start
            gone = [one for one, send in sends if one.outcome == OK and one.result + len(send.values) <= start]
            youngest = max(gone, key=lambda one: one.invoked_ms, default=None)
            if cleanup.retention_ms >= 0 and youngest is not None:
                age_ms = op.done_ms - youngest.invoked_ms
                if age_ms < cleanup.retention_ms:
                    text = f"{place} begins at {start}, and what was below is {age_ms} ms old at most"
                    yield Anomaly("log begins too late", text, (youngest, op))
            if cleanup.retention_bytes >= 0:
                left = _max_bytes(facts, place, op, sends, gone)
                if left < cleanup.retention_bytes:
                    text = f"{place} begins at {start}, where {left} bytes are left at most"
                    yield Anomaly("log begins too late", text, (op,))


def _beginnings(facts: Facts, place: Place) -> list[tuple[Op, int]]:
    """Return each answer that tells where the log begins, with that offset, in the order of time."""
    reported = [(op, op.result.log_start) for op, _ in facts.reads[place] if op.result.tells_ends]
    dump = facts.dumps.get(place)
    if dump is not None and dump.result:
        reported.append((dump, dump.result[0].offset))
    return sorted(reported, key=lambda one: one[0].done)


def _max_bytes(facts: Facts, place: Place, read: Op, sends: Iterable[tuple[Op, Send]], gone: list[Op]) -> int:
    """Return how many bytes may be in the log at most when it is read: each batch that may be there, each marker that
    is not surely gone.

    A batch of a producer that was forgotten since may be there once more for each time.
    """
    there: list[Send] = []
    for op, send in sends:
        if op.invoked < read.done:
            there += [send] * ((op not in gone) + facts.times_forgotten(place, op, send, read.done))
    settled = max((op.invoked for op in gone), default=0)
    markers = {
        txn for txn in facts.wrote_in[place] if facts.fate(txn).over > settled or any(send.txn == txn for send in there)
    }
    return sum(map(size_of, there)) + MARKER_BYTES * len(markers)


def size_of(send: Send) -> int:
    """Return the size of its batch in bytes, at most."""
    return BATCH_BYTES + sum(RECORD_BYTES + len(value) for value in send.values)


def too_little_is_left(facts: Facts) -> Iterator[Anomaly]:
    """In the end, a log that has lost its beginning still has its retention bytes: the dump tells its size to
    the byte.
    """
    for place, cleanup in facts.cleanups.items():
        dump = facts.dumps.get(place)
        if dump is None or cleanup.retention_bytes < 0 or not dump.result or not dump.result[0].offset:
            continue
        left = sum(
            MARKER_BYTES if one.marker else BATCH_BYTES + sum(RECORD_BYTES + len(value) for value in one.values)
            for one in dump.result
        )
        if left < cleanup.retention_bytes:
            text = f"{place} begins at {dump.result[0].offset} and holds {left} bytes at most"
            yield Anomaly("log begins too late", text, (dump,))


CLEANUP_RULES = [retained_too_little, too_little_is_left, resurrected]
