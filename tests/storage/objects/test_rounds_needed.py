"""Which rounds of the journal a point (a checkpoint in the store) needs; and a directory that needs lost ones."""

import contextlib

import pytest
from fencepost.effects.simulated.objects import SimulatedObjects
from fencepost.storage.journal_source import StoreDamaged
from fencepost.storage.objects.errors import ObjectDamaged
from fencepost.storage.objects.fence import Place
from fencepost.storage.objects.looking import Looking
from fencepost.storage.objects.takeover import ScanOfObjects, runs_from
from owner_driver import Owning, pause, take


def begin(objects: SimulatedObjects) -> Owning:
    owner = Owning(objects)
    owner.create("t")
    owner.round()
    return owner


def test_a_point_taken_while_rounds_are_being_created_needs_the_first_of_them():
    objects = SimulatedObjects()
    owner = begin(objects)
    owner.send("t", b"1")
    owner.flush()
    in_flight = []
    for value in (b"2", b"3"):
        owner.append(owner.log("t"), [value])
        in_flight.append(owner.store.take_round(sync=True))
    run = owner.begin_checkpoint()
    run.run()
    owner.upkeep.checkpointed(run).run()
    for write in in_flight:
        write.run()
        owner.store.round_finished(write)
    taken = owner.points.take()
    assert taken.start == Place(owner.epoch, in_flight[0].number)
    owner.name(taken)
    assert Owning(objects, node=2).values() == [b"1", b"2", b"3"]


def test_a_point_that_needs_earlier_rounds_than_the_named_one_is_not_named():
    """The rounds between may be deleted by now, since the named point does not need them."""
    objects = SimulatedObjects()
    owner = begin(objects)
    owner.send("t", b"1")
    owner.point()
    owner.flush()
    earlier = owner.begin_checkpoint()
    owner.round(sync=True)
    earlier.run()
    owner.upkeep.checkpointed(earlier).run()
    taken = owner.points.take()
    for _ in range(50):
        owner.round(sync=True)
    owner.name(owner.collecting.newest_with_all_units(owner.store.journal))
    journal = owner.store.journal
    assert journal.name_point(tuple(taken.place), taken.start) is None
    owner.round(sync=True)
    assert Looking(objects, pause).look().rounds < 5
    assert Owning(objects, node=2).values() == [b"1"]


def test_a_restarted_owner_does_not_read_rounds_without_units_that_were_deleted():
    objects = SimulatedObjects()
    owner = begin(objects)
    owner.send("t", b"1")
    owner.point()
    owner.point()
    for _ in range(50):
        owner.round(sync=True)
    owner.name(owner.collecting.newest_with_all_units(owner.store.journal))
    owner.send("t", b"2")
    owner.store.close()
    assert Owning(objects, owner.disk).values() == [b"1", b"2"]


def test_a_point_of_a_new_owner_needs_no_round_of_an_earlier_epoch():
    objects = SimulatedObjects()
    first = begin(objects)
    for number in range(3):
        first.send("t", b"%d" % number)
    second = Owning(objects, node=2)
    taken = second.points.take()
    assert taken.start == Place(second.epoch, 0)
    second.name(taken)
    assert {run.epoch for run in Looking(objects, pause).look().runs} == {second.epoch}


def test_a_directory_with_units_that_the_store_has_lost_is_refused():
    objects = SimulatedObjects()
    owner = begin(objects)
    owner.send("t", b"1")
    before = dict(objects.content)
    owner.send("t", b"2")
    owner.flush()
    owner.checkpoint()
    owner.checkpoint()
    owner.store.close()
    objects.content.clear()
    objects.content.update(before)
    with pytest.raises(StoreDamaged, match="it goes up to unit 3 of start 1, the store to 2"):
        Owning(objects, owner.disk)


def test_scanning_raises_damaged_if_a_unit_between_checkpoint_and_rounds_is_missing():
    objects = SimulatedObjects()
    owner = begin(objects)
    for value in (b"1", b"2", b"3"):
        owner.send("t", value)
    taken = take(objects, node=2)
    runs = runs_from(taken.runs, Place(owner.epoch, 3))
    for through_unit, is_reached in ((2, True), (1, False)):
        scan = ScanOfObjects(objects, taken.last, runs, pause, owner.epoch, through_unit)
        with contextlib.nullcontext() if is_reached else pytest.raises(ObjectDamaged, match="unit 2 is missing"):
            assert len(list(scan.parts(through_unit))) == 2
