"""Jobs of a worker that end once the task that waited for them was cancelled, as when a broker is killed."""

import asyncio
import logging

import pytest
from fencepost.broker.config.settings import BrokerSettings
from fencepost.effects.simulated.disk import SimulatedDisk
from simulated_broker import SimulatedBroker


@pytest.mark.parametrize("outcome", [None, OSError(5, "Input/output error")], ids=["result", "error"])
def test_a_job_that_ends_after_its_wait_was_cancelled_raises_nothing_in_the_loop(outcome, caplog):
    def run() -> None:
        if outcome is not None:
            raise outcome

    disk = SimulatedDisk(latency=lambda: (0.01, 0.02))
    with caplog.at_level(logging.ERROR), SimulatedBroker(BrokerSettings(), disk=disk) as broker:

        async def cancel_the_wait():
            waiting = asyncio.ensure_future(broker.broker.housekeeping.job(run))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.sleep(1)
            return waiting.cancelled()

        assert broker.loop.run_until_complete(cancel_the_wait())
    assert caplog.records == []
