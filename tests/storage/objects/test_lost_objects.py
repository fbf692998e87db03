"""Each object of a store is lost or rotten in turn: a reader of the journal has all records, or names the object.

An epoch is the time of one owner of the journal; a round is the object that the owner creates with each write. A
claim is the object with which a broker takes an epoch; a point is a checkpoint in the store.
"""

from collections.abc import Callable

import pytest
from fencepost.effects.simulated.clock import SimulatedClock
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.objects import SimulatedObjects
from fencepost.effects.simulated.rng import SeededRng
from fencepost.storage.journal_source import StoreDamaged
from fencepost.storage.objects import format as form
from fencepost.storage.objects.errors import ObjectDamaged, Overtaken
from fencepost.storage.objects.fence import Place
from fencepost.storage.objects.format import Claim
from fencepost.storage.objects.restoring import Restoring
from fencepost.storage.objects.takeover import Takeover
from owner_driver import Owning, pause
from store_driver import DIRECTORY, Driven, values_of

Reader = Callable[[SimulatedObjects], list[bytes]]


def written() -> tuple[SimulatedObjects, list[bytes], str]:
    """Return a store that had two owners, each with a checkpoint in it; what they acknowledged; the newest round's
    name.
    """
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
    """Return the values that an owner with an empty disk has."""
    owner = Owning(objects, node=3)
    return owner.values() if "t" in {log.topic for log in owner.store.logs.values()} else []


def restored(objects: SimulatedObjects) -> list[bytes]:
    """Return the values of a plain directory that is restored from the store."""
    disk = SimulatedDisk()
    Restoring(objects, disk, SimulatedClock(), SeededRng(2), DIRECTORY, pause).run()
    driven = Driven(disk)
    return [value for _, value in values_of(driven.log("t"))]


@pytest.mark.parametrize("read", [taken_over, restored])
def test_a_lost_object_is_named_or_not_needed_by_whoever_reads_the_journal(read: Reader):
    """The newest round is an exception: nothing shows that it was there, so what it had is missing."""
    objects, acked, newest = written()
    whole = dict(objects.content)
    named = {}
    for lost in whole:
        objects.content = {name: content for name, content in whole.items() if name != lost}
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


def owner_with_points(count: int = 30) -> tuple[SimulatedObjects, Owning, list[bytes]]:
    """Return an owner whose first rounds are deleted, since newer checkpoints in the store have all of them; and its
    records.
    """
    objects, acked = SimulatedObjects(), []
    owner = Owning(objects)
    owner.create("t")
    owner.round()
    for number in range(count):
        owner.send("t", b"%d" % number)
        acked.append(b"%d" % number)
        if number % 10 == 3:
            owner.point()
    assert form.place_name(Place(owner.epoch, 0)) not in objects.content
    return objects, owner, acked


def test_the_epoch_of_a_lost_claim_is_not_given_again_if_it_has_rounds():
    """Otherwise a broker with an empty disk would begin anew, beside the rounds that are there."""
    objects, owner, acked = owner_with_points()
    del objects.content[form.claim_name(owner.epoch)]
    successor = Owning(objects, node=2)
    assert successor.epoch == owner.epoch + 1
    assert successor.values() == acked


def test_a_takeover_that_claims_a_lost_claims_epoch_again_is_overtaken():
    """A broker that has watched the owner before does not list the rounds before it claims an epoch."""
    objects, owner, acked = owner_with_points()
    del objects.content[form.claim_name(owner.epoch)]
    late = Takeover(objects, pause, Claim(1, 3, (), b"12345678"), watched_epoch=owner.epoch - 1)
    with pytest.raises(Overtaken):
        late.run()
    owner.send("t", b"after it")
    assert owner.values() == [*acked, b"after it"]


@pytest.mark.parametrize("folder", ["0/points/", "0/parts/"])
def test_an_owner_restarted_in_its_directory_replaces_what_its_store_has_lost(folder: str):
    objects, owner, acked = owner_with_points()
    owner.store.close()
    lost = max(name for name in objects.content if name.startswith(folder))
    whole = objects.content.pop(lost)
    with pytest.raises(ObjectDamaged, match=lost):
        Owning(objects, node=2)
    again = Owning(objects, owner.disk)
    assert again.values() == acked
    assert again.source.replaced == [lost]
    again.point()
    assert Owning(objects, node=3).values() == acked
    assert lost not in objects.content or objects.content[lost] != whole  # perhaps a new object has its name


def test_an_owner_restarted_in_its_directory_replaces_a_damaged_point():
    objects, owner, acked = owner_with_points()
    owner.store.close()
    point = max(name for name in objects.content if name.startswith("0/points/"))
    objects.content[point] = objects.content[point][:-1]
    again = Owning(objects, owner.disk)
    assert again.source.replaced == [point]
    again.point()
    assert Owning(objects, node=3).values() == acked


def test_an_owner_restarted_in_its_directory_replaces_nothing_that_its_store_has():
    objects, owner, acked = owner_with_points()
    owner.store.close()
    again = Owning(objects, owner.disk)
    assert again.source.replaced == []
    assert again.values() == acked


@pytest.mark.parametrize("is_named", [False, True])
def test_an_owners_directory_is_refused_with_an_empty_store_and_nothing_is_written(is_named):
    """As after a mistake in the URL. To start with an empty directory instead would begin an empty journal there."""
    _, owner, _ = owner_with_points()
    owner.store.close()
    other = SimulatedObjects()
    if is_named:
        other.content[form.IDENTITY_NAME] = form.pack_identity(b"another store...")
    before = dict(other.content)
    with pytest.raises(StoreDamaged, match="in which nothing was ever written") as refused:
        Owning(other, owner.disk)
    assert "mistake in the URL" in refused.value.hint
    assert other.content == before
