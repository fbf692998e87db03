"""A producer that is closed, or that nobody holds any more: its records are sent, or counted and logged."""

import asyncio
import logging

import pytest
from fencepost.client.metrics.counters import ClientMetrics
from fencepost.client.producer.producer import Producer
from txn_world import BOOTSTRAP, within

BROKEN = {"delivery_timeout_ms": 20_000, "request_timeout_ms": 1_000, "max_block_ms": 5_000}


def plain(world, **keywords):
    return Producer(BOOTSTRAP, environment=world.world.environment, **keywords)


@pytest.mark.parametrize("somebody_awaits", [False, True])
def test_records_that_a_close_drops_are_counted_and_logged(somebody_awaits, caplog):
    async def main(world):
        metrics = ClientMetrics()
        producer = plain(world, metrics=metrics, **BROKEN)
        await producer.start()
        await producer.send_and_wait("t", b"v")
        world.faults.blackhole("Produce", when="before_write").every_time()
        deliveries = [await producer.send("t", b"lost") for _ in range(3)]
        if somebody_awaits:
            deliveries[0].add_done_callback(lambda delivery: None)
        await asyncio.sleep(0.1)
        await producer.send("t", b"lost")
        await producer.close(timeout_ms=300)
        assert metrics.snapshot().failed_records == {"ClosedError": 4}

    within(main)
    (said,) = [said.getMessage() for said in caplog.records if said.levelno == logging.ERROR]
    assert said.endswith("dropped 4 records to t-0; 4 of them may have been written nevertheless")


@pytest.mark.parametrize("settings", [{}, {"linger_ms": 100_000}])
def test_a_garbage_collected_producer_still_sends_its_records(settings, caplog):
    async def main(world):
        producers = [plain(world, **settings)]
        await producers[0].start()
        for n in range(100):
            await producers[0].send("t", b"%d" % n)
        with pytest.warns(ResourceWarning, match="never closed"):
            producers.clear()
        await asyncio.sleep(5)
        assert len(await world.values()) == 100

    within(main)
    assert not [said for said in caplog.records if said.levelno >= logging.WARNING]


def test_unsendable_records_of_a_garbage_collected_producer_are_logged(caplog):
    async def main(world):
        producers = [plain(world, **BROKEN)]
        await producers[0].start()
        world.faults.blackhole("Produce", when="before_write").every_time()
        await producers[0].send("t", b"v")
        with pytest.warns(ResourceWarning, match="never closed"):
            producers.clear()
        await asyncio.sleep(100)

    within(main)
    (said,) = [said.getMessage() for said in caplog.records if said.levelno == logging.ERROR]
    assert "delivery failed for 1 record to t-0" in said
