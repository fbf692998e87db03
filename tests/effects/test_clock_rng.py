import time

from fencepost.effects.clock import SystemClock
from fencepost.effects.rng import SystemRng


def test_the_system_clock_returns_the_systems_wall_and_monotonic_times_in_ms():
    clock = SystemClock()
    assert time.time_ns() // 1_000_000 <= clock.now_ms() <= time.time_ns() // 1_000_000
    assert time.monotonic_ns() // 1_000_000 <= clock.monotonic_ms() <= time.monotonic_ns() // 1_000_000


def test_the_system_rng_returns_different_bytes_and_numbers_within_bounds():
    rng = SystemRng()
    assert len(rng.bytes(16)) == 16
    assert rng.bytes(16) != rng.bytes(16)
    assert {rng.below(3) for _ in range(200)} == {0, 1, 2}
    assert all(0 <= rng.random() < 1 for _ in range(100))
