"""A journal whose rounds are objects in a store: what the owner of an epoch writes.

It has no files to prepare, to sync or to reuse. A round is one object, which is durable as soon as it is created.
Rounds may be created in any order; broker/rounds.py releases them in the order of their numbers, and Owner (fence.py)
says which may begin and which are released.

Bytes of rounds that are being created are in memory, so they are limited: from BUSY_BYTES on, clients are not read from
for a while, and above max_bytes no unit is admitted. So a store that is unreachable costs no more memory than that.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

from crc32c import crc32c

from ...effects.disk import AsyncWriter, Buffer
from ...effects.disk.async_writer import DirectFile
from ...effects.gathering import join_buffers
from ...effects.objects import Objects
from ..journal.any_journal import AnyJournal
from ..journal.format import BATCH_UNIT_BYTES, EVERYTHING, JournalStart, UnitRefused
from ..journal.preparing import Job
from ..journal.round_write import RoundWrite, SyncJob
from . import format
from .creating import Pause, RoundCreation, create_round
from .fence import NOWHERE, Header, Owner, Place
from .format import LARGEST_ROUND_BYTES, NO_POINT, WINDOW, RoundHeader, Seal
from .takeover import Taken

BUSY_BYTES = 64 << 20


class Written(NamedTuple):
    """A round with units that may not be in a checkpoint of the data directory yet."""

    number: int
    last_unit: int
    size_bytes: int


class ObjectJournal(AnyJournal):
    """The journal of one epoch."""

    may_be_ended_by_others = True
    __slots__ = (
        "_age_ms",
        "_ended",
        "_first_round",
        "_in_flight",
        "_in_flight_bytes",
        "_max_bytes",
        "_next_round",
        "_objects",
        "_owner",
        "_pause",
        "_point",
        "_salt",
        "_start",
        "_used_bytes",
        "_written",
    )

    def __init__(
        self,
        objects: Objects,
        taken: Taken,
        pause: Pause,
        *,
        next_unit: int,
        next_round: int,
        age_ms: Callable[[], int],
        max_bytes: int,
        point: tuple[int, int] | None = None,
    ) -> None:
        """Begin an epoch: its round 0 is created before this returns.

        All units before next_unit must be in the rounds of `taken` or before them; or, if `point` is given, in that
        checkpoint, which round 0 then names. Raises: Fenced.
        """
        self._objects = objects
        self._pause = pause
        self._age_ms = age_ms
        self._salt = taken.claim.salt
        self._max_bytes = max_bytes
        self.incarnation = taken.claim.epoch
        self.next_unit = next_unit
        self.released_unit = self.synced_unit = next_unit - 1
        self.last_joint_unit = 0
        self._next_round = next_round
        self._owner = Owner(WINDOW)
        self._in_flight: deque[ObjectRound] = deque()
        self._in_flight_bytes = 0
        self._written: deque[Written] = deque()
        self._used_bytes = 0  # of the rounds in _written
        self._ended = False
        self._begin_round()
        self._point = taken.last.point if taken.last else point or NO_POINT
        self._start = taken.last.says.start if taken.last else Place(self.incarnation, 0) if point else NOWHERE
        self._create_first(Header(self._start, taken.base, taken.base_end))

    def _create_first(self, says: Header) -> None:
        """Create round 0, which has no units: with it the epoch has begun. Raises: Fenced."""
        header = self._take_header(says, [])
        create_round(RoundCreation(self._objects, header, format.pack_round(header)), self._pause)
        self._owner = self._owner.create(header.place.number)

    @property
    def next_round(self) -> int:
        """The number of the next round, counted over all epochs."""
        return self._next_round

    # ---- room ------------------------------------------------------------------------------------------------

    @property
    def _busy_bytes(self) -> int:
        """The size of the rounds that are open or being created, all in memory."""
        return self._in_flight_bytes + self.open_bytes

    def admits(self, size_bytes: int) -> bool:
        """Return whether a unit of this size has room in memory, where the bytes of rounds stay until they are
        created.
        """
        return self._in_flight_bytes + BATCH_UNIT_BYTES + size_bytes <= self._room

    def is_ready_for(self, size_bytes: int) -> bool:
        """Return whether the caller should append a unit of this size now: it has room, or never will have."""
        return self.admits(size_bytes) or size_bytes > self.largest_unit_bytes

    @property
    def largest_unit_bytes(self) -> int:
        """The size in bytes of the largest unit that can be admitted: it takes a whole round."""
        return self._round_room - BATCH_UNIT_BYTES

    @property
    def used_bytes(self) -> int:
        """The size of the rounds whose units are in no checkpoint of the data directory."""
        return self._used_bytes + self._busy_bytes

    @property
    def half_used(self) -> bool:
        """Whether rounds that no checkpoint of the data directory has take half of journal.max.bytes."""
        return 2 * self.used_bytes > self._max_bytes

    @property
    def wants_recycling(self) -> bool:
        """Whether rounds should be made unnecessary by a checkpoint, and deleted: half of the journal's limit is
        used.
        """
        return self.half_used

    @property
    def nearly_full(self) -> bool:
        """Whether so many bytes wait to be created in the store that writers should wait."""
        return self._busy_bytes > min(BUSY_BYTES, self._max_bytes // 2)

    # ---- rounds ----------------------------------------------------------------------------------------------

    @property
    def pending(self) -> bool:
        """Whether units wait for take_round()."""
        return self.next_unit != self._first_unit

    @property
    def lacks_seal(self) -> bool:
        """Always False: a round that exists in the store is durable, and needs no later round that says so."""
        return False

    def take_round(self, *, sync: bool) -> RoundWrite | None:
        """Close the open round and return it; None if there is nothing to write.

        With `sync` an empty round is returned too: it shows others that the owner is alive. Raises RuntimeError if a
        round in flight has failed, or after end().
        """
        if not (self.pending or sync):
            return None
        if any(write.failed for write in self._in_flight):
            raise RuntimeError("no round can begin: one in flight has failed")
        if self._ended:
            raise RuntimeError("no round can begin: the epoch was ended")
        body = join_buffers(self._buffers, self.open_bytes)
        header = self._take_header(Header(self._start), body)
        write = ObjectRound(self._objects, header, [format.pack_round(header), *body], self._pause)
        self._in_flight.append(write)
        self._in_flight_bytes += write.size_bytes
        self._begin_round()
        return write

    def _take_header(self, says: Header, body: Sequence[Buffer]) -> RoundHeader:
        """Return the header of the open round, with the next number and the store's age. Raises RuntimeError if too
        many rounds are not released yet.
        """
        number = self._owner.next_round
        self._owner = self._owner.begin()
        units = self.next_unit - self._first_unit
        length = crc = 0
        for buffer in body:
            length += len(buffer)
            crc = crc32c(buffer, crc)
        header = RoundHeader(
            Place(self.incarnation, number),
            self._salt,
            self._owner.released,
            self._next_round,
            self._first_unit,
            units,
            length,
            crc,
            self._age_ms(),
            self._point,
            says,
        )
        self._next_round += 1
        return header

    def finished(self, write: RoundWrite) -> None:
        """Release the round's units. Raises RuntimeError if it or one before it is not created."""
        if not self._in_flight or write is not self._in_flight[0] or not write.done:
            raise RuntimeError("the round cannot be released: it or one before it was not created")
        created = self._in_flight.popleft()
        self._owner = self._owner.create(created.number)
        if created.number >= self._owner.released:
            raise RuntimeError(f"round {created.number} cannot be released: round {self._owner.released} is missing")
        self.released_unit = self.synced_unit = write.through_unit
        self._in_flight_bytes -= write.size_bytes
        self._written.append(Written(created.number, write.through_unit, write.size_bytes))
        self._used_bytes += write.size_bytes

    def end(self) -> Seal:
        """Allow no further round. Returns the seal that the caller is to create: other brokers see by it that the epoch
        has ended, and need not wait for the lease to run out.

        Raises RuntimeError if a round is open or in flight.
        """
        if self.pending or self._in_flight:
            raise RuntimeError("the epoch cannot be ended: a round is open or in flight")
        self._ended = True
        place = Place(self.incarnation, self._owner.next_round)
        return Seal(place, self._salt, self.incarnation, handed_over=True)

    def sync_job(self) -> SyncJob | None:
        """Return None: there is nothing to sync."""
        return None

    def synced(self, job: SyncJob) -> None:
        """Never called, because sync_job() returns no job."""

    # ---- what checkpoints need -------------------------------------------------------------------------------

    def fill_job(self) -> Job | None:
        """Return None: a journal in an object store has no files to prepare."""
        return None

    def filled(self, job: Job) -> None:
        """Never called, because fill_job() returns no job."""

    @property
    def may_fill(self) -> bool:
        """Return False: a journal in an object store has no files to prepare."""
        return False

    def when_wanted(self, callback: Callable[[], None]) -> None:
        """Do nothing: no file is prepared here, and finished rounds make room."""

    def name_point(self, point: tuple[int, int], start: Place) -> int | None:
        """Name a point (checkpoint in the store) in all rounds from now on. start: the first round that it lacks.

        Returns the number of the first round that names it; once that round is released, the point is official. Returns
        None if the point is not named, because it lacks earlier rounds than the one named before.
        """
        if start < self._start:
            return None
        self._point, self._start = point, start
        return self._owner.next_round

    @property
    def released_rounds(self) -> int:
        """The number below which all rounds of the epoch are released."""
        return self._owner.released

    def start_after(self, unit: int) -> JournalStart:
        """Return the epoch and the number of its first round that has units after this one. A checkpoint up to `unit`
        records it.
        """
        after = (written.number for written in self._written if written.last_unit > unit)
        in_flight = self._in_flight[0].number if self._in_flight else self._owner.next_round
        return JournalStart(self.incarnation, next(after, in_flight))

    def recycle(self, through_unit: int, start: JournalStart = EVERYTHING) -> None:
        """Forget the rounds whose units all checkpoints of the data directory have. Their objects stay in the store."""
        while self._written and self._written[0].last_unit <= through_unit:
            self._used_bytes -= self._written.popleft().size_bytes

    def close(self) -> None:
        """Do nothing: no file is open."""

    # ---- inside ----------------------------------------------------------------------------------------------

    def _make_room(self, size_bytes: int) -> None:
        """Always raise UnitRefused, for a unit that does not fit the open round: unlike a journal of files, this one
        begins a new round only in take_round().
        """
        raise UnitRefused(f"no room in memory for a unit of {size_bytes} bytes before rounds are in the store")

    def _begin_round(self) -> None:
        """Begin an empty round, which further units are appended to."""
        self._room = self._round_room = min(self._max_bytes, LARGEST_ROUND_BYTES)
        self._buffers: list[Buffer] = []
        self._first_unit = self.next_unit


class ObjectRound(RoundWrite):
    """A round that is being created in the store."""

    __slots__ = ("_pause", "creation", "number")

    may_run_here = False

    def __init__(self, objects: Objects, header: RoundHeader, content: list[Buffer], pause: Pause) -> None:
        """content: the whole object, which begins with the header. pause: called before an attempt is repeated."""
        self.creation = RoundCreation(objects, header, content)
        self.number = header.place.number
        self._pause = pause
        super().__init__(
            [],
            _nothing,
            files=(),
            sync=True,
            own_sync_is_enough=True,
            size_bytes=format.HEADER_BYTES + header.length,
            to_sync_bytes=format.HEADER_BYTES + header.length,
            through_unit=header.last_unit,
            through_round=header.round,
            synced_through=header.round - 1,
        )

    def begin(self, writer: AsyncWriter, told: Callable[[OSError | None], None]) -> bool:
        """Begin to create the round without a worker. `told` is called on the loop with None or the error when the
        create has ended. writer: an ObjectWriter. Returns whether the create has begun.
        """

        def ended(error: OSError | None, took_ns: int) -> None:
            """Note the result of the create, and call `told` with it. took_ns: how long it took."""
            self.sync_ns = took_ns
            self.done, self.failed = error is None, error is not None
            told(error)

        self.begun = writer.begin(cast(DirectFile, self), 0, (), self.size_bytes, ended)
        return self.begun

    def run(self) -> None:
        """Create the round in the store, however long that takes. Raises: Fenced, ObjectDamaged; what the journal's
        pause raises.
        """
        try:
            create_round(self.creation, self._pause)
        except BaseException:
            self.failed = True
            raise
        self.done = True


def _nothing() -> None:
    """Do nothing: there is nothing to sync."""
