"""A small batch with a record of very many headers: all are empty, so that zstd makes next to nothing of them."""

import raw_batches
from fencepost.protocol.compression import Codec, compress
from raw_batches import NOW_MS, record, varint

AT = NOW_MS
BYTES_EACH = 2


def batch(headers: int, key: bytes = b"k") -> bytes:
    """Return a batch of two records, with the timestamps AT and AT + 1. The first has this many empty headers."""
    body = b"\0\0\0" + varint(len(key)) + key + varint(1) + b"v" + varint(headers) + b"\0\0" * headers
    packed = compress(Codec.ZSTD, varint(len(body)) + body + record(1, 1))
    return raw_batches.batch(packed, records=2, attributes=Codec.ZSTD, max_timestamp=AT + 1)
