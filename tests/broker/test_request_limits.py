"""Requests that are large in number rather than in bytes."""

import contextlib
import struct
import time

import pytest
from fencepost.broker.request_limits import LARGEST_LIST_BYTES, MOST_PARTITIONS, check_extent
from fencepost.protocol.apis import APIS, encode_request
from fencepost.protocol.errors import ErrorCode, MalformedFrame
from fencepost.protocol.headers import read_request_header
from fencepost.protocol.messages.cluster import MetadataRequest
from fencepost.protocol.messages.produce import ProduceRequest
from fencepost.protocol.primitives import uvarint
from fencepost.protocol.schema import schema_of
from produce_requests import answers, batch, create, produce
from wire_client import Closed

Topic, Part = ProduceRequest.Topic, ProduceRequest.Topic.Partition


def frame_of(request, version):
    api = APIS[schema_of(type(request)).api]
    return b"".join(encode_request(api, version, 1, "me", request))[4:]


def check(frame):
    check_extent(frame, read_request_header(frame))


def spread(topics, partitions, records=None):
    """A Produce of so many topics with so many partitions each."""
    parts = [Part(index=index, records=records) for index in range(partitions)]
    return ProduceRequest(
        acks=-1, timeout_ms=1, topic_data=[Topic(name=f"topic-{n}", partition_data=parts) for n in range(topics)]
    )


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize(("topics", "partitions"), [(1, MOST_PARTITIONS), (100, 100), (MOST_PARTITIONS, 1)])
def test_a_produce_may_name_so_many_partitions_and_no_more(version, topics, partitions):
    check(frame_of(spread(topics, partitions), version))
    if partitions > 1:
        with pytest.raises(MalformedFrame, match="partitions"):
            check(frame_of(spread(topics, partitions + 1), version))
    else:
        with pytest.raises(MalformedFrame, match="partitions"):
            check(frame_of(spread(topics + 1, partitions), version))


@pytest.mark.parametrize("version", range(3, 14))
def test_topics_without_partitions_count_too(version):
    with pytest.raises(MalformedFrame):
        check(frame_of(spread(MOST_PARTITIONS + 1, 0), version))


@pytest.mark.parametrize("version", range(3, 14))
def test_large_batches_are_no_reason(version):
    check(frame_of(produce("t", batch(value=bytes(5_000_000)), batch(value=bytes(5_000_000))), version))


def test_other_requests_may_not_be_large_at_all():
    topics = [MetadataRequest.Topic(name="x" * 200) for _ in range(LARGEST_LIST_BYTES // 202 - 1)]
    check(frame_of(MetadataRequest(topics=topics), 1))
    with pytest.raises(MalformedFrame, match="bytes"):
        check(frame_of(MetadataRequest(topics=topics * 2), 1))


@pytest.mark.parametrize("rest", [b"\x00", b"\xff", b"\x7f", b"\x02"])
def test_whatever_stands_in_a_large_frame_nothing_but_a_refusal_comes_of_it(rest):
    whole = frame_of(spread(2, 3, batch()), 9)
    header = read_request_header(whole)
    for cut in range(header.position, len(whole)):
        with contextlib.suppress(MalformedFrame):
            check_extent(whole[:cut] + rest * 70_000, header)


def test_a_request_of_millions_of_partitions_is_refused_before_anything_is_made_of_it(served):
    count = 5_000_000
    beginning = struct.pack(">hhihb", 0, 9, 1, 0, 0) + b"\x00" + struct.pack(">hi", -1, 1000) + b"\x02\x02t"
    body = beginning + uvarint(count + 1) + bytes(6) * count + b"\x00\x00"
    with served.connect() as client, served.connect() as liar:
        client.call(create("many"))
        liar.send_frame(body)
        before = time.perf_counter()
        assert answers(client.call(produce("many", batch()))) == [(ErrorCode.NONE, 0)]
        with pytest.raises(Closed):
            liar.receive_frame()
        assert time.perf_counter() - before < 1
