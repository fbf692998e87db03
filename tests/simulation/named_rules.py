"""Rules about named producers: nothing twice, nothing lost, in order, by the newest alone. Pure.

What a name has written is known for good: whoever sends it again is told that it is a duplicate, and of nothing else.

A rule's docstring says what must hold. The rule yields an Anomaly for each place where a history contradicts it.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import NamedTuple

from simulation.facts import Anomaly, Facts
from simulation.history import OK, Op, Place


class Opened(NamedTuple):
    """A process takes a name. Result: its epoch."""

    name: str


class Highest(NamedTuple):
    """How far a name is in a place. Result: the highest sequence, or -1."""

    name: str
    place: Place


class Numbered(NamedTuple):
    """An attempt to write a record of a name's source. Result: (its offset or -1, is it a duplicate?)."""

    name: str
    place: Place
    sequence: int
    epoch: int


Source = tuple[str, Place]


def _by_source(facts: Facts) -> dict[Source, list[Op]]:
    found: dict[Source, list[Op]] = defaultdict(list)
    for op, what in facts.history.of(Numbered, only_ok=False):
        found[what.name, what.place].append(op)
    return found


def _in_log(facts: Facts, source: Source) -> list[int]:
    """Return the sequences of a source, in the order of the log."""
    name, place = source
    if place not in facts.dumps:
        return []
    values = [value.split("/") for entry in facts.dumps[place].result for value in entry.values]
    return [int(sequence) for known_as, _, sequence in values if known_as == name]


def epochs_of_names_grow(facts: Facts) -> Iterator[Anomaly]:
    """Each epoch of a name is given once, and a later one is higher."""
    opened: dict[str, list[Op]] = defaultdict(list)
    for op, what in facts.history.of(Opened):
        for other in opened[what.name]:
            if other.result == op.result or (other.done < op.invoked and other.result > op.result):
                yield Anomaly("epoch reuse", f"{what.name} gets {op.result} after {other.result}", (other, op))
        opened[what.name].append(op)


def only_the_newest_writes(facts: Facts) -> Iterator[Anomaly]:
    """Once a process was answered that it has a name, no process with an older epoch of it writes."""
    opened: dict[str, list[Op]] = defaultdict(list)
    for op, what in facts.history.of(Opened):
        opened[what.name].append(op)
    for op, what in facts.history.of(Numbered):
        newer = [each for each in opened[what.name] if each.result > what.epoch and each.done < op.invoked]
        if newer and not op.result[1]:
            yield Anomaly("zombie accepted", f"{what.name} writes with {what.epoch}", (newer[0], op))


def what_is_written_is_known(facts: Facts) -> Iterator[Anomaly]:
    """From the first answer on, the broker knows what a name has written: when asked for its highest sequence, and when
    it is sent again.
    """
    for source, ops in _by_source(facts).items():
        answered = sorted((op for op in ops if op.outcome == OK), key=_done)
        highest = list(accumulate(answered, lambda one, other: max(one, other, key=_sequence)))

        def known_to(op: Op, answered: list[Op] = answered, highest: list[Op] = highest) -> Op | None:
            before = bisect_left(answered, op.invoked, key=_done)
            return highest[before - 1] if before else None

        for op, what in facts.history.of(Highest):
            known = known_to(op) if what == source else None
            if known is not None and known.what.sequence > op.result:
                yield Anomaly("lost write", f"{source} is at {op.result}", (known, op))
        for op in answered:
            known = known_to(op)
            if known is not None and known.what.sequence >= op.what.sequence and not op.result[1]:
                yield Anomaly("duplicate", f"{source} {op.what.sequence} is written again", (known, op))


def _done(op: Op) -> int:
    return op.done


def _sequence(op: Op) -> int:
    sequence: int = op.what.sequence
    return sequence


def duplicates_are_in_the_log(facts: Facts) -> Iterator[Anomaly]:
    """Every record that was answered is in the log, also those that were answered as duplicates."""
    for source, ops in _by_source(facts).items():
        there = set(_in_log(facts, source))
        for op in ops:
            if op.outcome == OK and op.what.sequence not in there:
                is_duplicate = op.result[1]
                name = "false duplicate" if is_duplicate else "lost write"
                yield Anomaly(name, f"{source} {op.what.sequence} is not in the log", (op,))


def sources_are_in_the_log_from_their_beginning(facts: Facts) -> Iterator[Anomaly]:
    """The records of a source are in the log in their order, without a gap, because each is sent after all
    before it.
    """
    for source, ops in _by_source(facts).items():
        there = _in_log(facts, source)
        dump = facts.dumps.get(source[1])
        if dump is None:
            continue
        if there != sorted(set(there)):
            wrong = next(after for before, after in pairwise(there) if after <= before)
            yield Anomaly("nonmonotonic send", f"{source}: {wrong} comes after what follows it", (dump,))
        before = {op.what.sequence for op in ops if op.what.sequence < max(there, default=-1)}
        for sequence in sorted(before - set(there))[:1]:
            attempts = [op for op in ops if op.what.sequence == sequence]
            yield Anomaly("sequence gap", f"{source}: {sequence} is left out", (*attempts[:3], dump))


NAMED_RULES = [
    epochs_of_names_grow,
    only_the_newest_writes,
    what_is_written_is_known,
    duplicates_are_in_the_log,
    sources_are_in_the_log_from_their_beginning,
]
