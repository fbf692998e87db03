"""Admin's reading: the raw batches of a partition, with transaction markers and aborted records.

For tools that show a log as it is. Applications read with a consumer.
"""

from collections.abc import AsyncIterator

from ...protocol.batches import Batch, CorruptBatch, verify
from ...protocol.messages.fetch import FetchRequest, FetchResponse
from ..errors import CorruptRecordError, RecordTooLargeError
from ..records.whole_batches import WholeBatches
from ..values import TopicPartition
from .asking import Answer, Asking, refuse

FETCH_BYTES = 1 << 20
MOST_BYTES = 128 << 20  # for a batch that is larger than FETCH_BYTES and that an old broker cuts off
_BY_NAME_UNTIL = 12  # of Fetch
_WAIT_MS = 500


class ReadingAdmin(Asking):
    """Raw batches."""

    async def read_batches(self, partition: TopicPartition, start: int, end: int) -> AsyncIterator[Batch]:
        """The batches from offset `start` up to `end` (exclusive), or up to the end of the log.

        Raises OFFSET_OUT_OF_RANGE if the log begins above `start`; CorruptRecordError or RecordTooLargeError after the
        last batch before the damaged or too large one.
        """
        partition, position, max_bytes = TopicPartition(*partition), start, FETCH_BYTES
        while position < end:
            found = await self._fetch(partition, position, max_bytes)
            before, whole = position, WholeBatches(position, found.records or ())
            for batch in whole.batches:
                if batch.base_offset >= end:
                    return
                try:
                    verify(batch)
                except CorruptBatch as damage:
                    raise _corrupt(partition, position, damage) from None
                if batch.next_offset > position:
                    position = batch.next_offset
                    yield batch
            if whole.damage is not None:
                raise _corrupt(partition, position, whole.damage)
            if position == before:
                if not whole.size:
                    return
                if max_bytes == MOST_BYTES:
                    raise RecordTooLargeError(f"{partition}: at offset {position}: a batch of over {MOST_BYTES} bytes")
                max_bytes = min(max(whole.cut_off_bytes, 2 * max_bytes), MOST_BYTES)

    async def _fetch(self, partition: TopicPartition, offset: int, max_bytes: int) -> FetchResponse.Topic.Partition:
        Topic = FetchRequest.Topic
        wanted = Topic.Partition(partition=partition.partition, fetch_offset=offset, partition_max_bytes=max_bytes)

        def request(_: list[TopicPartition]) -> FetchRequest:
            topics = [Topic(topic=partition.topic, partitions=[wanted])]
            return FetchRequest(max_wait_ms=_WAIT_MS, min_bytes=1, max_bytes=max_bytes, topics=topics)

        found = await self._at_leaders([partition], request, _parts, cap=_BY_NAME_UNTIL)
        return found[partition]


def _parts(
    response: FetchResponse,
) -> "list[tuple[TopicPartition, int, None, FetchResponse.Topic.Partition]]":
    refuse([Answer("fetch", response.error_code)])
    return [
        (TopicPartition(topic.topic, each.partition_index), each.error_code, None, each)
        for topic in response.responses
        for each in topic.partitions
    ]


def _corrupt(partition: TopicPartition, offset: int, damage: CorruptBatch) -> CorruptRecordError:
    text = f"{partition}: at offset {offset}: {damage.reason}"
    return CorruptRecordError(text, partition=partition, offset=offset)
