"""Quick checks of a batch's records, as topics demand: each has a key, or a timestamp within bounds.

No Record is made: from each record only its length, deltas and the length of its key are read, and the rest is leapt
over. A batch may hold a million records, so every step counts. The rule is that of records.py: whatever the bytes, the
outcome is an answer or a KafkaError. Of what is wrong at most MAX_NAMED records are named. Layout: KIP-98.
"""

from .batches import Batch
from .records import HIGHEST, LOWEST, RecordsRefused, raise_invalid, varint

MAX_NAMED = 100
NO_TIMESTAMP = -1  # a record without one passes every check of timestamps
KEYLESS = "a compacted topic takes no record without a key"


def check_keys(batch: Batch, payload: bytes) -> None:
    """Check that each record has a key, as compacted topics demand, and the right offset delta.

    payload: the batch's records, decompressed. Values and headers are not checked. Raises KafkaError; RecordsRefused,
    which names the first records without a key.
    """
    try:
        named, refused = _keyless(payload, batch.record_count)
    except IndexError:
        raise_invalid("a record is cut short")
    if refused:
        raise RecordsRefused([(index, KEYLESS) for index in named], refused)


def _long_length(payload: bytes, position: int) -> tuple[int, int]:
    """Read a record's length of more than one byte. Returns the length times two, as in zigzag, and the position after
    it.
    """
    length, position = varint(payload, position)
    if length < 0:
        raise_invalid("the length of a record is negative")
    return length << 1, position


def _keyless(payload: bytes, count: int) -> tuple[list[int], int]:
    """Return the indices of the first records without a key, and how many records have none.

    Raises IndexError if the bytes end too early.
    """
    found: list[int] = []
    position, keyless = 0, 0
    for twice in range(0, 2 * count, 2):  # the offset delta as it is written: zigzag
        length = payload[position]
        if length > 127:
            length, position = _long_length(payload, position)
        else:
            position += 1
        at = position + 1  # one byte of attributes, unused
        position += length >> 1
        while payload[at] > 127:  # the timestamp delta
            at += 1
        at += 1
        delta = payload[at]
        if delta > 127:
            at += 1
            delta += (payload[at] << 7) - 128
            if delta > 16_383:
                at += 1
                delta += (payload[at] << 14) - 16_384
                if delta > 2_097_151:
                    at += 1
                    delta += (payload[at] << 21) - 2_097_152
        key = payload[at + 1]
        if delta != twice or length & 1:
            raise_invalid(f"the length or offset delta of record {twice >> 1} is out of place")
        if key > 127:
            key, at = varint(payload, at + 1)
            key, at = key << 1, at - 2
        if key & 1 or key < 0:
            if key != 1:
                raise_invalid(f"the length of the key of record {twice >> 1} is negative")
            keyless += 1
            if keyless <= MAX_NAMED:
                found.append(twice >> 1)
            key = 0
        if at + 1 + (key >> 1) >= position:
            raise_invalid(f"the key of record {twice >> 1} ends beyond it")
    _check_end(payload, position)
    return found, keyless


def outside(batch: Batch, payload: bytes, lowest: int, highest: int) -> tuple[list[tuple[int, int]], int]:
    """Return (index, timestamp) of the first records with a timestamp outside [lowest, highest], and how many there
    are.

    payload: the batch's records, decompressed. Raises KafkaError.
    """
    try:
        return _outside(payload, batch, max(lowest, LOWEST), min(highest, HIGHEST))
    except IndexError:
        raise_invalid("a record is cut short")


def _outside(payload: bytes, batch: Batch, lowest: int, highest: int) -> tuple[list[tuple[int, int]], int]:
    """Return (index, timestamp) of the first records with a timestamp outside [lowest, highest], and how many there
    are.

    Raises IndexError if the bytes end too early.
    """
    found: list[tuple[int, int]] = []
    base, position, wrong = batch.base_timestamp, 0, 0
    least, most = lowest - base, highest - base
    near = least <= -64 and most >= 63  # then every delta of one byte is within bounds
    for index in range(batch.record_count):
        length = payload[position]
        if length > 127:
            length, position = _long_length(payload, position)
        else:
            position += 1
        at = position + 1
        position += length >> 1
        delta = payload[at]
        if near and delta < 128 and not length & 1:
            continue
        if length & 1:
            raise_invalid(f"the length of record {index} is negative")
        delta, at = varint(payload, at, 64)
        if at > position:
            raise_invalid(f"record {index} is cut short")
        if not least <= delta <= most and base + delta != NO_TIMESTAMP:
            wrong += 1
            if len(found) < MAX_NAMED:
                found.append((index, base + delta))
    _check_end(payload, position)
    return found, wrong


def _check_end(payload: bytes, position: int) -> None:
    """Raise INVALID_RECORD if the last record does not end where the payload ends."""
    if position != len(payload):
        raise_invalid(f"the last record ends {len(payload) - position:+} bytes before the batch")
