"""Tests whether an object store can be a fence: several clients create one name at the same time, and only one may
succeed.

The rule: the store is tried, not looked up in a list, and through each of its addresses. If two creates succeed, the
store has ignored the condition, or checks it in several places; two brokers could then own a journal there.
"""

import threading
from collections.abc import Sequence
from functools import partial

from ...effects.objects import Exists, Objects, ObjectsError, Refused, Unclear
from ...effects.threads import call_all
from ..journal_source import StoreDamaged
from .creating import Pause, until_clear
from .fence import Answer

RACES = 5
MAX_RACES = 10 * RACES
RACERS = 4
DELETES = 3  # attempts: a slow store gets more time for each
PROBES = "0/probes/"
TOGETHER_S = 1.0


def racers_of(among: Sequence[Objects]) -> list[Objects]:
    """Return the clients that race to create the same name: RACERS or more, so that each address has one."""
    return [among[number % len(among)] for number in range(max(RACERS, len(among)))]


def try_create(objects: Objects, name: str, content: bytes, pause: Pause) -> Answer:
    """Try once to create a name. Returns CREATED, EXISTS or UNCLEAR; a refusal counts as unclear."""
    try:
        objects.create(name, content)
    except Exists:
        return Answer.EXISTS
    except (Unclear, Refused) as error:
        pause(error, 1)
        return Answer.UNCLEAR
    return Answer.CREATED


def remove(objects: Objects, name: str) -> None:
    """Delete the object that a race has created. If the store fails DELETES times, that is ignored: the object may
    stay.
    """
    for _ in range(DELETES):
        try:
            objects.delete(name)
        except (Unclear, Refused):
            continue
        return


def check_winners(where: str, racers: int, winners: int) -> None:
    """Raise StoreDamaged if more than one of `racers` creates of the same name succeeded."""
    if winners > 1:
        raise StoreDamaged(
            where,
            f"of {racers} creates of one name {winners} succeeded, so two brokers could own it",
            "use a store whose conditional creates are atomic: docs/store.md lists some",
        )


def check_lost(where: str, lost: int) -> None:
    """Raise StoreDamaged if for too many new names (`lost`) no create succeeded, although the store answered."""
    if lost >= MAX_RACES:
        raise StoreDamaged(
            where,
            f"of {lost} new names it said each time that they exist, so nothing can be created",
            "fencepost doctor --store URL looks closer; docs/store.md lists stores that do what is needed",
        )


def race(among: Sequence[Objects], name: str, pause: Pause) -> int:
    """Create one name from several threads at the same time. Returns how many creates succeeded. Raises:
    StoreDamaged.
    """
    racers = racers_of(among)
    start = threading.Barrier(len(racers))
    won: list[bool] = []

    def run(number: int) -> None:
        """Try to create the name at the same time as the other threads, and note whether it was created."""
        try:
            start.wait(TOGETHER_S)
        except threading.BrokenBarrierError:  # the system gave fewer threads
            pass
        won.append(try_create(racers[number], name, b"%d" % number, pause) is Answer.CREATED)

    call_all([partial(run, number) for number in range(len(racers))], "fencepost-racing", len(racers))
    winners = sum(won)
    check_winners(among[0].where, len(racers), winners)
    return winners


def is_found(objects: Objects, name: str, pause: Pause) -> bool:
    """Return whether a listing has this name and the object can be read."""
    listed = any(found.name == name for found in until_clear(lambda: objects.list(PROBES), pause))
    try:
        until_clear(lambda: objects.read(name), pause)
    except ObjectsError:
        return False
    return listed
