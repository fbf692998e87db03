"""Batches of records as columns: only the requested ones, without an object for each record.

The rule: the content is that of `decoding.records_of`, from the same decoders. A column that is not requested is
skipped and not checked.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from itertools import islice, repeat
from typing import Any, NamedTuple

from ...protocol.batches import Batch
from ...protocol.records import DECOMPRESSED_LIMIT_BYTES, payload_of, raise_invalid, records
from ..values import CREATE_TIME, LOG_APPEND_TIME, Headers
from .runs import WORTH_IT, run_columns
from .singly import decoded_singly
from .usual import usual_columns

_FAR = 1 << 62  # beyond it, timestamps and offsets may be out of range, which only `records` checks
_FIRST_TRIES = 32  # records decoded otherwise before a run is tried again


class WantedColumns(NamedTuple):
    """Which columns are requested. Offsets are always decoded: they decide which records belong to a range."""

    keys: bool = True
    values: bool = True
    headers: bool = True
    timestamps: bool = True


EVERYTHING = WantedColumns()


class Columns:
    """The columns of all batches added so far. payload_bytes: their approximate size."""

    __slots__ = ("headers", "keys", "kinds", "offsets", "payload_bytes", "timestamps", "values", "wanted")

    def __init__(self, wanted: WantedColumns = EVERYTHING) -> None:
        self.wanted = wanted
        self.offsets = array("q")
        self.timestamps = array("q")
        self.kinds = array("i")
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.headers: list[Headers] = []
        self.payload_bytes = 0

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, batch: Batch, low: int, high: int, *, limit: int = DECOMPRESSED_LIMIT_BYTES) -> None:
        """Append the batch's records of offsets `low` up to `high` (exclusive). After a KafkaError nothing is added."""
        found = decode(batch, self.wanted, limit=limit)
        first = 0 if batch.base_offset >= low else bisect_left(found.offsets, low)
        last = found.count if batch.last_offset < high else bisect_left(found.offsets, high)
        whole = not first and last == found.count
        count = last - first
        if count <= 0:
            return
        self.offsets.extend(found.offsets if whole else found.offsets[first:last])
        wanted = self.wanted
        if wanted.timestamps:
            self.kinds.extend(array("i", (found.kind,)) * count)
            self.timestamps.extend(found.timestamps if whole else found.timestamps[first:last])
        if wanted.keys:
            self.keys += found.keys if whole else found.keys[first:last]
        if wanted.values:
            self.values += found.values if whole else found.values[first:last]
        if wanted.headers:
            self.headers += found.headers if whole else found.headers[first:last]
        self.payload_bytes += found.payload_bytes * count // found.count


class Decoded:
    """The decoded records of one batch, by column."""

    __slots__ = ("count", "headers", "keys", "kind", "offsets", "payload_bytes", "timestamps", "values")

    def __init__(self) -> None:
        self.count = 0
        self.kind = CREATE_TIME
        self.payload_bytes = 0
        self.offsets: array[int] = array("q")
        self.timestamps: array[int] = array("q")
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.headers: list[Headers] = []

    def take(
        self,
        offsets: list[int],
        timestamps: list[int],
        keys: list[bytes | None],
        values: list[bytes | None],
        headers: list[Headers],
        wanted: WantedColumns,
    ) -> None:
        """Append the requested columns."""
        self.offsets.extend(array("q", offsets))
        if wanted.timestamps:
            self.timestamps.extend(array("q", timestamps))
        if wanted.keys:
            self.keys += keys
        if wanted.values:
            self.values += values
        if wanted.headers:
            self.headers += headers


def decode(batch: Batch, wanted: WantedColumns = EVERYTHING, *, limit: int = DECOMPRESSED_LIMIT_BYTES) -> Decoded:
    """Return the requested columns of the batch. limit: bytes of its records, decompressed. Raises KafkaError."""
    found = Decoded()
    if batch.last_offset >= _FAR or not -_FAR < batch.base_timestamp < _FAR:
        _add_plain(found, batch, wanted, limit)
    else:
        payload = payload_of(batch, limit)
        found.payload_bytes = len(payload)
        try:
            position = _decode_all(payload, batch, wanted, found)
        except IndexError:
            raise_invalid("a record is cut short")
        if position != len(payload):
            raise_invalid(f"{len(payload) - position} bytes follow the last record")
    found.count = len(found.offsets)
    if batch.is_log_append_time:
        found.kind = LOG_APPEND_TIME
        if wanted.timestamps:
            found.timestamps = array("q", (batch.max_timestamp,)) * found.count
    return found


def _add_plain(found: Decoded, batch: Batch, wanted: WantedColumns, limit: int) -> None:
    """Decode a batch with extreme offsets or timestamps, record by record, and put its wanted columns into `found`."""
    every = list(records(batch, limit=limit))
    found.payload_bytes = sum(len(each.key or b"") + len(each.value or b"") for each in every)
    columns: tuple[list[Any], ...] = tuple([list(each) for each in zip(*every, strict=True)] or _lists())
    found.take(columns[0], columns[1], columns[2], columns[3], columns[4], wanted)


def _decode_all(payload: bytes, batch: Batch, wanted: WantedColumns, found: Decoded) -> int:
    """Decode all records, and return the position after them. Consecutive records of one shape (a run, see runs.py) are
    decoded together; while none are found, they are looked for more and more rarely.
    """
    position, left, some = 0, batch.record_count, _FIRST_TRIES
    base_offset, base_timestamp, last_offset = batch.base_offset, batch.base_timestamp, batch.last_offset
    previous = base_offset - 1
    while left:
        run = None
        if left >= WORTH_IT:
            run = run_columns(
                payload,
                position,
                left,
                base_offset,
                base_timestamp,
                with_keys=wanted.keys,
                with_values=wanted.values,
            )
            if run is not None and not (previous < run.offsets[0] and run.offsets[-1] <= last_offset):
                run = None
        if run is not None:
            count, position = run.length, run.end
            found.offsets.extend(run.offsets)
            if wanted.timestamps:
                found.timestamps.extend(_longs(run.timestamps, count))
            if wanted.keys:
                found.keys += islice(run.keys, count)
            if wanted.values:
                found.values += islice(run.values, count)
            if wanted.headers:
                found.headers += repeat((), count)
        else:
            most = min(left, some)
            count, position = _add_usual(payload, position, previous + 1, most, batch, wanted, found)
            if count < WORTH_IT and count < most:
                before = previous - base_offset + count
                odd = min(most - count, WORTH_IT)
                position = _add_singly(payload, position, before, odd, batch, wanted, found)
                count += odd
            some *= 2
        previous = found.offsets[-1]
        left -= count
    return position


def _add_usual(
    payload: bytes, position: int, offset: int, most: int, batch: Batch, wanted: WantedColumns, found: Decoded
) -> tuple[int, int]:
    """Append records by usual_columns(), up to the first that has longer varints than it decodes. Returns their number
    and the position after them. offset: of the first record. most: how many records at most.
    """
    first = offset - batch.base_offset
    most = min(most, batch.last_offset_delta + 1 - first)
    if most <= 0:
        return 0, position
    times, keys, values, headers, end = usual_columns(payload, position, first, most)
    count = len(values)
    found.offsets.extend(range(offset, offset + count))
    if wanted.timestamps:
        base = batch.base_timestamp
        found.timestamps.extend(array("q", [base + each for each in times]))
    if wanted.keys:
        found.keys += islice(keys, count)
    if wanted.values:
        found.values += values
    if wanted.headers:
        found.headers += islice(headers, count)
    return count, end


def _longs(numbers: Iterable[int], count: int) -> "array[int]":
    """Return the first `count` numbers as an array."""
    if isinstance(numbers, repeat):
        return array("q", (next(numbers),)) * count
    return array("q", list(islice(numbers, count)))


def _add_singly(
    payload: bytes, position: int, previous: int, count: int, batch: Batch, wanted: WantedColumns, found: Decoded
) -> int:
    """Append `count` records, decoded one by one. Returns the position after them. previous: offset delta of the
    record before.

    Raises IndexError if a record is cut short, KafkaError if one is malformed.
    """
    times, offsets, keys, values, headers, end = decoded_singly(payload, position, previous, count, batch)
    base_offset, base_timestamp = batch.base_offset, batch.base_timestamp
    found.take(
        [base_offset + each for each in offsets],
        [base_timestamp + each for each in times],
        keys,
        values,
        headers,
        wanted,
    )
    return end


def _lists() -> tuple[list[int], list[int], list[bytes | None], list[bytes | None], list[Headers]]:
    return [], [], [], [], []
