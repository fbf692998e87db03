"""The interface that a store and its rounds use for a journal, whether on disk (journal.py) or in a store of objects
(../objects/journal.py).

Both journals keep the open round in the same way: units are framed when they are appended, and wait in memory until the
round is taken.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from crc32c import crc32c

from ...effects.disk import Buffer
from .format import (
    APPEND,
    BATCH_HEAD_BYTES,
    BATCH_UNIT_BYTES,
    BATCH_UNIT_CHECKED_BYTES,
    COPIED_BELOW_BYTES,
    EVERYTHING,
    JournalStart,
    Part,
    PlacedBatch,
    frame_batches,
    frame_unit,
    pack_batch_unit,
    pack_prefix,
    unit_bytes,
)
from .preparing import Job
from .round_write import RoundWrite, SyncJob

_REST_BYTES = BATCH_UNIT_BYTES + BATCH_HEAD_BYTES  # of an append_batch unit, without `rest`


class AnyJournal(ABC):
    """A running journal. Not thread-safe: everything except the jobs that it returns belongs to one thread."""

    __slots__ = (
        "_buffers",
        "_first_unit",
        "_room",
        "_round_room",
        "incarnation",
        "last_joint_unit",
        "next_unit",
        "released_unit",
        "synced_unit",
    )

    # If True, another broker may own the journal already. That what was read is current is then known only when a later
    # round is released.
    may_be_ended_by_others = False
    incarnation: int
    next_unit: int
    released_unit: int
    synced_unit: int
    last_joint_unit: int  # the newest unit of append() or append_batches(); Upkeep.captured() needs it
    _first_unit: int  # of the open round
    _buffers: list[Buffer]
    _room: int  # how many more bytes of units fit the open round
    _round_room: int  # how many fitted when it was begun

    @property
    def last_unit(self) -> int:
        """The number of the newest unit that was appended."""
        return self.next_unit - 1

    # ---- the open round --------------------------------------------------------------------------------------

    def append_batch(self, log_id: int, offset: int, head: bytes, rest: Buffer) -> int:
        """Append one batch to the open round, as a unit (journal entry) of its own. Returns the unit's number.

        head: the batch's first 16 bytes as they will stand in the segment. rest: the bytes after them. They are not
        always copied, so do not change them until the round is written.

        Raises UnitRefused if there is no room; nothing was changed then.
        """
        size = len(rest)
        if size + _REST_BYTES > self._room:
            self._make_room(size + _REST_BYTES)
        number = self.next_unit
        checked = pack_batch_unit(self.incarnation, number, 1, APPEND, log_id, offset, size + BATCH_HEAD_BYTES, head)
        if size < COPIED_BELOW_BYTES:
            checked += rest
            self._buffers += (pack_prefix(size + BATCH_UNIT_CHECKED_BYTES, crc32c(checked)), checked)
        else:
            crc = crc32c(rest, crc32c(checked))
            self._buffers += (pack_prefix(size + BATCH_UNIT_CHECKED_BYTES, crc) + checked, rest)
        self._room -= size + _REST_BYTES
        self.next_unit = number + 1
        return number

    def append(self, parts: Sequence[Part]) -> int:
        """Append several changes to the open round, as one unit: after a crash all of them are there or none. Returns
        the unit's number.

        Raises UnitRefused if there is no room or the unit is over the limits; nothing was changed then.
        """
        size = unit_bytes(parts)
        if size > self._room:
            self._make_room(size)
        number = self.next_unit
        self._buffers += frame_unit(self.incarnation, number, parts)
        self._room -= size
        self.next_unit = number + 1
        self.last_joint_unit = number
        return number

    def append_batches(self, batches: Sequence[PlacedBatch]) -> int:
        """Append batches of several logs to the open round, as one unit: after a crash all of them are there or none.
        Large batches are not copied. Returns the unit's number. Raises UnitRefused; nothing was changed then.
        """
        number = self.next_unit
        framed = frame_batches(self.incarnation, number, batches)
        size = sum(map(len, framed))
        if size > self._room:
            self._make_room(size)
        self._buffers += framed
        self._room -= size
        self.next_unit = number + 1
        self.last_joint_unit = number
        return number

    @property
    def open_bytes(self) -> int:
        """The approximate size of the units in the open round, which is not written yet."""
        return self._round_room - self._room

    @abstractmethod
    def _make_room(self, size_bytes: int) -> None:
        """Make room for a unit of this size, by closing the open round or file. Raises UnitRefused; nothing was changed
        then.
        """

    # ---- room ------------------------------------------------------------------------------------------------

    @abstractmethod
    def admits(self, size_bytes: int) -> bool:
        """Return whether a unit (journal entry) of this size may be appended now. size_bytes: what unit_bytes() returns
        for its parts, or the size of its only batch.
        """

    @abstractmethod
    def is_ready_for(self, size_bytes: int) -> bool:
        """Return whether the caller should append a unit of this size now. False means that it does not fit yet but
        will later. True also if waiting would not help; append() then refuses the unit.
        """

    @property
    @abstractmethod
    def largest_unit_bytes(self) -> int:
        """The size in bytes of the largest unit that can be admitted."""

    @property
    @abstractmethod
    def used_bytes(self) -> int:
        """The size of the files or rounds with units that are still needed."""

    @property
    @abstractmethod
    def half_used(self) -> bool:
        """Whether half of the journal is in use, so that a flush and a checkpoint should run before it is full."""

    @property
    @abstractmethod
    def wants_recycling(self) -> bool:
        """Whether half of the journal is in use, or it cannot grow: a checkpoint should then free some of it."""

    @property
    @abstractmethod
    def nearly_full(self) -> bool:
        """Whether little room is left and a checkpoint would make room. Writers are made to wait while this is true."""

    # ---- rounds ----------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def next_round(self) -> int:
        """The number of the next round."""

    @property
    @abstractmethod
    def pending(self) -> bool:
        """Whether units wait for take_round()."""

    @property
    @abstractmethod
    def lacks_seal(self) -> bool:
        """Whether an empty round is needed, which records that the newest round with units was synced."""

    @abstractmethod
    def take_round(self, *, sync: bool) -> RoundWrite | None:
        """Close the open round (the units of one write) and return it; None if there is nothing to write. The caller
        calls its run() or begin(), then finished(), in the order of rounds.

        sync: this round, and all rounds before it, are to survive a power cut.
        """

    @abstractmethod
    def finished(self, write: RoundWrite) -> None:
        """Release the round's units (they may be answered and read), after its run() has returned or its begin() has
        called back.
        """

    @abstractmethod
    def sync_job(self) -> SyncJob | None:
        """Return a job that syncs the written rounds, to be run in a worker before synced() is called; None if there is
        nothing to sync.
        """

    @abstractmethod
    def synced(self, job: SyncJob) -> None:
        """Note that the sync job has ended without an error: the units that it covers survive a power cut."""

    # ---- what checkpoints need -------------------------------------------------------------------------------

    @abstractmethod
    def fill_job(self) -> Job | None:
        """Return a job that prepares the next files of the journal; None if that is not needed. Only one may run at a
        time; call filled() when it has ended.
        """

    @abstractmethod
    def filled(self, job: Job) -> None:
        """Note that the job of fill_job() has ended, so that the files which it prepared can be used."""

    @property
    @abstractmethod
    def may_fill(self) -> bool:
        """Return whether fill_job() may return a job. Cheap enough to call at every round."""

    @abstractmethod
    def when_wanted(self, callback: Callable[[], None]) -> None:
        """Set a function that is called whenever no prepared file has room for a unit."""

    @abstractmethod
    def start_after(self, unit: int) -> JournalStart:
        """Return where a scan for all units after this one begins: the journal_start of a checkpoint through `unit`."""

    @abstractmethod
    def recycle(self, through_unit: int, start: JournalStart = EVERYTHING) -> None:
        """Free the files or rounds that no checkpoint needs. through_unit, start: from the older of the two durable
        checkpoints.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the files. Writes nothing."""
