"""With an authorizer each Fetch is judged anew: in a session, while it waits, and of many partitions."""

from collections.abc import Iterator
from typing import Any

import pytest
from acl_client import creating, guarded
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.fetch import FetchRequest
from guarded_broker import Guarded
from produce_requests import batch, bytes_of, create, fetch, fetched, produce
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient

OK = ErrorCode.NONE
NO_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
ALICE_READS = "allow User:alice READ TOPIC = t"


@pytest.fixture
def world() -> Iterator[Guarded]:
    with SimulatedBroker(guarded(super_users="User:root")) as broker:
        found = Guarded(broker)
        found.have(ALICE_READS)
        yield found


def ask(world: Guarded, user: str, request: FetchRequest, version: int = 12) -> Any:
    return world.as_user(user, lambda: world.client.ask(request, version))


def test_a_fetch_without_the_read_right_is_refused_at_once_without_records(world: Guarded) -> None:
    assert world.write("root") == OK
    found = fetched(ask(world, "bob", fetch("t", max_wait_ms=60_000)))
    assert (found.error_code, bytes_of(found), found.high_watermark) == (NO_TOPIC, b"", -1)
    assert bytes_of(fetched(ask(world, "alice", fetch("t"))))


def test_a_fetch_session_of_another_user_is_not_found(world: Guarded) -> None:
    opened = ask(world, "alice", fetch("t", epoch=0))
    assert opened.session_id
    more = {"session_id": opened.session_id, "topics": []}
    assert ask(world, "bob", fetch(epoch=1, **more)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert ask(world, "bob", fetch(epoch=-1, **more)).error_code == OK  # -1 ends a session of his own, if there is one
    assert ask(world, "bob", fetch("t", epoch=0, session_id=opened.session_id)).session_id != opened.session_id
    assert ask(world, "alice", fetch(epoch=1, **more)).error_code == OK


def test_a_fetch_session_reports_a_partition_whose_read_right_was_removed(world: Guarded) -> None:
    """Nothing else has changed in the partition, so that an incremental answer would leave it out otherwise."""
    opened = ask(world, "alice", fetch("t", epoch=0))
    more = {"session_id": opened.session_id, "topics": []}
    assert ask(world, "alice", fetch(epoch=1, **more)).responses == []
    world.have_no_more("alice")
    assert [fetched(ask(world, "alice", fetch(epoch=epoch, **more))).error_code for epoch in (2, 3)] == [NO_TOPIC] * 2
    world.have(ALICE_READS)
    assert fetched(ask(world, "alice", fetch(epoch=4, **more))).error_code == OK
    assert ask(world, "alice", fetch(epoch=5, **more)).responses == []


@pytest.mark.slow
@pytest.mark.parametrize("partitions", [1, 60, 600])
def test_a_waiting_fetch_returns_nothing_after_the_right_to_read_is_removed(world: Guarded, partitions: int) -> None:
    """Kafka checks the rights of a fetch once, when it arrives. Here they are checked again whenever the waiting fetch
    looks for records.
    """
    world.as_user("root", lambda: world.broker.ask(create("wide", 600)))
    world.have("allow User:alice READ TOPIC = wide")
    parts = [
        FetchRequest.Topic.Partition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
        for index in range(partitions)
    ]
    asked = fetch(topics=[FetchRequest.Topic(topic="wide", partitions=parts)], max_wait_ms=60_000)
    waiting = SimulatedClient(world.broker)
    world.acting.user = "alice"
    waiting.send(asked, 12)
    world.broker.wait(1)
    world.acting.user = "root"
    world.have_no_more("alice")
    root = SimulatedClient(world.broker)
    root.ask(produce("wide", batch()), 11)
    found = waiting.receive().responses[0].partitions
    assert {part.error_code for part in found} == {NO_TOPIC}
    assert not any(bytes_of(part) for part in found)


def test_a_fetch_reads_only_partitions_with_the_read_right(world: Guarded) -> None:
    names = [f"t{number}" for number in range(6)]

    def make() -> None:
        for name in names:
            world.broker.ask(create(name, 100))
            world.broker.ask(produce(name, batch()), 11)
        world.broker.ask(creating("allow User:alice READ TOPIC = t1", "allow User:alice READ TOPIC = t4"))

    world.as_user("root", make)
    topics = [
        FetchRequest.Topic(
            topic=name,
            partitions=[
                FetchRequest.Topic.Partition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
                for index in range(100)
            ],
        )
        for name in names
    ]
    found = ask(world, "alice", fetch(topics=topics, max_wait_ms=1000))
    codes = {(topic.topic, part.error_code) for topic in found.responses for part in topic.partitions}
    assert codes == {(name, OK if name in ("t1", "t4") else NO_TOPIC) for name in names}
    assert sum(bool(bytes_of(part)) for topic in found.responses for part in topic.partitions) == 2


def test_fetching_as_a_replica_needs_the_cluster_action_right(world: Guarded) -> None:
    asked = fetch("t")
    asked.replica_id = 3
    assert fetched(ask(world, "alice", asked)).error_code == NO_TOPIC
    world.have("allow User:alice CLUSTER_ACTION CLUSTER = kafka-cluster")
    assert fetched(ask(world, "alice", asked)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
