"""A request that fails as a whole gets an answer that every client finds the error in."""

import pytest
from fencepost.broker.net.refusals import refusal
from fencepost.protocol.apis import APIS, decode_response, encode_response
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.protocol.messages.acls import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from fencepost.protocol.messages.cluster import MetadataRequest
from fencepost.protocol.messages.configs import AlterConfigsRequest, DescribeConfigsRequest
from fencepost.protocol.messages.fetch import FetchRequest
from fencepost.protocol.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    SyncGroupRequest,
)
from fencepost.protocol.messages.offsets import (
    ListOffsetsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
)
from fencepost.protocol.messages.quotas import DescribeClientQuotasRequest
from fencepost.protocol.messages.topics import CreateTopicsRequest, DeleteRecordsRequest, DeleteTopicsRequest
from fencepost.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnTopic,
    WriteTxnMarkersRequest,
)
from fencepost.protocol.schema import Array, Fixed, Text, schema_of
from produce_requests import batch, fetch, list_offsets, produce
from simulated_broker import SimulatedBroker

BROKEN = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
CODE = int(ErrorCode.UNKNOWN_SERVER_ERROR)


def refused(request, version):
    """Return the answer of refusal() to this request, encoded and decoded again as a client reads it."""
    api = APIS[schema_of(type(request)).api]
    frame = b"".join(encode_response(api, version, 1, refusal(api.response, version, request, BROKEN)))
    return decode_response(api, version, frame[4:])[1]


def codes(message):
    """Return every error code in the message, at any depth."""
    found = []
    for field in message.__slots__:
        value = getattr(message, field)
        if field == "error_code":
            found.append(value)
        elif isinstance(value, list):
            found += [code for item in value if hasattr(item, "__slots__") for code in codes(item)]
    return found


def test_a_refused_produce_is_answered_with_an_error_for_every_partition():
    response = refused(produce("t", batch(), batch(), partition=3), 9)
    assert [topic.name for topic in response.responses] == ["t"]
    assert [(part.index, part.error_code) for part in response.responses[0].partition_responses] == [
        (3, CODE),
        (4, CODE),
    ]
    assert response.responses[0].partition_responses[0].base_offset == -1


@pytest.mark.parametrize(("version", "topics"), [(6, 1), (7, 0), (12, 0)])
def test_a_refused_fetch_has_one_error_from_version_7_and_one_per_partition_below(version, topics):
    response = refused(fetch("t"), version)
    assert len(response.responses) == topics
    assert set(codes(response)) - {0} == {CODE}
    if topics:
        assert response.responses[0].partitions[0].partition_index == 0


def test_a_refused_list_offsets_has_an_error_for_every_partition():
    response = refused(list_offsets("t", -1, partition=5), 7)
    assert [(part.partition_index, part.error_code) for part in response.topics[0].partitions] == [(5, CODE)]


def test_a_refused_metadata_has_errors_per_topic_and_a_top_level_one_from_version_13():
    request = MetadataRequest(topics=[MetadataRequest.Topic(name="a"), MetadataRequest.Topic(name="b")])
    assert [topic.name for topic in refused(request, 9).topics] == ["a", "b"]
    assert refused(request, 13).error_code == CODE
    assert refused(MetadataRequest(topics=None), 9).topics == []


def test_a_refused_topic_request_has_an_error_for_each_topic():
    created = refused(CreateTopicsRequest(topics=[CreateTopicsRequest.Topic(name="a")]), 5)
    assert [(topic.name, topic.error_code) for topic in created.topics] == [("a", CODE)]
    assert created.topics[0].error_message
    by_name = refused(DeleteTopicsRequest(topic_names=["a", "b"], timeout_ms=1), 5)
    assert [topic.name for topic in by_name.responses] == ["a", "b"]
    by_id = refused(DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(topic_id=b"i" * 16)], timeout_ms=1), 6)
    assert [(topic.name, topic.topic_id) for topic in by_id.responses] == [(None, b"i" * 16)]


def test_a_refused_partition_request_has_an_error_for_each_partition():
    part = DeleteRecordsRequest.Topic.Partition(partition_index=2, offset=0)
    deleted = refused(
        DeleteRecordsRequest(topics=[DeleteRecordsRequest.Topic(name="t", partitions=[part])], timeout_ms=1), 2
    )
    assert [(p.partition_index, p.error_code) for p in deleted.topics[0].partitions] == [(2, CODE)]
    topic = DescribeProducersRequest.Topic(name="t", partition_indexes=[4, 1])
    described = refused(DescribeProducersRequest(topics=[topic]), 0)
    assert [(p.partition_index, p.error_code) for p in described.topics[0].partitions] == [(4, CODE), (1, CODE)]
    epoch = OffsetForLeaderEpochRequest.Topic.Partition(partition=6, leader_epoch=0)
    ends = refused(
        OffsetForLeaderEpochRequest(topics=[OffsetForLeaderEpochRequest.Topic(topic="t", partitions=[epoch])]), 3
    )
    assert [(p.partition, p.error_code) for p in ends.topics[0].partitions] == [(6, CODE)]
    assert ends.topics[0].topic == "t"


def test_a_refused_config_request_has_an_error_for_each_resource():
    resource = DescribeConfigsRequest.Resource(resource_type=2, resource_name="t")
    (described,) = refused(DescribeConfigsRequest(resources=[resource]), 2).results
    assert (described.resource_type, described.resource_name, described.error_code) == (2, "t", CODE)
    changed = AlterConfigsRequest.Resource(resource_type=2, resource_name="t", configs=[])
    (altered,) = refused(AlterConfigsRequest(resources=[changed]), 1).responses
    assert (altered.resource_type, altered.resource_name, altered.error_code) == (2, "t", CODE)


def test_a_refused_acl_request_has_one_error_per_item_in_request_order():
    rule = {"operation": 3, "permission_type": 3}
    made = CreateAclsRequest.Creation(resource_type=2, resource_name="t", principal="User:a", host="*", **rule)
    created = refused(CreateAclsRequest(creations=[made] * 3), 3)
    assert [each.error_code for each in created.results] == [CODE] * 3
    wanted = {"resource_name_filter": None, "principal_filter": None, "host_filter": None}
    asked = DeleteAclsRequest.Filter(resource_type_filter=2, **wanted, **rule)
    deleted = refused(DeleteAclsRequest(filters=[asked] * 2), 3)
    assert [(each.error_code, each.matching_acls) for each in deleted.filter_results] == [(CODE, [])] * 2
    described = refused(DescribeAclsRequest(resource_type_filter=2, **wanted, **rule), 3)
    assert (described.error_code, described.resources) == (CODE, [])


def test_a_refused_find_coordinator_has_an_error_per_key_from_version_4():
    assert refused(FindCoordinatorRequest(key="g"), 3).error_code == CODE
    batched = refused(FindCoordinatorRequest(coordinator_keys=["g", "h"]), 4)
    assert [(each.key, each.error_code) for each in batched.coordinators] == [("g", CODE), ("h", CODE)]


# ---- groups and their offsets ----------------------------------------------------------------------------------


def test_a_refused_join_or_sync_returns_the_member_id_and_no_protocol():
    request = JoinGroupRequest(
        group_id="g", session_timeout_ms=1, member_id="m", protocol_type="consumer", protocols=[]
    )
    for version in (0, 9):
        response = refused(request, version)
        assert (response.error_code, response.generation_id, response.member_id) == (CODE, -1, "m")
        assert (response.protocol_type, response.leader, response.members) == (None, "", [])
    sync = SyncGroupRequest(group_id="g", generation_id=1, member_id="m", protocol_type="p", assignments=[])
    assert (refused(sync, 5).error_code, refused(sync, 5).protocol_type, refused(sync, 5).assignment) == (
        CODE,
        None,
        b"",
    )


def test_a_refused_leave_group_has_one_error_and_no_members():
    members = [LeaveGroupRequest.Member(member_id="m")]
    response = refused(LeaveGroupRequest(group_id="g", members=members), 5)
    assert (response.error_code, response.members) == (CODE, [])


@pytest.mark.parametrize("version", [0, 5, 6])
def test_a_refused_describe_groups_has_an_error_for_every_group(version):
    groups = refused(DescribeGroupsRequest(groups=["a", "", "a"]), version).groups
    assert [(group.group_id, group.error_code, group.members) for group in groups] == [
        ("a", CODE, []),
        ("", CODE, []),
        ("a", CODE, []),
    ]


def test_a_refused_delete_groups_has_an_error_per_group_and_list_groups_one():
    results = refused(DeleteGroupsRequest(groups_names=["a", "b"]), 2).results
    assert [(result.group_id, result.error_code) for result in results] == [("a", CODE), ("b", CODE)]
    assert (refused(ListGroupsRequest(), 5).error_code, refused(ListGroupsRequest(), 5).groups) == (CODE, [])


@pytest.mark.parametrize("version", [9, 10])
def test_a_refused_offset_commit_has_an_error_for_every_partition(version):
    parts = [OffsetCommitRequest.Topic.Partition(partition_index=n, committed_offset=7) for n in (3, 1)]
    topic = OffsetCommitRequest.Topic(name="t", partitions=parts)
    if version >= 10:
        topic = OffsetCommitRequest.Topic(topic_id=b"i" * 16, partitions=parts)
    (answered,) = refused(OffsetCommitRequest(group_id="g", topics=[topic]), version).topics
    assert (answered.name, answered.topic_id) == (topic.name, topic.topic_id)
    assert [(part.partition_index, part.error_code) for part in answered.partitions] == [(3, CODE), (1, CODE)]


def test_a_refused_offset_fetch_has_errors_per_partition_request_or_group_by_version():
    topics = [OffsetFetchRequest.Topic(name="t", partition_indexes=[2, 4])]
    single = OffsetFetchRequest(group_id="g", topics=topics)
    parts = refused(single, 1).topics[0].partitions
    assert [(part.partition_index, part.committed_offset, part.error_code) for part in parts] == [
        (2, -1, CODE),
        (4, -1, CODE),
    ]
    for version in (2, 7):
        assert (refused(single, version).error_code, refused(single, version).topics) == (CODE, [])
    Group = OffsetFetchRequest.Group
    wanted = [Group.Topic(name="t", partition_indexes=[0])]
    several = OffsetFetchRequest(groups=[Group(group_id="g", topics=wanted), Group(group_id="h", topics=None)])
    for version in (8, 10):
        groups = refused(several, version).groups
        assert [(each.group_id, each.error_code, each.topics) for each in groups] == [("g", CODE, []), ("h", CODE, [])]


def test_a_refused_offset_delete_has_one_error_for_the_request():
    part = OffsetDeleteRequest.Topic.Partition(partition_index=0)
    request = OffsetDeleteRequest(group_id="g", topics=[OffsetDeleteRequest.Topic(name="t", partitions=[part])])
    assert (refused(request, 0).error_code, refused(request, 0).topics) == (CODE, [])


# ---- transactions ----------------------------------------------------------------------------------------------


def test_an_error_answer_contains_no_producer_id():
    for request, version in (
        (InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1, producer_id=5, producer_epoch=2), 5),
        (EndTxnRequest(transactional_id="x", producer_id=5, producer_epoch=2, committed=True), 5),
    ):
        response = refused(request, version)
        assert (response.error_code, response.producer_id, response.producer_epoch) == (CODE, -1, -1)


def test_a_refused_add_partitions_has_errors_per_partition_below_version_4():
    topics = [TxnTopic(name="t", partitions=[2, 0]), TxnTopic(name="u", partitions=[1])]
    request = AddPartitionsToTxnRequest(v3_and_below_transactional_id="x", v3_and_below_topics=topics)
    for version in (0, 3):
        results = refused(request, version).results_by_topic_v3_and_below
        assert [
            (topic.name, part.partition_index, part.partition_error_code)
            for topic in results
            for part in topic.results_by_partition
        ] == [("t", 2, CODE), ("t", 0, CODE), ("u", 1, CODE)]
    brokers = AddPartitionsToTxnRequest(transactions=[AddPartitionsToTxnRequest.Transaction(topics=topics)])
    assert (refused(brokers, 4).error_code, refused(brokers, 4).results_by_transaction) == (CODE, [])


def test_a_refused_txn_offset_commit_has_an_error_for_each_partition():
    Topic = TxnOffsetCommitRequest.Topic
    parts = [Topic.Partition(partition_index=n, committed_offset=1) for n in (5, 6)]
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=1,
        producer_epoch=0,
        topics=[Topic(name="t", partitions=parts)],
    )
    for version in (0, 5):
        (topic,) = refused(request, version).topics
        assert topic.name == "t"
        assert [(part.partition_index, part.error_code) for part in topic.partitions] == [(5, CODE), (6, CODE)]


def test_a_refused_write_txn_markers_has_an_error_per_producer_and_partition():
    Marker = WriteTxnMarkersRequest.Marker
    marker = Marker(
        producer_id=9,
        producer_epoch=3,
        transaction_result=False,
        coordinator_epoch=0,
        topics=[Marker.Topic(name="t", partition_indexes=[0, 2])],
    )
    (answered,) = refused(WriteTxnMarkersRequest(markers=[marker]), 2).markers
    assert (answered.producer_id, answered.topics[0].name) == (9, "t")
    assert [(part.partition_index, part.error_code) for part in answered.topics[0].partitions] == [(0, CODE), (2, CODE)]


def test_a_refused_describe_transactions_has_an_error_for_each_id():
    states = refused(DescribeTransactionsRequest(transactional_ids=["x", "", "x"]), 0).transaction_states
    assert [(state.transactional_id, state.error_code) for state in states] == [("x", CODE), ("", CODE), ("x", CODE)]


# ---- all -------------------------------------------------------------------------------------------------------


def empty(kind):
    return (
        kind.zero
        if isinstance(kind, Fixed)
        else ""
        if isinstance(kind, Text)
        else []
        if isinstance(kind, Array)
        else b""
    )


@pytest.mark.slow
@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_every_api_in_every_version_has_a_refusal_that_can_be_sent(api):
    fields = {field.name: field for field in schema_of(api.request).fields}
    given = {name: empty(field.kind) for name, field in fields.items() if field.required}
    request = api.request(**given)
    for version in api.declared:
        frame = b"".join(encode_response(api, version, 1, refusal(api.response, version, request, BROKEN)))
        assert decode_response(api, version, frame[4:])[0] == 1


def test_a_refusal_of_a_request_that_names_no_partition_lists_none():
    assert refused(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]), 4).responses == []
    assert refused(ListOffsetsRequest(topics=[]), 1).topics == []


def test_an_error_message_that_quotes_a_request_is_cut_to_2000_characters():
    long = "\N{GRINNING FACE}" * 40_000
    assert len(KafkaError(ErrorCode.INVALID_REQUEST, long).detail) == 2_000
    asked = DescribeClientQuotasRequest(
        components=[DescribeClientQuotasRequest.Component(entity_type="\0" * 32_000, match_type=0, match="a")],
        strict=False,
    )
    with SimulatedBroker() as broker:
        for version in (0, 1):
            answer = broker.ask(asked, version)
            assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
            assert len(answer.error_message) <= 2_000
