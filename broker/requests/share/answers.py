"""What a ShareFetch answers: of each partition what was acquired, in whole batches, and what is wrong."""

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

Answer = ShareFetchResponse.Topic.Partition


class SharedRead:
    """One partition of the fetch: what was acquired of it."""

    __slots__ = ("acquired", "buffers", "key", "max_bytes", "partition")

    def __init__(self, key: SharePartitionKey, partition: Partition) -> None:
        self.key = key
        self.partition = partition
        self.max_bytes = 0
        self.buffers: list[Buffer] = []
        self.acquired: list[AcquiredRange] = []

    @property
    def place(self) -> TopicIdPartition:
        return self.key.topic_id, self.key.partition

    def answer(self) -> Answer:
        """What the member gets of it."""
        ranges = cast(list[Answer.AcquiredRecords], Rows(self.acquired))
        return Answer(partition_index=self.key.partition, records=self.buffers, acquired_records=ranges)


def share_response(
    broker: "Services",
    group: str,
    answers: dict[TopicIdPartition, Answer],
    acknowledged: dict[TopicIdPartition, KafkaError | None],
) -> ShareFetchResponse:
    """The response of these partitions, and of those that only had acknowledgements."""
    for place, error in acknowledged.items():
        answer = answers.setdefault(place, Answer(partition_index=place[1]))
        if error is not None:
            answer.acknowledge_error_code, answer.acknowledge_error_message = int(error.code), error.text
    topics: dict[bytes, list[Answer]] = {}
    for (topic_id, _), answer in answers.items():
        topics.setdefault(topic_id, []).append(answer)
    return ShareFetchResponse(
        acquisition_lock_timeout_ms=broker.share_partitions.lock_timeout_ms(group),
        responses=[ShareFetchResponse.Topic(topic_id=topic, partitions=parts) for topic, parts in topics.items()],
    )


def refused(place: TopicIdPartition, error: KafkaError) -> Answer:
    """The answer about a partition of which nothing can be acquired."""
    return Answer(partition_index=place[1], error_code=int(error.code), error_message=error.text)


def pieces_of(batches: Sequence[Header], acquired: Sequence[AcquiredRange]) -> list[tuple[int, int]]:
    """Where those batches lie of which something was acquired: (begin, end) of each run of them."""
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
    return batch.record_count > 0 and not batch.is_control
