import time

from fencepost.effects.clock import SystemClock
from fencepost.effects.rng import SystemRng


def test_the_system_clock_counts_milliseconds():
    clock = SystemClock()
    assert abs(clock.now_ms() - time.time() * 1000) < 1000
    first = clock.monotonic_ms()
    time.sleep(0.003)
    assert 2 <= clock.monotonic_ms() - first < 1000


def test_the_system_rng_keeps_its_bounds_and_does_not_repeat():
    rng = SystemRng()
    assert len(rng.bytes(16)) == 16
    assert rng.bytes(16) != rng.bytes(16)
    assert {rng.below(3) for _ in range(200)} == {0, 1, 2}
    assert all(0 <= rng.random() < 1 for _ in range(100))
