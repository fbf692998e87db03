"""What a step of a broker takes is counted, and nothing else is."""

import pytest
from fencepost.broker.java_hash import java_hash
from simulation.measured_loop import MOST_CALLS, MeasuredLoop
from simulation.processes import Process


def work():
    for _ in range(MOST_CALLS + 1):
        java_hash("")


def work_of_a_client():
    for _ in range(MOST_CALLS + 1):
        nothing()


def nothing():
    pass


@pytest.mark.parametrize(
    ("callback", "is_starting", "excesses"), [(work, False, 1), (work, True, 0), (work_of_a_client, False, 0)]
)
def test_a_step_of_a_broker_that_serves_is_named_if_it_takes_too_much(callback, is_starting, excesses):
    loop, told = MeasuredLoop(1), []
    loop.on_excess = told.append
    broker = Process(loop, "broker 1")
    broker.is_starting = is_starting

    async def step():
        callback()

    loop.run_until_complete(broker.start(step()))
    loop.close()
    assert len(told) == excesses
