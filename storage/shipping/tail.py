"""Reads on in a journal that a broker writes to: complete rounds, one after the other, from where the last look (read)
ended.

The rule: a round counts if it is valid and has the next number. At the first place without such a round this look ends,
and the next one begins there. What is there may be incomplete, so nothing is judged as damage here. Each round has
checksums that say for which start, file, place and number it is, so a file that is reused while it is read yields no
wrong round. The end of a file is taken only together with the beginning of the next one: a journal whose last file says
that another follows would count as damaged without it.
"""

from collections.abc import Iterator
from itertools import islice

from ...effects.disk import Disk
from .. import layout
from ..backup.journal_copy import Changed, checked_pieces
from ..journal.format import (
    BLOCK_BYTES,
    ROUND_HEADER_BYTES,
    FileHeader,
    Malformed,
    UnknownFormat,
    blocks,
    read_file_header,
    read_round_header,
)
from ..journal.preparing import file_name
from ..journal.reading import FoundFile, JournalDamaged, Reader, read_header, round_fault
from ..journal.scan import Scan
from .point import JournalPlace, Piece


class Look:
    """What one look (read of the journal) has found. complete: it reached the last complete round."""

    def __init__(self, goes_on: JournalPlace) -> None:
        """goes_on: where the look begins; it is moved past each round that was read."""
        self.pieces: list[Piece] = []
        self.goes_on = goes_on
        self.complete = True
        self.size_bytes = 0

    @property
    def last_unit(self) -> int:
        """The number of the last unit that was found."""
        return self.goes_on.unit - 1

    def add(self, found: FoundFile, position: int, data: bytes) -> None:
        """Add bytes of a file at this position; if they follow the last piece, they are appended to it."""
        self.size_bytes += len(data)
        name = found.path.rpartition("/")[2]
        last = self.pieces[-1] if self.pieces else None
        if last is not None and last.file == name and last.position + len(last.data) == position:
            self.pieces[-1] = last._replace(data=last.data + data)
        else:
            self.pieces.append(Piece(name, found.header.size_bytes, position, data))


def read_on(disk: Disk, directory: str, place: JournalPlace, max_bytes: int) -> Look:
    """Read the complete rounds of the journal from this place on, until no more follow or max_bytes are reached; at
    least one round if there is one.

    Raises Changed if the file of that place is gone or was reused; OSError.
    """
    look = Look(place)
    try:
        found = _file(disk, directory, place.sequence)
        if found is None or found.header.incarnation != place.incarnation:
            raise Changed
        while found is not None:
            found = _read_file(disk, directory, found, look, max_bytes)
    except FileNotFoundError:
        raise Changed from None
    return look


def _read_file(disk: Disk, directory: str, found: FoundFile, look: Look, max_bytes: int) -> FoundFile | None:
    """Read complete rounds of one file, from look.goes_on on, and add them to the look. Returns the next file if this
    one has ended; None if no complete round follows now, or max_bytes are reached (then look.complete is False).
    """
    with Reader(disk, found) as reader:
        collected: list[bytes] = []
        begin = look.goes_on.position
        size_bytes = 0
        following: FoundFile | None = None
        while True:
            position = look.goes_on.position
            if look.size_bytes + size_bytes >= max_bytes:
                look.complete = False
                break
            header = reader.round_header(position)
            if header is None or round_fault(reader, position, header):
                break
            if look.goes_on.round and (header.round, header.first_unit) != (look.goes_on.round, look.goes_on.unit):
                break
            if header.ends_file:
                following = _next_file(disk, directory, found.header)
                if following is None:
                    break
            size = min(blocks(ROUND_HEADER_BYTES + header.length), reader.size - position)
            collected.append(bytes(reader.view(position, size)))
            size_bytes += size
            look.goes_on = JournalPlace(
                header.incarnation, found.header.sequence, position + size, header.round + 1, header.last_unit + 1
            )
            if following is not None:
                break
    if collected:
        look.add(found, begin, b"".join(collected))
    if following is not None:
        look.add(following, 0, _header_block(disk, following))
        look.goes_on = look.goes_on._replace(sequence=following.header.sequence, position=BLOCK_BYTES)
    return following


def _next_file(disk: Disk, directory: str, header: FileHeader) -> FoundFile | None:
    """Return the file after the one with this header; None if it is not ready yet, or gone already."""
    try:
        found = _file(disk, directory, header.sequence + 1)
    except FileNotFoundError:
        return None
    return found if found is not None and found.header.incarnation == header.incarnation else None


def _file(disk: Disk, directory: str, sequence: int) -> FoundFile | None:
    """Return the journal file with this number; None if its header is not valid or has another number, as while the
    file is being prepared.

    Raises FileNotFoundError.
    """
    path = f"{layout.journal_directory(directory)}/{file_name(sequence)}"
    try:
        found = read_header(disk, path)
    except JournalDamaged:
        return None
    return found if found.header.sequence == sequence else None


def _header_block(disk: Disk, found: FoundFile) -> bytes:
    """Return the first block of a file. Raises Changed if the file was reused meanwhile."""
    with Reader(disk, found) as reader:
        block = bytes(reader.view(0, BLOCK_BYTES))
    try:
        if read_file_header(block) == found.header:
            return block
    except (Malformed, UnknownFormat):
        pass
    raise Changed


class JudgedJournal:
    """The rounds of a journal that a scan found valid, with the headers of their files.

    goes_on: where the next round comes, once all pieces were read.
    """

    def __init__(self, disk: Disk, found: Scan) -> None:
        """found: the result of the scan, with the checksum of each round."""
        self._disk = disk
        self._found = found
        round_number = 0
        if found.files and found.files[0].header.sequence == found.files[0].header.first_file:
            round_number = found.files[0].header.first_round
        self.goes_on = JournalPlace(found.incarnation, 0, BLOCK_BYTES, round_number, found.last_unit + 1)

    def pieces(self) -> Iterator[Piece]:
        """Yield all bytes in their order: of each file its header, then its rounds one by one. Afterwards goes_on is
        the place after the last round. Raises: Changed, FileNotFoundError, OSError.
        """
        checksums = iter(self._found.checksums)
        for one, rounds in zip(self._found.files, self._found.rounds, strict=False):
            name = one.path.rpartition("/")[2]
            position = 0
            with Reader(self._disk, one) as reader:
                for data in checked_pieces(reader, one, list(islice(checksums, rounds))):
                    if position:
                        self._note_round(data, one, position)
                    yield Piece(name, one.header.size_bytes, position, data)
                    position += len(data)
            self.goes_on = self.goes_on._replace(sequence=one.header.sequence, position=position)

    def _note_round(self, data: bytes, found: FoundFile, position: int) -> None:
        """Set the round number of goes_on to the one after this round. Raises Changed if its header cannot be read."""
        header = read_round_header(data, found.header.seed, position)
        if header is None:
            raise Changed
        self.goes_on = self.goes_on._replace(round=header.round + 1)
