"""The rule about what a group has committed, by plain commits and in transactions. Pure.

A plain commit that was not answered may arrive later, and replaces newer ones of the same member; of
another member the group refuses it. Whoever reads that goes on from there, and is right to commit less than before.

A rule's docstring says what must hold. The rule yields an Anomaly for each place where a history contradicts it.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from simulation.facts import NEVER, Anomaly, Facts
from simulation.history import FAIL, INFO, OK, Commit, OffsetOf, Op, Place


class _Asked(NamedTuple):
    """A commit of one place that was not refused. since: it may count from then on. sure: it counts by then."""

    since: int
    sure: int
    position: int
    op: Op


class _Commits:
    """An index of what groups were asked to keep, and of reads that a late commit explains."""

    def __init__(self, facts: Facts) -> None:
        self.asked: dict[tuple[str, Place], list[_Asked]] = defaultdict(list)
        self._late: dict[tuple[str, Place, int], list[Op]] = defaultdict(list)
        for op, commit in facts.history.of(Commit, only_ok=False):
            for place, position in commit.positions:
                if op.outcome == INFO or op.late:
                    self._late[commit.group, place, position].append(op)
                if op.outcome != FAIL:
                    sure = op.done if op.outcome == OK else NEVER
                    self.asked[commit.group, place].append(_Asked(op.invoked, sure, position, op))
        for fate in facts.fates.values():
            for op, offsets in fate.offsets:
                for place, position in offsets.positions:
                    if op.outcome != FAIL and not fate.aborted:
                        sure = fate.committed.done if fate.committed and op.outcome == OK else NEVER
                        self.asked[offsets.group, place].append(_Asked(fate.may_show_from, sure, position, op))
        self._late_reads: dict[tuple[str, Place], list[Op]] = defaultdict(list)
        for op, stand in facts.history.of(OffsetOf):
            if self.late_by(op):
                self._late_reads[stand.group, stand.place].append(op)

    def late_by(self, read: Op) -> set[str]:
        """Return the members whose late commit may have set the offset that was read."""
        found = self._late.get((read.what.group, read.what.place, read.result), ())
        return {op.what.member for op in found if op.invoked < read.done}

    def was_set_back(self, read: Op, position: int, sure: int, member: str | None = None) -> bool:
        """Return whether a late commit undid this position, and whether a member went on from there to what was read.

        sure: the moment by which the position was committed. member: who committed it; None if only a read shows it. A
        commit that surely came before the late one is not one with which a member went on.
        """
        key = read.what.group, read.what.place
        return any(
            sure < back.invoked < read.done
            and back.result < min(position, read.result)
            and (member is None or member in self.late_by(back))
            and any(
                one.position == read.result and one.since < read.done and (one.sure > back.invoked or one.op.late)
                for one in self.asked[key]
            )
            for back in self._late_reads[key]
        )


def committed_offsets(facts: Facts) -> Iterator[Anomaly]:
    """A group's offset never goes back, is one that was committed, and is not below one whose commit was answered
    before; unless a late commit of the same member explains it.
    """
    commits = _Commits(facts)
    highest: dict[tuple[str, Place], list[Op]] = defaultdict(list)
    for op, stand in facts.history.of(OffsetOf):
        key = stand.group, stand.place
        asked = commits.asked[key]
        if op.result >= 0 and not any(one.since < op.done and one.position == op.result for one in asked):
            yield Anomaly("offset of nothing", "nobody committed it, or it is not decided", (op,))
        late_by = commits.late_by(op)
        for one in asked:
            member = one.op.what.member
            is_behind = one.sure < op.invoked and one.position > op.result and member not in late_by
            if is_behind and not commits.was_set_back(op, one.position, one.sure, member):
                yield Anomaly("regression of committed offsets", f"{one.position} was committed", (one.op, op))
        for earlier in highest[key]:
            is_behind = earlier.done < op.invoked and earlier.result > op.result and not late_by
            if is_behind and not commits.was_set_back(op, earlier.result, earlier.done):
                yield Anomaly("regression of committed offsets", f"{earlier.result} was read before", (earlier, op))
        highest[key] = [*(each for each in highest[key] if each.result > op.result or each.done > op.invoked), op][-8:]


OFFSET_RULES = [committed_offsets]
