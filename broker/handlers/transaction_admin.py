"""An admin's requests about transactions: list and describe transactions and producers, and write markers for hanging
transactions (KIP-664).

The rule: as for all requests, an answer contains only what is durable. A marker from an admin is checked like any
other. If it is for an open transaction, the whole transaction is aborted, so that its client's commit gets an error and
not a false success.

Sources: KIP-664, KIP-994, KIP-1152, KIP-1228; Kafka's TransactionStateManager.listTransactionStates.
"""

from collections.abc import Iterable, Iterator
from functools import partial

from ...protocol.encoding import Lazy
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
from ...storage.producers.producers import ProducerDescription
from ..net.turns import LOOK_UNITS, AnswerRoom, Steps, answer_each
from ..requests.dispatch import Call, handles
from ..requests.safe_pattern import InvalidPattern, SafePattern
from ..requests.services import Services
from ..security.acls import Operation, ResourceType
from ..topics.names import OFFSETS_TOPIC, check_name
from ..topics.partition import Partition
from ..transactions.states.transaction import MarkerOrder, Status, Transaction

PRODUCER_BYTES, STATE_BYTES, PARTITION_BYTES = 42, 120, 4  # of an answer, about
# What clients ask for again, by itself.
LATER_PARTITION = ErrorCode.NOT_LEADER_OR_FOLLOWER, "Ask for fewer partitions at once."
LATER_ID = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "Ask for fewer ids at once."
MARKER_UNITS = 5
PARTITIONS_PER_UNIT = 4  # of a transaction, described
EPOCH_MOVES_SINCE = 2  # transaction.version: from then on each transaction is marked with a new epoch (KIP-1228)

_Partition = DescribeProducersResponse.Topic.Partition
_Asked = WriteTxnMarkersRequest.Marker
_Marked = WriteTxnMarkersResponse.Marker
_State = DescribeTransactionsResponse.TransactionState
_Listed = ListTransactionsResponse.TransactionState
_STATES = {status.text: status for status in Status}


@handles(WriteTxnMarkersRequest, may_be_long=True)
def write_txn_markers(broker: Services, call: Call, request: WriteTxnMarkersRequest) -> Steps[WriteTxnMarkersResponse]:
    """Write the markers that an admin requests to end hanging transactions. Each partition has its own error code."""
    if not broker.access.allows_on_cluster(call.session, Operation.CLUSTER_ACTION):
        broker.access.check_on_cluster(call.session, Operation.ALTER)
    response = WriteTxnMarkersResponse(markers=[])
    for marker in request.markers:
        marked = _Marked(producer_id=marker.producer_id, topics=[])
        response.markers.append(marked)
        for topic in marker.topics:
            answers = yield from answer_each(
                topic.partition_indexes, partial(_answer_marker, broker, marker, topic.name), MARKER_UNITS
            )
            marked.topics.append(_Marked.Topic(name=topic.name, partitions=answers))
    return response


def _answer_marker(broker: Services, marker: _Asked, name: str, index: int) -> _Marked.Topic.Partition:
    """Write one marker to one partition. Returns its answer."""
    code = _mark_or_refuse(broker, marker, name, index)
    return _Marked.Topic.Partition(partition_index=index, error_code=code)


def _mark_or_refuse(broker: Services, marker: _Asked, name: str, index: int) -> ErrorCode:
    """Write one marker to one partition. Returns its error code."""
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
        broker.metrics.error("WriteTxnMarkers", error.code)
        return error.code
    return ErrorCode.NONE


def _existing(broker: Services, name: str, index: int) -> Partition:
    """Return the partition. Raises UNKNOWN_TOPIC_OR_PARTITION."""
    topic = broker.topics.by_name.get(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return topic.partitions[index]


@handles(DescribeTransactionsRequest, may_be_long=True)
def describe_transactions(
    broker: Services, call: Call, request: DescribeTransactionsRequest
) -> Steps[DescribeTransactionsResponse]:
    """Answer for every transactional id of the request, known or not."""
    states, room = [], AnswerRoom(len(broker.server.connections))
    for transactional_id in request.transactional_ids:
        state = _state_of(broker, call, transactional_id, room)
        states.append(state)
        yield 1 + sum(len(topic.partitions) for topic in state.topics) // PARTITIONS_PER_UNIT
    return DescribeTransactionsResponse(transaction_states=states)


def _state_of(broker: Services, call: Call, transactional_id: str, room: AnswerRoom) -> _State:
    """Return the description of one transaction, with the topics that the client may describe; or its error."""
    try:
        if room.is_full:
            raise KafkaError(*LATER_ID)
        broker.access.check(call.session, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id must not be empty")
        txn = broker.transactions.find(transactional_id)
        if txn is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    except KafkaError as error:
        broker.metrics.error("DescribeTransactions", error.code)
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
    room.take(STATE_BYTES + PARTITION_BYTES * len(txn.partitions))
    names = {topic for topic, _ in txn.partitions}
    seen = broker.access.allowed(call.session, Operation.DESCRIBE, ResourceType.TOPIC, names)
    for topic, index in txn.partitions:
        if topic not in seen:
            continue
        topics.setdefault(topic, []).append(index)
    return _State(
        transactional_id=transactional_id,
        transaction_state=txn.status.text,
        transaction_timeout_ms=txn.timeout_ms,
        transaction_start_time_ms=txn.start_ms,
        producer_id=txn.producer_id,
        producer_epoch=txn.producer_epoch,
        topics=[_State.Topic(topic=topic, partitions=partitions) for topic, partitions in topics.items()],
        transaction_id=broker.transactions.transaction_id(txn),
    )


@handles(ListTransactionsRequest, may_be_long=True)
def list_transactions(
    broker: Services, call: Call, request: ListTransactionsRequest
) -> Steps[ListTransactionsResponse]:
    """List the transactions that match all filters. Names of unknown states match nothing, and are returned in the
    answer.
    """
    wanted = _Filter(broker, request)
    sees = partial(broker.access.allows, call.session, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)
    transactions = broker.transactions.transactions
    ids = broker.transactions.open if wanted.only_open else transactions  # of many ids few are open

    def list_id(transactional_id: str) -> _Listed | None:
        """Return the entry of a transactional id; None if it does not match the filters or may not be described."""
        txn = transactions.get(transactional_id)
        if txn is None or not wanted.passes(txn) or not sees(transactional_id):
            return None
        # Only ids that the client may see are matched: the error for a slow match would reveal that such an id exists.
        if not wanted.is_named_so(transactional_id):
            return None
        return _Listed(
            transactional_id=transactional_id,
            producer_id=txn.producer_id,
            transaction_state=txn.status.text,
            transaction_id=broker.transactions.transaction_id(txn),
        )

    units = LOOK_UNITS if request.transactional_id_pattern else 1  # few ids may take a pattern a long time
    found = yield from answer_each(list(ids), list_id, units)
    return ListTransactionsResponse(
        unknown_state_filters=wanted.unknown_states,
        transaction_states=[one for one in found if one is not None],
    )


class _Filter:
    """The filters of a ListTransactions request. The constructor raises INVALID_REGULAR_EXPRESSION."""

    def __init__(self, broker: Services, request: ListTransactionsRequest) -> None:
        self._states = {_STATES[name] for name in request.state_filters if name in _STATES}
        self._any_state = not request.state_filters
        self.only_open = self._states == {Status.ONGOING}
        self.unknown_states = list(dict.fromkeys(name for name in request.state_filters if name not in _STATES))
        self._producer_ids = set(request.producer_id_filters)
        self._open_for_ms = request.duration_filter
        self._age_ms = broker.store.age_ms()
        pattern = request.transactional_id_pattern
        try:
            self._pattern = SafePattern(pattern) if pattern else None
        except InvalidPattern as error:
            raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from error

    def passes(self, txn: Transaction) -> bool:
        """Return whether a transaction matches all filters except the pattern. An id in the state Dead never matches.
        One without an open transaction passes the filter by duration, as in Kafka.
        """
        return (
            txn.status is not Status.DEAD
            and (self._any_state or txn.status in self._states)
            and (not self._producer_ids or txn.producer_id in self._producer_ids)
            and (self._open_for_ms < 0 or txn.started_age_ms < 0 or self._open_for(txn) > self._open_for_ms)
        )

    def is_named_so(self, transactional_id: str) -> bool:
        """Return whether the pattern matches the id. Raises INVALID_REGULAR_EXPRESSION if matching takes too long."""
        try:
            return self._pattern is None or self._pattern.matches(transactional_id)
        except InvalidPattern as error:
            raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from error

    def _open_for(self, txn: Transaction) -> int:
        """Return for how many ms, on the store's clock, the transaction has been open."""
        return self._age_ms - txn.started_age_ms


@handles(DescribeProducersRequest, may_be_long=True)
def describe_producers(broker: Services, call: Call, request: DescribeProducersRequest) -> DescribeProducersResponse:
    """Answer with the producers that each partition knows."""
    topics, room = request.topics, AnswerRoom(len(broker.server.connections))
    described = (_producers_of(broker, call, topic, room) for topic in topics)
    return DescribeProducersResponse(topics=Lazy(len(topics), described))


def _producers_of(
    broker: Services, call: Call, asked: DescribeProducersRequest.Topic, room: AnswerRoom
) -> DescribeProducersResponse.Topic:
    """Return one topic of the DescribeProducers answer. Its partitions are described when the answer is encoded."""
    indexes = asked.partition_indexes
    partitions = (_describe_or_refuse(broker, call, asked.name, index, room) for index in indexes)
    return DescribeProducersResponse.Topic(name=asked.name, partitions=Lazy(len(indexes), partitions))


def _describe_or_refuse(broker: Services, call: Call, name: str, index: int, room: AnswerRoom) -> _Partition:
    """Return the active producers of one partition, or its error. room: how many bytes the answer may still have."""
    try:
        if room.is_full:
            raise KafkaError(*LATER_PARTITION)
        broker.access.check(call.session, Operation.READ, ResourceType.TOPIC, name)
        check_name(name)
        partition = _existing(broker, name, index)
        partition.check_online()
    except KafkaError as error:
        room.take(len(error.text))
        return _Partition(partition_index=index, error_code=error.code, error_message=error.text)
    producers = partition.log.producers
    active = Lazy(len(producers), _describe_producers(producers.describe(), room))
    return _Partition(partition_index=index, active_producers=active)


def _describe_producers(producers: Iterable[ProducerDescription], room: AnswerRoom) -> Iterator[_Partition.Producer]:
    """Yield the description of each producer, and take its size from `room`."""
    for producer in producers:
        room.take(PRODUCER_BYTES)
        yield _Partition.Producer(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            last_sequence=producer.last_sequence,
            last_timestamp=producer.last_timestamp,
            coordinator_epoch=producer.coordinator_epoch,
            current_txn_start_offset=producer.current_txn_start_offset,
        )
