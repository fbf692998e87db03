"""What is counted of the calls to an object store, and since when it has been silent."""

import pytest
from fencepost.broker.ownership.counted import CountedObjects
from fencepost.effects.objects import Exists, Missing, Refused, Unclear
from fencepost.effects.simulated.clock import SimulatedClock
from fencepost.effects.simulated.objects import SimulatedObjects
from fencepost.storage.objects import format as form
from fencepost.storage.objects.fence import Place

ROUND = form.place_name(Place(1, 0))


class World:
    """A counted store whose calls take 30 ms."""

    def __init__(self) -> None:
        self.objects = SimulatedObjects()
        self.clock = SimulatedClock()
        self.objects.before_each = lambda call, name: self.clock.advance(30)
        self.counted = CountedObjects(self.objects, self.clock)

    def create(self, error: type[Exception] | None = None) -> None:
        if error is None:
            self.counted.create(ROUND, b"1")
        else:
            with pytest.raises(error):
                self.counted.create(ROUND, b"1")


def test_calls_of_the_object_store_are_counted_by_method_object_kind_and_result():
    world = World()
    world.create()
    world.create(Exists)
    world.objects.refuses = "403"
    world.create(Refused)
    world.objects.refuses = ""
    world.objects.is_away = True
    world.create(Unclear)
    world.objects.is_away = False
    with pytest.raises(Missing):
        world.counted.read("0/points/1-1")
    world.counted.list("0/parts/")
    world.counted.delete(form.claim_name(1))
    assert world.counted.endings() == {
        ("create", "round", "done"): 1,
        ("create", "round", "exists"): 1,
        ("create", "round", "refused"): 1,
        ("create", "round", "unclear"): 1,
        ("read", "point", "missing"): 1,
        ("list", "part", "done"): 1,
        ("delete", "claim", "done"): 1,
    }


def test_each_object_store_call_adds_its_duration_in_nanoseconds():
    world = World()
    world.create()
    world.create(Exists)
    found = world.counted.durations()["create", "round"]
    assert (sum(found.counts), found.total) == (2, 60_000_000)  # each call takes 30 ms in World


def test_a_store_is_silent_from_the_first_failed_create_until_one_succeeds():
    world = World()
    world.create()
    assert world.counted.silent_ms() == 0
    world.objects.is_away = True
    world.create(Unclear)
    world.clock.advance(1000)
    world.create(Unclear)
    world.objects.is_away = False
    world.counted.list("0/parts/")
    assert world.counted.silent_ms() == 1090  # 1000, and three calls of 30 ms
    world.create(Exists)
    assert world.counted.silent_ms() == 0


def test_a_store_call_that_has_not_ended_counts_as_silence_of_the_store():
    world = World()
    silences = []
    world.objects.before_each = lambda call, name: (
        world.clock.advance(7000),
        silences.append(world.counted.silent_ms()),
    )
    world.create()
    assert silences == [7000]


def test_a_failed_listing_does_not_count_as_silence_once_creates_succeed():
    """An owner lists objects only to delete old ones, and does not repeat a failed listing at once."""
    world = World()
    world.objects.is_away = True
    with pytest.raises(Unclear):
        world.counted.list("0/parts/")
    world.objects.is_away = False
    world.clock.advance(1000)
    assert world.counted.silent_ms() == 1030  # 1000, and the call of 30 ms
    world.create()
    world.clock.advance(60_000)
    assert world.counted.silent_ms() == 0
