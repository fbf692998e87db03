"""The mark of a data directory whose journal is in an object store: which store that is.

Without that journal the directory would show an old state, so it is opened neither alone nor with another store. Byte
by byte in docs/formats.md.
"""

import struct
from typing import NamedTuple

from ..effects.disk import Disk
from . import checkpoints

KIND = "object store"
VERSION = 1
IDENTITY_BYTES = 16
_ADOPTING = struct.Struct(">I")
CUT_SHORT = b"cut short"  # in place of a store: a restore into the directory is not finished


def mark_path(directory: str) -> str:
    """Return the path of the mark."""
    return f"{directory}/store"


class Mark(NamedTuple):
    """The content of the mark. identity: the random bytes that identify the store.

    adopting: the epoch in which the directory was to be put into that store, if that was not finished; 0 if it was.
    """

    identity: bytes
    adopting: int = 0


def read_mark(disk: Disk, directory: str) -> Mark | None:
    """Return the mark of a directory whose journal is in an object store; None if the journal is in this directory.

    Raises: checkpoints.Damaged, NewerFormat.
    """
    path = mark_path(directory)
    if not disk.exists(path):
        return None
    payload = checkpoints.read_file(disk, path, KIND, VERSION)
    if len(payload) == IDENTITY_BYTES + _ADOPTING.size:
        return Mark(payload[:IDENTITY_BYTES], _ADOPTING.unpack(payload[IDENTITY_BYTES:])[0])
    return Mark(payload)


def write_mark(disk: Disk, directory: str, mark: Mark) -> None:
    """Write the mark which says that the directory's journal is in an object store, or is being moved there. Durable on
    return.
    """
    adopting = _ADOPTING.pack(mark.adopting) if mark.adopting else b""
    checkpoints.write_file(disk, mark_path(directory), KIND, VERSION, mark.identity + adopting)


def remove_mark(disk: Disk, directory: str) -> None:
    """Remove the mark of an object store: from now on the directory has its own journal. Durable on return."""
    disk.unlink(mark_path(directory))
    disk.sync_directory(directory)
