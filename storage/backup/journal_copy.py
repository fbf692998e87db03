"""A copy of the journal up to its last whole round, beside a broker that goes on writing to it.

The rule: what was judged good is copied, and compared with that judgement while it is copied; what stands behind the
last good round is left out. Rounds are written one after the other, so every round that was complete when the reading
began is in the copy, and none is without those before it.

A verdict of damage may come of the race itself: a round that was not there yet when it was looked at, and one behind it
that came meanwhile. Read again, the first is there, for it was complete before the second was begun. So only a verdict
that comes back for the same place is believed.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from crc32c import crc32c

from ...effects.disk import Disk
from .. import layout
from ..journal.format import BLOCK_BYTES, ROUND_HEADER_BYTES, Malformed, UnknownFormat, blocks, read_file_header
from ..journal.reading import FoundFile, JournalDamaged, Reader
from ..journal.scan import Scan, scan
from ..store_checkpoint import StoreCheckpoint
from .copying import OnBytes
from .manifest import BackupFile

ATTEMPTS = 100
BELIEVED_AFTER = 3  # equal verdicts of damage in a row


class Changed(Exception):
    """The journal was not what it had been a moment before: its files were used again."""


def judge_beside(disk: Disk, directory: str, start: StoreCheckpoint, check_holds: Callable[[], None]) -> Scan:
    """What the journal holds above a checkpoint. check_holds: raises if the checkpoint is not kept any more.

    Raises: JournalDamaged, NewerFormat, OSError; Changed, if it never held still.
    """
    verdicts: list[tuple[str, int]] = []
    for _ in range(ATTEMPTS):
        try:
            return scan(
                disk,
                layout.journal_directory(directory),
                checkpointed_unit=start.through_unit,
                synced_unit=start.synced_unit,
                incarnation=start.journal_incarnation or None,
            )
        except FileNotFoundError:
            check_holds()
        except JournalDamaged as damage:
            check_holds()
            verdicts.append((damage.path, damage.position))
            if verdicts[-BELIEVED_AFTER:] == [verdicts[-1]] * BELIEVED_AFTER:
                raise
    raise Changed


def copy_judged(disk: Disk, found: Scan, target: Disk, directory: str, on_bytes: OnBytes) -> dict[str, BackupFile]:
    """Write the files that hold good rounds, or would hold the next, with these and zeros behind.

    Returns them by name. Raises: Changed, FileNotFoundError; DiskFull, OSError.
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
                for piece in _pieces(reader, one, list(islice(checksums, rounds))):
                    file.write([piece], position)
                    crc = crc32c(piece, crc)
                    position += len(piece)
                    on_bytes(len(piece))
            copies[name] = BackupFile(one.header.size_bytes, _with_zeros(crc, one.header.size_bytes - position))
        finally:
            file.close()
    return copies


def _pieces(reader: Reader, found: FoundFile, checksums: Sequence[int]) -> Iterator[bytes]:
    """The header of a file, and its rounds, each as it was judged. Raises: Changed."""
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
    zeros = bytes(1 << 20)
    while count > 0:
        crc = crc32c(memoryview(zeros)[:count], crc)
        count -= len(zeros)
    return crc
