"""Units of the journal for a log that could not be opened: they are kept in files until the log can apply them.

Every start begins a new journal, so the units that the old one had for such a log are copied to files of their own.
These are outside of the log's folder, because people may replace that folder by a copy. A file is named after the
folder, with the incarnation (start counter) of the start that wrote it. The file counts if that start wrote a
checkpoint; otherwise the journal still has everything, and the file is removed. docs/formats.md describes every byte.
"""

import re
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from ...effects.disk import Buffer, Disk
from ...protocol import batches
from ...protocol.batches import CorruptBatch
from .. import checkpoints, layout
from .journal import APPEND, LOG_START, Part

KIND = "journal parts"
VERSION = 1
FILE_BYTES = 64 << 20  # a file ends with the part that makes it this large, since a start reads it into memory whole
OLD_PREFIX = "journal-parts-"  # up to version 0.1 these files were in the log's own folder, and had only batches

_HEAD = Struct(">BqI")  # kind, offset, length
_OLD_NAME = re.compile(OLD_PREFIX + r"(0|[1-9][0-9]*)")
_NAME = re.compile(r"(.+)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)")


class KeptFile(NamedTuple):
    """A file of kept parts, by its name."""

    log_id: int
    incarnation: int
    number: int
    name: str


def parse_name(name: str) -> KeptFile | None:
    """Parse the name of a file of kept parts; None for any other name."""
    found = _NAME.fullmatch(name)
    log = layout.parse_log_directory_name(found[1]) if found else None
    return KeptFile(log[2], int(found[2]), int(found[3]), name) if found and log else None


def list_files(disk: Disk, directory: str) -> tuple[list[KeptFile], list[str]]:
    """Return (all files of kept parts in the order of their writing, the names of half-written ones)."""
    folder = layout.kept_parts_directory(directory)
    names = disk.list(folder) if disk.exists(folder) else []
    files = sorted(found for name in names if (found := parse_name(name)) is not None)
    return files, [name for name in names if _is_unfinished(name)]


def _is_unfinished(name: str) -> bool:
    """Return whether this is the name of a file of kept parts whose writing was cut short."""
    whole = name.removesuffix(checkpoints.UNFINISHED)
    return whole != name and parse_name(whole) is not None


def list_old_names(names: Sequence[str]) -> list[str]:
    """Return the names of files of kept parts that older versions wrote into a log's folder, in order."""
    numbers = [int(found[1]) for name in names if (found := _OLD_NAME.fullmatch(name))]
    return [f"{OLD_PREFIX}{number}" for number in sorted(numbers)]


def write(disk: Disk, directory: str, log_directory_name: str, incarnation: int, parts: Sequence[Part]) -> list[str]:
    """Write the parts (changes) of one log durably. Returns the paths of the new files. Raises: DiskFull, OSError."""
    folder = layout.kept_parts_directory(directory)
    if not disk.exists(folder):
        disk.make_directory(folder)
        disk.sync_directory(directory)
    paths: list[str] = []
    for number, payload in enumerate(_payloads(parts)):
        paths.append(f"{folder}/{log_directory_name}.{incarnation}.{number}")
        checkpoints.write_file(disk, paths[-1], KIND, VERSION, payload)
    return paths


def _payloads(parts: Sequence[Part]) -> Iterator[bytes]:
    """Encode the parts. Yields the contents of files of about FILE_BYTES each."""
    pieces: list[Buffer] = []
    size_bytes = 0
    for part in parts:
        length = sum(map(len, part.data))
        pieces += _HEAD.pack(part.kind, part.offset, length), *part.data
        size_bytes += length
        if size_bytes >= FILE_BYTES:
            yield b"".join(pieces)
            pieces, size_bytes = [], 0
    if pieces:
        yield b"".join(pieces)


def read(disk: Disk, path: str, log_id: int) -> list[Part]:
    """Read the parts in a file. Raises: checkpoints.Damaged, checkpoints.NewerFormat, OSError."""
    payload = memoryview(checkpoints.read_file(disk, path, KIND, VERSION))
    parts: list[Part] = []
    at = 0
    while at < len(payload):
        begin = at + _HEAD.size
        kind, offset, length = _HEAD.unpack_from(payload, at) if begin <= len(payload) else (0, 0, 0)
        at = begin + length
        if kind not in (APPEND, LOG_START) or at > len(payload):
            raise checkpoints.Damaged(path, f"its part {len(parts)} does not parse")
        parts.append(Part(kind, log_id, offset, (payload[begin:at],)))
    return parts


def read_old(disk: Disk, path: str, log_id: int) -> tuple[list[Part], str]:
    """Return (the valid batches at the beginning of a file of an older version, an error message for the rest or "").

    Raises: OSError.
    """
    file = disk.open(path, read_only=True)
    try:
        content = memoryview(file.read(file.size(), 0))
    finally:
        file.close()
    parts: list[Part] = []
    at = 0
    while at < len(content):
        try:
            batch = batches.read(content, at)
            batches.verify(batch)
        except CorruptBatch as problem:
            return parts, f"at byte {at}: {problem.reason}"
        parts.append(Part(APPEND, log_id, batch.base_offset, (content[at : at + batch.size],)))
        at += batch.size
    return parts, ""
