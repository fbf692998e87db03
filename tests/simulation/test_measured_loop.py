"""What a step of a broker takes is counted, and nothing else is."""

import pytest
from fencepost.protocol.java_hash import java_hash
from simulation.measured_loop import MAX_CALLS, MeasuredLoop
from simulation.processes import Process


def work():
    for _ in range(MAX_CALLS + 1):
        java_hash("")


@pytest.mark.parametrize(
    ("is_broker", "is_starting", "excesses"), [(True, False, 1), (True, True, 0), (False, False, 0)]
)
@pytest.mark.parametrize("by_the_network", [False, True])
def test_only_a_step_of_a_started_broker_above_the_call_limit_is_reported(
    is_broker, is_starting, excesses, by_the_network
):
    loop, reported = MeasuredLoop(1), []
    loop.on_excess = reported.append
    process = Process(loop, "broker 1")
    process.counted = loop.count if is_broker else None
    process.is_starting = is_starting

    async def step():
        work()

    async def others_step():
        process.run(process.run, work)

    loop.run_until_complete(others_step() if by_the_network else process.start(step()))
    loop.close()
    assert len(reported) == excesses


def test_the_measured_loop_counts_calls_of_python_but_not_of_built_in_functions():
    loop = MeasuredLoop(1)
    process = Process(loop, "broker 1")
    process.counted = loop.count
    process.run(lambda: [java_hash("abc"), len("abc"), java_hash("")])
    loop.close()
    assert loop.most[0] == 3  # the lambda, and java_hash twice
