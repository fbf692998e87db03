"""Each object of a store lost or rotten in turn: whoever reads the journal has all of it, or names that object."""

from collections.abc import Callable

import pytest
from fencepost.effects.simulated.clock import SimulatedClock
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.objects import SimulatedObjects
from fencepost.effects.simulated.rng import SeededRng
from fencepost.storage.objects import format as form
from fencepost.storage.objects.errors import ObjectDamaged
from fencepost.storage.objects.fence import Place
from fencepost.storage.objects.restoring import Restoring
from owner_driver import Owning, pause
from store_driver import DIRECTORY, Driven, values_of

NEWEST_CLAIM = "0/owners/0000000002"
Reader = Callable[[SimulatedObjects], list[bytes]]


def written() -> tuple[SimulatedObjects, list[bytes], str]:
    """A store that had two owners, each with a checkpoint in it; what they acknowledged; the newest round's name."""
    objects, acked = SimulatedObjects(), []
    for node in (1, 2):
        owner = Owning(objects, node=node)
        if node == 1:
            owner.create("t")
            owner.round()
        for number in range(6):
            value = b"%d of %d" % (number, node)
            owner.send("t", value)
            acked.append(value)
            if number == 3:
                owner.point()
    return objects, acked, form.place_name(Place(owner.epoch, owner.store.journal.released_rounds - 1))


def taken_over(objects: SimulatedObjects) -> list[bytes]:
    """What an owner with an empty disk has."""
    owner = Owning(objects, node=3)
    return owner.values() if "t" in {log.topic for log in owner.store.logs.values()} else []


def restored(objects: SimulatedObjects) -> list[bytes]:
    """What a plain directory has that is restored from the store."""
    disk = SimulatedDisk()
    Restoring(objects, disk, SimulatedClock(), SeededRng(2), DIRECTORY, pause).run()
    driven = Driven(disk)
    return [value for _, value in values_of(driven.log("t"))]


@pytest.mark.parametrize("read", [taken_over, restored])
def test_a_lost_object_is_named_or_not_needed_by_whoever_reads_the_journal(read: Reader):
    """But the newest round: nothing says that it was there."""
    objects, acked, newest = written()
    whole = dict(objects.content)
    named = {}
    for lost in whole:
        objects.content = {name: content for name, content in whole.items() if name != lost}
        if lost == NEWEST_CLAIM and read is taken_over:
            with pytest.raises(ObjectDamaged, match="another round has the name of one of ours"):
                read(objects)  # its epoch was given again, and there are rounds in it
            continue
        try:
            assert read(objects) == (acked[:-1] if lost == newest else acked), lost
        except ObjectDamaged as damaged:
            named[lost] = str(damaged)
    assert len(named) >= 4
    assert [name for name, error in named.items() if name not in error] == []


@pytest.mark.parametrize("read", [taken_over, restored])
@pytest.mark.parametrize("position", [0, 0.5, 1])
def test_a_rotten_object_is_named_or_not_needed_by_whoever_reads_the_journal(read: Reader, position: float):
    objects, acked, _ = written()
    whole = dict(objects.content)
    named = {}
    for rotten, content in whole.items():
        objects.content = dict(whole)
        if not content:
            continue
        objects.rot(rotten, int(position * (len(content) - 1)))
        try:
            assert read(objects) == acked, rotten
        except ObjectDamaged as damaged:
            named[rotten] = str(damaged)
    assert len(named) >= 5
    assert [name for name, error in named.items() if name not in error] == []
