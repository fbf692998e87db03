"""Takes a point: ships what a checkpoint names and the store lacks, then the journal up to a complete round.

The rule: as for a backup to a folder (storage/backup/take.py explains why the result is the state of one moment):
everything is read before the directory has a checkpoint two numbers higher, or the work begins again with the newest
one. The point's object is created last, when the store has all that it names. What was shipped in an attempt that
failed is used in the next one. The journal after the checkpoint is not shipped again if the rounds after the last point
have it: under load, shipping it would take longer than the broker takes for two checkpoints.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from crc32c import crc32c

from ...effects.clock import Clock
from ...effects.disk import Disk
from ...effects.objects import Objects
from ...effects.threads import call_all
from .. import store_checkpoint
from ..backup.copying import checksum
from ..backup.journal_copy import Changed, judge_beside
from ..backup.manifest import BackupRefused
from ..backup.source import PASSES, WHOLE, CheckpointGone, Source, Wanted
from ..store_checkpoint import StoreCheckpoint
from ..system_errors import MISPLACED, may_pass
from . import names, planning
from .creating import Wait, create
from .names import Place
from .planning import Range
from .point import Extent, JournalPlace, Point, ShippedFile
from .tail import JudgedJournal

THREADS = 4
JOURNAL = "journal"


@dataclass(frozen=True)
class Counted:
    """How many objects and bytes were shipped so far, for the output and the metrics."""

    objects: int = 0
    size_bytes: int = 0


class ShippedJournal(NamedTuple):
    """The journal after a checkpoint, as the store has it.

    goes_on: where its next round begins. read_ms, taken_ms: when it was read, monotonic and wall time.
    """

    files: Mapping[str, ShippedFile]
    goes_on: JournalPlace
    read_ms: int
    taken_ms: int


@dataclass
class _Part:
    """A part (object with bytes of files) that is being shipped. extents: those of its ranges that were read so far."""

    name: str
    ranges: Sequence[Range]
    extents: list[Extent] = field(default_factory=list)


@dataclass
class Shipper:
    """Ships the files of one follower. shipped: what the store has of each file.

    unnamed: parts that were created and that no point names yet. between: called again and again while parts are
    shipped, and after each group of them. known_journal: returns the journal after a checkpoint if the store has it.
    report: called with the bytes shipped for a point so far, and how many there will be as far as is known.
    """

    disk: Disk
    directory: str
    objects: Objects
    epoch: int
    clock: Clock
    wait: Wait
    made_by: str
    threads: int = THREADS
    between: Callable[[], None] = lambda: None
    known_journal: Callable[[StoreCheckpoint], ShippedJournal | None] = lambda start: None
    pause: Callable[[], None] = lambda: None
    report: Callable[[int, int], None] = lambda done, of: None
    shipped: dict[str, ShippedFile] = field(default_factory=dict)
    unnamed: set[str] = field(default_factory=set)
    counted: Counted = Counted()
    _counting: threading.Lock = field(default_factory=threading.Lock)
    _number: int = 0  # of the newest part
    _done_bytes: int = 0
    _expected_bytes: int = 0

    def ship(self, *, running: bool) -> tuple[Point, int]:
        """Ship everything of a point except the object that completes it. Returns the point, and when the journal was
        read (monotonic ms).

        Raises BackupRefused, JournalDamaged, checkpoints.Damaged, NewerFormat, Refused, OSError; what `wait` raises.
        """
        source = Source(self.disk, self.directory)
        self._done_bytes = 0
        for _ in range(PASSES):
            number, start = source.newest_checkpoint()
            try:
                return self._pass(source, number, start, running)
            except (CheckpointGone, Changed):
                self.pause()
        raise BackupRefused(
            f"the broker made checkpoints more quickly than they could be shipped, {PASSES} times",
            "a store that takes bytes more quickly, or a moment of less load, is needed for a new point",
        )

    def _pass(self, source: Source, number: int, start: StoreCheckpoint, running: bool) -> tuple[Point, int]:
        """Ship what one checkpoint needs. Returns the point, and when the journal was read (monotonic ms). Raises
        CheckpointGone, Changed.
        """
        warnings: list[str] = []
        files = self.ship_files(source, start, warnings)
        source.check_holds(number)
        journal = self.known_journal(start) or self._judged_journal(source, number, start)
        self.shipped = dict(files)
        content = store_checkpoint.pack(start)
        goes_on, last_unit = journal.goes_on, journal.goes_on.unit - 1
        named = {**files, **journal.files}
        point = Point(self.made_by, journal.taken_ms, running, number, content, last_unit, goes_on, warnings, named)
        return point, journal.read_ms

    def _judged_journal(self, source: Source, number: int, start: StoreCheckpoint) -> ShippedJournal:
        """Read and check the journal after a checkpoint, and ship it. Raises Changed, JournalDamaged."""
        read_ms, taken_ms = self.clock.monotonic_ms(), self.clock.now_ms()
        found = judge_beside(self.disk, self.directory, start, lambda: source.check_holds(number))
        try:
            files, goes_on = self._ship_journal(JudgedJournal(self.disk, found))
        except FileNotFoundError:
            raise Changed from None
        source.check_holds(number)
        goes_on = goes_on._replace(unit=max(found.last_unit, start.through_unit) + 1)
        return ShippedJournal(files, goes_on, read_ms, taken_ms)

    # ---- files -----------------------------------------------------------------------------------------------

    def ship_files(self, source: Source, start: StoreCheckpoint, warnings: list[str]) -> dict[str, ShippedFile]:
        """Copy to the store what it lacks of the files that a checkpoint names. Returns all of these files, with where
        their bytes are in the store. warnings: gets a line for each file that is missing or damaged.
        """
        sizes = self._sizes(source.wanted_files(start, warnings), warnings)
        plan = planning.plan(sizes, self.shipped)
        self._expected_bytes = self._done_bytes + plan.bytes_to_ship
        return self._ship_parts(plan, warnings)

    def _sizes(self, wanted: Iterable[Wanted], warnings: list[str]) -> dict[str, int]:
        """Return how many bytes of each file must be in the store: as many as the checkpoint counts, or fewer if the
        file is shorter. A missing or unreadable file adds a warning. A file that is shipped whole, and has changed, is
        taken out of `shipped`.
        """
        sizes: dict[str, int] = {}
        for name, size_bytes, is_vital in wanted:
            path = f"{self.directory}/{name}"
            try:
                file = self.disk.open(path, read_only=True)
            except MISPLACED as error:
                if is_vital:
                    warnings.append(f"{path}: {error.strerror}")
                continue
            try:
                if size_bytes == WHOLE:
                    whole = checksum(file, lambda count: None)
                    sizes[name] = whole.size_bytes
                    if not self._has(name, whole.size_bytes, whole.crc):
                        self.shipped.pop(name, None)
                else:
                    sizes[name] = min(size_bytes, file.size())
                    if is_vital and sizes[name] < size_bytes:
                        warnings.append(f"{path} has {sizes[name]} bytes, the checkpoint counts {size_bytes}")
            except OSError as error:
                if may_pass(error):
                    raise
                warnings.append(f"{path} cannot be read: {error.strerror or error}")
            finally:
                file.close()
        return sizes

    def _has(self, name: str, size_bytes: int, crc: int) -> bool:
        """Return whether a small file was shipped with exactly this content."""
        extents = self.shipped.get(name, planning.NOTHING).extents
        return len(extents) == 1 and extents[0].length == size_bytes and extents[0].crc == crc

    def _ship_parts(self, plan: planning.Plan, warnings: list[str]) -> dict[str, ShippedFile]:
        """Ship the plan's parts with several threads. Returns the files with their extents in the store, and notes
        them in `shipped`.
        """
        files = dict(plan.kept)
        self.shipped.update(files)
        cut: set[str] = set()  # files of which a range could not be read: later ranges do not count
        for first in range(0, len(plan.parts), self.threads):
            parts = [_Part(self._next_part(), ranges) for ranges in plan.parts[first : first + self.threads]]
            calls = [partial(self._ship_part, part, warnings) for part in parts]
            call_all(calls, "fencepost-shipping", self.threads, self.between)
            for part in parts:
                for wanted, extent in zip(part.ranges, part.extents, strict=True):
                    if wanted.path not in cut and extent.length:
                        files[wanted.path] = planning.joined(files[wanted.path], [extent])
                    if extent.length < wanted.length:
                        cut.add(wanted.path)
                    self.shipped[wanted.path] = files[wanted.path]
            self.between()
        return files

    def _ship_part(self, part: "_Part", warnings: list[str]) -> None:
        """Read the ranges of one part, and create it."""
        content = bytearray()
        for wanted in part.ranges:
            data = self._read(wanted, warnings)
            part.extents.append(Extent(part.name, len(content), len(data), crc32c(data)))
            content += data
        if content:
            self._create_part(part.name, bytes(content))

    def _read(self, wanted: Range, warnings: list[str]) -> bytes:
        """Read a range of a file. If that is impossible, add a warning and return no bytes. Raises OSError if it may
        succeed later.
        """
        path = f"{self.directory}/{wanted.path}"
        try:
            file = self.disk.open(path, read_only=True)
            try:
                return file.read(wanted.length, wanted.position)
            finally:
                file.close()
        except OSError as error:
            if may_pass(error):
                raise
            warnings.append(f"{path} cannot be read at byte {wanted.position}: {error.strerror or error}")
            return b""

    # ---- the journal -----------------------------------------------------------------------------------------

    def _ship_journal(self, judged: JudgedJournal) -> tuple[Mapping[str, ShippedFile], JournalPlace]:
        """Ship the checked bytes of the journal as parts. Returns the files, and where the journal continues."""
        files: dict[str, ShippedFile] = {}
        extents: dict[str, list[Extent]] = {}
        content = bytearray()
        begun: list[tuple[str, int, int]] = []  # (file, where its bytes begin in the part, how many)

        def flush() -> None:
            """Create a part of the bytes collected so far, and note where each file's bytes are in it."""
            if not content:
                return
            name = self._next_part()
            data = bytes(content)
            for path, position, length in begun:
                crc = crc32c(memoryview(data)[position : position + length])
                extents[path].append(Extent(name, position, length, crc))
            self._create_part(name, data)
            content.clear()
            begun.clear()
            self.between()

        for piece in judged.pieces():
            path = f"{JOURNAL}/{piece.file}"
            extents.setdefault(path, [])
            files[path] = ShippedFile(piece.size_bytes, ())
            if begun and begun[-1][0] == path:
                begun[-1] = (path, begun[-1][1], begun[-1][2] + len(piece.data))
            else:
                begun.append((path, len(content), len(piece.data)))
            content += piece.data
            if len(content) >= planning.PART_BYTES:
                flush()
        flush()
        whole = {path: file._replace(extents=tuple(extents[path])) for path, file in files.items()}
        return whole, judged.goes_on

    # ---- objects ---------------------------------------------------------------------------------------------

    def _next_part(self) -> str:
        """Return the name for a new part, and note it in `unnamed`."""
        self._number += 1
        name = names.part(Place(self.epoch, self._number))
        self.unnamed.add(name)
        return name

    def _create_part(self, name: str, content: bytes) -> None:
        """Create a part in the store, and report the progress."""
        create(self.objects, name, content, self.wait)
        self._done_bytes += len(content)
        self.count(len(content))
        self.report(self._done_bytes, max(self._done_bytes, self._expected_bytes))

    def count(self, size_bytes: int) -> None:
        """Count an object that was created, and its size. Thread-safe."""
        with self._counting:
            self.counted = replace(
                self.counted, objects=self.counted.objects + 1, size_bytes=self.counted.size_bytes + size_bytes
            )
