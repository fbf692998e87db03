"""A restore from a store has the requested moment, complete. A lost or damaged object is named and never skipped.

A point is a checkpoint in the store; rounds are the writes of the journal after it.
"""

import pytest
from crash_points import crash_images
from fencepost.effects.disk.locks import AlreadyLocked
from fencepost.effects.objects import Refused, Unclear
from fencepost.effects.simulated.clock import SimulatedClock
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.objects import Faults, SimulatedObjects
from fencepost.storage import layout, store_checkpoint
from fencepost.storage.backup.manifest import BackupRefused
from fencepost.storage.backup.restore import mark_path
from fencepost.storage.checkpoints import NewerFormat, pack_file
from fencepost.storage.recovery import StoreDamaged
from fencepost.storage.shipping.fetching import Fetching, time_text
from fencepost.storage.shipping.names import Place
from fencepost.storage.shipping.verifying import Verifying, read_status
from followed import DIRECTORY, Waiting, follower, restored
from recovery_oracle import SETTINGS, Workload
from store_driver import Driven, values_of

STARTED_MS = 1_700_000_000_000
STEP_MS = 1000


@pytest.fixture(scope="module")
def written():
    """A store with two points and rounds after each, taken a second apart; read only."""
    objects, clock, work = SimulatedObjects(), SimulatedClock(STARTED_MS), Workload(SimulatedDisk())
    log = work.make("a")
    work.send(log, b"0")
    work.sync()
    work.flush()
    work.checkpoint()
    one = follower(work.disk, objects, clock, point_bytes=0, piece_bytes=20_000)
    for number in range(1, 7):
        one.step()
        work.send(log, b"%d" % number)
        work.sync()
        if number == 3:
            work.flush()
            work.checkpoint()
        clock.advance(STEP_MS)
    one.step()
    return objects.content


@pytest.fixture
def objects(written):
    fresh = SimulatedObjects()
    fresh.content = dict(written)
    return fresh


def names(objects, folder):
    return sorted(name for name in objects.content if name.startswith(f"0/{folder}/"))


def values_on(disk):
    """Return the values of topic a in a data directory."""
    store = Driven(disk, settings=SETTINGS).store
    found = [value for log in store.logs.values() if log.topic == "a" for _, value in values_of(log)]
    store.close()
    return found


def test_a_restore_to_a_time_has_exactly_the_records_written_until_then(objects):
    for second in range(7):
        disk, fetched = restored(objects, STARTED_MS + second * STEP_MS)
        assert values_on(disk) == [b"%d" % number for number in range(second + 1)]
        assert fetched.moment_ms == STARTED_MS + second * STEP_MS
    assert values_on(restored(objects)[0]) == [b"%d" % number for number in range(7)]


def test_a_restore_to_a_time_between_two_journal_rounds_has_the_earlier_state(objects):
    assert values_on(restored(objects, STARTED_MS + 1999)[0]) == [b"0", b"1"]


def test_a_restore_to_a_time_before_the_oldest_point_is_refused_naming_the_oldest(objects):
    with pytest.raises(BackupRefused, match=r"the oldest point is of 2023-11-14T22:13:20Z") as refused:
        restored(objects, STARTED_MS - 1)
    assert refused.value.hint == "--at 2023-11-14T22:13:20Z or later"


def test_restoring_from_a_store_without_a_backup_point_raises_backup_refused():
    with pytest.raises(BackupRefused, match="sim://bucket has no backup"):
        restored(SimulatedObjects())


def test_a_restore_into_a_directory_with_files_is_refused(objects):
    target = SimulatedDisk()
    target.make_directory(DIRECTORY)
    target.open(f"{DIRECTORY}/note", create=True).close()
    with pytest.raises(BackupRefused, match="is not empty"):
        Fetching(objects, target, DIRECTORY, Waiting()).run()


def test_a_restored_directory_is_marked_for_its_first_start(objects):
    disk, _ = restored(objects)
    assert disk.exists(mark_path(DIRECTORY))


def test_a_restore_repeats_reads_that_raise_unclear(objects):
    objects.faults = Faults(reads=0.5, lists=0.5)
    waiting = Waiting()
    assert len(values_on(restored(objects, wait=waiting)[0])) == 7
    assert waiting.troubles


def test_a_restore_whose_read_the_store_refuses_leaves_an_empty_directory(objects):
    def refuse(call, name):
        if name.startswith("0/parts"):
            raise Refused(name, "403", "hint")

    objects.before_each = refuse
    target = SimulatedDisk()
    with pytest.raises(Refused):
        Fetching(objects, target, DIRECTORY, Waiting()).run()
    assert target.list(DIRECTORY) == []


# ---- what is lost or rotten ------------------------------------------------------------------------------------


def every_object_needed(objects):
    """Return the newest part, the last two objects of rounds, and the newest point."""
    return names(objects, "parts")[-1:] + names(objects, "rounds")[-2:] + names(objects, "points")[-1:]


@pytest.mark.parametrize("kind", ["lost", "rotten"])
@pytest.mark.parametrize("number", range(4))
def test_a_restore_that_needs_a_lost_or_damaged_object_raises_naming_it(objects, kind, number):
    """verify and status name it too. A lost newest object cannot be told from one that was never created."""
    name = every_object_needed(objects)[number]
    is_newest = number == 2 or name.startswith("0/points")
    if kind == "rotten":
        objects.rot(name)
    else:
        del objects.content[name]
    if kind == "lost" and is_newest:
        left = {2: 6, 3: 4}[number]  # without the newest rounds, or without the newest point and its rounds
        assert values_on(restored(objects)[0]) == [b"%d" % each for each in range(left)]
        return
    target = SimulatedDisk()
    with pytest.raises(BackupRefused) as refused:
        Fetching(objects, target, DIRECTORY, Waiting(), threads=1).run()
    assert name in str(refused.value)
    assert "--at" in refused.value.hint
    assert not target.exists(DIRECTORY) or target.list(DIRECTORY) == []  # the directory may have been made
    assert any(name in problem for problem in Verifying(objects, Waiting()).run())
    if name.startswith(("0/points", "0/rounds")):
        assert any(name in problem for problem in read_status(objects, Waiting()).problems)


def test_a_restore_to_a_time_stops_before_damaged_journal_rounds_and_names_them(objects):
    name = names(objects, "rounds")[-1]
    objects.rot(name)
    said = []
    disk, fetched = restored(objects, STARTED_MS + 100 * STEP_MS, said)
    assert values_on(disk) == [b"%d" % number for number in range(6)]
    assert (name in said[0], "restored is what comes before it" in said[0]) == (True, True)
    with pytest.raises(BackupRefused, match=f"what comes before it is of {time_text(fetched.moment_ms)}"):
        restored(objects)


def test_a_restore_to_an_earlier_time_works_although_a_later_point_is_damaged(objects):
    objects.rot(names(objects, "points")[-1])
    said = []
    assert values_on(restored(objects, STARTED_MS + 3 * STEP_MS, said)[0]) == [b"0", b"1", b"2", b"3"]
    assert names(objects, "points")[-1] in said[0]


def test_a_restore_that_needs_a_truncated_part_raises_naming_it(objects):
    name = names(objects, "parts")[-1]
    objects.content[name] = objects.content[name][:-1]
    with pytest.raises(BackupRefused, match=f"{name}: it ends at byte"):
        restored(objects)


def test_a_restore_from_swapped_journal_round_objects_raises_backup_refused(objects):
    """Each has a right checksum; together they are no journal."""
    first, second = names(objects, "rounds")[-2:]
    objects.content[first], objects.content[second] = objects.content[second], objects.content[first]
    with pytest.raises(BackupRefused, match="the journal after point"):
        restored(objects)


def test_a_point_of_a_newer_version_raises_newer_format(objects):
    objects.content[names(objects, "points")[-1]] = pack_file("point", 99, b"")
    with pytest.raises(NewerFormat):
        restored(objects)


@pytest.mark.parametrize("kind", ["lost", "rotten"])
def test_lost_or_rotten_bytes_of_journal_rounds_are_named_and_none_of_them_written(kind):
    objects, clock, work = SimulatedObjects(), SimulatedClock(STARTED_MS), Workload(SimulatedDisk())
    log = work.make("a")
    work.sync()
    one = follower(work.disk, objects, clock, piece_bytes=5000)
    one.step()
    for number in range(3):
        clock.advance(STEP_MS)
        work.send(log, b"%d" % number * 8000)
        work.sync()
        one.step()
    name = names(objects, "pieces")[-1]
    if kind == "lost":
        del objects.content[name]
    else:
        objects.rot(name)
    assert any(name in problem for problem in Verifying(objects, Waiting()).run())
    with pytest.raises(BackupRefused, match=name):
        restored(objects)
    said = []
    disk, _ = restored(objects, STARTED_MS + 100 * STEP_MS, said)
    assert values_on(disk) == [b"0" * 8000, b"1" * 8000]
    assert name in said[0]


def test_verifying_a_sound_store_finds_no_damage(objects):
    verifying = Verifying(objects, Waiting())
    assert verifying.run() == []
    assert verifying.points == 2


def test_the_backup_status_has_the_points_the_newest_time_and_the_follower(objects):
    status = read_status(objects, Waiting())
    assert [place for place, _ in status.points] == [Place(1, 1), Place(1, 2)]
    assert status.newest_ms == STARTED_MS + 6 * STEP_MS
    assert status.rounds == len([n for n in names(objects, "rounds") if "0000000001-0000000002" in n])
    assert (status.epoch, status.claim.host, status.problems, status.unnamed_bytes) == (1, "here", [], 0)
    assert status.objects == len(objects.content)
    assert read_status(SimulatedObjects(), Waiting()).points == []


# ---- meanwhile ---------------------------------------------------------------------------------------------------


def numbered(number):
    """Return a value so large that the journal uses its files again soon: a new point needs nothing that old ones
    needed.
    """
    return b"%d" % number + b" " * 40_000


class Meanwhile:
    """A store in which a follower makes new points, and deletes old ones, at one call of a reader."""

    def __init__(self, at_call):
        self.objects, self.clock = SimulatedObjects(), SimulatedClock(STARTED_MS)
        self.work = Workload(SimulatedDisk())
        self.count = 0
        log = self.work.make("a")
        self.follower = follower(self.work.disk, self.objects, self.clock, point_bytes=0, keep_ms=1)
        self.take_point(log)
        self.take_point(log)
        self.reader = self.objects.client()
        self.reader.before_each = self.look
        self._at_call, self._log = at_call, log
        self.collected = False

    def take_point(self, log):
        self.work.send(log, numbered(self.count))
        self.count += 1
        self.work.sync()
        self.work.flush()
        self.work.checkpoint()
        self.clock.advance(STEP_MS)
        self.follower.step()

    def look(self, call, name):
        if len(self.reader.calls) == self._at_call and not self.collected:
            self.collected = True
            for _ in range(4):
                self.take_point(self._log)


@pytest.mark.slow
def test_a_restore_whose_point_is_deleted_meanwhile_takes_a_newer_one():
    lines = []
    for at_call in range(1, 14):
        world = Meanwhile(at_call)
        before = world.count
        found = values_on(restored(world.reader, None, lines)[0])
        assert found == list(map(numbered, range(len(found))))
        assert before <= len(found) <= world.count
    assert any("was not to be kept any longer" in line for line in lines)


@pytest.mark.slow
def test_a_restore_to_a_time_is_refused_if_its_points_are_deleted_meanwhile():
    said, refusals = [], []
    for at_call in range(5, 12):
        try:
            disk, _ = restored(Meanwhile(at_call).reader, STARTED_MS + STEP_MS, said)
        except BackupRefused as refused:
            refusals.append(str(refused))
        else:
            assert values_on(disk) == [numbered(0)], "all of it was read before it went"
    assert refusals
    assert all("the oldest point is of" in refusal for refusal in refusals)
    assert "was not to be kept any longer" in said[0]


def test_no_broker_starts_on_a_directory_during_its_restore(objects):
    target = SimulatedDisk()
    tried = []

    def look(call, name):
        if name.startswith("0/rounds"):
            with pytest.raises(AlreadyLocked):
                Driven(target.beside(), settings=SETTINGS)
            tried.append(name)

    objects.before_each = look
    Fetching(objects, target, DIRECTORY, Waiting(), threads=1).run()
    assert tried


@pytest.mark.slow
def test_a_power_cut_during_a_restore_leaves_no_checkpoint_or_a_whole_directory(objects):
    target = SimulatedDisk()
    Fetching(objects, target, DIRECTORY, Waiting(), threads=1).run()
    outcomes = set()
    for description, image in crash_images(target, limit=150):
        if not image.exists(f"{DIRECTORY}") or not image.list(DIRECTORY):
            outcomes.add("nothing")
            continue
        if not store_checkpoint.numbers(image, DIRECTORY):
            if image.exists(layout.journal_directory(DIRECTORY)) and image.list(layout.journal_directory(DIRECTORY)):
                with pytest.raises(StoreDamaged):
                    Driven(image, settings=SETTINGS)
            outcomes.add("half")
            continue
        assert image.exists(mark_path(DIRECTORY)), description
        assert len(values_on(image)) == 7, description
        outcomes.add("whole")
    assert outcomes == {"nothing", "half", "whole"}


def test_a_restore_from_an_unreachable_store_ends_when_the_caller_gives_up(objects):
    objects.is_away = True
    with pytest.raises(Unclear):
        restored(objects, wait=Waiting(3))
