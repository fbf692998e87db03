"""What the real machine of a share partition makes of some records, each question asked of it once.

Record n is at offset n + 1. What lies before the first that is not gone is somebody's for ever, so the window stays.
"""

from functools import cache
from typing import NamedTuple

from fencepost.broker.share.acquiring import Limits
from fencepost.broker.share.ended import decide_releases, find_expired
from fencepost.broker.share.machine import SharePartition
from fencepost.broker.share.runs import Standing
from fencepost.broker.share.values import AckRange, AckType, Found, Snapshot, State, StateBatch, Wanted
from fencepost.protocol.errors import KafkaError
from share_driver import portions_in

DELIVERIES = 2  # at most
LETTERS = {State.AVAILABLE: "A", State.ACQUIRED: "L", State.PENDING: "P", State.ACKNOWLEDGED: "K", State.ARCHIVED: "X"}
GONE = "G"  # the log's start has passed it
NOBODY = "nobody"


class Shown(NamedTuple):
    """A record: its state by letter, who has it, how often it was given out. who: a member, and a producer or -1."""

    letter: str = "A"
    who: tuple[int, int] = (-1, -1)
    deliveries: int = 0


Records = tuple[Shown, ...]


def _machine_of(records: Records) -> SharePartition:
    gone = sum(one.letter == GONE for one in records)
    machine = SharePartition(gone)
    machine.runs.put(gone, gone, Standing(State.ACQUIRED, 1, NOBODY, 1 << 40))
    machine.end = gone
    for number, (letter, (member, producer), deliveries) in enumerate(records):
        offset = number + 1
        if letter == "P":
            batch = StateBatch(offset, offset, State.ACKNOWLEDGED, deliveries, str(member))
            machine.apply_pending((0, producer), 0, [batch])
        elif letter != GONE and (letter, deliveries) != ("A", 0):
            state = next(state for state, each in LETTERS.items() if each == letter)
            machine.runs.put(offset, offset, Standing(state, deliveries, str(member) if letter == "L" else ""))
        machine.end = max(machine.end, offset)
    return machine


def _shown(machine: SharePartition, before: Records, gone: int = 0) -> Records:
    """Return the records as the machine has them now. gone: the number of records at the front that are no longer
    there.
    """
    found = list(before)
    for number in range(len(before)):
        if number < gone:
            found[number] = Shown(GONE)
        elif number + 1 >= machine.start and before[number].letter != GONE:
            run = machine.runs.at(number + 1)
            if run is None:
                found[number] = Shown()
                continue
            one = run[2]
            member = int(one.member) if one.member else -1
            who = (member, one.transaction[1] if one.transaction else -1)
            found[number] = Shown(LETTERS[one.state], who, one.deliveries)
    return tuple(found)


@cache
def given_out(records: Records, record: int, member: int) -> Records:
    machine = _machine_of(records)
    at = record + 1
    acquired, _ = machine.decide_acquisition(at, [Found(at, at)], Wanted(1, 1, exact=True), Limits(DELIVERIES, 0))
    machine.acquire(acquired, str(member), 0)
    return _shown(machine, records)


@cache
def given_back(records: Records, record: int) -> Records:
    machine = _machine_of(records)
    ending = decide_releases(machine, find_expired(machine, [(0, record + 1, record + 1)]), DELIVERIES)
    ending.finish()
    assert ending.batches
    ending.apply()
    return _shown(machine, records)


@cache
def made_pending(records: Records, record: int, member: int, producer: int) -> Records | None:
    """Return the records after a member accepts this one in a producer's transaction; None if that is refused."""
    machine = _machine_of(records)
    try:
        acks = [AckRange(record + 1, record + 1, [AckType.ACCEPT])]
        accepted = portions_in(machine, (0, producer), str(member), acks)
        accepted.finish()
        accepted.apply_pending((0, producer), 0)
    except KafkaError:
        return None
    return _shown(machine, records)


@cache
def settled(records: Records, producer: int, commit: bool) -> Records:
    machine = _machine_of(records)
    archived = None if commit else machine.decide_abort((0, producer), DELIVERIES)
    machine.settle((0, producer), 1, commit=commit)
    if archived is not None:
        machine.apply(archived)
    return _shown(machine, records)


@cache
def after_crash(records: Records) -> Records:
    machine = _machine_of(records)
    later = SharePartition(machine.start)
    later.apply_snapshot(Snapshot(0, 0, machine.start, 0, machine.durable()))
    for transaction, position, batch in machine.pending_batches():
        later.apply_pending(transaction, position, [batch])
    return _shown(later, records)


@cache
def without_first(records: Records, gone: int) -> Records:
    machine = _machine_of(records)
    update = machine.decide_start(gone + 1)
    assert update is not None
    machine.apply(update)
    return _shown(machine, records, gone)
