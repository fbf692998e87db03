"""Rules about producers: who may be answered, with which ids, epochs and sequences. Pure.

A rule's docstring says what must hold. The rule yields an Anomaly for each place where a history contradicts it.
"""

from collections import defaultdict
from collections.abc import Iterator

from simulation.facts import Anomaly, Facts
from simulation.history import FAIL, OK, Begin, End, Init, Kill, Offsets, Op, Place, Producer, Send

FENCED = {47, 90, 49}  # INVALID_PRODUCER_EPOCH, PRODUCER_FENCED, INVALID_PRODUCER_ID_MAPPING

FORGOTTEN = {45, 46, 59}  # OUT_OF_ORDER_SEQUENCE_NUMBER, DUPLICATE_SEQUENCE_NUMBER, UNKNOWN_PRODUCER_ID


def reused_producers(facts: Facts) -> Iterator[Anomaly]:
    """A producer id belongs to one transactional id, or to one producer without; each of its epochs is given once, and
    they grow.
    """
    owners: dict[int, tuple[str | None, Op]] = {}
    by_id: dict[int, list[tuple[Op, int]]] = defaultdict(list)
    for transactional_id, given in facts.given.items():
        for op, (producer_id, epoch) in given:
            owner, first = owners.setdefault(producer_id, (transactional_id, op))
            if first is not op and (owner != transactional_id or transactional_id is None):
                yield Anomaly("producer id reuse", f"{producer_id} has two owners", (first, op))
            by_id[producer_id].append((op, epoch))
    for producer_id, ops in by_id.items():
        highest: tuple[int, Op] | None = None
        for op, epoch in sorted(ops, key=lambda one: one[0].done):
            for earlier, other in ops:
                same = other == epoch and earlier.done < op.done
                if same or (other > epoch and earlier.done < op.invoked):
                    yield Anomaly("epoch reuse", f"{producer_id} gets {epoch} after {other}", (earlier, op))
                    break
            highest = (epoch, op) if highest is None or epoch > highest[0] else highest


def zombies(facts: Facts) -> Iterator[Anomaly]:
    """No operation with an older epoch succeeds that began after a newer epoch was answered."""
    for op in facts.history.ops:
        what = op.what
        if op.outcome != OK or not isinstance(what, Send | Offsets | End) or getattr(what, "again", False):
            continue
        transactional_id = facts.transactional_id(what.txn)
        if transactional_id is None:
            continue
        newer = _newer_before(facts.given[transactional_id], what.producer, op.invoked)
        if newer is not None:
            yield Anomaly("zombie accepted", f"{what.producer} after {newer.result}", (newer, op))


def zombies_that_begin_anew(facts: Facts) -> Iterator[Anomaly]:
    """An InitProducerId that names its producer is refused if another client has a newer one; only one that names none
    takes over (KIP-360).
    """
    for op, init in facts.history.of(Init):
        if init.current is not None:
            others = [one for one in facts.given[init.transactional_id] if one[0].client != op.client]
            newer = _newer_before(others, init.current, op.invoked)
            if newer is not None and not facts.forgot_id(init.transactional_id, newer.invoked, op.done):
                yield Anomaly("zombie accepted", f"{init.current} begins anew after {newer.result}", (newer, op))


def _newer_before(given: list[tuple[Op, Producer]], producer: Producer, moment: int) -> Op | None:
    """Return the answer before this moment that gave the id to a newer producer than this one; None if there is
    none.
    """
    mine = next((op for op, each in given if each == producer), None)
    for op, (producer_id, epoch) in given:
        if op.done < moment:
            if producer_id == producer[0]:
                if epoch > producer[1]:
                    return op
            elif mine is not None and mine.done < op.invoked:
                return op
    return None


def unexplained_fencing(facts: Facts) -> Iterator[Anomaly]:
    """A producer is fenced by a successor, an operator or its own timeout: never by a clock, a crash or the broker.

    A late InitProducerId that names no producer fences whichever there is, also one of its own client. An id may be
    forgotten as long as no transaction of it is open.
    """
    kills = list(facts.history.of(Kill, only_ok=False))
    begins = {begin.txn: (op, begin) for op, begin in facts.history.of(Begin)}
    inits: dict[str | None, list[Op]] = defaultdict(list)
    for op, init in facts.history.of(Init, only_ok=False):
        inits[init.transactional_id].append(op)
    for op in facts.history.ops:
        what = op.what
        if (
            op.outcome != FAIL
            or op.error not in FENCED
            or not isinstance(what, Send | Offsets | End)
            or what.txn is None
        ):
            continue
        if what.txn not in begins:
            continue
        begun, begin = begins[what.txn]
        name = begin.transactional_id
        given = next((giver for giver, each in facts.given[name] if each == what.producer), None)
        others = [
            each
            for each in inits[name]
            if each.invoked < op.done and (each.late or (each is not given and each.done > begun.invoked))
        ]
        killed = [
            each
            for each, kill in kills
            if kill.transactional_id in (None, name) and begun.invoked < each.done and each.invoked < op.done
        ]
        newer = _newer_before(facts.given[name], what.producer, op.done)
        if _forgotten_before_it_began(facts, begun, begin, op):
            continue
        if not others and not killed and newer is None and op.done_ms - begun.invoked_ms < begin.timeout_ms:
            yield Anomaly("early expiry", f"{name} was fenced by nobody", (begun, op))


def _forgotten_before_it_began(facts: Facts, begun: Op, begin: Begin, op: Op) -> bool:
    """Return whether the id was forgotten since this producer id was given for it, and nothing of this transaction was
    taken.

    The broker answers then that it does not know the id; the SDK calls that fenced.
    """
    fate, name = facts.fate(begin.txn), begin.transactional_id
    taken = [done for done, _ in (*fate.sends, *fate.offsets, *fate.adds) if done.outcome == OK]
    inits = [giver.invoked for giver, each in facts.given[name] if each[0] == begin.producer[0]]
    return not taken and facts.forgot_id(name, min(inits, default=begun.invoked), op.done)


def sequences(facts: Facts) -> Iterator[Anomaly]:
    """A batch is accepted only after all that its producer numbered before it, and comes after them in the log."""
    by_producer: dict[tuple[Place, Producer], list[tuple[Op, Send]]] = defaultdict(list)
    for op, send in facts.sends:
        by_producer[send.place, send.producer].append((op, send))
    for (place, (producer_id, _)), sends in by_producer.items():
        reach, last = 0, None
        since = min(op.invoked for op, _ in sends)
        for op, send in sorted(sends, key=lambda one: (one[1].sequence, one[0].outcome != OK)):
            end = send.sequence + len(send.values)
            forgotten = facts.forgot(place, producer_id, since, op.done)
            if forgotten:
                reach, last = max(reach, send.sequence), None
            elif op.outcome == FAIL and send.again and op.error in FORGOTTEN:
                yield Anomaly("forgotten batch", "one of the last five is not known any more", (op,))
            if op.outcome == OK and not send.again:
                if send.sequence > reach and not facts.may_be_first_known(place, send.producer, op):
                    yield Anomaly("sequence gap", f"{reach} to {send.sequence} were never taken", (op,))
                if last is not None and last.result > op.result and last.what.sequence < send.sequence:
                    yield Anomaly("nonmonotonic send", "later by sequence, earlier by offset", (last, op))
                last = op
            if op.outcome != FAIL:
                reach = max(reach, end)


PRODUCER_RULES = [reused_producers, zombies, zombies_that_begin_anew, unexplained_fencing, sequences]
