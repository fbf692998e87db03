"""Who announces much and sends little stands in nobody's way for long."""

import asyncio
import logging
import struct

import pytest
from fencepost.broker.request_memory import JUDGED_AFTER_MS, LEAST_BYTES_PER_S, LOOK_S
from fencepost.broker.settings import MIB, BrokerSettings
from produce_requests import answers, batch, create, produce
from simulated_broker import ADDRESS, SimulatedBroker

ENOUGH_S = JUDGED_AFTER_MS / 1000 + 2 * LOOK_S
LARGE = batch(value=bytes(1_000_000))
ANNOUNCED = struct.pack(">i", 100 * MIB) + b"\0\0"


@pytest.fixture
def world():
    with SimulatedBroker(BrokerSettings()) as broker:
        broker.ask(create("t"))
        broker.senders = []
        yield broker
        for sender in broker.senders:
            sender.cancel()
        broker.loop.run_until_complete(asyncio.gather(*broker.senders, return_exceptions=True))


class Client(asyncio.Protocol):
    """Announces 100 MB, then sends so many bytes a second."""

    def __init__(self):
        self.lost = False

    def connection_lost(self, error):
        self.lost = True

    async def send(self, transport, bytes_per_second, seconds, first=0):
        transport.write(ANNOUNCED + bytes(first))
        for _ in range(seconds):
            await asyncio.sleep(1)
            if not self.lost and bytes_per_second:
                transport.write(bytes(bytes_per_second))


def begin(world, *speeds, seconds=60, first=0):
    """Clients of these speeds, at work in the background from now on."""

    async def connect():
        clients = []
        for speed in speeds:
            transport, client = await world.net.connect(Client, *ADDRESS)
            world.senders.append(asyncio.ensure_future(client.send(transport, speed, seconds, first)))
            clients.append(client)
        await asyncio.sleep(0.1)
        return clients

    return world.loop.run_until_complete(connect())


def took_to_produce(world):
    before = world.loop.time()
    assert answers(world.ask(produce("t", LARGE)))[0][0] == 0
    return world.loop.time() - before


@pytest.mark.parametrize(("speed", "first"), [(0, 0), (1, 0), (LEAST_BYTES_PER_S // 2, 0), (1, 50 * MIB)])
def test_announcements_that_come_to_nothing_block_the_others_for_seconds_only(world, caplog, speed, first):
    caplog.set_level(logging.WARNING)
    liars = begin(world, speed, speed, speed, first=first)
    assert took_to_produce(world) <= 3 * ENOUGH_S
    assert world.broker.metrics.closed_slow == sum(liar.lost for liar in liars) >= 1
    lines = [line for line in caplog.messages if "cutting the connection" in line]
    assert len(lines) == world.broker.metrics.closed_slow
    world.ask(produce("t", LARGE))


def test_whoever_is_fast_enough_is_left_alone_and_so_are_slow_ones_while_nobody_waits(world):
    slow = begin(world, 1, 1, seconds=40)
    world.wait(30)
    assert took_to_produce(world) < 1
    assert not any(one.lost for one in slow)
    fast = begin(world, 2 * LEAST_BYTES_PER_S, seconds=40)
    took_to_produce(world)
    assert not any(one.lost for one in fast)


def test_room_comes_back_whole(world):
    begin(world, 0, 0, 0, 0, 0, 0, seconds=1)
    for _ in range(3):
        took_to_produce(world)
    world.wait(5 * ENOUGH_S)
    assert took_to_produce(world) < 1
