"""A data directory with its own journal is opened with an object store: all of it gets there, or it is refused.

An epoch is the time of one owner of the journal; a round is the object that the owner creates with each write. A
point is a checkpoint in the store.
"""

from collections.abc import Sequence
from typing import Any

import pytest
from crash_points import crash_images
from fencepost.effects.objects import Content
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.objects import SimulatedObjects, StoreCut
from fencepost.storage.backup.manifest import BackupRefused
from fencepost.storage.backup.source import refuse_copy_of_store
from fencepost.storage.journal_source import StoreDamaged
from fencepost.storage.objects import format as form
from fencepost.storage.objects.errors import AdoptionBegun, Overtaken
from fencepost.storage.objects.fence import Place
from fencepost.storage.objects.looking import JournalVerifying, Looking
from fencepost.storage.objects.points import newest_checkpoint
from fencepost.storage.store_mark import Mark, read_mark
from owner_driver import Owning, pause
from store_driver import DIRECTORY, Driven, values_of
from store_dump import dump

VALUES = [b"flushed", b"in the journal"]


def plain(*values: bytes, lives: int = 1, history: bool = False) -> SimulatedDisk:
    """Return the disk of a broker that was killed, with one value in a segment and one in the journal. lives: how often
    the broker was started.
    """
    disk = SimulatedDisk(history=history)
    for _ in range(lives - 1):
        Driven(disk).store.close()
    one = Driven(disk)
    one.create("t")
    one.round()
    for value in values or VALUES:
        one.append(one.log("t"), [value])
        one.round()
        if value == VALUES[0]:
            one.flush()
            one.checkpoint()
    one.store.close()
    return disk


def files_of_journal(disk: SimulatedDisk) -> list[str]:
    return disk.list(f"{DIRECTORY}/journal")


def test_a_directory_taken_into_a_store_is_complete_there_before_its_first_new_round():
    """A data directory with a journal of its own is opened with an object store for the first time: a copy of it is
    made there, and its own journal removed.
    """
    objects = SimulatedObjects()
    disk = plain()
    before = dump(Driven(disk.after_process_crash()).store)
    owner = Owning(objects, disk)
    assert dump(owner.store) == before
    looked = Looking(objects, pause).look()
    assert (looked.rounds, looked.last.place) == (1, Place(owner.epoch, 0))
    assert JournalVerifying(Looking(objects, pause)).run() == []
    assert Owning(objects.client(), node=2).values() == VALUES
    assert files_of_journal(disk) == []


@pytest.mark.slow
@pytest.mark.parametrize("lives", [1, 2, 3, 7])
def test_a_directory_taken_into_a_store_continues_after_any_number_of_earlier_starts(lives):
    objects = SimulatedObjects()
    disk = plain(lives=lives)
    owner = Owning(objects, disk)
    assert owner.epoch > lives
    owner.send("t", b"new")
    owner.store.close()
    again = Owning(objects, disk)
    assert again.values() == [*VALUES, b"new"]
    again.send("t", b"newer")
    again.point()
    again.send("t", b"newest")
    again.point()
    assert Owning(objects, node=2).values() == [*VALUES, b"new", b"newer", b"newest"]


def test_no_record_is_lost_when_the_adopted_journals_file_has_the_new_epochs_number():
    """A checkpoint names where the journal is read from: a file of the directory's journal, or an epoch of the store's,
    and both are numbers. Here they are the same.
    """
    disk = SimulatedDisk(history=False)
    one = Driven(disk)
    one.create("t")
    while newest_checkpoint(disk, DIRECTORY)[1].journal_start.file < 2:
        one.round()
        one.append(one.log("t"), [bytes(50_000)])
        one.flush()
        one.checkpoint()
    one.store.close()
    objects = SimulatedObjects()
    owner = Owning(objects, disk)
    assert owner.epoch == 2
    owner.send("t", b"new")
    taken = owner.points.take()
    assert taken is not None
    owner.name(taken)  # takeovers begin at this checkpoint from now on
    assert Owning(objects, node=2).values() == owner.values()


def test_finishing_an_adoption_after_a_kill_removes_the_directorys_own_journal():
    """Else the directory could be served without its store, with the state from before."""
    whole = SimulatedObjects()
    epoch = Owning(whole, plain()).epoch
    began = whole.calls.index(("create", form.place_name(Place(epoch, 0))))
    objects, disk = SimulatedObjects(), plain()
    dying = objects.client()
    dying.cut_at(began, after=True)
    with pytest.raises(StoreCut):
        Owning(dying, disk)
    assert files_of_journal(disk)
    assert Owning(objects, disk).values() == VALUES
    assert not files_of_journal(disk)
    assert read_mark(disk, DIRECTORY) == Mark(b"the only store..")


def test_only_the_newest_two_points_of_a_directory_taken_into_a_store_are_kept():
    objects = SimulatedObjects()
    owner = Owning(objects, plain())
    for _ in range(3):
        owner.send("t", b"more")
        owner.point()
    assert len([name for name in objects.content if name.startswith("0/points/")]) == 2
    assert Owning(objects, node=2).values() == owner.values()


@pytest.mark.parametrize("how", ["another began", "another was adopted", "its own was left behind"])
def test_taking_a_directory_into_a_store_with_other_data_raises_store_damaged(how):
    objects = SimulatedObjects()
    disk = plain(b"mine")
    if how == "another began":
        Owning(objects, node=2)
    elif how == "another was adopted":
        Owning(objects, plain(b"theirs"), node=2)
    else:
        copy = disk.after_process_crash()
        Owning(objects, disk)
        disk = copy
    before = dict(objects.content)
    with pytest.raises(StoreDamaged, match="it has data of its own, and sim://bucket has other data"):
        Owning(objects, disk)
    assert objects.content == before
    assert Driven(disk).log("t").end_offset == 1


def test_taking_a_directory_into_a_store_raises_if_a_node_begins_there_meanwhile():
    """The first attempt raises Overtaken, and each later one StoreDamaged, because the object store has the other
    node's data by then.
    """
    objects = SimulatedObjects()
    seen = objects.client()

    def overtake(call: str, name: str) -> None:
        if name.startswith("0/points/"):
            seen.before_each = lambda call, name: None
            Owning(objects, plain(b"another's"), node=2)

    seen.before_each = overtake
    disk = plain(b"mine")
    with pytest.raises(Overtaken):
        Owning(seen, disk)
    with pytest.raises(StoreDamaged, match="other data"):
        Owning(objects, disk)


def test_an_empty_directory_does_not_begin_a_store_that_a_directory_is_put_into():
    """If it began the store, the directory's data could not be put there any more. It is refused until all is there."""
    objects = SimulatedObjects()
    seen = objects.client()
    refused = []

    def begin_with_an_empty_disk(call: str, name: str) -> None:
        if call == "create" and name.startswith(("0/parts/", "0/points/")):
            with pytest.raises(AdoptionBegun, match="node 1 has begun to put its data directory there"):
                Owning(objects, node=2)
            refused.append(name)

    seen.before_each = begin_with_an_empty_disk
    assert Owning(seen, plain()).values() == VALUES
    assert [name.split("/")[1] for name in refused] == ["parts", "points"]
    assert Owning(objects, node=2).values() == VALUES


def test_an_empty_directory_is_refused_until_a_begun_adoption_of_another_is_finished():
    objects = SimulatedObjects()
    seen = objects.client()
    disk = plain(history=True)

    def cut(call: str, name: str) -> None:
        if call == "create" and name.startswith("0/points/"):
            raise StoreCut

    seen.before_each = cut
    with pytest.raises(StoreCut):
        Owning(seen, disk)
    with pytest.raises(AdoptionBegun):
        Owning(objects, node=2)
    assert Owning(objects, disk.after_process_crash()).values() == VALUES
    assert Owning(objects, node=2).values() == VALUES


def test_taking_a_damaged_directory_into_a_store_raises_and_begins_no_epoch():
    disk = plain()
    folder = next(name for name in disk.list(f"{DIRECTORY}/logs") if name.startswith("t-"))
    name = next(each for each in disk.list(f"{DIRECTORY}/logs/{folder}") if each.endswith(".log"))
    disk.unlink(f"{DIRECTORY}/logs/{folder}/{name}")
    objects = SimulatedObjects()
    with pytest.raises(StoreDamaged, match="it is damaged"):
        Owning(objects, disk)
    assert not Looking(objects, pause).look().epoch


def test_the_restore_mark_of_a_directory_taken_into_a_store_is_on_the_next_node_too():
    objects = SimulatedObjects()
    disk = plain()
    disk.open(f"{DIRECTORY}/restored", create=True).close()
    Owning(objects, disk)
    assert Owning(objects, node=2).disk.exists(f"{DIRECTORY}/restored")


# ---- every step ----------------------------------------------------------------------------------------------


def check_goes_on(objects: SimulatedObjects, disk: SimulatedDisk) -> None:
    """Check that a broker on this disk has all values, and writes more. If an epoch has begun, one with an empty disk
    has them as well.
    """
    has_begun = Looking(objects, pause).look().epoch > 0
    if has_begun:
        other = SimulatedObjects()
        other.content.update(objects.content)
        assert Owning(other, node=2).values() == VALUES
    owner = Owning(objects, disk)
    assert owner.values() == VALUES
    owner.send("t", b"new")
    assert Owning(objects, node=3).values() == [*VALUES, b"new"]


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_taking_a_directory_into_a_store_continues_after_a_kill_at_any_store_call(after):
    call = 0
    while True:
        objects, disk = SimulatedObjects(), plain()
        dying = objects.client()
        dying.cut_at(call, after=after)
        try:
            Owning(dying, disk)
            break
        except StoreCut:
            check_goes_on(objects, disk)
        call += 1
    assert call >= 9


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_directory_only_partly_taken_into_a_store_can_be_served_without_the_store(after):
    call = marked = 0
    while True:
        objects, disk = SimulatedObjects(), plain()
        dying = objects.client()
        dying.cut_at(call, after=after)
        try:
            Owning(dying, disk)
            break
        except StoreCut:
            marked += check_served_without_its_store(disk)
        call += 1
    assert marked >= 1


def check_served_without_its_store(disk: SimulatedDisk) -> bool:
    """Check that the directory can be served without the store. If it is marked as belonging to a store, it is refused
    until the mark is renamed as the error says. Returns whether it was marked.
    """
    marked = disk.exists(f"{DIRECTORY}/store")
    if marked:
        named = f"mv {DIRECTORY}/store {DIRECTORY}/restored"
        for open_ in (lambda: Driven(disk), lambda: Owning(SimulatedObjects(), disk, identity=b"of a new store..")):
            with pytest.raises(StoreDamaged, match="was not finished") as refused:
                open_()
            assert named in refused.value.hint
        with pytest.raises(BackupRefused, match="was not finished"):
            refuse_copy_of_store(disk, DIRECTORY)
        disk.rename(f"{DIRECTORY}/store", f"{DIRECTORY}/restored")
    alone = Driven(disk.after_process_crash())
    assert [value for _, value in values_of(alone.log("t"))] == VALUES
    alone.store.close()
    new = SimulatedObjects()
    Owning(new, disk, identity=b"of a new store..").store.close()
    other = Owning(new, node=2)
    assert other.values() == VALUES
    assert other.disk.exists(f"{DIRECTORY}/restored") == marked
    return marked


class Noted(SimulatedObjects):
    """Notes on a disk what a store has, after each change."""

    disk: SimulatedDisk

    def create(self, name: str, content: Content) -> None:
        super().create(name, content)
        self.disk.note(dict(self.content))


def store_of(notes: Sequence[Any]) -> SimulatedObjects:
    objects = SimulatedObjects()
    objects.content.update(notes[-1] if notes else {})
    return objects


@pytest.mark.slow
def test_taking_a_directory_into_a_store_continues_after_a_power_cut_at_any_moment():
    objects = Noted()
    objects.disk = disk = plain(history=True)
    begun = len(disk.operations)
    Owning(objects, disk)
    images = list(crash_images(disk, first=begun, limit=80))
    for _, image in images:
        check_goes_on(store_of(image.notes), image)
    assert len(images) > 60
