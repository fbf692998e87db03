"""Rules about consumers: what polls pass over, where they go on, what groups have done, which offsets are listed.

A rule's docstring says what must hold. The rule yields an Anomaly for each place where a history contradicts it.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import attrgetter

from simulation.cleanup_rules import Replaced
from simulation.facts import Anomaly, Facts
from simulation.history import INFO, Claim, Finish, LeftBehind, Listed, OffsetOf, Op, Pause, Place, Read, Resume

EARLIEST, LATEST = -2, -1


class _Visible:
    """The records of a place that the last readers of one kind saw. A reader that passes the offset of one has to show
    it.
    """

    def __init__(self, facts: Facts, place: Place, committed: bool) -> None:
        reads = [op for op, read in facts.reads[place] if op.client == "final" and read.committed is committed]
        self.known = sorted({record for op in reads for record in op.result.records})
        self._offsets = [offset for offset, _ in self.known]

    def between(self, start: int, end: int) -> list[tuple[int, str]]:
        return self.known[bisect_left(self._offsets, start) : bisect_left(self._offsets, end)]


def poll_skips(facts: Facts) -> Iterator[Anomaly]:
    """A poll shows all visible records of the offsets that it passes, and begins where the one before ended."""
    for place, reads in facts.reads.items():
        for committed in (False, True):
            visible = _Visible(facts, place, committed)
            if not visible.known:
                continue
            replaced = Replaced(facts, place)  # whoever takes over may have what was compacted away before
            sessions: dict[tuple[str, str], tuple[list[Op], Read]] = {}  # the reads for the newest transaction
            done: set[int] = set()  # what was read so far for transactions that were committed
            for op, read in reads:
                if read.committed is not committed:
                    continue
                got = dict(op.result.records)
                for offset, value in visible.between(read.start, op.result.next_offset):
                    if offset not in got and not replaced.excuses(op, offset, value, got):
                        yield Anomaly("poll skip", f"{value!r} at {offset} is passed over", (op,))
                if read.session:
                    key = op.client, read.session
                    before: list[Op] = []
                    if key in sessions:
                        before, was = sessions[key]
                        yield from _goes_on(facts, before, was, op, read, visible, done)
                        if read.txn is None or read.txn != was.txn:
                            before = []
                    sessions[key] = [*before, op], read
                if read.txn is not None and (facts.fate(read.txn).committed or facts.fate(read.txn).seen_by):
                    done.update(offset for offset, _ in op.result.records)


def _goes_on(
    facts: Facts, reads: Sequence[Op], was: Read, op: Op, read: Read, visible: _Visible, done: set[int]
) -> Iterator[Anomaly]:
    """A poll begins after the one before it, if that was for the same transaction, for one that was committed, or for
    none. If it was for one that was aborted, the poll begins at that one's first record or below. After an unknown
    outcome it may begin anywhere.

    reads: the polls before this one for the same transaction. done: offsets that committed transactions have worked on;
    they do not come again, even if they were given to another transaction by mistake.
    """
    before = reads[-1]
    ended = before.result.next_offset
    if was.txn is not None and was.txn != read.txn:
        fate = facts.fate(was.txn)
        if fate.aborted:
            given = [offset for each in reads for offset, _ in each.result.records if offset not in done]
            if given and min(given) < read.start:  # what shows nothing may be passed by
                text = f"{was.txn} is not committed, and reading goes on at {read.start}"
                yield Anomaly("no rewind", text, (before, op))
            return
        if fate.committed is None:
            return
    if read.start < ended:
        yield Anomaly("nonmonotonic poll", f"reading ended at {ended} and goes on at {read.start}", (before, op))
    for offset, value in visible.between(ended, read.start):
        yield Anomaly("poll skip", f"{value!r} at {offset} is between two polls", (before, op))


def work_of_groups(facts: Facts) -> Iterator[Anomaly]:
    """At least once: a group's members have done all records below its committed offset."""
    done: dict[tuple[str, Place], set[int]] = defaultdict(set)
    for place, reads in facts.reads.items():
        for op, read in reads:
            if read.group:
                done[read.group, place] |= {offset for offset, _ in op.result.records}
    for op in facts.history.given_later:
        done[op.what.group, op.what.place] |= {offset for offset, _ in op.result.records}
    working = {group for group, _ in done}
    for op, stand in facts.history.of(OffsetOf):
        if op.client == "final" and stand.group in working:
            for offset, value in _Visible(facts, stand.place, True).between(0, op.result):
                if offset not in done[stand.group, stand.place]:
                    text = f"{stand.group} stands at {op.result} and has not done {value!r} at {offset}"
                    yield Anomaly("skipped by its group", text, (op,))


def listed_offsets(facts: Facts) -> Iterator[Anomaly]:
    """An offset from ListOffsets is between what fetches told before it and after it; one for a time is what the log
    says.
    """
    reported: dict[tuple[Place, str], _Told] = {}
    for op, listed in facts.history.of(Listed):
        if listed.at >= 0:
            yield from _listed_for_timestamp(facts, op, listed)
            continue
        end = "last_stable" if listed.committed else "high_watermark"
        name = end if listed.at == LATEST else "log_start"
        if (listed.place, name) not in reported:
            reported[listed.place, name] = _Told(facts, listed.place, name)
        other = reported[listed.place, name].against(op)
        if other is not None:
            yield Anomaly(
                "wrong listed offset", f"{name} is {getattr(other.result, name)}, not {op.result}", (other, op)
            )


class _Told:
    """What fetches told of one end of a place: the highest offset until each moment, and the lowest since each."""

    def __init__(self, facts: Facts, place: Place, name: str) -> None:
        def end(op: Op) -> int:
            reported: int = getattr(op.result, name)
            return reported

        self._end = end
        reads = [op for op, _ in facts.reads[place] if op.result.tells_ends]
        ended = sorted(reads, key=attrgetter("done"))
        begun = [op for op in reads if not facts.may_be_outdated(op)]
        begun.sort(key=attrgetter("invoked"), reverse=True)
        self._facts = facts
        self._ended = [op.done for op in ended]
        self._highest = list(accumulate(ended, lambda one, other: max(one, other, key=end)))
        self._begun = [-op.invoked for op in begun]
        self._lowest = list(accumulate(begun, lambda one, other: min(one, other, key=end)))

    def against(self, op: Op) -> Op | None:
        """Return a fetch that contradicts the listed offset: it ended before and told more, or began later and told
        less.
        """
        before, after = bisect_left(self._ended, op.invoked), bisect_left(self._begun, -op.done)
        is_lower = before and self._end(self._highest[before - 1]) > op.result
        if is_lower and not self._facts.may_be_outdated(op):
            return self._highest[before - 1]
        if after and self._end(self._lowest[after - 1]) < op.result:
            return self._lowest[after - 1]
        return None


def _listed_for_timestamp(facts: Facts, op: Op, listed: Listed) -> Iterator[Anomaly]:
    """The offset that is listed for a timestamp is that of the first entry with it or a later one, where markers may
    count or not. Clients list such offsets only when all writes have ended, so the dump has the same log.
    """
    dump = facts.dumps.get(listed.place)
    if dump is None or facts.loses_its_beginning(listed.place) or facts.is_compacted(listed.place):
        return  # more of it may be gone since
    late = [entry for entry in dump.result if entry.timestamp >= listed.at]
    firsts = [late[0] if late else None, next((entry for entry in late if not entry.marker), None)]
    ranges = [(-1, -1) if one is None else (one.offset, one.end - 1) for one in firsts]
    if not any(low <= op.result <= high for low, high in ranges):
        yield Anomaly("wrong listed offset", f"{op.result} at {listed.at}, where {ranges} was expected", (op, dump))


def stuck(facts: Facts) -> Iterator[Anomaly]:
    """After the last fault has ended, every client finishes."""
    for op, finish in facts.history.of(Finish, only_ok=False):
        if op.outcome == INFO:
            yield Anomaly("stuck client", f"{op.client} does not finish: {finish.what}", (op,))


def paused(facts: Facts) -> Iterator[Anomaly]:
    """A consumer returns no records of a partition from its pause to its resume."""
    reported = [op for kind in (Pause, Resume) for op, _ in facts.history.of(kind)]
    steps = sorted([*reported, *(op for op, _ in facts.history.of(Read))], key=lambda op: op.invoked)
    since: dict[tuple[str, Place], Op] = {}
    for op in steps:
        key = op.client, op.what.place
        if isinstance(op.what, Pause):
            since[key] = op
        elif isinstance(op.what, Resume):
            since.pop(key, None)
        elif key in since and op.result.records:
            yield Anomaly("read while paused", f"{op.client} is given records of {op.what.place}", (since[key], op))


def claimed_twice(facts: Facts) -> Iterator[Anomaly]:
    """A batch belongs to one transaction at a time, and to no other after that was committed."""
    for op, claim in facts.history.of(Claim):
        if op.result:
            yield Anomaly("batch in two transactions", f"the batch of {claim.txn} is given to another one", (op,))


def left_behind(facts: Facts) -> Iterator[Anomaly]:
    """A member that is polled in time stays in its group, however long the processing of its records takes."""
    for op, left in facts.history.of(LeftBehind):
        if op.result < left.allowed_ms:
            text = f"{op.client} leaves {left.group} after {op.result} of {left.allowed_ms} ms without a poll"
            yield Anomaly("expelled while polled", text, (op,))


CONSUMER_RULES = [poll_skips, work_of_groups, listed_offsets, stuck, paused, claimed_twice, left_behind]
