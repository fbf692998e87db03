"""Rules about the log itself, as it stands when all is over: batches, markers, sequences. Pure.

A rule's docstring says what must hold. The rule yields an Anomaly for each place where a history contradicts it.
"""

from collections import defaultdict
from collections.abc import Iterator

from simulation.facts import Anomaly, Facts
from simulation.history import EMPTIED, Entry, Op, Place

LAST_EPOCH = 32_767  # a marker of it is the last that a producer id ever writes


def markers(facts: Facts) -> Iterator[Anomaly]:
    """In each place, a transaction's records are followed by one marker, its own: commit or abort, as its client was
    told.
    """
    for place, op in facts.dumps.items():
        open_since: dict[int, tuple[Entry, str | None]] = {}
        ended: dict[str, Entry] = {}
        for entry in op.result:
            producer_id = entry.producer[0]
            if entry.marker == EMPTIED:
                if producer_id in open_since:
                    text = f"{place} {entry.offset}: a marker is emptied before its data is gone"
                    yield Anomaly("hanging transaction", text, (op,))
            elif entry.marker:
                yield from _stray(facts, op, place, entry)
                first, txn = open_since.pop(producer_id, (None, None))
                if first is not None and txn is not None:
                    ended[txn] = entry
                    yield from _decision(facts, op, place, txn, entry)
            elif entry.transactional and entry.values:  # compaction leaves batches of which only the sequence is left
                txn = _txn_of(facts, entry)
                if txn is not None and txn in ended:
                    text = f"{place} {entry.offset} comes after the marker of its transaction at {ended[txn].offset}"
                    yield Anomaly("cross-transaction bleed", text, (op,))
                first, known = open_since.setdefault(producer_id, (entry, txn))
                if known != txn:
                    text = f"{place}: no marker between {known} at {first and first.offset} and {txn} at {entry.offset}"
                    yield Anomaly("cross-transaction bleed", text, (op,))
        for first, txn in open_since.values():
            yield Anomaly("hanging transaction", f"{txn} in {place} is open from {first.offset} on", (op,))


def _txn_of(facts: Facts, entry: Entry) -> str | None:
    found = facts.writer.get(entry.values[0]) if entry.values else None
    return None if found is None else found[1].txn


def _decision(facts: Facts, op: Op, place: Place, txn: str, entry: Entry) -> Iterator[Anomaly]:
    fate = facts.fate(txn)
    ends = tuple(end for end, _ in fate.ends)
    if entry.marker == "commit" and fate.aborted:
        yield Anomaly("aborted read", f"{txn} is committed in {place} at {entry.offset}", (*ends, op))
    if entry.marker == "abort" and fate.committed is not None:
        yield Anomaly("lost write", f"{txn} is aborted in {place} at {entry.offset}", (*ends, op))


def _stray(facts: Facts, op: Op, place: Place, entry: Entry) -> Iterator[Anomaly]:
    """Yield an anomaly if its producer never wrote there: as if a topic was made again, and the marker was meant for
    the one before.
    """
    if not facts.was_in(entry.producer[0], place):
        yield Anomaly("cross-transaction bleed", f"a marker of {entry.producer} in {place}, where it never was", (op,))


def sequences_in_the_log(facts: Facts) -> Iterator[Anomaly]:
    """The batches of one producer and epoch have consecutive sequences; epochs do not go back."""
    for place, op in facts.dumps.items():
        state: dict[int, tuple[int, int]] = {}
        since: dict[int, int] = {}  # the moment at which a producer's last batch was sent
        for entry in op.result:
            producer_id, epoch = entry.producer
            if producer_id < 0:
                continue
            some_are_gone = facts.loses_its_beginning(place) or facts.is_compacted(place)
            begins = entry.sequence if some_are_gone else 0
            last_epoch, expected = state.get(producer_id, (epoch, begins))
            forgotten = facts.forgot(place, producer_id, since.get(producer_id, 0))
            if entry.values and entry.values[0] in facts.writer:
                since[producer_id] = facts.writer[entry.values[0]][0].invoked
            if forgotten and not entry.marker:
                state[producer_id] = (epoch, entry.sequence + len(entry.values))
                continue
            late = entry.marker and (forgotten or last_epoch == LAST_EPOCH)  # an operator's, of one that is forgotten
            if epoch < last_epoch and not late:
                yield Anomaly("zombie accepted", f"{place} {entry.offset}: {entry.producer} after {last_epoch}", (op,))
            if entry.marker:
                state[producer_id] = (epoch, expected if epoch == last_epoch else 0)
                continue
            if epoch > last_epoch:
                expected = 0
            if entry.sequence > expected and not facts.is_compacted(place) and not _is_first(facts, place, entry):
                text = f"{place} {entry.offset}: sequence {entry.sequence}, where {expected} comes next"
                yield Anomaly("sequence gap", text, (op,))
            elif entry.sequence < expected:
                text = f"{place} {entry.offset}: sequence {entry.sequence} again, where {expected} comes next"
                yield Anomaly("duplicate", text, (op,))
            state[producer_id] = (epoch, entry.sequence + entry.end - entry.offset)


def _is_first(facts: Facts, place: Place, entry: Entry) -> bool:
    found = facts.writer.get(entry.values[0]) if entry.values else None
    return found is not None and facts.may_be_first_known(place, entry.producer, found[0])


def torn_in_the_log(facts: Facts) -> Iterator[Anomaly]:
    """All markers of a transaction are of one kind; also of transactions that are decided together."""
    kinds: dict[str, dict[str, Place]] = defaultdict(dict)
    for place, op in facts.dumps.items():
        open_here: dict[int, str] = {}
        for entry in op.result:
            if entry.marker and entry.marker != EMPTIED:
                txn = open_here.pop(entry.producer[0], None)
                if txn is not None:
                    kinds[facts.together.get(txn, txn)][entry.marker] = place
            elif entry.transactional and (name := _txn_of(facts, entry)) is not None:
                open_here[entry.producer[0]] = name
        for txn, found in kinds.items():
            if len(found) == 2:
                yield Anomaly("torn transaction", f"{txn} is committed and aborted: {found}", (op,))
                found.popitem()


LOG_RULES = [markers, sequences_in_the_log, torn_in_the_log]
