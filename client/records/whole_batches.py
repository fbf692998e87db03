"""The bytes that a fetch brought of one partition, taken apart into the batches that are whole in them.

The rule: nobody needs more than this to know where to go on. The next offset is the one behind the last batch, whatever
of it is seen. A last batch that was cut off comes again with the next fetch; damage to a frame ends it, behind what is
sound. Checksums are not looked at here, and no record is. Source: Kafka's Fetch API, MemoryRecords.batches.
"""

from collections.abc import Iterable

from ...protocol.batches import LENGTH_ENDS_AT, Batch, CorruptBatch, read

_LENGTH_AT = 8


class WholeBatches:
    """next_offset and next_epoch: behind all of it. size: bytes. damage: behind the batches.

    cut_off_bytes: the size of the batch that was cut off, as far as is known; 0 without one.
    """

    __slots__ = ("batches", "cut_off_bytes", "damage", "next_epoch", "next_offset", "size")

    def __init__(self, offset: int, buffers: Iterable[memoryview | bytes | bytearray], leader_epoch: int = -1) -> None:
        """offset: what was asked for; the first batch may begin, or even end, below it."""
        self.batches: list[Batch] = []
        self.next_offset, self.next_epoch = offset, leader_epoch
        self.damage: CorruptBatch | None = None
        self.cut_off_bytes = self.size = 0
        for buffer in buffers:
            self._find(memoryview(buffer))

    def _find(self, buffer: memoryview) -> None:
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
        """Whether it brought nothing, not even damage."""
        return not self.batches and self.damage is None
