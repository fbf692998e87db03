"""Admin's reading: the raw batches of a partition, with transaction markers and aborted records.

For tools that show a log as it is. Applications read with a consumer.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from ...protocol.batches import Batch, CorruptBatch, verify
from ...protocol.errors import KafkaError
from ...protocol.messages.fetch import FetchRequest, FetchResponse
from ..errors import CorruptRecordError, RecordTooLargeError
from ..records.whole_batches import WholeBatches
from ..settings import IsolationLevel
from ..values import TopicPartition
from .asking import Answer, Asking, refuse

FETCH_BYTES = 1 << 20
MAX_BYTES = 128 << 20  # for a batch that is larger than FETCH_BYTES and that an old broker cuts off
_BY_NAME_UNTIL = 12  # of Fetch
_WAIT_MS = 500


@dataclass(frozen=True, slots=True)
class FetchedPage:
    """The batches of one fetch that are whole and undamaged, with markers and aborted records, and where the partition
    ended.

    aborted: (producer id, first offset) of each aborted transaction that overlaps with a read_committed fetch.
    next_offset: where the next page begins; the offset of this one if it is the end for the isolation level.
    asked_bytes: how many were requested in the end; more than usual if the first batch is large.
    """

    batches: list[Batch]
    aborted: list[tuple[int, int]]
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    next_offset: int
    asked_bytes: int


class ReadingAdmin(Asking):
    """Raw batches of partitions, with markers and aborted records."""

    async def read_batches(self, partition: TopicPartition, start: int, end: int) -> AsyncIterator[Batch]:
        """Yield the batches from offset `start` up to `end` (exclusive), or up to the end of the log.

        Raises OFFSET_OUT_OF_RANGE if the log begins above `start`; CorruptRecordError or RecordTooLargeError when the
        batches before the damaged or too large one have been yielded.
        """
        position, ask_bytes = start, FETCH_BYTES
        while position < end:
            page = await self._read_page(partition, position, ask_bytes, wait_ms=_WAIT_MS)
            for batch in page.batches:
                if batch.base_offset >= end:
                    return
                yield batch
            if page.next_offset == position:
                return
            position, ask_bytes = page.next_offset, page.asked_bytes

    async def read_page(
        self,
        partition: TopicPartition,
        start: int,
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
        most_bytes: int = MAX_BYTES,
        retry: bool = True,
    ) -> FetchedPage:
        """Return the batches from offset `start` on, about a megabyte of them, without waiting for more. retry: whether
        to wait for the partition's leader if that has no answer now.

        Raises OFFSET_OUT_OF_RANGE; CorruptRecordError if the first batch is damaged; RecordTooLargeError if it is
        larger than most_bytes.
        """
        isolation = 1 if isolation_level == "read_committed" else 0
        ask_bytes = min(FETCH_BYTES, most_bytes)
        return await self._read_page(partition, start, ask_bytes, most_bytes, isolation, retry=retry)

    async def _read_page(
        self,
        partition: TopicPartition,
        start: int,
        ask_bytes: int,
        most_bytes: int = MAX_BYTES,
        isolation: int = 0,
        wait_ms: int = 0,
        retry: bool = True,
    ) -> FetchedPage:
        """Fetch, each time more bytes, until the answer contains a whole batch or nothing; return that page.

        Raises CorruptRecordError if the first batch is damaged, RecordTooLargeError if it is larger than most_bytes.
        """
        partition = TopicPartition(*partition)
        while True:
            found = await self._fetch(partition, start, ask_bytes, isolation, wait_ms, retry)
            position, batches = start, list[Batch]()
            whole = WholeBatches(start, found.records or ())
            damage = whole.damage
            for batch in whole.batches:
                try:
                    verify(batch)
                except CorruptBatch as bad:
                    damage = bad
                    break
                if batch.next_offset > position:
                    position = batch.next_offset
                    batches.append(batch)
            if damage is not None and not batches:
                raise _corrupt(partition, position, damage)
            if batches or not whole.size:
                return _page(found, batches, position, ask_bytes)
            if ask_bytes >= most_bytes:
                raise RecordTooLargeError(f"{partition}: the batch at offset {start} has more than {most_bytes} bytes")
            ask_bytes = min(max(whole.cut_off_bytes, 2 * ask_bytes), most_bytes)

    async def _fetch(
        self, partition: TopicPartition, offset: int, max_bytes: int, isolation: int, wait_ms: int, retry: bool
    ) -> FetchResponse.Topic.Partition:
        """Fetch once from this offset, and return the partition's answer. isolation: Kafka's number. retry: whether to
        wait for a leader that does not answer; if not, its error is raised.
        """
        Topic = FetchRequest.Topic
        wanted = Topic.Partition(partition=partition.partition, fetch_offset=offset, partition_max_bytes=max_bytes)

        def request(_: list[TopicPartition]) -> FetchRequest:
            """Return the Fetch request; it asks for the log with its markers and aborted records."""
            topics = [Topic(topic=partition.topic, partitions=[wanted])]
            return FetchRequest(
                max_wait_ms=wait_ms,
                min_bytes=1,
                max_bytes=max_bytes,
                isolation_level=isolation,
                topics=topics,
                raw=True,  # the log as it is, where that is allowed
            )

        unavailable: dict[TopicPartition, KafkaError] | None = None if retry else {}
        found = await self._at_leaders([partition], request, _parts, cap=_BY_NAME_UNTIL, unavailable=unavailable)
        if unavailable:
            raise unavailable[partition]
        return found[partition]


def _page(
    found: FetchResponse.Topic.Partition, batches: list[Batch], next_offset: int, asked_bytes: int
) -> FetchedPage:
    """Return the page with these batches, and the ends of the partition from the answer."""
    aborted = [(each.producer_id, each.first_offset) for each in found.aborted_transactions or ()]
    stable = found.last_stable_offset if found.last_stable_offset >= 0 else found.high_watermark
    high_watermark = found.high_watermark
    return FetchedPage(batches, aborted, found.log_start_offset, stable, high_watermark, next_offset, asked_bytes)


def _parts(
    response: FetchResponse,
) -> "list[tuple[TopicPartition, int, None, FetchResponse.Topic.Partition]]":
    """Return partition, error code and answer for each partition in a Fetch response. Raises the response's
    own error.
    """
    refuse([Answer("fetch", response.error_code)])
    return [
        (TopicPartition(topic.topic, each.partition_index), each.error_code, None, each)
        for topic in response.responses
        for each in topic.partitions
    ]


def _corrupt(partition: TopicPartition, offset: int, damage: CorruptBatch) -> CorruptRecordError:
    text = f"{partition}: at offset {offset}: {damage.reason}"
    return CorruptRecordError(text, partition=partition, offset=offset)
