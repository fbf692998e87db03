"""The position of a mirror in a source partition, as the committed offset of its group on the target. Pure.

The offset is the source's: the next one to read. The metadata is JSON, `{"version": 1, "topic_id": HEX, "last": N,
"crc": N}`: the topic's id on the source (zeros before Kafka 2.8), the offset of the newest mirrored record, and what
`content_crc` says of it; -1 and 0 before the first record. A source that was restored or cut, and has written other
records at these offsets since, is known by that record. The committed leader epoch is always -1: it would be taken for
one of the target.
"""

import json
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from ..errors import IllegalStateError
from ..values import OffsetAndMetadata, Record

VERSION = 1
_TIMESTAMP = Struct(">q")


class Position(NamedTuple):
    """The next source offset to read. topic_id: of the source. last, crc: the newest mirrored record, -1 and 0 before
    the first.
    """

    offset: int
    topic_id: bytes
    last: int = -1
    crc: int = 0


def content_crc(record: Record) -> int:
    """Return the checksum of a record's timestamp, key and value."""
    crc: int = crc32c(_TIMESTAMP.pack(record.timestamp_ms))
    return crc32c(record.value or b"", crc32c(record.key or b"", crc))


def encode_position(position: Position) -> OffsetAndMetadata:
    """Return the position as an offset to commit."""
    kept = {"version": VERSION, "topic_id": position.topic_id.hex(), "last": position.last, "crc": position.crc}
    return OffsetAndMetadata(position.offset, json.dumps(kept, separators=(",", ":")))


def decode_position(committed: OffsetAndMetadata) -> Position:
    """Return the position in a committed offset. Raises IllegalStateError if no mirror of this version wrote it."""
    try:
        kept = json.loads(committed.metadata)
        if kept["version"] != VERSION:
            raise ValueError(f"it has version {kept['version']}")
        return Position(committed.offset, bytes.fromhex(kept["topic_id"]), int(kept["last"]), int(kept["crc"]))
    except (ValueError, KeyError, TypeError) as error:
        raise IllegalStateError(
            f"the committed offset {committed.offset} is not the position of a mirror: {error}",
            hint="another consumer uses the group of this mirror, or a newer version wrote it",
        ) from None
