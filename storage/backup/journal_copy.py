"""Copies the journal up to its last complete round, while a broker goes on writing to it.

The rule: the journal is scanned as at a start; the good rounds are copied and compared with the scan, and what
follows the last good round is left out. Rounds are written one after the other, so the copy has every round that was
complete when the scan began, and each with all rounds before it.

A scan beside a writing broker may report damage that is none: a round was incomplete when it was read, and the next
one was complete when that was read. At a second scan both are complete. So damage is believed only if several scans
in a row report it at the same place.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from crc32c import crc32c

from ...effects.disk import Disk
from ..journal.format import BLOCK_BYTES, ROUND_HEADER_BYTES, Malformed, UnknownFormat, blocks, read_file_header
from ..journal.reading import FoundFile, JournalDamaged, Reader
from ..journal.scan import Scan
from ..store_checkpoint import StoreCheckpoint, scan_journal
from .copying import OnBytes
from .manifest import BackupFile

ATTEMPTS = 100
BELIEVED_AFTER = 3  # scans in a row that report the same damage


class Changed(Exception):
    """The journal has changed since it was scanned: the broker has reused its files."""


def judge_beside(disk: Disk, directory: str, start: StoreCheckpoint, check_holds: Callable[[], None]) -> Scan:
    """Scan the journal's units (entries) after a checkpoint, while a broker may be writing. If files change during a
    scan, the scan is repeated, ATTEMPTS times at most.

    check_holds: raises if the broker has removed the checkpoint meanwhile.

    Raises: JournalDamaged, if several scans find the same damage; Changed, if files changed during each scan;
    NewerFormat, OSError.
    """
    verdicts: list[tuple[str, int]] = []
    for _ in range(ATTEMPTS):
        try:
            return scan_journal(disk, directory, start)
        except FileNotFoundError:
            check_holds()
        except JournalDamaged as damage:
            check_holds()
            verdicts.append((damage.path, damage.position))
            if verdicts[-BELIEVED_AFTER:] == [verdicts[-1]] * BELIEVED_AFTER:
                raise
    raise Changed


def copy_judged(disk: Disk, found: Scan, target: Disk, directory: str, on_bytes: OnBytes) -> dict[str, BackupFile]:
    """Copy the rounds that a scan found valid (a round is what one write of the journal holds), file by file, each
    filled up with zeros to its full size. The last file may have no round yet: then only its header is copied.

    Returns the copied files by name. Raises: Changed, FileNotFoundError; DiskFull, OSError.
    """
    copies: dict[str, BackupFile] = {}
    checksums = iter(found.checksums)
    for one, rounds in zip(found.files, found.rounds, strict=False):
        name = one.path.rsplit("/", 1)[-1]
        file = target.open(f"{directory}/{name}", create=True)
        try:
            file.truncate(0)
            file.truncate(one.header.size_bytes)
            crc = position = 0
            with Reader(disk, one) as reader:
                for piece in checked_pieces(reader, one, list(islice(checksums, rounds))):
                    file.write([piece], position)
                    crc = crc32c(piece, crc)
                    position += len(piece)
                    on_bytes(len(piece))
            copies[name] = BackupFile(one.header.size_bytes, _with_zeros(crc, one.header.size_bytes - position))
        finally:
            file.close()
    return copies


def checked_pieces(reader: Reader, found: FoundFile, checksums: Sequence[int]) -> Iterator[bytes]:
    """Yield the header of a file, then its rounds one by one, each compared with what the scan found. Raises Changed if
    one differs.
    """
    head = bytes(reader.view(0, BLOCK_BYTES))
    try:
        if read_file_header(head) != found.header:
            raise Changed
    except (Malformed, UnknownFormat):
        raise Changed from None
    yield head
    position = BLOCK_BYTES
    for checksum in checksums:
        header = reader.round_header(position)
        if header is None or header.length > reader.size - position - ROUND_HEADER_BYTES:
            raise Changed
        size = min(blocks(ROUND_HEADER_BYTES + header.length), reader.size - position)
        piece = bytes(reader.view(position, size))
        if crc32c(memoryview(piece)[ROUND_HEADER_BYTES : ROUND_HEADER_BYTES + header.length]) != checksum:
            raise Changed
        yield piece
        position += size


def _with_zeros(crc: int, count: int) -> int:
    """Return the checksum extended by `count` zero bytes."""
    zeros = bytes(1 << 20)
    while count > 0:
        crc = crc32c(memoryview(zeros)[:count], crc)
        count -= len(zeros)
    return crc
