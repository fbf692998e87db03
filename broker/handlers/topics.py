"""CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords. Each topic or partition succeeds or fails by itself.

Checks come in the order of Kafka's controller (ReplicationControlManager), because the order decides which error a
client sees, and have its error texts. A change is in the journal when it is answered, so the request's timeout has no
effect.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from ...protocol.primitives import ZERO_UUID
from ..config.settings import TOPIC_OPTIONS
from ..net.turns import SUBJECT_UNITS, Steps, answer_each
from ..requests.allowed_names import allowed_names
from ..requests.dispatch import Call, handles
from ..requests.services import Services
from ..security.acls import Operation, ResourceType
from ..topics.replicas import check_replicas
from ..topics.topics import MAX_PARTITIONS, Topic

PARTITION_UNITS = 10  # for making one partition, in memory and in the journal
EMPTYING_UNITS = 5  # for DeleteRecords in one partition, which may write a unit to the journal
STRICT_CREATION_SINCE, STRICT_DELETION_SINCE, STRICT_GROWTH_SINCE = 6, 5, 3  # versions (KIP-599); older ones wait only
HIGH_WATERMARK = -1  # the offset with which DeleteRecords asks to delete all records
TOO_MANY = ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."

_Created = CreateTopicsResponse.Topic
_Known = dict[frozenset[tuple[str, str]], list[CreateTopicsResponse.Topic.Config]]  # of one request, by what was given
_Deleted = DeleteTopicsResponse.Topic
_Grown = CreatePartitionsResponse.Topic


# ---- CreateTopics --------------------------------------------------------------------------------------------


@handles(CreateTopicsRequest, may_be_long=True)
def create_topics(broker: Services, call: Call, request: CreateTopicsRequest) -> Steps[CreateTopicsResponse]:
    """Create topics, or only check whether they could be created."""
    may_create = yield from _names_to_create(broker, call, {topic.name for topic in request.topics})
    if sum(_wanted_partitions(topic) for topic in request.topics if topic.name in may_create) > MAX_PARTITIONS:
        return CreateTopicsResponse(
            topics=[
                _Created(name=topic.name, error_code=TOO_MANY[0], error_message=TOO_MANY[1]) for topic in request.topics
            ]
        )
    named = Counter(topic.name for topic in request.topics)
    doubled = [
        _Created(name=name, error_code=ErrorCode.INVALID_REQUEST, error_message="Duplicate topic name.")
        for name, times in named.items()
        if times > 1
    ]
    known: _Known = {}
    answers = []
    for topic in request.topics:
        if named[topic.name] == 1:
            created = _create_or_refuse(broker, call, topic, request.validate_only, known, topic.name in may_create)
            answers.append(created)
            yield SUBJECT_UNITS + PARTITION_UNITS * _wanted_partitions(topic)
    return CreateTopicsResponse(topics=answers + doubled)


def _names_to_create(broker: Services, call: Call, names: set[str]) -> Steps[set[str]]:
    """Return those of the names for which the client may create topics."""
    if broker.access.allows_on_cluster(call.session, Operation.CREATE):
        return names
    return set((yield from allowed_names(broker, call, Operation.CREATE, ResourceType.TOPIC, names)))


def _wanted_partitions(asked: CreateTopicsRequest.Topic) -> int:
    """Return how many partitions a topic is to have: the number, or the number of assignments; 0 if the request gives
    neither.
    """
    return max(asked.num_partitions, len(asked.assignments), 0)


def _create_or_refuse(
    broker: Services, call: Call, asked: CreateTopicsRequest.Topic, validate_only: bool, known: _Known, may: bool
) -> _Created:
    """Create one topic and return its answer, or its error. may: whether the client may create it."""
    try:
        if not may:
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        created = _create(broker, call, asked, validate_only, known)
    except KafkaError as error:
        return _Created(name=asked.name, error_code=error.code, error_message=error.text)
    if broker.access.allows(call.session, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, asked.name):
        return created
    unseen = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return _Created(name=asked.name, topic_id=created.topic_id, topic_config_error_code=unseen)


def _create(
    broker: Services, call: Call, asked: CreateTopicsRequest.Topic, validate_only: bool, known: _Known
) -> _Created:
    """Check one topic, and create it unless validate_only is true. Returns its answer, with its settings. Raises
    KafkaError. known: a cache of the settings in an answer, by the settings that the request gives the topic.
    """
    configs = _given_configs(asked.configs)
    broker.topics.check_new(asked.name, 1, configs)
    key = frozenset(configs.items())
    if key not in known:
        known[key] = [_config(broker, name, configs) for name in sorted(TOPIC_OPTIONS)]
    partitions = _number_of_partitions(broker, asked)
    broker.topics.check_room(partitions)
    _check_mutations(broker, call, partitions, STRICT_CREATION_SINCE)
    topic_id = ZERO_UUID if validate_only else broker.topics.create(asked.name, partitions, configs).id
    return _Created(
        name=asked.name,
        topic_id=topic_id,
        num_partitions=partitions,
        replication_factor=1,
        configs=known[key],
    )


def _check_mutations(broker: Services, call: Call, partitions: int, strict_since: int) -> None:
    """Count `partitions` partitions against the client's mutation quota. Raise THROTTLING_QUOTA_EXCEEDED if it is over
    the quota, from version strict_since of the request on, which has the error.
    """
    if call.meter is not None:
        broker.throttling.check_mutations(call.meter, partitions, strict=call.version >= strict_since)


def _given_configs(configs: Iterable[CreateTopicsRequest.Topic.Config]) -> dict[str, str]:
    """Return the settings in the request. Raises INVALID_CONFIG for a setting without a value."""
    given: dict[str, str] = {}
    for config in configs:
        if config.value is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {config.name}")
        given[config.name] = config.value
    return given


def _config(broker: Services, name: str, configs: Mapping[str, str]) -> _Created.Config:
    """Return one setting for the answer: its effective value, and the source of that."""
    _, value, source = broker.topics.config_synonyms(name, configs)[0]
    return _Created.Config(name=name, value=value, read_only=False, config_source=source, is_sensitive=False)


def _number_of_partitions(broker: Services, asked: CreateTopicsRequest.Topic) -> int:
    """Return the number of partitions, from a count or an assignment. Raises KafkaError if these are invalid."""
    if asked.assignments:
        return _assigned_partitions(broker, asked)
    if asked.replication_factor < -1 or asked.replication_factor == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if asked.num_partitions < -1 or asked.num_partitions == 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    if asked.replication_factor > 1:
        wanted = asked.replication_factor
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {wanted} time(s): The target replication factor of {wanted} cannot be "
            "reached because only 1 broker(s) are registered.",
        )
    return broker.settings.num_partitions if asked.num_partitions == -1 else asked.num_partitions


def _assigned_partitions(broker: Services, asked: CreateTopicsRequest.Topic) -> int:
    """Return the number of partitions in a manual assignment. Raises KafkaError if it is invalid."""
    for what, given in (("replication factor", asked.replication_factor), ("numPartitions", asked.num_partitions)):
        if given != -1:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"A manual partition assignment was specified, but {what} was not set to -1.",
            )
    seen: set[int] = set()
    for assignment in asked.assignments:
        if assignment.partition_index in seen:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {assignment.partition_index}",
            )
        seen.add(assignment.partition_index)
        check_replicas(assignment.broker_ids, broker.node_id)
    if seen != set(range(len(seen))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
        )
    return len(seen)


# ---- DeleteTopics --------------------------------------------------------------------------------------------


@handles(DeleteTopicsRequest, may_be_long=True)
def delete_topics(broker: Services, call: Call, request: DeleteTopicsRequest) -> Steps[DeleteTopicsResponse]:
    """Delete topics, by name or by id. A topic that is named twice is not deleted, and answered once, with an error."""
    if not broker.settings.delete_topic_enable:
        old = call.version < 3
        raise KafkaError(ErrorCode.INVALID_REQUEST if old else ErrorCode.TOPIC_DELETION_DISABLED)
    asked = [DeleteTopicsRequest.Topic(name=name) for name in request.topic_names] + request.topics
    groups: dict[str | bytes, list[DeleteTopicsRequest.Topic]] = {}
    answers: list[_Deleted] = []
    for each in asked:
        if (each.name is None) == (each.topic_id == ZERO_UUID):
            answers.append(_ambiguous(each))
        elif refused := _refusal_of_deletion(broker, call, each):
            answers.append(refused)
        else:
            topic = _find(broker, each)
            groups.setdefault(topic.id if topic else each.name or each.topic_id, []).append(each)
        yield 1
    deleted = yield from answer_each(
        groups.values(), lambda group: _delete_or_refuse(broker, call, group), SUBJECT_UNITS
    )
    return DeleteTopicsResponse(responses=answers + deleted)


def _find(broker: Services, asked: DeleteTopicsRequest.Topic) -> Topic | None:
    """Return the topic that the request names by name or id; None if it does not exist."""
    topics = broker.topics
    return topics.by_id.get(asked.topic_id) if asked.name is None else topics.by_name.get(asked.name)


def _refusal_of_deletion(broker: Services, call: Call, asked: DeleteTopicsRequest.Topic) -> _Deleted | None:
    """Return the refusal if the client may not delete the topic. None if it may, or if the topic does not exist and the
    client may know that; then the caller answers with the error for an unknown topic.

    The refusal contains the topic's name and id only if the client may describe the topic.
    """
    access, session, topic = broker.access, call.session, _find(broker, asked)
    name = topic.name if topic is not None else asked.name
    if name is None or access.allows_on_cluster(session, Operation.DELETE):
        return None
    if access.allows(session, Operation.DELETE, ResourceType.TOPIC, name):
        return None
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    refused = _Deleted(name=asked.name, topic_id=asked.topic_id, error_code=code, error_message=code.text)
    if access.allows(session, Operation.DESCRIBE, ResourceType.TOPIC, name):
        if topic is None:
            return None
        refused.name, refused.topic_id = topic.name, topic.id
    return refused


def _ambiguous(asked: DeleteTopicsRequest.Topic) -> _Deleted:
    """Return the error for an entry that has both a name and an id, or neither."""
    both = asked.name is not None
    text = "You may not specify both topic name and topic id." if both else "Neither topic name nor id were specified."
    return _Deleted(name=asked.name, topic_id=asked.topic_id, error_code=ErrorCode.INVALID_REQUEST, error_message=text)


def _delete_or_refuse(broker: Services, call: Call, group: Sequence[DeleteTopicsRequest.Topic]) -> _Deleted:
    """Delete one topic. Returns its answer. group: all entries of the request that name it; several are an error."""
    topic = _find(broker, group[0])
    answer = _Deleted(
        name=next((asked.name for asked in group if asked.name is not None), None),
        topic_id=next((asked.topic_id for asked in group if asked.topic_id != ZERO_UUID), ZERO_UUID),
    )
    try:
        if len(group) > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, _text_for_duplicate(group))
        if topic is None:
            by_name = answer.name is not None
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if by_name else ErrorCode.UNKNOWN_TOPIC_ID)
        _check_not_internal(topic)
        _check_mutations(broker, call, len(topic.partitions), STRICT_DELETION_SINCE)
        broker.topics.delete(topic)
    except KafkaError as error:
        answer.error_code, answer.error_message = error.code, error.text
    if topic is not None and answer.error_code in (ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED):
        answer.name, answer.topic_id = topic.name, topic.id
    return answer


def _check_not_internal(topic: Topic) -> None:
    """Raise INVALID_TOPIC_EXCEPTION for an internal topic, which may not be deleted or get more partitions.

    The number of its partitions decides which of them has the state of a coordinator's key.
    """
    if topic.internal:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic.name} is internal: it is the broker's alone")


def _text_for_duplicate(group: Sequence[DeleteTopicsRequest.Topic]) -> str:
    """Return Kafka's error text for a topic that the request names more than once."""
    by_name = [asked.name is not None for asked in group]
    if all(by_name):
        return "Duplicate topic name."
    if not any(by_name):
        return "Duplicate topic id."
    return "The provided topic name maps to an ID that was already supplied."


# ---- CreatePartitions ----------------------------------------------------------------------------------------


@handles(CreatePartitionsRequest, may_be_long=True)
def create_partitions(
    broker: Services, call: Call, request: CreatePartitionsRequest
) -> Steps[CreatePartitionsResponse]:
    """Add partitions to topics, or only check whether they could be added."""
    names = {asked.name for asked in request.topics}
    may_alter = set((yield from allowed_names(broker, call, Operation.ALTER, ResourceType.TOPIC, names)))
    allowed = [asked for asked in request.topics if asked.name in may_alter]
    if sum(_additional_partitions(broker, asked) for asked in allowed) > MAX_PARTITIONS:
        return CreatePartitionsResponse(
            results=[
                _Grown(name=name, error_code=TOO_MANY[0], error_message=TOO_MANY[1])
                for name in dict.fromkeys(asked.name for asked in request.topics)
            ]
        )
    named = Counter(asked.name for asked in request.topics)
    doubled = [
        _Grown(name=name, error_code=ErrorCode.INVALID_REQUEST, error_message="Duplicate topic name.")
        for name, times in named.items()
        if times > 1
    ]
    answers = []
    for asked in request.topics:
        if named[asked.name] == 1:
            additional = _additional_partitions(broker, asked) if asked.name in may_alter else 0
            answers.append(_grown_or_refused(broker, call, asked, request.validate_only, asked.name in may_alter))
            yield SUBJECT_UNITS + PARTITION_UNITS * additional
    return CreatePartitionsResponse(results=answers + doubled)


def _additional_partitions(broker: Services, asked: CreatePartitionsRequest.Topic) -> int:
    """Return how many partitions the request adds to this topic."""
    topic = broker.topics.by_name.get(asked.name)
    return 0 if topic is None else max(0, asked.count - len(topic.partitions))


def _grown_or_refused(
    broker: Services, call: Call, asked: CreatePartitionsRequest.Topic, validate_only: bool, may: bool
) -> _Grown:
    """Add the partitions to one topic, or only check that (validate_only). Returns its result, which contains the error
    if it was refused. may: whether the client may alter the topic.
    """
    try:
        if not may:
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        topic = broker.topics.by_name.get(asked.name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        _check_not_internal(topic)
        _check_growth(broker, topic, asked)
        broker.topics.check_room(asked.count - len(topic.partitions))
        _check_mutations(broker, call, asked.count - len(topic.partitions), STRICT_GROWTH_SINCE)
        if not validate_only:
            broker.topics.add_partitions(topic, asked.count)
    except KafkaError as error:
        return _Grown(name=asked.name, error_code=error.code, error_message=error.text)
    return _Grown(name=asked.name)


def _check_growth(broker: Services, topic: Topic, asked: CreatePartitionsRequest.Topic) -> None:
    """Raise KafkaError if the topic cannot be given this number of partitions, or the assignment is not valid."""
    now = len(topic.partitions)
    if asked.count == now:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {now} partition(s).")
    if asked.count < now:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {now} partition(s); {asked.count} would not be an increase.",
        )
    additional = asked.count - now
    if asked.assignments is None:
        return
    if len(asked.assignments) != additional:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {additional} additional partition(s), but only {len(asked.assignments)} assignment(s) "
            "were specified.",
        )
    for assignment in asked.assignments:
        check_replicas(assignment.broker_ids, broker.node_id)


# ---- DeleteRecords -------------------------------------------------------------------------------------------


@handles(DeleteRecordsRequest, reads_released=True, may_be_long=True)
def delete_records(broker: Services, call: Call, request: DeleteRecordsRequest) -> Steps[DeleteRecordsResponse]:
    """Move the start offsets of logs up. The records below are gone for readers at once, and are deleted from disk some
    time later.
    """
    answers: dict[str, dict[int, DeleteRecordsResponse.Topic.Partition]] = {}
    for topic in request.topics:
        of_topic = answers.setdefault(topic.name, {})
        for asked in topic.partitions:
            of_topic[asked.partition_index] = _delete_records_or_refuse(broker, call, topic.name, asked)
            yield EMPTYING_UNITS
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsResponse.Topic(name=name, partitions=list(of_topic.values()))
            for name, of_topic in answers.items()
        ]
    )


def _delete_records_or_refuse(
    broker: Services, call: Call, name: str, asked: DeleteRecordsRequest.Topic.Partition
) -> DeleteRecordsResponse.Topic.Partition:
    """Delete the records of one partition. Returns its answer, with the error if it was refused."""
    answer = DeleteRecordsResponse.Topic.Partition(partition_index=asked.partition_index)
    try:
        broker.access.check(call.session, Operation.DELETE, ResourceType.TOPIC, name)
        answer.low_watermark = _delete_records(broker, name, asked.partition_index, asked.offset)
    except KafkaError as error:
        broker.note_limit("DeleteRecords", call.client_host, call.client_id, error)
        answer.error_code = error.code
    return answer


def _delete_records(broker: Services, name: str, index: int, offset: int) -> int:
    """Move the partition's start offset up. Returns the new start offset. Raises KafkaError."""
    topic = broker.topics.by_name.get(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic.internal:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot delete records of internal topic {name}")
    partition = topic.partitions[index]
    partition.check_online()
    if topic.settings.cleanup_policy == ("compact",):
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, f"Records of {name}-{index} can not be deleted: see cleanup.policy"
        )
    log = partition.log
    start = log.high_watermark if offset == HIGH_WATERMARK else offset
    if not 0 <= start <= log.high_watermark:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if start > log.start_offset:
        if not broker.store.admits(0, frees=True):
            # The answer has no place for a message, and the text of KAFKA_STORAGE_ERROR speaks of damaged files. Kafka
            # gives this code for what it cannot delete now; clients try again.
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, broker.store.refuse(0))
        broker.store.commit([broker.store.log_start_part(log, start)])
    return log.start_offset
