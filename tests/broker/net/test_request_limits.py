"""Limits of how many partitions, items and names a request may have, however few bytes they take."""

import contextlib
import struct

import pytest
from fencepost.broker.handlers import cluster
from fencepost.broker.net.request_limits import (
    LARGEST_LIST_BYTES,
    MAX_BLOBS,
    MAX_ITEMS,
    MAX_PARTITIONS,
    MAX_SUBJECTS,
    check_extent,
    read_in_steps,
)
from fencepost.protocol.apis import APIS, encode_request
from fencepost.protocol.errors import ErrorCode, MalformedFrame
from fencepost.protocol.headers import read_request_header
from fencepost.protocol.messages.cluster import MetadataRequest
from fencepost.protocol.messages.configs import DescribeConfigsRequest
from fencepost.protocol.messages.fetch import FetchRequest
from fencepost.protocol.messages.groups import DescribeGroupsRequest, JoinGroupRequest, SyncGroupRequest
from fencepost.protocol.messages.offsets import OffsetCommitRequest
from fencepost.protocol.messages.produce import ProduceRequest
from fencepost.protocol.messages.transactions import DescribeTransactionsRequest, WriteTxnMarkersRequest
from fencepost.protocol.primitives import uvarint
from fencepost.protocol.schema import schema_of
from lines_run import lines_run
from produce_requests import answers, batch, create, produce
from served_broker import ServedBroker
from wire_client import Closed

pytestmark = pytest.mark.slow

Topic, Part = ProduceRequest.Topic, ProduceRequest.Topic.Partition


def frame_of(request, version):
    api = APIS[schema_of(type(request)).api]
    return b"".join(encode_request(api, version, 1, "me", request))[4:]


def check(frame):
    check_extent(frame, read_request_header(frame))


def read(request, version):
    """Read the request in steps, as the broker reads a large one, and check that it is the same."""
    frame = frame_of(request, version)
    api = APIS[schema_of(type(request)).api]
    found = []

    def steps():
        found.append((yield from read_in_steps(api, read_request_header(frame), memoryview(frame))))

    assert sum(steps()) >= 1
    assert found == [request]


def spread(topics, partitions, records=None):
    """Return a Produce request of this many topics with this many partitions each."""
    parts = [Part(index=index, records=records) for index in range(partitions)]
    return ProduceRequest(
        acks=-1, timeout_ms=1, topic_data=[Topic(name=f"topic-{n}", partition_data=parts) for n in range(topics)]
    )


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize(("topics", "partitions"), [(1, MAX_PARTITIONS), (100, 100), (MAX_PARTITIONS, 1)])
def test_a_produce_with_more_partitions_than_allowed_is_malformed(version, topics, partitions):
    check(frame_of(spread(topics, partitions), version))
    one_more = (topics, partitions + 1) if partitions > 1 else (topics + 1, 1)
    with pytest.raises(MalformedFrame, match="partitions"):
        check(frame_of(spread(*one_more), version))


@pytest.mark.parametrize("version", range(3, 14))
def test_topics_without_partitions_count_towards_the_limit_of_a_request(version):
    with pytest.raises(MalformedFrame):
        check(frame_of(spread(MAX_PARTITIONS + 1, 0), version))


@pytest.mark.parametrize("version", [9, 12])
def test_unknown_tagged_fields_count_towards_the_limit_like_partitions(version):
    whole = frame_of(spread(1, MAX_PARTITIONS - 10), version)
    assert whole.endswith(b"\x00\x00\x00"), "the tags of a partition, of the topic, and of the request"
    beginning = whole[:-2]
    check(beginning + b"\x0a" + b"\x01\x00" * 10 + b"\x00")
    with pytest.raises(MalformedFrame, match="partitions"):
        check(beginning + b"\x0b" + b"\x01\x00" * 11 + b"\x00")


@pytest.mark.parametrize("count", [128, 1_000_000])
def test_a_request_with_too_many_tagged_fields_closes_the_connection(served, count):
    tags = uvarint(count) + b"\x01\x00" * count
    header = struct.pack(">hhih", 18, 3, 1, 0)
    for frame in (header + tags + b"\x01\x01\x00", header + b"\x00\x01\x01" + tags):
        with served.connect() as client:
            client.send_frame(frame)
            with pytest.raises(Closed):
                client.receive_frame()


@pytest.mark.parametrize("version", range(3, 14))
def test_batches_of_5_mb_do_not_count_towards_the_partition_limit_of_a_request(version):
    check(frame_of(produce("t", batch(value=bytes(5_000_000)), batch(value=bytes(5_000_000))), version))


def test_requests_other_than_produce_have_a_small_size_limit():
    topics = [MetadataRequest.Topic(name="x" * 200) for _ in range(LARGEST_LIST_BYTES // 202 - 1)]
    check(frame_of(MetadataRequest(topics=topics), 1))
    with pytest.raises(MalformedFrame, match="bytes"):
        check(frame_of(MetadataRequest(topics=topics * 2), 1))


@pytest.mark.parametrize("rest", [b"\x00", b"\xff", b"\x7f", b"\x02"])
def test_checking_a_damaged_large_frame_raises_nothing_but_malformed_frame(rest):
    whole = frame_of(spread(2, 3, batch()), 9)
    header = read_request_header(whole)
    for cut in range(header.position, len(whole)):
        with contextlib.suppress(MalformedFrame):
            check_extent(whole[:cut] + rest * 70_000, header)


def test_a_request_of_millions_of_partitions_is_refused_before_it_is_decoded(served):
    count = 5_000_000
    beginning = struct.pack(">hhihb", 0, 9, 1, 0, 0) + b"\x00" + struct.pack(">hi", -1, 1000) + b"\x02\x02t"
    body = beginning + uvarint(count + 1) + bytes(6) * count + b"\x00\x00"
    with served.connect() as client, served.connect() as liar:
        client.call(create("many"))
        liar.send_frame(body)
        assert answers(client.call(produce("many", batch()))) == [(ErrorCode.NONE, 0)]
        with pytest.raises(Closed):
            liar.receive_frame()
    # Of five million partitions, no more than the allowed number are read.
    assert lines_run(lambda: refused(body)) < 30 * MAX_PARTITIONS


def refused(frame):
    with pytest.raises(MalformedFrame):
        check_extent(frame, read_request_header(frame))


# ---- many things in few bytes --------------------------------------------------------------------------------

Named = MetadataRequest.Topic
Described = DescribeConfigsRequest.Resource


def described(names):
    resources = [Described(resource_type=2, resource_name=name, configuration_keys=None) for name in names]
    return DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True)


def fetched_partitions(count):
    parts = [FetchRequest.Topic.Partition(partition=n, fetch_offset=0, partition_max_bytes=1) for n in range(count)]
    return FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchRequest.Topic(topic="t", partitions=parts)])


def test_describe_configs_of_too_many_topics_closes_its_connection(served):
    with served.connect() as client, served.connect() as greedy:
        client.call(create("a"))
        # A topic is described as often as it is named; Apache Kafka does so, too.
        assert len(client.call(described(["a"] * 3), 4).results) == 3
        greedy.send(described(["a"] * (MAX_SUBJECTS + 1)), 4)
        assert client.call(MetadataRequest(topics=[]), 9).topics == []
        with pytest.raises(Closed):
            greedy.receive()


def test_two_thousand_topics_can_be_created_described_and_fetched_per_request():
    names = [f"n{index}" for index in range(2_000)]
    with ServedBroker(log_checkpoint_interval_ms=600_000) as served, served.connect(timeout_s=60) as client:
        asked = MetadataRequest(topics=[Named(name=name) for name in names])
        codes = [{topic.error_code for topic in client.call(asked, 9).topics} for _ in range(2)]
        assert codes == [{ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}, {ErrorCode.NONE}]
        results = client.call(described(names), 4).results
        assert [(one.resource_name, one.error_code, len(one.configs)) for one in results] == [
            (name, ErrorCode.NONE, len(results[0].configs)) for name in names
        ]
        parts = [FetchRequest.Topic.Partition(partition=0, fetch_offset=0, partition_max_bytes=1)]
        topics = [FetchRequest.Topic(topic=name, partitions=parts) for name in names]
        got = client.call(FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics), 11)
        assert len(got.responses) == 2_000
        served.close_clients()


def test_metadata_auto_creates_a_limited_number_of_topics_per_request(monkeypatch):
    """A metadata request creates at most MADE_AT_ONCE topics; the others get UNKNOWN_TOPIC_OR_PARTITION, which clients
    retry.
    """
    monkeypatch.setattr(cluster, "MADE_AT_ONCE", 3)
    asked = MetadataRequest(topics=[Named(name=f"n{index}") for index in range(5)])
    with ServedBroker() as served, served.connect() as client:
        codes = [[topic.error_code for topic in client.call(asked, 9).topics] for _ in range(3)]
        new, known = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE
        assert codes == [[new] * 5, [known] * 3 + [new] * 2, [known] * 5]
        served.close_clients()


@pytest.mark.parametrize("version", [4, 11, 12])
def test_a_fetch_with_more_partitions_than_allowed_is_malformed(version):
    for count, fits in ((2_000, True), (MAX_ITEMS - 1, True), (MAX_ITEMS, False)):
        request = fetched_partitions(count)
        with contextlib.nullcontext() if fits else pytest.raises(MalformedFrame, match="items"):
            read(request, version)


def test_describe_configs_answers_a_topic_named_twice_with_its_own_values_each_time(served):
    with served.connect() as client:
        client.call(create("plain"))
        client.call(create("special", retention_ms=77))
        results = client.call(described(["plain", "special", "plain"]), 4).results
    values = [next(one.value for one in result.configs if one.name == "retention.ms") for result in results]
    assert values == ["604800000", "77", "604800000"]


# ---- groups and transactions ---------------------------------------------------------------------------------


def joining(count, size=0):
    protocols = [JoinGroupRequest.Protocol(name="", metadata=bytes(size))] * count
    return JoinGroupRequest(
        group_id="group", session_timeout_ms=1, member_id="m" * 300, protocol_type="consumer", protocols=protocols
    )


def assigning(count, size=0):
    assignments = [SyncGroupRequest.Assignment(member_id="", assignment=bytes(size))] * count
    return SyncGroupRequest(group_id="group", generation_id=1, member_id="m" * 300, assignments=assignments)


@pytest.mark.parametrize(
    ("request_of", "version"), [(joining, v) for v in range(10)] + [(assigning, v) for v in range(6)]
)
def test_join_and_sync_group_may_have_5_mb_protocols_but_only_a_limited_number(request_of, version):
    check(frame_of(request_of(2, 5_000_000), version))
    check(frame_of(request_of(MAX_BLOBS), version))
    with pytest.raises(MalformedFrame, match="members or protocols"):
        check(frame_of(request_of(MAX_BLOBS + 1), version))
    whole = frame_of(request_of(MAX_BLOBS), version)
    header = read_request_header(whole)
    # A damaged request raises nothing but MalformedFrame.
    for cut in range(header.position, header.position + 400):
        with contextlib.suppress(MalformedFrame):
            check_extent(whole[:cut] + b"\xff" * 70_000, header)


@pytest.mark.parametrize(
    ("request_of", "version"),
    [
        (lambda count: DescribeGroupsRequest(groups=["g"] * count), 5),
        (lambda count: DescribeGroupsRequest(groups=[""] * count), 5),
        (lambda count: DescribeTransactionsRequest(transactional_ids=[""] * count), 0),
    ],
)
def test_describing_over_5000_groups_or_transactions_in_one_request_is_malformed(request_of, version):
    read(request_of(MAX_SUBJECTS), version)
    with pytest.raises(MalformedFrame, match=", 5000 are allowed"):
        read(request_of(MAX_SUBJECTS + 1), version)


def test_a_commit_may_name_as_many_partitions_as_a_fetch():
    def commit(count):
        parts = [OffsetCommitRequest.Topic.Partition(partition_index=n, committed_offset=0) for n in range(count)]
        return OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequest.Topic(name="t", partitions=parts)])

    read(commit(MAX_ITEMS - 1), 9)
    with pytest.raises(MalformedFrame, match="items"):
        read(commit(MAX_ITEMS), 9)


def test_write_txn_markers_is_limited_by_the_number_of_batches_it_would_write():
    Marker = WriteTxnMarkersRequest.Marker

    def markers(count):
        topic = Marker.Topic(name="t", partition_indexes=list(range(count)))
        one = Marker(producer_id=1, producer_epoch=1, transaction_result=True, coordinator_epoch=0, topics=[topic])
        return WriteTxnMarkersRequest(markers=[one])

    read(markers(MAX_PARTITIONS - 2), 1)  # the marker and its topic count, too
    with pytest.raises(MalformedFrame, match="items"):
        read(markers(MAX_PARTITIONS - 1), 1)
