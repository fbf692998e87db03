"""Says which files a running journal has, in what order they are used, and whether there is room for a unit.

The rules: one file is prepared at a time, and its number follows the newest number. Sizes double from the first file to
the largest. All files together stay under the limit. Blocking work is in preparing.py.
"""

from collections import deque
from collections.abc import Callable, Collection

from ...effects.disk import Disk, File
from .format import BLOCK_BYTES, blocks
from .preparing import AROUND_UNITS_BYTES, JournalFile, Life, Preparation

FILES_AHEAD = 2


class JournalFiles:
    """All files of a running journal: `held` (they have units that may be needed; the last of them is written to),
    `ready` (prepared for writing), and spares (to be reused or removed).
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        life: Life,
        *,
        max_bytes: int,
        first_file_bytes: int,
        largest_file_bytes: int,
        keep_free_bytes: int = 0,
    ) -> None:
        """Make the first file. Raises: ValueError if the limits are too small; OSError."""
        self._disk = disk
        self._directory = directory
        self._life = life
        self.max_bytes = max_bytes
        self._largest = min(largest_file_bytes, max_bytes // 8) // BLOCK_BYTES * BLOCK_BYTES
        self._first = min(blocks(first_file_bytes), self._largest)
        if self._first <= AROUND_UNITS_BYTES:
            raise ValueError(
                f"a journal of {max_bytes} bytes is too small for files of {first_file_bytes} bytes and more"
            )
        self._next_bytes = self._first
        self._next_sequence = life.first_file
        self._spares: deque[JournalFile] = deque()
        self._job: Preparation | None = None
        self._wanted = 0  # the size of a unit for which no ready file had room; 0 if there is none
        self.on_wanted: Callable[[], None] = _nothing  # called when no ready file has room for a unit
        self.starved = False  # whether the last preparation failed, because the disk has no room for a file
        self.held: deque[JournalFile] = deque()
        self.ready: deque[JournalFile] = deque()
        self.full_bytes = 0  # of held files that are not written to any more
        self._keep_free_bytes = 0  # the first file is made even on a nearly full disk: no journal works without it
        first = self._prepare(self._first)
        first.run()
        self.settle()
        self.advance()
        self._keep_free_bytes = keep_free_bytes

    # ---- room ------------------------------------------------------------------------------------------------

    @property
    def current(self) -> JournalFile:
        """The file that is written to."""
        return self.held[-1]

    @property
    def largest_unit_bytes(self) -> int:
        """The size of the largest unit: its file and the file before must fit the journal's limit together."""
        return self.max_bytes // 2 // BLOCK_BYTES * BLOCK_BYTES - AROUND_UNITS_BYTES

    def admits(self, unit_bytes: int) -> bool:
        """Return whether a ready file has room for the unit. If not, call on_wanted(); preparation() then makes such a
        file, if a file may be that large.
        """
        for file in self.ready:
            if file.capacity >= unit_bytes:
                return True
        if self._wanted < unit_bytes <= self.largest_unit_bytes:
            self._wanted = unit_bytes
        self.on_wanted()
        return False

    def is_ready_for(self, unit_bytes: int) -> bool:
        """Return whether the caller should append a unit of this size now: a ready file has room, or waiting would not
        help because no file can be that large or the disk has no room for one.
        """
        return unit_bytes > self.largest_unit_bytes or self.starved or self.admits(unit_bytes)

    def advance(self) -> JournalFile:
        """Make the first ready file the current one, to which units are written from now on. Returns it."""
        if self.held:
            self.full_bytes += self.current.size_bytes
        self.held.append(self.ready.popleft())
        return self.current

    def holding_units_after(self, unit: int) -> JournalFile:
        """Return the first file with units after this one, or the current file, to which later units are written."""
        return next((file for file in self.held if file.last_unit > unit), self.current)

    def retire(
        self, through_unit: int, start_file: int, synced_round: int, in_use: Collection[File]
    ) -> list[JournalFile]:
        """Remove and return, for reuse, the files whose units are not needed any more and that are not in use.

        through_unit: units up to this one are not needed. start_file: the number of the file at which a scan after a
        crash begins. A file before it may be reused even if it was never synced, because no scan reads it. Any other
        file stays until a round in the file after it is synced (synced_round: the newest synced one). So if the first
        file of a scan is gone, the first round that the scan finds is one that was synced.
        """
        retired: list[JournalFile] = []
        while len(self.held) > 1 and self.held[0].last_unit <= through_unit and self.held[0].file not in in_use:
            if self.held[0].sequence >= start_file and not 0 < self.held[1].first_round <= synced_round:
                break
            file = self.held.popleft()
            self.full_bytes -= file.size_bytes
            self._spares.append(file)
            retired.append(file)
        return retired

    # ---- preparing -------------------------------------------------------------------------------------------

    @property
    def incomplete(self) -> bool:
        """Return whether a preparation is needed: too few files are ready, or some are to be reused."""
        return len(self.ready) < FILES_AHEAD or bool(self._spares) or self._wanted > 0

    def preparation(self) -> Preparation | None:
        """Return a job that makes files ready; None if that is not needed or one runs already. Call settle() when it
        has ended.
        """
        self.settle()
        if self._job is not None:
            return None
        if self._wanted and any(file.capacity >= self._wanted for file in self.ready):
            self._wanted = 0
        # If a large file cannot be made before other files are given up, ordinary files are made meanwhile.
        return (self._plan(self._wanted) if self._wanted else None) or self._plan(0)

    def _plan(self, wanted: int) -> Preparation | None:
        """Return a job that makes a file ready, or reuses or removes spare ones; None if nothing is to be done.

        wanted: the size of a unit that fits no ready file; 0: make the usual number of files ready.
        """
        size = self._size_to_make(wanted)
        reusable = sum(file.size_bytes for file in self._spares if size <= file.size_bytes <= self._largest)
        new = size if not reusable and (wanted or len(self.ready) < FILES_AHEAD) else 0
        drop: list[JournalFile] = []
        if (over := self._total() + reusable + new - self.max_bytes) > 0 and new:
            drop = self._droppable(over) if wanted else []
            if sum(file.size_bytes for file in drop) < over:
                drop, new = [], 0
        if not (new or (self._spares and not wanted) or reusable):
            return None
        return self._prepare(new, size, drop)

    def settle(self) -> None:
        """Take over the files that the last preparation made, if it has ended, with or without an error. The next new
        file becomes larger after a success, smaller after an error.
        """
        job = self._job
        if job is None or not job.ended:
            return
        self._job = None
        self.ready += job.made
        self._next_sequence += len(job.made)
        self._spares.extendleft(reversed(job.spares))
        self.starved = job.failed
        if job.failed:
            self._next_bytes = max(self._first, blocks(self._next_bytes // 2))
        elif job.made:
            self._next_bytes = min(max(self._next_bytes, job.made[-1].size_bytes * 2), self._largest)

    def close(self) -> None:
        """Close all files. Only while no round is being written and no preparation runs."""
        self.settle()
        for file in (*self.held, *self.ready, *self._spares):
            file.file.close()

    def _size_to_make(self, wanted: int) -> int:
        """Return the size of a new file: twice that of the last one, or more if a unit of `wanted` bytes needs it."""
        least = blocks(wanted + AROUND_UNITS_BYTES) if wanted else 0
        if least > self._largest:
            return least
        size = self._next_bytes
        while size < least:
            size = min(2 * size, self._largest)
        return size

    def _total(self) -> int:
        """Return the size in bytes of all journal files in use or ready."""
        return self.full_bytes + self.current.size_bytes + sum(file.size_bytes for file in self.ready)

    def _droppable(self, over: int) -> list[JournalFile]:
        """Return the newest ready files that have `over` bytes together, to be removed so that a larger file has room.

        If all ready files together have fewer bytes, all are returned.
        """
        files: list[JournalFile] = []
        for file in reversed(self.ready):
            if over <= 0:
                break
            files.append(file)
            over -= file.size_bytes
        return files

    def _prepare(self, new: int, size: int = 0, drop: list[JournalFile] | None = None) -> Preparation:
        """Return a job that makes a file of `new` bytes (0: none), makes ready the spare files of `size` bytes or more
        (but not those above the largest size), and removes the other spare files and those in `drop`.

        Takes the spare files, and those in `drop` (the newest ready ones), out of the lists of files.
        """
        drop = drop or []
        for _ in drop:
            self.ready.pop()
        self._next_sequence -= len(drop)
        spares, self._spares = self._spares, deque()
        self._job = Preparation(
            self._disk,
            self._directory,
            self._life,
            self._next_sequence,
            drop=drop,
            spares=spares,
            new_bytes=new,
            reuse=range(size, self._largest + 1),
            keep_free_bytes=self._keep_free_bytes,
        )
        return self._job


def _nothing() -> None:
    """Do nothing: the default of on_wanted."""
