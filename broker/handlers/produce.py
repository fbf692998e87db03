"""Produce: checks, admits and appends each partition's batch in one step. Each partition has its own error.

The rules for what a client may send (KIP-98, Kafka's LogValidator) are in topics/partition.py, those for sequences in
storage/producers/producers.py. A duplicate is a success with the offset of the first attempt, and is not answered
before that is durable. A request with acks=0 gets no reply, and an error then closes the connection. acks=1 is treated
as acks=all. Batches that take long to check are first checked by a worker thread (requests/long_produce.py).

Source: Kafka's KafkaApis.handleProduceRequest and ReplicaManager.appendToLocalLog, whose order of checks this keeps.
"""

import logging
from functools import partial

from ...protocol.batches import CODEC_BITS, HEADER_BYTES, Batch
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.produce import ProduceRequest, ProduceResponse
from ...protocol.records import RecordsRefused
from ...storage.producers.producers import Duplicate, ProducerStates
from ...storage.store import BrokerHalted
from ..net.owner import OlderConnection
from ..net.waiting import Parked
from ..requests.dispatch import Call, handles, register_fast_path
from ..requests.guarded_fast_paths import make_fast_produce
from ..requests.long_produce import LongProduce
from ..requests.named_produce import append_named, is_named, tell_highest
from ..requests.produce_targets import ATTRIBUTES_AT, Target, Targets
from ..requests.services import Services
from ..security.acls import Operation, ResourceType
from ..topics.decompression_budget import OverBudget
from ..topics.partition import Partition, TimestampsRefused, is_one_batch
from ..transactions.admission import Joining

log = logging.getLogger("fencepost.broker")

Topic = ProduceRequest.Topic
Answer = ProduceResponse.Topic.Partition

ACKS = (-1, 0, 1)
ZSTD = 4
ZSTD_SINCE = 7  # the version from which on clients know that a consumer may not understand zstd
TV2_SINCE = 12  # the version from which on a transaction's partitions are added with their first batch
TRANSIENT = {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS}
UNKNOWN = ErrorCode.UNKNOWN_PRODUCER_ID
ERRORS_OF_A_REMADE_TOPIC = {
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    UNKNOWN,
}
REMADE = "the topic was deleted and made again since it joined the transaction: abort that, and send everything again"
ERRORS_OF_OUR_OWN = {ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.POLICY_VIOLATION, UNKNOWN}
NO_TRANSACTIONAL_ID = KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
NO_TIMESTAMP = -1
ERRORS_OF_THE_REQUEST = {
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.INVALID_REQUIRED_ACKS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.TRANSACTION_ABORTABLE,
}
ERRORS_OF_THE_COORDINATOR = {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE}
"""Errors found before a transactional batch reaches the log; for other batches the log finds them."""


register_fast_path(ProduceRequest, made_by=lambda broker: make_fast_produce(broker).serve)


@handles(ProduceRequest)
def produce(broker: Services, call: Call, request: ProduceRequest) -> ProduceResponse | Parked | None:
    """Append the request's batches. Returns the response, with a result for every partition; None with acks=0.

    Returns a Parked if a worker thread must check the batches first.
    """
    parked = Parked()

    may_write = partial(_may_write, broker, call) if broker.access.is_enforced else None
    targets = Targets(broker.topics, request, call.version, may_write)

    def finish() -> None:
        """Append and answer. Called when a worker thread has checked the batches."""
        try:
            answer: object = _answer(broker, call, request, targets)
        except OlderConnection:
            call.connection.abort()
            return
        except Exception as error:
            if request.acks == 0 or isinstance(error, BrokerHalted):
                raise
            answer = error
        parked.answer(answer)

    if not LongProduce(broker, call.connection, targets, finish, answered=request.acks != 0, meter=call.meter).begin():
        return _answer(broker, call, request, targets)
    return None if request.acks == 0 else parked


def _may_write(broker: Services, call: Call, topic: str) -> bool:
    """Return whether the client may write to the topic."""
    return broker.access.allows(call.session, Operation.WRITE, ResourceType.TOPIC, topic)


def _answer(broker: Services, call: Call, request: ProduceRequest, targets: Targets) -> ProduceResponse | None:
    """Append the batches. Returns the response; None with acks=0."""
    if request.acks != 0:
        return _produce(broker, call, request, targets)
    _produce_unanswered(broker, call, request, targets)
    return None


def _produce_unanswered(broker: Services, call: Call, request: ProduceRequest, targets: Targets) -> None:
    """Append for acks=0. An error closes the connection, as in Kafka, because there is no response that could report
    it.
    """
    try:
        response = _produce(broker, call, request, targets)
    except KafkaError as error:
        broker.metrics.error("Produce", error.code)
        call.connection.close_after_replies()
        return
    call.connection.newest_unit = broker.store.last_unit  # no reply waits for it, but reads that follow do
    answers = (answer for topic in response.responses for answer in topic.partition_responses)
    if any(answer.error_code for answer in answers):
        call.connection.close_after_replies()


def _produce(broker: Services, call: Call, request: ProduceRequest, targets: Targets) -> ProduceResponse:
    """Append each partition's batch. Returns the response. Raises KafkaError for the request as a whole."""
    producers = {target.producer for target in targets.all if target.transactional}
    unauthorized = request.transactional_id is None and bool(producers)  # transactions need an id (C-11)
    if producers and request.transactional_id is not None:
        _check_transactional(broker, call, request.transactional_id, producers)
        _join_together(broker, call, request, targets, producers)
    response = ProduceResponse(responses=[])
    for topic, of_topic in targets.by_topic:
        answers = [
            _refusal(broker, call, target.part.index, NO_TRANSACTIONAL_ID)
            if unauthorized
            else _append_or_refuse(broker, call, request, targets, topic, target)
            for target in of_topic
        ]
        if answers:
            named = ProduceResponse.Topic(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
            response.responses.append(named)
    return response


def _check_transactional(broker: Services, call: Call, transactional_id: str, found: set[tuple[int, int]]) -> None:
    """Check the request's transactional id and producer. found: the producer ids and epochs in its batches.

    Raises KafkaError; OlderConnection if the producer has already used a newer connection.
    """
    broker.access.check(call.session, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    if not transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id must not be empty")
    if len({producer_id for producer_id, _ in found}) > 1:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING, "the request names more than one transactional producer"
        )
    for producer_id, epoch in found:
        broker.admission.check_data(transactional_id, producer_id, epoch, call.version, call.connection)


def _join_together(
    broker: Services, call: Call, request: ProduceRequest, targets: Targets, found: set[tuple[int, int]]
) -> None:
    """Add all new partitions of the request to a TV2 transaction at once, as Kafka does, because each state record
    names all partitions.

    A single new partition is added in one unit with its batch instead. A partition that cannot be added gets its error
    when its batch is appended; so does one whose topic was deleted and created again during the transaction.
    """
    if call.version < TV2_SINCE or len(found) > 1 or request.acks not in ACKS or not broker.store.admits(0):
        return
    is_remade = partial(broker.admission.is_remade, request.transactional_id)
    added = {
        (partition.topic.name, partition.index): partition.log.log_id
        for target in targets.all
        if target.transactional and (partition := target.partition) is not None
        if not (partition.rules.internal or partition.rules.writes_refused)
        if partition.log.offline is None and not is_remade(partition)
    }
    if len(added) > 1:
        ((producer_id, epoch),) = found
        assert request.transactional_id is not None
        broker.admission.join_together(request.transactional_id, producer_id, epoch, added)


def _append_or_refuse(
    broker: Services, call: Call, request: ProduceRequest, targets: Targets, topic: Topic, target: Target
) -> Answer:
    """Append the records for one partition and return its answer, or the answer for the KafkaError that was raised.

    Any other exception is a bug and fails the whole request.
    """
    partition = target.partition
    try:
        if partition is None:
            raise targets.refusal_of_missing(topic)
        if request.acks not in ACKS:
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks may be -1, 0 or 1, not {request.acks}")
        if partition.rules.internal:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "the topic is internal: only the broker writes to it")
        return _append(broker, call, partition, target, request)
    except KafkaError as error:
        answer = _refusal(broker, call, target.part.index, error, says_why=is_named(request, target.part))
        tell_highest(answer, error)
        if partition is not None:
            if _tells_log_start(error, target):
                answer.log_start_offset = partition.log.start_offset
            if error.code in ERRORS_OF_A_REMADE_TOPIC and broker.admission.is_remade(
                request.transactional_id, partition
            ):
                answer.error_message = REMADE
        return answer


def _append(broker: Services, call: Call, partition: Partition, target: Target, request: ProduceRequest) -> Answer:
    """Check one partition's batch and append it. Returns its answer. Raises KafkaError."""
    transactional_id = request.transactional_id
    records = target.part.records
    if records is None:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a partition must carry one whole record batch")
    if call.version < ZSTD_SINCE and len(records) >= HEADER_BYTES and records[ATTRIBUTES_AT] & CODEC_BITS == ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce v{ZSTD_SINCE}")
    partition.check_online()
    batch = target.accept(partition, records, broker.clock.now_ms())
    if is_named(request, target.part):
        answer = append_named(broker, call.session, request, target.part, partition, batch)
        if answer is None:
            raise _no_room(broker, batch, batch.size)
        return answer
    joining = None
    producers = partition.log.producers
    if batch.is_transactional and transactional_id is not None:
        if broker.admission.is_prepared(transactional_id, batch) and (first := producers.find_repeated(batch)):
            # Its answer was lost, and PrepareTxn had been sent behind it.
            return _duplicate_answer(broker, partition, first)
        joining = _admit(broker, call, partition, batch, transactional_id)
    if batch.producer_id >= 0:
        if not batch.is_transactional and broker.access.is_enforced:
            _check_may_write_as(broker, call, batch.producer_id)
        first = producers.judge(batch, _refusal_of_unknown(broker, call, batch))
        if first is not None:
            return _duplicate_answer(broker, partition, first)
        if batch.producer_id not in producers:
            _check_room_for_producer(broker, producers, batch)
    partition.check_writes()
    size_bytes = batch.size + (0 if joining is None else joining.size_bytes)
    if not broker.store.admits(size_bytes):
        producers.turned_away(batch)
        raise _no_room(broker, batch, size_bytes)
    if joining is None:
        base_offset = broker.store.append(partition.log, batch)
    else:
        base_offset = partition.log.end_offset
        broker.store.append_together([(joining.log, joining.batch), (partition.log, batch)])
        broker.admission.joined(joining)
    return _append_answer(partition, base_offset, batch.max_timestamp if batch.is_log_append_time else NO_TIMESTAMP)


def _check_may_write_as(broker: Services, call: Call, producer_id: int) -> None:
    """Check the producer id of a batch outside of transactions. Raise an error if the id was given to a transactional
    id that the client may not use, or was never given out.

    Otherwise the batch could fence the producer that has the id, or gets it later, or pass as that producer's next
    batch. Apache Kafka accepts both.
    """
    transactional_id = broker.transactions.by_producer_id.get(producer_id)
    if transactional_id is None:
        if not broker.topics.gave_producer_id(producer_id):
            raise KafkaError(UNKNOWN, "this broker never gave out this producer id")
    else:
        broker.access.check(call.session, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)


def _admit(broker: Services, call: Call, partition: Partition, batch: Batch, transactional_id: str) -> Joining | None:
    """Let the coordinator check a transactional batch. Returns the state to log with it, or None if there is none.
    Raises KafkaError.

    After a transient error, later batches of the producer are refused until this one comes again.
    """
    try:
        return broker.admission.admit_batch(transactional_id, batch, partition, call.version)
    except KafkaError as error:
        if error.code in TRANSIENT:
            partition.log.producers.turned_away(batch)
        raise


def _refusal_of_unknown(broker: Services, call: Call, batch: Batch) -> ErrorCode | None:
    """Return the error for a batch whose sequence is not 0 and whose producer the partition does not know; None to
    accept the batch.
    """
    if batch.is_transactional and call.version >= TV2_SINCE:
        return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    return UNKNOWN if broker.settings.producer_unknown_id_refuse else None


def _duplicate_answer(broker: Services, partition: Partition, first: Duplicate) -> Answer:
    """Count a batch that was written already, and return the response to it."""
    broker.metrics.duplicates_refused += 1
    # The timestamp is returned whatever the topic's message.timestamp.type, as in Kafka.
    return _append_answer(partition, first.base_offset, first.timestamp)


def _append_answer(partition: Partition, base_offset: int, log_append_time_ms: int) -> Answer:
    """Return the response for a partition whose batch was appended at base_offset."""
    return Answer(
        index=partition.index,
        base_offset=base_offset,
        log_append_time_ms=log_append_time_ms,
        log_start_offset=partition.log.start_offset,
    )


def _no_room(broker: Services, batch: Batch, size_bytes: int) -> KafkaError:
    """Return the error for a batch that is larger than the journal can ever take, or for which it has no room now.
    size_bytes: of the whole unit.

    NOT_ENOUGH_REPLICAS is chosen because, of the errors that mean "nothing was written, try again", it is the one that
    every client retries. KAFKA_STORAGE_ERROR, which is nearer to the truth, is unknown to clients before 1.0, is not
    retried by older sarama, and makes other clients request metadata at each attempt.
    """
    largest = broker.store.largest_append_bytes
    if batch.size > largest:
        return KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"the journal takes {largest} bytes at once (journal.max.bytes)")
    return KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, broker.store.refuse(size_bytes))


def _check_room_for_producer(broker: Services, producers: ProducerStates, batch: Batch) -> None:
    """Raise KafkaError if the partition cannot remember this new producer (max.producer.ids).

    An id that was never given out evicts no other, because anyone can invent such ids. Its error makes an honest
    client, which got the id from another broker, ask for a new one. The error for other ids must not be one that
    clients retry, because that would hide why nothing is written.
    """
    limit = broker.producer_limit
    if not limit.full:
        return
    if broker.topics.gave_producer_id(batch.producer_id):
        if limit.may_evict:
            return
        error = ErrorCode.POLICY_VIOLATION
        why = f"{limit.count} producers are remembered, and all are in transactions (max.producer.ids)"
    else:
        error = UNKNOWN
        why = f"{limit.count} producers are remembered (max.producer.ids), and this broker never gave out this id"
    producers.turned_away(batch)
    raise KafkaError(error, why)


def _refusal(broker: Services, call: Call, index: int, error: KafkaError, *, says_why: bool = False) -> Answer:
    """Return a partition's answer with this error, and count the error. says_why: whether to include its message,
    whatever the code.
    """
    metrics = broker.metrics
    metrics.error("Produce", error.code)
    broker.note_limit("Produce", call.client_host, call.client_id, error)
    if error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
        metrics.out_of_order += 1
    elif error.code is ErrorCode.INVALID_PRODUCER_EPOCH:
        metrics.stale_epochs += 1
    log.debug("a batch for partition %s is refused: %s", index, error)
    if not isinstance(error, RecordsRefused | TimestampsRefused):
        # Kafka sends no message for other codes: clients have a text of their own for each.
        says_why = says_why or error.code in ERRORS_OF_OUR_OWN or isinstance(error, OverBudget)
        return Answer(index=index, error_code=error.code, error_message=error.detail if says_why else None)
    return Answer(
        index=index,
        error_code=error.code,
        error_message=error.detail,
        record_errors=[
            Answer.RecordError(batch_index=record, batch_index_error_message=why) for record, why in error.record_errors
        ],
    )


def _tells_log_start(error: KafkaError, target: Target) -> bool:
    """Return whether the answer with this error contains the log start offset. As in Kafka, it does if the log found
    the error, and not an earlier check of the request.
    """
    records = target.part.records
    if error.code is ErrorCode.INVALID_RECORD:
        return records is not None and is_one_batch(records)
    if error.code in ERRORS_OF_THE_COORDINATOR:
        return records is not None and not target.transactional
    return error.code not in ERRORS_OF_THE_REQUEST
