"""When an owner is taken for gone."""

from fencepost.broker.ownership.silence import Silence
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
    silence.saw(Place(2, 0), 10_999)
    assert not silence.is_over(16_998)
    assert silence.is_over(16_999)


def test_without_any_journal_round_in_the_store_a_takeover_does_not_wait():
    silence = Silence(6_000)
    silence.saw(NOWHERE, 5)
    assert silence.is_over(5)
