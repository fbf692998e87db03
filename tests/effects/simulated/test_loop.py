import asyncio

import pytest
from fencepost.effects.simulated.loop import Deadlock, run


def test_sleeping_an_hour_advances_the_simulated_loops_time_by_3600_seconds():
    async def main():
        started = asyncio.get_running_loop().time()
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time() - started

    assert run(main()) == 3600


def test_timers_of_the_simulated_loop_fire_in_order_at_their_time_and_never_early():
    async def main():
        loop = asyncio.get_running_loop()
        fired = []
        for delay in (0.3, 0.1, 0.2, 1e-7, 86_400 * 3, 1 / 3):
            when = loop.time() + delay
            loop.call_at(when, lambda when=when: fired.append((when, loop.time())))
        await asyncio.sleep(86_400 * 4)
        return fired

    fired = run(main())
    assert [when for when, _ in fired] == sorted(when for when, _ in fired)
    assert all(0 <= at - when + 1e-9 < 1e-5 for when, at in fired)


def test_sleeping_for_the_remaining_time_in_a_loop_reaches_the_deadline():
    async def main():
        loop = asyncio.get_running_loop()
        waits = 0
        for microseconds in range(1000):
            until = loop.time() + 1.418492 + microseconds / 1e6  # with rounding errors of floats
            while (left := until - loop.time()) > 0:
                waits += 1
                assert waits < 10_000, f"{left!r} s are left at {loop.time()!r}"
                await asyncio.sleep(left)

    run(main())


def test_the_loops_clock_is_at_a_deadline_when_its_timer_fires_and_can_be_moved():
    async def main():
        loop = asyncio.get_running_loop()
        clock = loop.clock(now_ms=1000)
        for delay_ms in (1, 3, 7, 333, 1001):
            deadline = clock.monotonic_ms() + delay_ms
            await asyncio.sleep(delay_ms / 1000)
            assert clock.monotonic_ms() == deadline
        assert clock.now_ms() == 1000 + clock.monotonic_ms()
        clock.jump_wall(-3_600_000)
        assert clock.now_ms() < 0
        before = clock.monotonic_ms()
        clock.advance(500)
        assert clock.monotonic_ms() == before + 500
        with pytest.raises(ValueError):
            clock.advance(-1)

    run(main())


def test_a_simulated_loop_with_a_wait_that_nothing_can_end_raises_deadlock():
    async def main():
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Deadlock):
        run(main())


def test_after_pass_time_overdue_timers_of_the_simulated_loop_fire_late():
    async def main():
        loop = asyncio.get_running_loop()
        due = loop.time() + 1
        fired = loop.create_future()
        loop.call_at(due, lambda: fired.set_result(loop.time() - due))
        loop.pass_time(60)
        return await fired

    assert run(main()) == 59


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_the_seed_decides_the_order_of_simulated_timers_due_together(seed):
    async def main():
        order = []
        for number in range(20):
            asyncio.get_running_loop().call_later(0.01, order.append, number)
        await asyncio.sleep(1)
        return order

    assert run(main(), seed=seed) == run(main(), seed=seed)
    assert sorted(run(main(), seed=seed)) == list(range(20))
    assert run(main(), seed=1) != run(main(), seed=2)


def test_asyncio_to_thread_runs_as_a_plain_call_in_the_simulated_loop():
    async def main():
        loop = asyncio.get_running_loop()
        loop.call_soon_threadsafe(lambda: None)
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 / 0)
        return await asyncio.to_thread(lambda: 5)

    assert run(main()) == 5


def test_asyncio_timeouts_and_cancellation_work_in_the_simulated_loop():
    async def main():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.sleep(100), 10)
        async with asyncio.timeout(5):
            await asyncio.gather(asyncio.sleep(1), asyncio.sleep(2))
        return asyncio.get_running_loop().time()

    assert run(main()) == 12
