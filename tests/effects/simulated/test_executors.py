import asyncio

import pytest
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.loop import run


def recorder():
    events = []

    def job(name):
        def work():
            events.append(f"{name} works")
            if name == "bad":
                raise OSError(5, "broken")
            return name

        return work, lambda result: events.append(f"{result} done")

    return events, job


def test_a_simulated_executor_without_a_loop_runs_jobs_at_once_in_order():
    events, job = recorder()
    executor = SimulatedDisk().executor("journal")

    def first_done(result):
        executor.submit(*job("second"))
        events.append("first done")

    executor.submit(job("first")[0], first_done)
    executor.submit(*job("bad"))
    assert events == ["first works", "first done", "second works", "second done", "bad works", "[Errno 5] broken done"]


def test_a_simulated_executor_with_a_loop_runs_jobs_later_in_order():
    events, job = recorder()

    async def main():
        executor = SimulatedDisk(latency=lambda: (0.001, 0.002)).executor("journal")
        executor.submit(*job("one"))
        executor.submit(*job("two"))
        assert events == []
        await asyncio.sleep(0.0015)
        assert events == ["one works"]
        await asyncio.sleep(1)
        assert events == ["one works", "one done", "two works", "two done"]

    run(main())


def test_a_simulated_executor_of_two_threads_begins_two_jobs_before_either_is_done():
    events, job = recorder()

    async def main():
        executor = SimulatedDisk(latency=lambda: (0.001, 0.002)).executor("segments", threads=2)
        for name in ("one", "two", "three"):
            executor.submit(*job(name))
        await asyncio.sleep(1)
        assert events == ["one works", "two works", "one done", "two done", "three works", "three done"]

    run(main())


def test_an_inline_executor_runs_jobs_at_once_even_with_a_loop():
    events, job = recorder()

    async def main():
        SimulatedDisk(inline=True).executor("journal").submit(*job("one"))
        assert events == ["one works", "one done"]

    run(main())


def test_closing_a_simulated_executor_runs_its_submitted_jobs():
    events, job = recorder()

    async def main():
        executor = SimulatedDisk(latency=lambda: (0.001, 0.002)).executor("journal")
        executor.submit(*job("one"))
        executor.submit(*job("two"))
        executor.close()
        assert events == ["one works", "two works"]
        with pytest.raises(RuntimeError):
            executor.submit(*job("three"))
        await asyncio.sleep(1)
        assert events == ["one works", "two works", "one done", "two done"]

    run(main())


def test_the_executors_of_a_killed_process_do_nothing_more():
    events, job = recorder()

    async def main():
        disk = SimulatedDisk(latency=lambda: (0.001, 0.002))
        executor = disk.executor("journal")
        executor.submit(*job("one"))
        executor.submit(*job("two"))
        await asyncio.sleep(0.0015)
        disk.halt()
        await asyncio.sleep(1)
        assert events == ["one works"]

    run(main())


def test_a_simulated_executor_alternates_owners_and_skips_jobs_not_wanted_any_more():
    events, job = recorder()

    async def main():
        executor = SimulatedDisk(latency=lambda: (0.001, 0.002)).executor("reads")
        for name in ("first", "a1", "a2", "gone", "b1"):
            executor.submit(*job(name), owner=name[0], wanted=lambda name=name: name != "gone")
        await asyncio.sleep(1)

    run(main())
    names = ["first", "a1", "", "b1", "a2"]  # the job that is skipped has no name in its result
    assert events == [f"{name} {what}" for name in names for what in ("works", "done") if name or what == "done"]


def test_closing_a_simulated_executor_runs_only_jobs_without_a_wanted_callback():
    events, job = recorder()

    async def main():
        executor = SimulatedDisk(latency=lambda: (0.001, 0.002)).executor("reads")
        executor.submit(*job("begun"), wanted=lambda: True)
        executor.submit(*job("read"), wanted=lambda: True)
        executor.submit(*job("sync"))
        executor.close()
        assert events == ["sync works"]
        await asyncio.sleep(1)
        assert events == ["sync works", " done", " done", "sync done"]  # a job that was not run has no name

    run(main())
