"""What was read of one source partition ahead of the mirror's position, and how much of it is a whole cycle. Pure.

Each read begins at the batch before what was read last (`read_from`), so that every answer of the source shows that it
still has the log whose beginning was mirrored: see BatchMark. A chunk ends at a closed cut (`cut.py`), always between
two batches.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from ...protocol.batches import Batch
from ..records.decoding import records_of
from ..records.isolation import AbortedFilter
from ..values import Record, TopicPartition
from .cut import MAX_BYTES, MAX_MS, Spans
from .findings import ANEW, StoppedError
from .positions import BatchMark, Position, mark_of


class Chunk(NamedTuple):
    """The records of a partition for one cycle, in order. first: the position before them, following: the one after.

    divides: the cut is not closed, so a transaction may have records on both sides of it. size: of the batches, in
    bytes.
    """

    tp: TopicPartition
    first: int
    records: Sequence[Record]
    following: Position
    divides: bool
    size: int = 0


class _Read(NamedTuple):
    """A batch that was read. records: the committed ones of it at or above the position."""

    mark: BatchMark
    records: list[Record]
    size: int


class Ahead:
    """What was read of one source partition and not yet taken for a cycle.

    position: of the mirror, which moves when a chunk is taken. read_to: the offset up to which the partition was read.
    is_checked: it was seen that the source still has the batch before the position.
    """

    def __init__(self, tp: TopicPartition, position: Position) -> None:
        self.tp = tp
        self.position = position
        self.read_to = position.offset
        self.is_checked = position.mark is None
        self._last = position.mark
        self._batches: deque[_Read] = deque()
        self._spans = Spans()
        self._bytes = 0
        self._waits_since_ms: int | None = None  # for a closed cut above the position

    @property
    def read_from(self) -> int:
        """Return the offset of the next fetch: the last offset of the newest batch that was read, so that the answer
        shows whether that batch is still there.
        """
        return self.read_to if self._last is None else self._last.last

    def has_room(self, ahead_bytes: int) -> bool:
        """Return whether more may be read: up to ahead_bytes, or as much as it takes to find a closed cut (an offset
        that divides no transaction).
        """
        return self._bytes < ahead_bytes or (self._bytes < MAX_BYTES and self._closed() <= self.position.offset)

    def _closed(self) -> int:
        """Return the highest closed cut (an offset that divides no transaction) in what was read."""
        return self._spans.closed(self.read_to)

    def feed(self, batches: Sequence[Batch], aborted: Sequence[tuple[int, int]], now_ms: int) -> None:
        """Add the batches that a read_committed fetch from `read_from` on, or from `read_to` on, has returned. now_ms:
        monotonic.

        Raises StoppedError if the log has other records than before at an offset that was read already.
        """
        hides = AbortedFilter(aborted).hides
        for batch in batches:
            is_hidden = hides(batch)
            if self._last is not None and batch.base_offset <= self._last.last:
                if not self._last.is_kept_by(batch):
                    raise StoppedError(
                        self.tp.topic,
                        f"partition {self.tp.partition} of the source has other records at offset {self._last.first}"
                        " than those that were mirrored",
                        hint=f"it was restored or cut: {ANEW}",
                    )
                continue
            self._add(batch, is_hidden)
        self.is_checked = True
        if self._waits_since_ms is None and self._batches:
            self._waits_since_ms = now_ms

    def _add(self, batch: Batch, is_hidden: bool) -> None:
        """Add a batch above those that were read. is_hidden: it is a marker, or its transaction was aborted."""
        records: list[Record] = []
        if batch.is_control:
            self._spans.marker(batch.producer_id, batch.base_offset)
        elif not is_hidden:
            start = self.position.offset
            records = [each for each in records_of(batch, *self.tp) if each.offset >= start]
            if batch.is_transactional:
                self._spans.record(batch.producer_id, max(batch.base_offset, start))
        self._last = mark_of(batch)
        self._batches.append(_Read(self._last, records, batch.size))
        self._bytes += batch.size
        self.read_to = batch.next_offset

    def take(self, now_ms: int, most_bytes: int) -> Chunk | None:
        """Remove and return the records up to a closed cut, about most_bytes of them, and move the position past them;
        None if there are none yet.

        If no closed cut was found for MAX_MS or in MAX_BYTES of batches, takes all that was read.
        """
        if not self._batches:
            return None
        cut, divides = self._closed_cut_of(most_bytes), False
        if cut <= self.position.offset:
            waited_ms = now_ms - (now_ms if self._waits_since_ms is None else self._waits_since_ms)
            if waited_ms < MAX_MS and self._bytes < MAX_BYTES:
                return None
            cut, divides = self.read_to, True
        records: list[Record] = []
        first, mark, before = self.position.offset, self.position.mark, self._bytes
        while self._batches and self._batches[0].mark.last < cut:
            batch = self._batches.popleft()
            records += batch.records
            self._bytes -= batch.size
            mark = batch.mark
        self._spans.cut(cut)
        self.position = self.position._replace(offset=cut, mark=mark)
        self._waits_since_ms = now_ms if self._batches else None
        return Chunk(self.tp, first, records, self.position, divides, before - self._bytes)

    def _closed_cut_of(self, most_bytes: int) -> int:
        """Return the highest closed cut below about most_bytes of batches; if that is not above the position, the
        highest in all that was read.
        """
        size = 0
        for batch in self._batches:
            size += batch.size
            if size >= most_bytes:
                cut = self._spans.closed(batch.mark.last + 1)
                if cut > self.position.offset:
                    return cut
                break
        return self._closed()
