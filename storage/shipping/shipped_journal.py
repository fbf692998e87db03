"""Which bytes of the journal a point and the rounds after it have, so that the next point need not ship them again.
Pure.

The rule: a file counts if the store has it from its first byte on, in few extents. Either all files that a checkpoint
needs count, up to the rounds that it covers, or none does: then the journal is scanned and shipped again.
"""

from collections.abc import Iterable, Mapping

from crc32c import crc32c

from ..journal.preparing import file_name, file_sequence
from ..store_checkpoint import StoreCheckpoint
from .planning import MAX_SMALL_EXTENTS, joined
from .point import Extent, JournalPlace, Piece, ShippedFile

FOLDER = "journal/"


class JournalInStore:
    """The journal's files, by path, as far as the store has their bytes."""

    def __init__(self, files: Mapping[str, ShippedFile]) -> None:
        """files: all files of a point; those that do not belong to the journal are ignored."""
        self._files = {path: file for path, file in files.items() if path.startswith(FOLDER)}

    def add(self, pieces: Iterable[Piece], name: str, content: bytes) -> None:
        """Extend the known extents of journal files by pieces that object `name` has. A file with a gap before its
        piece is forgotten.
        """
        for piece in pieces:
            path = FOLDER + piece.file
            before = self._files.get(path, ShippedFile(0, ()))
            extents = piece.extents
            if piece.data:  # equal bytes at an earlier position are as good
                extents = (Extent(name, content.index(piece.data), len(piece.data), crc32c(piece.data)),)
            if before.shipped_bytes == piece.position:
                self._files[path] = joined(before, extents)._replace(size_bytes=piece.size_bytes)
            else:
                self._files.pop(path, None)

    def files_after(self, start: StoreCheckpoint, goes_on: JournalPlace) -> dict[str, ShippedFile] | None:
        """Return the journal files that a start from this checkpoint needs; None if the store does not have all of
        them.

        goes_on: where the newest rounds end. Forgets earlier files.
        """
        first = start.journal_start.file
        is_counted = goes_on.round >= start.next_round and goes_on.unit > max(start.through_unit, start.synced_unit)
        if not first or not is_counted or goes_on.incarnation != start.journal_incarnation:
            return None
        for path in list(self._files):
            if (file_sequence(path.removeprefix(FOLDER)) or 0) < first:
                del self._files[path]
        wanted = [FOLDER + file_name(sequence) for sequence in range(first, goes_on.sequence + 1)]
        if any(path not in self._files or len(self._files[path].extents) > MAX_SMALL_EXTENTS for path in wanted):
            return None
        return {path: self._files[path] for path in wanted}
