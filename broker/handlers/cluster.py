"""The requests by which a client finds its way: ApiVersions, Metadata, DescribeCluster, DescribeTopicPartitions,
DescribeLogDirs.

None of these answers waits for the disk: if a crash undoes what an answer said, clients ask again. This broker leads
every partition; one that cannot be read is listed without a leader.

Sources: KIP-511, 584, 516, 700, 966.
"""

import os.path
from functools import partial

from ...protocol.encoding import Lazy
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.cluster import (
    NO_OPERATIONS,
    ApiVersionsRequest,
    ApiVersionsResponse,
    Cursor,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    MetadataRequest,
    MetadataResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from ...protocol.primitives import ZERO_UUID
from ..net.features import OWN_APIS, Feature, complete_features, highest_served, named_as_supported
from ..net.turns import SUBJECT_UNITS, Steps, answer_each
from ..requests.allowed_names import allowed_names
from ..requests.dispatch import HANDLERS, Call, handles
from ..requests.services import Services
from ..security.acls import CLUSTER_NAME, Operation, ResourceType
from ..topics.catalogue_log import NoRoom
from ..topics.names import check_name
from ..topics.partition import Partition
from ..topics.topics import Topic

DESCRIBE_TOPIC = Operation.DESCRIBE, ResourceType.TOPIC
TOLD_NOTHING = {ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INVALID_REQUEST}
IDS_SINCE = 12  # of Metadata: before, an id beside a name means nothing
MADE_AT_ONCE = 2_000  # topics that one request of names may make: for the others clients have to ask again
SORTED_PER_UNIT = 10  # names
BROKERS, CONTROLLERS = 1, 2

_Topic = MetadataResponse.Topic
_Fenced = DescribeClusterResponse.Broker
_Page = DescribeTopicPartitionsResponse.Topic


@handles(ApiVersionsRequest, waits=False, may_be_long=True)
def api_versions(broker: Services, call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Answer with Kafka's APIs that are served here, and the features that they provide.

    A client may give any name to its software. Kafka refuses some names (KIP-511), and one client cannot read the
    refusal.
    """
    call.connection.client_software = f"{request.client_software_name} {request.client_software_version}".strip()
    served = {key: HANDLERS[key].api for key in sorted(HANDLERS)}
    features = complete_features(served)
    return ApiVersionsResponse(
        api_keys=[
            ApiVersionsResponse.ApiKey(
                api_key=key, min_version=api.advertised_min, max_version=highest_served(api, broker.settings)
            )
            for key, api in served.items()
            if key not in OWN_APIS
        ],
        supported_features=[
            ApiVersionsResponse.SupportedFeature(name=each.name, min_version=each.low, max_version=each.high)
            for each in named_as_supported(features, call.version)
        ],
        finalized_features_epoch=0,
        finalized_features=[
            ApiVersionsResponse.FinalizedFeature(
                name=each.name, max_version_level=each.high, min_version_level=each.high
            )
            for each in features
        ],
    )


# ---- UpdateFeatures ------------------------------------------------------------------------------------------

UPGRADE, UNSAFE_DOWNGRADE = 1, 3


@handles(UpdateFeaturesRequest, waits=False, may_be_long=True)
def update_features(broker: Services, call: Call, request: UpdateFeaturesRequest) -> Steps[UpdateFeaturesResponse]:
    """Refuse changes, because features always have their highest versions. A request that asks for just these versions
    succeeds.
    """
    broker.access.check_on_cluster(call.session, Operation.ALTER)
    levels = {each.name: each for each in complete_features({key: HANDLERS[key].api for key in HANDLERS})}

    def answer(update: UpdateFeaturesRequest.Update) -> UpdateFeaturesResponse.Result:
        """Return success for an update to the version that the feature has.

        Raises INVALID_UPDATE_VERSION for any other.
        """
        problem = _wrong_with(update, levels.get(update.feature))
        if problem:
            raise KafkaError(
                ErrorCode.INVALID_UPDATE_VERSION,
                "The update failed for all features since the following feature had an error: "
                f"Invalid update version {update.max_version_level} for feature {update.feature}. {problem}",
            )
        return UpdateFeaturesResponse.Result(feature=update.feature, error_message="NONE")  # Kafka's text for no error

    return UpdateFeaturesResponse(results=(yield from answer_each(request.feature_updates, answer)))


def _wrong_with(update: UpdateFeaturesRequest.Update, feature: Feature | None) -> str | None:
    """Return why Kafka would refuse the feature update; None if it is valid."""
    level = update.max_version_level
    if not UPGRADE <= update.upgrade_type <= UNSAFE_DOWNGRADE:
        return "The controller does not support the given upgrade type."
    if level < 0:
        return "A feature version cannot be less than 0."
    if feature is None:
        return "This broker does not support this feature."
    if not feature.low <= level <= feature.high:
        return f"This broker only supports versions {feature.low}-{feature.high}"
    if level < feature.high:
        return "This broker does not change the versions of its features."
    return None


# ---- Metadata ------------------------------------------------------------------------------------------------


@handles(MetadataRequest, waits=False, may_be_long=True)
def metadata(broker: Services, call: Call, request: MetadataRequest) -> Steps[MetadataResponse]:
    """Answer with topics, by name or id. A missing topic is created if the client asks for that and has the right."""
    everything = request.topics is None or (call.version == 0 and not request.topics)
    if everything:
        known = list(broker.topics.by_name.values())
        if broker.access.is_enforced:
            seen = set((yield from allowed_names(broker, call, *DESCRIBE_TOPIC, [topic.name for topic in known])))
            known = [topic for topic in known if topic.name in seen]
        topics: list[_Topic] = Lazy(len(known), (_describe(broker, topic) for topic in known))
    else:
        topics = yield from _answer_topics(broker, call, request)
    if request.include_topic_authorized_operations:
        topics = Lazy(len(topics), map(partial(_with_operations, broker, call), topics))
    host, port = call.advertised
    brokers = [MetadataResponse.Broker(node_id=broker.node_id, host=host, port=port)]
    if everything or request.topics:  # a client that asks for no topics sends a request to each broker next
        brokers += [MetadataResponse.Broker(node_id=id_, host=at, port=on) for id_, at, on in _waiting(broker, call)]
    return MetadataResponse(
        brokers=brokers,
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        topics=topics,
        cluster_authorized_operations=_cluster_operations(broker, call, request.include_cluster_authorized_operations),
    )


def _waiting(broker: Services, call: Call) -> list[tuple[int, str, int]]:
    """Return (node id, host, port) of each broker that waits to take over, at the listener that the client uses.

    These brokers serve nobody yet. A client that knows them connects to one of them when this broker is gone.
    """
    return broker.other_nodes.at(call.listener_name) if broker.other_nodes is not None else []


def _cluster_operations(broker: Services, call: Call, are_asked_for: bool) -> int:
    """Return a bit set of the operations that the client may do on the cluster (KIP-430); 0 if it may not describe the
    cluster, NO_OPERATIONS if it did not ask.
    """
    if not are_asked_for:
        return NO_OPERATIONS
    if not broker.access.allows_on_cluster(call.session, Operation.DESCRIBE):
        return 0
    return broker.access.operations(call.session, ResourceType.CLUSTER, CLUSTER_NAME)


def _with_operations(broker: Services, call: Call, topic: _Topic) -> _Topic:
    """Add to a topic of the answer the operations that the client may do on it, unless the answer must not tell about
    the topic.
    """
    if topic.error_code not in TOLD_NOTHING and topic.name is not None:
        topic.topic_authorized_operations = _topic_operations(broker, call, topic.name)
    return topic


def _topic_operations(broker: Services, call: Call, name: str) -> int:
    """Return a bit set of the operations that the client may do with the topic."""
    return broker.access.operations(call.session, ResourceType.TOPIC, name)


def _answer_topics(broker: Services, call: Call, request: MetadataRequest) -> Steps[list[_Topic]]:
    """Return one answer for each distinct topic of the request, in its order. Creates MADE_AT_ONCE topics at most."""
    answers: dict[str | bytes | None, _Topic] = {}
    made = 0
    for asked in request.topics or ():
        by_id = asked.topic_id != ZERO_UUID and (call.version >= IDS_SINCE or asked.name is None)
        key = asked.topic_id if by_id else asked.name
        if key not in answers:
            before = len(broker.topics.by_name)
            answers[key] = _answer(broker, call, asked, request.allow_auto_topic_creation, made >= MADE_AT_ONCE)
            made += len(broker.topics.by_name) - before
            yield 1 if before == len(broker.topics.by_name) else SUBJECT_UNITS
    return list(answers.values())


def _answer(broker: Services, call: Call, asked: MetadataRequest.Topic, may_create: bool, enough: bool) -> _Topic:
    """Return one topic of the answer: its description or its error. If the topic is missing, it is created if that is
    allowed and wanted.

    enough: whether this request has created as many topics as one request may; then no more are created, and the client
    is told to ask again.
    """
    by_id = asked.topic_id != ZERO_UUID
    if asked.name is None and (not by_id or call.version < IDS_SINCE):
        return _refusal(ErrorCode.INVALID_REQUEST, "", asked.topic_id)
    if by_id and call.version >= IDS_SINCE:
        topic = broker.topics.by_id.get(asked.topic_id)
        if topic is None:
            return _refusal(ErrorCode.UNKNOWN_TOPIC_ID, None, asked.topic_id)
        if not broker.access.allows(call.session, Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
            return _refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, asked.topic_id)
        return _describe(broker, topic)
    assert asked.name is not None
    if not broker.access.allows(call.session, Operation.DESCRIBE, ResourceType.TOPIC, asked.name):
        return _refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, asked.name, ZERO_UUID)
    topic = broker.topics.by_name.get(asked.name)
    if topic is not None:
        return _describe(broker, topic)
    try:
        if may_create and broker.settings.auto_create_topics_enable:
            _check_may_create(broker, call, asked.name)
        check_name(asked.name)
        if may_create and not enough:
            if call.meter is not None and broker.settings.auto_create_topics_enable:
                broker.throttling.check_mutations(call.meter, broker.settings.num_partitions, strict=True)
            broker.topics.auto_create(asked.name)
    except NoRoom as error:
        # The answer has no field for a message, and the text of KAFKA_STORAGE_ERROR speaks of unreadable files.
        broker.note_limit("Metadata", call.client_host, call.client_id, error)
        return _refusal(ErrorCode.LEADER_NOT_AVAILABLE, asked.name, ZERO_UUID)
    except KafkaError as error:
        if error.code is not ErrorCode.THROTTLING_QUOTA_EXCEEDED:  # then the client is to ask again, as below
            broker.note_limit("Metadata", call.client_host, call.client_id, error)
            return _refusal(error.code, asked.name, ZERO_UUID)
    # As in Kafka, the request that creates a topic is not answered with the topic: the client asks again. So it does
    # not get a topic that somebody has deleted meanwhile.
    return _refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, asked.name, ZERO_UUID)


def _check_may_create(broker: Services, call: Call, name: str) -> None:
    """Raise TOPIC_AUTHORIZATION_FAILED if the client may create neither topics in general nor this one."""
    if not broker.access.allows_on_cluster(call.session, Operation.CREATE):
        broker.access.check(call.session, Operation.CREATE, ResourceType.TOPIC, name)


def _refusal(code: ErrorCode, name: str | None, topic_id: bytes) -> _Topic:
    """Return one topic of the answer with an error."""
    return _Topic(error_code=code, name=name, topic_id=topic_id, partitions=[])


def _describe(broker: Services, topic: Topic) -> _Topic:
    """Return one topic of the Metadata answer. Its partitions are made when it is encoded."""
    partitions = list(topic.partitions)
    return _Topic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.internal,
        partitions=Lazy(len(partitions), (_partition(broker.node_id, partition) for partition in partitions)),
    )


def _partition(node_id: int, partition: Partition) -> _Topic.Partition:
    """Return one partition of the Metadata answer. An offline partition has no leader."""
    offline = partition.log.offline is not None
    return _Topic.Partition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE if offline else ErrorCode.NONE,
        partition_index=partition.index,
        leader_id=-1 if offline else node_id,
        leader_epoch=partition.leader_epoch,
        replica_nodes=[node_id],
        isr_nodes=[] if offline else [node_id],
        offline_replicas=[node_id] if offline else [],
    )


# ---- DescribeCluster -----------------------------------------------------------------------------------------


@handles(DescribeClusterRequest, waits=False)
def describe_cluster(broker: Services, call: Call, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """Answer with this broker, the only one that serves. Brokers that wait to take over are listed as fenced
    (KIP-1073).
    """
    refused = _no_endpoint(request.endpoint_type)
    if refused is not None:
        broker.metrics.error("DescribeCluster", refused.code)
        return DescribeClusterResponse(error_code=refused.code, error_message=refused.text, cluster_id="", brokers=[])
    host, port = call.advertised
    brokers = [DescribeClusterResponse.Broker(broker_id=broker.node_id, host=host, port=port)]
    if request.include_fenced_brokers:
        waiting = _waiting(broker, call)
        brokers += [_Fenced(broker_id=id_, host=at, port=on, is_fenced=True) for id_, at, on in waiting]
    return DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        brokers=brokers,
        cluster_authorized_operations=_cluster_operations(broker, call, request.include_cluster_authorized_operations),
    )


def _no_endpoint(kind: int) -> KafkaError | None:
    """Return the error if the client asks DescribeCluster for endpoints other than brokers; None for brokers."""
    if kind == CONTROLLERS:
        return KafkaError(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER",
        )
    if kind != BROKERS:
        return KafkaError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {kind}")
    return None


# ---- DescribeTopicPartitions ---------------------------------------------------------------------------------


@handles(DescribeTopicPartitionsRequest, may_be_long=True)
def describe_topic_partitions(
    broker: Services, call: Call, request: DescribeTopicPartitionsRequest
) -> Steps[DescribeTopicPartitionsResponse]:
    """Answer with a page of partitions, topics sorted by name. The cursor names where the next page begins.

    Topics that the client may not describe come last, if it named them, and do not count towards the page's limit.
    """
    asked = {topic.name for topic in request.topics}
    names = sorted((yield from allowed_names(broker, call, *DESCRIBE_TOPIC, list(asked or broker.topics.by_name))))
    unseen = [
        _Page(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name, partitions=[])
        for name in sorted(asked.difference(names))
    ]
    yield 1 + (len(names) + len(asked)) // SORTED_PER_UNIT
    cursor = request.cursor
    if cursor is not None:
        if cursor.partition_index < 0 or (request.topics and cursor.topic_name not in asked):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the cursor names no partition of the topics asked for")
        names = [name for name in names if name >= cursor.topic_name]
    limit = broker.settings.max_request_partition_size_limit
    room = max(1, min(limit, request.response_partition_limit))
    topics: list[_Page] = []
    for name in names:
        if room == 0:
            next_page = Cursor(topic_name=name, partition_index=0)
            return DescribeTopicPartitionsResponse(topics=topics + unseen, next_cursor=next_page)
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        page, next_index = _page(broker, call, name, first, room)
        topics.append(page)
        room -= len(page.partitions)
        yield 1
        if next_index is not None:
            next_page = Cursor(topic_name=name, partition_index=next_index)
            return DescribeTopicPartitionsResponse(topics=topics + unseen, next_cursor=next_page)
    return DescribeTopicPartitionsResponse(topics=topics + unseen)


def _page(broker: Services, call: Call, name: str, first: int, room: int) -> tuple[_Page, int | None]:
    """Return a topic with its partitions from `first` on, `room` at most, and the index of the next partition; None if
    there are no more.
    """
    topic = broker.topics.by_name.get(name)
    if topic is None:
        return _unknown_page(name, _topic_operations(broker, call, name)), None
    shown = topic.partitions[first : first + room]
    end = first + len(shown)
    page = _Page(
        name=name,
        topic_id=topic.id,
        is_internal=topic.internal,
        partitions=Lazy(len(shown), (_page_partition(broker.node_id, partition) for partition in shown)),
        topic_authorized_operations=_topic_operations(broker, call, name),
    )
    return page, end if end < len(topic.partitions) else None


def _unknown_page(name: str, operations: int) -> _Page:
    """Return the answer for a topic that does not exist, or whose name is invalid."""
    try:
        check_name(name)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    except KafkaError as error:
        code = error.code
    return _Page(error_code=code, name=name, partitions=[], topic_authorized_operations=operations)


def _page_partition(node_id: int, partition: Partition) -> _Page.Partition:
    """Return one partition of the DescribeTopicPartitions answer."""
    known = _partition(node_id, partition)
    return _Page.Partition(
        error_code=known.error_code,
        partition_index=known.partition_index,
        leader_id=known.leader_id,
        leader_epoch=known.leader_epoch,
        replica_nodes=known.replica_nodes,
        isr_nodes=known.isr_nodes,
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=known.offline_replicas,
    )


# ---- DescribeLogDirs -----------------------------------------------------------------------------------------


@handles(DescribeLogDirsRequest, may_be_long=True)
def describe_log_dirs(broker: Services, call: Call, request: DescribeLogDirsRequest) -> Steps[DescribeLogDirsResponse]:
    """Answer with the data directory, and the size of each partition in it."""
    broker.access.check_on_cluster(call.session, Operation.DESCRIBE)
    wanted = None if request.topics is None else {topic.topic: set(topic.partitions) for topic in request.topics}
    names = (
        list(broker.topics.by_name) if wanted is None else [name for name in wanted if name in broker.topics.by_name]
    )
    topics = []
    for name in names:
        topic = broker.topics.by_name.get(name)
        if topic is not None:
            topics.append(_sizes(topic, None if wanted is None else wanted[name]))
        yield 1
    return DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResponse.Result(
                log_dir=os.path.abspath(broker.store.directory),
                topics=[topic for topic in topics if topic.partitions],
                total_bytes=broker.disk.total_bytes(broker.store.directory),
                usable_bytes=broker.store.usable_bytes,
            )
        ]
    )


def _sizes(topic: Topic, wanted: set[int] | None) -> DescribeLogDirsResponse.Result.Topic:
    """Return the sizes in bytes of a topic's partitions. wanted: their indexes; None: all."""
    made = DescribeLogDirsResponse.Result.Topic.Partition
    shown = [each for each in topic.partitions if wanted is None or each.index in wanted]
    sizes = (made(partition_index=each.index, partition_size=each.log.size_bytes) for each in shown)
    return DescribeLogDirsResponse.Result.Topic(name=topic.name, partitions=Lazy(len(shown), sizes))
