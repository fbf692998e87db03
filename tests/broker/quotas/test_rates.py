"""How fast something goes, against plain references: each window and each event by itself."""

from math import floor

import pytest
from fencepost.broker.quotas.rates import LONGEST_MS, TokenBucket, WindowedRate, Windows
from hypothesis import given
from hypothesis import strategies as st

KAFKAS = Windows(11, 1000)
shapes = st.builds(Windows, st.integers(1, 6), st.sampled_from([1, 10, 1000]))
events = st.lists(st.tuples(st.integers(0, 3000), st.floats(0, 1e6)), min_size=1, max_size=40)


class PlainRate:
    """A reference that keeps every amount, by windows. A window begins with the first amount after the end of the
    window before it.
    """

    def __init__(self, shape: Windows) -> None:
        self.shape = shape
        self.windows: list[list[tuple[int, float]]] = []

    def record(self, amount: float, now_ms: int) -> None:
        if not self.windows or now_ms - self.windows[-1][0][0] >= self.shape.size_ms:
            self.windows.append([])
        self.windows[-1].append((now_ms, amount))

    def counting(self, now_ms: int) -> list[list[tuple[int, float]]]:
        newest = self.windows[-(self.shape.number + 1) :]
        return [window for window in newest if now_ms - window[-1][0] < self.shape.number * self.shape.size_ms]

    def span_ms(self, now_ms: int) -> int:
        counting, size = self.counting(now_ms), self.shape.size_ms
        passed = now_ms - counting[0][0][0] if counting else 0
        while passed // size < self.shape.number - 1:  # windows that have not been yet count as empty
            passed += size
        return max(passed, 1)

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        amount = sum(amount for window in self.counting(now_ms) for _, amount in window)
        rate = amount * 1000 / self.span_ms(now_ms)
        return floor((rate - limit) / limit * self.span_ms(now_ms) + 0.5) if rate > limit else 0


@given(shapes, events, st.floats(0.5, 1e5))
def test_a_windowed_rate_gives_the_throttle_times_of_a_simple_reference(
    shape: Windows, came: list[tuple[int, float]], limit: float
) -> None:
    rate, plain, now_ms = WindowedRate(), PlainRate(shape), 5
    for pause_ms, amount in came:
        now_ms += pause_ms
        rate.record(amount, now_ms, shape)
        plain.record(amount, now_ms)
        assert rate.span_ms(now_ms, shape) == plain.span_ms(now_ms)
        assert rate.throttle_ms(limit, now_ms, shape) == pytest.approx(
            min(plain.throttle_ms(limit, now_ms), LONGEST_MS), abs=1
        )
        assert len(rate._windows) <= shape.number + 1


@given(shapes, events)
def test_a_rate_whose_windows_have_all_passed_equals_a_new_one(shape: Windows, came: list[tuple[int, float]]) -> None:
    rate, now_ms = WindowedRate(), 0
    for pause_ms, amount in came:
        now_ms += pause_ms
        rate.record(amount, now_ms, shape)
        assert not rate.is_fresh(now_ms, shape)
    later_ms = now_ms + shape.all_ms
    assert rate.is_fresh(later_ms, shape)
    assert not rate.is_fresh(later_ms - 1, shape)
    new = WindowedRate()
    for each in (rate, new):
        each.record(7.0, later_ms, shape)
    assert rate.throttle_ms(0.01, later_ms, shape) == new.throttle_ms(0.01, later_ms, shape)


@given(st.floats(10, 1e6), st.lists(st.tuples(st.integers(0, 50), st.floats(1, 1e6)), min_size=1, max_size=60))
def test_a_client_that_waits_for_its_throttle_time_stays_within_its_quota(
    limit: float, came: list[tuple[int, float]]
) -> None:
    rate, now_ms, total = WindowedRate(), 0, 0.0
    largest = max(amount for _, amount in came)
    for pause_ms, amount in came:
        now_ms += pause_ms
        rate.record(amount, now_ms, KAFKAS)
        total += amount
        now_ms += rate.throttle_ms(limit, now_ms, KAFKAS)
        # A window that ends frees its whole amount at once, so the client may exceed the limit by a part of a window.
        assert total <= limit * (now_ms + KAFKAS.all_ms) / 1000 * 1.25 + largest


def test_an_amount_taken_back_no_longer_counts_in_the_rate() -> None:
    rate = WindowedRate()
    rate.record(100.0, 0, KAFKAS)
    rate.record(1e6, 500, KAFKAS)
    rate.record(-1e6, 500, KAFKAS)
    assert rate.per_second(500, KAFKAS) == pytest.approx(100 * 1000 / 10_500)


def test_a_throttle_time_never_exceeds_the_int32_field_of_a_response() -> None:
    rate, bucket = WindowedRate(), TokenBucket()
    rate.record(1e300, 0, KAFKAS)
    bucket.record(1e300, 1e-9, 0)
    assert rate.throttle_ms(1e-9, 0, KAFKAS) == bucket.throttle_ms(1e-9, 0, KAFKAS) == LONGEST_MS


def test_an_unlimited_rate_never_waits() -> None:
    rate, bucket = WindowedRate(), TokenBucket()
    rate.record(1e9, 0, KAFKAS)
    bucket.record(1e9, float("inf"), 0)
    assert rate.throttle_ms(float("inf"), 0, KAFKAS) == bucket.throttle_ms(float("inf"), 0, KAFKAS) == 0


@given(shapes, events, st.floats(0.5, 1e4))
def test_a_token_bucket_fills_at_the_quota_up_to_its_burst_and_may_be_overdrawn(
    shape: Windows, came: list[tuple[int, float]], limit: float
) -> None:
    bucket, now_ms, burst = TokenBucket(), 0, limit * shape.number * shape.size_ms / 1000
    tokens = burst
    for pause_ms, amount in came:
        now_ms += pause_ms
        tokens = min(burst, tokens + limit * pause_ms / 1000)
        assert bucket.left(limit, now_ms, shape) == pytest.approx(tokens, abs=1e-6 * max(1.0, burst))
        bucket.record(amount, limit, now_ms)
        tokens -= amount
        expected = floor(-tokens / limit * 1000 + 0.5) if tokens < 0 else 0
        assert bucket.throttle_ms(limit, now_ms, shape) == pytest.approx(min(expected, LONGEST_MS), abs=1)
    # 2 ms more: the moment itself may lie on either side of a rounded sum.
    wait_ms = floor((burst - min(tokens, burst)) / limit * 1000) + 2
    assert bucket.is_fresh(limit, now_ms + wait_ms)
