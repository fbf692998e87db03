"""Looking after transactions: who produces, what is open since when, and ending by hand what hangs (KIP-664).

The rule: what is told is durable, as everything; an admin's marker is judged like any, and where it meets a
transaction that is open it ends all of that, so that its client's commit gets an error and not a silent success.
Sources: KIP-664, KIP-994, KIP-1152, KIP-1228; Kafka's TransactionStateManager.listTransactionStates.
"""

from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ..dispatch import Call, handles
from ..partition import Partition
from ..safe_pattern import InvalidPattern, SafePattern
from ..topic_names import OFFSETS_TOPIC, check_name
from ..transactions.transaction import MarkerOrder, Status, Transaction
from ..turns import Steps, answer_each

if TYPE_CHECKING:
    from ..broker import Broker

EPOCH_MOVES_SINCE = 2  # transaction.version: from then on each transaction is marked with a new epoch (KIP-1228)

_Partition = DescribeProducersResponse.Topic.Partition
_Asked = WriteTxnMarkersRequest.Marker
_Marked = WriteTxnMarkersResponse.Marker
_State = DescribeTransactionsResponse.TransactionState
_Listed = ListTransactionsResponse.TransactionState
_STATES = {status.text: status for status in Status}


@handles(WriteTxnMarkersRequest)
def write_txn_markers(broker: "Broker", call: Call, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    """Each partition has an answer of its own."""
    return WriteTxnMarkersResponse(
        markers=[
            _Marked(
                producer_id=marker.producer_id,
                topics=[
                    _Marked.Topic(
                        name=topic.name,
                        partitions=[
                            _Marked.Topic.Partition(
                                partition_index=index, error_code=_marked_or_refused(broker, marker, topic.name, index)
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


def _marked_or_refused(broker: "Broker", marker: _Asked, name: str, index: int) -> ErrorCode:
    try:
        partition = _existing(broker, name, index)
        if partition.rules.internal and name != OFFSETS_TOPIC:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} holds no transactions")
        partition.check_online()
        if marker.producer_id < 0 or marker.producer_epoch < 0:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, "no producer has such an id or epoch")
        partition.log.producers.judge_marker(
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            epoch_moves=marker.transaction_version >= EPOCH_MOVES_SINCE,
        )
        order = MarkerOrder(marker.transaction_result, marker.producer_id, marker.producer_epoch, {})
        broker.transactions.end_by_hand(partition, order, marker.coordinator_epoch)
    except KafkaError as error:
        broker.metrics.error(error.code)
        return error.code
    return ErrorCode.NONE


def _existing(broker: "Broker", name: str, index: int) -> Partition:
    topic = broker.topics.by_name.get(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return topic.partitions[index]


@handles(DescribeTransactionsRequest)
def describe_transactions(
    broker: "Broker", call: Call, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """Every id that is asked for, known or not."""
    return DescribeTransactionsResponse(
        transaction_states=[_state_of(broker, transactional_id) for transactional_id in request.transactional_ids]
    )


def _state_of(broker: "Broker", transactional_id: str) -> _State:
    try:
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id must not be empty")
        txn = broker.transactions.find(transactional_id)
        if txn is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    except KafkaError as error:
        broker.metrics.error(error.code)
        return _State(
            error_code=error.code,
            transactional_id=transactional_id,
            transaction_state="",
            transaction_timeout_ms=0,
            transaction_start_time_ms=0,
            producer_id=0,
            producer_epoch=0,
            topics=[],
        )
    topics: dict[str, list[int]] = {}
    for topic, index in txn.partitions:
        topics.setdefault(topic, []).append(index)
    return _State(
        transactional_id=transactional_id,
        transaction_state=txn.status.text,
        transaction_timeout_ms=txn.timeout_ms,
        transaction_start_time_ms=txn.start_ms,
        producer_id=txn.producer_id,
        producer_epoch=txn.producer_epoch,
        topics=[_State.Topic(topic=topic, partitions=partitions) for topic, partitions in topics.items()],
    )


@handles(ListTransactionsRequest, in_steps=True)
def list_transactions(
    broker: "Broker", call: Call, request: ListTransactionsRequest
) -> Steps[ListTransactionsResponse]:
    """Those that pass every filter. A state that is none passes nothing, and is named in the answer."""
    wanted = _Filter(broker, request)
    transactions = broker.transactions.transactions
    ids = broker.transactions.open if wanted.only_open else transactions  # of many ids few are open

    def listed(transactional_id: str) -> _Listed | None:
        txn = transactions.get(transactional_id)
        if txn is None or not wanted.passes(txn):
            return None
        return _Listed(
            transactional_id=transactional_id, producer_id=txn.producer_id, transaction_state=txn.status.text
        )

    found = yield from answer_each(list(ids), listed)
    return ListTransactionsResponse(
        unknown_state_filters=wanted.unknown_states,
        transaction_states=[one for one in found if one is not None],
    )


class _Filter:
    """What a ListTransactions asks for. Raises INVALID_REGULAR_EXPRESSION."""

    def __init__(self, broker: "Broker", request: ListTransactionsRequest) -> None:
        self._states = {_STATES[name] for name in request.state_filters if name in _STATES}
        self._any_state = not request.state_filters
        self.only_open = self._states == {Status.ONGOING}
        self.unknown_states = [name for name in request.state_filters if name not in _STATES]
        self._producer_ids = set(request.producer_id_filters)
        self._open_for_ms = request.duration_filter
        self._age_ms = broker.store.age_ms()
        pattern = request.transactional_id_pattern
        try:
            self._pattern = SafePattern(pattern) if pattern else None
        except InvalidPattern as error:
            raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from error

    def passes(self, txn: Transaction) -> bool:
        """Whether it is listed. Dead ones never are; a duration counts from the start of the last transaction.

        Raises INVALID_REGULAR_EXPRESSION where the pattern takes too long.
        """
        return (
            txn.status is not Status.DEAD
            and (self._any_state or txn.status in self._states)
            and (not self._producer_ids or txn.producer_id in self._producer_ids)
            and (self._open_for_ms < 0 or txn.started_age_ms < 0 or self._open_for(txn) > self._open_for_ms)
            and self._is_named_so(txn.transactional_id)
        )

    def _is_named_so(self, transactional_id: str) -> bool:
        try:
            return self._pattern is None or self._pattern.matches(transactional_id)
        except InvalidPattern as error:
            raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from error

    def _open_for(self, txn: Transaction) -> int:
        return self._age_ms - txn.started_age_ms


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
