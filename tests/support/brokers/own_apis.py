"""The data that tests of all APIs need for our own monitoring APIs: one row for each API, by its name.

Read by tests/protocol/test_own_apis.py (bytes), tests/conformance/rights/own_rows.py (rights) and
tests/broker/net/test_work_of_requests.py (work). The APIs of the ledger, of share groups and of named producers have
tables of their own there.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fencepost.protocol.messages.monitoring import (
    HISTOGRAM,
    DescribeClientsRequest,
    DescribeClientsResponse,
    DescribeMetricsRequest,
    DescribeMetricsResponse,
    DescribeTransactionOwnersRequest,
    DescribeTransactionOwnersResponse,
)

MANY = 400  # things named by one request
OFTEN = 30  # requests sent at once

NAMES = {"client_id": "c", "software": "s", "host": "h", "listener": "l", "principal": "p"}
NUMBERS = {"connections": 1, "bytes_in": 2, "bytes_out": 3, "requests": 4, "idle_ms": 5}
CLIENT = DescribeClientsResponse.Client
OWNER = DescribeTransactionOwnersResponse.Owner
FAMILY = DescribeMetricsResponse.Family
SAMPLE = FAMILY.Sample


class OwnApi(NamedTuple):
    """One API.

    requests: each with the bytes of its body.
    response: with one entry in each list and every field of the entries filled; docs/apis.md has the bytes of its body.
    rights: the fields of the requests that users of each right send, by what is special about a
    request ("" for the first). The topic `rights.t`, the group `rights.g` and the transactional ids `rights.x` and
    `rights.open` (which is in a transaction) exist, and users with a right to `rights.` may see them. What is named
    `hidden` exists too; `rights.gone` does not exist. The answers are in tests/conformance/rights/ours.txt.
    work: the requests that make the most work, sent at once: one that names MANY things, or one of all things OFTEN.
    step_lines: how many lines of Python more than others one step may run; why: what bounds them.
    """

    requests: list[tuple[Any, str]]
    response: Any
    rights: Mapping[str, dict[str, object]]
    work: Callable[[Any], list[Any]]
    step_lines: int = 0
    why: str = ""


OWN_APIS = {
    "DescribeClients": OwnApi(
        requests=[(DescribeClientsRequest(), "00")],
        response=DescribeClientsResponse(clients=[CLIENT(**NAMES, **NUMBERS)]),
        rights={"": {}},
        work=lambda world: [DescribeClientsRequest()] * OFTEN,
    ),
    "DescribeTransactionOwners": OwnApi(
        requests=[
            (DescribeTransactionOwnersRequest(transactional_ids=["t"]), "02 0274 00"),
            (DescribeTransactionOwnersRequest(), "00 00"),
        ],
        response=DescribeTransactionOwnersResponse(owners=[OWNER(transactional_id="t", connected=True, **NAMES)]),
        rights={
            "": {"transactional_ids": ["rights.open", "hidden", "rights.gone"]},
            "of every open transaction": {"transactional_ids": None},
        },
        work=lambda world: [DescribeTransactionOwnersRequest(transactional_ids=["x"] * MANY)],
    ),
    "DescribeMetrics": OwnApi(
        requests=[(DescribeMetricsRequest(), "00")],
        response=DescribeMetricsResponse(
            families=[
                FAMILY(
                    name="n",
                    help="h",
                    kind=HISTOGRAM,
                    label_names=["l"],
                    samples=[SAMPLE(labels=["v"], value=1.5, buckets=[SAMPLE.Bucket(bound=math.inf, count=3)])],
                )
            ]
        ),
        rights={"": {}},
        work=lambda world: [DescribeMetricsRequest()] * OFTEN,
    ),
}
