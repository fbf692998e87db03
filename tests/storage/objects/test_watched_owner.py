"""A take-over by a broker that has watched an owner, or comes back after another: what it leaves alone."""

import pytest
from fencepost.effects.simulated.objects import SimulatedObjects
from fencepost.storage.objects import format as form
from fencepost.storage.objects.errors import Overtaken
from fencepost.storage.objects.fence import Place
from fencepost.storage.objects.format import Claim
from fencepost.storage.objects.takeover import Takeover
from owner_driver import Owning, pause


def test_a_takeover_does_not_end_an_epoch_that_begins_after_it_watched_another():
    """Of two standbys that see an owner hand over, the slower one leaves the faster one alone. The second epoch's round
    arrives in the store only when the slower one is about to end that epoch.
    """
    objects = SimulatedObjects()
    first = Owning(objects)
    first.create("t")
    first.send("t", b"first")
    second = Owning(objects.client(), node=2)
    first_name = form.place_name(Place(2, 0))
    first_round = objects.content.pop(first_name)
    slower = objects.client()

    def arrive(call: str, name: str) -> None:
        if (call, name) == ("create", first_name):
            objects.content[name] = first_round

    slower.before_each = arrive
    with pytest.raises(Overtaken, match="another broker has begun epoch 2"):
        Takeover(slower, pause, Claim(1, 3, (), b"12345678"), watched_epoch=1).run()
    assert objects.content[first_name] == first_round
    second.send("t", b"of the second")
    assert second.values() == [b"first", b"of the second"]


def test_a_takeover_claims_a_later_epoch_than_the_watched_one_whose_claim_is_lost():
    objects = SimulatedObjects()
    owner = Owning(objects)
    del objects.content[form.claim_name(owner.epoch)]
    taken = Takeover(objects, pause, Claim(1, 3, (), b"12345678"), watched_epoch=owner.epoch).run()
    assert taken.claim.epoch == owner.epoch + 1


def test_a_directory_does_not_take_the_files_of_another_brokers_point_for_its_own():
    """Its own files may differ, and the next point would then mix both."""
    objects = SimulatedObjects()
    former = Owning(objects)
    former.create("t")
    former.send("t", b"first")
    for _ in range(3):
        former.point()
    former.store.close()
    other = Owning(objects, node=2)
    other.flush()
    other.checkpoint()
    other.name(other.points.take())
    again = Owning(seen := objects.client(), former.disk)
    assert again.values() == [b"first"]
    assert again.source._shipped == {}
    assert not [name for call, name in seen.calls if call == "read" and name.startswith("0/points/")]
