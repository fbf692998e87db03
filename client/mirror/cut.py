"""The closed cut: up to which offset records are mirrored together, so that no transaction is half on the target. Pure.

A cut is closed if no committed transaction of the partition has records on both sides of it. A reader at
read_committed sees whole transactions only in the end: below the last stable offset there may be the first half of
one whose other half, and marker, are above it. So the cut is lowered to the first record of each transaction whose
marker is not below it, until nothing moves. Where transactions overlap without end there is no such cut above the
position; then `Spans.closed` returns the position, and the caller decides for how long it waits (`MAX_BYTES`,
`MAX_MS`) before it cuts at the end all the same.
"""

MAX_BYTES = 64 << 20
"""So many bytes of records wait for a closed cut, of one partition."""
MAX_MS = 60_000
"""So long waits the first record for a closed cut."""

_NEVER = 1 << 63


class Spans:
    """The committed transactions in what was read of one partition since the last cut: where each begins and ends."""

    def __init__(self) -> None:
        self._ended: list[tuple[int, int]] = []  # (first record, marker) of each whose marker was read
        self._open: dict[int, int] = {}  # producer id → first record

    def record(self, producer_id: int, first: int) -> None:
        """Note committed records of a transaction. first: the offset of the first of them."""
        self._open.setdefault(producer_id, first)

    def marker(self, producer_id: int, offset: int) -> None:
        """Note the marker at this offset, which ends the producer's transaction."""
        first = self._open.pop(producer_id, None)
        if first is not None:
            self._ended.append((first, offset))

    def closed(self, end: int) -> int:
        """Return the highest closed cut (an offset that divides no transaction) at or below `end`, up to which all was
        read.
        """
        spans = [*self._ended, *((first, _NEVER) for first in self._open.values())]
        for first, marker in sorted(spans, reverse=True):
            if first < end <= marker:
                end = first
        return end

    def cut(self, at: int) -> None:
        """Forget what is below this offset. A transaction that it divides is taken to begin there from now on."""
        self._ended = [(max(first, at), marker) for first, marker in self._ended if marker >= at]
        self._open = {producer_id: max(first, at) for producer_id, first in self._open.items()}
