"""In which order a leader and its followers are given their assignments: the leader first, as Apache Kafka does."""

import pytest
from fencepost.broker.config.settings import BrokerSettings
from fencepost.protocol.messages.groups import JoinGroupRequest, SyncGroupRequest
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient

MEMBERS = 4


@pytest.fixture
def broker():
    with SimulatedBroker(BrokerSettings(group_initial_rebalance_delay_ms=100)) as broker:
        yield broker


@pytest.fixture
def members(broker):
    """Return (client, member id, generation) of each; the leader is the first."""
    clients = [SimulatedClient(broker) for _ in range(MEMBERS)]
    for client in clients:
        client.send(joining(), 3)  # before the first delay is over
    answers = [client.receive() for client in clients]
    assert len({answer.leader for answer in answers}) == len({answer.generation_id for answer in answers}) == 1
    joined = [(client, answer.member_id, answer.generation_id) for client, answer in zip(clients, answers, strict=True)]
    return sorted(joined, key=lambda member: member[1] != answers[0].leader)


def joining():
    return JoinGroupRequest(
        group_id="g",
        member_id="",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.Protocol(name="range", metadata=b"")],
    )


def syncing(members, index):
    everybody = [SyncGroupRequest.Assignment(member_id=name, assignment=b"x") for _, name, _ in members]
    return SyncGroupRequest(
        group_id="g",
        generation_id=members[index][2],
        member_id=members[index][1],
        assignments=[] if index else everybody,
    )


def answered_in_order(broker, members):
    """Return a list to which the index of each member is added when its answer arrives."""
    order = []
    for index, (client, _, _) in enumerate(members):
        arrived = client.line.data_received
        client.line.data_received = lambda data, index=index, arrived=arrived: (order.append(index), arrived(data))
    return order


@pytest.mark.slow
@pytest.mark.parametrize("apart_s", [0, 0.01, 1])
@pytest.mark.parametrize("first", [0, 1, 3])
def test_sync_group_is_answered_to_the_leader_before_its_followers(broker, members, apart_s, first):
    order = answered_in_order(broker, members)
    for index in (*range(first, MEMBERS), *range(first)):
        members[index][0].send(syncing(members, index), 3)
        if apart_s:
            broker.wait(apart_s)
    assert [client.receive().error_code for client, _, _ in members] == [0] * MEMBERS
    assert sorted(order) == list(range(MEMBERS))
    assert order[0] == 0
