"""What an owner of a store does all the time: it shows that it is alive, and sends clients away when it may not be."""

import asyncio
from itertools import pairwise

import pytest
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.ownership import alive
from fencepost.broker.ownership.other_nodes import Presence
from fencepost.broker.ownership.owner import InStore
from fencepost.effects.simulated.loop import SimulatedLoop
from fencepost.effects.simulated.objects import SimulatedObjects
from fencepost.protocol.errors import ErrorCode
from produce_requests import answers, batch, bytes_of, create, fetch, fetched, produce
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient

LEASE_S = 6
SETTINGS = BrokerSettings(offsets_topic_num_partitions=1, transaction_state_log_num_partitions=1)


@pytest.fixture
def objects() -> SimulatedObjects:
    return SimulatedObjects()


@pytest.fixture
def owner(objects):
    """An owner with a topic that has one batch."""
    broker = SimulatedBroker(SETTINGS, in_store=InStore(objects, lambda seconds: None))
    broker.ask(create("t"))
    broker.ask(produce("t", batch(2)), 11)
    yield broker
    objects.is_away = False
    broker.stop()


def wait_as_standby(objects: SimulatedObjects, owner: SimulatedBroker) -> None:
    """Let another broker wait to take over, and the owner see it."""
    Presence(objects.client(), 2, (("PLAINTEXT", "10.0.0.2", 9094),), b"12345678", 1000 * LEASE_S).tell(1, 0)
    owner.wait(2 * LEASE_S + 1)


def is_served(broker: SimulatedBroker) -> bool:
    """Return whether a new connection gets an answer."""
    try:
        return bool(bytes_of(fetched(SimulatedClient(broker).ask(fetch("t"), 11))))
    except ConnectionError:
        return False


def test_an_owner_cut_off_from_its_store_sends_clients_away_if_another_waits(objects, owner, caplog):
    wait_as_standby(objects, owner)
    client = SimulatedClient(owner)
    objects.is_away = True
    client.send(produce("t", batch(2)), 11)
    owner.wait(LEASE_S + 1)
    assert client.line.closed
    assert not client.line.received
    assert not is_served(owner)
    assert any("broker 2 may take over" in line for line in caplog.messages)
    objects.is_away = False
    owner.wait(5)
    assert is_served(owner)
    assert answers(owner.ask(produce("t", batch(1)), 11)) == [(ErrorCode.NONE, 4)]
    assert any("clients are served again" in line for line in caplog.messages)


def test_clients_of_an_owner_cut_off_from_its_store_stay_and_read_without_a_standby(objects, owner):
    client = SimulatedClient(owner)
    objects.is_away = True
    owner.wait(3 * LEASE_S)
    assert bytes_of(fetched(client.ask(fetch("t"), 11)))


def test_an_idle_owner_whose_store_answers_keeps_its_clients(objects, owner):
    wait_as_standby(objects, owner)
    client = SimulatedClient(owner)
    owner.wait(5 * LEASE_S)
    assert not client.line.closed


@pytest.mark.parametrize("written_at", [0.0, 0.1, 0.7, 1.4, 1.9])
def test_at_most_one_and_a_half_heartbeats_pass_without_a_round(written_at):
    """written_at: when, within an interval between two heartbeats, another round of the journal is written."""
    loop = SimulatedLoop()
    seen: list[float] = []

    class Rounds:
        finished = 0
        is_idle = True

        def sync_soon(self) -> None:
            self.finished += 1
            seen.append(loop.time())

    async def run() -> None:
        rounds = Rounds()

        async def pause(seconds: float) -> bool:
            await asyncio.sleep(seconds)
            return loop.time() >= 20

        beating = asyncio.create_task(alive.beat(rounds, 2000, pause))
        await asyncio.sleep(6 + written_at)
        rounds.sync_soon()
        await beating

    loop.run_until_complete(run())
    assert max(later - earlier for earlier, later in pairwise(seen)) <= 3.0
    assert len(seen) <= 13  # in 20 s: one about every two seconds, and what sync_soon() adds
    assert seen[0] == 0
    loop.close()
