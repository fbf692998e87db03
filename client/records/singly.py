"""Records decoded one by one, in place, as columns: those that the other decoders cannot decode.

The rule: a record that may be malformed, or has a long varint, is left to the functions of `protocol.records`, which
raise its error. Bounds are checked once for each record: if the length of a field is wrong, the fields do not end where
the record does.
"""

from typing import NamedTuple

from ...protocol.batches import Batch
from ...protocol.records import HIGHEST, LOWEST, raise_invalid, read_headers, read_record
from ..values import Headers


class Singly(NamedTuple):
    """Records that were decoded one by one, as columns. times, offsets: deltas to those of the batch. end: the position
    after the last record.
    """

    times: list[int]
    offsets: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[Headers]
    end: int


_NONE: Headers = ()


class _Unusual(Exception):
    """A record with a long varint, or one that may be malformed."""


def decoded_singly(payload: bytes, position: int, previous: int, count: int, batch: Batch) -> Singly:
    """Decode `count` records. previous: offset delta of the one before. Raises IndexError (cut short), KafkaError."""
    last_delta = batch.last_offset_delta
    found = Singly([], [], [], [], [], 0)
    times, offsets, keys, values, every, _ = found
    for _ in range(count):
        start, headers = position, _NONE
        try:
            number, position = payload[position], position + 1  # the record's length
            if number & 0x80:
                if (second := payload[position]) & 0x80:
                    raise _Unusual
                number, position = number & 0x7F | second << 7, position + 1
            if number & 1:
                raise _Unusual
            end = position + (number >> 1)
            time, position = payload[position + 1], position + 2  # after one byte of attributes
            if time & 0x80:
                if (second := payload[position]) & 0x80:
                    raise _Unusual
                time, position = time & 0x7F | second << 7, position + 1
            time = (time >> 1) ^ -(time & 1)
            offset, position = payload[position], position + 1
            if offset & 0x80:
                if (second := payload[position]) & 0x80:
                    raise _Unusual
                offset, position = offset & 0x7F | second << 7, position + 1
            offset = (offset >> 1) ^ -(offset & 1)
            key = value = None
            number, position = payload[position], position + 1
            if number != 1:
                if number & 0x81:
                    raise _Unusual
                key = payload[position : (position := position + (number >> 1))]
            number, position = payload[position], position + 1
            if number != 1:
                if number & 0x80:
                    if (second := payload[position]) & 0x80:
                        raise _Unusual
                    number, position = number & 0x7F | second << 7, position + 1
                if number & 1:
                    raise _Unusual
                value = payload[position : (position := position + (number >> 1))]
            number, position = payload[position], position + 1
            if number:
                if number & 0x81:
                    raise _Unusual
                headers, position = read_headers(payload, position, end, number >> 1)
            if position != end or not previous < offset <= last_delta:
                raise _Unusual
        except _Unusual:
            time, offset, key, value, headers, position = _read_checked(payload, start, previous, batch)
        previous = offset
        times.append(time)
        offsets.append(offset)
        keys.append(key)
        values.append(value)
        every.append(headers)
    return found._replace(end=position)


def _read_checked(
    payload: bytes, start: int, previous: int, batch: Batch
) -> tuple[int, int, bytes | None, bytes | None, Headers, int]:
    """Read a record with a long varint. Returns its fields and the end position. Raises IndexError, KafkaError."""
    time, offset, key, value, headers, position = read_record(payload, start)
    if not previous < offset <= batch.last_offset_delta:
        raise_invalid(f"offset delta {offset} is out of place")
    if not LOWEST <= batch.base_timestamp + time <= HIGHEST:  # a delta of one or two bytes does not lead there
        if not batch.is_log_append_time:
            raise_invalid(f"timestamp {batch.base_timestamp + time} is out of range")
        time = 0  # the batch's own time counts
    return time, offset, key, value, headers, position
