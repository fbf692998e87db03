"""The traps of the protocol that lie in its encoding, one test each, with the bytes as they must be."""

import struct

import pytest
from fencepost.protocol.apis import (
    API_VERSIONS,
    APIS,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from fencepost.protocol.compile import decoder, encoder
from fencepost.protocol.errors import ErrorCode, KafkaError, MalformedFrame
from fencepost.protocol.headers import read_request_header
from fencepost.protocol.messages.cluster import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    Cursor,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataResponse,
)
from fencepost.protocol.messages.fetch import FetchRequest, FetchResponse
from fencepost.protocol.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse, JoinGroupResponse
from fencepost.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from fencepost.protocol.messages.produce import ProduceRequest, ProduceResponse
from fencepost.protocol.messages.topics import DeleteTopicsRequest
from fencepost.protocol.messages.transactions import AddPartitionsToTxnRequest, EndTxnResponse, TxnTopic
from fencepost.protocol.schema import schema_of
from wire_oracles import Kio

TOPIC_ID = bytes(range(16))


def body(message: object, version: int) -> bytes:
    return b"".join(encoder(type(message), version)(message))


def framed(api_key: int, version: int, message: object, correlation_id: int = 7, client_id: str = "me") -> bytes:
    """Return the frame of a request, without its length prefix."""
    return b"".join(encode_request(APIS[api_key], version, correlation_id, client_id, message))[4:]


@pytest.mark.parametrize("version", [3, 4])
def test_an_api_versions_response_has_no_tag_byte_in_its_header(version: int) -> None:
    response = ApiVersionsResponse(api_keys=[])
    frame = b"".join(encode_response(APIS[API_VERSIONS], version, 7, response))
    assert frame[4:] == struct.pack(">i", 7) + body(response, version)
    assert decode_response(APIS[API_VERSIONS], version, frame[4:]) == (7, response)


def test_an_api_versions_request_has_a_tag_byte_in_its_header() -> None:
    frame = framed(API_VERSIONS, 3, ApiVersionsRequest(client_software_name="x", client_software_version="1"))
    assert frame == struct.pack(">hhih", 18, 3, 7, 2) + b"me" + b"\0" + b"\x02x\x021\0"


def test_every_flexible_response_header_but_that_of_api_versions_has_a_tag_byte() -> None:
    for api in APIS.values():
        for version in api.declared:
            expected = version >= api.flexible_from and api.key != API_VERSIONS
            assert (version >= api.flexible_responses_from) == expected


def test_the_answer_to_an_unknown_version_of_api_versions_is_of_version_0() -> None:
    frame = struct.pack(">hhih", 18, 5, 7, 2) + b"me" + b"\0" + b"whatever version five may bring"
    header = read_request_header(frame)
    assert (header.api_key, header.api_version, header.correlation_id, header.client_id) == (18, 5, 7, "me")
    with pytest.raises(KafkaError) as refused:
        decode_request(APIS[API_VERSIONS], 5, frame, header.position)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
    api = APIS[API_VERSIONS]
    only = ApiVersionsResponse.ApiKey(api_key=18, min_version=api.min, max_version=api.max)
    answer = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[only])
    frame = b"".join(encode_response(api, 0, header.correlation_id, answer))
    assert frame == struct.pack(">ii", 16, 7) + struct.pack(">hihhh", 35, 1, 18, 0, 4)


def test_produce_is_advertised_from_version_0_and_served_from_version_3() -> None:
    produce = APIS[0]
    assert (produce.advertised_min, produce.min, produce.max) == (0, 3, 13)
    assert [produce.serves(version) for version in (0, 2, 3, 13, 14)] == [False, False, True, True, False]
    assert all(api.advertised_min == api.min for api in APIS.values() if api is not produce)


def test_only_init_producer_id_and_add_partitions_declare_more_versions_than_served() -> None:
    beyond = {api.name: (api.max, api.declared.high) for api in APIS.values() if api.declared.high > api.max}
    assert beyond == {"InitProducerId": (5, 6), "AddPartitionsToTxn": (3, 5)}


def test_each_kafka_api_serves_exactly_the_version_range_listed_here() -> None:
    ranges = {api.name: (api.advertised_min, api.max) for api in APIS.values() if api.key < 20_000}  # ours are not told
    assert ranges == {
        "Produce": (0, 13),
        "Fetch": (4, 18),
        "ListOffsets": (1, 11),
        "Metadata": (0, 13),
        "OffsetCommit": (2, 10),
        "OffsetFetch": (1, 10),
        "FindCoordinator": (0, 6),
        "JoinGroup": (0, 9),
        "Heartbeat": (0, 4),
        "LeaveGroup": (0, 5),
        "SyncGroup": (0, 5),
        "DescribeGroups": (0, 6),
        "ListGroups": (0, 5),
        "ApiVersions": (0, 4),
        "CreateTopics": (2, 7),
        "DeleteTopics": (1, 6),
        "DeleteRecords": (0, 2),
        "InitProducerId": (0, 5),
        "OffsetForLeaderEpoch": (2, 4),
        "AddPartitionsToTxn": (0, 3),
        "AddOffsetsToTxn": (0, 4),
        "EndTxn": (0, 5),
        "WriteTxnMarkers": (1, 2),
        "TxnOffsetCommit": (0, 5),
        "SaslHandshake": (0, 1),
        "SaslAuthenticate": (0, 2),
        "DescribeAcls": (1, 3),
        "CreateAcls": (1, 3),
        "DeleteAcls": (1, 3),
        "ElectLeaders": (0, 2),
        "AlterPartitionReassignments": (0, 1),
        "ListPartitionReassignments": (0, 0),
        "AlterReplicaLogDirs": (1, 2),
        "DescribeQuorum": (0, 2),
        "UpdateFeatures": (0, 2),
        "ListConfigResources": (0, 1),
        "DescribeConfigs": (1, 4),
        "AlterConfigs": (0, 2),
        "DescribeLogDirs": (1, 5),
        "CreatePartitions": (0, 3),
        "DeleteGroups": (0, 2),
        "IncrementalAlterConfigs": (0, 1),
        "OffsetDelete": (0, 0),
        "DescribeClientQuotas": (0, 1),
        "AlterClientQuotas": (0, 1),
        "DescribeUserScramCredentials": (0, 0),
        "AlterUserScramCredentials": (0, 0),
        "DescribeCluster": (0, 2),
        "DescribeProducers": (0, 0),
        "DescribeTransactions": (0, 0),
        "ListTransactions": (0, 2),
        "ConsumerGroupHeartbeat": (0, 1),
        "ConsumerGroupDescribe": (0, 1),
        "DescribeTopicPartitions": (0, 0),
        "ShareGroupHeartbeat": (1, 1),
        "ShareGroupDescribe": (1, 1),
        "ShareFetch": (1, 2),
        "ShareAcknowledge": (1, 2),
        "DescribeShareGroupOffsets": (0, 1),
        "AlterShareGroupOffsets": (0, 0),
        "DeleteShareGroupOffsets": (0, 0),
    }


@pytest.mark.parametrize("version", [2, 9])
def test_a_request_headers_client_id_is_a_non_compact_string_and_null_reads_as_empty(version: int) -> None:
    tags = b"\0" if version >= 9 else b""
    for given, read in ((b"\0\x02me", "me"), (b"\xff\xff", ""), (b"\0\0", "")):
        header = read_request_header(struct.pack(">hhi", 3, version, -5) + given + tags + b"body")
        assert (header.client_id, header.correlation_id) == (read, -5)
        assert header.position == 8 + len(given) + len(tags)


def test_a_client_id_of_a_length_below_minus_one_is_malformed() -> None:
    with pytest.raises(MalformedFrame):
        read_request_header(struct.pack(">hhih", 3, 9, 7, -2) + b"abc")


def test_tagged_fields_in_a_request_header_are_skipped() -> None:
    frame = struct.pack(">hhih", 3, 9, 7, -1) + b"\x02\x00\x01x\x64\x02yz" + b"body"
    assert frame[read_request_header(frame).position :] == b"body"


def test_the_header_of_a_request_of_an_unknown_api_is_decoded() -> None:
    header = read_request_header(struct.pack(">hhih", 999, 77, 7, 2) + b"me")
    assert (header.api_key, header.api_version) == (999, 77)


def test_a_response_begins_with_the_correlation_id_of_its_request() -> None:
    frame = b"".join(encode_response(APIS[22], 2, -1, APIS[22].response()))
    assert frame[4:9] == b"\xff\xff\xff\xff\0"


def test_a_non_compact_array_is_null_at_length_minus_1_and_empty_at_0() -> None:
    assert body(MetadataRequest(topics=None), 1) == b"\xff\xff\xff\xff"
    assert body(MetadataRequest(topics=[]), 1) == b"\0\0\0\0"


def test_a_compact_array_is_null_at_0_and_its_length_counts_from_1() -> None:
    assert body(MetadataRequest(topics=None), 9)[:1] == b"\0"
    assert body(MetadataRequest(topics=[]), 9)[:1] == b"\x01"
    assert body(MetadataRequest(topics=[MetadataRequest.Topic(name="")]), 9)[:1] == b"\x02"


def test_tagged_fields_are_in_order_of_tags_and_left_out_at_their_defaults() -> None:
    response = ApiVersionsResponse(api_keys=[], finalized_features_epoch=0, zk_migration_ready=True)
    assert body(response, 3) == b"\0\0" + b"\x01" + bytes(4) + b"\x02" + b"\x01\x08" + bytes(8) + b"\x03\x01\x01"
    assert body(ApiVersionsResponse(api_keys=[]), 3)[-1:] == b"\0"


def test_a_nullable_struct_is_preceded_by_byte_1_and_null_is_encoded_as_ff() -> None:
    request = DescribeTopicPartitionsRequest(topics=[])
    assert body(request, 0) == b"\x01" + struct.pack(">i", 2000) + b"\xff" + b"\0"
    request.cursor = Cursor(topic_name="t", partition_index=3)
    assert body(request, 0) == b"\x01" + struct.pack(">i", 2000) + b"\x01" + b"\x02t\0\0\0\x03\0" + b"\0"
    assert decoder(DescribeTopicPartitionsRequest, 0)(body(request, 0), 0)[0] == request


@pytest.mark.parametrize("readable", [bytes, memoryview])
def test_a_length_beyond_the_frame_is_malformed(readable: type) -> None:
    partition = ProduceRequest.Topic.Partition(index=0, records=memoryview(b"r" * 50))
    topic = ProduceRequest.Topic(name="t", partition_data=[partition])
    for version in (3, 9):
        data = body(ProduceRequest(acks=-1, timeout_ms=1, topic_data=[topic]), version)
        for missing in range(1, 60):
            with pytest.raises(MalformedFrame):
                decoder(ProduceRequest, version)(readable(data[:-missing]), 0)


def test_every_response_with_a_throttle_time_has_0_by_default() -> None:
    for api in APIS.values():
        if api.name in ("WriteTxnMarkers", "SaslHandshake", "SaslAuthenticate", "DescribeQuorum"):  # no such field
            continue
        throttle = next(f for f in schema_of(api.response).fields if f.name == "throttle_time_ms")
        assert throttle.default == 0


BY_ID = [
    ProduceRequest(acks=-1, timeout_ms=1, topic_data=[ProduceRequest.Topic(topic_id=TOPIC_ID, partition_data=[])]),
    ProduceResponse(responses=[ProduceResponse.Topic(topic_id=TOPIC_ID, partition_responses=[])]),
    FetchRequest(max_wait_ms=1, min_bytes=1, topics=[FetchRequest.Topic(topic_id=TOPIC_ID, partitions=[])]),
    FetchResponse(responses=[FetchResponse.Topic(topic_id=TOPIC_ID, partitions=[])]),
]


@pytest.mark.parametrize("message", BY_ID, ids=lambda message: type(message).__name__)
def test_fetch_requests_identify_topics_by_id_from_version_13(message: object) -> None:
    data = body(message, 13)
    assert decoder(type(message), 13)(data, 0) == (message, len(data))
    assert TOPIC_ID in data
    assert TOPIC_ID not in body(message, 12)


COMMITS_BY_ID = [
    OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequest.Topic(topic_id=TOPIC_ID, partitions=[])]),
    OffsetCommitResponse(topics=[OffsetCommitResponse.Topic(topic_id=TOPIC_ID, partitions=[])]),
    OffsetFetchRequest(groups=[OffsetFetchRequest.Group(topics=[OffsetFetchRequest.Group.Topic(topic_id=TOPIC_ID)])]),
    OffsetFetchResponse(
        groups=[OffsetFetchResponse.Group(topics=[OffsetFetchResponse.Group.Topic(topic_id=TOPIC_ID)])]
    ),
]


@pytest.mark.parametrize("message", COMMITS_BY_ID, ids=lambda message: type(message).__name__)
def test_commits_name_topics_up_to_version_9_and_identify_them_from_10_on(message: object) -> None:
    data = body(message, 10)
    assert decoder(type(message), 10)(data, 0) == (message, len(data))
    assert TOPIC_ID in data
    assert TOPIC_ID not in body(message, 9)


@pytest.mark.parametrize("version", [10, 13])
def test_metadata_requests_by_topic_id_have_a_null_name_and_answers_have_ids(version: int) -> None:
    request = MetadataRequest(topics=[MetadataRequest.Topic(topic_id=TOPIC_ID, name=None)])
    read, _ = decoder(MetadataRequest, version)(body(request, version), 0)
    assert (read.topics[0].topic_id, read.topics[0].name) == (TOPIC_ID, None)
    name = None if version >= 12 else "t"
    response = MetadataResponse(
        brokers=[], topics=[MetadataResponse.Topic(name=name, topic_id=TOPIC_ID, partitions=[])]
    )
    assert decoder(MetadataResponse, version)(body(response, version), 0)[0] == response


def test_metadata_before_flexible_versions_has_no_null_topic_name() -> None:
    with pytest.raises(MalformedFrame, match="name is null"):
        decoder(MetadataRequest, 8)(b"\0\0\0\x01\xff\xff\x01\0\0", 0)


def test_delete_topics_takes_names_or_ids_from_version_6() -> None:
    topics = [DeleteTopicsRequest.Topic(name="t"), DeleteTopicsRequest.Topic(topic_id=TOPIC_ID)]
    request = DeleteTopicsRequest(topics=topics, timeout_ms=1)
    assert decoder(DeleteTopicsRequest, 6)(body(request, 6), 0)[0] == request
    by_name = DeleteTopicsRequest(topic_names=["t", "u"], timeout_ms=1)
    assert decoder(DeleteTopicsRequest, 5)(body(by_name, 5), 0)[0] == by_name


def test_metadata_for_all_topics_has_an_empty_list_in_version_0_and_null_later() -> None:
    assert decoder(MetadataRequest, 0)(b"\0\0\0\0", 0)[0].topics == []
    assert decoder(MetadataRequest, 1)(b"\xff\xff\xff\xff", 0)[0].topics is None
    with pytest.raises(MalformedFrame):
        decoder(MetadataRequest, 0)(b"\xff\xff\xff\xff", 0)


def test_metadata_before_version_4_has_no_flag_and_allows_topic_creation() -> None:
    assert decoder(MetadataRequest, 3)(b"\0\0\0\0", 0)[0].allow_auto_topic_creation is True
    assert decoder(MetadataRequest, 4)(b"\0\0\0\0\0", 0)[0].allow_auto_topic_creation is False


def test_metadata_has_cluster_operations_in_8_to_10_and_an_error_code_from_13() -> None:
    response = MetadataResponse(brokers=[], topics=[], cluster_authorized_operations=5, error_code=129)
    for version in APIS[3].declared:
        read, _ = decoder(MetadataResponse, version)(body(response, version), 0)
        assert (read.cluster_authorized_operations == 5) == (8 <= version <= 10)
        assert read.error_code == (129 if version >= 13 else 0)


@pytest.mark.parametrize("version", [4, 5, 6])
def test_find_coordinator_has_only_lists_from_version_4_on(version: int) -> None:
    request = FindCoordinatorRequest(key="lost", key_type=1, coordinator_keys=["a", "b"])
    assert body(request, version) == b"\x01" + b"\x03\x02a\x02b" + b"\0"
    one = FindCoordinatorResponse.Coordinator(key="a", node_id=1, host="h", port=9, error_code=0)
    response = FindCoordinatorResponse(error_code=15, node_id=3, host="lost", port=4, coordinators=[one])
    assert b"lost" not in body(response, version)
    read, _ = decoder(FindCoordinatorResponse, version)(body(response, version), 0)
    assert (read.error_code, read.node_id, read.host, read.port, read.coordinators) == (0, -1, "", -1, [one])


def test_find_coordinator_has_a_single_key_up_to_version_3() -> None:
    request = FindCoordinatorRequest(key="g", key_type=0)
    assert body(request, 0) == b"\0\x01g"
    assert body(request, 3) == b"\x02g\0\0"
    response = FindCoordinatorResponse(node_id=1, host="h", port=9)
    assert body(response, 0) == Kio(FindCoordinatorResponse, 0).encode(response)


def test_join_group_has_a_null_protocol_from_version_7_and_an_empty_one_before() -> None:
    response = JoinGroupResponse(error_code=79, protocol_name=None, leader="", member_id="m", members=[])
    read, _ = decoder(JoinGroupResponse, 7)(body(response, 7), 0)
    assert (read.protocol_name, read.protocol_type, read.member_id) == (None, None, "m")
    response.protocol_name = ""
    assert body(response, 6)[:12] == bytes(4) + b"\0O" + b"\xff" * 4 + b"\x01\x01"


def test_end_txn_returns_the_next_epoch_from_version_5() -> None:
    response = EndTxnResponse(producer_id=9, producer_epoch=4)
    assert body(response, 4) == bytes(4) + bytes(2) + b"\0"
    assert body(response, 5) == bytes(4) + bytes(2) + struct.pack(">qh", 9, 4) + b"\0"


def test_add_partitions_to_txn_has_client_fields_to_version_3_and_batches_from_4() -> None:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=7,
        v3_and_below_producer_epoch=1,
        v3_and_below_topics=[TxnTopic(name="t", partitions=[0])],
    )
    assert body(request, 0) == (
        b"\0\x01x" + struct.pack(">qh", 7, 1) + b"\0\0\0\x01" + b"\0\x01t" + struct.pack(">ii", 1, 0)
    )
    assert body(request, 4) == b"\x01\0"


def test_offsets_are_fetched_for_one_group_up_to_version_7_and_several_from_8() -> None:
    topics = [OffsetFetchRequest.Topic(name="t", partition_indexes=[3])]
    request = OffsetFetchRequest(group_id="g", topics=topics, require_stable=True)
    assert body(request, 7) == b"\x02g" + b"\x02\x02t\x02\0\0\0\x03\0" + b"\x01" + b"\0"
    several = OffsetFetchRequest(groups=[OffsetFetchRequest.Group(group_id="g", topics=None)], require_stable=True)
    assert body(several, 8) == b"\x02" + b"\x02g" + b"\0" + b"\0" + b"\x01" + b"\0"


def test_api_versions_responses_have_features_in_tagged_fields_from_version_3() -> None:
    response = ApiVersionsResponse(
        api_keys=[],
        supported_features=[ApiVersionsResponse.SupportedFeature(name="f", min_version=1, max_version=2)],
        finalized_features_epoch=0,
        finalized_features=[ApiVersionsResponse.FinalizedFeature(name="f", max_version_level=2, min_version_level=2)],
    )
    assert body(response, 2) == b"\0\0" + bytes(4) + bytes(4)
    assert decoder(ApiVersionsResponse, 3)(body(response, 3), 0)[0] == response
