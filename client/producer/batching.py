"""The accumulator: collects records into batches by partition, in bounded memory, until the sender takes them. Pure.

The rule: a record is only appended to columns; a batch is encoded once, when the sender takes it. Its bytes are never
reused for another batch (CVE-2026-35554), so a delayed write cannot contain other records. A record's memory counts
from the moment it is taken until its batch is finished.
Source: Kafka's RecordAccumulator, ProducerBatch and BufferPool; KIP-91 for deadlines, KIP-480 for records without key.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from ...protocol.batches import HEADER_BYTES, read
from ...protocol.errors import KafkaError
from ...protocol.primitives import ZERO_UUID
from ...protocol.producing import compress_records, frame_batch, payload
from ...protocol.records import records
from ..errors import RecordTooLargeError
from ..partitioner import next_sticky, partition_of
from ..values import Headers, ProducerIdentity, RecordMetadata, TopicPartition, headers_bytes
from .sequences import Numbered, PartitionEntry

RECORD_OVERHEAD_BYTES = 16  # more than the lengths and deltas of a record need, unless the record is huge


class Batch(Numbered):
    """Records of one partition with one sequence number, sent together.

    size_bytes: the memory it counts for. deadline_ms, retry_at_ms: of the monotonic clock. base_offset: -1 if unknown.
    parts: (index of its first record, batch) of each half, if it had to be split.
    """

    __slots__ = (
        "attempts",
        "base_offset",
        "codec",
        "created_ms",
        "deadline_ms",
        "done",
        "error",
        "framed",
        "framed_as",
        "headers",
        "is_awaited",
        "keys",
        "level",
        "log_append_time_ms",
        "numbers",
        "on_done",
        "partition",
        "parts",
        "records",
        "refusal",
        "retry_at_ms",
        "size_bytes",
        "timestamps",
        "values",
    )

    def __init__(self, partition: "Partition", created_ms: int, deadline_ms: int) -> None:
        super().__init__()
        self.partition = partition
        self.created_ms = created_ms
        self.deadline_ms = deadline_ms
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.timestamps: list[int] = []
        self.headers: dict[int, Headers] = {}
        self.size_bytes = 0
        self.codec = 0
        self.level: int | None = None
        self.records = b""
        self.framed = b""
        self.framed_as: tuple[ProducerIdentity | None, int] | None = None
        self.attempts = 0
        self.retry_at_ms = 0
        self.done = False
        self.is_awaited = False
        self.error: Exception | None = None
        self.refusal: KafkaError | None = None  # of the last attempt that failed
        self.base_offset = -1
        self.log_append_time_ms = -1
        self.parts: list[tuple[int, Batch]] = []
        self.on_done: list[Callable[[], None]] = []
        self.numbers: list[int] = []  # of a named producer: the sequence of each record

    def seal(self, codec: int, level: int | None = None) -> None:
        """Accept no more records, and encode and compress those that were appended. codec: Kafka's number of a
        compression type; level: None for its default. Raises KafkaError INVALID_RECORD if the timestamps are too far
        apart.
        """
        self.count = len(self.values)
        self.codec, self.level = codec, level
        self.records = compress_records(codec, payload(self.keys, self.values, self.timestamps, self.headers), level)
        self.keys, self.values, self.headers = [], [], {}

    def frame(self, transactional: bool) -> bytes:
        """Return the batch as bytes with its record batch header. The result is kept, so a retry sends the same bytes,
        until the sequence or the producer identity changes.
        """
        if self.framed_as != (self.identity, self.sequence):
            producer_id, epoch = self.identity or (-1, -1)
            times = self.timestamps
            self.framed = frame_batch(
                self.records,
                self.count,
                times[0],
                max(times),
                codec=self.codec,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=self.sequence,
                transactional=transactional,
            )
            self.framed_as = (self.identity, self.sequence)
        return self.framed

    @property
    def may_be_split(self) -> bool:
        """Return whether the batch has several records and is larger than any that its topic has taken."""
        return self.count > 1 and len(self.records) > self.partition.topic.largest_written

    def halves(self, transactional: bool) -> "list[Batch]":
        """Return two new sealed batches with half of the records each, in order, and remember them in `parts`."""
        rows = list(records(read(memoryview(self.frame(transactional))), limit=1 << 31))
        middle = (len(rows) + 1) // 2
        parts: list[Batch] = []
        for start, own in ((0, rows[:middle]), (middle, rows[middle:])):
            part = Batch(self.partition, self.created_ms, self.deadline_ms)
            part.keys = [row.key for row in own]
            part.values = [row.value for row in own]
            part.timestamps = [row.timestamp for row in own]
            part.headers = {index: row.headers for index, row in enumerate(own) if row.headers}
            part.numbers = self.numbers[start : start + len(own)]
            part.size_bytes = self.size_bytes * len(own) // len(rows)
            part.seal(self.codec, self.level)
            parts.append(part)
            self.parts.append((start, part))
        parts[1].size_bytes = self.size_bytes - parts[0].size_bytes
        return parts

    def finish(self, error: Exception | None = None) -> None:
        """Mark the batch as done, free its contents, and call the functions in on_done. error: None for success."""
        self.done = True
        self.error = error
        self.records = self.framed = b""
        self.keys, self.values, self.headers = [], [], {}
        calls, self.on_done = self.on_done, []
        for call in calls:
            call()

    def metadata(self, index: int) -> RecordMetadata:
        """Return topic, partition, offset and timestamp of the record at `index` of a finished batch. The offset is -1
        if the broker has not returned it. Raises the batch's error.
        """
        for start, part in reversed(self.parts):
            if index >= start:
                return part.metadata(index - start)
        if self.error is not None:
            raise self.error.with_traceback(None)  # else its traceback grows with each raise
        at = self.log_append_time_ms if self.log_append_time_ms >= 0 else self.timestamps[index]
        topic, partition = self.partition.topic_partition
        return RecordMetadata(topic, partition, self.base_offset + index if self.base_offset >= 0 else -1, at)


class Partition:
    """The batches of one partition: the open one, which is being filled, the sealed ones, which wait to be sent, and
    the sent ones (`entry`).
    """

    __slots__ = ("entry", "index", "open", "sealed", "topic", "topic_partition")

    def __init__(self, topic: "Topic", index: int) -> None:
        self.topic = topic
        self.index = index
        self.topic_partition = TopicPartition(topic.name, index)
        self.open: Batch | None = None
        self.sealed: deque[Batch] = deque()
        self.entry = PartitionEntry()

    @property
    def is_idle(self) -> bool:
        """Return whether no batch of the partition is being filled, waits to be sent, or waits for its result."""
        return self.open is None and not self.sealed and not self.entry.window


class Topic:
    """A topic's partitions. They are kept for ever: a topic that is missing from metadata for a while keeps its
    sequences.

    largest_written: the bytes of the largest batch that was acknowledged since one was too large for the topic.
    """

    __slots__ = ("available", "count", "largest_written", "name", "partitions", "sticky", "topic_id")

    def __init__(self, name: str, count: int, available: Sequence[int], random_number: int) -> None:
        self.name = name
        self.partitions: list[Partition] = []
        self.available: Sequence[int] = available
        self.count = self.largest_written = 0
        self.topic_id = ZERO_UUID
        self._resize(count)
        self.sticky = self.partitions[next_sticky(-1, available or range(count), random_number)]

    def update(self, count: int, topic_id: bytes, available: Sequence[int], random_number: int) -> None:
        """Apply new metadata. A topic with the same id never shrinks: fewer partitions come from a broker with stale
        metadata. A topic that was created again may have fewer; without topic ids, fewer are accepted at once.
        """
        is_the_same = topic_id == self.topic_id != ZERO_UUID
        self._resize(max(count, self.count) if is_the_same else count)
        self.topic_id, self.available = topic_id, available
        if available and self.sticky.index not in available:
            self.sticky = self.partitions[next_sticky(-1, available, random_number)]

    def _resize(self, count: int) -> None:
        """Set the number of partitions; removed ones keep their batches."""
        self.partitions += [Partition(self, index) for index in range(len(self.partitions), count)]
        self.count = count


class Accumulator:
    """All records that were taken and whose batch is not finished.

    active: partitions with unfinished batches, in the order in which the sender serves them. incomplete: unfinished
    batches, oldest first. filled: set whenever a batch has become full. on_room: called when memory is freed; on_batch:
    called when a batch is opened. now_ms: returns the time of the monotonic clock. random_number: returns a random int
    >= 0.
    """

    def __init__(
        self,
        *,
        now_ms: Callable[[], int],
        max_batch_bytes: int,
        max_record_bytes: int,
        memory_bytes: int,
        delivery_timeout_ms: int,
        linger_ms: float = 0,
        codec: int = 0,
        level: int | None = None,
        random_number: Callable[[], int] = lambda: 0,
    ) -> None:
        self.topics: dict[str, Topic] = {}
        self.active: dict[Partition, None] = {}
        self.incomplete: dict[Batch, None] = {}
        self.memory_bytes = memory_bytes
        self.free_bytes = memory_bytes
        self.filled = False
        self.waiting = 0  # calls that wait for room; new calls wait behind them
        self.hurried = 0  # calls of flush that are running: batches do not linger
        self.on_finished: Callable[[Batch, Exception | None], None] | None = None  # counts, for ClientMetrics
        self.on_room: Callable[[], Any] | None = None
        self.on_batch: Callable[[], Any] | None = None
        self.random_number = random_number
        self._now_ms = now_ms
        self._max_batch_bytes = max_batch_bytes
        self._largest_bytes = min(max_record_bytes, memory_bytes)
        self._delivery_timeout_ms = delivery_timeout_ms
        self._linger_ms = linger_ms
        self._codec, self._level = codec, level

    # ---- taking records --------------------------------------------------------------------------------------------

    def append(
        self,
        topic: Topic,
        index: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Headers | None,
        timestamp_ms: int,
    ) -> tuple[Batch, int] | None:
        """Append a record to the partition's open batch. Returns the batch and the record's index in it; None if the
        memory limit does not allow another record now.

        index: the partition; None: chosen by the key, or the topic's current one for records without a key. Raises
        RecordTooLargeError.
        """
        if index is not None:
            partition = topic.partitions[index]
        elif key is None:
            partition = topic.sticky
        else:
            partition = topic.partitions[partition_of(key, topic.count)]
        size = RECORD_OVERHEAD_BYTES
        if value is not None:
            size += len(value)
        if key is not None:
            size += len(key)
        if headers:
            size += headers_bytes(headers)
        batch = partition.open
        if batch is None or size > self.free_bytes or batch.size_bytes + size > self._max_batch_bytes:
            if size > self._largest_bytes:
                raise RecordTooLargeError(
                    f"record of {size:,} bytes is larger than the maximum of {self._largest_bytes:,}",
                    hint="raise max_request_size, and the topic's max.message.bytes",
                )
            if size > self.free_bytes:
                return None
            if batch is not None:
                self._close(partition, batch)
                if index is None and key is None:
                    partition = topic.sticky
                    other = partition.open
                    if other is not None and other.size_bytes + size > self._max_batch_bytes:
                        self._close(partition, other)
            batch = partition.open or self._open_batch(partition)
        self.free_bytes -= size
        batch.size_bytes += size
        values = batch.values
        number = len(values)
        values.append(value)
        batch.keys.append(key)
        batch.timestamps.append(timestamp_ms)
        if headers:
            batch.headers[number] = headers
        return batch, number

    def may_grow(self, batch: Batch, number: int, more: int) -> bool:
        """Return whether the record at this index of the batch would still be sendable, in a batch of its own, with
        `more` bytes added.
        """
        size = len(batch.keys[number] or b"") + len(batch.values[number] or b"") + more
        size += headers_bytes(batch.headers.get(number, ()))
        return HEADER_BYTES + RECORD_OVERHEAD_BYTES + size <= self._largest_bytes

    def extend(
        self, topic: Topic, values: Sequence[bytes | None], start: int, timestamp_ms: int
    ) -> tuple[Batch, int, int] | None:
        """Append values without keys, from index `start` on, as many as fit into one batch. Returns the batch, the
        index of the first value in it, and how many were appended.

        The cost hardly depends on their number. Returns None if the memory limit does not allow another record now.
        Raises RecordTooLargeError.
        """
        first = values[start]
        placed = self.append(topic, None, None, first, None, timestamp_ms)
        if placed is None:
            return None
        batch, index = placed
        room = min(self.free_bytes, self._max_batch_bytes - batch.size_bytes)
        likely = room // (RECORD_OVERHEAD_BYTES + len(first or b"")) + 8
        more = values[start + 1 : start + 1 + likely]
        try:
            sums = list(accumulate(map(len, more)))  # type: ignore[arg-type]
        except TypeError:
            sums = list(accumulate(len(each or b"") for each in more))
        count = bisect_right(range(len(sums)), room, key=lambda at: sums[at] + RECORD_OVERHEAD_BYTES * (at + 1))
        if count:
            size = sums[count - 1] + RECORD_OVERHEAD_BYTES * count
            self.free_bytes -= size
            batch.size_bytes += size
            batch.values.extend(more[:count])
            batch.keys.extend([None] * count)
            batch.timestamps.extend([timestamp_ms] * count)
        return batch, index, 1 + count

    def _close(self, partition: Partition, batch: Batch) -> None:
        """Move a full batch to those that wait to be sent. The next record opens another batch; one without a key goes
        to another partition.
        """
        partition.sealed.append(batch)
        partition.open = None
        self.filled = True
        self.move_on(partition)

    def move_on(self, partition: Partition) -> None:
        """If this is the topic's current partition for records without a key, choose another one."""
        topic = partition.topic
        if topic.sticky is partition and topic.count > 1:
            available = topic.available or range(topic.count)
            topic.sticky = topic.partitions[next_sticky(partition.index, available, self.random_number())]

    def _open_batch(self, partition: Partition) -> Batch:
        """Begin an empty batch of this partition, with its delivery timeout starting now."""
        now_ms = self._now_ms()
        batch = partition.open = Batch(partition, now_ms, now_ms + self._delivery_timeout_ms)
        self.incomplete[batch] = None
        self.active[partition] = None
        if self.on_batch is not None:
            self.on_batch()
        return batch

    # ---- batches for the sender ------------------------------------------------------------------------------------

    def ready_at(self, partition: Partition) -> float | None:
        """Return when the partition's next batch that was never sent may be sent, in ms of the monotonic clock; 0 for
        now, None if there is no such batch.
        """
        if partition.sealed or (partition.open is not None and (self.hurried or self.waiting)):
            return 0
        return None if partition.open is None else partition.open.created_ms + self._linger_ms

    def are_all_sent(self) -> bool:
        """Return whether all batches that are not acknowledged are on their way, each for the first time, and none of
        them has to be split if the topic's max.message.bytes is small.
        """
        return all(batch.on_the_way and batch.attempts == 1 and not batch.may_be_split for batch in self.incomplete)

    def peek(self, partition: Partition) -> Batch:
        """Return the partition's oldest batch that was never sent, without taking it. There must be one."""
        batch = partition.sealed[0] if partition.sealed else partition.open
        assert batch is not None
        return batch

    def take(self, partition: Partition) -> Batch:
        """Take the partition's oldest batch that was never sent, and encode it. Raises KafkaError if it cannot be
        encoded; it is taken even then.
        """
        batch = self.peek(partition)
        if partition.sealed:
            partition.sealed.popleft()
        else:
            partition.open = None
            self.move_on(partition)
        batch.seal(self._codec, self._level)
        return batch

    def served(self, partition: Partition) -> None:
        """Move the partition to the end of `active`, since a batch of it was put into a request; remove it from there
        if it has no other batches.
        """
        del self.active[partition]
        if not partition.is_idle:
            self.active[partition] = None

    # ---- the end of batches ----------------------------------------------------------------------------------------

    def split(self, batch: Batch, transactional: bool) -> list[Batch]:
        """Replace the batch by its two halves; it is done when both are."""
        parts = batch.halves(transactional)
        batch.partition.topic.largest_written = 0
        left = len(parts)
        batch.records = batch.framed = b""
        del self.incomplete[batch]

        def part_done() -> None:
            """Finish the whole batch when both halves are done, with the error of the first half that has one."""
            nonlocal left
            left -= 1
            if not left:
                batch.finish(next((part.error for part in parts if part.error), None))

        for part in parts:
            self.incomplete[part] = None
            part.is_awaited = batch.is_awaited
            part.on_done.append(part_done)
        return parts

    def finish(self, batch: Batch, error: Exception | None = None) -> None:
        """Finish the batch and free its memory."""
        if batch.done:
            return
        self.incomplete.pop(batch, None)
        topic = batch.partition.topic
        if error is None and len(batch.records) > topic.largest_written:
            topic.largest_written = len(batch.records)
        self.free_bytes += batch.size_bytes
        if self.on_finished is not None:
            self.on_finished(batch, error)
        batch.finish(error)
        if batch.partition.is_idle:
            self.active.pop(batch.partition, None)
        if self.on_room is not None:
            self.on_room()

    def expired(self, now_ms: int) -> list[Batch]:
        """Return the batches whose delivery deadline is at or before now_ms, oldest first."""
        return [batch for batch in self.incomplete if batch.deadline_ms <= now_ms]

    def first_deadline_ms(self) -> int | None:
        """Return the earliest deadline of an unfinished batch, None without one. It may not be the first batch's:
        halves keep the whole batch's deadline.
        """
        return min((batch.deadline_ms for batch in self.incomplete), default=None)

    def withdraw(self, batch: Batch) -> None:
        """Remove a batch that was never sent from its partition's waiting batches. Any other batch is left."""
        partition = batch.partition
        if partition.open is batch:
            partition.open = None
        elif batch in partition.sealed:
            partition.sealed.remove(batch)
