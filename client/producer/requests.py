"""Produce requests of batches, and the response by partition.

The rule: a request has topic names up to version 12 and topic ids from 13 on; if the id of one topic is not known, 12
is the highest usable version. Source: KIP-516; KIP-110 for the oldest version with zstd.
"""

from collections.abc import Sequence
from typing import Protocol

from ...protocol.compression import Codec
from ...protocol.errors import ErrorCode
from ...protocol.messages.produce import ProduceRequest, ProduceResponse, ProducerName
from ...protocol.primitives import ZERO_UUID
from ..errors import UnsupportedVersionError
from ..net.topology import Metadata
from .batching import Batch

MAX_BATCHES = 5_000  # of one request, one of each partition: fencepost takes 10,000 partitions in a request
LAST_WITH_NAMES = 12
FIRST_WITH_ZSTD = 7

Answer = ProduceResponse.Topic.Partition


class Permission(Protocol):
    """What names the sender in a Produce request: a transactional id, a producer name, or neither."""

    @property
    def transactional_id(self) -> str | None:
        """The transactional id that goes into the request; None without transactions."""
        ...

    @property
    def producer(self) -> ProducerName | None:
        """The name and epoch that go into the request; None if the producer has no name."""
        ...


def words_of_answer(answer: Answer, code: ErrorCode) -> str:
    """Return the broker's message about the batch, or about the first refused record; "" if there is none."""
    if answer.error_message or not answer.record_errors:
        return answer.error_message or ""
    first = answer.record_errors[0]
    return f"record {first.batch_index} of the batch: {first.batch_index_error_message or code.text}"


def cap_of(batches: Sequence[Batch], metadata: Metadata, cap: int | None) -> int | None:
    """Return the highest Produce version that is usable for the topics of these batches: at most `cap`, and at most 12
    if the id of a topic is unknown. None: any version.
    """
    if all(metadata.topic_id(batch.partition.topic.name) != ZERO_UUID for batch in batches):
        return cap
    return LAST_WITH_NAMES if cap is None else min(cap, LAST_WITH_NAMES)


def produce_request(
    batches: Sequence[Batch],
    metadata: Metadata,
    version: int,
    *,
    acks: int,
    timeout_ms: int,
    permission: "Permission",
) -> ProduceRequest:
    """Return a Produce request with these batches, at most one for each partition. Raises UnsupportedVersionError if a
    batch uses zstd and the version is too old for it.
    """
    topics: dict[str, ProduceRequest.Topic] = {}
    transactional_id = permission.transactional_id
    for batch in batches:
        if batch.codec == Codec.ZSTD and version < FIRST_WITH_ZSTD:
            raise UnsupportedVersionError(
                "the broker does not support compression_type='zstd'", hint="zstd needs Kafka 2.1; use lz4"
            )
        name, index = batch.partition.topic_partition
        topic = topics.get(name)
        if topic is None:
            topic_id = metadata.topic_id(name) if version > LAST_WITH_NAMES else ZERO_UUID
            topic = topics[name] = ProduceRequest.Topic(name=name, topic_id=topic_id, partition_data=[])
        frame = batch.frame(transactional_id is not None)
        part = ProduceRequest.Topic.Partition(index=index, records=memoryview(frame))
        if batch.numbers:
            part.sequences = part.Sequences(first=batch.numbers[0], last=batch.numbers[-1])
        topic.partition_data.append(part)
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=list(topics.values()),
        producer=permission.producer,
    )


def answers(request: ProduceRequest, response: ProduceResponse, version: int) -> dict[tuple[str, int], Answer]:
    """Return the response of each partition in the request, by topic name and partition number."""
    names = {topic.topic_id: topic.name for topic in request.topic_data}
    found: dict[tuple[str, int], Answer] = {}
    for topic in response.responses:
        name = names.get(topic.topic_id) if version > LAST_WITH_NAMES else topic.name
        for one in topic.partition_responses:
            if name is not None:
                found[name, one.index] = one
    return found
