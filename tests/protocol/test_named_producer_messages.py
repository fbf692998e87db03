"""The bytes of OpenNamedProducer, and of what a named producer adds to Produce, are those of docs/apis.md."""

import pytest
from fencepost.protocol.apis import APIS, decode_request, decode_response, encode_request, encode_response
from fencepost.protocol.messages.named_producers import OpenNamedProducerRequest, OpenNamedProducerResponse
from fencepost.protocol.messages.produce import ProduceResponse
from named_requests import writing

TOPIC = OpenNamedProducerResponse.Topic


def test_open_named_producer_messages_have_the_documented_bytes():
    asked = OpenNamedProducerRequest(name="p", topics=[OpenNamedProducerRequest.Topic(name="t", partition_count=4)])
    frame = b"".join(encode_request(APIS[20008], 0, 1, "c", asked))
    assert frame.endswith(bytes.fromhex("0270 ffffffffffffffff 02 0274 00000004 00 00"))
    found = TOPIC(name="t", topic_id=b"\1" * 16, partitions=[TOPIC.Partition(index=3, highest=9)])
    answer = b"".join(encode_response(APIS[20008], 0, 1, OpenNamedProducerResponse(epoch=7, topics=[found])))
    topic = "0274 01010101010101010101010101010101 0000 00 02 00000003 0000000000000009 00 00"
    assert answer.endswith(bytes.fromhex(f"00000000 0000 00 0000000000000007 02 {topic} 00"))


@pytest.mark.parametrize("version", [9, 13])
def test_named_producer_fields_in_produce_are_tagged_fields_numbered_10000(version):
    asked = writing("p", 7, [3, 2**40])
    if version == 13:
        asked.topic_data[0].name, asked.topic_data[0].topic_id = "", b"\1" * 16
    frame = b"".join(encode_request(APIS[0], version, 1, "c", asked))
    tag = b"\x01\x90\x4e"  # one tagged field, 10000
    sequences = tag + b"\x11" + (3).to_bytes(8, "big") + (2**40).to_bytes(8, "big") + b"\x00"
    name = tag + b"\x0b" + b"\x02p" + (7).to_bytes(8, "big") + b"\x00"
    assert frame.endswith(sequences + b"\x00" + name)
    header = 2 + 2 + 4 + 2 + 1 + 1
    assert decode_request(APIS[0], version, memoryview(frame)[4:], header).producer == asked.producer
    made = ProduceResponse.Topic.Partition
    part = made(index=0, named=made.Named(duplicate=True, highest=5))
    named = ProduceResponse.Topic(name="t", partition_responses=[part])
    answer = ProduceResponse(responses=[named])
    found = b"".join(encode_response(APIS[0], version, 1, answer))
    assert tag + b"\x0a\x01" + (5).to_bytes(8, "big") in found
    again = decode_response(APIS[0], version, found[4:])[1]
    assert again.responses[0].partition_responses[0].named == part.named
