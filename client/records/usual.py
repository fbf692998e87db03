"""Records with the usual field widths, of any sizes: decoded in few operations each, as columns.

The rule: a record that is not usual ends it; other decoders continue there and find its errors. Usual are offsets
without gaps, deltas and lengths of one or two bytes (offsets: up to three), keys below 64 bytes. Then one Struct reads
the fields before the key, and the offset is compared with the expected bytes.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import repeat
from struct import Struct
from struct import error as BeyondTheEnd
from typing import Any

from ...protocol.records import Header
from ..values import Headers

_FROM = (0, 64, 8192, 1 << 20)  # the first offset deltas of one, two, three and four bytes
_CODES = ("B", "H", "3s")
_NULL = 1

_UNUSUAL = 1 << 40  # as a length it ends beyond every payload

_ONE: list[int] = [_UNUSUAL if byte & 1 else byte >> 1 for byte in range(0x80)]
"""Lengths by their zigzag varint of one byte. Null is handled before."""

_TWO: list[int] = [_UNUSUAL] * (1 << 15)
"""Lengths by the two bytes of their varint, read as little-endian; _UNUSUAL if the varint has another size."""
for _number in range(0x80, 1 << 14, 2):
    _TWO[_number & 0x7F | 0x80 | _number >> 7 << 8] = _number >> 1

_TIMES: tuple[dict[int, int], dict[int, int]] = (
    {byte: (byte >> 1) ^ -(byte & 1) for byte in range(0x80)},
    {n & 0x7F | 0x80 | n >> 7 << 8: (n >> 1) ^ -(n & 1) for n in range(0x80, 1 << 14)},
)
"""Timestamp deltas by the one or two bytes of their varint, read as little-endian."""

_Head = Callable[[bytes, int], tuple[int, int, Any, int]]
_BareHead = Callable[[bytes, int], tuple[int, int, Any, int, int]]
_Columns = tuple[Sequence[int], Iterable[bytes | None], Sequence[bytes | None], Iterable[Headers], int]


def usual_columns(payload: bytes, position: int, first: int, count: int) -> _Columns:
    """Return (timestamp deltas, keys, values, headers, end position) of the next records, at most `count`. Stops,
    perhaps at once, at a gap in the offsets, or at a record with longer varints than this module decodes.

    first: the expected offset delta of the first one. Raises IndexError.
    """
    at = position + (3 if payload[position] & 0x80 else 2)
    wide_time = payload[at] >> 7
    at += 2 if wide_time else 1
    width = 0 if first < _FROM[1] else 1 if first < _FROM[2] else 2
    count = min(count, _FROM[width + 1] - first)
    if count <= 0:
        return (), (), (), (), position
    if payload[at + width + 1] == _NULL:
        bare = _bare(payload, position, _offsets(first, count, width), wide_time, width)
        if bare[2]:
            return bare
    return _full(payload, position, _offsets(first, count, width), wide_time, width)


def _offsets(first: int, count: int, width: int) -> Iterable[Any]:
    """Return the varints of these offset deltas as the Struct of a record's head unpacks them."""
    if width < 2:
        return _short_offsets()[width][first - _FROM[width] : first - _FROM[width] + count]
    return (bytes((2 * n & 0x7F | 0x80, n >> 6 & 0x7F | 0x80, n >> 13)) for n in range(first, first + count))


@cache
def _short_offsets() -> tuple[list[int], list[int]]:
    """Return the encoded offset deltas of one byte and of two bytes (zigzag varints), each as an integer, in ascending
    order of the deltas.
    """
    two = [2 * delta & 0x7F | 0x80 | delta >> 6 << 8 for delta in range(_FROM[1], _FROM[2])]
    return [2 * delta for delta in range(_FROM[1])], two


@cache
def _heads(wide_time: int, width: int) -> tuple[_Head, int, _Head, int]:
    """Return functions that read record length, timestamp, offset and key length, each with its number of bytes.

    One for records below 64 bytes, one for longer ones.
    """
    between = f"x{_CODES[wide_time]}{_CODES[width]}B"
    short, long = Struct(f"<B{between}"), Struct(f"<H{between}")
    return short.unpack_from, short.size, long.unpack_from, long.size


@cache
def _bare_heads(wide_time: int, width: int) -> tuple[_BareHead, int, _BareHead, int]:
    """Return functions like those of _heads(), for records without keys: they read the value's length as well."""
    between = f"x{_CODES[wide_time]}{_CODES[width]}B"
    short, long = Struct(f"<B{between}B"), Struct(f"<H{between}H")
    return short.unpack_from, short.size, long.unpack_from, long.size


def _bare(payload: bytes, position: int, offsets: Iterable[Any], wide_time: int, width: int) -> _Columns:
    """Decode records up to the first that has a key, headers, no value, or longer varints than this module decodes."""
    short, short_size, long, long_size = _bare_heads(wide_time, width)
    # around: the size of a record, as its first field has it, without the value; one more if the value's length has two
    # bytes. It shows that the lengths of record and value agree. A key length of 1 is the varint of -1, for no key.
    around, times_of = 6 + wide_time + width, _TIMES[wide_time]
    one, two = _ONE, _TWO
    around_twice, around_more = 2 * around, around + 1
    times: list[int] = []
    values: list[bytes | None] = []
    add_time, add_value = times.append, values.append
    try:
        for expected in offsets:
            if payload[position] < 0x80:
                size, time, offset, key, length = short(payload, position)
                if offset != expected or key != 1 or size - length != around_twice:
                    break
                at = position + short_size
                end = at + one[length]
            else:
                size, time, offset, key, length = long(payload, position)
                if offset != expected or key != 1:
                    break
                if length & 0x80:
                    number = two[length]
                    if two[size] - number != around_more:
                        break
                    at = position + long_size
                else:
                    number = one[length & 0x7F]
                    if two[size] - number != around:
                        break
                    at = position + long_size - 1
                end = at + number
            if payload[end]:  # headers
                break
            delta = times_of[time]
            add_value(payload[at:end])
            add_time(delta)
            position = end + 1
    except (IndexError, KeyError, BeyondTheEnd):
        pass
    return times, repeat(None), values, repeat(()), position


def _full(payload: bytes, position: int, offsets: Iterable[Any], wide_time: int, width: int) -> _Columns:
    """Decode records with any of keys, headers and nulls, up to one with longer varints than this module decodes."""
    short, key_at, long, long_key_at = _heads(wide_time, width)
    one, two, times_of, limit = _ONE, _TWO, _TIMES[wide_time], len(payload)
    seen: dict[bytes, Headers] = {}
    times: list[int] = []
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    all_headers: list[Headers] = []
    add_time, add_key, add_value, add_headers = times.append, keys.append, values.append, all_headers.append
    try:
        for expected in offsets:
            if payload[position] < 0x80:
                size, time, offset, number = short(payload, position)
                at, end = position + key_at, position + 1 + one[size]
            else:
                size, time, offset, number = long(payload, position)
                at, end = position + long_key_at, position + 2 + two[size]
            if offset != expected:
                break
            key = None
            if number != 1:
                if number & 0x81:
                    break
                key = payload[at : (at := at + (number >> 1))]
            number = payload[at]
            if number & 0x80:
                start = at + 2
                at = start + two[number | payload[at + 1] << 8]
            else:
                start = at + 1
                at = start if number == 1 else start + one[number]
            count = payload[at]  # raises IndexError for a wrong value length before the value is copied
            value = None if number == 1 else payload[start:at]
            headers: Headers = ()
            if count:
                if end > limit:
                    break
                block = payload[at:end]  # many records have the same headers
                found = seen.get(block)
                if found is None:
                    found = _headers(block, count)
                    if found is None:
                        break
                    seen[block] = found
                headers, at = found, at + len(block) - 1
            if at + 1 != end:
                break
            delta = times_of[time]
            add_key(key)
            add_value(value)
            add_headers(headers)
            add_time(delta)
            position = end
    except (IndexError, KeyError, BeyondTheEnd):
        pass
    return times, keys, values, all_headers, position


def _headers(block: bytes, count: int) -> Headers | None:
    """Return the headers in this block; None if a name, a value or their number has a longer varint than one byte, or
    if they do not fill the block.
    """
    if count & 0x81:
        return None
    at = 1
    found: list[Header] = []
    for _ in range(count >> 1):
        number = block[at]
        if number & 0x81:
            return None
        at += 1
        name = block[at : (at := at + (number >> 1))]
        number = block[at]
        at += 1
        if number == 1:
            found.append((name.decode("utf-8", "surrogateescape"), None))
            continue
        if number & 0x81:
            return None
        found.append((name.decode("utf-8", "surrogateescape"), block[at : (at := at + (number >> 1))]))
    return tuple(found) if at == len(block) else None
