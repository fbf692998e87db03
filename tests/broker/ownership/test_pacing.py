"""When rounds begin, where each costs something."""

import pytest
from fencepost.broker.ownership.pacing import LARGE_BYTES, Pace


def begun(pace: Pace, until_ms: int, open_bytes: int = 100) -> int:
    """Return how many rounds begin, if there is always one that is open."""
    count = now_ms = 0
    while now_ms < until_ms:
        wait_ms = pace.wait_ms(now_ms, open_bytes)
        count += not wait_ms
        now_ms += wait_ms or 1
    return count


def test_ten_journal_rounds_after_a_pause_need_no_wait_and_the_eleventh_waits_100_ms():
    pace = Pace(10, 10)
    assert [pace.wait_ms(0, 100) for _ in range(11)] == [0] * 10 + [100]
    assert pace.wait_ms(60_000, 100) == 0


@pytest.mark.parametrize("per_second", [1, 10, 100])
def test_journal_rounds_begin_at_most_as_often_a_second_as_configured(per_second):
    assert begun(Pace(per_second, per_second), 60_000) <= per_second * 61
    assert begun(Pace(per_second, per_second), 60_000) >= per_second * 59


def test_large_journal_rounds_never_wait_but_make_later_small_ones_wait():
    pace = Pace(10, 10)
    assert all(pace.wait_ms(0, LARGE_BYTES) == 0 for _ in range(1000))
    assert pace.wait_ms(0, 100) > 0
    assert pace.wait_ms(3_000, 100) == 0
