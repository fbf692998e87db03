"""The position of a mirror in a source partition, as the committed offset of its group on the target. Pure.

The offset is the source's: the next one to read. The metadata is JSON, `{"version": 1, "topic_id": HEX, "epoch": N}`:
the topic's id on the source (zeros before Kafka 2.8), and the highest leader epoch of the batches before the position,
-1 if there was none. The committed leader epoch is always -1: it would be taken for one of the target.
"""

import json
from typing import NamedTuple

from ..errors import IllegalStateError
from ..values import OffsetAndMetadata

VERSION = 1


class Position(NamedTuple):
    """The next source offset to read, the source's topic id, and the highest leader epoch before it (-1: none)."""

    offset: int
    topic_id: bytes
    epoch: int = -1


def encode_position(position: Position) -> OffsetAndMetadata:
    """Return the position as an offset to commit."""
    kept = {"version": VERSION, "topic_id": position.topic_id.hex(), "epoch": position.epoch}
    return OffsetAndMetadata(position.offset, json.dumps(kept, separators=(",", ":")))


def decode_position(committed: OffsetAndMetadata) -> Position:
    """Return the position in a committed offset. Raises IllegalStateError if no mirror of this version wrote it."""
    try:
        kept = json.loads(committed.metadata)
        if kept["version"] != VERSION:
            raise ValueError(f"it has version {kept['version']}")
        return Position(committed.offset, bytes.fromhex(kept["topic_id"]), int(kept["epoch"]))
    except (ValueError, KeyError, TypeError) as error:
        raise IllegalStateError(
            f"the committed offset {committed.offset} is not the position of a mirror: {error}",
            hint="another consumer uses the group of this mirror, or a newer version wrote it",
        ) from None
