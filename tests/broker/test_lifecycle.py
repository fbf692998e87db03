"""How a broker begins and ends: busy, halted, changed while it runs. Simulated disk, network and time."""

import asyncio

import pytest
from broker_lives import end, slow, small
from fencepost.broker.broker import Broker
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.loop import SimulatedLoop
from fencepost.effects.simulated.net import SimulatedNet
from fencepost.effects.simulated.rng import SeededRng
from fencepost.protocol.apis import APIS, encode_request
from fencepost.storage.store import BrokerHalted
from produce_requests import batch, create, produce
from simulated_broker import ADDRESS, SimulatedBroker


class Busy(asyncio.Protocol):
    """A client that keeps five Produce requests in flight until its connection is closed."""

    def __init__(self, frame: bytes) -> None:
        self.frame = frame
        self.answers = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        transport.write(self.frame * 5)

    def data_received(self, data: bytes) -> None:
        self.answers += 1
        self.transport.write(self.frame)


@pytest.mark.slow
def test_a_broker_under_constant_produce_load_stops_within_30_seconds():
    disk = SimulatedDisk(history=False)
    slow(disk, journal=0.004)
    one = SimulatedBroker(small(), disk=disk)
    one.ask(create("t"))
    frame = b"".join(bytes(piece) for piece in encode_request(APIS[0], 9, 1, "busy", produce("t", batch())))

    async def run() -> None:
        busy = [(await one.net.connect(lambda: Busy(frame), *ADDRESS))[1] for _ in range(4)]
        await asyncio.sleep(1)
        assert all(each.answers for each in busy)
        await asyncio.wait_for(one.broker.stop(), 30)

    try:
        one.loop.run_until_complete(run())
    finally:
        end(one)


def test_a_broker_halted_during_its_start_does_not_report_ready():
    disk = SimulatedDisk(history=False)
    loop = SimulatedLoop()
    broker = Broker(small(), disk=disk, clock=loop.clock(), rng=SeededRng(1), net=SimulatedNet(seed=1))

    def recovery_is_over():
        disk.fail_sync(lambda path: path.endswith(".journal"))

    disk.async_writer = recovery_is_over
    with pytest.raises(BrokerHalted):
        loop.run_until_complete(broker.start())
    loop.close()
    assert broker.halted is not None


def test_a_producer_id_expiration_changed_at_run_time_takes_effect():
    one = SimulatedBroker(small(producer_id_expiration_check_interval_ms=1_000), disk=SimulatedDisk(history=False))
    one.ask(create("t"))
    one.broker.topics.alter_broker_configs("", {"producer.id.expiration.ms": "5000"})
    one.ask(produce("t", batch(producer_id=7, producer_epoch=0, base_sequence=0)))
    log = one.broker.topics.by_name["t"].partitions[0].log
    assert len(log.producers) == 1
    one.wait(60)
    assert len(log.producers) == 0
    one.stop()


def test_an_exception_in_an_on_release_callback_halts_the_broker_without_an_answer():
    """on_release callbacks are called when journal units become durable."""
    one = SimulatedBroker(small(), disk=SimulatedDisk(history=False))
    one.ask(create("t"))

    def bug(moved: object) -> None:
        raise RuntimeError("a bug in something that is woken")

    one.broker.rounds.on_release.append(bug)

    async def run() -> None:
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(one._ask(produce("t", batch()), None), 30)

    try:
        one.loop.run_until_complete(run())
        assert isinstance(one.broker.halted, RuntimeError)
    finally:
        end(one)


def test_waiting_for_the_journal_to_be_idle_leaves_no_callback_behind():
    one = SimulatedBroker(small(), disk=SimulatedDisk(history=False))
    try:
        before = len(one.broker.rounds.on_halt)
        for _ in range(3):
            one.loop.run_until_complete(one.broker.idle())
        assert len(one.broker.rounds.on_halt) == before
    finally:
        end(one)


@pytest.mark.parametrize("mode", ["fsync", "interval"])
def test_a_machine_suspended_while_the_broker_stops_does_not_halt_the_broker(mode):
    """Time passes twice without a turn of the loop: when the journal is reported idle, and when its executor was
    closed. A timer that is due by then, for example to write a seal, must not begin a round on the closed executor.
    """
    one = SimulatedBroker(small(durability_mode=mode), disk=SimulatedDisk(history=False))
    one.ask(create("t"))
    one.ask(produce("t", batch()))
    when_idle, close = one.broker.rounds.when_idle, one.broker._journal_executor.close

    def when_idle_and_late(callback):
        at_once = True

        def reported():
            callback()
            if not at_once:
                one.loop.pass_time(1)

        when_idle(reported)
        at_once = False

    def close_and_late():
        close()
        one.loop.pass_time(1)

    one.broker.rounds.when_idle = when_idle_and_late
    one.broker._journal_executor.close = close_and_late
    one.stop()
    assert one.broker.halted is None
