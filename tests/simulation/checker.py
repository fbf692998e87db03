"""The history checker: anomalies that no client of fencepost may ever see. Pure.

Classes are those of Jepsen's Kafka tests (jepsen.tests.kafka; the rules, not the code) and those that speak of
transactions, offsets, durability and groups. The rule that keeps it honest: what is unknown is never taken for failed.
Writes may interleave (G0) and subscribed readers may jump: both are legal, so nothing here looks for them.

A rule's docstring says what must hold. The rule yields an Anomaly for each place where a history contradicts it.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from graphlib import CycleError, TopologicalSorter

from simulation.cleanup_rules import CLEANUP_RULES
from simulation.connection_rules import CONNECTION_RULES
from simulation.consumer_rules import CONSUMER_RULES
from simulation.facts import Anomaly, Facts
from simulation.group_rules import GROUP_RULES
from simulation.history import (
    FAIL,
    OK,
    Dump,
    History,
    OffsetOf,
    Offsets,
    Op,
    Place,
    Send,
    name_of,
)
from simulation.limit_rules import LIMIT_RULES
from simulation.log_rules import LOG_RULES
from simulation.mirror_rules import MIRROR_RULES
from simulation.named_rules import NAMED_RULES
from simulation.offset_rules import OFFSET_RULES
from simulation.producer_rules import PRODUCER_RULES
from simulation.reading_rules import READING_RULES
from simulation.rights_rules import RIGHTS_RULES
from simulation.share_consumer_rules import SHARE_CONSUMER_RULES
from simulation.share_rules import SHARE_RULES, may_be_reset

Rule = Callable[[Facts], Iterator[Anomaly]]


def check(history: History, *, at_most: int = 20) -> list[Anomaly]:
    """Return the anomalies of a history, the first at_most of them; none if nothing is wrong."""
    facts = Facts(history)
    found: list[Anomaly] = []
    for rule in RULES:
        for anomaly in rule(facts):
            found.append(anomaly)
            if len(found) >= at_most:
                return found
    return found


def inconsistent_offsets(facts: Facts) -> Iterator[Anomaly]:
    """In one place each offset has one value for ever, and each value one offset, whichever answer tells it."""
    stands: dict[Place, dict[int, tuple[str, Op]]] = defaultdict(dict)
    at: dict[Place, dict[str, tuple[int, Op]]] = defaultdict(dict)
    seen: dict[Place, set[tuple[int, str]]] = defaultdict(set)
    for op, place, records in _sightings(facts):
        for offset, value in records:
            if (offset, value) in seen[place]:
                continue
            seen[place].add((offset, value))
            known, first = stands[place].setdefault(offset, (value, op))
            if known != value:
                yield Anomaly("inconsistent offset", f"{place} {offset} is {known!r} and {value!r}", (first, op))
                yield from _wrong_acknowledgement(place, offset, first, op)
            other, first = at[place].setdefault(value, (offset, op))
            if other != offset:
                sender = facts.writer.get(value)
                if sender is not None and facts.forgot_writer(place, value):
                    continue
                twice = first.what.__class__ is Send and op.what.__class__ is Send
                twice = twice and sender is not None and first.what.sequence == op.what.sequence
                name = "wrong duplicate answer" if twice else "duplicate"
                yield Anomaly(name, f"{value!r} stands in {place} at {other} and {offset}", (first, op))


def _wrong_acknowledgement(place: Place, offset: int, first: Op, op: Op) -> Iterator[Anomaly]:
    """Name the acknowledgement that is wrong, if one of these contradicting operations is a Send, or both are."""
    answers = [one for one in (first, op) if one.what.__class__ is Send]
    if len(answers) == 1:
        yield Anomaly("spurious offset", f"something else stands at {place} {offset}", (first, op))
    elif len(answers) == 2 and first.what.producer[0] == op.what.producer[0]:
        yield Anomaly(
            "false duplicate", f"two batches are told {place} {offset}: one was taken for the other", (first, op)
        )


def _sightings(facts: Facts) -> Iterator[tuple[Op, Place, Iterable[tuple[int, str]]]]:
    """Yield each answer that tells at which offsets records are: the operation, the place, (offset, value) of each
    record.
    """
    for op, send in facts.sends:
        if op.outcome == OK:
            yield op, send.place, enumerate(send.values, op.result)
    for place, reads in facts.reads.items():
        for op, _ in reads:
            yield op, place, op.result.records
    for place, op in facts.dumps.items():
        for entry in op.result:
            yield op, place, entry.records


def aborted_reads(facts: Facts) -> Iterator[Anomaly]:
    """G1a and the like: a reader saw a value that was refused, not (yet) committed, never sent, or sent to another
    place.
    """
    for place, reads in facts.reads.items():
        for committed in (False, True):
            # Of two reads that show a value, only the one that is done first can show it too early.
            seen: set[tuple[str, str]] = set()
            for op, read in sorted(reads, key=lambda one: one[0].done):
                if read.committed is not committed:
                    continue
                for _, value in op.result.records:
                    if (op.client, value) not in seen:
                        seen.add((op.client, value))
                        yield from _unfit(facts, op, place, value, committed)
    for place, op in facts.dumps.items():
        for entry in op.result:
            for value in entry.values:
                yield from _unfit(facts, op, place, value, committed=False)


def _unfit(facts: Facts, op: Op, place: Place, value: str, committed: bool) -> Iterator[Anomaly]:
    found = facts.writer.get(value)
    if found is None or found[0].invoked > op.done:
        yield Anomaly("read of nothing", f"{value!r} was not sent", (op,))
        return
    sent, send = found
    if send.place != place and not (place in facts.created and name_of(send.place) == name_of(place)):
        yield Anomaly("wrong place", f"{value!r} was sent to {send.place}", (sent, op))
    elif sent.outcome == FAIL:
        yield Anomaly("aborted read", f"{value!r} was refused", (sent, op))
    elif committed and send.txn is not None:
        fate = facts.fate(send.txn)
        if not fate.aborted and fate.may_show_from <= op.done:
            return
        ends = tuple(end for end, _ in fate.ends)
        if op.client == sent.client and fate.may_show_from > op.done:
            yield Anomaly("precommitted read", f"{value!r} of {send.txn}, by itself", (sent, *ends, op))
        if fate.aborted:
            yield Anomaly("aborted read", f"{value!r} of {send.txn}, which is not committed", (sent, *ends, op))
        elif fate.may_show_from > op.done:
            yield Anomaly("aborted read", f"{value!r} of {send.txn}, which is not committed yet", (sent, *ends, op))


def decided_twice(facts: Facts) -> Iterator[Anomaly]:
    """A commit and an abort of one transaction cannot both have been done."""
    for fate in facts.fates.values():
        kinds = {end.commit for op, end in fate.ends if op.outcome == OK}
        if len(kinds) == 2:
            yield Anomaly("decided twice", f"{fate.txn} was committed and aborted", tuple(op for op, _ in fate.ends))


def half_committed(facts: Facts) -> Iterator[Anomaly]:
    """A transaction of which a write has failed is not committed."""
    for fate in facts.fates.values():
        failed = [op for op, _ in (*fate.sends, *fate.offsets) if op.outcome != OK and op.error]
        if fate.committed is not None and failed:
            yield Anomaly("torn transaction", f"{fate.txn} is committed without all of it", (failed[0], fate.committed))


def circular_flow(facts: Facts) -> Iterator[Anomaly]:
    """G1c, by reads alone: transactions that each read what the other wrote."""
    stands = {(send.place, offset): send.txn for _, send, offset, _ in facts.answered() if send.txn is not None}
    graph: dict[str, set[str]] = defaultdict(set)
    for op, send in facts.sends:
        if send.txn is not None and op.outcome == OK:
            graph[send.txn] |= {stands[source] for source in send.sources if stands.get(source, send.txn) != send.txn}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        yield Anomaly("G1c", f"each of these read what the one before it wrote: {error.args[1]}")


# ---- groups --------------------------------------------------------------------------------------------------


def split_offsets(facts: Facts) -> Iterator[Anomaly]:
    """Each input below a committed offset has an output that readers see once; inputs at or above it have none."""
    shown: dict[tuple[Place, int], tuple[str, Op]] = {}
    for _, reads in facts.reads.items():
        for op, read in reads:
            if not read.committed:
                continue
            for _, value in op.result.records:
                found = facts.writer.get(value)
                if found is None or not found[1].sources:
                    continue
                source = found[1].sources[found[1].values.index(value)]
                other, first = shown.setdefault(source, (value, op))
                writes = sorted((facts.writer[each][0] for each in (other, value)), key=lambda write: write.invoked)
                if other != value and not may_be_reset(facts, source, *writes):
                    yield Anomaly("duplicate", f"{source} was worked on twice: {other!r}, {value!r}", (first, op))
    inputs = _inputs(facts)
    moving = {offsets.group for _, offsets in facts.history.of(Offsets, only_ok=False)}
    for op, stand in facts.history.of(OffsetOf):
        if op.client != "final" or stand.group not in moving:
            continue
        for offset in inputs.get(stand.place, ()):
            has = (stand.place, offset) in shown
            if has != (offset < op.result):
                text = (
                    f"input {stand.place} {offset}, where {op.result} is committed, has {'an' if has else 'no'} output"
                )
                yield Anomaly("offsets/outputs split", text, (op,))


def _inputs(facts: Facts) -> dict[Place, set[int]]:
    """Return the offsets that transforming clients should have worked on, by place: the committed records that the last
    readers saw.
    """
    places = {place for _, send in facts.sends for place, _ in send.sources}
    found: dict[Place, set[int]] = defaultdict(set)
    for place in places:
        for op, read in facts.reads[place]:
            if op.client == "final" and read.committed:
                found[place] |= {offset for offset, _ in op.result.records}
    return found


def nonmonotonic_reads(facts: Facts) -> Iterator[Anomaly]:
    """The offsets of one fetch grow, begin where it was asked to begin, and end below the last stable offset (for
    uncommitted reads: below the high watermark).
    """
    for reads in facts.reads.values():
        for op, read in reads:
            seen = op.result
            offsets = [offset for offset, _ in seen.records]
            if offsets != sorted(set(offsets)) or (offsets and offsets[0] < read.start):
                yield Anomaly("nonmonotonic read", f"offsets {offsets[:20]}", (op,))
            end = seen.last_stable if read.committed else seen.high_watermark
            if seen.last_stable > seen.high_watermark or max(offsets, default=-1) >= end >= 0:
                yield Anomaly("read above the end", "more than is decided", (op,))


def holes_in_the_log(facts: Facts) -> Iterator[Anomaly]:
    """In the dump of a log each batch begins where the one before ended, unless compaction removed some between."""
    for op, dump in facts.history.of(Dump):
        at = op.result[0].offset if op.result else 0
        for entry in op.result:
            if entry.offset != at and not (entry.offset > at and facts.is_compacted(dump.place)):
                yield Anomaly("hole in the log", f"{dump.place}: {at} is missing before {entry.offset}", (op,))
            at = entry.end


RULES: list[Rule] = [
    inconsistent_offsets,
    aborted_reads,
    decided_twice,
    half_committed,
    nonmonotonic_reads,
    *READING_RULES,
    *PRODUCER_RULES,
    *LOG_RULES,
    *CONSUMER_RULES,
    *CONNECTION_RULES,
    *LIMIT_RULES,
    *RIGHTS_RULES,
    *SHARE_RULES,
    *SHARE_CONSUMER_RULES,
    *NAMED_RULES,
    *MIRROR_RULES,
    *CLEANUP_RULES,
    *OFFSET_RULES,
    split_offsets,
    *GROUP_RULES,
    holes_in_the_log,
    circular_flow,
]
