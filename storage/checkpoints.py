"""Small files that are replaced as a whole: checkpoints and snapshots.

The rule: a reader finds either the old file or the new one, complete. A file is written under another name, synced and
renamed, and then the directory is synced. Its header has its kind, its version, and a checksum over all that follows
the checksum. The caller numbers the files and keeps two. docs/formats.md describes every byte. Why the syncs: on
ext4 and xfs a rename without them was seen undone.
"""

import errno
import os.path
import struct

from crc32c import crc32c

from ..effects.disk import Disk, File, TryLater

FORMAT = 1
LARGEST_BYTES = 1 << 30  # larger files are neither written nor read, so that a false length costs no memory

_HEADER = struct.Struct(">8sII16sIQ")  # magic, crc, format, kind, version, payload length
_MAGIC = b"FENCECHK"
_CHECKED = 12  # the checksum covers everything from here on
UNFINISHED = ".writing"


class Damaged(Exception):
    """Raised for a file of fencepost whose content is not what was written. The file is left as it is."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class NewerFormat(Exception):
    """Raised for an undamaged file that a later version of fencepost wrote."""

    def __init__(self, path: str, version: int) -> None:
        super().__init__(f"{path} has format {version}, which only a newer fencepost can read")
        self.path = path
        self.version = version


class TooLarge(TryLater):
    """Raised for a payload larger than read_file() accepts. Nothing was written; the previous file stays valid."""


def write_file(disk: Disk, path: str, kind: str, version: int, payload: bytes) -> None:
    """Write a file atomically: after a crash it is complete and durable, or unchanged.

    Raises: TooLarge, DiskFull (the unfinished file is removed); OSError.
    """
    head, payload = _packed(kind, version, payload, path)
    temporary = path + UNFINISHED
    file = disk.open(temporary, create=True)
    try:
        _fill(file, head, payload)
    except OSError:
        disk.unlink(temporary)
        raise
    finally:
        file.close()
    disk.rename(temporary, path)
    disk.sync_directory(os.path.dirname(path))


def read_file(disk: Disk, path: str, kind: str, newest_version: int) -> bytes:
    """Read a file's payload. Raises: Damaged; NewerFormat (only if the checksum is right); FileNotFoundError."""
    file = disk.open(path, read_only=True)
    try:
        size = file.size()
        if not _HEADER.size <= size <= LARGEST_BYTES:
            raise Damaged(path, f"its size of {size} bytes is too small or too large")
        content = file.read(size, 0)
    finally:
        file.close()
    return unpack_file(content, path, kind, newest_version)


def pack_file(kind: str, version: int, payload: bytes) -> bytes:
    """Return all bytes of a file with this payload, for files that are not kept on a disk. Raises: TooLarge."""
    return b"".join(_packed(kind, version, payload, kind))


def unpack_file(content: bytes, path: str, kind: str, newest_version: int) -> bytes:
    """Return the payload of a whole file, as read_file() does. Raises: Damaged, NewerFormat."""
    size = len(content)
    if size < _HEADER.size:
        raise Damaged(path, f"its size of {size} bytes is too small")
    magic, crc, container, found, version, length = _HEADER.unpack_from(content)
    if magic != _MAGIC:
        raise Damaged(path, "it does not begin as a checkpoint")
    if crc32c(memoryview(content)[_CHECKED:]) != crc:
        raise Damaged(path, "it fails its checksum")
    if container != FORMAT:
        raise NewerFormat(path, container)
    if found != _kind(kind):
        raise Damaged(path, f"it is a {found.rstrip(bytes(1)).decode('ascii', 'replace')!r}, not a {kind!r}")
    if length != size - _HEADER.size:
        raise Damaged(path, f"it has {size - _HEADER.size} bytes of content and says {length}")
    if version > newest_version:
        raise NewerFormat(path, version)
    return content[_HEADER.size :]


def kind_of(content: bytes) -> str:
    """Return the kind in a file's header; "" if the file is not one of fencepost's. The checksum is not checked."""
    if len(content) < _HEADER.size or not content.startswith(_MAGIC):
        return ""
    kind: bytes = _HEADER.unpack_from(content)[3]
    return kind.rstrip(bytes(1)).decode("ascii", "replace")


def _packed(kind: str, version: int, payload: bytes, path: str) -> tuple[bytes, bytes]:
    """Return header and payload of a file. Raises TooLarge."""
    if _HEADER.size + len(payload) > LARGEST_BYTES:
        raise TooLarge(errno.EFBIG, f"{len(payload)} bytes are more than it may have", path)
    rest = _HEADER.pack(_MAGIC, 0, FORMAT, _kind(kind), version, len(payload))[_CHECKED:]
    return _MAGIC + crc32c(payload, crc32c(rest)).to_bytes(4, "big") + rest, payload


def _fill(file: File, head: bytes, payload: bytes) -> None:
    """Write header and payload to an unfinished file, and sync it."""
    if file.size():
        file.truncate(0)  # a crash left it
    file.write([head, payload], 0)
    file.sync()


def _kind(kind: str) -> bytes:
    """Return the kind as the 16 bytes of a header. Raises ValueError if it is longer."""
    packed = kind.encode("ascii")
    if len(packed) > 16:
        raise ValueError(f"{kind!r} is longer than 16 bytes")
    return packed.ljust(16, b"\0")
