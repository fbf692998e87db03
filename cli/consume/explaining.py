"""The fate of each record of a partition: committed, aborted, open, or in no transaction. Pure.

The rule: entries go in and come out in the order of offsets. An entry comes out as soon as its fate is known: at its
transaction's marker; at once if the transaction is known to be open; and at the end of the log in any case.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

COMMITTED, ABORTED, OPEN, PLAIN, MARKER = "committed", "aborted", "open", "plain", "marker"
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
        """Add an entry. Returns those whose fate is now known, in order."""
        if entry.marker:
            entry.fate = MARKER
            fate = COMMITTED if entry.marker == COMMIT else ABORTED
            for each in self._undecided.pop(entry.producer_id, ()):
                each.fate = fate
        elif not entry.transactional:
            entry.fate = PLAIN
        elif entry.offset >= self._open_from.get(entry.producer_id, entry.offset + 1):
            entry.fate = OPEN
        else:
            self._undecided.setdefault(entry.producer_id, []).append(entry)
        self._held.append(entry)
        while self._held and self._held[0].fate:
            yield self._held.popleft()

    def rest(self) -> Iterator[Entry]:
        """The end of the log: the remaining entries, which are open."""
        for each in self._held:
            each.fate = each.fate or OPEN
        held, self._held = self._held, deque()
        self._undecided.clear()
        yield from held
