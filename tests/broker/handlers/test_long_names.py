"""A client sends a name of the greatest length, once or twice in a request: the answer fits the protocol."""

from typing import Any

import pytest
from acl_client import guarded
from config_requests import BROKER, SET, TOPIC, Change
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.configs import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from fencepost.protocol.messages.scram_users import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
)
from fencepost.protocol.messages.topics import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from simulated_broker import SimulatedBroker

GROUP, BROKER_LOGGER, CLIENT_METRICS = 32, 8, 16  # resource types
LONGEST = {"1 byte": "x" * 32_767, "3 bytes": "\N{CJK UNIFIED IDEOGRAPH-4E2D}" * 10_922}
KINDS = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, 99)


def requests(name: str, times: int) -> list[Any]:
    """Every kind of request that contains names and whose answer contains a text, with this name `times` times."""
    users, changes, replaced = (
        DescribeUserScramCredentialsRequest,
        IncrementalAlterConfigsRequest.Resource,
        AlterConfigsRequest.Resource,
    )
    removed = AlterUserScramCredentialsRequest.Deletion(name=name, mechanism=1)
    made: list[Any] = [
        users(users=[users.User(name=name)] * times),
        AlterUserScramCredentialsRequest(deletions=[removed] * times, upsertions=[]),
        CreateTopicsRequest(topics=[CreateTopicsRequest.Topic(name=name, num_partitions=1)] * times),
        CreatePartitionsRequest(topics=[CreatePartitionsRequest.Topic(name=name, count=2)] * times, timeout_ms=1),
        DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name=name)] * times, timeout_ms=1),
    ]
    for kind in KINDS:
        described = DescribeConfigsRequest.Resource(resource_type=kind, resource_name=name)
        changed = changes(
            resource_type=kind,
            resource_name=name,
            configs=[Change(name="retention.ms", config_operation=SET, value="1")],
        )
        set_whole = replaced(
            resource_type=kind, resource_name=name, configs=[replaced.Config(name="retention.ms", value="1")]
        )
        made += [
            DescribeConfigsRequest(resources=[described] * times),
            IncrementalAlterConfigsRequest(resources=[changed] * times),
            AlterConfigsRequest(resources=[set_whole] * times),
        ]
    return made


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("kind", LONGEST)
def test_requests_with_names_of_maximum_length_never_get_unknown_server_error(kind: str, times: int) -> None:
    with SimulatedBroker(guarded()) as broker:
        for request in requests(LONGEST[kind], times):
            answer = repr(broker.ask(request))
            assert f"error_code={int(ErrorCode.UNKNOWN_SERVER_ERROR)}," not in answer, type(request)
