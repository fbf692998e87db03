"""A backup of a simulated data directory, restored on a disk of its own."""

import random

from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.storage.backup.restore import restore_backup
from fencepost.storage.backup.take import take_backup
from travelling_disk import TravellingDisk

BACKUP = "/backups/one"


def restored_beside(
    recorded: SimulatedDisk, first: int, pace: int, directory: str = "/data", seed: int = 0
) -> tuple[SimulatedDisk, int]:
    """Back up a directory while a recorded workload goes on, and restore it. Returns the disk with what was restored,
    and after how many operations of the workload the backup had read its last byte.

    The backup begins after `first` operations; up to `pace` more are done between two of its calls to the disk.
    """
    rng = random.Random(f"{first} {pace} {seed}")
    beside = TravellingDisk(recorded, first, lambda: rng.randint(0, pace))
    target = SimulatedDisk()
    contents = take_backup(beside, directory, target, BACKUP, made_by="test", taken_ms=1)
    assert not contents.warnings
    ended = beside.now
    restore_backup(target, BACKUP, directory)
    return target.after_power_cut(), ended


def restored_copy(disk: SimulatedDisk, directory: str) -> SimulatedDisk:
    """Back up the directory as it is now, and return a disk with what is restored of it."""
    return restored_beside(disk, len(disk.operations), 0, directory)[0]


def first_checkpoint(recorded: SimulatedDisk) -> int:
    """Return the number of operations after which a new data directory can be recovered: its start has written
    checkpoints 1 and 2, then begun a journal, and checkpoint 3 names that.
    """
    return next(n for n, operation in enumerate(recorded.operations, 1) if "checkpoint-3" in str(operation))


FACTS = {"made_by": "1.2.3", "taken_ms": 1_795_000_000_000}


def overwrite(disk: SimulatedDisk, path: str, position: int, data: bytes) -> None:
    file = disk.open(path)
    file.write([data], position)
    file.close()


def paths_below(disk: SimulatedDisk, folder: str) -> list[str]:
    """Return the paths of all files below the folder, at any depth."""
    found = []
    for name in disk.list(folder):
        path = f"{folder}/{name}"
        found += paths_below(disk, path) if disk.is_directory(path) else [path]
    return found
