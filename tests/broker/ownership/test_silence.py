"""When an owner is taken for gone."""

import pytest
from fencepost.broker.ownership.silence import Silence, ended_while_loading
from fencepost.storage.objects.fence import NOWHERE, Place


def test_an_owner_counts_as_dead_after_a_lease_without_a_new_journal_round():
    silence = Silence(6_000)
    assert not silence.is_over(0)
    silence.saw(Place(1, 4), 1_000)
    assert not silence.is_over(6_999)
    assert silence.is_over(7_000)


def test_each_newer_journal_round_of_an_owner_restarts_its_lease():
    silence = Silence(6_000)
    silence.saw(Place(1, 4), 0)
    silence.saw(Place(1, 5), 5_000)
    silence.saw(Place(1, 5), 9_000)
    assert not silence.is_over(10_999)
    silence.saw(Place(2, 1), 10_999)
    assert not silence.is_over(16_998)
    assert silence.is_over(16_999)


def test_without_any_journal_round_in_the_store_a_takeover_does_not_wait():
    silence = Silence(6_000)
    silence.saw(NOWHERE, 5)
    assert silence.is_over(5)


def test_an_owner_that_has_only_created_its_first_round_has_more_time():
    """It has five times the lease, because it may have much to load before it creates the second round."""
    silence = Silence(6_000)
    silence.saw(Place(2, 0), 0)
    assert not silence.is_over(5 * 6_000 - 1)
    assert silence.is_over(5 * 6_000)
    silence.saw(Place(2, 1), 10_000)
    assert silence.is_over(16_000)


def test_an_owner_has_twice_the_time_to_load_after_one_ended_while_it_loaded():
    times = []
    for ended in range(5):
        silence = Silence(1)
        silence.saw(Place(9, 0), 0, ended)
        times.append(next(now_ms for now_ms in range(100) if silence.is_over(now_ms)))
    assert times == [5, 10, 20, 40, 40]


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ([], 0),
        ([Place(1, 0)], 0),
        ([Place(1, 0), Place(1, 9), Place(2, 0)], 0),
        ([Place(1, 9), Place(2, 0), Place(2, 1), Place(3, 0)], 1),
        ([Place(1, 9), Place(2, 1), Place(3, 0), Place(4, 0), Place(4, 1), Place(5, 0)], 2),
        ([Place(1, 0), Place(1, 1), Place(2, 9), Place(3, 0)], 0),
    ],
)
def test_epochs_that_were_ended_at_their_second_round_count_as_ended_while_loading(places, expected):
    """An epoch that was ended before its first round never began, and is passed over."""
    assert ended_while_loading(places) == expected
