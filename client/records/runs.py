"""Consecutive records of one shape, decoded as columns.

The rule: what is not certainly such a run is left to other decoders, which also find its errors. A run is consecutive
records with equal lengths (record, key, value), deltas of equal widths, consecutive offsets and no headers. Then every
field is at a fixed distance from that of the previous record, so slices, `Struct.iter_unpack` and `map` decode all of
them. Metrics, events and fixed-size messages look like this; texts do not.
"""

from collections.abc import Iterable
from functools import lru_cache
from itertools import chain, repeat
from struct import Struct
from typing import Any, NamedTuple, cast

from ..values import Record

WORTH_IT = 16
"""For a shorter run the other decoders are as fast."""

_NARROW, _WIDE = 64, 8192  # the first offset deltas of two and of three bytes
_ONE = bytes(2 * delta for delta in range(_NARROW))
_LOW = bytes((2 * delta & 0x7F) | 0x80 for delta in range(_NARROW, _WIDE))
_HIGH = bytes(2 * delta >> 7 for delta in range(_NARROW, _WIDE))
_CONTINUES = bytes(byte >> 7 for byte in range(256))
_SIGNED = [(byte >> 1) ^ -(byte & 1) for byte in range(128)]
_make = cast("Any", tuple).__new__
_structs = lru_cache(256)(Struct)


class _Shape(NamedTuple):
    """Positions of the fields within a record. value_size and key_size: None for a null."""

    offset_at: int
    key_length_at: int
    value_length_at: int
    offset_delta: int
    key_size: int | None
    value_size: int | None
    size: int


class Run(NamedTuple):
    """The columns of `length` records. An iterable may be longer, and be read once only. end: position after them."""

    length: int
    end: int
    offsets: range
    timestamps: Iterable[int]
    keys: Iterable[bytes | None]
    values: Iterable[bytes | None]


def run_of(
    payload: bytes, position: int, most: int, base_offset: int, base_timestamp: int, topic: str, partition: int
) -> tuple[list[Record], int]:
    """Decode the run (consecutive records of one shape) that begins at `position`, at most `most` records. Returns the
    records and the position after them; no records, and `position`, if the run is too short to be worth it.
    """
    run = run_columns(payload, position, most, base_offset, base_timestamp)
    if run is None:
        return [], position
    fields = zip(
        repeat(topic),
        repeat(partition),
        run.offsets,
        run.timestamps,
        repeat(0),
        run.keys,
        run.values,
        repeat(()),
        strict=False,
    )
    return list(map(_make, repeat(Record), fields)), run.end


def run_columns(
    payload: bytes,
    position: int,
    most: int,
    base_offset: int,
    base_timestamp: int,
    *,
    with_keys: bool = True,
    with_values: bool = True,
) -> Run | None:
    """Return the columns of the run (consecutive records of one shape) that begins at `position`, at most `most`
    records; None if it is too short to be worth it.
    """
    try:
        shape = _shape(payload, position)
    except IndexError:  # a wrong length
        shape = None
    if shape is None:
        return None
    first, size = shape.offset_delta, shape.size
    limit = _NARROW if shape.key_length_at - shape.offset_at == 1 else _WIDE
    count = min(most, limit - first, (len(payload) - position) // size)
    count = _count_alike(payload, position, shape, count)
    end = position + count * size
    if count < WORTH_IT or not _are_consecutive(payload, position, end, shape, first, count):
        return None
    timestamps = _timestamps(payload, position, end, shape, base_timestamp)
    if timestamps is None:
        return None
    offsets = range(base_offset + first, base_offset + first + count)
    keys, values = _contents(memoryview(payload)[position:end], shape, with_keys, with_values)
    return Run(count, end, offsets, timestamps, keys, values)


def _shape(payload: bytes, start: int) -> _Shape | None:
    """Return the positions and sizes of the record's fields. Return None if it has headers or lengths that do not add
    up, or if a length or the offset delta takes more than two bytes.
    """
    at = start + (2 if payload[start] & 0x80 else 1) + 1  # the timestamp, after length and attributes
    offset_at = at + (2 if payload[at] & 0x80 else 1)
    number, key_length_at = _short(payload, offset_at)
    key_length, at = _short(payload, key_length_at)
    key_size = None if key_length == 1 else key_length >> 1
    value_length_at = at + (key_size or 0)
    value_length, at = _short(payload, value_length_at)
    value_size = None if value_length == 1 else value_length >> 1
    end = at + (value_size or 0) + 1
    announced, at = _short(payload, start)
    if (number | announced) & 1 or (key_length & 1 and key_length != 1) or (value_length & 1 and value_length != 1):
        return None
    if payload[end - 1] or at + (announced >> 1) != end or number >= 2 * _WIDE:
        return None
    return _Shape(
        offset_at - start,
        key_length_at - start,
        value_length_at - start,
        number >> 1,
        key_size,
        value_size,
        end - start,
    )


def _short(payload: bytes, at: int) -> tuple[int, int]:
    """Read an unsigned varint of at most two bytes, and its end. A longer one gives 3: odd, so it is not a length."""
    number = payload[at]
    if number < 0x80:
        return number, at + 1
    second = payload[at + 1]
    return (number & 0x7F | second << 7, at + 2) if second < 0x80 else (3, at + 2)


def _count_alike(payload: bytes, position: int, shape: _Shape, count: int) -> int:
    """Count the records that have the shape of the first: equal lengths, and deltas of equal widths."""
    size = shape.size
    fixed = [0] if payload[position] < 0x80 else [0, 1]
    timestamp_at = len(fixed) + 1
    for at, width in ((shape.key_length_at, shape.key_size), (shape.value_length_at, shape.value_size)):
        fixed += [at] if width is None or payload[position + at] < 0x80 else [at, at + 1]
    fixed.append(size - 1)
    for at in fixed:
        column = payload[position + at : position + count * size : size]
        count = len(column) - len(column.lstrip(column[:1]))
    for at in range(timestamp_at, shape.key_length_at):
        column = payload[position + at : position + count * size : size].translate(_CONTINUES)
        count = len(column) - len(column.lstrip(column[:1]))
    return count


def _are_consecutive(payload: bytes, position: int, end: int, shape: _Shape, first: int, count: int) -> bool:
    """Return whether the offset deltas of these equally shaped records count up from `first`."""
    column = payload[position + shape.offset_at : end : shape.size]
    if shape.key_length_at - shape.offset_at == 1:
        return column == _ONE[first : first + count]
    high = payload[position + shape.offset_at + 1 : end : shape.size]
    first -= _NARROW
    return first >= 0 and column == _LOW[first : first + count] and high == _HIGH[first : first + count]


def _timestamps(payload: bytes, position: int, end: int, shape: _Shape, base: int) -> Iterable[int] | None:
    """Return the timestamps of these equally shaped records; None if their varints are too long to be decoded here."""
    at = position + (2 if payload[position] & 0x80 else 1) + 1
    low = payload[at : end : shape.size]
    wide = payload[at] & 0x80
    if not wide:
        if not low.strip(low[:1]):
            return repeat(base + _SIGNED[low[0]])
        return [base + _SIGNED[byte] for byte in low]
    high = payload[at + 1 : end : shape.size]
    if high[0] & 0x80:
        return None
    return [base + ((b << 6 | (a & 0x7F) >> 1) ^ -(a & 1)) for a, b in zip(low, high, strict=True)]


def _contents(
    view: memoryview, shape: _Shape, with_keys: bool, with_values: bool
) -> tuple[Iterable[bytes | None], Iterable[bytes | None]]:
    """Return the keys and the values of the equally shaped records in the view; None in place of each one that is not
    wanted.
    """
    size = shape.size
    key_size = shape.key_size if with_keys else None
    value_size = shape.value_size if with_values else None
    value_at = size - 1 - (shape.value_size or 0)
    if key_size is None:
        if value_size is None:
            return repeat(None), repeat(None)
        return repeat(None), chain.from_iterable(_structs(f"{value_at}x{value_size}sx").iter_unpack(view))
    key_at = shape.value_length_at - key_size
    if value_size is None:
        rest = size - shape.value_length_at
        return chain.from_iterable(_structs(f"{key_at}x{key_size}s{rest}x").iter_unpack(view)), repeat(None)
    between = value_at - shape.value_length_at
    keys, values = zip(*_structs(f"{key_at}x{key_size}s{between}x{value_size}sx").iter_unpack(view), strict=True)
    return keys, values
