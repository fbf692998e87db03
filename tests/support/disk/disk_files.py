"""Whole files of a disk, whichever it is."""

from fencepost.effects.disk import Disk


def write(disk: Disk, path: str, data: bytes, position: int = 0, *, sync: bool = False) -> None:
    """Into a file that is made if it is not there."""
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
