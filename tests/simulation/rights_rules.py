"""Rules about rights: what a user did without one, and what it was refused in spite of it. Pure.

A right is changed by one client, one change after the other. While a change is not acknowledged the right may hold or
not. So a request was allowed wrongly where the right held at no moment between its beginning and its answer, and was
refused wrongly where it held at every moment. That a user may log in is a right like the others.

A rule's docstring says what must hold. The rule yields an Anomaly for each place where a history contradicts it.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from simulation.facts import Anomaly, Facts
from simulation.history import OK, Op

KNOWING = ("READ", "WRITE")  # either lets one know of a topic


class Right(NamedTuple):
    """operation and kind: by their names in Kafka; of a login "LOGIN" and "USER"."""

    user: str
    operation: str
    kind: str
    name: str


def may(user: str, operation: str, topic: str) -> Right:
    return Right(user, operation, "TOPIC", topic)


class Change(NamedTuple):
    """A right is given or taken, asked until that is acknowledged. At the beginning nobody has one."""

    right: Right
    is_given: bool


class Attempt(NamedTuple):
    """One request of a user. Result: whether it was allowed, whatever came of it then. value: what it writes."""

    what: str
    rights: tuple[Right, ...]
    value: str = ""


class Found(NamedTuple):
    """What stands in the guarded topics in the end. Result: values."""


class Told(NamedTuple):
    """A heartbeat of a member of the guarded group. Result: the topics of which it heard then, and not before."""

    user: str


class Settled(NamedTuple):
    """The guarded group long after the last change. Result: for each member its user, and the topics that it reads."""


def what_was_done_was_allowed(facts: Facts) -> Iterator[Anomaly]:
    """Nobody does anything without all rights that it takes, and nobody who has them is refused."""
    rights = _Rights(facts)
    for op, attempt in facts.history.of(Attempt):
        if op.result:
            for right in attempt.rights:
                if rights.states(right, op.invoked, op.done) == {False}:
                    yield Anomaly("done without the right", f"{attempt.what} without {right}", (op,))
        elif all(rights.states(right, op.invoked, op.done) == {True} for right in attempt.rights):
            yield Anomaly("refused with the right", f"{attempt.what} was refused", (op,))


def what_was_refused_is_not_written(facts: Facts) -> Iterator[Anomaly]:
    """At the end no record is found whose write was refused. Nor one whose write was not answered, if one of the rights
    that it takes did not hold at any moment from the request to that end.
    """
    rights = _Rights(facts)
    attempts = {attempt.value: op for op, attempt in facts.history.of(Attempt, only_ok=False) if attempt.value}
    for found, _ in facts.history.of(Found):
        for value in found.result:
            op = attempts[value]
            if op.outcome == OK and not op.result:
                yield Anomaly("refused and written", f"{value!r} was refused", (op, found))
            for right in op.what.rights if op.outcome != OK else ():
                if rights.states(right, op.invoked, found.done) == {False}:
                    yield Anomaly("done without the right", f"{value!r} is written without {right}", (op, found))


def members_hear_of_what_they_may_know_of(facts: Facts) -> Iterator[Anomaly]:
    """A member is told only of topics that its user may read or write to."""
    rights = _Rights(facts)
    for op, told in facts.history.of(Told):
        for topic in op.result:
            known = (rights.states(may(told.user, operation, topic), op.invoked, op.done) for operation in KNOWING)
            if all(states == {False} for states in known):
                yield Anomaly("told without the right", f"{told.user} of {topic}", (op,))


def what_somebody_may_read_is_read(facts: Facts) -> Iterator[Anomaly]:
    """In the end each topic has one reader: a member that may read it, or where none may, one that may write to it;
    none if there is no such member.
    """
    rights = _Rights(facts)
    for op, _ in facts.history.of(Settled):
        for topic in sorted({right.name for right in rights.known if right.kind == "TOPIC"}):
            may_do = [
                {user for user, _ in op.result if rights.states(may(user, each, topic), op.invoked, op.done) == {True}}
                for each in KNOWING
            ]
            owners = [user for user, topics in op.result if topic in topics]
            if len(owners) != bool(may_do[0] | may_do[1]) or not set(owners) <= (may_do[0] or may_do[1]):
                yield Anomaly("read by the wrong member", f"{topic} by {owners}, of {may_do}", (op,))


class _Rights:
    """The changes of each right."""

    def __init__(self, facts: Facts) -> None:
        self._changes: dict[Right, list[tuple[Op, bool]]] = defaultdict(list)
        for op, change in facts.history.of(Change, only_ok=False):
            self._changes[change.right].append((op, change.is_given))
        self.known = list(self._changes)

    def states(self, right: Right, begin: int, end: int) -> set[bool]:
        """Return whether a right held between two moments: {True}, {False}, or both if it changed, or may have changed,
        between them.
        """
        found: set[bool] = set()
        held, since = False, 0
        for op, is_given in self._changes[right]:
            acknowledged = op.done if op.outcome == OK else end
            if since <= end and begin <= acknowledged:  # until then it may hold as before
                found.add(held)
            held, since = is_given, op.invoked
        if since <= end:
            found.add(held)
        return found


RIGHTS_RULES = [
    what_was_done_was_allowed,
    what_was_refused_is_not_written,
    members_hear_of_what_they_may_know_of,
    what_somebody_may_read_is_read,
]
