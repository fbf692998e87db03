"""Decides after a crash which units of a journal count, where it is cut off, or that it is damaged. Changes nothing.

The rule: the first invalid round ends the journal, unless a later round says that the invalid one was synced: then
acknowledged data is missing, and the broker must not start. Only files of the newest incarnation (start) count, because
it began when all older units were safe in segments. All rounds are judged before the first unit is returned. One round
at a time is in memory. Recovery applies the units that count.
"""

import os.path
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice, pairwise

from crc32c import crc32c

from ...effects.disk import Disk
from .format import (
    BLOCK_BYTES,
    EVERYTHING,
    ROUND_HEADER_BYTES,
    ROUND_MAGIC,
    FileHeader,
    FlatPart,
    JournalStart,
    Malformed,
    RoundHeader,
    blocks,
    highest_number,
    read_parts,
    read_units,
)
from .format import Unit as Unit
from .preparing import file_name, file_sequence
from .reading import READ_BYTES, FoundFile, Reader, read_header, round_fault
from .reading import JournalDamaged as JournalDamaged

_ZEROS = bytes(64 << 10)


@dataclass(slots=True)
class Scan:
    """What scan() found.

    highest_unit, highest_round, incarnation: the highest ones seen, cut off or not; later numbers must be above them.
    first_unit, last_unit: of the units that count. cut_bytes, cut_reason: of the bytes that were written and never
    synced (0 and "" if there are none; in a reused file, old bytes cannot be distinguished from a round whose header
    was never written). age_ms: always 0; only checkpoints have the age of a directory with a journal of its own.
    """

    files: list[FoundFile]
    incarnation: int
    first_unit: int = 1
    last_unit: int = 0
    highest_unit: int = 0
    highest_round: int = 0
    cut_bytes: int = 0
    cut_reason: str = ""
    age_ms: int = 0
    rounds: list[int] = field(default_factory=list)  # how many count, in each file
    checksums: "array[int]" = field(default_factory=lambda: array("I"), repr=False)  # of each of these rounds' units
    _disk: Disk = field(kw_only=True, repr=False)

    def units(self, above: int = 0) -> Iterator[Unit]:
        """Yield the units above a number, in order. Raises JournalDamaged if the bytes have changed since the scan.

        The parts' bytes are views of what was read (READ_BYTES, or one round), which stays in memory as long as a view
        does. Copy the bytes to keep only them.
        """
        for path, start, header, body in self._bodies(above):
            with _reading(path, start):
                yield from read_units(body, header, path, start, above)

    def parts(self, above: int = 0) -> Iterator[FlatPart]:
        """Yield the parts of the units above a number, in order, without Unit objects: faster than units(). Raises
        JournalDamaged, too.
        """
        for path, start, _, body in self._bodies(above):
            with _reading(path, start):
                yield from read_parts(body, above)

    def _bodies(self, above: int) -> Iterator[tuple[str, int, RoundHeader, memoryview]]:
        """Yield (path, start, header, units) of the rounds that hold units above a number. Raises JournalDamaged if
        the bytes have changed since the scan.
        """
        checksums = iter(self.checksums)
        for found, count in zip(self.files, self.rounds, strict=False):
            with Reader(self._disk, found) as reader:
                position = BLOCK_BYTES
                for checksum in islice(checksums, count):
                    header = reader.round_header(position)
                    if header is None:
                        raise JournalDamaged(found.path, position, "the round was gone at the second of two reads")
                    start = position + ROUND_HEADER_BYTES
                    if header.units and header.last_unit > above:
                        body = _body(reader, start, header, checksum)
                        yield found.path, start, header, body
                    position += blocks(ROUND_HEADER_BYTES + header.length)


def _body(reader: Reader, start: int, header: RoundHeader, checksum: int) -> memoryview:
    """Read the units of a round that scan() has checked. Raises JournalDamaged if it changed between the two reads."""
    if header.length <= reader.size - start:
        body = reader.view(start, header.length)
        if crc32c(body) == checksum:
            return body
    raise JournalDamaged(reader.path, start - ROUND_HEADER_BYTES, "the round changed between two reads")


@contextmanager
def _reading(path: str, start: int) -> Iterator[None]:
    """Turn Malformed inside of the block into JournalDamaged with the position."""
    try:
        yield
    except Malformed as damage:
        raise JournalDamaged(path, start - ROUND_HEADER_BYTES, str(damage)) from damage


def scan(
    disk: Disk,
    directory: str,
    *,
    checkpointed_unit: int | None = None,
    synced_unit: int = 0,
    incarnation: int | None = None,
    start: JournalStart = EVERYTHING,
) -> Scan:
    """Read a journal directory, and decide which of its rounds count.

    The arguments after `directory` come from the newest checkpoint, if there is one. The journal must have all units
    above checkpointed_unit, at least up to synced_unit, and files of this incarnation or a later one. start: the file
    and round before which there is none of these units; earlier ones are not read, because they may never have been
    synced. If the file of `start` does not exist any more, it had none of these units either. Raises: JournalDamaged,
    NewerFormat.
    """
    files = _newest(_found_files(disk, directory, start.file))
    if files and files[0].header.sequence != start.file:
        start = EVERYTHING
    found = files[-1].header.incarnation if files else 0
    if incarnation is not None and found < incarnation:
        raise JournalDamaged(directory, 0, f"the files of start {incarnation} are missing, the newest are of {found}")
    result = Scan(files, found, _disk=disk)
    if files:
        _Judge(disk, result, start, (checkpointed_unit or 0) + 1).run()
        if (
            checkpointed_unit is not None
            and result.first_unit > checkpointed_unit + 1
            and not _is_first(files[0].header)
        ):
            reason = f"it begins at unit {result.first_unit}, unit {checkpointed_unit + 1} is missing"
            raise JournalDamaged(files[0].path, 0, reason)
    if max(result.last_unit, checkpointed_unit or 0) < synced_unit:
        reason = f"it ends with unit {result.last_unit}, and a checkpoint says that {synced_unit} was synced"
        raise JournalDamaged(files[-1].path if files else directory, 0, reason)
    return result


# ---- which files count ---------------------------------------------------------------------------------------


def _found_files(disk: Disk, directory: str, first: int) -> list[FoundFile]:
    """Return the journal files with this number or a higher one, in order. Other files are ignored. Raises
    JournalDamaged if the name and the header of one have different numbers.
    """
    files = []
    for name in disk.list(directory):
        sequence, path = file_sequence(name), os.path.join(directory, name)
        if sequence is None or sequence < first or disk.is_directory(path):
            continue
        found = read_header(disk, path)
        if found.header.sequence != sequence:
            raise JournalDamaged(found.path, 0, f"its header says it is {file_name(found.header.sequence)}")
        files.append(found)
    return files


def _newest(files: list[FoundFile]) -> list[FoundFile]:
    """Return the files of the newest incarnation. Raises JournalDamaged if their numbers have a gap or an older
    incarnation follows.
    """
    if not files:
        return []
    newest = files[-1].header
    for before, found in pairwise(files):
        if found.header.incarnation < before.header.incarnation:
            raise JournalDamaged(found.path, 0, f"it is of start {found.header.incarnation}, older than {before.path}")
    run = [found for found in files if found.header.incarnation == newest.incarnation]
    for expected, found in enumerate(run, run[0].header.sequence):
        header = found.header
        if _life(header) != _life(newest) or header.sequence < header.first_file:
            raise JournalDamaged(found.path, 0, "it is of another journal than the files around it")
        if header.sequence != expected:
            raise JournalDamaged(found.path, 0, f"{file_name(expected)} should stand before it and is missing")
    return run


def _life(header: FileHeader) -> tuple[bytes, int, int, int]:
    """Return the header fields that all files of one incarnation have in common."""
    return header.salt, header.first_file, header.first_round, header.first_unit


def _is_first(header: FileHeader) -> bool:
    """Return whether this is the first file of its incarnation. An earlier file of it may have been reused since."""
    return header.sequence == header.first_file


# ---- the verdict ---------------------------------------------------------------------------------------------


class _Judge:
    """Walks the rounds of one incarnation up to the first missing one, and decides: end of the journal, or damage."""

    def __init__(self, disk: Disk, result: Scan, start: JournalStart, first_unit: int) -> None:
        """result: has the files, and gets what is found. start: where the scan begins. first_unit: the first unit that
        the checkpoint lacks. It becomes the result's first_unit if the incarnation's first file is not among the files
        and no round is found.
        """
        life = result.files[0].header
        self._disk = disk
        self._result = result
        self._start = start
        # The headers say with which round and unit the incarnation's first file begins. With which a later file begins
        # is known when _check_order() gets the first round.
        self._are_numbers_known = _is_first(life)
        self._round = life.first_round if self._are_numbers_known else start.round
        self._unit = life.first_unit if self._are_numbers_known else first_unit

    def run(self) -> None:
        """Check all files round by round until the first place without a valid round; decide there whether the journal
        ends or is damaged. Raises JournalDamaged.
        """
        result = self._result
        result.first_unit = self._unit
        for index, found in enumerate(result.files):
            result.rounds.append(0)
            with Reader(self._disk, found) as reader:
                position, fault, ended = self._walk(reader)
            if not ended:
                self._end(index, position, fault)
                break
        else:
            missing = file_name(found.header.sequence + 1)
            raise JournalDamaged(found.path, position, f"it goes on in {missing}, which is missing")
        result.last_unit = self._unit - 1
        result.highest_unit = max(result.highest_unit, result.last_unit)
        result.highest_round = max(result.highest_round, self._round - 1)

    def _walk(self, reader: Reader) -> tuple[int, str, bool]:
        """Check the rounds of one file in order, and count the valid ones in the result. Returns the first position
        without a valid round, what is wrong there, and whether the file ended there. Raises JournalDamaged.
        """
        position = BLOCK_BYTES
        while (header := reader.round_header(position)) is not None:
            self._check_order(reader.path, position, header)
            if fault := round_fault(reader, position, header):
                return position, f"round {header.round}: {fault}", False
            self._result.checksums.append(crc32c(reader.view(position + ROUND_HEADER_BYTES, header.length)))
            self._round += 1
            self._unit += header.units
            self._result.rounds[-1] += 1
            position += blocks(ROUND_HEADER_BYTES + header.length)
            if header.ends_file:
                return position, "", True
        return position, f"no header of round {self._round}", False

    def _check_order(self, path: str, position: int, header: RoundHeader) -> None:
        """Raise JournalDamaged if the round does not follow the one before, by number and first unit.

        If the scan does not begin with the incarnation's first file, its first round sets the numbers from which the
        others count; but its round number must be that of `start`, if `start` has one.
        """
        if not self._are_numbers_known:
            self._are_numbers_known = True
            self._round = self._start.round or header.round
            self._unit = self._result.first_unit = header.first_unit
        if (header.round, header.first_unit) != (self._round, self._unit):
            found = f"round {header.round} from unit {header.first_unit}"
            raise JournalDamaged(path, position, f"{found}, and not {self._round} from unit {self._unit}")

    def _end(self, index: int, position: int, fault: str) -> None:
        """Decide that the journal ends here, or raise JournalDamaged if what follows shows that more was synced."""
        result = self._result
        found = result.files[index]
        if not _is_first(found.header) and index == 0 and result.rounds[0] == 0 and not self._start.file:
            # Files before this one were reused. JournalFiles.retire() gave up the last of them only when a round in
            # this file was synced.
            raise JournalDamaged(found.path, position, f"{fault}; it was synced before the files before it went")
        remains = _Remains()
        start = position
        for later in result.files[index:]:
            with Reader(self._disk, later) as reader:
                remains.look(reader, later.header, start)
            start = BLOCK_BYTES
        if remains.synced_through >= self._round:
            raise JournalDamaged(
                found.path, position, f"{fault}; round {remains.witness} says that {remains.synced_through} was synced"
            )
        result.highest_unit = remains.highest_unit
        result.highest_round = remains.highest_round
        result.cut_bytes = remains.size_bytes
        if remains.size_bytes:
            result.cut_reason = f"{found.path} at byte {position}: {fault}"


def _is_zero(view: memoryview) -> bool:
    """Return whether all bytes are zero. They are compared as bytes objects, which is a hundred times as fast as
    comparing views.
    """
    return all(_ZEROS.startswith(bytes(view[at : at + len(_ZEROS)])) for at in range(0, len(view), len(_ZEROS)))


class _Remains:
    """What the files hold after the last round that counts."""

    def __init__(self) -> None:
        self.synced_through = self.witness = -1  # witness: the round whose header has that synced_through
        self.highest_unit = self.highest_round = 0
        self.size_bytes = 0

    def look(self, reader: Reader, header: FileHeader, start: int) -> None:
        """Look through a file from `start` on: note the highest numbers in the round headers there, wherever they
        begin, and add to size_bytes how many bytes after `start` were written.
        """
        end = start
        for position in range(start, reader.size, READ_BYTES):
            window = reader.view(position, min(READ_BYTES, reader.size - position))
            if _is_zero(window):
                continue
            for offset in range(0, len(window), BLOCK_BYTES):
                if window[offset : offset + 4] == ROUND_MAGIC and (found := reader.round_header(position + offset)):
                    end = max(end, position + offset + ROUND_HEADER_BYTES + found.length)
                    self._note(found)
            if not header.recycled:
                end = max(end, position + len(bytes(window).rstrip(b"\0")))
        self.size_bytes += end - start
        self._count_units(reader, header.incarnation, start)

    def _note(self, found: RoundHeader) -> None:
        """Raise the highest round, unit and synced_through seen so far to those of this header, if they are higher."""
        if found.synced_through > self.synced_through:
            self.synced_through, self.witness = found.synced_through, found.round
        self.highest_round = max(self.highest_round, found.round)
        self.highest_unit = max(self.highest_unit, found.last_unit)

    def _count_units(self, reader: Reader, incarnation: int, start: int) -> None:
        """Raise the highest unit number seen so far to that of the units at this position, where a round may have lost
        its header.
        """
        body = start + ROUND_HEADER_BYTES
        if body < reader.size:
            view = reader.view(body, min(READ_BYTES, reader.size - body))
            self.highest_unit = max(self.highest_unit, highest_number(view, incarnation))
