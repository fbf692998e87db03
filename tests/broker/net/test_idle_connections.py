"""Idle connections are closed. None is idle while its request is handled, or while the client receives an answer."""

import pytest
from fencepost.broker.config.settings import BrokerSettings
from produce_requests import batch, create, fetch, produce
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient
from slow_workers import SlowWorkers

IDLE_S = 60
NAMED = 12  # the newest version of Fetch that names topics
ANSWER_BYTES = 4_000_000
A_BIT = 300_000


@pytest.fixture
def world():
    with SimulatedBroker(BrokerSettings(connections_max_idle_ms=IDLE_S * 1000)) as broker:
        broker.ask(create("t"))
        for _ in range(10):
            broker.ask(produce("t", batch(value=bytes(ANSWER_BYTES // 10))))
        yield broker


@pytest.fixture
def client(world):
    return SimulatedClient(world)


def take(client, bytes_at_least):
    """Read at least this many bytes of the answer, then stop reading again."""
    line, transport = client.line, client.transport
    wanted = len(line.received) + bytes_at_least

    def data_received(data):
        type(line).data_received(line, data)
        if len(line.received) >= wanted:
            transport.pause_reading()

    line.data_received = data_received
    transport.resume_reading()
    client.broker.wait(1)
    del line.data_received


def begin_download(client):
    client.transport.pause_reading()
    client.send(fetch("t", partition_max_bytes=ANSWER_BYTES * 2), NAMED)
    client.broker.wait(1)


def test_a_client_still_receiving_a_large_answer_is_not_idle(world, client):
    begin_download(client)
    for _ in range(6):
        world.wait(IDLE_S / 2)
        take(client, A_BIT)
        assert not client.line.closed
    client.transport.resume_reading()
    assert len(client.receive_frame()) > ANSWER_BYTES


def test_a_client_that_stops_receiving_a_large_answer_is_closed_as_idle(world, client):
    begin_download(client)
    world.wait(IDLE_S / 2)
    take(client, A_BIT)
    world.wait(2 * IDLE_S)
    take(client, ANSWER_BYTES)
    assert client.line.closed


def test_a_late_answer_restarts_the_idle_time(world, client):
    """A long poll takes 0.9 of the idle time, and the client may then be silent for 0.9 of it again."""
    client.send(fetch("t", offset=10, max_wait_ms=IDLE_S * 900, min_bytes=1), NAMED)
    assert client.receive()
    world.wait(IDLE_S * 0.9)
    assert client.ask(fetch("t", offset=10), NAMED)


def test_a_client_whose_request_waits_for_a_worker_is_not_idle(world, client):
    world.ask(create("keys", cleanup_policy="compact"))
    workers = world.broker.records_executor = SlowWorkers()
    client.send(produce("keys", batch(key=b"k", codec=4)))
    world.wait(3 * IDLE_S)
    workers.run_one()
    assert client.receive_frame()


def test_a_connection_without_requests_for_the_idle_time_is_closed(world, client):
    world.wait(2 * IDLE_S)
    assert client.line.closed
