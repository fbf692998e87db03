"""Many files synced together: each once, an error is raised, and the pool of open files keeps to its limit."""

from itertools import pairwise

import pytest
from fencepost.effects.simulated.operations import Sync, SyncDirectory
from fencepost.storage.log.flush import SyncJob, run_syncs
from fencepost.storage.log.open_files import OpenFiles

COUNT = 100


def write(files, path):
    with files.use(path, create=True) as file:
        files.wrote(path)
        file.write([b"x"], 0)


def jobs(disk, files):
    made = []
    for i in range(COUNT):
        disk.make_directory(f"/logs/{i}")
        write(files, f"/logs/{i}/log")
        made.append(SyncJob(files, {f"/logs/{i}/log": 1}, {f"/logs/{i}": 1, "/logs": 1}))
    return made


def synced(disk):
    return [one.path for one in disk.operations if isinstance(one, Sync | SyncDirectory)]


def test_run_syncs_syncs_every_file_and_each_directory_once(disk):
    run_syncs(jobs(disk, OpenFiles(disk, limit=1000)))
    assert len(synced(disk)) == 2 * COUNT + 1
    disk.sync_directory("/")
    found = disk.after_power_cut()
    assert all(found.size(f"/logs/{i}/log") == 1 for i in range(COUNT))


def test_run_syncs_raises_if_one_of_many_syncs_fails(disk):
    made = jobs(disk, OpenFiles(disk, limit=1000))
    disk.fail_sync(lambda path: path == "/logs/7/log")
    with pytest.raises(OSError, match="/logs/7/log"):
        run_syncs(made)


def test_run_syncs_with_an_empty_list_syncs_nothing(disk):
    run_syncs([])
    assert synced(disk) == []


def test_make_room_syncs_more_than_eight_files_each_time_on_average(disk):
    files = OpenFiles(disk, limit=20)
    for i in range(COUNT):
        write(files, f"/{i}")
        files.make_room()
    assert len(files) <= 20
    times = sum(isinstance(one, Sync) and not isinstance(before, Sync) for before, one in pairwise(disk.operations))
    assert times < COUNT / 8
