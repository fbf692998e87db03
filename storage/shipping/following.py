"""A backup that follows a data directory: points and the rounds after them are shipped step by step, and old ones
deleted. A point is a copy, in the store, of a checkpoint and of all files that it names.

The rules: each step reads the journal up to its last complete round. So what was acknowledged before the read began is
in the store once the rounds are shipped; the *loss window* is the time since the newest such read began. A new point is
taken if the newest one is old or has many rounds after it, or if the journal cannot be read on from the last round;
rounds are still shipped while a point is taken. A step that failed may be repeated: the object that it was about to
create is remembered, and created first.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from crc32c import crc32c

from ...effects.clock import Clock
from ...effects.disk import Disk
from ...effects.objects import Objects
from ...effects.threads import call_all
from .. import checkpoints, store_checkpoint
from ..backup.journal_copy import Changed
from ..backup.manifest import BackupRefused
from ..backup.source import refuse_copy_of_store
from . import names
from .claims import Claims, Fenced
from .collecting import Collector
from .creating import NameTaken, Wait, create
from .names import Place
from .point import Claim, Extent, JournalPlace, Piece, Point, Rounds, Seal, ShippedFile, pack_point, pack_rounds
from .reading import read_points
from .shipped_journal import JournalInStore
from .shipper import THREADS, ShippedJournal, Shipper
from .tail import Look, read_on
from .unchanged import keep_unchanged

POINT_BYTES = 256 << 20  # of rounds after a point: then a new one is due, since a restore replays the rounds
POINT_MS = 600_000  # the age of a point at which a new one is due
LOOK_BYTES = 32 << 20  # of rounds that are shipped together
PIECE_BYTES = 4 << 20  # of an object with bytes of rounds; what is smaller stands in the object of the rounds
CLAIMS_MS = 60_000  # how often a follower with nothing to ship looks whether another has taken over
BUSY_MS = 3_000  # how long is_busy stays True after a large piece was shipped
MAX_LOOKS = 16  # in one step
SUSPECTED = 3  # looks in a row that find no round where a checkpoint says that there is one


@dataclass(frozen=True)
class Following:
    """How to follow. keep_ms: every moment in the last keep_ms can be restored. made_by: the version of fencepost."""

    keep_ms: int
    made_by: str
    point_bytes: int = POINT_BYTES
    point_ms: int = POINT_MS
    look_bytes: int = LOOK_BYTES
    piece_bytes: int = PIECE_BYTES
    threads: int = THREADS


@dataclass
class _Chain:
    """The newest point and the rounds after it. checkpoint: its number. size_bytes: of these rounds. journal: the bytes
    of the journal that point and rounds have together.
    """

    place: Place
    checkpoint: int
    taken_ms: int
    goes_on: JournalPlace
    journal: JournalInStore
    rounds: int = 0
    pieces: int = 0
    size_bytes: int = 0


class _Seen(NamedTuple):
    """A read of the journal from a place on. look: what was found (tail.py); None if it cannot be read from there.

    newest_checkpoint: the number of the newest checkpoint before the read. next_round: the first round after that
    checkpoint. began_ms, taken_ms: when the read began, monotonic and wall time.
    """

    place: JournalPlace
    newest_checkpoint: int
    next_round: int
    began_ms: int
    taken_ms: int
    look: Look | None


@dataclass
class Status:
    """The follower's state for the output and the metrics. worst_window_ms: how large the loss window was at most,
    since the reader set this to 0.
    """

    points: int = 0
    kept_points: int = 0
    objects: int = 0
    size_bytes: int = 0
    last_unit: int = 0
    worst_window_ms: int = 0
    warnings: list[str] = field(default_factory=list)


class Follower:
    """Copies one data directory continuously into one store: begin(), then step() again and again, then end()."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        objects: Objects,
        clock: Clock,
        how: Following,
        *,
        wait: Wait,
        report: Callable[[int, int], None] = lambda done, of: None,
        pause: Callable[[], None] = lambda: None,
    ) -> None:
        """wait: called before a failed call to the store is repeated. pause: called between two attempts to ship a
        point. report: called with the bytes shipped so far, and how many there will be.
        """
        self._disk = disk
        self._directory = directory
        self._objects = objects
        self._clock = clock
        self._how = how
        self._wait = wait
        self._report = report
        self._pause = pause
        self._claims = Claims(objects, wait)
        self._chain: _Chain | None = None
        self._pending: list[_Pending] = []
        self._points = 0
        self._covered_ms: int | None = None  # what was acknowledged before this time (monotonic) is in the store
        self._covered_wall_ms = 0  # the same moment as wall time
        self._suspected = 0  # see SUSPECTED
        self._cannot_read_on = False  # whether the journal does not continue after the last round that was shipped
        self._ahead: _Seen | None = None  # what was read ahead of time, for the next step
        self._busy_until_ms = 0
        self._seen_checkpoint = 0, 0  # the newest, and the first round that it does not count
        self._claims_due_ms = 0
        self.status = Status()

    def wait_with(self, wait: Wait) -> None:
        """Set the function that is called before a failed call to the store is repeated."""
        self._wait = self._claims.wait = self._shipper.wait = self._collector.wait = wait

    @property
    def is_busy(self) -> bool:
        """Whether so much was shipped lately that the next step should come soon, before journal files are reused."""
        return self._clock.monotonic_ms() < self._busy_until_ms

    @property
    def loss_window_ms(self) -> int | None:
        """The age of the oldest acknowledged record that may be missing in the store; None before the first point."""
        return None if self._covered_ms is None else self._clock.monotonic_ms() - self._covered_ms

    # ---- the beginning and the end ---------------------------------------------------------------------------

    def begin(self, mine: Claim, watch: Callable[[], None], *, take_over: bool = False) -> int:
        """Claim the store, end predecessors, and find out what they have shipped. Returns the epoch.

        Raises: BackupRefused (StillFollowed), Refused, OSError; what `wait` raises.
        """
        if not store_checkpoint.numbers(self._disk, self._directory):
            raise BackupRefused(f"{self._directory} has no broker's data", "name the data directory of fencepost serve")
        refuse_copy_of_store(self._disk, self._directory)
        self._claims.check_store()
        before = self._read_points()
        shipped = self._keep_unchanged(before)  # refuses another directory's store, before it ends a follower
        self.epoch = self._claims.claim(mine, watch, take_over=take_over)
        known = self._read_points()
        if max(known, default=None) != max(before, default=None):
            shipped = self._keep_unchanged(known)
        self._shipper = Shipper(
            self._disk,
            self._directory,
            self._objects,
            self.epoch,
            self._clock,
            self._wait,
            self._how.made_by,
            threads=self._how.threads,
            between=self._ship_rounds_meanwhile,
            known_journal=self._known_journal,
            pause=self._pause,
            report=self._report,
            shipped=shipped,
        )
        self._collector = Collector(self._objects, self.epoch, self._wait, self._how.keep_ms)
        for place, point in known.items():
            self._collector.add(place, point)
        self._host = mine.host
        return self.epoch

    def _keep_unchanged(self, points: Mapping[Place, Point | None]) -> dict[str, ShippedFile]:
        """Return the files of the newest point that are unchanged in the directory, so that they need not be shipped
        again.
        """
        newest = points[max(points)] if points else None
        return keep_unchanged(self._disk, self._directory, newest, self._objects.where) if newest else {}

    def _read_points(self) -> dict[Place, Point | None]:
        """Read all points in the store; None stands for one that cannot be read. What is wrong with them is noted in
        the status.
        """
        points, problems = read_points(self._objects, self._wait)
        self.status.warnings = problems
        return points

    def end(self) -> None:
        """Seal the newest point and the newest rounds after it, so that the next follower need not wait to find out
        whether this one still works.
        """
        seal = Seal(self.epoch, self._host)
        last = self._claims.seal_points(self.epoch, seal)
        if last:
            self._claims.seal_rounds(Place(self.epoch, last), seal)

    # ---- steps -----------------------------------------------------------------------------------------------

    def step(self, *, running: bool = True) -> bool:
        """Read the journal from where the last step ended, and copy new rounds to the store; also a new point if one is
        due. Returns whether a point was taken.

        Raises: Fenced; Refused; BackupRefused, JournalDamaged, checkpoints.Damaged, NewerFormat, DirectoryMoved,
        OSError; what `wait` raises. After any of them except Fenced and DirectoryMoved the step may be repeated.
        """
        self._disk.free_bytes(self._directory)  # raises DirectoryMoved if the directory is not at its path any more
        self._check_claims()
        self._create_pending()
        if self._chain is not None and not self._cannot_read_on:
            self._ship_rounds()
        if not self._is_point_due():
            return False
        point, read_ms = self._shipper.ship(running=running)
        self._keep_point(point, read_ms)
        # Rounds that came while the point was shipped are only after the point before. Without them, a restore from the
        # new point would give an older moment.
        self._ship_rounds()
        self._collector.collect(self._clock.now_ms(), self._shipper.unnamed)
        self.status.kept_points = len(self._collector.points)
        return True

    def _is_point_due(self) -> bool:
        """Return whether a new point is due: there is none; or the journal cannot be read on; or there is a newer
        checkpoint, and rounds after the newest point, and these are many or the point is old.
        """
        chain = self._chain
        if chain is None:
            return True
        is_newer = self._newest_checkpoint()[0] > chain.checkpoint
        if self._cannot_read_on:
            return is_newer or chain.goes_on.sequence > 0  # else there is no journal: a start was cut short
        if not chain.rounds or not is_newer:
            return False
        return (
            chain.size_bytes >= self._how.point_bytes
            or self._clock.monotonic_ms() - chain.taken_ms >= self._how.point_ms
        )

    def _keep_point(self, point: Point, read_ms: int) -> None:
        """Create the object that completes a point whose files were shipped. Rounds are shipped after this point from
        then on. If the create fails, the next step repeats it.
        """
        place = Place(self.epoch, self._points + 1)
        now_ms = self._clock.monotonic_ms()

        def created() -> None:
            """Note that the point's object was created: from now on rounds are stored as following this point."""
            self._points += 1
            self._shipper.count(len(content))
            self._chain = _Chain(place, point.checkpoint, now_ms, point.goes_on, JournalInStore(point.files))
            self._cover(read_ms, point.taken_ms)
            self._cannot_read_on, self._suspected = False, 0
            self._shipper.unnamed -= point.parts()  # they have a point that names them now
            self._collector.add(place, point)
            self.status.points += 1
            self.status.last_unit = point.last_unit
            self.status.warnings = point.warnings

        content = pack_point(point)
        self._pending.append(_Pending(names.point(place), content, created))
        self._create_pending()

    # ---- rounds ----------------------------------------------------------------------------------------------

    def _ship_rounds_meanwhile(self) -> None:
        """Ship rounds after the present point while a new point is shipped, so that they are not delayed."""
        if self._chain is not None and not self._cannot_read_on:
            self._ship_rounds()

    def _ship_rounds(self) -> None:
        """Ship the rounds up to the last complete one.

        If the journal does not continue as expected, it is noted that a new point is due.
        """
        chain = self._chain
        assert chain is not None
        from_before = self._ahead  # read during the step before: more may have come since
        for _ in range(MAX_LOOKS):
            seen, self._ahead = self._ahead, None
            if seen is None or seen.place != chain.goes_on:
                seen = self._see(chain.goes_on)
            look = seen.look
            if look is None:
                self._cannot_read_on = True
                return
            if look.pieces:
                pieces = self._spread(chain, look)
                self._keep_rounds(chain, Rounds(seen.taken_ms, look.last_unit, look.goes_on, pieces))
            if not look.complete or seen is from_before:
                continue
            if seen.newest_checkpoint > chain.checkpoint and 0 < chain.goes_on.round < seen.next_round:
                self._suspected = 1 if look.pieces else self._suspected + 1
                self._cannot_read_on = self._suspected >= SUSPECTED
            else:
                self._suspected = 0
                self._cover(seen.began_ms, seen.taken_ms)
            return

    def _see(self, place: JournalPlace) -> "_Seen":
        """Read the journal from this place on, and note the time and the newest checkpoint before the read. The look in
        the result is None if the journal cannot be read from there.
        """
        newest, next_round = self._newest_checkpoint()
        began_ms, taken_ms = self._clock.monotonic_ms(), self._clock.now_ms()
        try:
            look = read_on(self._disk, self._directory, place, self._how.look_bytes)
        except Changed:
            look = None
        return _Seen(place, newest, next_round, began_ms, taken_ms, look)

    def _see_ahead(self, place: JournalPlace) -> None:
        """Read the journal from this place on ahead of time, and keep what was read for the next step."""
        self._ahead = self._see(place)

    def _cover(self, began_ms: int, taken_ms: int) -> None:
        """Note that everything acknowledged before this time, by both clocks, is in the store."""
        self.status.worst_window_ms = max(self.status.worst_window_ms, self.loss_window_ms or 0)
        self._covered_ms, self._covered_wall_ms = began_ms, taken_ms

    def _known_journal(self, start: store_checkpoint.StoreCheckpoint) -> ShippedJournal | None:
        """Return the journal after a checkpoint, if objects in the store already have all of it; else None."""
        self._ship_rounds_meanwhile()
        chain = self._chain
        if chain is None or self._cannot_read_on or self._covered_ms is None:
            return None
        files = chain.journal.files_after(start, chain.goes_on)
        if files is None:
            return None
        return ShippedJournal(files, chain.goes_on, self._covered_ms, self._covered_wall_ms)

    def _spread(self, chain: _Chain, look: Look) -> list[Piece]:
        """Ship the bytes of large pieces as objects of their own, with several threads.

        Returns the pieces, which then name these objects instead of having the bytes. If the journal grows fast, it is
        read further meanwhile, because its files are soon reused.
        """
        spread: list[Piece] = []
        calls: list[Callable[[], None]] = []
        for piece in look.pieces:
            if len(piece.data) < self._how.piece_bytes:
                spread.append(piece)
                continue
            extents: list[Extent] = []
            for begin in range(0, len(piece.data), self._how.piece_bytes):
                data = piece.data[begin : begin + self._how.piece_bytes]
                chain.pieces += 1
                extents.append(Extent(names.piece(chain.place, chain.pieces), 0, len(data), crc32c(data)))
                calls.append(partial(create, self._objects, extents[-1].object, data, self._wait))
                self._shipper.count(len(data))
            spread.append(piece._replace(data=b"", extents=tuple(extents)))
        if calls:
            self._busy_until_ms = self._clock.monotonic_ms() + BUSY_MS
            calls.insert(0, partial(self._see_ahead, look.goes_on))
        call_all(calls, "fencepost-shipping", self._how.threads)
        return spread

    def _keep_rounds(self, chain: _Chain, rounds: Rounds) -> None:
        """Create the object with these rounds, after earlier ones. If that fails, the next step repeats it."""
        content = pack_rounds(rounds)

        def created() -> None:
            """Note that the object with these rounds exists."""
            chain.rounds += 1
            chain.size_bytes += sum(piece.length for piece in rounds.pieces)
            chain.goes_on = rounds.goes_on
            chain.journal.add(rounds.pieces, name, content)
            self._shipper.count(len(content))
            self.status.last_unit = rounds.last_unit

        name = names.rounds(chain.place, chain.rounds + 1)
        self._pending.append(_Pending(name, content, created))
        self._create_pending()

    def _create_pending(self) -> None:
        """Create the prepared objects in order.

        Raises Fenced if a name is taken: another follower has ended this epoch.
        """
        while self._pending:
            pending = self._pending[0]
            try:
                create(self._objects, pending.name, pending.content, self._wait)
            except NameTaken:
                raise Fenced(self._claims.who(self._claims.newest_epoch())) from None
            del self._pending[0]
            pending.created()
            self._claims_due_ms = self._clock.monotonic_ms() + CLAIMS_MS
        self.status.objects = self._shipper.counted.objects
        self.status.size_bytes = self._shipper.counted.size_bytes

    # ---- checkpoints and claims ------------------------------------------------------------------------------

    def _newest_checkpoint(self) -> tuple[int, int]:
        """Return the number of the newest checkpoint, and the first round that it does not cover."""
        newest = max(store_checkpoint.numbers(self._disk, self._directory), default=0)
        if newest > self._seen_checkpoint[0]:
            try:
                content = store_checkpoint.read(self._disk, self._directory, newest)
                self._seen_checkpoint = newest, content.next_round
            except (FileNotFoundError, checkpoints.Damaged):
                pass  # it was removed since; or it is damaged, which taking a point reports
        return self._seen_checkpoint

    def _check_claims(self) -> None:
        """If no claims were read for CLAIMS_MS, find out whether another follower has taken over. Raises: Fenced."""
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._claims_due_ms:
            return
        newest = self._claims.newest_epoch()
        if newest > self.epoch:
            raise Fenced(self._claims.who(newest))
        self._claims_due_ms = now_ms + CLAIMS_MS


@dataclass
class _Pending:
    """An object that is to be created, and the function to call when it is."""

    name: str
    content: bytes
    created: Callable[[], None]
