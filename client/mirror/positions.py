"""The position of a mirror in a source partition, as the committed offset of its group on the target. Pure.

The offset is the source's: the next one to read. The metadata is JSON, `{"version": 1, "topic_id": HEX, "copy_id": HEX,
"mark": LIST, "stopped": TEXT}`: the topic's id on the source (zeros before Kafka 2.8), and on the target; the fields of
BatchMark, or null before the first batch; and why the partition's task has stopped it, left out while it goes on. The
committed leader epoch is always -1: it would be taken for one of the target.
"""

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...protocol.batches import Batch
from ..errors import IllegalStateError
from ..values import OffsetAndMetadata, TopicPartition

VERSION = 1
MAX_CHARACTERS = 300
"""A reason is cut to so many: by Kafka's default the metadata of an offset has room for 4,096 bytes, and JSON takes up
to twelve for a character.
"""


class BatchMark(NamedTuple):
    """What a position keeps of the last batch before it (also of a marker or an aborted batch), to see that the source
    still has it.

    A source that was restored or cut may have written other records at the same offsets since. So each read begins at
    this batch, and what is there must be it, or what compaction has left of it; or what it was before compaction, as
    the source may have crashed since, or another replica that is behind with compacting may be the leader.
    """

    first: int
    last: int
    crc: int
    is_compacted: bool
    producer_id: int
    producer_epoch: int
    sequence: int

    def is_in(self, batch: Batch) -> bool:
        """Return whether this batch is the one of which the mark was made, before or after a compaction.

        Compaction keeps a batch's first and last offset, its producer and its sequence.
        """
        now = mark_of(batch)
        was_compacted = self.is_compacted or now.is_compacted
        return now[:2] == self[:2] and now[-3:] == self[-3:] and (was_compacted or now.crc == self.crc)

    def is_kept_by(self, found: Batch) -> bool:
        """Return whether the log may still have the batch: what is found from its last offset on is this batch, or a
        later one, because compaction has removed it.
        """
        return found.base_offset > self.last or self.is_in(found)


def mark_of(batch: Batch) -> BatchMark:
    """Return the mark of a batch: the fields by which BatchMark.is_in() recognizes it later."""
    has_gaps = batch.record_count <= batch.last_offset - batch.base_offset
    return BatchMark(
        batch.base_offset,
        batch.last_offset,
        batch.crc,
        has_gaps or batch.delete_horizon_ms is not None,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
    )


class Position(NamedTuple):
    """The next source offset to read, the id of the source's topic, and the last batch before the offset, if any.

    copy_id: the id of the topic on the target that has the records before the offset. stopped: why the task that has
    the partition does not go on with it; "" while it does. That is for people: a task that gets the partition tries.
    """

    offset: int
    topic_id: bytes
    mark: BatchMark | None = None
    copy_id: bytes = b""
    stopped: str = ""

    def is_of_copy(self, topic_id: bytes) -> bool:
        """Return whether the topic with this id on the target is the one that has the records before the offset."""
        return self.copy_id == topic_id


def encode_position(position: Position) -> OffsetAndMetadata:
    """Return the position as an offset to commit."""
    ids = {"topic_id": position.topic_id.hex(), "copy_id": position.copy_id.hex()}
    why = {"stopped": position.stopped[:MAX_CHARACTERS]} if position.stopped else {}
    kept = {"version": VERSION, **ids, "mark": position.mark, **why}
    return OffsetAndMetadata(position.offset, json.dumps(kept, separators=(",", ":")))


def decode_position(committed: OffsetAndMetadata) -> Position:
    """Return the position in a committed offset. Raises IllegalStateError if no mirror of this version wrote it."""
    try:
        kept = json.loads(committed.metadata)
        if kept["version"] != VERSION:
            raise ValueError(f"it has version {kept['version']}")
        mark = None if kept["mark"] is None else _decode_mark(kept["mark"])
        ids = bytes.fromhex(kept["topic_id"]), bytes.fromhex(kept["copy_id"])
        return Position(committed.offset, ids[0], mark, ids[1], str(kept.get("stopped", "")))
    except (ValueError, KeyError, TypeError) as error:
        raise IllegalStateError(
            f"the committed offset {committed.offset} is not the position of a mirror: {error}",
            hint="another consumer uses the group of this mirror, or a newer version wrote it",
        ) from None


def known_positions(
    committed: Mapping[TopicPartition, OffsetAndMetadata | None], copies: Mapping[str, bytes]
) -> dict[TopicPartition, Position]:
    """Return the positions among these committed offsets: without those in a topic that the target has no more.
    copies: the ids of the topics on the target.

    Raises IllegalStateError for an offset that is not a position.
    """
    decoded = {tp: decode_position(at) for tp, at in committed.items() if at is not None}
    return {tp: position for tp, position in decoded.items() if position.is_of_copy(copies[tp.topic])}


def _decode_mark(fields: Sequence[int]) -> BatchMark:
    """Return the mark of which these are the fields."""
    first, last, crc, is_compacted, *producer = map(int, fields)
    return BatchMark(first, last, crc, bool(is_compacted), *producer)
