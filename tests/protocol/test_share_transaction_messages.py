"""The bytes of TxnShareAcknowledge are those of docs/apis.md."""

from fencepost.protocol.apis import APIS, decode_request, decode_response, encode_request, encode_response
from fencepost.protocol.messages.share_fetch import AcknowledgementBatch
from fencepost.protocol.messages.share_transactions import TxnShareAcknowledgeRequest, TxnShareAcknowledgeResponse

KEY = 20007
ID = bytes([1]) * 16
REQUEST = """
    0274 0267 0000000000000007 0001 026d 02 01010101010101010101010101010101 02 00000003
    02 0000000000000005 0000000000000009 02 01 00 00 00 00
"""
RESPONSE = "00000000 0000 00 02 01010101010101010101010101010101 02 00000003 0079 00 00 00 00"


def test_a_txn_share_acknowledge_request_has_the_documented_bytes() -> None:
    made = TxnShareAcknowledgeRequest.Topic
    batch = AcknowledgementBatch(first_offset=5, last_offset=9, acknowledge_types=[1])
    part = made.Partition(partition_index=3, acknowledgement_batches=[batch])
    request = TxnShareAcknowledgeRequest(
        transactional_id="t",
        group_id="g",
        producer_id=7,
        producer_epoch=1,
        member_id="m",
        topics=[made(topic_id=ID, partitions=[part])],
    )
    body = 4 + 2 + 2 + 4 + 2 + 1 + 1  # length, API key, version, correlation id, client id "c" with its length, tags
    frame = b"".join(encode_request(APIS[KEY], 0, 9, "c", request))
    assert frame[body:].hex() == "".join(REQUEST.split())
    assert decode_request(APIS[KEY], 0, frame[4:], body - 4) == request


def test_a_txn_share_acknowledge_response_has_the_documented_bytes() -> None:
    made = TxnShareAcknowledgeResponse.Topic
    part = made.Partition(partition_index=3, error_code=121)
    response = TxnShareAcknowledgeResponse(topics=[made(topic_id=ID, partitions=[part])])
    frame = b"".join(encode_response(APIS[KEY], 0, 9, response))
    written = "".join(RESPONSE.split())
    assert frame.hex().endswith(written)
    assert decode_response(APIS[KEY], 0, frame[4:])[1] == response
