"""Rules about what was sent over one connection without waiting for answers: it acts in the order of sending. Pure.

A read sees what was written before it on its connection, and nothing that was written after it.

A rule's docstring says what must hold. The rule yields an Anomaly for each place where a history contradicts it.
"""

from collections.abc import Iterator

from simulation.facts import Anomaly, Facts
from simulation.history import OK, UNTOLD, End, Listed, Op, Pipelined, Place, Read, Send, Trim
from simulation.reading_rules import Excuses

LATEST, EARLIEST = -1, -2


def own_writes(facts: Facts) -> Iterator[Anomaly]:
    """On one connection a read shows no less than was written or read before it, and nothing that is written
    after it.
    """
    for _, pipelined in facts.history.of(Pipelined):
        ops = [op for op in pipelined.ops if op.outcome == OK]
        yield from _older_than_before(ops)
        yield from _newer_than_next(ops)
        yield from _without_own_commit(facts, ops)


def _older_than_before(ops: list[Op]) -> Iterator[Anomaly]:
    told: dict[tuple[Place, str], tuple[int, Op]] = {}  # the highest so far
    for op in ops:
        for place, name, value in _ends_told(op):
            highest, first = told.setdefault((place, name), (value, op))
            if value < highest:
                if not isinstance(op.what, Send | Trim):
                    yield Anomaly("own write unseen", f"{name} of {place} is {value} after {highest}", (first, op))
            else:
                told[place, name] = value, op


def _ends_told(op: Op) -> Iterator[tuple[Place, str, int]]:
    """Yield each end of a place that an operation tells: (place, which end, offset). No read after it may tell a lower
    one.
    """
    what = op.what
    if what.__class__ is Send:
        yield what.place, "end", op.result + len(what.values)
    elif what.__class__ is Trim:
        yield what.place, "start", op.result
    elif what.__class__ is Read and op.result.high_watermark != UNTOLD:
        yield what.place, "end", op.result.high_watermark
        yield what.place, "stable end", op.result.last_stable
        yield what.place, "start", op.result.log_start
    elif what.__class__ is Listed and what.at == LATEST:
        yield what.place, "stable end" if what.committed else "end", op.result
    elif what.__class__ is Listed and what.at == EARLIEST:
        yield what.place, "start", op.result


def _newer_than_next(ops: list[Op]) -> Iterator[Anomaly]:
    ends: dict[Place, tuple[int, Op]] = {}  # the highest that was told so far
    for op in ops:
        if op.what.__class__ is Send and not op.what.again:
            end, read = ends.get(op.what.place, (0, op))
            if op.result < end:
                yield Anomaly("write seen before its time", f"{op.what.place} ended at {end} before it", (read, op))
        for place, name, value in _ends_told(op):
            if name == "end" and value >= ends.get(place, (0, op))[0]:
                ends[place] = value, op


def _without_own_commit(facts: Facts, ops: list[Op]) -> Iterator[Anomaly]:
    """Reads that were sent after a commit see a last stable offset above its records, unless other open transactions
    begin below them.
    """
    needs: list[tuple[Place, int, str, Op]] = []
    for op in ops:
        if op.what.__class__ is End and op.what.commit:
            for sent, send in facts.fate(op.what.txn).sends:
                if sent.outcome == OK:
                    needs.append((send.place, sent.result + len(send.values) - 1, op.what.txn, op))
        if op.what.__class__ is Read and op.what.committed and op.result.high_watermark != UNTOLD:
            stable = op.result.last_stable
        elif op.what.__class__ is Listed and op.what.committed and op.what.at == LATEST:
            stable = op.result
        else:
            continue
        for place, offset, txn, read in needs:
            behind = place == op.what.place and stable <= offset
            if behind and not Excuses(facts, place).hold(op, txn, offset):
                yield Anomaly("own write unseen", f"{txn} has {offset} of {place}, which is not stable yet", (read, op))


CONNECTION_RULES = [own_writes]
