"""When an owner is taken for gone."""

from fencepost.broker.ownership.silence import Silence
from fencepost.storage.objects.fence import NOWHERE, Place


def test_an_owner_is_gone_when_nothing_came_for_a_lease():
    silence = Silence(6_000)
    assert not silence.is_over(0)
    silence.saw(Place(1, 4), 1_000)
    assert not silence.is_over(6_999)
    assert silence.is_over(7_000)


def test_each_newer_round_begins_the_lease_anew():
    silence = Silence(6_000)
    silence.saw(Place(1, 4), 0)
    silence.saw(Place(1, 5), 5_000)
    silence.saw(Place(1, 5), 9_000)
    assert not silence.is_over(10_999)
    silence.saw(Place(2, 0), 10_999)
    assert not silence.is_over(16_998)
    assert silence.is_over(16_999)


def test_where_nothing_was_ever_written_nobody_waits():
    silence = Silence(6_000)
    silence.saw(NOWHERE, 5)
    assert silence.is_over(5)
