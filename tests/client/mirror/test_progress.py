"""Rates, lag and the time that is left."""

from fencepost.client.mirror.progress import Progress


def test_a_mirrors_time_left_is_its_lag_divided_by_the_decrease_per_second() -> None:
    progress = Progress()
    progress.add(0, 0, 0, 1000)  # ms, records, bytes, lag
    progress.add(2000, 500, 5000, 600)
    assert progress.facts() == {"records_per_s": 250, "bytes_per_s": 2500, "lag": 600, "left_s": 3}


def test_a_mirrors_time_left_is_none_while_the_lag_grows() -> None:
    progress = Progress()
    progress.add(0, 0, 0, 10)  # ms, records, bytes, lag
    progress.add(1000, 5, 50, 20)
    assert progress.facts()["left_s"] is None


def test_a_mirrors_rates_cover_only_the_last_seconds() -> None:
    progress = Progress()
    for second in range(60):
        progress.add(1000 * second, min(second, 30) * 100, 0, 0)
    assert progress.facts()["records_per_s"] == 0
    assert progress.facts()["left_s"] == 0


def test_a_mirrors_lag_is_none_before_the_first_sample() -> None:
    assert Progress().facts()["lag"] is None
