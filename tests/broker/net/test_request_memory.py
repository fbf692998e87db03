"""A client that announces a large request and sends it slowly does not delay other clients for long."""

import asyncio
import logging
import struct

import pytest
from fencepost.broker.config.settings import MIB, BrokerSettings
from fencepost.broker.net.request_memory import JUDGED_AFTER_MS, LEAST_BYTES_PER_S, LOOK_S
from produce_requests import answers, batch, create, produce
from simulated_broker import ADDRESS, SimulatedBroker
from simulated_client import SimulatedClient

ENOUGH_S = JUDGED_AFTER_MS / 1000 + 2 * LOOK_S
LARGE = batch(value=bytes(1_000_000))
SMALL_POOL = 20 * MIB  # of memory for requests; it is also the limit of one request


@pytest.fixture(params=[None])
def world(request):
    pool_bytes = request.param
    settings = BrokerSettings()
    if pool_bytes is not None:
        settings = BrokerSettings(queued_max_request_bytes=pool_bytes, socket_request_max_bytes=pool_bytes)
    with SimulatedBroker(settings) as broker:
        broker.ask(create("t"))
        broker.senders = []
        yield broker
        for sender in broker.senders:
            sender.cancel()
        broker.wait(0)


class Client(asyncio.Protocol):
    """Announces a request of this size, then sends a number of bytes each second."""

    def __init__(self, announced_bytes):
        self.announced_bytes = announced_bytes
        self.lost = False

    def connection_lost(self, error):
        self.lost = True

    async def send(self, transport, bytes_per_second, seconds, first=0):
        transport.write(struct.pack(">i", self.announced_bytes) + b"\0\0" + bytes(first))
        for _ in range(seconds):
            await asyncio.sleep(1)
            if not self.lost and bytes_per_second:
                transport.write(bytes(bytes_per_second))


def begin(world, *speeds, seconds=60, first=0):
    """Connect a client for each of these speeds (bytes a second), which sends in the background. Return the clients."""

    def announce():
        return Client(world.settings.socket_request_max_bytes)

    async def connect():
        clients = []
        for speed in speeds:
            transport, client = await world.net.connect(announce, *ADDRESS)
            world.senders.append(asyncio.ensure_future(client.send(transport, speed, seconds, first)))
            clients.append(client)
        await asyncio.sleep(0.1)
        return clients

    return world.loop.run_until_complete(connect())


def took_to_produce(world):
    before = world.loop.time()
    assert answers(world.ask(produce("t", LARGE)))[0][0] == 0
    return world.loop.time() - before


small_pool = pytest.mark.parametrize("world", [SMALL_POOL], indirect=True)


@pytest.mark.parametrize("speed", [0, 1, LEAST_BYTES_PER_S // 2, 80_000])
def test_large_announced_frames_reserve_no_memory_before_their_bytes_arrive(world, speed):
    liars = begin(world, *[speed] * 20)
    assert took_to_produce(world) < 1
    world.wait(3 * ENOUGH_S)
    assert took_to_produce(world) < 1
    assert not any(liar.lost for liar in liars)


@pytest.mark.slow
@small_pool
@pytest.mark.parametrize("speed", [0, 1, LEAST_BYTES_PER_S // 2, 80_000])
def test_clients_that_fill_the_request_memory_are_disconnected_within_seconds(world, caplog, speed):
    caplog.set_level(logging.WARNING)
    liars = begin(world, speed, speed, speed, first=10 * MIB)
    assert took_to_produce(world) <= 3 * ENOUGH_S
    assert world.broker.metrics.closed_slow == sum(liar.lost for liar in liars) >= 1
    lines = [line for line in caplog.messages if "cutting the connection" in line]
    assert len(lines) == world.broker.metrics.closed_slow
    world.ask(produce("t", LARGE))


@small_pool
def test_clients_that_send_a_request_slowly_are_closed_only_if_others_need_memory(world):
    slow = begin(world, 1, 1, seconds=40)
    world.wait(30)
    assert took_to_produce(world) < 1
    assert not any(one.lost for one in slow)
    begin(world, MIB, MIB, first=9 * MIB)  # together they fill the memory; what they send is no valid request
    took_to_produce(world)
    world.wait(30)
    metrics = world.broker.metrics
    assert (metrics.closed_slow, metrics.closed_malformed) == (sum(one.lost for one in slow), 2)


@small_pool
def test_all_request_memory_is_released_in_the_end(world):
    begin(world, 0, 0, 0, 0, 0, 0, seconds=1, first=10 * MIB)
    for _ in range(3):
        took_to_produce(world)
    world.wait(5 * ENOUGH_S)
    assert took_to_produce(world) < 1
    world.broker.server.abort_all()
    world.wait(1)
    memory = world.broker.server._memory
    assert (memory._used, len(memory._holders)) == (0, 0)


@small_pool
def test_requests_that_together_exceed_the_request_memory_all_succeed(world):
    """Each request holds some of the memory; the oldest may exceed the limit: it is completed, and frees what it holds
    for the next.
    """
    large = batch(value=bytes(900_000))
    world.ask(create("many", 10))
    clients = [SimulatedClient(world) for _ in range(6)]
    frames = [client.encoded(produce("many", *[large] * 5), 9)[2] for client in clients]
    for part in range(0, len(frames[0]), 300_000):
        for client, frame in zip(clients, frames, strict=True):
            client.send_raw(frame[part : part + 300_000])
        world.wait(0.01)
    for client in clients:
        client.receive_frame()
    assert world.broker.server._memory._used == 0
    assert world.broker.metrics.closed_slow == 0


@small_pool
def test_a_client_with_many_large_requests_waits_for_memory_before_each(world):
    """At first it has the oldest request, which may exceed the limit. If all its later requests counted as the oldest
    too, other clients would wait for ever.
    """
    streams = SimulatedClient(world)
    frame = streams.encoded(produce("t", LARGE), 9)[2]
    half = len(frame) // 2
    streams.send_raw(frame[:half])
    world.wait(0.1)
    begin(world, 0, 0, 0, 0, first=5 * MIB)  # the memory is full now, and another client waits
    waits = SimulatedClient(world)
    waits.send(produce("t", LARGE), 9)
    memory = world.broker.server._memory
    world.wait(0.1)
    before = {connection.number: holder.number for connection, holder in memory._holders.items()}
    streams.send_raw(frame[half:] + frame[:half])
    world.wait(0.1)
    assert waits.receive_frame()
    after = {connection.number: holder.number for connection, holder in memory._holders.items()}
    # The client's second request has a number of its own, the highest of all. No other number has changed.
    (newer,) = [number for number in after if number in before and after[number] != before[number]]
    assert after[newer] == max(after.values())
