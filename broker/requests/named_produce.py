"""Appends batches of named producers. Records at or below the name's highest sequence in the partition are not written
again.

The rule: a batch and the highest sequence that it leads to are one unit, and an answer, even for a duplicate, waits
until that unit is durable. So a retry is written if a crash has lost the first attempt, and not written if the first
attempt was kept. Source: docs/apis.md.
"""

from ...protocol.batches import Batch
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.produce import ProduceRequest, ProduceResponse
from ..producers.names import Numbered, Straddles
from ..security.acls import Operation, ResourceType
from ..security.principals import Session
from ..topics.partition import Partition
from .produce_targets import Part
from .services import Services

Answer = ProduceResponse.Topic.Partition


def is_named(request: ProduceRequest, part: Part) -> bool:
    """Return whether the request names a producer, or the partition's data has a named producer's sequences."""
    return request.producer is not None or part.sequences is not None


def append_named(
    broker: Services, session: Session, request: ProduceRequest, part: Part, partition: Partition, batch: Batch
) -> Answer | None:
    """Append an accepted batch of a named producer. A duplicate is not written. Returns the partition's answer in both
    cases.

    Returns None if the journal has no room; then nothing was changed. Raises KafkaError: what NamedProducers.judge
    raises, and TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
    """
    producer, sequences = request.producer, part.sequences
    if producer is None or sequences is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a named producer gives its name, and sequences with each batch")
    if request.transactional_id is not None or batch.producer_id >= 0 or batch.is_transactional:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a named producer has neither transactions nor a producer id")
    broker.access.check(session, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, producer.name)
    numbered = Numbered(
        producer.name,
        producer.epoch,
        (partition.topic.id, partition.index),
        len(broker.topics.by_id[partition.topic.id].partitions),
        sequences.first,
        sequences.last,
        batch.last_offset_delta + 1,
    )
    highest = broker.named_producers.judge(numbered)
    if highest is not None:
        broker.metrics.duplicates_refused += 1
        return _answer(partition, -1, -1, Answer.Named(duplicate=True, highest=highest))
    partition.check_writes()
    base_offset = broker.named_producers.append(numbered, partition, batch)
    if base_offset is None:
        return None
    stamp = batch.max_timestamp if batch.is_log_append_time else -1
    return _answer(partition, base_offset, stamp, Answer.Named(duplicate=False, highest=sequences.last))


def _answer(partition: Partition, base_offset: int, log_append_time_ms: int, named: Answer.Named) -> Answer:
    """Return the answer for one partition of a named producer. named: what became of its sequences."""
    return Answer(
        index=partition.index,
        base_offset=base_offset,
        log_append_time_ms=log_append_time_ms,
        log_start_offset=partition.log.start_offset,
        named=named,
    )


def tell_highest(answer: Answer, error: KafkaError) -> None:
    """If the batch was refused because only a part of it was already written, add the name's highest sequence to the
    answer.
    """
    if isinstance(error, Straddles):
        answer.named = Answer.Named(duplicate=False, highest=error.highest)
