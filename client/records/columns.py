"""Batches of records as columns: only those that are asked for, without an object for each record.

The rule: what a batch gives is what `decoding.records_of` gives, record by record; a column that nobody
asks for is stepped over and not looked into. What decodes the records is what that uses; here they stay columns.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from itertools import islice, repeat
from typing import Any, NamedTuple

from ...protocol.batches import Batch
from ...protocol.records import DECOMPRESSED_LIMIT_BYTES, lies, payload_of, records
from ..values import CREATE_TIME, LOG_APPEND_TIME, Headers
from .runs import WORTH_IT, run_columns
from .singly import decoded_singly
from .usual import usual_columns

_FAR = 1 << 62  # beyond it, timestamps and offsets might leave their range, which `records` looks at
_FIRST_TRIES = 32  # records decoded one by one before a run is looked for again


class WantedColumns(NamedTuple):
    """Which columns are wanted; offsets are always decoded, for they say what belongs to a range."""

    keys: bool = True
    values: bool = True
    headers: bool = True
    timestamps: bool = True


EVERYTHING = WantedColumns()


class Columns:
    """What was decoded so far. payload_bytes: about what it holds."""

    __slots__ = ("asked", "headers", "keys", "kinds", "offsets", "payload_bytes", "timestamps", "values")

    def __init__(self, asked: WantedColumns = EVERYTHING) -> None:
        self.asked = asked
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
        """The records of the batch from offset `low` up to, and without, `high`. Raises: KafkaError, nothing added."""
        found = decoded(batch, self.asked, limit=limit)
        first = 0 if batch.base_offset >= low else bisect_left(found.offsets, low)
        last = found.count if batch.last_offset < high else bisect_left(found.offsets, high)
        whole = not first and last == found.count
        count = last - first
        if count <= 0:
            return
        self.offsets.extend(found.offsets if whole else found.offsets[first:last])
        asked = self.asked
        if asked.timestamps:
            self.kinds.extend(array("i", (found.kind,)) * count)
            self.timestamps.extend(found.timestamps if whole else found.timestamps[first:last])
        if asked.keys:
            self.keys += found.keys if whole else found.keys[first:last]
        if asked.values:
            self.values += found.values if whole else found.values[first:last]
        if asked.headers:
            self.headers += found.headers if whole else found.headers[first:last]
        self.payload_bytes += found.payload_bytes * count // found.count


class Decoded:
    """The records of one batch."""

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
        asked: WantedColumns,
    ) -> None:
        """Append what was asked for."""
        self.offsets.extend(array("q", offsets))
        if asked.timestamps:
            self.timestamps.extend(array("q", timestamps))
        if asked.keys:
            self.keys += keys
        if asked.values:
            self.values += values
        if asked.headers:
            self.headers += headers


def decoded(batch: Batch, asked: WantedColumns = EVERYTHING, *, limit: int = DECOMPRESSED_LIMIT_BYTES) -> Decoded:
    """The asked columns of the batch, in order. limit: bytes of its records, decompressed. Raises: KafkaError."""
    found = Decoded()
    if batch.last_offset >= _FAR or not -_FAR < batch.base_timestamp < _FAR:
        _extend_by_records(found, batch, asked, limit)
    else:
        payload = payload_of(batch, limit)
        found.payload_bytes = len(payload)
        try:
            position = _all(payload, batch, asked, found)
        except IndexError:
            lies("a record is cut short")
        if position != len(payload):
            lies(f"{len(payload) - position} bytes follow the last record")
    found.count = len(found.offsets)
    if batch.is_log_append_time:
        found.kind = LOG_APPEND_TIME
        if asked.timestamps:
            found.timestamps = array("q", (batch.max_timestamp,)) * found.count
    return found


def _extend_by_records(found: Decoded, batch: Batch, asked: WantedColumns, limit: int) -> None:
    every = list(records(batch, limit=limit))
    found.payload_bytes = sum(len(each.key or b"") + len(each.value or b"") for each in every)
    columns: tuple[list[Any], ...] = tuple([list(each) for each in zip(*every, strict=True)] or _lists())
    found.take(columns[0], columns[1], columns[2], columns[3], columns[4], asked)


def _all(payload: bytes, batch: Batch, asked: WantedColumns, found: Decoded) -> int:
    """Runs of records alike where there are such, which are looked for ever more seldom; the rest one by one."""
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
                with_keys=asked.keys,
                with_values=asked.values,
            )
            if run is not None and not (previous < run.offsets[0] and run.offsets[-1] <= last_offset):
                run = None
        if run is not None:
            count, position = run.length, run.end
            found.offsets.extend(run.offsets)
            if asked.timestamps:
                found.timestamps.extend(_longs(run.timestamps, count))
            if asked.keys:
                found.keys += islice(run.keys, count)
            if asked.values:
                found.values += islice(run.values, count)
            if asked.headers:
                found.headers += repeat((), count)
        else:
            most = min(left, some)
            count, position = _usual(payload, position, previous + 1, most, batch, asked, found)
            if count < WORTH_IT and count < most:
                before = previous - base_offset + count
                odd = min(most - count, WORTH_IT)
                position = _singly(payload, position, before, odd, batch, asked, found)
                count += odd
            some *= 2
        previous = found.offsets[-1]
        left -= count
    return position


def _usual(
    payload: bytes, position: int, offset: int, most: int, batch: Batch, asked: WantedColumns, found: Decoded
) -> tuple[int, int]:
    """(how many records stand as they usually do, position after them). offset: the next, if none is left out."""
    first = offset - batch.base_offset
    most = min(most, batch.last_offset_delta + 1 - first)
    if most <= 0:
        return 0, position
    times, keys, values, headers, end = usual_columns(payload, position, first, most)
    count = len(values)
    found.offsets.extend(range(offset, offset + count))
    if asked.timestamps:
        base = batch.base_timestamp
        found.timestamps.extend(array("q", [base + each for each in times]))
    if asked.keys:
        found.keys += islice(keys, count)
    if asked.values:
        found.values += values
    if asked.headers:
        found.headers += islice(headers, count)
    return count, end


def _longs(numbers: Iterable[int], count: int) -> "array[int]":
    if isinstance(numbers, repeat):
        return array("q", (next(numbers),)) * count
    return array("q", list(islice(numbers, count)))


def _singly(
    payload: bytes, position: int, previous: int, count: int, batch: Batch, asked: WantedColumns, found: Decoded
) -> int:
    """Returns the position after the last. previous: offset delta before. Raises: IndexError, KafkaError."""
    times, offsets, keys, values, headers, end = decoded_singly(
        payload, position, previous, count, batch.last_offset_delta
    )
    base_offset, base_timestamp = batch.base_offset, batch.base_timestamp
    found.take(
        [base_offset + each for each in offsets],
        [base_timestamp + each for each in times],
        keys,
        values,
        headers,
        asked,
    )
    return end


def _lists() -> tuple[list[int], list[int], list[bytes | None], list[bytes | None], list[Headers]]:
    return [], [], [], [], []
