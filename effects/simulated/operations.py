"""The operations on a simulated disk, as records.

The rule: an operation names inodes and not only paths, and contains its whole effect, so that it can be applied even if
an earlier one was lost, as on a device that reorders writes. Operations on data become durable by a Sync of their
inode, operations on names by a SyncDirectory of their directory (a rename between two directories: of the new one).
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Operation:
    index: int  # its number in the disk's history
    path: str

    def __str__(self) -> str:
        return f"#{self.index} {type(self).__name__.lower()} {self.path}"


@dataclass(frozen=True, slots=True)
class Write(Operation):
    inode: int
    position: int
    data: bytes

    def __str__(self) -> str:
        return f"#{self.index} write {self.path} {self.position}+{len(self.data)}"


@dataclass(frozen=True, slots=True)
class Truncate(Operation):
    inode: int
    size: int


@dataclass(frozen=True, slots=True)
class Extend(Operation):
    """A file grows by NUL bytes. No program does this, but a crash may leave a file like that (ext4)."""

    inode: int
    size: int


@dataclass(frozen=True, slots=True)
class Link(Operation):
    """A file or directory gets its first name."""

    directory: int
    name: str
    inode: int
    is_directory: bool = False


@dataclass(frozen=True, slots=True)
class Rename(Operation):
    directory: int
    name: str
    inode: int
    new_directory: int
    new_name: str


@dataclass(frozen=True, slots=True)
class Unlink(Operation):
    directory: int
    name: str
    inode: int


@dataclass(frozen=True, slots=True)
class Sync(Operation):
    """A sync of all earlier operations on the inode. only: just of the write with that index."""

    inode: int
    failed: bool = False
    only: int | None = None


@dataclass(frozen=True, slots=True)
class SyncDirectory(Operation):
    directory: int
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Unrecorded(Operation):
    """An operation that changes nothing. Faults can match it, but it is not in a history."""


@dataclass(frozen=True, slots=True)
class Read(Unrecorded):
    position: int
    size: int


@dataclass(frozen=True, slots=True)
class Open(Unrecorded):
    """An existing file is opened. (Creating one is a Link.)"""


@dataclass(frozen=True, slots=True)
class Stat(Unrecorded):
    """A path is looked up: whether it exists, is a directory, its size."""


@dataclass(frozen=True, slots=True)
class List(Unrecorded):
    """A directory is listed."""


@dataclass(frozen=True, slots=True)
class Note(Operation):
    """A value that a test recorded at this moment, for example which records were acknowledged."""

    value: Any


DataOperation = Write | Truncate
NameOperation = Link | Rename | Unlink
