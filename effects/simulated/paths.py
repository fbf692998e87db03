"""Paths on a simulated disk, and the directories that its process has locked: like effects/disk/held.py, but with
inodes instead of descriptors.

A path is absolute or taken from the root.
"""

import errno
import posixpath
from collections.abc import Mapping, Sequence
from functools import lru_cache

from ..disk_errors import DirectoryMoved
from .faults import os_error
from .volume import ROOT, Volume


@lru_cache(100_000)
def clean(path: str) -> str:
    """Return the normal form of a path."""
    return posixpath.normpath(f"/{path}").replace("//", "/")


@lru_cache(100_000)
def parts(path: str) -> Sequence[str]:
    """Return the names on the path from the root."""
    return tuple(name for name in clean(path).split("/") if name)


def check_replaceable(
    directories: Mapping[int, Mapping[str, int]], inode: int, replaced: int | None, path: str
) -> None:
    """Raise an OSError if a rename of `inode` may not replace the inode `replaced`: a directory by a file, for example.

    directories: the contents of each, by inode. path: the new one.
    """
    if replaced in directories and inode not in directories:
        raise os_error(errno.EISDIR, path)
    if inode in directories and replaced not in directories:
        raise os_error(errno.ENOTDIR, path)
    if replaced is not None and directories.get(replaced):
        raise os_error(errno.ENOTEMPTY, path)


class HeldInodes:
    """The directories that one process has locked: paths below theirs are looked up from their inodes."""

    def __init__(self) -> None:
        self._held: dict[str, int] = {}

    def add(self, directory: str, inode: int) -> None:
        self._held[clean(directory)] = inode

    def remove(self, directory: str) -> None:
        self._held.pop(clean(directory), None)

    def locate(self, path: str) -> tuple[int, Sequence[str]]:
        """Return the inode at which to begin the lookup of a path, and the names to follow from there."""
        names = parts(path)
        for directory, inode in self._held.items():
            above = parts(directory)
            if names[: len(above)] == above:
                return inode, names[len(above) :]
        return ROOT, names

    def check_not_moved(self, path: str, seen: Volume) -> None:
        """Raise DirectoryMoved if the path is below a locked directory that was moved away."""
        for directory, inode in self._held.items():
            above = parts(directory)
            if parts(path)[: len(above)] == above and seen.lookup(above) != inode:
                raise DirectoryMoved(directory)
