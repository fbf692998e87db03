"""Produce, Fetch and ListOffsets requests in few words, for tests of the broker."""

from collections.abc import Iterable
from typing import Any

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.fetch import FetchRequest
from fencepost.protocol.messages.offsets import ListOffsetsRequest
from fencepost.protocol.messages.produce import ProduceRequest
from fencepost.protocol.messages.topics import CreateTopicsRequest
from fencepost.protocol.records import Record, build

NO_ID = bytes(16)
EARLY_MS = 1_700_000_000_000  # when a simulated clock begins


def batch(
    count: int = 1, *, timestamp: int = EARLY_MS, value: bytes = b"v", key: bytes | None = None, **more: Any
) -> bytes:
    """Return one record batch. more: what records.build takes (producer_id, producer_epoch, base_sequence, codec,
    …).
    """
    return build([Record(offset, timestamp, key, value) for offset in range(count)], **more)


def idempotent(sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0, **more: Any) -> bytes:
    """Return a batch of an idempotent producer."""
    return batch(count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **more)


def produce(
    topic: str, *batches: bytes | None, partition: int = 0, acks: int = -1, transactional_id: str | None = None
) -> ProduceRequest:
    """Return a Produce request with these batches for consecutive partitions of one topic."""
    parts = [
        ProduceRequest.Topic.Partition(index=index, records=None if records is None else memoryview(records))
        for index, records in enumerate(batches, partition)
    ]
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=30_000,
        topic_data=[ProduceRequest.Topic(name=topic, partition_data=parts)],
    )


def answers(response: Any) -> list[tuple[int, int]]:
    """Return (error code, base offset) of each partition of a ProduceResponse."""
    return [(part.error_code, part.base_offset) for topic in response.responses for part in topic.partition_responses]


def one(response: Any) -> Any:
    """Return the only partition of a ProduceResponse."""
    ((part,),) = (topic.partition_responses for topic in response.responses)
    return part


def code(response: Any) -> ErrorCode:
    """Return the error code of the only partition of a ProduceResponse."""
    return ErrorCode(one(response).error_code)


def fetch(
    topic: str = "",
    offset: int = 0,
    *,
    partition: int = 0,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 50 << 20,
    partition_max_bytes: int = 1 << 20,
    committed: bool = False,
    session_id: int = 0,
    epoch: int = -1,
    leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
    topic_id: bytes = NO_ID,
    topics: Iterable[FetchRequest.Topic] | None = None,
    forget: Iterable[FetchRequest.ForgottenTopic] = (),
) -> FetchRequest:
    """Return a Fetch request for one partition, or for `topics`."""
    if topics is None:
        part = FetchRequest.Topic.Partition(
            partition=partition,
            fetch_offset=offset,
            partition_max_bytes=partition_max_bytes,
            current_leader_epoch=leader_epoch,
            last_fetched_epoch=last_fetched_epoch,
        )
        topics = [FetchRequest.Topic(topic=topic, topic_id=topic_id, partitions=[part])]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=int(committed),
        session_id=session_id,
        session_epoch=epoch,
        topics=list(topics),
        forgotten_topics_data=list(forget),
    )


def fetched(response: Any) -> Any:
    """Return the only partition of a FetchResponse."""
    ((part,),) = (topic.partitions for topic in response.responses)
    return part


def bytes_of(part: Any) -> bytes:
    """Return the records of a partition of a FetchResponse as one bytes object."""
    return b"".join(part.records)


def list_offsets(
    topic: str, timestamp: int, *, partition: int = 0, committed: bool = False, **more: Any
) -> ListOffsetsRequest:
    """Return a ListOffsets request for one partition."""
    part = ListOffsetsRequest.Topic.Partition(partition_index=partition, timestamp=timestamp, **more)
    return ListOffsetsRequest(
        isolation_level=int(committed), topics=[ListOffsetsRequest.Topic(name=topic, partitions=[part])]
    )


def create(name: str, partitions: int = 1, **configs: object) -> CreateTopicsRequest:
    """Return a CreateTopics request for one topic; `_` in a config's name stands for `.`."""
    given = [
        CreateTopicsRequest.Topic.Config(name=key.replace("_", "."), value=str(value)) for key, value in configs.items()
    ]
    return CreateTopicsRequest(topics=[CreateTopicsRequest.Topic(name=name, num_partitions=partitions, configs=given)])
