"""The mark of a data directory whose journal is in a store of objects: which store that is.

Without its journal the directory shows a past that the store has left behind, so it is not opened alone, nor with
another store. Byte by byte in docs/formats.md.
"""

from ..effects.disk import Disk
from . import checkpoints

KIND = "object store"
VERSION = 1
CUT_SHORT = b"cut short"  # in place of a store: a restore into the directory is not finished


def mark_path(directory: str) -> str:
    """Return the path of the mark."""
    return f"{directory}/store"


def read_mark(disk: Disk, directory: str) -> bytes | None:
    """Return what tells the store from others; None: the journal is here. Raises: checkpoints.Damaged, NewerFormat."""
    path = mark_path(directory)
    return checkpoints.read_file(disk, path, KIND, VERSION) if disk.exists(path) else None


def write_mark(disk: Disk, directory: str, identity: bytes) -> None:
    """Note that the journal of this directory is in a store."""
    checkpoints.write_file(disk, mark_path(directory), KIND, VERSION, identity)


def remove_mark(disk: Disk, directory: str) -> None:
    """Note that the journal of this directory is in it."""
    disk.unlink(mark_path(directory))
    disk.sync_directory(directory)
