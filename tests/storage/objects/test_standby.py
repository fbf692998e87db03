"""A standby's directory is kept at the newest point (checkpoint in the store) while another broker owns the store."""

import pytest
from fencepost.effects.disk import AlreadyLocked
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.objects import Faults, SimulatedObjects
from fencepost.storage import store_checkpoint
from fencepost.storage.objects.fence import Place
from fencepost.storage.objects.standby import StandbyDirectory
from fencepost.storage.store_mark import Mark, write_mark
from owner_driver import Owning, pause, take
from store_driver import DIRECTORY, Driven
from store_dump import dump


class Waiting:
    """A standby with its disk. `said`: lines for people."""

    def __init__(self, objects: SimulatedObjects, disk: SimulatedDisk | None = None, *, is_copy: bool = True) -> None:
        self.objects = objects.client()
        self.disk = disk or SimulatedDisk()
        self.said: list[str] = []

        def mark() -> bool:
            if is_copy:
                write_mark(self.disk, DIRECTORY, Mark(b"the only store.."))
            return is_copy

        self.directory = StandbyDirectory(self.objects, self.disk, DIRECTORY, pause, mark=mark, say=self.said.append)

    def update(self, newest: Place) -> list[str]:
        """Update the directory to the point that this newest round names. Returns the parts that were read."""
        before = len(self.objects.calls)
        self.directory.update(newest)
        return [name for call, name in self.objects.calls[before:] if call == "read" and name.startswith("0/parts/")]

    def take_over(self) -> Owning:
        self.directory.close()
        return Owning(self.objects, self.disk, node=2)

    @property
    def checkpoints(self) -> list[int]:
        return store_checkpoint.numbers(self.disk, DIRECTORY)


def begin(objects: SimulatedObjects) -> Owning:
    owner = Owning(objects)
    owner.create("t")
    owner.create("u")
    owner.send_joint(t=bytes(50_000), u=b"1")
    return owner


def newest(owner: Owning) -> Place:
    """Return the place of the newest released round."""
    return Place(owner.epoch, owner.store.journal.released_rounds - 1)


def test_a_standby_fetches_each_part_once_and_its_takeover_reads_only_journal_rounds():
    objects = SimulatedObjects()
    owner, waiting = begin(objects), Waiting(objects)
    assert waiting.update(newest(owner)) == []
    read: list[str] = []
    for number in range(3):
        owner.send_joint(t=b"%d" % number, u=b"2")
        owner.point()
        fetched = waiting.update(newest(owner))
        assert fetched
        assert not set(fetched) & set(read)
        read += fetched
        assert waiting.update(newest(owner)) == []
    owner.send("t", b"behind")
    expected = dump(owner.store)
    before = len(waiting.objects.calls)
    after = waiting.take_over()
    assert dump(after.store) == expected
    assert not [name for call, name in waiting.objects.calls[before:] if call == "read" and "/parts/" in name]
    assert [line.split(",")[0] for line in waiting.said] == [f"point 1-{number} is here" for number in (1, 2, 3)]


def test_after_a_takeover_by_a_standby_its_first_point_ships_only_added_bytes():
    objects = SimulatedObjects()
    owner, waiting = begin(objects), Waiting(objects)
    owner.point()
    waiting.update(newest(owner))
    after = waiting.take_over()
    before = sum(map(len, objects.content.values()))
    after.send("t", b"little")
    after.point()
    assert sum(map(len, objects.content.values())) - before < 5_000  # a round or two, and the objects of a point


def test_a_standby_whose_point_is_deleted_during_a_fetch_fetches_the_next_one():
    objects = SimulatedObjects()
    owner, waiting = begin(objects), Waiting(objects)
    owner.point()
    first = set(objects.content)

    def move_on(call: str, name: str) -> None:
        if name.startswith("0/parts/"):
            waiting.objects.before_each = lambda call, name: None
            for number in range(40):  # more extents than one file may have
                owner.send_joint(t=b"%d" % number, u=b"2")
                owner.point()

    waiting.objects.before_each = move_on
    waiting.update(newest(owner))
    assert [name for name in first - set(objects.content) if name.startswith("0/parts/")]
    assert len(waiting.said) == 1
    assert waiting.said[0].endswith("is gone; the next one is fetched")
    assert not waiting.checkpoints
    waiting.update(newest(owner))
    assert waiting.checkpoints
    assert dump(waiting.take_over().store) == dump(owner.store)


def test_a_standby_logs_a_damaged_part_once_for_each_point_that_needs_it():
    objects = SimulatedObjects()
    owner, waiting = begin(objects), Waiting(objects)
    owner.point()
    part = next(name for name in objects.content if name.startswith("0/parts/"))
    sound = objects.content[part]
    objects.rot(part)
    assert waiting.update(newest(owner))
    assert len(waiting.said) == 1
    assert f"point 1-1: {part}: it fails its checksum" in waiting.said[0]
    owner.round(sync=True)
    assert waiting.update(newest(owner)) == []
    assert len(waiting.said) == 1
    owner.send("t", b"2")
    owner.point()
    waiting.update(newest(owner))
    assert [line.split(":")[0] for line in waiting.said] == ["point 1-1", "point 1-2"]
    objects.content[part] = sound
    owner.send("t", b"3")
    owner.point()
    waiting.update(newest(owner))
    assert dump(waiting.take_over().store) == dump(owner.store)


def test_a_standby_in_a_former_owners_directory_fetches_only_a_point_that_has_more():
    objects = SimulatedObjects()
    owner = begin(objects)
    owner.point()
    owner.send("t", b"behind")
    owner.flush()
    owner.checkpoint()
    owner.store.close()
    waiting = Waiting(objects, owner.disk)
    before = waiting.checkpoints
    assert waiting.update(newest(owner)) == []
    assert waiting.checkpoints == before
    second = Owning(objects, node=3)
    second.send_joint(t=b"of the second", u=b"3")
    second.point()
    assert waiting.update(newest(second))
    assert len(waiting.checkpoints) == 1
    assert dump(waiting.take_over().store) == dump(second.store)


def test_a_standby_leaves_a_directory_with_other_data_unchanged():
    objects = SimulatedObjects()
    owner = begin(objects)
    owner.point()
    own = Driven(SimulatedDisk())
    own.create("mine")
    own.round()
    expected = dump(own.store)
    own.store.close()
    waiting = Waiting(objects, own.disk, is_copy=False)
    assert waiting.update(newest(owner)) == []
    waiting.directory.close()
    assert dump(Driven(own.disk).store) == expected


def test_a_standby_given_the_place_of_a_seal_finds_the_point_in_the_round_before():
    objects = SimulatedObjects()
    owner, waiting = begin(objects), Waiting(objects)
    owner.point()
    taken = take(objects.client(), node=3)
    assert waiting.update(Place(taken.base, taken.base_end))
    assert waiting.checkpoints


def test_a_standby_locks_its_directory_from_the_first_point_until_it_is_closed():
    objects = SimulatedObjects()
    owner, waiting = begin(objects), Waiting(objects)
    owner.point()
    waiting.update(newest(owner))
    with pytest.raises(AlreadyLocked):
        Owning(objects, waiting.disk, node=2)
    assert waiting.take_over().values() == owner.values()


@pytest.mark.parametrize("seed", range(3))
def test_a_takeover_by_a_standby_has_all_records_after_any_store_errors(seed):
    objects = SimulatedObjects(seed, Faults(before=0.1, after=0.1, late=0.05, conflicts=0.1, keeps=0.3, reads=0.2))
    owner, waiting = begin(objects), Waiting(objects)
    for number in range(6):
        owner.send_joint(t=b"%d" % number, u=b"2")
        owner.point()
        waiting.update(newest(owner))
    assert [line.split(",")[0] for line in waiting.said] == [f"point 1-{number} is here" for number in range(1, 7)]
    assert dump(waiting.take_over().store) == dump(owner.store)
