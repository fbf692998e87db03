"""The bytes of DescribeClients, DescribeTransactionOwners and DescribeMetrics are those of docs/apis.md."""

import math
from pathlib import Path

import pytest
from fencepost.protocol.apis import APIS, decode_request, encode_request, encode_response
from fencepost.protocol.messages.monitoring import (
    HISTOGRAM,
    DescribeClientsRequest,
    DescribeClientsResponse,
    DescribeMetricsRequest,
    DescribeMetricsResponse,
    DescribeTransactionOwnersRequest,
    DescribeTransactionOwnersResponse,
)

NAMES = {"client_id": "c", "software": "s", "host": "h", "listener": "l", "principal": "p"}
NUMBERS = {"connections": 1, "bytes_in": 2, "bytes_out": 3, "requests": 4, "idle_ms": 5}
SAMPLE = DescribeMetricsResponse.Family.Sample
RESPONSES = [
    (20004, DescribeClientsResponse(clients=[DescribeClientsResponse.Client(**NAMES, **NUMBERS)])),
    (
        20005,
        DescribeTransactionOwnersResponse(
            owners=[DescribeTransactionOwnersResponse.Owner(transactional_id="t", connected=True, **NAMES)]
        ),
    ),
    (
        20006,
        DescribeMetricsResponse(
            families=[
                DescribeMetricsResponse.Family(
                    name="n",
                    help="h",
                    kind=HISTOGRAM,
                    label_names=["l"],
                    samples=[SAMPLE(labels=["v"], value=1.5, buckets=[SAMPLE.Bucket(bound=math.inf, count=3)])],
                )
            ]
        ),
    ),
]
HEADER = 4 + 4 + 1  # length, correlation id, tags


def documented(name: str) -> str:
    page = (Path(__file__).parents[2] / "docs" / "apis.md").read_text()
    example = page.split(f"**{name} request**", 1)[1].split("\n\n", 2)[1]
    return "".join(example.split())


@pytest.mark.parametrize(("key", "response"), RESPONSES, ids=[APIS[key].name for key, _ in RESPONSES])
def test_monitoring_responses_have_the_documented_bytes(key: int, response: object) -> None:
    frame = b"".join(encode_response(APIS[key], 0, 9, response))
    assert frame[HEADER:].hex() == documented(APIS[key].name)


@pytest.mark.parametrize(
    ("key", "request_", "written"),
    [
        (20004, DescribeClientsRequest(), "00"),
        (20005, DescribeTransactionOwnersRequest(transactional_ids=["t"]), "02 0274 00"),
        (20005, DescribeTransactionOwnersRequest(), "00 00"),
        (20006, DescribeMetricsRequest(), "00"),
    ],
)
def test_an_encoded_monitoring_request_decodes_to_an_equal_one(key: int, request_: object, written: str) -> None:
    body = 4 + 2 + 2 + 4 + 2 + 1 + 1
    frame = b"".join(encode_request(APIS[key], 0, 9, "c", request_))
    assert frame[body:].hex() == written.replace(" ", "")
    assert decode_request(APIS[key], 0, frame[4:], body - 4) == request_
