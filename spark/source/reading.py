"""Reads and decodes all records of a range of offsets. The next fetch runs while records are decoded.

The rules: reading ends by the offsets of batches, not of records, so it does not wait for records that were compacted
or aborted, or for markers. Transient errors are retried as long as there is progress; deleted records are reported as a
loss, with their offsets. The request contains the topic's id, so that a topic created again under the same name is not
read instead of the planned one.
Source: Kafka's Fetch API; KIP-98, KIP-516.
"""

import asyncio
import logging
from collections.abc import Iterator
from typing import NamedTuple

from ...client.consumer.list_offsets import READ_UNCOMMITTED, list_offsets
from ...client.errors import (
    CorruptRecordError,
    RecordTooLargeError,
    RequestTimedOutError,
    code_of,
    error_of,
    is_retriable,
)
from ...client.net.cluster import Cluster
from ...client.net.retry import Deadline
from ...client.records.columns import Columns, WantedColumns
from ...client.records.isolation import AbortedFilter
from ...client.records.whole_batches import WholeBatches
from ...client.values import TopicPartition
from ...protocol.batches import Batch, CorruptBatch, verify
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.fetch import FetchRequest, FetchResponse
from ...protocol.primitives import ZERO_UUID
from ..client_thread import begin, cluster_for
from ..options import EARLIEST, LATEST, SourceOptions
from .offsets import DataLost, Range, id_text

log = logging.getLogger("fencepost.spark")
PURPOSE = "fetch"
ROWS = 10_000
CHUNK_BYTES = 4 << 20
"""A chunk is yielded when it has this many rows or bytes. It may exceed them by one record batch."""

_BY_ID_FROM = 13  # of Fetch
_HIGHEST_BYTES = (1 << 31) - 1  # the largest value of the request's field
_GONE_AFTER_MS = 5_000  # how long a topic must be missing: a restarted broker may not have it yet
_GONE = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)


class _Answer(NamedTuple):
    """The result of one fetch. found: the batches from `offset` on; None: the range has no more. lost: a text about
    records that were lost before these batches, or why the records end; "" if nothing was lost.

    aborted: (producer id, first offset) of the aborted transactions that the broker lists with them.
    """

    found: WholeBatches | None
    lost: str = ""
    offset: int = -1
    aborted: tuple[tuple[int, int], ...] = ()


def chunks(options: SourceOptions, whole: Range, wanted: WantedColumns) -> Iterator[Columns]:
    """Yield the records of the range that this isolation level may read, in order, some thousands at a time. wanted:
    the columns to decode.

    Raises DataLost, CorruptRecordError, RequestTimedOutError after patience_ms without progress, and the like.
    """
    reading = _Reading(cluster_for(options), options, whole)
    columns = Columns(wanted)
    fetching = begin(reading.fetch(whole.start))
    try:
        while True:
            answer = fetching.result()
            if answer.lost:
                handle_loss(options, answer.lost)
            found = answer.found
            if found is None:
                break
            is_last = found.next_offset >= whole.end
            if not is_last:
                fetching = begin(reading.fetch(found.next_offset))
            isolation = AbortedFilter(answer.aborted)
            for batch in found.batches:
                if batch.base_offset >= whole.end:
                    break
                _add(columns, batch, isolation, answer.offset, whole, options.fetch.decompressed_limit)
                if len(columns) >= ROWS or columns.payload_bytes >= CHUNK_BYTES:
                    yield columns
                    columns = Columns(wanted)
            if is_last:
                break
            if found.damage is not None:
                raise _corrupt(whole, found.next_offset, found.damage.reason)
    finally:
        fetching.cancel()
    if len(columns):
        yield columns


def handle_loss(options: SourceOptions, text: str) -> None:
    """Raise DataLost, or only log the loss if failOnDataLoss is false."""
    if options.fail_on_loss:
        raise DataLost(text)
    log.warning("%s; the query continues, as failOnDataLoss is false", text)


def _add(columns: Columns, batch: Batch, isolation: AbortedFilter, start: int, whole: Range, limit: int) -> None:
    """Check a batch and decode it into the columns, from offset `start` on, unless its transaction was aborted. limit:
    the most bytes that its records may have, decompressed. Raises CorruptRecordError, RecordTooLargeError.
    """
    try:
        verify(batch)  # also a hidden one: its damage may be in the fields by which it is hidden
        if not isolation.hides(batch):
            columns.add(batch, start, whole.end, limit=limit)
    except (CorruptBatch, KafkaError) as damage:
        if isinstance(damage, KafkaError) and damage.code is ErrorCode.MESSAGE_TOO_LARGE:
            raise RecordTooLargeError(
                f"{whole.topic_partition}: at offset {batch.base_offset}: {damage}",
                hint="raise kafka.max.decompressed.bytes, or start a query after this offset to skip it",
            ) from damage
        text = damage.reason if isinstance(damage, CorruptBatch) else str(damage)
        raise _corrupt(whole, batch.base_offset, text) from damage


def _corrupt(whole: Range, offset: int, reason: str) -> CorruptRecordError:
    """Return the error for a damaged batch at this offset. reason: what is wrong with it."""
    return CorruptRecordError(
        f"{whole.topic_partition}: at offset {offset}: {reason}",
        hint="start a query after this offset to skip it",
        partition=whole.topic_partition,
        offset=offset,
    )


async def fetch_once(
    cluster: Cluster,
    options: SourceOptions,
    tp: TopicPartition,
    position: int,
    *,
    max_bytes: int | None = None,
    max_wait_ms: int | None = None,
    replica: int = -1,
    rack_id: str = "",
) -> FetchResponse.Topic.Partition:
    """Fetch one partition once, by topic id if the broker has ids. Returns its part of the response, also with an
    error code. Raises the errors of the request.

    replica: the broker to fetch from, -1 for the leader. rack_id: if it is set, the leader may name a follower and
    return no records.
    """
    fetch = options.fetch
    leader = replica if replica in cluster.metadata.brokers else cluster.metadata.leader(tp)
    if leader is None:
        raise error_of(cluster.metadata.error(tp.topic) or ErrorCode.LEADER_NOT_AVAILABLE, f"{tp} has no leader")
    connection = await cluster.node(leader, PURPOSE)
    version = connection.version_of(FetchRequest)
    topic_id = cluster.metadata.topic_id(tp.topic)
    if version >= _BY_ID_FROM and topic_id == ZERO_UUID:
        version = connection.version_of(FetchRequest, cap=_BY_ID_FROM - 1)
    Topic = FetchRequest.Topic
    wanted = Topic.Partition(
        partition=tp.partition,
        current_leader_epoch=cluster.metadata.leader_epoch(tp),
        fetch_offset=position,
        partition_max_bytes=max_bytes or fetch.max_partition_fetch_bytes,
    )
    wait_ms = fetch.fetch_max_wait_ms if max_wait_ms is None else max_wait_ms
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=fetch.fetch_min_bytes,
        max_bytes=max_bytes or fetch.fetch_max_bytes,
        isolation_level=options.isolation,
        topics=[Topic(topic=tp.topic, topic_id=topic_id, partitions=[wanted])],
        rack_id=rack_id,
    )
    response: FetchResponse = await connection.send(request, version, timeout_ms=fetch.request_timeout_ms + wait_ms)
    if response.error_code:
        raise error_of(response.error_code)
    for topic in response.responses:
        for part in topic.partitions:
            return part
    raise error_of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{tp} is missing in the response")


class _Reading:
    """Fetches the records of one range. Runs in the loop's thread."""

    def __init__(self, cluster: Cluster, options: SourceOptions, whole: Range) -> None:
        self._cluster = cluster
        self._options = options
        self._whole = whole
        self._tp = whole.topic_partition
        self._unknown_since_ms: float | None = None
        self._is_fresh = False
        self._replica = -1  # the follower that the leader has named for our rack (KIP-392)
        self._rack_id = options.fetch.client_rack
        self._most_bytes: int | None = None  # larger for a batch that is larger than the usual limit

    async def fetch(self, position: int) -> _Answer:
        """Wait for records from this offset on and return them. Raises RequestTimedOutError after patience_ms without
        any, and errors that are not retriable.
        """
        cluster = self._cluster
        deadline = Deadline(cluster.environment.clock, self._options.patience_ms)
        failure: KafkaError | None = None
        seen = ""
        lost = ""
        attempt = 0
        while deadline.left_ms() > 0:
            try:
                if gone := await self._why_gone(position):
                    return _Answer(None, gone)
                part = await self._fetch_once(position)
                if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    at, text = await self._out_of_range(position)
                    if at is None:
                        return _Answer(None, text)
                    position, lost = at, text or lost
                elif part.error_code:
                    raise error_of(part.error_code, f"{self._tp}: {code_of(part.error_code).text}")
                else:
                    found = WholeBatches(position, part.records or ())
                    if not found.is_empty:
                        return _Answer(found, lost, position, self._aborted_starts(part))
                    if found.cut_off_bytes:
                        size = min(found.cut_off_bytes, _HIGHEST_BYTES)
                        self._most_bytes = max(size, self._options.fetch.max_partition_fetch_bytes)
                    seen = f"its last stable offset is {part.last_stable_offset}, its end {part.high_watermark}"
                    attempt = 0
                    continue
            except KafkaError as error:
                if not is_retriable(error) and error.code not in _GONE:
                    raise
                failure = error
            await asyncio.sleep(cluster.backoff.delay_ms(attempt, cluster.environment.rng.random()) / 1000)
            attempt += 1
            await self._refresh()
        raise RequestTimedOutError(
            f"{self._tp} returned no record from offset {position} on within {self._options.patience_ms} ms; "
            f"the batch ends at offset {self._whole.end}: {failure or seen}",
            hint="option kafkaConsumer.pollTimeoutMs sets how long to wait",
        ) from failure

    async def _fetch_once(self, position: int) -> FetchResponse.Topic.Partition:
        """Fetch once: from the follower that the leader has named, if any; after its first failure, only from the
        leader.
        """
        cluster, options, tp, most = self._cluster, self._options, self._tp, self._most_bytes
        if self._replica >= 0:
            try:
                part = await fetch_once(cluster, options, tp, position, max_bytes=most, replica=self._replica)
                if not part.error_code:
                    return part
            except KafkaError as error:
                log.info("%s is read from its leader again: %s", tp, error)
            self._replica, self._rack_id = -1, ""
        part = await fetch_once(cluster, options, tp, position, max_bytes=most, rack_id=self._rack_id)
        if self._rack_id and not part.error_code and part.preferred_read_replica >= 0:
            self._replica = part.preferred_read_replica
            return await self._fetch_once(position)
        return part

    async def _refresh(self) -> None:
        """Refresh the topic's metadata. Retriable errors are ignored."""
        try:
            await self._cluster.refresh([self._tp.topic])
        except KafkaError as error:
            if not is_retriable(error):
                raise

    async def _why_gone(self, position: int) -> str:
        """Return why nothing can be read any more: the topic was deleted, or created again. Empty if records can be
        read.
        """
        if not self._is_fresh:  # the metadata may still have a deleted topic
            self._is_fresh = True
            await self._refresh()
        metadata = self._cluster.metadata
        now = id_text(metadata.topic_id(self._tp.topic))
        if now and self._whole.topic_id and now != self._whole.topic_id:
            return (
                f"topic {self._tp.topic} was deleted and created again while {self._tp} was read,"
                f" from offset {position} on"
            )
        now_ms = self._cluster.environment.clock.monotonic_ms()
        if metadata.error(self._tp.topic) not in _GONE:
            self._unknown_since_ms = None
            return ""
        self._unknown_since_ms = self._unknown_since_ms or now_ms
        if now_ms - self._unknown_since_ms < _GONE_AFTER_MS:
            return ""
        return f"partition {self._tp} does not exist any more, with its offsets {position} to {self._whole.end - 1}"

    def _aborted_starts(self, part: FetchResponse.Topic.Partition) -> tuple[tuple[int, int], ...]:
        """Return (producer id, first offset) of the aborted transactions in this response; empty with
        read_uncommitted.
        """
        aborted = part.aborted_transactions if self._options.reads_committed else None
        return tuple((each.producer_id, each.first_offset) for each in aborted or ())

    async def _out_of_range(self, position: int) -> tuple[int | None, str]:
        """Return where to continue after OFFSET_OUT_OF_RANGE: (offset, text about what was lost). The offset is None
        if nothing of the range is left.
        """
        begins = await self._edge_offset(EARLIEST)
        ends = await self._edge_offset(LATEST)
        end = self._whole.end
        if position < begins:
            text = f"the records of {self._tp} from offset {position} to {min(begins, end) - 1} were deleted"
            return (begins if begins < end else None), text
        if position > ends:
            return None, f"the log of {self._tp} ends at offset {ends}, but the batch reads from {position} to {end}"
        return position, ""  # the broker that answered was not up to date

    async def _edge_offset(self, which: int) -> int:
        """Return the partition's earliest or latest offset. which: EARLIEST or LATEST."""
        found = await list_offsets(
            self._cluster, {self._tp: which}, READ_UNCOMMITTED, timeout_ms=self._options.fetch.default_api_timeout_ms
        )
        return found[self._tp].offset
