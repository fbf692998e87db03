"""A start keeps journal parts for a log that it cannot open, and a power cut removes a file's or a folder's name."""

from posixpath import dirname

import pytest
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.operations import Link, Rename, SyncDirectory
from store_driver import DIRECTORY, Driven, values_of

KEPT = f"{DIRECTORY}/journal-parts"
ALL = [(0, b"a"), (1, b"acknowledged")]


def left_by_a_power_cut():
    """Return (disk, folder of a log) after a power cut: one record is in its segment, another one in the journal."""
    driver = Driven(SimulatedDisk())
    log = driver.create("t")
    driver.append(log, [b"a"])
    driver.round()
    driver.flush()
    driver.checkpoint()
    driver.append(log, [b"acknowledged"])
    driver.round(sync=True)
    return driver.disk.after_power_cut(), log.directory


@pytest.mark.slow
def test_losing_any_unsynced_file_name_while_keeping_journal_parts_loses_no_record():
    """A start keeps journal parts for an offline log; a power cut then removes one new name that is not synced yet,
    while all else reached the device.
    """
    disk, folder = left_by_a_power_cut()
    disk.rename(folder, "/aside")
    for changed in ("/", f"{DIRECTORY}/logs"):
        disk.sync_directory(changed)
    first = len(disk.operations)
    Driven(disk)
    named = [
        one for one in disk.operations[first:] if isinstance(one, Link | Rename) and dirname(one.path) == DIRECTORY
    ]
    assert KEPT in [one.path for one in named]
    for one in named:
        synced = next(each.index for each in disk.operations[one.index :] if is_sync_of(each, DIRECTORY))
        for number in range(one.index + 1, synced + 1):
            image = disk.at(number, dropped=(one.index,))
            if image.exists(folder):
                image.remove_tree(folder)
            image.rename("/aside", folder)  # as the hint says
            again = Driven(image)
            assert not again.report.offline, (str(one), number)
            assert values_of(again.log("t")) == ALL, (str(one), number)


def is_sync_of(operation, path):
    return isinstance(operation, SyncDirectory) and operation.path == path
