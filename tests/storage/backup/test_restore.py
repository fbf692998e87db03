"""Restoring a backup: the target is empty, every byte is checked, and the checkpoint is written last."""

import errno

import pytest
from backed_up import BACKUP, FACTS, overwrite, paths_below
from crash_points import crash_images
from failing_steps import fail_each_step
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.storage import checkpoints
from fencepost.storage.backup import manifest
from fencepost.storage.backup.manifest import BackupRefused
from fencepost.storage.backup.restore import check_backup, mark_path, restore_backup
from fencepost.storage.backup.take import take_backup
from fencepost.storage.checkpoints import Damaged
from fencepost.storage.recovery import StoreDamaged
from recovery_oracle import SETTINGS
from store_driver import Driven
from store_dump import dump


@pytest.fixture
def backup(disk):
    """A disk, without history, that has the backup and nothing else."""
    holder = SimulatedDisk()
    take_backup(disk, "/data", holder, BACKUP, **FACTS)
    return holder.found(holder._seen)


@pytest.fixture
def expected(disk):
    driven = Driven(disk.at(0), settings=SETTINGS)
    found = dump(driven.store)
    driven.store.close()
    return found


def test_a_restored_store_has_the_content_of_the_original(backup, expected):
    restore_backup(backup, BACKUP, "/data")
    assert backup.exists(mark_path("/data"))
    recovered = Driven(backup.after_power_cut(), settings=SETTINGS)
    assert dump(recovered.store) == expected
    assert not recovered.report.warnings


def test_a_restore_into_a_directory_that_is_not_empty_is_refused(backup):
    backup.make_directory("/data/notes")
    with pytest.raises(BackupRefused, match="/data is not empty"):
        restore_backup(backup, BACKUP, "/data")
    assert backup.list("/data") == ["notes"]


def test_a_restore_target_with_nothing_but_lost_and_found_counts_as_empty(backup):
    backup.make_directory("/data/lost+found")
    restore_backup(backup, BACKUP, "/data")
    assert backup.exists("/data/lost+found")


def test_restoring_from_a_missing_or_unfinished_backup_is_refused(backup):
    with pytest.raises(BackupRefused, match="/nowhere is no backup"):
        restore_backup(backup, "/nowhere", "/data")
    backup.unlink(f"{BACKUP}/manifest")
    with pytest.raises(BackupRefused, match="cut short: it has no manifest"):
        restore_backup(backup, BACKUP, "/data")
    assert not backup.exists("/data")


def test_a_changed_byte_in_a_backup_is_found_and_nothing_is_restored(backup):
    paths = list(paths_below(backup, BACKUP))
    assert len(paths) == 6
    for path in paths:
        size = backup.size(path)
        for position in {0, size // 3, size - 1}:
            image = backup.at(0)
            file = image.open(path)
            byte = file.read(1, position)
            file.close()
            overwrite(image, path, position, bytes([byte[0] ^ 0x40]))
            is_manifest = path.endswith("/manifest")  # it is read before the directory is made
            with pytest.raises(Damaged if is_manifest else BackupRefused, match=r"checksum|does not begin"):
                restore_backup(image, BACKUP, "/data")
            assert image.exists("/data") is not is_manifest
            if not is_manifest:
                assert image.list("/data") == []
                _, problems = check_backup(image, BACKUP)
                assert problems == [f"{path} fails its checksum"]


def test_restore_refuses_a_backup_with_a_missing_file_or_one_of_another_size(backup):
    for path in paths_below(backup, f"{BACKUP}/data"):
        missing, longer = backup.at(0), backup.at(0)
        missing.unlink(path)
        overwrite(longer, path, longer.size(path), b"more")
        for image in (missing, longer):
            with pytest.raises(BackupRefused):
                restore_backup(image, BACKUP, "/data")
            assert image.list("/data") == []
            assert len(check_backup(image, BACKUP)[1]) == 1


@pytest.mark.parametrize("name", ["../outside", "/outside", "logs/../../outside"])
def test_a_backup_manifest_that_names_a_file_outside_the_backup_is_damaged(backup, name):
    contents = manifest.read(backup, BACKUP)
    contents.files = {**contents.files, name: manifest.BackupFile(0, 0)}
    manifest.write(backup, BACKUP, contents)
    with pytest.raises(Damaged, match="outside"):
        restore_backup(backup, BACKUP, "/data")


def test_a_manifest_of_a_later_version_raises_newer_format(backup):
    path = manifest.manifest_path(BACKUP)
    checkpoints.write_file(backup, path, manifest.KIND, manifest.VERSION + 1, b"")
    with pytest.raises(checkpoints.NewerFormat):
        restore_backup(backup, BACKUP, "/data")


@pytest.mark.slow
def test_a_power_cut_during_a_restore_leaves_the_whole_store_or_no_checkpoint(backup, expected):
    restore_backup(backup, BACKUP, "/data")
    backup.note("done")
    outcomes = set()
    for _, image in crash_images(backup, limit=200, seed=1):
        try:
            recovered = Driven(image, settings=SETTINGS)
        except StoreDamaged:
            assert not image.notes
            outcomes.add("refused")
            continue
        if recovered.store.last_unit:
            assert dump(recovered.store) == expected
            assert image.exists(mark_path("/data"))
            outcomes.add("whole")
        else:
            assert not image.notes
            outcomes.add("nothing was there")
    assert outcomes == {"refused", "whole", "nothing was there"}


@pytest.mark.slow
def test_an_error_during_a_restore_leaves_the_whole_store_or_no_checkpoint(backup, expected):
    def judge(image, contents):
        names = image.list("/data") if image.exists("/data") else []
        if contents is not None or "checkpoint-6" in names:  # it is written last; after it only unlocking can fail
            assert dump(Driven(image, settings=SETTINGS).store) == expected
        elif "journal" in names and image.list("/data/journal"):
            with pytest.raises(StoreDamaged, match="no checkpoint"):
                Driven(image, settings=SETTINGS)

    def work(image):
        try:
            return restore_backup(image, BACKUP, "/data")
        except BackupRefused as refused:  # the backup cannot be read
            raise OSError(errno.EIO, str(refused), BACKUP) from None

    ended = fail_each_step(lambda: backup.at(0), work, judge)
    assert ended > 10


def test_restoring_again_into_the_directory_of_an_unfinished_restore_is_refused(backup):
    restore_backup(backup, BACKUP, "/data")
    for name in backup.list("/data"):
        if name.startswith("checkpoint-"):
            backup.unlink(f"/data/{name}")
    with pytest.raises(BackupRefused, match="as a restore that was cut short leaves them"):
        restore_backup(backup, BACKUP, "/data")
