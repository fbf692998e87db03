"""What was fetched and not returned yet, in the order of its arrival, and how it is returned. Pure.

The rules: a record is returned only while it is this consumer's. An error of some bytes is raised when they are
reached, after all records before them; what could not be read is given back, so that it is delivered again, and is
archived by the broker after as many deliveries as the group allows. A record that cannot be deserialized is held like
one that was returned, so that the application may reject it; without its word it is given back with the next poll.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from ...protocol.errors import KafkaError
from ..errors import RecordDeserializationError
from ..records.fetched import Fetched
from ..serialization import Deserializer, MessageField, deserializer_of
from ..settings import ShareConsumerSettings
from ..values import Record, ShareRecord, TopicPartition
from .held import Delivery, Held, Session
from .membership import Place


class Times(NamedTuple):
    """One moment, by the monotonic clock and by the wall clock."""

    now_ms: float
    wall_ms: int


class _Arrived:
    """The records of one partition in one ShareFetch response. error: raised after the records were returned. index:
    of the next record to return.
    """

    __slots__ = ("delivery", "error", "index", "records")

    def __init__(self, delivery: Delivery, records: list[Record], error: KafkaError | None) -> None:
        self.delivery = delivery
        self.records = records
        self.error = error
        self.index = 0


class Arrivals:
    """The fetched records that the application has not got yet, in the order of their arrival."""

    def __init__(self, settings: ShareConsumerSettings, held: Held) -> None:
        self._held = held
        self._settings = settings
        self._waiting: deque[_Arrived] = deque()
        self._key = deserializer_of(settings.key_deserializer, MessageField.KEY)
        self._value = deserializer_of(settings.value_deserializer, MessageField.VALUE)
        self._deserializes = self._key is not None or self._value is not None
        self.on_given: Callable[[str, int], None] | None = None  # for metrics: so many records of a topic
        self._unreadable: list[tuple[Delivery, int]] = []  # returned with an error since the last poll

    def add(
        self,
        partition: TopicPartition,
        place: Place,
        session: Session,
        ranges: Sequence[tuple[int, int, int]],
        buffers: Iterable[memoryview | bytes | bytearray],
        now_ms: float,
        lock_ms: int,
    ) -> None:
        """Add fetched bytes of a partition. ranges: the offsets that this consumer acquired, each as first, last
        (inclusive) and delivery count. lock_ms: how long the acquisition lock lasts.
        """
        acquired = _offsets(ranges)
        records, error, unread_from = self._read(partition, min(first for first, _, _ in ranges), buffers)
        records = [record for record in records if record.offset in acquired]
        unread = {offset for offset in acquired if offset >= unread_from} if error is not None else set[int]()
        is_whole = len(records) == len(acquired)
        there = acquired if is_whole else unread.union(record.offset for record in records)
        delivery = self._held.add(partition, place, session, ranges, there, now_ms, lock_ms)
        self._held.release(delivery, unread)
        if records or error is not None:
            self._waiting.append(_Arrived(delivery, records, error))

    def _read(
        self, partition: TopicPartition, first: int, buffers: Iterable[memoryview | bytes | bytearray]
    ) -> tuple[list[Record], KafkaError | None, int]:
        """Decode the records from offset `first` on. Returns them, and None and 0; if the rest cannot be read, the
        error and the offset where the rest begins.
        """
        settings, found = self._settings, list[Record]()
        fetched = Fetched(
            partition, first, -1, buffers, check_crcs=settings.check_crcs, limit=settings.decompressed_limit
        )
        try:
            while run := fetched.run(settings.max_poll_records):
                found += run
        except KafkaError as error:
            return found, error.with_traceback(None), fetched.position
        return found, None, 0

    # ---- returning -------------------------------------------------------------------------------------------

    def begin_poll(self, *, implicit: bool) -> None:
        """Note that the application asks for more records. implicit: accept those that were returned before; else they
        wait for an explicit acknowledgement.
        """
        unreadable, self._unreadable = self._unreadable, []
        for delivery, offset in unreadable:
            self._held.release_returned(delivery, offset)
        if implicit:
            self._held.accept_returned()
        else:
            self._held.forget_returned()

    def has_some(self, now_ms: float) -> bool:
        """Return whether there is a record or an error for the application. Drops records whose lock has ended."""
        while self._waiting:
            arrived = self._waiting[0]
            while arrived.index < len(arrived.records):
                if self._held.may_give(arrived.delivery, arrived.records[arrived.index].offset, now_ms):
                    return True
                arrived.index += 1
            if arrived.error is not None:
                return True
            self._waiting.popleft()
        return False

    def take(self, most: int, at: Times) -> list[ShareRecord]:
        """Return the next records for the application, at most `most`. Raises a fetch error only if no record comes
        before it.
        """
        found: list[ShareRecord] = []
        while len(found) < most and self.has_some(at.now_ms):
            arrived = self._waiting[0]
            if arrived.index == len(arrived.records):
                if not found:
                    error, arrived.error = arrived.error, None
                    assert error is not None
                    raise error
                break
            try:
                self._take_of(arrived, most, at, found)
            except RecordDeserializationError as error:
                if found:
                    break  # it is raised by the next call
                record = arrived.records[arrived.index]
                arrived.index += 1
                error.record = self._give(arrived.delivery, record, at)  # type: ignore[assignment]
                self._unreadable.append((arrived.delivery, record.offset))
                raise
        if found and self.on_given is not None:
            for topic, count in Counter(record.topic for record in found).items():
                self.on_given(topic, count)
        return found

    def _take_of(self, arrived: _Arrived, most: int, at: Times, found: list[ShareRecord]) -> None:
        """Append records of one arrival to `found`, until that has `most`. Raises RecordDeserializationError and does
        not pass over the record.
        """
        held, delivery, records = self._held, arrived.delivery, arrived.records
        while arrived.index < len(records) and len(found) < most:
            record = records[arrived.index]
            if self._deserializes and held.may_give(delivery, record.offset, at.now_ms):
                record = self._deserialize(record)
            given = self._give(delivery, record, at)
            if given is not None:
                found.append(given)
            arrived.index += 1

    def _give(self, delivery: Delivery, record: Record, at: Times) -> ShareRecord | None:
        """Mark the record as returned and make it for the application; None if the consumer no longer has its lock."""
        entry = self._held.give(delivery, record.offset, at.now_ms)
        if entry is None:
            return None
        deadline_ms = at.wall_ms + int(entry.deadline_ms - at.now_ms)
        return ShareRecord._make((*record, entry.deliveries, deadline_ms, delivery.number))

    def _deserialize(self, record: Record) -> Record:
        """Return the record with deserialized key and value. Raises RecordDeserializationError."""
        key, value, topic = self._key, self._value, record.topic
        if key is not None and record.key is not None:
            record = record._replace(key=_convert(key, record, record.key, "key", topic))
        if value is not None and record.value is not None:
            record = record._replace(value=_convert(value, record, record.value, "value", topic))
        return record


def _offsets(ranges: Sequence[tuple[int, int, int]]) -> Collection[int]:
    """Return all offsets of these ranges."""
    if len(ranges) == 1:
        return range(ranges[0][0], ranges[0][1] + 1)
    return {at for first, last, _ in ranges for at in range(first, last + 1)}


def _convert(deserializer: Deserializer, record: Record, data: bytes, what: str, topic: str) -> object:
    """Return the deserialized key or value of a record. what: "key" or "value". Raises RecordDeserializationError."""
    try:
        return deserializer(data, topic, record.headers)
    except Exception as error:
        raise RecordDeserializationError(record, what, error) from error
