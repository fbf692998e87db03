"""A plain data directory is made from a journal in an object store.

A round is the object that an owner of the journal creates with each write; a point is a checkpoint in the store.
"""

import threading

import pytest
from fencepost.effects.simulated.clock import SimulatedClock
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.objects import SimulatedObjects, StoreCut
from fencepost.effects.simulated.rng import SeededRng
from fencepost.storage.backup.manifest import BackupRefused
from fencepost.storage.journal_source import StoreDamaged
from fencepost.storage.objects import format as form
from fencepost.storage.objects.errors import ObjectDamaged
from fencepost.storage.objects.fence import Place
from fencepost.storage.objects.restoring import Restored, Restoring
from owner_driver import Owning, pause
from store_driver import DIRECTORY, Driven, values_of
from store_dump import dump


def restore(objects: SimulatedObjects, disk: SimulatedDisk) -> Restored:
    return Restoring(objects, disk, SimulatedClock(), SeededRng(2), DIRECTORY, pause).run()


def values(disk: SimulatedDisk) -> list[bytes]:
    """Return what a plain broker reads from a directory."""
    store = Driven(disk).store
    found = [value for log in store.logs.values() if log.topic == "t" for _, value in values_of(log)]
    store.close()
    return found


def begin(objects: SimulatedObjects) -> Owning:
    owner = Owning(objects)
    owner.create("t")
    owner.round()
    return owner


def written(objects: SimulatedObjects) -> Owning:
    """Return an owner that has made three points, the oldest of which may be deleted, and then further rounds."""
    owner = begin(objects)
    for number in range(30):
        owner.send("t", b"%d" % number)
        if number in (10, 20, 25):
            owner.point()
    return owner


def test_a_journal_is_restored_to_a_plain_directory_while_its_owner_runs():
    objects = SimulatedObjects()
    owner = written(objects)
    disk = SimulatedDisk()
    restored = restore(objects, disk)
    assert restored.point is not None
    assert restored.looked.last.last_unit == owner.store.released_unit
    assert disk.exists(f"{DIRECTORY}/restored")
    after = Driven(disk)
    assert dump(after.store) == dump(owner.store)
    after.append(after.log("t"), [b"of its own"])
    after.round()
    after.store.close()
    owner.send("t", b"the owner goes on")
    assert values(disk)[-1] == b"of its own"


def test_a_journal_without_a_point_is_restored_from_rounds_alone():
    objects = SimulatedObjects()
    begin(objects).send("t", b"1")
    disk = SimulatedDisk()
    assert restore(objects, disk).point is None
    assert values(disk) == [b"1"]


def test_a_restore_of_several_epochs_has_every_acknowledged_record():
    objects = SimulatedObjects()
    written(objects)
    second = Owning(objects, node=2)
    second.send("t", b"second")
    third = Owning(objects, node=3)
    third.send("t", b"third")
    disk = SimulatedDisk()
    restore(objects, disk)
    assert values(disk) == third.values()


@pytest.mark.parametrize("owners", [2, 3])
def test_what_is_restored_from_a_later_owners_point_opens_and_keeps_new_records(owners):
    """The point names a place in the store's journal; the restored directory has a journal of its own without it."""
    objects = SimulatedObjects()
    owner = written(objects)
    for node in range(2, owners + 1):
        owner = Owning(objects, node=node)
        owner.send("t", b"before the point")
        owner.point()
        owner.send("t", b"behind it")
    disk = SimulatedDisk()
    restore(objects, disk)
    assert values(disk) == owner.values()
    after = Driven(disk)
    after.append(after.log("t"), [b"of its own"])
    after.round()
    disk = disk.after_power_cut()
    newest = max(int(name.removeprefix("checkpoint-")) for name in disk.list(DIRECTORY) if "checkpoint-" in name)
    disk.unlink(f"{DIRECTORY}/checkpoint-{newest}")  # then the checkpoint before it is used
    assert values(disk) == [*owner.values(), b"of its own"]


def test_a_restored_store_has_the_age_of_the_last_journal_round():
    objects = SimulatedObjects()
    owner = written(objects)
    owner.clock.advance(60_000)
    owner.send("t", b"30")
    disk = SimulatedDisk()
    restore(objects, disk)
    assert Driven(disk).store.age_ms() == owner.store.age_ms() == 60_000


def test_a_restore_that_misses_an_object_raises_naming_it_and_leaves_no_file():
    objects = SimulatedObjects()
    written(objects)
    name = form.place_name(Place(1, 30))
    del objects.content[name]
    disk = SimulatedDisk()
    with pytest.raises(ObjectDamaged, match=name):
        restore(objects, disk)
    assert disk.list(DIRECTORY) == []


def test_a_restore_into_a_directory_that_is_not_empty_is_refused():
    objects = SimulatedObjects()
    written(objects)
    disk = SimulatedDisk()
    restore(objects, disk)
    with pytest.raises(BackupRefused, match="is not empty"):
        restore(objects, disk)


def test_a_restore_takes_a_newer_point_if_the_owner_deletes_the_one_it_reads():
    objects = SimulatedObjects()
    owner = written(objects)
    seen = objects.client()
    moved = 0

    def go_on(call: str, name: str) -> None:
        nonlocal moved
        if call == "read" and name.startswith("0/parts/") and moved < 3:
            moved += 1
            for number in range(24):
                owner.send("t", b"more")
                if number in (11, 23):
                    owner.point()

    seen.before_each = go_on
    disk = SimulatedDisk()
    restore(seen, disk)
    assert moved == 3
    assert values(disk) == owner.values()


def test_a_restore_succeeds_if_the_owner_deletes_the_first_round_that_it_reads():
    objects = SimulatedObjects()
    owner = written(objects)
    seen = objects.client()
    has_moved = False

    def go_on(call: str, name: str) -> None:
        nonlocal has_moved
        if call == "read" and name.startswith(form.JOURNAL) and not has_moved:
            has_moved = True
            for number in range(24):
                owner.send("t", b"more")
                if number in (11, 23):
                    owner.point()

    seen.before_each = go_on
    disk = SimulatedDisk()
    restore(seen, disk)
    assert has_moved
    assert values(disk) == owner.values()


def test_a_restore_that_has_to_begin_again_fetches_nothing_twice():
    """Beside an owner that deletes rounds more often than all data can be fetched, it would never end."""
    objects = SimulatedObjects()
    owner = written(objects)
    seen = objects.client()
    read, fetched, moved = seen.read, [], 0
    one_at_a_time = threading.Lock()  # several threads read

    def noting(name: str, start: int = 0, length: int | None = None) -> bytes:
        nonlocal moved
        with one_at_a_time:
            if name.startswith("0/parts/"):
                fetched.append((name, start, length))
            elif name.startswith(form.JOURNAL) and length is None and moved < 3:
                moved += 1
                for number in range(24):
                    owner.send("t", b"more")
                    if number in (11, 23):
                        owner.point()
            return read(name, start, length)

    seen.read = noting
    disk = SimulatedDisk()
    restore(seen, disk)
    assert moved == 3
    assert values(disk) == owner.values()
    assert len(fetched) == len(set(fetched))


def test_a_broker_refuses_to_start_on_the_directory_of_a_restore_that_was_killed():
    objects = SimulatedObjects()
    written(objects)
    calls = refused = 0
    while True:
        seen, disk = objects.client(), SimulatedDisk()
        seen.cut_at(calls, after=False)
        disk.remove_tree, disk.unlink = _nothing, _nothing  # it was killed: nothing is removed afterwards
        try:
            restore(seen, disk)
            break
        except StoreCut:
            pass
        if disk.exists(DIRECTORY) and set(disk.list(DIRECTORY)) - {"lock"}:
            with pytest.raises(StoreDamaged, match="a restore into it was cut short"):
                Driven(disk)
            with pytest.raises(StoreDamaged, match="a restore into it was cut short"):
                Owning(objects.client(), disk)
            refused += 1
        calls += 1
    assert calls > 20
    assert refused > 5  # else the restores were killed before they wrote anything


def _nothing(path: str) -> None:
    """Replace unlink() and remove_tree() of a disk: nothing is removed."""
