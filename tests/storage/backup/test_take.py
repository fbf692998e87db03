"""Taking a backup: what is refused, what is left after a failure, and what is copied of a damaged directory."""

import errno

import pytest
from backed_up import BACKUP, FACTS, overwrite, paths_below
from crash_points import crash_images
from disk_files import all_durable
from failing_steps import fail_each_step
from fencepost.effects.disk import AlreadyLocked, DiskFull
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.operations import Link, Truncate, Unlink, Write
from fencepost.storage.backup.manifest import BackupRefused, read
from fencepost.storage.backup.restore import check_backup, restore_backup
from fencepost.storage.backup.take import take_backup
from fencepost.storage.checkpoints import Damaged
from recovery_oracle import SETTINGS
from scripted_workloads import flush_and_checkpoint
from store_driver import Driven
from store_dump import dump


def taken(disk, target=None, **more):
    return take_backup(disk, "/data", target or disk, BACKUP, **FACTS | more)


def content_of(disk):
    """Return what a start on this disk recovers."""
    store = Driven(disk, settings=SETTINGS).store
    found = dump(store)
    store.close()
    return found


def segment_of(disk, topic="a"):
    return next(path for path in paths_below(disk, "/data/logs") if f"/{topic}-0" in path and path.endswith(".log"))


def test_a_backup_of_a_stopped_brokers_directory_restores_the_same_state(disk):
    taken(disk)
    restore_backup(disk, BACKUP, "/copy")
    original = disk.at(0)  # as it was before the backup
    disk.remove_tree("/data")
    disk.rename("/copy", "/data")
    assert content_of(disk) == content_of(original)


def test_the_manifest_lists_every_file_of_the_backup(disk):
    contents = taken(disk)
    found = read(disk, BACKUP)
    assert found == contents
    assert (found.made_by, found.taken_ms, found.running, found.warnings) == ("1.2.3", 1_795_000_000_000, False, [])
    on_disk = {path.removeprefix(f"{BACKUP}/data/") for path in paths_below(disk, f"{BACKUP}/data")}
    assert found.files.keys() == on_disk
    assert check_backup(disk, BACKUP) == (contents, [])


def test_a_backup_changes_no_file_of_the_data_directory_but_its_lock(disk):
    before = {path: disk.size(path) for path in paths_below(disk, "/data") if not path.endswith("/lock")}
    operations = len(disk.operations)
    taken(disk, SimulatedDisk())
    assert all("/lock" in str(each) for each in disk.operations[operations:])
    assert {path: disk.size(path) for path in paths_below(disk, "/data") if not path.endswith("/lock")} == before


def test_no_broker_starts_on_a_directory_during_its_offline_backup(disk):
    def report(_done, _of):
        with pytest.raises(AlreadyLocked):
            Driven(disk, settings=SETTINGS)

    taken(disk, report=report)
    Driven(disk, settings=SETTINGS).store.close()


@pytest.mark.parametrize("error", [errno.EROFS, errno.EACCES])
@pytest.mark.parametrize("has_lock", [True, False])
def test_a_read_only_directory_can_be_backed_up(disk, has_lock, error):
    if not has_lock:
        disk.unlink("/data/lock")
    changes = (Link, Truncate, Write, Unlink)
    disk.fail(lambda one: isinstance(one, changes) and one.path.startswith("/data"), error=error, times=None)
    target = SimulatedDisk()
    assert not taken(disk, target).running
    assert check_backup(target, BACKUP)[1] == []


def test_a_backup_of_a_read_only_mount_detects_a_running_broker(disk):
    lock = disk.beside().lock("/data/lock")
    changes = (Link, Truncate, Write, Unlink)
    disk.fail(lambda one: isinstance(one, changes) and one.path.startswith("/data"), error=errno.EROFS, times=None)
    assert taken(disk, SimulatedDisk()).running
    lock.release()


@pytest.mark.parametrize("runs", [True, False])
def test_a_backup_does_not_mix_files_of_a_directory_replaced_during_it(disk, runs):
    other = disk.beside()
    lock = disk.beside().lock("/data/lock") if runs else None

    def report(_done, _of):
        if not other.exists("/moved"):
            other.rename("/data", "/moved")
            for path in paths_below(other, "/moved"):
                other.make_directory(f"/data{path.removeprefix('/moved').rpartition('/')[0]}")
                other.open(f"/data{path.removeprefix('/moved')}", create=True).close()

    target = SimulatedDisk()
    assert taken(disk, target, report=report).warnings == []
    other.remove_tree("/data")
    other.rename("/moved", "/data")
    if lock is not None:
        lock.release()
    target.rename(f"{BACKUP}/data", "/data")
    assert content_of(target) == content_of(other)


@pytest.mark.parametrize(
    ("folder", "cause"), [("/data", "is not empty"), ("/data/lock", "is a file"), (BACKUP, "is not empty")]
)
def test_a_backup_into_an_unusable_target_directory_is_refused_with_the_cause(disk, folder, cause):
    taken(disk)
    with pytest.raises(BackupRefused, match=cause):
        take_backup(disk, "/data", disk, folder, **FACTS)


def test_backing_up_a_directory_without_a_brokers_data_is_refused_and_writes_nothing(disk):
    disk.make_directory("/elsewhere")
    with pytest.raises(BackupRefused, match="/elsewhere has no broker's data"):
        take_backup(disk, "/elsewhere", disk, BACKUP, **FACTS)
    assert disk.list("/elsewhere") == []
    assert not disk.exists(BACKUP)


def test_backup_progress_grows_and_never_exceeds_the_total_bytes(disk):
    reported = []
    contents = taken(disk, report=lambda done, of: reported.append((done, of)))
    assert reported == sorted(reported)
    assert all(done <= of for done, of in reported)
    outside_journal = sum(file.size_bytes for path, file in contents.files.items() if "journal" not in path)
    assert outside_journal < reported[-1][0] < reported[-1][1]  # zeros at the end of the journal are not copied


def test_a_backup_without_enough_space_is_refused_before_any_copy(disk):
    target = SimulatedDisk(capacity_bytes=100)
    reported = []
    with pytest.raises(DiskFull, match="are to be copied, and 100 are free"):
        taken(disk, target, report=lambda *bytes_: reported.append(bytes_))
    assert (reported, target.list(BACKUP)) == ([], [])


def test_a_backup_that_fills_the_disk_leaves_no_files(disk):
    enough = taken(disk, SimulatedDisk()).size_bytes
    for capacity in range(2_000, enough, 40_000):
        target = SimulatedDisk(capacity_bytes=capacity)
        with pytest.raises(DiskFull):
            taken(disk, target)
        assert target.list(BACKUP) == []


def test_a_backup_that_failed_at_any_step_is_refused_by_check_backup(disk):
    def judge(target, contents):
        if contents is None and target.exists(BACKUP):
            with pytest.raises(BackupRefused):
                check_backup(target, BACKUP)
        elif contents is not None:
            assert check_backup(target, BACKUP) == (contents, [])

    ended = fail_each_step(SimulatedDisk, lambda target: taken(disk.at(0), target), judge)
    assert ended > 10


@pytest.mark.slow
def test_a_power_cut_during_a_backup_leaves_a_complete_backup_or_none(disk):
    target = SimulatedDisk()
    contents = taken(disk, target)
    target.note("done")
    outcomes = set()
    for _, image in crash_images(target, limit=150, seed=1):
        try:
            assert check_backup(image, BACKUP) == (contents, [])
            outcomes.add("whole")
        except BackupRefused:
            assert not image.notes
            outcomes.add("refused")
    assert outcomes == {"whole", "refused"}


# ---- a directory that is damaged ---------------------------------------------------------------------------------


def test_a_backup_warns_about_a_missing_segment_and_copies_all_other_files(disk):
    path = segment_of(disk)
    disk.unlink(path)
    contents = taken(disk)
    assert contents.warnings == [f"{path}: No such file or directory"]
    restore_backup(disk, BACKUP, "/copy")


def test_a_backup_warns_about_a_segment_shorter_than_the_checkpoint_says(disk):
    path = segment_of(disk)
    size = disk.size(path)
    file = disk.open(path)
    file.truncate(10)
    file.close()
    (warning,) = taken(disk).warnings
    assert warning == f"{path} has 10 bytes, the checkpoint counts {size}"


def test_a_backup_warns_about_a_segment_that_cannot_be_read(disk):
    path = segment_of(disk)
    disk.fail(lambda one: type(one).__name__ == "Read" and one.path == path, times=None)
    (warning,) = taken(disk).warnings
    assert warning == f"{path} cannot be read at byte 0: Input/output error"


def test_backing_up_a_damaged_journal_is_refused(disk):
    number = next(name for name in disk.list("/data/journal") if name.endswith(".journal"))
    overwrite(disk, f"/data/journal/{number}", 4096 + 60, b"damaged")
    with pytest.raises(Damaged):
        taken(disk)
    assert disk.list(BACKUP) == []


def test_a_backup_uses_the_older_checkpoint_if_the_newest_is_damaged(disk):
    newest = max(name for name in disk.list("/data") if name.startswith("checkpoint-"))
    overwrite(disk, f"/data/{newest}", 50, b"damaged")
    original = all_durable(disk)
    contents = taken(disk)
    assert f"checkpoint-{contents.checkpoint}" != newest
    restore_backup(disk, BACKUP, "/copy")
    disk.remove_tree("/data")
    disk.rename("/copy", "/data")
    assert content_of(disk) == content_of(original)


def test_a_backup_includes_the_journal_parts_kept_for_an_offline_partition():
    """The segment is lost; what the journal had above it is in journal-parts, and waits for the segment's return."""
    disk = SimulatedDisk()
    flush_and_checkpoint(disk)
    disk = disk.found(disk.after_process_crash()._seen)
    expected = content_of(disk.at(0))
    path = segment_of(disk)
    file = disk.open(path)
    segment = file.read(file.size(), 0)
    file.close()
    disk.unlink(path)
    driven = Driven(disk, settings=SETTINGS)
    assert driven.log("a").offline
    driven.store.close()
    contents = taken(disk)
    assert contents.warnings == [f"{path}: No such file or directory"]
    (kept,) = [name for name in contents.files if name.startswith("journal-parts/")]
    restore_backup(disk, BACKUP, "/copy")
    assert disk.exists(f"/copy/{kept}")
    disk.remove_tree("/data")
    disk.rename("/copy", "/data")
    disk.make_directory(path.rpartition("/")[0])
    again = disk.open(path, create=True)
    again.write([segment], 0)
    again.close()
    assert content_of(disk) == expected
