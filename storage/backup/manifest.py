"""What a backup consists of: its folder, and the file that names every other with size and checksum.

The rule: the manifest is written last, when all other files are synced. Without it a backup is incomplete and not
usable. Byte by byte in docs/formats.md.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

import msgpack

from ...effects.disk import Disk
from .. import checkpoints

KIND = "backup"
VERSION = 1
NAME = "manifest"
DATA = "data"


class BackupRefused(Exception):
    """Raised if no backup was made, or nothing was restored. hint: what to do about it."""

    def __init__(self, cause: str, hint: str) -> None:
        super().__init__(cause)
        self.hint = hint


class BackupFile(NamedTuple):
    """A file of the backup. crc: CRC-32C of all its bytes."""

    size_bytes: int
    crc: int


@dataclass(slots=True)
class Contents:
    """The content of the manifest.

    last_unit: number of the newest change that the backup has. running: whether a broker served from the directory
    while the backup was taken. warnings: what was damaged or missing in the directory already. files: by their paths
    below `data`.
    """

    made_by: str
    taken_ms: int
    running: bool
    checkpoint: int
    last_unit: int
    warnings: list[str] = field(default_factory=list)
    files: Mapping[str, BackupFile] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files.values())


def manifest_path(backup: str) -> str:
    """Return the path of the manifest in the folder of a backup."""
    return f"{backup}/{NAME}"


def data_path(backup: str) -> str:
    """Return the path of the data directory inside a backup."""
    return f"{backup}/{DATA}"


def write(disk: Disk, backup: str, contents: Contents) -> None:
    """Write the manifest, which completes the backup. Raises: DiskFull, OSError."""
    fields = asdict(contents)
    fields["files"] = {path: list(file) for path, file in contents.files.items()}
    checkpoints.write_file(disk, manifest_path(backup), KIND, VERSION, msgpack.packb(fields))


def read(disk: Disk, backup: str) -> Contents:
    """Read the manifest. Raises: checkpoints.Damaged, checkpoints.NewerFormat, FileNotFoundError."""
    payload = checkpoints.read_file(disk, manifest_path(backup), KIND, VERSION)
    try:
        fields = msgpack.unpackb(payload)
        files = fields["files"] = {path: BackupFile(*file) for path, file in dict(fields["files"]).items()}
        if any((type(path), *map(type, file)) != (str, int, int) for path, file in files.items()):
            raise ValueError("a file of it has no name, size or checksum")
        return Contents(**fields)
    except (ValueError, TypeError, KeyError, msgpack.UnpackException) as error:
        raise checkpoints.Damaged(manifest_path(backup), f"its contents do not parse: {error}") from error
