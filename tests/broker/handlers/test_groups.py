"""FindCoordinator."""

import pytest
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.groups import FindCoordinatorRequest
from simulated_broker import SimulatedBroker

HERE = (1, "127.0.0.1", 9092)
NOBODY = (-1, "", -1)


@pytest.mark.requirement("S-56")
@pytest.mark.parametrize("version", range(1, 4))
@pytest.mark.parametrize("kind", [0, 1])
def test_find_coordinator_returns_this_broker_for_groups_and_transactions(
    broker: SimulatedBroker, version: int, kind: int
) -> None:
    found = broker.ask(FindCoordinatorRequest(key="x", key_type=kind), version)
    assert (found.error_code, found.node_id, found.host, found.port) == (0, *HERE)


def test_find_coordinator_v0_finds_only_group_coordinators(broker: SimulatedBroker) -> None:
    found = broker.ask(FindCoordinatorRequest(key="x"), 0)
    assert (found.error_code, found.node_id, found.host, found.port) == (0, *HERE)


@pytest.mark.parametrize("version", range(4, 7))
def test_find_coordinator_answers_each_key_of_a_list(broker: SimulatedBroker, version: int) -> None:
    keys = ["g1", "g2", "g1", ""]
    found = broker.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=keys), version).coordinators
    assert [(each.key, each.error_code, each.node_id, each.host, each.port) for each in found] == [
        (key, 0, *HERE) for key in keys
    ]
    assert broker.ask(FindCoordinatorRequest(coordinator_keys=[]), version).coordinators == []


@pytest.mark.parametrize("kind", [2, 3, -1])
def test_find_coordinator_refuses_share_groups_and_unknown_key_types(broker: SimulatedBroker, kind: int) -> None:
    old = broker.ask(FindCoordinatorRequest(key="x", key_type=kind), 2)
    assert (old.error_code, old.node_id, old.host, old.port) == (ErrorCode.INVALID_REQUEST, *NOBODY)
    new = broker.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=["x", "y"]), 6).coordinators
    assert [(each.key, each.error_code, each.node_id, each.host, each.port) for each in new] == [
        ("x", ErrorCode.INVALID_REQUEST, *NOBODY),
        ("y", ErrorCode.INVALID_REQUEST, *NOBODY),
    ]
