"""InitProducerId and the requests of a transaction: adding partitions and offsets to it, and ending it.

An idempotent producer gets an id that was never given out before (S-14, S-15). Requests with a transactional id are
decided by the coordinator. This module decodes and answers them, which depends on their version: for example, a fenced
producer gets PRODUCER_FENCED only if its client knows that code.

Sources: KIP-98, KIP-360, KIP-588, KIP-890.
"""

from functools import partial

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnTopicResult,
)
from ..requests.dispatch import Call, handles, register_fast_path
from ..requests.guarded_fast_paths import make_fast_transactions
from ..requests.services import Services
from ..security.acls import Operation, ResourceType
from ..topics.catalogue_log import NoRoom
from ..topics.names import INTERNAL
from ..transactions.fence import ADD_OFFSETS, ADD_PARTITIONS, END_TXN, INIT_PRODUCER_ID
from ..transactions.states.init_producer_id import Initialisation
from ..transactions.states.transaction import PartitionKey

# The versions that know PRODUCER_FENCED.
FENCED_SINCE = {INIT_PRODUCER_ID: 4, ADD_PARTITIONS: 2, ADD_OFFSETS: 2, END_TXN: 2}

_Result = TxnTopicResult.Partition


register_fast_path(
    AddPartitionsToTxnRequest, EndTxnRequest, made_by=lambda broker: make_fast_transactions(broker).serve
)


@handles(InitProducerIdRequest)
def init_producer_id(broker: Services, call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Give out a producer id. Without a transactional id it is a new one with epoch 0, otherwise the id's own with the
    next epoch.

    Without a transactional id, the former producer id and the timeout in the request are ignored.
    """
    try:
        return _initialise(broker, call, request)
    except NoRoom:
        # This response has no field for a message, and clients would report KAFKA_STORAGE_ERROR as a disk error, which
        # this is not. Kafka answers with this code while it has no ids to give: every client asks again.
        return _not_initialised(broker, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def _initialise(broker: Services, call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Handle InitProducerId. Raises KafkaError; NoRoom if the journal has no room for it."""
    transactional_id = request.transactional_id
    _check_may_produce(broker, call, request)
    if (request.producer_id == -1) != (request.producer_epoch == -1) or transactional_id == "":
        return _not_initialised(broker, ErrorCode.INVALID_REQUEST)
    if transactional_id is None:
        return InitProducerIdResponse(producer_id=broker.topics.next_producer_id(), producer_epoch=0)
    asked = Initialisation(
        transactional_id,
        request.transaction_timeout_ms,
        request.producer_id,
        request.producer_epoch,
        request.enable2_pc,
        request.keep_prepared_txn,
    )
    decision = broker.transactions.init_producer_id(asked, call.version, call.connection)
    if decision.error:
        return _not_initialised(broker, _error_for_version(decision.error, INIT_PRODUCER_ID, call.version))
    return InitProducerIdResponse(producer_id=decision.producer_id, producer_epoch=decision.producer_epoch)


def _check_may_produce(broker: Services, call: Call, request: InitProducerIdRequest) -> None:
    """Raise TRANSACTIONAL_ID_ or CLUSTER_AUTHORIZATION_FAILED if the client may not get a producer id.

    A client that may write to any topic may be an idempotent producer. The right IDEMPOTENT_WRITE also allows it, as in
    older Kafka.
    """
    access, session, transactional_id = broker.access, call.session, request.transactional_id
    if transactional_id is not None:
        _check_writes(broker, call, transactional_id)
        if request.enable2_pc:
            access.check(session, Operation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID, transactional_id)
    elif not access.allows_on_any(session, Operation.WRITE, ResourceType.TOPIC):
        access.check_on_cluster(session, Operation.IDEMPOTENT_WRITE)


def _check_writes(broker: Services, call: Call, transactional_id: str) -> None:
    """Raise TRANSACTIONAL_ID_AUTHORIZATION_FAILED if the client may not write with this transactional id."""
    broker.access.check(call.session, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)


def _not_initialised(broker: Services, code: ErrorCode) -> InitProducerIdResponse:
    """Return the refusal of an InitProducerId, without a producer id."""
    broker.metrics.error("InitProducerId", code)
    return InitProducerIdResponse(error_code=code)


def _error_for_version(error: ErrorCode, api: int, version: int) -> ErrorCode:
    """Return the error code that this version of the API has for an error."""
    if error is ErrorCode.PRODUCER_FENCED and version < FENCED_SINCE[api]:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


def _check_id(transactional_id: str) -> None:
    """Raise KafkaError INVALID_REQUEST for an empty transactional id."""
    if not transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id must not be empty")


@handles(AddPartitionsToTxnRequest)
def add_partitions(broker: Services, call: Call, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    """Add partitions to a transaction. If one of them does not exist, none is added."""
    _check_writes(broker, call, request.v3_and_below_transactional_id)
    added: dict[PartitionKey, int] = {}
    missing: dict[PartitionKey, ErrorCode] = {}
    by_name = broker.topics.by_name
    may_write = partial(broker.access.allows, call.session, Operation.WRITE, ResourceType.TOPIC)
    for topic in request.v3_and_below_topics:
        found = by_name.get(topic.name)
        # A topic to which only the broker writes cannot be added to a transaction.
        writable = topic.name not in INTERNAL and may_write(topic.name)
        for index in topic.partitions:
            if not writable:
                missing[topic.name, index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif found is None or not 0 <= index < len(found.partitions):
                missing[topic.name, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                added[topic.name, index] = found.partitions[index].log.log_id
    if missing:
        return _not_attempted(broker, dict.fromkeys(added, ErrorCode.OPERATION_NOT_ATTEMPTED) | missing)
    _check_id(request.v3_and_below_transactional_id)
    error = broker.transactions.add_partitions(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        added,
        api=ADD_PARTITIONS,
        version=call.version,
        connection=call.connection,
    )
    return _partitions_answered(broker, request, _error_for_version(error, ADD_PARTITIONS, call.version))


def _not_attempted(broker: Services, codes: dict[PartitionKey, ErrorCode]) -> AddPartitionsToTxnResponse:
    """Return the AddPartitionsToTxn response if nothing was added, because some partitions had errors.

    As in Kafka each partition is answered once, even if the request named it more than once.
    """
    broker.metrics.error("AddPartitionsToTxn", ErrorCode.OPERATION_NOT_ATTEMPTED)
    topics: dict[str, list[_Result]] = {}
    for (name, index), code in codes.items():
        topics.setdefault(name, []).append(_Result(partition_index=index, partition_error_code=code))
    results = [TxnTopicResult(name=name, results_by_partition=found) for name, found in topics.items()]
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)


def _partitions_answered(
    broker: Services, request: AddPartitionsToTxnRequest, error: ErrorCode
) -> AddPartitionsToTxnResponse:
    """Return the AddPartitionsToTxn response, with this error (or NONE) for each partition."""
    if error:
        broker.metrics.error("AddPartitionsToTxn", error)
    results = [
        TxnTopicResult(
            name=topic.name,
            results_by_partition=[
                _Result(partition_index=index, partition_error_code=error) for index in topic.partitions
            ],
        )
        for topic in request.v3_and_below_topics
    ]
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)


@handles(AddOffsetsToTxnRequest)
def add_offsets(broker: Services, call: Call, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    """Add the partition of __consumer_offsets that holds the group's offsets to the transaction."""
    _check_writes(broker, call, request.transactional_id)
    broker.access.check(call.session, Operation.READ, ResourceType.GROUP, request.group_id)
    _check_id(request.transactional_id)
    error = broker.transactions.add_offsets(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        request.group_id,
        version=call.version,
        connection=call.connection,
    )
    if error:
        error = _error_for_version(error, ADD_OFFSETS, call.version)
        broker.metrics.error("AddOffsetsToTxn", error)
    else:
        broker.admission.awaited.added(request.transactional_id, call.connection)
    return AddOffsetsToTxnResponse(error_code=error)


@handles(EndTxnRequest)
def end_txn(broker: Services, call: Call, request: EndTxnRequest) -> EndTxnResponse:
    """Commit or abort a transaction. The answer is sent when every marker is durable, so that every reader sees the
    outcome.
    """
    _check_writes(broker, call, request.transactional_id)
    _check_id(request.transactional_id)
    decision = broker.transactions.end(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        request.committed,
        version=call.version,
        connection=call.connection,
    )
    if decision.error:
        error = _error_for_version(decision.error, END_TXN, call.version)
        broker.metrics.error("EndTxn", error)
        return EndTxnResponse(error_code=error)
    return EndTxnResponse(producer_id=decision.producer_id, producer_epoch=decision.producer_epoch)
