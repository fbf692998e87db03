"""A seed that does not go on is named, with who ran and where; one that is only slow is left alone."""

import asyncio
import time

import pytest
from fencepost.effects.simulated.loop import SimulatedLoop
from simulation.processes import Process, owned_task
from simulation.run import simulate
from simulation.watchdog import Stuck, watched

STUCK_S = 0.2


async def a_step_that_never_ends():
    while True:
        pass


async def steps_without_time():
    while True:  # noqa: ASYNC110
        await asyncio.sleep(0)


@pytest.fixture
def loop():
    loop = SimulatedLoop(1)
    loop.set_task_factory(owned_task)
    yield loop
    loop.close()


@pytest.mark.parametrize("work", [a_step_that_never_ends, steps_without_time])
def test_the_watchdog_reports_a_loop_step_that_never_ends_with_seed_and_stack(loop, work, capfd):
    async def play():
        await Process(loop, "sdk-reader").start(work())

    with pytest.raises(Stuck) as error, watched(17, loop, STUCK_S):
        loop.run_until_complete(play())
    for text in ("seed 17", "sdk-reader", work.__name__, "test_watchdog.py"):
        assert text in str(error.value)
    assert "seed 17" in capfd.readouterr().err


def test_the_watchdog_does_not_report_steps_below_its_limit_whose_sum_is_above_it(loop):
    async def play():
        for _ in range(8):
            end = time.process_time() + STUCK_S / 4
            while time.process_time() < end:
                pass
            await asyncio.sleep(0.001)

    with watched(17, loop, STUCK_S):
        loop.run_until_complete(play())


def test_a_simulation_seed_that_hangs_fails_with_its_number(monkeypatch):
    async def play(world, seconds):
        await steps_without_time()

    monkeypatch.setattr("simulation.run.play", play)
    monkeypatch.setattr("simulation.watchdog.watched.__wrapped__.__defaults__", (STUCK_S,))
    result = simulate(3)
    assert not result.good
    assert "seed 3 is stuck" in str(result)
