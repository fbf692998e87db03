"""The records of one batch as Record tuples, a few at a time, for the consumer.

The rule: for every batch the result is that of `protocol.records.records`: the same records, or a KafkaError if that
raises one. It is only faster. Records of one shape are decoded as columns (`runs`), those with the usual field widths
in few operations (`usual`), the rest one by one (`singly`). A few at a time, because records that are freed before the
next ones are created cost no garbage collection.
"""

from itertools import repeat
from typing import Any, cast

from ...protocol.batches import Batch
from ...protocol.errors import KafkaError
from ...protocol.records import DECOMPRESSED_LIMIT_BYTES, payload_of, raise_invalid, records
from ..values import CREATE_TIME, LOG_APPEND_TIME, Record
from .runs import WORTH_IT, run_of
from .singly import decoded_singly
from .usual import usual_columns

_FAR = 1 << 62  # beyond it, timestamps and offsets may be out of range, which only `records` checks
_FIRST_TRIES = 64  # records decoded otherwise before a run is tried again
_make = cast("Any", tuple).__new__


def records_of(batch: Batch, topic: str, partition: int, *, limit: int = DECOMPRESSED_LIMIT_BYTES) -> list[Record]:
    """Return the records of the batch, in order. limit: their bytes, decompressed. Raises KafkaError."""
    return Records(batch, topic, partition, limit=limit).take(batch.record_count)


class Records:
    """The records of one batch that were not taken yet. left: their number. The constructor and `take` raise
    KafkaError.
    """

    __slots__ = (
        "_batch",
        "_odd",
        "_partition",
        "_payload",
        "_position",
        "_previous",
        "_ready",
        "_run_after",
        "_run_pause",
        "_topic",
        "left",
    )

    def __init__(self, batch: Batch, topic: str, partition: int, *, limit: int = DECOMPRESSED_LIMIT_BYTES) -> None:
        self._batch, self._topic, self._partition = batch, topic, partition
        self.left = batch.record_count
        self._position = 0
        self._previous = -1  # offset delta of the previous record
        self._run_after, self._run_pause = 0, _FIRST_TRIES  # records until a run is tried, and until the one after that
        self._odd = 1  # records that are decoded one by one before `usual` is tried again
        self._ready: list[Record] | None = None
        self._payload = b""
        if batch.last_offset >= _FAR or not -_FAR < batch.base_timestamp < _FAR:
            kind = LOG_APPEND_TIME if batch.is_log_append_time else CREATE_TIME
            self._ready = [Record(topic, partition, r[0], r[1], kind, *r[2:]) for r in records(batch, limit=limit)]
        else:
            self._payload = payload_of(batch, limit)
            if not self.left:
                self._check_end()

    def take(self, most: int) -> list[Record]:
        """Return the next records, at most `most`, which must be above 0 if any are left. Raises KafkaError."""
        most = min(most, self.left)
        if self._ready is not None:
            found = self._ready[:most]
            del self._ready[:most]
            self.left -= most
            return found
        before = self._position, self._previous
        try:
            found = self._take_records(most)
        except KafkaError:
            self._position, self._previous = before  # the next call raises the error again
            raise
        self.left -= most
        if self._batch.is_log_append_time:
            at = self._batch.max_timestamp
            found = [Record(r[0], r[1], r[2], at, LOG_APPEND_TIME, *r[5:]) for r in found]
        return found

    def _take_records(self, most: int) -> list[Record]:
        """Decode and return the next `most` records. Raises KafkaError if one is malformed."""
        found: list[Record] = []
        try:
            while most > len(found):
                run = self._decode_some(most - len(found))
                self._previous = run[-1].offset - self._batch.base_offset
                found = found + run if found else run
        except IndexError:
            raise_invalid("a record is cut short")
        if found and most == self.left:
            self._check_end()
        return found

    def _check_end(self) -> None:
        if self._position != len(self._payload):
            raise_invalid(f"{len(self._payload) - self._position} bytes follow the last record")

    def _decode_some(self, most: int) -> list[Record]:
        """Return at least one record, decoded by the fastest decoder that fits. Where no runs of alike records are
        found, they are looked for ever more rarely.
        """
        batch, payload, topic, partition = self._batch, self._payload, self._topic, self._partition
        first = self._previous + 1
        if most >= WORTH_IT and self._run_after <= 0:
            base = batch.base_offset
            run, after = run_of(payload, self._position, most, base, batch.base_timestamp, topic, partition)
            if run and run[0].offset - base >= first and run[-1].offset <= batch.last_offset:
                self._position = after
                return run
            self._run_after = self._run_pause
            self._run_pause *= 2
        count = min(most, batch.last_offset_delta - self._previous)
        times, keys, values, headers, self._position = usual_columns(payload, self._position, first, count)
        count = len(values)
        self._run_after -= count
        if not count:
            run, self._position = _singly(
                payload, self._position, self._previous, min(most, self._odd), batch, topic, partition
            )
            self._run_after -= len(run)
            self._odd = min(2 * self._odd, _FIRST_TRIES)
            return run
        self._odd = 1
        begin = batch.base_offset + first
        stamps = map(batch.base_timestamp.__add__, times)
        fields = zip(
            repeat(topic),
            repeat(partition),
            range(begin, begin + count),
            stamps,
            repeat(CREATE_TIME),
            keys,
            values,
            headers,
            strict=False,
        )
        return list(map(_make, repeat(Record), fields))


def _singly(
    payload: bytes, position: int, previous: int, count: int, batch: Batch, topic: str, partition: int
) -> tuple[list[Record], int]:
    """Decode `count` records one by one. Returns them and the position after them. previous: offset delta of the
    record before.

    Raises IndexError if a record is cut short, KafkaError if one is malformed.
    """
    times, offsets, keys, values, headers, end = decoded_singly(payload, position, previous, count, batch)
    fields = zip(
        repeat(topic),
        repeat(partition),
        map(batch.base_offset.__add__, offsets),
        map(batch.base_timestamp.__add__, times),
        repeat(CREATE_TIME),
        keys,
        values,
        headers,
        strict=False,
    )
    return list(map(_make, repeat(Record), fields)), end
