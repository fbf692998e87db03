"""A follower copies a data directory to a store: rounds of the journal, and points, which are checkpoints there."""

import pytest
from fencepost.effects.disk import DirectoryMoved
from fencepost.effects.objects import Refused, Unclear
from fencepost.effects.simulated.clock import SimulatedClock
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.objects import Faults, SimulatedObjects
from fencepost.storage.backup.manifest import BackupRefused
from fencepost.storage.journal.reading import JournalDamaged
from fencepost.storage.shipping import shipped_journal
from fencepost.storage.shipping.claims import Fenced, StillFollowed
from fencepost.storage.shipping.following import CLAIMS_MS
from fencepost.storage.shipping.point import unpack_point
from fencepost.storage.shipping.verifying import Verifying
from followed import HOUR_MS, Waiting, add, claim, damage_the_next_round, follower, named, restored
from recovery_oracle import SETTINGS, Workload
from store_driver import Driven, values_of


@pytest.fixture
def work():
    """A broker's store with one topic, whose only record is in a segment."""
    w = Workload(SimulatedDisk())
    w.send(w.make("a"), b"first")
    w.sync()
    w.flush()
    w.checkpoint()
    return w


def values_in(objects, **how):
    """Return the values of topic a in what is restored from the store."""
    disk, _ = restored(objects, **how)
    store = Driven(disk, settings=SETTINGS).store
    found = [value for log in store.logs.values() if log.topic == "a" for _, value in values_of(log)]
    store.close()
    return found


def test_a_backup_followers_first_step_takes_a_point_and_later_steps_ship_rounds(work):
    objects = SimulatedObjects()
    one = follower(work.disk, objects)
    assert one.loss_window_ms is None
    assert one.step()
    assert values_in(objects) == [b"first"]
    add(work, b"second")
    assert not one.step()
    add(work, b"third", b"fourth")
    assert not one.step()
    assert len(named(objects, "points")) == 1
    assert len(named(objects, "rounds")) == 2
    assert values_in(objects) == [b"first", b"second", b"third", b"fourth"]


def test_a_backup_follower_of_an_idle_broker_creates_no_object_after_its_first_point(work):
    objects, clock = SimulatedObjects(), SimulatedClock()
    one = follower(work.disk, objects, clock)
    one.step()
    created = len(objects.content)
    for _ in range(5):
        clock.advance(1000)
        one.step()
    assert len(objects.content) == created
    assert one.loss_window_ms == 0


def test_loss_window_ms_grows_while_the_store_is_unreachable_and_is_0_afterwards(work):
    objects, clock = SimulatedObjects(), SimulatedClock()
    one = follower(work.disk, objects, clock, wait=Waiting(3))
    one.step()
    add(work, b"second")
    objects.is_away = True
    for _ in range(3):
        clock.advance(1000)
        with pytest.raises(Unclear):
            one.step()
    assert one.loss_window_ms == 3000
    objects.is_away = False
    one.step()
    assert one.loss_window_ms == 0
    assert values_in(objects) == [b"first", b"second"]


def test_a_step_whose_create_was_unclear_is_repeated_with_the_same_journal_rounds(work):
    """The failed create may have had its effect; a retry with more rounds would find its own object and take it for
    another follower's.
    """
    objects = SimulatedObjects()
    one = follower(work.disk, objects, wait=Waiting(0))
    one.step()
    add(work, b"second")
    objects.faults = Faults(after=1, reads=1)
    with pytest.raises(Unclear):
        one.step()
    assert len(named(objects, "rounds")) == 1
    objects.faults = Faults()
    add(work, b"third")
    one.step()
    assert values_in(objects) == [b"first", b"second", b"third"]


def test_a_backup_point_whose_create_the_store_refused_is_created_at_a_later_step(work):
    objects = SimulatedObjects()
    one = follower(work.disk, objects)

    def refuse(call, name):
        if call == "create" and name.startswith("0/points"):
            raise Refused(name, "403", "")

    objects.before_each = refuse
    with pytest.raises(Refused):
        one.step()
    parts = named(objects, "parts")
    objects.before_each = lambda call, name: None
    add(work, b"second")
    one.step()
    assert named(objects, "parts") == parts
    assert values_in(objects) == [b"first", b"second"]


def test_a_new_backup_point_ships_only_bytes_added_since_the_point_before(work):
    objects = SimulatedObjects()
    one = follower(work.disk, objects, point_bytes=0)
    add(work, *[b"x" * 30_000] * 4)
    work.flush()
    work.checkpoint()
    one.step()
    before = one.status.size_bytes
    add(work, b"y")
    work.flush()
    work.checkpoint()
    assert one.step()
    assert one.status.size_bytes - before < 10_000  # the record, its journal block, and the objects of a point
    assert values_in(objects) == [b"first", *[b"x" * 30_000] * 4, b"y"]


@pytest.mark.parametrize(("grows", "passes_ms"), [(True, 0), (False, HOUR_MS)])
def test_a_new_backup_point_needs_point_bytes_or_point_ms_and_a_newer_checkpoint(work, grows, passes_ms):
    objects, clock = SimulatedObjects(), SimulatedClock()
    one = follower(work.disk, objects, clock, point_bytes=1 if grows else 1 << 30, point_ms=HOUR_MS)
    one.step()
    add(work, b"second")
    clock.advance(passes_ms)
    assert not one.step()
    work.checkpoint()
    assert one.step()
    assert not one.step()


def test_after_a_journal_file_was_reused_the_backup_follower_makes_a_new_point(work):
    objects = SimulatedObjects()
    one = follower(work.disk, objects)
    one.step()
    for number in range(16):  # the files that the follower has not read are used again
        add(work, bytes([number]) * 30_000)
        if number % 4 == 3:
            work.flush()
            work.checkpoint()
    assert one.step()
    assert values_in(objects) == [b"first", *(bytes([number]) * 30_000 for number in range(16))]


def test_after_a_restart_of_the_broker_the_backup_follower_makes_a_new_point(work):
    objects = SimulatedObjects()
    one = follower(work.disk, objects)
    one.step()
    add(work, b"second")
    work.store.close()
    again = Workload(work.disk, clock=work.clock)
    again.send(again.log("a"), b"third")
    again.sync()
    one.step()
    one.step()
    assert values_in(objects) == [b"first", b"second", b"third"]
    again.store.close()


def test_a_journal_round_still_unreadable_at_the_third_step_raises_journal_damaged(work):
    """Until then the follower takes it for a round that is still being written. The third step makes a new point, whose
    scan of the journal finds that later rounds say it was synced.
    """
    objects = SimulatedObjects()
    one = follower(work.disk, objects)
    one.step()
    damage_the_next_round(work, one)
    add(work, b"third", b"fourth")
    covered = one.loss_window_ms
    run = work.begin_checkpoint()  # newer than the point, and without the damaged round, which was not flushed
    run.run()
    assert not one.step()
    assert not one.step()
    assert one.loss_window_ms == covered
    with pytest.raises(JournalDamaged):
        one.step()


def test_no_backup_point_is_made_of_a_journal_damaged_before_the_checkpoints_end(work):
    objects = SimulatedObjects()
    one = follower(work.disk, objects, point_bytes=0)
    one.step()
    add(work, b"before")
    one.step()
    damage_the_next_round(work, one)
    add(work, b"third", b"fourth")
    run = work.begin_checkpoint()
    run.run()
    with pytest.raises(JournalDamaged):
        one.step()
    assert len(named(objects, "points")) == 1


def test_a_backup_follower_raises_directory_moved_when_its_directory_is_moved(work):
    beside = work.disk.beside()
    held = beside.hold("/data")
    one = follower(beside, SimulatedObjects())
    one.step()
    work.disk.beside().rename("/data", "/moved")
    with pytest.raises(DirectoryMoved):
        one.step()
    held.release()


def test_following_a_directory_without_a_brokers_data_raises_backup_refused():
    disk = SimulatedDisk()
    disk.make_directory("/data")
    objects = SimulatedObjects()
    with pytest.raises(BackupRefused, match="has no broker's data"):
        follower(disk, objects)
    assert not objects.content


# ---- another follower ------------------------------------------------------------------------------------------


def test_a_replaced_backup_follower_is_fenced_at_its_next_create(work):
    objects = SimulatedObjects()
    one = follower(work.disk, objects)
    one.step()
    follower(work.disk, objects)
    add(work, b"second")
    with pytest.raises(Fenced, match="process 1 on here, epoch 2"):
        one.step()


def test_an_idle_backup_follower_notices_its_successor_within_a_minute(work):
    objects, clock = SimulatedObjects(), SimulatedClock()
    one = follower(work.disk, objects, clock)
    one.step()
    follower(work.disk, objects)
    one.step()
    clock.advance(CLAIMS_MS)
    with pytest.raises(Fenced):
        one.step()


def test_a_second_backup_follower_is_refused_while_the_first_is_running(work):
    objects = SimulatedObjects()
    one = follower(work.disk, objects)
    one.step()

    def meanwhile():
        add(work, b"more")
        one.step()

    second = follower(work.disk, objects, begins=False)
    with pytest.raises(StillFollowed, match="process 1 on here") as refused:
        second.begin(claim(), meanwhile)
    assert "--take-over" in refused.value.hint
    one.step()


def test_a_new_backup_follower_does_not_wait_for_one_that_has_ended(work):
    objects = SimulatedObjects()
    one = follower(work.disk, objects)
    one.step()
    one.end()
    watched = []
    follower(work.disk, objects, begins=False).begin(claim(), lambda: watched.append(1))
    assert not watched


def test_a_new_backup_follower_calls_watch_before_it_replaces_an_earlier_one(work):
    objects = SimulatedObjects()
    follower(work.disk, objects).step()
    watched = []
    two = follower(work.disk, objects, begins=False)
    two.begin(claim(), lambda: watched.append(len(named(objects, "claims"))))
    assert set(watched) == {1}
    two.step()
    assert len(named(objects, "claims")) == 2


def test_a_new_backup_follower_does_not_ship_unchanged_files_again(work):
    objects = SimulatedObjects()
    add(work, *[b"x" * 30_000] * 4)
    work.flush()
    work.checkpoint()
    follower(work.disk, objects).step()
    two = follower(work.disk, objects)
    two.step()
    assert two.status.size_bytes < 40_000  # a journal file; the records in segments are 120,000 bytes
    assert values_in(objects) == [b"first", *[b"x" * 30_000] * 4]


def test_bytes_that_changed_under_the_same_name_are_shipped_again(work):
    """A restored directory writes other records at offsets that were used before."""
    objects = SimulatedObjects()
    one = follower(work.disk, objects)
    one.step()
    add(work, b"one history")
    work.flush()
    work.checkpoint()
    one.step()
    two = follower(work.disk, objects)
    two.step()
    other, _ = restored_first(objects)
    fork = Workload(other)
    fork.send(fork.log("a"), b"2nd history")
    fork.sync()
    fork.flush()
    fork.checkpoint()
    follower(other, objects).step()
    assert values_in(objects) == [b"first", b"2nd history"]


def restored_first(objects):
    """Return what is restored of the first point alone."""
    first = SimulatedObjects()
    points = named(objects, "points")
    parts = {name: objects.content[name] for name in named(objects, "parts")}
    first.content = {points[0]: objects.content[points[0]]} | parts
    return restored(first)


def test_the_backup_store_of_another_directory_is_refused_and_its_follower_continues(work):
    objects = SimulatedObjects()
    one = follower(work.disk, objects)
    one.step()
    other = Workload(SimulatedDisk())
    other.send(other.make("other"), b"record")
    other.sync()
    other.flush()
    other.checkpoint()
    with pytest.raises(BackupRefused, match="has the backup of another data directory"):
        follower(other.disk, objects)
    add(work, b"second")
    one.step()
    assert values_in(objects) == [b"first", b"second"]


def test_a_backup_store_whose_create_replaces_objects_is_refused(work):
    objects = SimulatedObjects()
    objects.create = objects.put
    with pytest.raises(BackupRefused, match="replaces an object"):
        follower(work.disk, objects)


# ---- what goes -------------------------------------------------------------------------------------------------


def test_deleting_a_point_deletes_the_parts_that_only_it_needs(work):
    objects, clock = SimulatedObjects(), SimulatedClock()
    one = follower(work.disk, objects, clock, keep_ms=1000, point_bytes=0)
    for number in range(5):
        add(work, bytes([65 + number]) * 50_000)
        work.flush()
        work.checkpoint()
        one.step()
        add(work, b"between")
        one.step()
        clock.advance(600)
    assert len(named(objects, "points")) == 3
    assert one.status.kept_points == 3
    needed = set().union(*(known.parts for known in one._collector.points.values()))
    assert set(named(objects, "parts")) == {name for name in needed if name.startswith("0/parts/")}
    kept = {name.split("/")[2] for name in named(objects, "points")}
    assert {name for name in named(objects, "rounds") if name.split("/")[2] not in kept} <= needed
    assert len(values_in(objects)) == 11


def test_parts_of_a_point_that_the_store_failed_to_delete_are_kept(work):
    objects, clock = SimulatedObjects(), SimulatedClock()
    one = follower(work.disk, objects, clock, keep_ms=1000, point_bytes=0)
    keeps_points = True

    def look(call, name):
        objects.faults.keeps = 1.0 if keeps_points and name.startswith("0/points/") else 0.0

    def take_points():
        for number in range(5):
            add(work, bytes([65 + number]) * 50_000)
            work.flush()
            work.checkpoint()
            one.step()
            clock.advance(600)

    objects.before_each = look
    take_points()
    assert len(named(objects, "points")) == 5
    assert Verifying(objects, Waiting()).run() == []
    keeps_points = False
    take_points()
    assert len(named(objects, "points")) == 3
    assert Verifying(objects, Waiting()).run() == []


def test_large_journal_rounds_are_shipped_as_pieces_and_deleted_with_their_point(work):
    objects, clock = SimulatedObjects(), SimulatedClock()
    one = follower(work.disk, objects, clock, keep_ms=1000, point_bytes=0, piece_bytes=10_000)
    one.step()
    add(work, b"x" * 25_000, b"y")
    one.step()
    assert len(named(objects, "pieces")) == 4
    assert max(len(objects.content[name]) for name in named(objects, "rounds")) < 5000
    assert values_in(objects) == [b"first", b"x" * 25_000, b"y"]
    for _ in range(4):  # until the journal no longer has the pieces' rounds
        add(work, b"z" * 50_000)
        work.flush()
        work.checkpoint()
        clock.advance(600)
        one.step()
    assert not [name for name in named(objects, "pieces") if "0000000001-0000000001/" in name]
    assert len(values_in(objects)) == 7


@pytest.mark.slow
def test_a_new_backup_point_reuses_journal_rounds_that_were_already_shipped(work):
    """Small rounds are taken from the objects of rounds, large ones from their pieces; only the first point ships
    journal bytes.
    """
    objects, clock = SimulatedObjects(), SimulatedClock()
    one = follower(work.disk, objects, clock, keep_ms=1000, point_bytes=0, piece_bytes=5_000)
    one.step()
    expected, behind = [b"first"], {}
    for number in range(12):
        expected += [bytes([65 + number]) * 12_000, b"between"]
        for value in expected[-2:]:
            add(work, value)
            one.step()
        if number % 3 == 2:
            work.checkpoint()  # without a flush, so the newest records are only in the journal
            assert one.step()
            work.flush()
            clock.advance(600)
            name = named(objects, "points")[-1]
            files = unpack_point(objects.content[name], name).files
            behind[number] = {each.object for path in files if path[:7] == "journal" for each in files[path].extents}
        assert values_in(objects) == expected
    assert {name.split("/")[1] for name in behind[11]} == {"pieces", "rounds"}
    # what only a deleted point needed is deleted
    assert not set(objects.content) & behind[2] - behind[8] - behind[11]
    assert Verifying(objects, Waiting()).run() == []


def test_a_point_that_would_name_too_many_journal_rounds_ships_them_again(work, monkeypatch):
    """A restore reads each extent separately; a slowly growing journal would have thousands."""
    objects = SimulatedObjects()
    one = follower(work.disk, objects, point_bytes=0)
    one.step()
    monkeypatch.setattr(shipped_journal, "MAX_SMALL_EXTENTS", 4)
    for _ in range(5):
        add(work, b"x")
        one.step()
    work.checkpoint()
    assert one.step()
    assert b"0/rounds/" not in objects.content[named(objects, "points")[-1]]
    assert len(values_in(objects)) == 6


def test_a_new_backup_follower_deletes_unneeded_objects_of_a_dead_one_but_no_seals(work):
    objects = SimulatedObjects()
    one = follower(work.disk, objects)
    one.step()
    objects.content["0/parts/0000000001-0000000099"] = b"never named"
    objects.content["0/rounds/0000000001-0000000077/0000000001"] = b"of a point that is gone"
    objects.content["0/pieces/0000000001-0000000077/0000000001"] = b"of a point that is gone"
    objects.content["0/parts/0000000009-0000000001"] = b"of a later epoch"
    two = follower(work.disk, objects)
    two.step()
    assert "0/parts/0000000001-0000000099" not in objects.content
    assert "0/rounds/0000000001-0000000077/0000000001" not in objects.content
    assert not named(objects, "pieces")
    assert "0/parts/0000000009-0000000001" in objects.content
    assert "0/points/0000000001-0000000002" in objects.content, "the seal"


def test_no_backup_part_is_deleted_while_a_point_cannot_be_read(work):
    objects, clock = SimulatedObjects(), SimulatedClock()
    one = follower(work.disk, objects, clock, keep_ms=HOUR_MS)
    one.step()
    objects.rot(named(objects, "points")[0])
    parts = set(named(objects, "parts"))
    two = follower(work.disk, objects, clock, keep_ms=HOUR_MS)
    assert "fails its checksum" in two.status.warnings[0]
    add(work, b"second")
    work.flush()
    work.checkpoint()
    two.step()
    assert parts <= set(named(objects, "parts"))
