"""Writes and reads whole files of any disk; and a disk on which everything is durable."""

from fencepost.effects.disk import Disk
from fencepost.effects.simulated.disk import SimulatedDisk


def write(disk: Disk, path: str, data: bytes, position: int = 0, *, sync: bool = False) -> None:
    """Write bytes into a file, which is created if it does not exist."""
    file = disk.open(path, create=True)
    file.write([data], position)
    if sync:
        file.sync()
    file.close()


def read(disk: Disk, path: str) -> bytes:
    file = disk.open(path)
    try:
        return file.read(file.size(), 0)
    finally:
        file.close()


def all_durable(disk: SimulatedDisk) -> SimulatedDisk:
    """Return a disk on which also what was not synced is durable, as some time after a kill without a power cut."""
    return disk.found(disk._seen)
