"""InitProducerId and DescribeProducers: who may produce with sequences, and who does.

An idempotent producer gets an id that nobody had (S-14, S-15). Transactional ids, and the requests of transactions,
come with their coordinator: until then they are told that there is none yet, which clients retry.
Sources: KIP-98, KIP-360, KIP-664; Kafka's TransactionCoordinator.handleInitProducerId.
"""

from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from ..dispatch import Call, handles
from ..topic_names import check_name

if TYPE_CHECKING:
    from ..broker import Broker

_Partition = DescribeProducersResponse.Topic.Partition


@handles(InitProducerIdRequest)
def init_producer_id(broker: "Broker", call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """A new id at epoch 0. What an idempotent producer says of its former id and of a timeout means nothing."""
    if (request.producer_id == -1) != (request.producer_epoch == -1) or request.transactional_id == "":
        return _not_initialised(broker, ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return _not_initialised(broker, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return InitProducerIdResponse(producer_id=broker.topics.next_producer_id(), producer_epoch=0)


def _not_initialised(broker: "Broker", code: ErrorCode) -> InitProducerIdResponse:
    """Without the id the client spoke of: a refusal gives none."""
    broker.metrics.error(code)
    return InitProducerIdResponse(error_code=code)


@handles(DescribeProducersRequest)
def describe_producers(broker: "Broker", call: Call, request: DescribeProducersRequest) -> DescribeProducersResponse:
    """The producers that each partition remembers; told, as everything, when it is durable."""
    return DescribeProducersResponse(
        topics=[
            DescribeProducersResponse.Topic(
                name=topic.name,
                partitions=[_described_or_refused(broker, topic.name, index) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _described_or_refused(broker: "Broker", name: str, index: int) -> _Partition:
    try:
        return _Partition(partition_index=index, active_producers=_described(broker, name, index))
    except KafkaError as error:
        return _Partition(partition_index=index, error_code=error.code, error_message=error.text)


def _described(broker: "Broker", name: str, index: int) -> list[_Partition.Producer]:
    check_name(name)
    topic = broker.topics.by_name.get(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    partition = topic.partitions[index]
    partition.check_online()
    return [
        _Partition.Producer(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            last_sequence=producer.last_sequence,
            last_timestamp=producer.last_timestamp,
            coordinator_epoch=producer.coordinator_epoch,
            current_txn_start_offset=producer.current_txn_start_offset,
        )
        for producer in partition.log.producers.describe()
    ]
