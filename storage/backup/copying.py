"""Copies files, with a checksum of every byte read, and makes the copies durable together.

The rule: files are copied, never linked, because the broker and a restored broker write to some of them.
"""

from collections.abc import Callable, Iterable

from crc32c import crc32c

from ...effects.disk import Disk, File
from ..system_errors import may_pass
from .manifest import BackupFile

CHUNK_BYTES = 4 << 20
SYNCED_AT_ONCE = 64

OnBytes = Callable[[int], None]
EMPTY = BackupFile(0, 0)


class Unreadable(Exception):
    """Raised if the device cannot read a file from some byte on. copied: size and checksum of the bytes before it,
    which were copied to the target.
    """

    def __init__(self, error: OSError, copied: BackupFile) -> None:
        super().__init__(f"at byte {copied.size_bytes}: {error.strerror or error}")
        self.copied = copied


def copy_range(source: File, target: File, begun: BackupFile, end: int, on_bytes: OnBytes) -> BackupFile:
    """Copy the bytes from where an earlier copy ended up to the position `end`, or up to the end of the source.

    begun: size and checksum of the bytes that the target has already.

    Returns size and checksum of the bytes that the target has now. Raises: Unreadable; DiskFull, OSError.
    """
    position, crc = begun
    while position < end:
        try:
            chunk = source.read(min(CHUNK_BYTES, end - position), position)
        except OSError as error:
            if may_pass(error):
                raise
            raise Unreadable(error, BackupFile(position, crc)) from error
        if not chunk:
            break
        target.write_past_cache([chunk], position)
        position += len(chunk)
        crc = crc32c(chunk, crc)
        on_bytes(len(chunk))
    return BackupFile(position, crc)


def checksum(file: File, on_bytes: OnBytes) -> BackupFile:
    """Return the size and checksum of a file. Raises: OSError."""
    position = crc = 0
    while chunk := file.read(CHUNK_BYTES, position):
        position += len(chunk)
        crc = crc32c(chunk, crc)
        on_bytes(len(chunk))
    return BackupFile(position, crc)


def sync_tree(disk: Disk, root: str, paths: Iterable[str]) -> None:
    """Make files below `root`, given by their relative paths, and all folders on the way to them durable."""
    names = sorted(paths)
    for first in range(0, len(names), SYNCED_AT_ONCE):
        files: list[File] = []
        try:
            files += (disk.open(f"{root}/{name}") for name in names[first : first + SYNCED_AT_ONCE])
            disk.sync_all(files)
        finally:
            for file in files:
                file.close()
    folders = {root}
    for name in names:
        parts = name.split("/")[:-1]
        folders.update(f"{root}/{'/'.join(parts[: depth + 1])}" for depth in range(len(parts)))
    disk.sync_all([], sorted(folders))


def remove_contents(disk: Disk, folder: str, keep: str = "") -> None:
    """Remove everything in a folder except the name `keep`. Raises: OSError."""
    for name in disk.list(folder):
        path = f"{folder}/{name}"
        if name == keep:
            continue
        if disk.is_directory(path):
            disk.remove_tree(path)
        else:
            disk.unlink(path)
