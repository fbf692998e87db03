"""Rules about members of groups: who owns a partition when, and whose offsets a group takes. Pure.

In the classic protocol a generation is of the whole group. In the newer one (KIP-848) each member has an epoch of its
own, and a partition is a member's from the epoch in which it got it: an offset is good if its epoch is not older than
that, and not newer than the member (KIP-1251). Here an epoch is known from answers alone. A rule speaks only where no
order of arrivals could explain what was seen, so a member of which a heartbeat was not answered is often left out.
Of two heartbeats of one member at once nobody knows which arrived first, unless the epochs in their answers differ.

A rule's docstring says what must hold. The rule yields an Anomaly for each place where a history contradicts it.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from fencepost.protocol.errors import ErrorCode
from simulation.facts import NEVER, Anomaly, Facts
from simulation.history import FAIL, INFO, OK, Beat, Commit, ForgottenGroup, Join, Offsets, Op, Place

NO_MEMBER = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)


@dataclass(eq=False)
class _Member:
    """One member id of one group: its heartbeats, in the order in which they were sent."""

    name: str
    beats: list[Op] = field(default_factory=list)

    def is_unsure(self, op: Op) -> bool:
        """Return whether an unanswered heartbeat may have arrived before this one, or one that was under way together
        with it.

        One that was sent later counts only if it may have changed something: a refused one does not, unless it is a
        leave, of which an earlier attempt may have succeeded.
        """
        return any(
            beat.outcome == INFO or beat.done > op.invoked
            for beat in self.beats
            if beat.invoked < op.invoked
            or (op.invoked < beat.invoked < op.done and (beat.outcome != FAIL or beat.what.epoch < 0))
        )

    def membership(self, moment: int) -> int:
        """Return how often it has asked to join by then."""
        return sum(beat.what.epoch == 0 and beat.invoked <= moment for beat in self.beats)

    def was_in_after(self, op: Op) -> bool:
        """Return whether a heartbeat that was sent after this operation was accepted, without a new join in between."""
        return any(
            beat.outcome == OK and beat.what.epoch > 0 and beat.invoked > op.done
            for beat in self.beats
            if self.membership(beat.invoked) == self.membership(op.invoked)
        )

    def left_before(self, moment: int) -> bool:
        """Return whether it had begun to leave by then."""
        return any(beat.what.epoch < 0 and beat.invoked < moment for beat in self.beats)


@dataclass(eq=False)
class _Hold:
    """The time in which a member surely has a partition, unless the group removes the member."""

    member: _Member
    since: int
    until: int
    op: Op


class _Groups:
    """An index of what members were told."""

    def __init__(self, facts: Facts) -> None:
        self.members: dict[tuple[str, str], _Member] = {}
        self.newer: set[str] = set()  # groups with a member of the newer protocol
        self._forgotten: dict[str, list[int]] = defaultdict(list)
        for op, what in facts.history.of(ForgottenGroup):
            self._forgotten[what.group].append(op.invoked)
        for op, beat in facts.history.of(Beat, only_ok=False):
            self.newer.add(beat.group)
            self.members.setdefault((beat.group, beat.member), _Member(beat.member)).beats.append(op)
        # (who, in which epoch, which places) by group
        self.given: dict[str, list[tuple[Op, str, int, tuple[Place, ...]]]] = defaultdict(list)
        for op, join in facts.history.of(Join):
            self.given[join.group].append((op, op.result[1], op.result[0], op.result[2]))
        for op, beat in facts.history.of(Beat):
            if op.result.places is not None and beat.epoch >= 0:
                self.given[beat.group].append((op, beat.member, op.result.epoch, op.result.places))

    def life(self, op: Op, group: str) -> int:
        """Return how often the group was forgotten before the answer: each time its generations and epochs begin
        again.
        """
        return bisect_right(self._forgotten[group], op.done)

    def is_in_one_life(self, op: Op, group: str) -> bool:
        return bisect_right(self._forgotten[group], op.invoked) == self.life(op, group)

    def went_before(self, one: Op, other: Op) -> bool:
        """Return whether the answers to two heartbeats of a member show that the group took `one` before `other`."""
        group = one.what.group
        is_told = all(beat.outcome == OK and beat.what.epoch >= 0 for beat in (one, other))
        if not is_told or one.result.epoch >= other.result.epoch:
            return False
        in_one_life = all(self.is_in_one_life(beat, group) for beat in (one, other))
        return in_one_life and self.life(one, group) == self.life(other, group)

    def member(self, group: str, name: str) -> _Member:
        return self.members.get((group, name)) or _Member(name)


def two_owners(facts: Facts) -> Iterator[Anomaly]:
    """A partition has one owner in a generation, or in an epoch of the newer protocol."""
    groups = _Groups(facts)
    for group, given in groups.given.items():
        owners: dict[tuple[int, int, Place], tuple[str, Op]] = {}
        for op, member, epoch, places in sorted(given, key=lambda one: one[0].done):
            for place in places:
                owner, first = owners.setdefault((groups.life(op, group), epoch, place), (member, op))
                if owner != member and not groups.member(group, owner).left_before(op.done):
                    yield Anomaly("two owners", f"{place} in generation {epoch}", (first, op))


def given_before_it_was_given_up(facts: Facts) -> Iterator[Anomaly]:
    """No member is given a partition before the member that has it has reported that it gave it up, or is a member no
    more.
    """
    groups = _Groups(facts)
    holds: dict[tuple[str, Place], list[_Hold]] = defaultdict(list)
    for (group, _), member in groups.members.items():
        for place, hold in _holds_of(member, groups):
            holds[group, place].append(hold)
    for op, beat in facts.history.of(Beat):
        for place in op.result.places or ():
            for hold in holds[beat.group, place]:
                is_held = hold.since < op.invoked and op.done < hold.until
                if hold.member.name != beat.member and is_held and hold.member.was_in_after(op):
                    text = f"{place} is given to {beat.member}, and {hold.member.name} still has it"
                    yield Anomaly("two owners", text, (hold.op, op))


def _holds_of(member: _Member, groups: _Groups) -> Iterator[tuple[Place, _Hold]]:
    """Yield each partition that the member was given, or reports to own, until it reports that it gave it up.

    From a heartbeat on that was not answered nothing is sure: the group takes it for a new report, however late it
    arrives. Another heartbeat that overlaps the one that gave the partition ends this, too, if it gives up the
    partition, unless the answers show that the group took the other one first.
    """
    unsure = min((beat.invoked for beat in member.beats if beat.outcome == INFO), default=NEVER)
    for beat in member.beats:
        begins: list[tuple[Place, int]] = [(place, beat.invoked) for place in beat.what.owned or ()]
        if beat.outcome == OK and beat.what.epoch >= 0:
            begins += [(place, beat.done) for place in beat.result.places or ()]
        for place, since in begins:
            until = next(
                (
                    other.invoked
                    for other in member.beats
                    if other is not beat and other.done > beat.invoked and _gives_up(other, place, since)
                    if not groups.went_before(other, beat)
                ),
                NEVER,
            )
            yield place, _Hold(member, since, min(until, unsure), beat)


def _gives_up(beat: Op, place: Place, since: int) -> bool:
    """Return whether a member owns a place no more when the group takes this heartbeat. Not if the answer, before
    `since`, gives it again.
    """
    owned = beat.what.owned
    if beat.what.epoch > 0 and (owned is None or place in owned):
        return False
    return not (beat.outcome == OK and beat.done < since and place in (beat.result.places or ()))


def stale_offsets(facts: Facts) -> Iterator[Anomaly]:
    """Offsets are refused of those who are no member any more, and of partitions that are not theirs any more."""
    groups = _Groups(facts)
    for kind in (Commit, Offsets):
        for op, commit in facts.history.of(kind):
            if commit.group not in groups.newer:
                yield from _of_an_old_generation(groups, op)
            elif commit.generation >= 0 and groups.is_in_one_life(op, commit.group):
                yield from _of_an_old_epoch(groups, op)
                yield from _of_no_member(groups, op)


def _of_an_old_generation(groups: _Groups, op: Op) -> Iterator[Anomaly]:
    commit = op.what
    for later, _, generation, _ in groups.given[commit.group]:
        is_same = groups.life(later, commit.group) == groups.life(op, commit.group)
        if generation > commit.generation >= 0 and later.done < op.invoked and is_same:
            yield Anomaly("stale generation", f"generation {generation} had begun", (later, op))
            return


def _of_an_old_epoch(groups: _Groups, op: Op) -> Iterator[Anomaly]:
    """Yield an anomaly if another member has the partition since a later epoch, or if its own member gave it up and got
    it again since then.
    """
    commit, epoch = op.what, _epoch(op)
    committed = {place for place, _ in commit.positions}
    for later, member, given_in, places in groups.given[commit.group]:
        if member == commit.member or given_in <= epoch or later.done > op.invoked:
            continue
        is_same = groups.life(later, commit.group) == groups.life(op, commit.group)
        if is_same and groups.is_in_one_life(later, commit.group) and not committed.isdisjoint(places):
            yield Anomaly("stale epoch", f"epoch {epoch}, and {member} has it since {given_in}", (later, op))
            return
    for beat in groups.member(commit.group, commit.member).beats:
        if beat.outcome != OK or beat.done > op.invoked or beat.what.owned is None or beat.result.places is None:
            continue
        given = beat.result
        has_given_up = committed.isdisjoint(beat.what.owned) and committed.isdisjoint(given.places)
        if given.epoch > epoch and has_given_up and set(beat.what.owned) <= set(given.places):
            yield Anomaly("stale epoch", f"epoch {epoch}, and it had none of that in {given.epoch}", (beat, op))
            return


def _of_no_member(groups: _Groups, op: Op) -> Iterator[Anomaly]:
    """Yield an anomaly if the member was removed, has left, or never had this epoch."""
    commit = op.what
    member = groups.member(commit.group, commit.member)
    if not member.beats:
        return
    for beat in member.beats:
        has_left = beat.what.epoch < 0 and beat.outcome == OK
        is_none = has_left or beat.error in NO_MEMBER
        if is_none and beat.done < op.invoked and member.membership(beat.invoked) == member.membership(op.done):
            yield Anomaly("stale epoch", f"{commit.member} is no member any more", (beat, op))
            return
    asked = [beat for beat in member.beats if beat.invoked < op.done]
    known = [beat.result.epoch for beat in asked if beat.outcome == OK]
    if all(beat.outcome != INFO and beat.done < op.invoked for beat in asked) and _epoch(op) > max(known, default=-1):
        yield Anomaly("epoch of nobody", f"{commit.member} never had epoch {_epoch(op)}", (op,))


def _epoch(op: Op) -> int:
    """Return the member's epoch with which the commit was accepted."""
    return op.result if isinstance(op.result, int) else op.what.generation  # type: ignore[no-any-return]


def epochs_of_members(facts: Facts) -> Iterator[Anomaly]:
    """A member's epoch never goes back; a member that does all that it has to do is neither fenced nor forgotten."""
    groups = _Groups(facts)
    for (group, _), member in groups.members.items():
        last: _Last | None = None
        for op in member.beats:
            is_anew = op.what.epoch == 0 and last is not None and last.op.done < op.invoked
            if op.what.epoch < 0 or is_anew or member.left_before(op.invoked):
                last = None
            elif op.what.epoch > 0 and last is not None and groups.life(last.op, group) == groups.life(op, group):
                if not member.is_unsure(op):
                    yield from _ended_wrongly(last, op)
                epoch = last.op.result.epoch
                if op.outcome == OK and last.op.done < op.invoked and op.result.epoch < epoch:
                    yield Anomaly("epoch goes back", f"{epoch}, and then {op.result.epoch}", (last.op, op))
            if op.outcome == OK and op.what.epoch >= 0:
                last = _Last.of(op, last, groups)


@dataclass(frozen=True)
class _Last:
    """The last heartbeat that was accepted. given: what the member may read. offered: what may count as its own.

    Of two at once it is the one with the newer epoch; it may read what both give it.
    """

    op: Op
    given: frozenset[Place]
    offered: frozenset[Place]

    @classmethod
    def of(cls, op: Op, before: "_Last | None", groups: _Groups) -> "_Last":
        given, offered = (before.given, before.offered) if before is not None else (frozenset(), frozenset())
        if op.result.places is not None:
            given = frozenset(op.result.places)
        if op.what.owned is not None:
            offered = frozenset(op.what.owned)
        if before is None or before.op.done < op.invoked:
            return cls(op, given, offered | given)
        newest = before.op if groups.went_before(op, before.op) else op
        return cls(newest, given & before.given, offered | given | before.offered)


def _ended_wrongly(last: _Last, op: Op) -> Iterator[Anomaly]:
    """Yield an anomaly if this heartbeat was refused for no reason. Only to be called if all heartbeats before it were
    answered.
    """
    if op.error == ErrorCode.FENCED_MEMBER_EPOCH and op.what.epoch == last.op.result.epoch:
        yield Anomaly("fenced for nothing", f"epoch {op.what.epoch} is the last that it was given", (last.op, op))
    silent_ms = op.done_ms - last.op.invoked_ms
    has_to_give_up = not last.offered <= last.given  # which has a timeout of its own
    if op.error == ErrorCode.UNKNOWN_MEMBER_ID and silent_ms < op.what.session_ms and not has_to_give_up:
        text = f"it was silent for {silent_ms} of {op.what.session_ms} ms"
        yield Anomaly("forgotten member", text, (last.op, op))


GROUP_RULES = [two_owners, given_before_it_was_given_up, stale_offsets, epochs_of_members]
