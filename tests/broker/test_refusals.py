"""A request that fails as a whole gets an answer that every client finds the error in."""

import pytest
from fencepost.broker.refusals import refusal
from fencepost.protocol.apis import APIS, decode_response, encode_response
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.protocol.messages.cluster import MetadataRequest
from fencepost.protocol.messages.configs import AlterConfigsRequest, DescribeConfigsRequest
from fencepost.protocol.messages.fetch import FetchRequest
from fencepost.protocol.messages.groups import FindCoordinatorRequest
from fencepost.protocol.messages.offsets import ListOffsetsRequest, OffsetForLeaderEpochRequest
from fencepost.protocol.messages.topics import CreateTopicsRequest, DeleteRecordsRequest, DeleteTopicsRequest
from fencepost.protocol.messages.transactions import DescribeProducersRequest
from fencepost.protocol.schema import schema_of
from produce_requests import batch, fetch, list_offsets, produce

BROKEN = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
CODE = int(ErrorCode.UNKNOWN_SERVER_ERROR)


def refused(request, version):
    """The refusal, as it arrives at the client."""
    api = APIS[schema_of(type(request)).api]
    frame = b"".join(encode_response(api, version, 1, refusal(api.response, version, request, BROKEN)))
    return decode_response(api, version, frame[4:])[1]


def codes(message):
    """Every error code in it, at any depth."""
    found = []
    for field in message.__slots__:
        value = getattr(message, field)
        if field == "error_code":
            found.append(value)
        elif isinstance(value, list):
            found += [code for item in value if hasattr(item, "__slots__") for code in codes(item)]
    return found


def test_produce_names_every_partition():
    response = refused(produce("t", batch(), batch(), partition=3), 9)
    assert [topic.name for topic in response.responses] == ["t"]
    assert [(part.index, part.error_code) for part in response.responses[0].partition_responses] == [
        (3, CODE),
        (4, CODE),
    ]
    assert response.responses[0].partition_responses[0].base_offset == -1


@pytest.mark.parametrize(("version", "topics"), [(6, 1), (7, 0), (12, 0)])
def test_fetch_has_an_error_of_its_own_from_7_on_and_one_for_each_partition_before(version, topics):
    response = refused(fetch("t"), version)
    assert len(response.responses) == topics
    assert set(codes(response)) - {0} == {CODE}
    if topics:
        assert response.responses[0].partitions[0].partition_index == 0


def test_list_offsets_names_every_partition():
    response = refused(list_offsets("t", -1, partition=5), 7)
    assert [(part.partition_index, part.error_code) for part in response.topics[0].partitions] == [(5, CODE)]


def test_metadata_names_every_topic_and_has_its_own_error_from_13_on():
    request = MetadataRequest(topics=[MetadataRequest.Topic(name="a"), MetadataRequest.Topic(name="b")])
    assert [topic.name for topic in refused(request, 9).topics] == ["a", "b"]
    assert refused(request, 13).error_code == CODE
    assert refused(MetadataRequest(topics=None), 9).topics == []


def test_topics_are_named_one_by_one():
    created = refused(CreateTopicsRequest(topics=[CreateTopicsRequest.Topic(name="a")]), 5)
    assert [(topic.name, topic.error_code) for topic in created.topics] == [("a", CODE)]
    assert created.topics[0].error_message
    by_name = refused(DeleteTopicsRequest(topic_names=["a", "b"], timeout_ms=1), 5)
    assert [topic.name for topic in by_name.responses] == ["a", "b"]
    by_id = refused(DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(topic_id=b"i" * 16)], timeout_ms=1), 6)
    assert [(topic.name, topic.topic_id) for topic in by_id.responses] == [(None, b"i" * 16)]


def test_partitions_are_named_one_by_one():
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


def test_resources_are_named_one_by_one():
    resource = DescribeConfigsRequest.Resource(resource_type=2, resource_name="t")
    (described,) = refused(DescribeConfigsRequest(resources=[resource]), 2).results
    assert (described.resource_type, described.resource_name, described.error_code) == (2, "t", CODE)
    changed = AlterConfigsRequest.Resource(resource_type=2, resource_name="t", configs=[])
    (altered,) = refused(AlterConfigsRequest(resources=[changed]), 1).responses
    assert (altered.resource_type, altered.resource_name, altered.error_code) == (2, "t", CODE)


def test_t18_coordinators_are_named_key_by_key_from_4_on():
    assert refused(FindCoordinatorRequest(key="g"), 3).error_code == CODE
    batched = refused(FindCoordinatorRequest(coordinator_keys=["g", "h"]), 4)
    assert [(each.key, each.error_code) for each in batched.coordinators] == [("g", CODE), ("h", CODE)]


EMPTY = {"topics": [], "topic_data": [], "resources": [], "acks": -1, "max_wait_ms": 0, "min_bytes": 0}


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_every_api_in_every_version_has_a_refusal_that_can_be_sent(api):
    fields = {field.name: field for field in schema_of(api.request).fields}
    given = {name: EMPTY.get(name, 0) for name, field in fields.items() if field.required}
    request = api.request(**given)
    for version in api.declared:
        frame = b"".join(encode_response(api, version, 1, refusal(api.response, version, request, BROKEN)))
        assert decode_response(api, version, frame[4:])[0] == 1


def test_nothing_is_asked_of_what_the_request_does_not_say():
    assert refused(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]), 4).responses == []
    assert refused(ListOffsetsRequest(topics=[]), 1).topics == []
