"""Time that can be moved ahead: clock and timers follow, in both loops."""

import asyncio

import pytest
from fencepost.effects.simulated.movable import MovableClock, MovableLoop, new_movable_loop


@pytest.fixture(params=[MovableLoop, new_movable_loop], ids=["asyncio", "uvloop"])
def loop(request):
    loop = request.param()
    yield loop
    loop.close()


def test_set_wall_right_undoes_advances_of_the_wall_clock_not_of_the_monotonic_clock():
    clock = MovableClock()
    wall, monotonic = clock.now_ms(), clock.monotonic_ms()
    clock.advance(3_600_000)
    assert clock.now_ms() - wall >= 3_600_000
    assert clock.monotonic_ms() - monotonic >= 3_600_000
    clock.set_wall_right()
    assert clock.now_ms() - wall < 3_600_000
    assert clock.monotonic_ms() - monotonic >= 3_600_000


def test_advancing_a_clock_by_a_negative_time_is_refused():
    with pytest.raises(ValueError, match="does not go back"):
        MovableClock().advance(-1)


def test_timers_fire_in_order_when_the_loops_time_is_moved(loop):
    rung = []

    async def main():
        loop.call_later(7200, rung.append, "later")
        for seconds in (60, 3600, 30):
            loop.call_later(seconds, rung.append, seconds)
        loop.call_later(1, rung.append, "never").cancel()
        loop.move(3600)
        while len(rung) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0)

    loop.run_until_complete(main())
    assert rung == [30, 60, 3600]


def test_sleeps_and_timeouts_follow_an_advanced_clock(loop):
    async def main():
        began = loop.time()
        sleeping = asyncio.ensure_future(asyncio.sleep(3600))
        waiting = asyncio.ensure_future(asyncio.wait_for(asyncio.Event().wait(), 3600))
        await asyncio.sleep(0)
        loop.move(3600)
        await sleeping
        with pytest.raises(TimeoutError):
            await waiting
        assert loop.time() >= began + 3600  # not as a difference, which would be rounded

    loop.run_until_complete(main())


def test_a_sleep_in_the_movable_loop_lasts_real_time_if_no_clock_is_advanced(loop):
    async def main():
        before = loop.time()
        await asyncio.sleep(0.01)
        assert loop.time() - before >= 0.009
        for _ in range(500):  # cancelled timers do not delay a later one
            loop.call_later(3600, print).cancel()
        loop.call_later(0, (done := asyncio.Event()).set)
        await done.wait()

    loop.run_until_complete(main())
