"""All records of one batch at once: the reading path of the consumer.

The rule: for every batch the outcome is that of `protocol.records.records`: the same records, or a KafkaError where
that raises one. It is only faster: varints of one and two bytes are read in place, nothing is called per record, and a
record that does not look as usual is left to the functions there. Bounds are not looked at in between: where a length
leads too far, the record does not end where it says.
"""

from typing import Any

from ..protocol.batches import Batch
from ..protocol.records import DECOMPRESSED_LIMIT_BYTES, lies, payload_of, read_headers, read_record, records
from .record_runs import WORTH_IT, run_of
from .values import CREATE_TIME, LOG_APPEND_TIME, Headers, Record

_FAR = 1 << 62  # beyond it, timestamps and offsets might leave their range, which `records` looks at
_FIRST_TRIES = 32  # records decoded one by one before a run is looked for again
_make: Any = tuple.__new__


class _Unusual(Exception):
    """A record with a long varint, or one that may not be sound."""


_unusual = _Unusual()


def records_of(batch: Batch, topic: str, partition: int, *, limit: int = DECOMPRESSED_LIMIT_BYTES) -> list[Record]:
    """The records of the batch, in order. limit: bytes that they may take, decompressed. Raises: KafkaError."""
    appended = batch.is_log_append_time
    if batch.last_offset >= _FAR or not -_FAR < batch.base_timestamp < _FAR:
        kind = LOG_APPEND_TIME if appended else CREATE_TIME
        return [Record(topic, partition, r[0], r[1], kind, *r[2:]) for r in records(batch, limit=limit)]
    payload = payload_of(batch, limit)
    try:
        found, position = _all(payload, batch, topic, partition)
    except IndexError:
        lies("a record is cut short")
    if position != len(payload):
        lies(f"{len(payload) - position} bytes follow the last record")
    if appended:
        stamp = LOG_APPEND_TIME, batch.max_timestamp
        found = [Record(r[0], r[1], r[2], stamp[1], stamp[0], *r[5:]) for r in found]
    return found


def _all(payload: bytes, batch: Batch, topic: str, partition: int) -> tuple[list[Record], int]:
    """Runs of records alike where there are such, which are looked for ever more seldom; the rest one by one."""
    found: list[Record] = []
    position, left, some = 0, batch.record_count, _FIRST_TRIES
    base_offset, base_timestamp = batch.base_offset, batch.base_timestamp
    while left:
        run: list[Record] = []
        previous = found[-1].offset - base_offset if found else -1
        if left >= WORTH_IT:
            run, after = run_of(payload, position, left, base_offset, base_timestamp, topic, partition)
            if run and not (previous < run[0].offset - base_offset and run[-1].offset <= batch.last_offset):
                run = []
        if run:
            position = after
        else:
            run, position = _decoded(payload, position, previous, min(left, some), batch, topic, partition)
            some *= 2
        left -= len(run)
        found = found + run if found else run
    return found, position


def _decoded(
    payload: bytes, position: int, previous: int, count: int, batch: Batch, topic: str, partition: int
) -> tuple[list[Record], int]:
    """(records, position after the last). previous: offset delta before. Raises: IndexError, KafkaError."""
    found: list[Record] = []
    append, make, cls, unusual = found.append, _make, Record, _unusual
    base_timestamp, base_offset, last_delta = batch.base_timestamp, batch.base_offset, batch.last_offset_delta
    for _ in range(count):
        start = position
        headers: Headers = ()
        try:
            number, position = payload[position], position + 1  # the record's length
            if number & 0x80:
                if (second := payload[position]) & 0x80:
                    raise unusual
                number, position = number & 0x7F | second << 7, position + 1
            if number & 1:
                raise unusual
            end = position + (number >> 1)
            delta, position = payload[position + 1], position + 2  # its timestamp, behind one byte of attributes
            if delta & 0x80:
                if (second := payload[position]) & 0x80:
                    raise unusual
                delta, position = delta & 0x7F | second << 7, position + 1
            delta = (delta >> 1) ^ -(delta & 1)
            offset, position = payload[position], position + 1
            if offset & 0x80:
                if (second := payload[position]) & 0x80:
                    raise unusual
                offset, position = offset & 0x7F | second << 7, position + 1
            offset = (offset >> 1) ^ -(offset & 1)
            key = value = None
            number, position = payload[position], position + 1
            if number != 1:
                if number & 0x81:
                    raise unusual
                key = payload[position : (position := position + (number >> 1))]
            number, position = payload[position], position + 1
            if number != 1:
                if number & 0x80:
                    if (second := payload[position]) & 0x80:
                        raise unusual
                    number, position = number & 0x7F | second << 7, position + 1
                if number & 1:
                    raise unusual
                value = payload[position : (position := position + (number >> 1))]
            number, position = payload[position], position + 1
            if number:
                if number & 0x81:
                    raise unusual
                headers, position = read_headers(payload, position, end, number >> 1)
            if position != end or not previous < offset <= last_delta:
                raise unusual
        except _Unusual:
            delta, offset, key, value, headers, position = read_record(payload, start)
            if not previous < offset <= last_delta:
                lies(f"offset delta {offset} is out of place")
        previous = offset
        append(make(cls, (topic, partition, base_offset + offset, base_timestamp + delta, 0, key, value, headers)))
    return found, position
