"""Splits a partition's bytes of a fetch response into the batches that are complete in them.

The rule: this alone gives the next fetch offset: after the last complete batch, whether or not the reader sees its
records. A batch that is cut off at the end is fetched again; a damaged frame ends the list of batches. Checksums and
records are not read here. Source: Kafka's Fetch API, MemoryRecords.batches.
"""

from collections.abc import Iterable

from ...protocol.batches import LENGTH_ENDS_AT, Batch, CorruptBatch, read

_LENGTH_AT = 8


class WholeBatches:
    """The whole batches in fetched bytes.

    next_offset, next_epoch: after the last batch. size: of all bytes. damage: what is after the batches, if damaged.
    cut_off_bytes: the size of the batch that is cut off at the end; 0 without one, or if its length is missing.
    """

    __slots__ = ("batches", "cut_off_bytes", "damage", "next_epoch", "next_offset", "size")

    def __init__(self, offset: int, buffers: Iterable[memoryview | bytes | bytearray], leader_epoch: int = -1) -> None:
        """offset: the requested one; the first batch may begin, or even end, below it."""
        self.batches: list[Batch] = []
        self.next_offset, self.next_epoch = offset, leader_epoch
        self.damage: CorruptBatch | None = None
        self.cut_off_bytes = self.size = 0
        for buffer in buffers:
            self._add_batches(memoryview(buffer))

    def _add_batches(self, buffer: memoryview) -> None:
        """Add the batches in this buffer, up to one that is damaged or cut off."""
        position, end = 0, len(buffer)
        self.size += end
        while self.damage is None and end - position > LENGTH_ENDS_AT:
            length = int.from_bytes(buffer[position + _LENGTH_AT : position + LENGTH_ENDS_AT], "big", signed=True)
            if length > end - position - LENGTH_ENDS_AT:
                self.cut_off_bytes = length + LENGTH_ENDS_AT
                return
            try:
                batch = read(buffer, position)
            except CorruptBatch as damage:
                self.damage = damage
                return
            position += batch.size
            if batch.next_offset > self.next_offset:
                self.next_offset, self.next_epoch = batch.next_offset, batch.leader_epoch
            self.batches.append(batch)

    @property
    def is_empty(self) -> bool:
        """Return whether there are no batches and no damage."""
        return not self.batches and self.damage is None
