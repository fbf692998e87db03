"""Writes and reads whole files of any disk."""

from fencepost.effects.disk import Disk


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
