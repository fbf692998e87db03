"""Makes the answer of a ShareFetch: for each partition the acquired records, in whole batches, or its error."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from ....effects.disk import Buffer
from ....protocol.encoding import Rows
from ....protocol.errors import KafkaError
from ....protocol.messages.share_fetch import ShareFetchResponse
from ...share.values import AcquiredRange, SharePartitionKey
from ...topics.names import TopicIdPartition
from ...topics.partition import Partition
from ..aborted_filter import Header

if TYPE_CHECKING:
    from ..services import Services

PartitionAnswer = ShareFetchResponse.Topic.Partition


class ShareRead:
    """One partition of a ShareFetch, with the batches and the ranges of records that the member has acquired."""

    __slots__ = ("acquired", "buffers", "key", "max_bytes", "partition")

    def __init__(self, key: SharePartitionKey, partition: Partition) -> None:
        self.key = key
        self.partition = partition
        self.max_bytes = 0
        self.buffers: list[Buffer] = []
        self.acquired: list[AcquiredRange] = []

    @property
    def place(self) -> TopicIdPartition:
        """The topic id and partition index."""
        return self.key.topic_id, self.key.partition

    def answer(self) -> PartitionAnswer:
        """Return the partition's part of the response."""
        ranges = cast(list[PartitionAnswer.AcquiredRecords], Rows(self.acquired))
        return PartitionAnswer(partition_index=self.key.partition, records=self.buffers, acquired_records=ranges)


def share_response(
    broker: "Services",
    group: str,
    answers: dict[TopicIdPartition, PartitionAnswer],
    acknowledged: dict[TopicIdPartition, KafkaError | None],
) -> ShareFetchResponse:
    """Return the response with these partitions, and with those that only had acknowledgements.

    acknowledged: by partition, the error of its acknowledgements; None for success.
    """
    for place, error in acknowledged.items():
        answer = answers.setdefault(place, PartitionAnswer(partition_index=place[1]))
        if error is not None:
            answer.acknowledge_error_code, answer.acknowledge_error_message = int(error.code), error.text
    topics: dict[bytes, list[PartitionAnswer]] = {}
    for (topic_id, _), answer in answers.items():
        topics.setdefault(topic_id, []).append(answer)
    return ShareFetchResponse(
        acquisition_lock_timeout_ms=broker.share_partitions.lock_timeout_ms(group),
        responses=[ShareFetchResponse.Topic(topic_id=topic, partitions=parts) for topic, parts in topics.items()],
    )


def refused(place: TopicIdPartition, error: KafkaError) -> PartitionAnswer:
    """Return the answer of a partition from which nothing can be acquired."""
    return PartitionAnswer(partition_index=place[1], error_code=int(error.code), error_message=error.text)


def pieces_of(batches: Sequence[Header], acquired: Sequence[AcquiredRange]) -> list[tuple[int, int]]:
    """Return the byte ranges (begin, exclusive end) of the batches that contain acquired records. Adjacent ranges are
    merged.

    Both arguments are in offset order.
    """
    pieces: list[tuple[int, int]] = []
    at = 0
    for batch in batches:
        while at < len(acquired) and acquired[at].last < batch.base_offset:
            at += 1
        if at == len(acquired):
            break
        if acquired[at].first > batch.last_offset:
            continue
        if pieces and pieces[-1][1] == batch.position:
            pieces[-1] = pieces[-1][0], batch.end
        else:
            pieces.append((batch.position, batch.end))
    return pieces


def is_data(batch: Header) -> bool:
    """Return whether the batch has records of producers: it is neither empty nor a control batch."""
    return batch.record_count > 0 and not batch.is_control
