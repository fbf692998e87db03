"""ApiVersions, Metadata, DescribeCluster, DescribeTopicPartitions and DescribeLogDirs, through a whole broker.

What Kafka 4.3.1 answers is in tests/conformance.
"""

from typing import Any

import pytest
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.net.features import complete_features
from fencepost.broker.requests.dispatch import HANDLERS
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.cluster import (
    ApiVersionsRequest,
    Cursor,
    DescribeClusterRequest,
    DescribeLogDirsRequest,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
)
from fencepost.protocol.messages.topics import CreateTopicsRequest
from fencepost.protocol.primitives import ZERO_UUID
from fencepost.protocol.schema import OWN_APIS_FROM
from simulated_broker import SimulatedBroker

Asked = MetadataRequest.Topic
UNKNOWN, UNKNOWN_ID = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID
BAD_NAME, INVALID = ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.INVALID_REQUEST
SOME_ID = bytes(15) + b"c"


def make(broker: SimulatedBroker, **partitions: int) -> dict[str, bytes]:
    topics = [CreateTopicsRequest.Topic(name=name, num_partitions=count) for name, count in partitions.items()]
    return {topic.name: topic.topic_id for topic in broker.ask(CreateTopicsRequest(topics=topics)).topics}


# ---- ApiVersions ---------------------------------------------------------------------------------------------


def test_api_versions_lists_the_served_apis_and_produce_from_version_0(broker: SimulatedBroker) -> None:
    response = broker.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"))
    listed = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
    assert listed[0] == (0, 13)  # from 3 on, an old librdkafka would believe that the broker knows no codec but zstd
    assert listed[3] == (0, 13)
    assert listed[22] == (0, 5)
    assert {0, 1, 2, 3, 10, 18, 19, 20, 21, 22, 23, 32, 33, 35, 37, 44, 60, 61, 75} <= set(listed)


def test_api_versions_lists_and_finalizes_exactly_the_features_whose_apis_exist(broker: SimulatedBroker) -> None:
    response = broker.ask(ApiVersionsRequest())
    complete = complete_features({key: handler.api for key, handler in HANDLERS.items()})
    assert [feature.name for feature in response.supported_features] == [feature.name for feature in complete]
    levels = {each.name: (each.min_version_level, each.max_version_level) for each in response.finalized_features}
    assert levels == {feature.name: (feature.high, feature.high) for feature in complete}
    assert levels["metadata.version"] == (30, 30)
    assert response.finalized_features_epoch >= 0  # with a negative one, clients ignore the finalized features


def test_api_versions_below_4_lists_no_feature_with_minimum_version_0(broker: SimulatedBroker) -> None:
    new, old = broker.ask(ApiVersionsRequest(), 4), broker.ask(ApiVersionsRequest(), 3)
    assert old.supported_features == [feature for feature in new.supported_features if feature.min_version > 0]
    assert old.finalized_features == new.finalized_features


def test_fenceposts_own_apis_are_not_listed_in_api_versions(broker: SimulatedBroker) -> None:
    assert all(api.api_key < OWN_APIS_FROM for api in broker.ask(ApiVersionsRequest()).api_keys)


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_api_versions_is_answered(broker: SimulatedBroker, version: int) -> None:
    response = broker.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), version)
    assert response.error_code == 0
    assert response.api_keys


def test_an_empty_client_software_name_is_accepted(broker: SimulatedBroker) -> None:
    # Kafka answers INVALID_REQUEST, which kafka-python takes for a response of version 0 and cannot read.
    assert broker.ask(ApiVersionsRequest(client_software_name="", client_software_version="-")).error_code == 0


# ---- Metadata ------------------------------------------------------------------------------------------------


def metadata(broker: SimulatedBroker, *asked: Asked, version: int = 13, create: bool = False) -> list[tuple[Any, ...]]:
    """Return (error code, name, id, number of partitions) of each topic in the answer."""
    request = MetadataRequest(topics=list(asked), allow_auto_topic_creation=create)
    topics = broker.ask(request, version).topics
    return [(topic.error_code, topic.name, topic.topic_id, len(topic.partitions)) for topic in topics]


def test_metadata_finds_topics_by_name_and_by_id(broker: SimulatedBroker) -> None:
    ids = make(broker, a=2, b=1)
    assert metadata(broker, Asked(name="b"), Asked(name="a")) == [(0, "b", ids["b"], 1), (0, "a", ids["a"], 2)]
    assert metadata(broker, Asked(topic_id=ids["a"], name=None)) == [(0, "a", ids["a"], 2)]
    assert metadata(broker, Asked(name="a"), Asked(name="a")) == [(0, "a", ids["a"], 2)]


def test_metadata_answers_unknown_and_invalid_topics_with_different_error_codes(broker: SimulatedBroker) -> None:
    ids = make(broker, a=1)
    assert metadata(
        broker,
        Asked(name="nope"),
        Asked(name="a b"),
        Asked(name=""),
        Asked(topic_id=SOME_ID, name=None),
        Asked(topic_id=ZERO_UUID, name=None),
    ) == [
        (UNKNOWN, "nope", ZERO_UUID, 0),
        (BAD_NAME, "a b", ZERO_UUID, 0),
        (BAD_NAME, "", ZERO_UUID, 0),
        (UNKNOWN_ID, None, SOME_ID, 0),
        (INVALID, "", ZERO_UUID, 0),
    ]
    assert metadata(broker, Asked(topic_id=ids["a"], name=None), version=10) == [(INVALID, "", ids["a"], 0)]
    twice = [Asked(topic_id=bytes([number]) * 16, name="a") for number in (1, 2)]
    assert metadata(broker, *twice, version=11) == [(0, "a", ids["a"], 1)]
    assert metadata(broker, Asked(topic_id=SOME_ID, name="a")) == [(UNKNOWN_ID, None, SOME_ID, 0)]


def test_an_empty_topic_list_means_all_topics_in_metadata_v0_and_none_later(broker: SimulatedBroker) -> None:
    make(broker, a=1, b=1)
    assert len(metadata(broker, version=0)) == 2
    assert metadata(broker, version=1) == []
    assert len(broker.ask(MetadataRequest(topics=None), 1).topics) == 2


def test_metadata_creates_a_missing_topic_if_auto_creation_is_allowed(broker: SimulatedBroker) -> None:
    assert [answer[:2] for answer in metadata(broker, Asked(name="a"))] == [(UNKNOWN, "a")]
    first, then = (metadata(broker, Asked(name="a"), create=True) for _ in range(2))
    assert [(code, name, partitions) for code, name, _, partitions in first] == [(UNKNOWN, "a", 0)]
    assert [(code, name, partitions) for code, name, _, partitions in then] == [(0, "a", 1)]
    assert [[answer[0] for answer in metadata(broker, Asked(name="b"), version=3)] for _ in range(2)] == [
        [UNKNOWN],
        [0],
    ]
    assert metadata(broker, Asked(name="a b"), create=True)[0][0] == BAD_NAME


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state", "__fencepost_ledger"])
def test_metadata_creates_an_internal_topic_with_the_coordinators_settings(name: str) -> None:
    """Otherwise an internal topic would be auto-created with one partition and could never get more."""
    request = MetadataRequest(topics=[MetadataRequest.Topic(name=name)], allow_auto_topic_creation=True)
    with SimulatedBroker(BrokerSettings(num_partitions=3)) as asked, SimulatedBroker() as ensured:
        asked.ask(request)
        broker = ensured.broker
        for topic in (broker.group_offsets.topic, broker.transactions.topic, broker.ledger.topic):
            topic.ensure()
        made, expected = asked.broker.topics.by_name[name], broker.topics.by_name[name]
        assert len(made.partitions) == len(expected.partitions) == (1 if "ledger" in name else 50)
        assert (made.configs, made.internal) == (expected.configs, True)


def test_metadata_creates_no_topic_with_auto_creation_off() -> None:
    with SimulatedBroker(BrokerSettings(auto_create_topics_enable=False)) as broker:
        assert [answer[:2] for answer in metadata(broker, Asked(name="a"), create=True)] == [(UNKNOWN, "a")]
        assert metadata(broker, version=0) == []


def test_metadata_returns_authorized_operations_only_on_request(broker: SimulatedBroker) -> None:
    make(broker, a=1)
    silent = broker.ask(MetadataRequest(topics=None), 9)
    asked = MetadataRequest(
        topics=None, include_topic_authorized_operations=True, include_cluster_authorized_operations=True
    )
    reported = broker.ask(asked, 9)
    assert silent.topics[0].topic_authorized_operations == silent.cluster_authorized_operations == -(2**31)
    # Bit sets of all operations on a topic and on the cluster (KIP-430).
    assert (reported.topics[0].topic_authorized_operations, reported.cluster_authorized_operations) == (3576, 8096)


@pytest.mark.slow
@pytest.mark.parametrize("version", range(14))
def test_metadata_is_answered_in_every_version(broker: SimulatedBroker, version: int) -> None:
    make(broker, a=1)
    response = broker.ask(MetadataRequest(topics=[Asked(name="a")]), version)
    assert [(each.node_id, each.host, each.port) for each in response.brokers] == [(1, "127.0.0.1", 9092)]
    (partition,) = response.topics[0].partitions
    assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (1, [1], [1])


def test_metadata_lists_an_offline_partition_without_a_leader(broker: SimulatedBroker) -> None:
    make(broker, a=2)
    broker.broker.topics.by_name["a"].partitions[1].log.offline = "bad bytes"
    first, second = broker.ask(MetadataRequest(topics=None)).topics[0].partitions
    assert (first.error_code, first.leader_id, first.offline_replicas) == (0, 1, [])
    assert (second.error_code, second.leader_id, second.offline_replicas) == (ErrorCode.LEADER_NOT_AVAILABLE, -1, [1])


def test_the_cluster_id_survives_a_restart() -> None:
    with SimulatedBroker() as broker:
        first = broker.ask(MetadataRequest(topics=[])).cluster_id
        with broker.after_power_cut() as again:
            assert again.ask(MetadataRequest(topics=[])).cluster_id == first
    assert len(first) == 22


# ---- DescribeCluster -----------------------------------------------------------------------------------------


def test_describe_cluster_lists_one_broker(broker: SimulatedBroker) -> None:
    response = broker.ask(DescribeClusterRequest(include_cluster_authorized_operations=True))
    # 8096: the bit set of all operations on the cluster (KIP-430)
    assert (response.error_code, response.controller_id, response.cluster_authorized_operations) == (0, 1, 8096)
    assert [(each.broker_id, each.host, each.port, each.is_fenced) for each in response.brokers] == [
        (1, "127.0.0.1", 9092, False)
    ]


@pytest.mark.parametrize(
    ("endpoint", "code", "text"),
    [
        (
            2,
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER",
        ),
        (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, "Unsupported endpoint type 3"),
    ],
)
def test_describe_cluster_refuses_every_endpoint_type_but_brokers(
    broker: SimulatedBroker, endpoint: int, code: int, text: str
) -> None:
    response = broker.ask(DescribeClusterRequest(endpoint_type=endpoint))
    assert (response.error_code, response.error_message, response.brokers) == (code, text, [])


# ---- DescribeTopicPartitions ---------------------------------------------------------------------------------


def pages(
    broker: SimulatedBroker, names: list[str], limit: int = 2000, cursor: tuple[str, int] | None = None
) -> tuple[list[tuple[int, str, list[int]]], tuple[str, int] | None]:
    """Return (error code, name, partitions) of each topic in the answer, and the cursor of the next page."""
    request = DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequest.Topic(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    response = broker.ask(request)
    found = [
        (topic.error_code, topic.name, [partition.partition_index for partition in topic.partitions])
        for topic in response.topics
    ]
    following = response.next_cursor
    return found, None if following is None else (following.topic_name, following.partition_index)


A, B, C = (0, "a", [0, 1, 2]), (0, "b", [0, 1, 2]), (0, "c", [0, 1, 2])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "limit", "cursor", "expected"),
    [
        (["c", "a", "b"], 2000, None, ([A, B, C], None)),
        (["a", "a"], 2000, None, ([A], None)),
        (["c", "a", "b"], 2, None, ([(0, "a", [0, 1])], ("a", 2))),
        (["c", "a", "b"], 3, None, ([A], ("b", 0))),
        (["c", "a", "b"], 4, None, ([A, (0, "b", [0])], ("b", 1))),
        (["c", "a", "b"], 0, None, ([(0, "a", [0])], ("a", 1))),
        (["c", "a", "b"], -5, None, ([(0, "a", [0])], ("a", 1))),
        (["c", "a", "b"], 4, ("b", 1), ([(0, "b", [1, 2]), (0, "c", [0, 1])], ("c", 2))),
        (["c", "a", "b"], 4, ("b", 3), ([(0, "b", []), C], None)),
        (["nope", "a", "b"], 3, None, ([A], ("b", 0))),
        (["a", "nope", "b b"], 9, None, ([A, (BAD_NAME, "b b", []), (UNKNOWN, "nope", [])], None)),
        (["a", "b"], 9, ("z", 0), ([(INVALID, "a", []), (INVALID, "b", [])], None)),
        (["a", "b"], 9, ("a", -1), ([(INVALID, "a", []), (INVALID, "b", [])], None)),
        ([], 9, None, ([A, B, C], None)),
        ([], 3, ("aa", 0), ([B], ("c", 0))),
    ],
)
def test_describe_topic_partitions_returns_pages_in_order_of_names_and_errors_last(
    broker: SimulatedBroker,
    names: list[str],
    limit: int,
    cursor: tuple[str, int] | None,
    expected: tuple[Any, Any],
) -> None:
    make(broker, b=3, c=3, a=3)
    assert pages(broker, names, limit, cursor) == expected


def test_following_the_cursor_of_describe_topic_partitions_gives_each_partition_once(broker: SimulatedBroker) -> None:
    make(broker, a=7, b=1, c=4)
    seen, cursor = [], None
    for _ in range(20):
        found, cursor = pages(broker, [], 3, cursor)
        seen += [(name, index) for _, name, indexes in found for index in indexes]
        if cursor is None:
            break
    assert seen == [("a", i) for i in range(7)] + [("b", 0)] + [("c", i) for i in range(4)]


# ---- DescribeLogDirs -----------------------------------------------------------------------------------------


def test_describe_log_dirs_returns_the_sizes_of_the_requested_partitions(broker: SimulatedBroker) -> None:
    make(broker, a=2, b=1)
    Topic = DescribeLogDirsRequest.Topic
    asked = [Topic(topic="a", partitions=[1, 7]), Topic(topic="nope", partitions=[0]), Topic(topic="b", partitions=[])]
    (result,) = broker.ask(DescribeLogDirsRequest(topics=asked)).results
    assert [(topic.name, [each.partition_index for each in topic.partitions]) for topic in result.topics] == [
        ("a", [1])
    ]
    assert result.usable_bytes > 0
    (everything,) = broker.ask(DescribeLogDirsRequest(topics=None), 1).results
    assert sorted(topic.name for topic in everything.topics) == ["a", "b"]
