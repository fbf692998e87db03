"""Which points (checkpoints in a store) are kept: each moment of the time to keep can be restored."""

from fencepost.storage.shipping.names import Place
from fencepost.storage.shipping.retention import Known, choose, unneeded_parts, unneeded_points
from hypothesis import given
from hypothesis import strategies as st

TIMES = st.lists(st.integers(0, 100), max_size=8)


def known(times, parts=()):
    """Return points taken at these times, numbered from 1."""
    return {Place(1, number): Known(at, frozenset(parts)) for number, at in enumerate(times, 1)}


@given(TIMES.map(sorted), st.integers(0, 120), st.integers(0, 60))
def test_a_restore_within_the_kept_time_uses_the_same_point_after_deletions(times, now_ms, keep_ms):
    points = known(times)
    gone = set(unneeded_points(points, now_ms, keep_ms))
    kept = [place for place in points if place not in gone]
    assert kept[-2:] == list(points)[-2:]
    for at_ms in range(max(0, now_ms - keep_ms), now_ms + 1):
        before = choose([points[place].taken_ms for place in points], at_ms)
        after = choose([points[place].taken_ms for place in kept], at_ms)
        assert (before is None) == (after is None)
        if before is not None:
            assert list(points)[before] == kept[after]


@given(TIMES.map(sorted), st.integers(0, 120), st.integers(0, 60))
def test_besides_the_last_two_at_most_one_point_older_than_the_kept_time_is_kept(times, now_ms, keep_ms):
    points = known(times)
    gone = unneeded_points(points, now_ms, keep_ms)
    kept = [points[place].taken_ms for place in points if place not in gone]
    assert len([at for at in kept[:-2] if at < now_ms - keep_ms]) <= 1


@given(TIMES, st.integers(0, 120), st.integers(0, 60))
def test_even_with_a_clock_set_back_the_oldest_points_go_first_and_two_are_kept(times, now_ms, keep_ms):
    points = known(times)
    gone = unneeded_points(points, now_ms, keep_ms)
    assert gone == list(points)[: len(gone)]
    assert len(points) - len(gone) >= min(2, len(points))


def test_a_part_is_deleted_only_when_no_kept_point_names_it():
    kept = [Known(0, frozenset("ab")), Known(0, frozenset("bc"))]
    assert unneeded_parts("abcdd", kept) == ["d"]
    assert unneeded_parts("abc", []) == ["a", "b", "c"]


def test_choose_returns_the_index_of_the_newest_point_not_after_a_time():
    assert choose([1, 5, 9], None) == 2
    assert choose([1, 5, 9], 5) == 1
    assert choose([1, 5, 9], 0) is None
    assert choose([], None) is None
