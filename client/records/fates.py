"""The fate of each record of a partition: committed, aborted, open, or in no transaction. Pure.

The rule: entries go in and come out in the order of offsets. An entry comes out as soon as its fate is known: at once
if it was known before (below the last stable offset, see `settled_fate`) or if the transaction is known to be open; at
its transaction's marker; and at the end of what was read in any case.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...protocol.batches import Batch
from ...protocol.records import read_marker
from .isolation import AbortedFilter

COMMITTED, ABORTED, OPEN, PLAIN, MARKER = "committed", "aborted", "open", "plain", "marker"
UNDECIDED = "undecided"
"""The fate of records whose transaction may be open or ended: no marker of it was read."""
COMMIT, ABORT = "commit", "abort"


@dataclass(slots=True)
class Entry:
    """A record, or a marker: commit or abort. fate: empty while unknown."""

    offset: int
    producer_id: int = -1
    producer_epoch: int = -1
    transactional: bool = False
    marker: str = ""
    record: Any = None
    fate: str = ""


class Fates:
    """Finds the fate of each entry. open_from: the first offset of each open transaction, by producer id."""

    def __init__(self, open_from: Mapping[int, int] | None = None) -> None:
        self._open_from = dict(open_from or {})
        self._held: deque[Entry] = deque()
        self._undecided: dict[int, list[Entry]] = {}

    def feed(self, entry: Entry) -> Iterator[Entry]:
        """Add an entry; a fate that it already has stays. Returns an iterator over the oldest entries whose fate
        (committed, aborted, open or none) is known now.
        """
        if entry.marker:
            entry.fate = MARKER
            fate = COMMITTED if entry.marker == COMMIT else ABORTED
            for each in self._undecided.pop(entry.producer_id, ()):
                each.fate = fate
        elif entry.fate:
            pass
        elif not entry.transactional:
            entry.fate = PLAIN
        elif entry.offset >= self._open_from.get(entry.producer_id, entry.offset + 1):
            entry.fate = OPEN
        else:
            self._undecided.setdefault(entry.producer_id, []).append(entry)
        self._held.append(entry)
        return self._known()

    def _known(self) -> Iterator[Entry]:
        """Remove and yield the oldest entries whose fate is known; stop at the first whose fate is not known."""
        while self._held and self._held[0].fate:
            yield self._held.popleft()

    @property
    def has_undecided(self) -> bool:
        """Return whether an entry waits for the marker of its transaction."""
        return bool(self._undecided)

    def rest(self, open_from: Mapping[int, int] | None = None, *, at_end: bool = True) -> Iterator[Entry]:
        """Yield the entries still held, in order. Those without a fate get one now.

        at_end: the end of the log was reached, so each of them is OPEN. Otherwise it is OPEN from the first offset of
        its producer's open transaction on (open_from, by producer id), and UNDECIDED below.
        """
        known = open_from or {}
        for each in self._held:
            if not each.fate:
                is_open = at_end or each.offset >= known.get(each.producer_id, each.offset + 1)
                each.fate = OPEN if is_open else UNDECIDED
        held, self._held = self._held, deque()
        self._undecided.clear()
        yield from held


def marker_word(batch: Batch) -> str:
    """Return the word for a control batch: commit, abort, or control record. Raises KafkaError."""
    marker = read_marker(batch)
    return marker[0].name.lower() if marker else "control record"


def settled_fate(batch: Batch, aborted: AbortedFilter) -> str:
    """Return MARKER, PLAIN, ABORTED or COMMITTED for a batch of a read_committed response. Such a response has no batch
    of an open transaction, so the fate is always known.

    aborted: the filter made for this response. It keeps state: call this for every batch of the response, in order.
    Raises KafkaError for a bad marker.
    """
    hidden = aborted.hides(batch)
    if batch.is_control:
        return MARKER
    if not batch.is_transactional:
        return PLAIN
    return ABORTED if hidden else COMMITTED
