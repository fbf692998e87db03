"""Our own APIs, byte by byte, as docs/apis.md tells them."""

import pytest
from fencepost.protocol.apis import APIS, decode_request, encode_request, encode_response
from fencepost.protocol.messages.ledger import (
    DescribeLedgerRequest,
    DescribeLedgerResponse,
    EndTxnsRequest,
    EndTxnsResponse,
    LedgerEntry,
    PrepareTxnRequest,
    PrepareTxnResponse,
    RemoveLedgerEntriesRequest,
    RemoveLedgerEntriesResponse,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_values import messages

ENTRY = LedgerEntry(number=5, owner="d", digest=b"\x01\x02", committed=True, decided_ms=16)
ENTRY_BYTES = "0000000000000005 0264 030102 01 0000000000000010 00"
DOCUMENTED = [
    (
        PrepareTxnRequest(
            transactional_id="t", producer_id=7, producer_epoch=1, ledger_key="k", number=5, prepared_timeout_ms=-1
        ),
        "0274 0000000000000007 0001 026b 0000000000000005 ffffffff 00",
    ),
    (
        PrepareTxnRequest(
            transactional_id="t",
            producer_id=7,
            producer_epoch=1,
            ledger_key="k",
            number=5,
            prepared_timeout_ms=-1,
            hold=True,
        ),
        "0274 0000000000000007 0001 026b 0000000000000005 ffffffff 01 00 01 01",
    ),
    (
        EndTxnsResponse(
            ended=[EndTxnsResponse.Ended(transactional_id="t", producer_id=7, producer_epoch=2)],
            deleted=[EndTxnsResponse.Topic(name="a", partitions=[3])],
        ),
        "00000000 0000 00 00 00000000 ff 01 02 00 0e 02 0274 0000000000000007 0002 00 01 09 02 0261 02 00000003 00",
    ),
    (DescribeLedgerRequest(prefix="k"), "00 01 00 02 026b"),
    (PrepareTxnResponse(error_code=10000, ledger_number=5), "00000000 2710 00 0000000000000005 00"),
    (
        EndTxnsRequest(
            ledger_key="k",
            number=5,
            owner="d",
            digest=b"\x01\x02",
            committed=True,
            takeover=False,
            transactions=[EndTxnsRequest.Transaction(transactional_id="t", producer_id=7, producer_epoch=1)],
        ),
        "026b 0000000000000005 0264 030102 01 00 02 0274 0000000000000007 0001 00 00",
    ),
    (
        EndTxnsResponse(already_decided=True, aborted=2, entry=ENTRY),
        "00000000 0000 00 01 00000002 01 " + ENTRY_BYTES + " 01 00",
    ),
    (
        EndTxnsResponse(
            error_code=48,
            error_message="m",
            refused=[EndTxnsResponse.Transaction(transactional_id="t", error_code=90)],
        ),
        "00000000 0030 026d 00 00000000 ff 02 0274 005a 00 00",
    ),
    (DescribeLedgerRequest(keys=["k"]), "02 026b 00"),
    (DescribeLedgerRequest(keys=None), "00 00"),
    (
        DescribeLedgerResponse(
            keys=[
                DescribeLedgerResponse.Key(
                    key="k",
                    entry=ENTRY,
                    waiting=[
                        DescribeLedgerResponse.Key.Waiting(
                            transactional_id="t",
                            producer_id=7,
                            producer_epoch=1,
                            number=6,
                            waits_for_ms=3,
                            timeout_ms=-1,
                        )
                    ],
                )
            ]
        ),
        "00000000 0000 00 02 026b 0000 01 " + ENTRY_BYTES + " 02 0274 0000000000000007 0001 0000000000000006"
        " 0000000000000003 ffffffffffffffff 00 00 00",
    ),
    (RemoveLedgerEntriesRequest(keys=["k"]), "02 026b 00"),
    (
        RemoveLedgerEntriesResponse(keys=[RemoveLedgerEntriesResponse.Key(key="k", error_code=91)]),
        "00000000 02 026b 005b 00 00 00",
    ),
]
BODY_OF_REQUEST, BODY_OF_RESPONSE = 4 + 2 + 2 + 4 + 2 + 1 + 1, 4 + 4 + 1  # lengths, header v2 with client id "c"; v1


def api_of(message):
    return next(api for api in APIS.values() if type(message) in (api.request, api.response))


@pytest.mark.parametrize(("message", "written"), DOCUMENTED, ids=lambda value: type(value).__name__)
def test_ledger_messages_have_the_documented_bytes(message, written):
    api = api_of(message)
    if type(message) is api.request:
        frame = b"".join(encode_request(api, 0, 9, "c", message))
        assert frame[BODY_OF_REQUEST:].hex() == written.replace(" ", "")
        assert decode_request(api, 0, frame[4:], BODY_OF_REQUEST - 4) == message
    else:
        frame = b"".join(encode_response(api, 0, 9, message))
        assert frame[BODY_OF_RESPONSE:].hex() == written.replace(" ", "")


@pytest.mark.slow
@pytest.mark.parametrize("key", range(20_000, 20_007))
@settings(max_examples=25)
@given(data=st.data())
def test_ledger_messages_read_back_as_they_were_written(key, data):
    api = APIS[key]
    for cls, encoders, decoders in (
        (api.request, api.request_encoders, api.request_decoders),
        (api.response, api.response_encoders, api.response_decoders),
    ):
        message = data.draw(messages(cls, 0))
        written = b"".join(encoders[0](message))
        assert decoders[0](written, 0) == (message, len(written))
