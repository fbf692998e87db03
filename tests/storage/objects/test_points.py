"""A data directory is filled from a point (a checkpoint in the store), repeatedly: only what it lacks is fetched."""

import random

import pytest
from crash_points import crash_images
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.objects import SimulatedObjects, StoreCut
from fencepost.storage import store_checkpoint
from fencepost.storage.objects.looking import Looking
from fencepost.storage.objects.points import fetch_point
from fencepost.storage.recovery import make_directory
from fencepost.storage.shipping import names, planning
from fencepost.storage.shipping.point import Point
from fencepost.storage.store_mark import Mark, write_mark
from owner_driver import Owning, pause
from store_driver import DIRECTORY
from store_dump import dump

LARGE = random.Random(1).randbytes(100_000)


def begin(objects: SimulatedObjects) -> Owning:
    owner = Owning(objects)
    owner.create("t")
    owner.create("u")
    owner.send_joint(t=LARGE, u=b"1")
    owner.point()
    return owner


def newest_point(objects: SimulatedObjects) -> Point:
    looking = Looking(objects, pause)
    point = looking.point(looking.look())
    assert point is not None
    return point


def filled(objects: SimulatedObjects, *, history: bool = False) -> SimulatedDisk:
    """Return a disk whose directory was filled from the newest point."""
    disk = SimulatedDisk(history=history)
    make_directory(disk, DIRECTORY)
    write_mark(disk, DIRECTORY, Mark(b"the only store.."))
    fetch_point(objects, disk, DIRECTORY, newest_point(objects), pause)
    return disk


def parts_read(objects: SimulatedObjects, disk: SimulatedDisk, point: Point, **more: object) -> list[str]:
    """Fill the directory, and return which parts were read for that."""
    before = len(objects.calls)
    fetch_point(objects, disk, DIRECTORY, point, pause, **more)
    return [name for call, name in objects.calls[before:] if call == "read" and name.startswith("0/parts/")]


def test_a_checkpoint_replaced_while_it_is_shipped_makes_no_point(monkeypatch):
    """A broker removes files that only a checkpoint before its newest two names."""
    monkeypatch.setattr(planning, "LARGE_BYTES", 1_000)
    monkeypatch.setattr(planning, "PART_BYTES", 1_000)
    objects = SimulatedObjects()
    owner = Owning(objects)
    owner.create("t")
    owner.create("u")
    owner.send_joint(t=LARGE, u=b"1")

    def remove_a_topic(call: str, name: str) -> None:
        if call == "create" and name.startswith(names.PARTS):
            objects.before_each = lambda call, name: None
            owner.store.commit([owner.store.drop_part(owner.log("u"))])
            for _ in range(2):
                owner.round()
                owner.checkpoint()

    objects.before_each = remove_a_topic
    owner.point()
    point = newest_point(objects)
    assert point.checkpoint == max(store_checkpoint.numbers(owner.disk, DIRECTORY))
    assert point.warnings == []
    assert dump(Owning(objects, node=2).store) == dump(owner.store)


@pytest.mark.parametrize("is_known", [False, True], ids=["compared", "known"])
def test_fetching_a_newer_point_reads_only_the_parts_that_the_directory_lacks(is_known):
    objects = SimulatedObjects()
    owner = begin(objects)
    disk, older = filled(objects), newest_point(objects)
    owner.send_joint(t=b"2", u=b"2")
    owner.create("v")
    owner.point()
    newer = newest_point(objects)
    added = newer.parts() - older.parts()
    read = parts_read(objects, disk, newer, **({"here": older.files} if is_known else {}))
    assert added
    assert set(read) == added
    assert store_checkpoint.numbers(disk, DIRECTORY) == [newer.checkpoint]
    expected = dump(owner.store)
    after = Owning(objects, disk, node=2)
    assert after.report.units_replayed == 0
    assert dump(after.store) == expected


def test_a_file_of_the_directory_whose_bytes_differ_from_the_point_is_fetched_again():
    objects = SimulatedObjects()
    owner = begin(objects)
    disk, point = filled(objects), newest_point(objects)
    path = max(point.files, key=lambda path: point.files[path].size_bytes)
    file = disk.open(f"{DIRECTORY}/{path}")
    file.write([b"rotten"], 500)
    file.truncate(point.files[path].size_bytes + 77)
    file.close()
    assert set(parts_read(objects, disk, point)) == {extent.object for extent in point.files[path].extents}
    assert not parts_read(objects, disk, point)
    assert Owning(objects, disk, node=2).values() == owner.values()


def test_fetching_a_point_removes_the_directorys_files_that_the_point_does_not_have():
    objects = SimulatedObjects()
    owner = begin(objects)
    disk = filled(objects)
    folder = next(path.rpartition("/")[0] for path in newest_point(objects).files if "/u-" in path)
    disk.open(f"{DIRECTORY}/restored", create=True).close()
    owner.store.commit([owner.store.drop_part(owner.log("u"))])
    owner.round()
    owner.point()
    owner.point()
    assert disk.exists(f"{DIRECTORY}/{folder}")
    fetch_point(objects, disk, DIRECTORY, newest_point(objects), pause)
    assert not disk.exists(f"{DIRECTORY}/{folder}")
    assert not disk.exists(f"{DIRECTORY}/restored")
    assert dump(Owning(objects, disk, node=2).store) == dump(owner.store)


def test_a_fetch_of_a_point_killed_at_any_store_call_is_completed_by_the_takeover():
    call = 0
    while True:
        objects = SimulatedObjects()
        owner = begin(objects)
        disk = filled(objects)
        owner.send_joint(t=LARGE[::-1], u=b"2")
        owner.point()
        expected = dump(owner.store)
        dying = objects.client()
        point = newest_point(objects)
        dying.cut_at(call, after=False)
        try:
            fetch_point(dying, disk, DIRECTORY, point, pause)
            break
        except StoreCut:
            assert not store_checkpoint.numbers(disk, DIRECTORY)
            assert dump(Owning(objects, disk.after_process_crash(), node=2).store) == expected
        call += 1
    assert call >= 1


@pytest.mark.slow
def test_a_fetch_of_a_point_interrupted_by_a_power_cut_is_completed_by_the_takeover():
    objects = SimulatedObjects()
    owner = begin(objects)
    disk = filled(objects, history=True)
    owner.send_joint(t=LARGE[::-1], u=b"2")
    owner.point()
    expected = dump(owner.store)
    begun = len(disk.operations)
    fetch_point(objects, disk, DIRECTORY, newest_point(objects), pause)
    images = list(crash_images(disk, first=begun, limit=60))
    for description, image in images:
        store = SimulatedObjects()
        store.content.update(objects.content)
        assert dump(Owning(store, image, node=2).store) == expected, description
    assert len(images) > 20
