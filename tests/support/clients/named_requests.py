"""Requests of named producers in few words, over a simulated broker's own connection."""

from typing import Any

from fencepost.protocol.messages.named_producers import (
    ANEW,
    DescribeNamedProducersRequest,
    OpenNamedProducerRequest,
    RemoveNamedProducersRequest,
)
from fencepost.protocol.messages.produce import ProduceRequest, ProducerName
from fencepost.protocol.producing import frame_batch, payload

Part = ProduceRequest.Topic.Partition


def opening(name: str, epoch: int = ANEW, **topics: int) -> OpenNamedProducerRequest:
    """Return an OpenNamedProducer request. topics: the number of partitions that the client knows of, by topic."""
    made = [OpenNamedProducerRequest.Topic(name=topic, partition_count=count) for topic, count in topics.items()]
    return OpenNamedProducerRequest(name=name, epoch=epoch, topics=made)


def opened(client: Any, name: str, **topics: int) -> int:
    """Open a named producer, and return its epoch."""
    answer = client.ask(opening(name, **topics))
    assert [answer.error_code, *(topic.error_code for topic in answer.topics)] == [0] * (1 + len(topics))
    return int(answer.epoch)


def highest(client: Any, name: str, epoch: int, topic: str = "t", count: int = 2) -> dict[int, int]:
    """Return the highest sequence that the broker has of this producer, by partition."""
    (found,) = client.ask(opening(name, epoch, **{topic: count})).topics
    assert found.error_code == 0, found
    return {each.index: each.highest for each in found.partitions}


def numbered_batch(values: list[bytes], *, producer_id: int = -1, transactional: bool = False) -> bytes:
    """Return the bytes of one batch with these values."""
    count = len(values)
    stamps = [1_000_000] * count
    return frame_batch(
        payload([None] * count, values, stamps, {}),
        count,
        stamps[0],
        stamps[0],
        codec=0,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
        transactional=transactional,
    )


def writing(
    name: str | None,
    epoch: int,
    sequences: list[int],
    *,
    topic: str = "t",
    partition: int = 0,
    acks: int = -1,
    **more: Any,
) -> ProduceRequest:
    """Return a Produce request of one batch with these sequences, whose values are the sequences. more: of
    numbered_batch.
    """
    records = memoryview(numbered_batch([b"%d" % each for each in sequences], **more))
    between = Part.Sequences(first=sequences[0], last=sequences[-1])
    part = Part(index=partition, records=records, sequences=between)
    return ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[ProduceRequest.Topic(name=topic, partition_data=[part])],
        producer=None if name is None else ProducerName(name=name, epoch=epoch),
    )


def write(client: Any, name: str | None, epoch: int, *sequences: int, **more: Any) -> Any:
    """Send one batch, and return the partition's part of the response."""
    response = client.ask(writing(name, epoch, list(sequences), **more))
    return response.responses[0].partition_responses[0]


def remove(client: Any, *names: str) -> list[int]:
    """Remove named producers, and return the error codes."""
    return [each.error_code for each in client.ask(RemoveNamedProducersRequest(names=list(names))).producers]


def described(client: Any, *names: str) -> Any:
    """Describe these named producers, or all."""
    return client.ask(DescribeNamedProducersRequest(names=list(names) or None)).producers
