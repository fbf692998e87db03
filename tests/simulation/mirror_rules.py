"""Rules about a mirror: every committed record once, in its order, as it was; the map and moved groups exact. Pure.

What is judged are the two logs as they stand in the end, batch by batch, and not what readers make of them: which
records are committed follows from the markers. Before a source's log begins later than at first, what goes is written
down (`Log` at an earlier moment), so records of one partition are known from all of its Logs together.

A rule's docstring says what must hold. The rule yields an Anomaly for each place where a history contradicts it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from simulation.facts import Anomaly, Facts
from simulation.history import OK, Op, Place

SOURCE, TARGET = "source", "target"


class Copy(NamedTuple):
    """A committed record. txn: which transaction of its log it belongs to, "" for none."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int
    txn: str = ""

    @property
    def content(self) -> tuple[object, ...]:
        """What a mirror copies unchanged: key, value, headers and timestamp."""
        return self[1:5]

    def __str__(self) -> str:
        return f"{self.headers or (self.value or b'')[:40]} at {self.offset}"


class Log(NamedTuple):
    """A partition of one side. Result: Stands."""

    side: str
    place: Place


class Stands(NamedTuple):
    """Where a log begins and ends, and its committed records."""

    start: int
    end: int
    copies: tuple[Copy, ...]


class MapOf(NamedTuple):
    """The map of offsets of a partition. Result: its entries: first, end, and runs of (source, target, count)."""

    place: Place


class PositionOf(NamedTuple):
    """How far the mirror is in a partition of the source. Result: the offset, or -1."""

    place: Place


class Whole(NamedTuple):
    """No transaction of the source waited for so long that a mirror may divide it."""


class Stopped(NamedTuple):
    """A task mirrors a topic no more, and says why."""

    topic: str
    why: str


class CutOver(NamedTuple):
    """A cutover. Result: Moved."""


class Moved(NamedTuple):
    """ends: where the source's partitions ended when no more was written. groups: (group, place, committed offset
    there) on the source.
    """

    ends: tuple[tuple[Place, int], ...]
    groups: tuple[tuple[str, Place, int], ...]


class GroupAt(NamedTuple):
    """Where a group stands on a side in the end. Result: the offset, or -1."""

    side: str
    group: str
    place: Place


class _Partition:
    """What a history says of one partition on both sides."""

    def __init__(self, place: Place, source: Sequence[Op], target: Op) -> None:
        self.place = place
        self.ops = (source[-1], target)
        self.start: int = source[0].result.start
        self.source_end: int = source[-1].result.end
        self.target_end: int = target.result.end
        known = {copy.offset: copy for op in source for copy in op.result.copies}
        self.source = [known[offset] for offset in sorted(known)]
        self.target: tuple[Copy, ...] = target.result.copies

    @cached_property
    def is_exact(self) -> bool:
        """Whether both sides have the same records in the same order. Only then it is known which record of the target
        is which of the source.
        """
        return [copy.content for copy in self.source] == [copy.content for copy in self.target]

    def target_of(self, offset: int) -> int:
        """Return the offset on the target for a group that is at this offset of the source. Only to be called if
        is_exact.
        """
        for here, there in zip(self.source, self.target, strict=True):
            if here.offset >= offset:
                return there.offset
        return self.target_end


def _partitions(facts: Facts) -> list[_Partition]:
    logs: dict[tuple[str, Place], list[Op]] = defaultdict(list)
    for op, log in facts.history.of(Log):
        logs[log.side, log.place].append(op)
    return [
        _Partition(place, ops, logs[TARGET, place][-1])
        for (side, place), ops in logs.items()
        if side == SOURCE and logs[TARGET, place]
    ]


def mirrors_are_exact(facts: Facts) -> Iterator[Anomaly]:
    """The target has each committed record of the source once, unchanged, in the same order, and no others."""
    for each in _partitions(facts):
        here, there = (Counter(copy.content for copy in side) for side in (each.source, each.target))
        one = {copy.content: copy for copy in (*each.target, *each.source)}
        for content, count in there.items():
            if content not in here:
                yield Anomaly("mirrored from nowhere", f"{each.place}: {one[content]}, of the target alone", each.ops)
            elif count > here[content]:
                yield Anomaly("mirrored twice", f"{each.place}: {one[content]}, {count} times", each.ops)
        for content in here - there:
            yield Anomaly("lost by the mirror", f"{each.place}: {one[content]} is not on the target", each.ops)
        if here == there and not each.is_exact:
            first = next(a for a, b in zip(each.source, each.target, strict=True) if a.content != b.content)
            yield Anomaly("mirrored out of order", f"{each.place}: from {first.offset} on", each.ops)


def transactions_stay_whole(facts: Facts) -> Iterator[Anomaly]:
    """Within a partition, a transaction of the source is in one transaction of the target. Checked only if the history
    says that none may be divided (Whole).
    """
    if not any(facts.history.of(Whole)):
        return
    for each in _partitions(facts):
        went: dict[str, set[str]] = defaultdict(set)
        for here, there in zip(each.source, each.target, strict=True) if each.is_exact else ():
            if here.txn:
                went[here.txn].add(there.txn)
        for txn, parts in went.items():
            if len(parts) > 1:
                text = f"{each.place}: {txn} is divided among {sorted(parts)}"
                yield Anomaly("torn by the mirror", text, each.ops)


def maps_are_exact(facts: Facts) -> Iterator[Anomaly]:
    """The map has the offset on the target of each record that is still on the source, in one entry, and of no
    others.
    """
    partitions = {each.place: each for each in _partitions(facts)}
    for op, what in facts.history.of(MapOf):
        each = partitions.get(what.place)
        if each is None or not each.is_exact:
            continue
        for (_, end, _), (first, _, _) in pairwise(sorted(op.result)):
            if first < end:
                yield Anomaly("wrong map", f"{what.place}: an entry up to {end}, another from {first} on", (op,))
        places = {here.offset: there.offset for here, there in zip(each.source, each.target, strict=True)}
        said = [(here + n, there + n) for _, _, runs in op.result for here, there, count in runs for n in range(count)]
        for here, there in said:
            if here >= each.start and places.get(here) != there:
                yield Anomaly(
                    "wrong map", f"{what.place}: {here} is said to be at {there}, and not {places.get(here)}", (op,)
                )
        start = each.ops[0].result.start
        for here in sorted(places.keys() - dict(said).keys()):
            if here >= start:
                yield Anomaly("missing in the map", f"{what.place}: {here}, which is at {places[here]}", (op,))


def mirrors_come_to_the_end(facts: Facts) -> Iterator[Anomaly]:
    """After the last fault has ended, the mirror's positions get to the ends of the source, and no topic has
    stopped.
    """
    partitions = {each.place: each for each in _partitions(facts)}
    for op, what in facts.history.of(PositionOf):
        each = partitions.get(what.place)
        if each is not None and op.result != each.source_end:
            text = f"{what.place}: the position is {op.result}, the source ends at {each.source_end}"
            yield Anomaly("mirror left behind", text, (op, *each.ops))
    for op, stopped in facts.history.of(Stopped):
        yield Anomaly("mirror stopped for nothing", f"{stopped.topic}: {stopped.why}", (op,))


def groups_go_on_at_the_next_record(facts: Facts) -> Iterator[Anomaly]:
    """After a cutover, all groups are moved, to where the map says; and the source has no records after the
    cutover.
    """
    partitions = {each.place: each for each in _partitions(facts)}
    done = [op for op, _ in facts.history.of(CutOver)]
    if not done:
        return
    stands = {what: op for op, what in facts.history.of(GroupAt)}
    moved: Moved = done[-1].result
    for place, end in moved.ends:
        behind = [copy.offset for copy in partitions[place].source if copy.offset >= end] if place in partitions else []
        if behind:
            text = f"{place}: committed records from {behind[0]} on, and the cutover was at {end}"
            yield Anomaly("written behind a cutover", text, (done[-1],))
    for group, place, offset in moved.groups:
        here, there = (stands.get(GroupAt(side, group, place)) for side in (SOURCE, TARGET))
        each = partitions.get(place)
        if here is None or there is None or each is None or not each.is_exact:
            continue
        # What lies below the source's log is no more in the map, and nobody could read it there.
        first, last = each.target_of(offset), each.target_of(max(offset, each.ops[0].result.start))
        if here.result != offset or not first <= there.result <= last:
            text = f"{group} in {place}: from {offset} to {there.result}, and should be at {last}"
            yield Anomaly("group moved wrongly", text, (done[-1], here, there))
    for what, op in stands.items():
        is_moved = (what.group, what.place) in {(group, place) for group, place, _ in moved.groups}
        if what.side == SOURCE and op.outcome == OK and op.result >= 0 and not is_moved:
            yield Anomaly("group left behind", f"{what.group} in {what.place} is at {op.result}", (done[-1], op))


MIRROR_RULES = [
    mirrors_are_exact,
    transactions_stay_whole,
    maps_are_exact,
    mirrors_come_to_the_end,
    groups_go_on_at_the_next_record,
]
