"""A round that is being written to the disk: by a worker, by the loop, or by the kernel, which calls the loop back.

The rule: it uses no state of the journal except the lock of its syncs, so a worker may call run(). `done` and `failed`
say how the write ended.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeAlias

from ...effects.disk import AsyncWriter, Buffer, File
from ...effects.gathering import BULK_BYTES, OVERWRITTEN_SLICE_BYTES, write_gathered

FileWrite: TypeAlias = tuple[File, int, list[Buffer], int]  # where, what, and how many bytes that is


@dataclass(slots=True, eq=False)
class SyncJob:
    """One sync of all finished rounds that are not synced yet. A worker calls run() while further rounds are written.

    synced_through: the header of the newest of these rounds says that all rounds up to this one are synced.
    """

    sync_files: Callable[[], None]
    files: Collection[File]
    through_unit: int
    through_round: int
    synced_through: int
    ended: bool = False  # with or without an error

    def run(self) -> None:
        """Run the syncs. Raises: OSError."""
        try:
            self.sync_files()
        finally:
            self.ended = True


class RoundWrite:
    """Rounds that are written together: one, or several if a unit did not fit a file and the next file was begun.

    Call run() or begin().
    """

    __slots__ = (
        "_own_sync_is_enough",
        "_sync_files",
        "_writes",
        "begun",
        "done",
        "failed",
        "files",
        "size_bytes",
        "sync",
        "sync_ns",
        "synced_through",
        "through_round",
        "through_unit",
        "to_sync_bytes",
    )

    may_run_here = True  # whether the loop itself may call run(), if the round is small and the device quick

    def __init__(
        self,
        writes: list[FileWrite],
        sync_files: Callable[[], None],
        *,
        files: Collection[File],
        sync: bool,
        own_sync_is_enough: bool,
        size_bytes: int,
        to_sync_bytes: int,
        through_unit: int,
        through_round: int,
        synced_through: int,
    ) -> None:
        """writes: (file, position, buffers, size in bytes). sync_files: syncs `files`. own_sync_is_enough: no file has
        earlier unsynced bytes, so the write itself may sync.

        to_sync_bytes: how many bytes the sync writes to the device. through_unit, through_round: the newest that are
        written. synced_through: the newest header says that all rounds up to this one are synced.
        """
        self._writes = writes
        self._sync_files = sync_files
        self.files = files  # those that are written or synced
        self.sync = sync
        self._own_sync_is_enough = own_sync_is_enough and len(writes) == 1
        self.size_bytes = size_bytes
        self.to_sync_bytes = to_sync_bytes  # size_bytes, and what earlier rounds have written and not synced
        self.through_unit = through_unit
        self.through_round = through_round
        self.synced_through = synced_through
        self.sync_ns = 0  # how long the write took that begin() began; 0 if run() was called
        self.begun = self.done = self.failed = False

    @property
    def sizes(self) -> list[tuple[File, int]]:
        """Return (file, bytes) for each file that the round is written to."""
        return [(file, size) for file, _, _, size in self._writes]

    def begin(self, writer: AsyncWriter, told: Callable[[OSError | None], None]) -> bool:
        """Begin writing and syncing without a worker; `told` is called on the loop with None or the error when that
        has ended. Returns False if that is not possible, or the round is too small to gain by it: use run() instead.
        """
        if not (self.sync and self._own_sync_is_enough and self.size_bytes >= writer.from_bytes):
            return False

        def ended(error: OSError | None, took_ns: int) -> None:
            """Note the result of the write, and call `told` with it. took_ns: how long it took."""
            self.sync_ns = took_ns
            self.done, self.failed = error is None, error is not None
            if error is not None:
                error.add_note(
                    f"of {size_bytes} bytes at {position}, begun by the loop: rounds through {self.through_round}"
                )
            told(error)

        file, position, buffers, size_bytes = self._writes[0]
        self.begun = writer.begin(file, position, buffers, size_bytes, ended)
        return self.begun

    def run(self) -> None:
        """Write everything, then sync. Raises OSError: then none of its units may be released, now or later."""
        try:
            if not (self.sync and self._own_sync_is_enough and self._write_blocks()):
                self._write_and_sync()
        except BaseException:
            self.failed = True
            raise
        self.done = True

    def _write_blocks(self) -> bool:
        """Write and sync a small round in one call. Returns False if the file system cannot do that."""
        file, position, buffers, size_bytes = self._writes[0]
        return size_bytes < BULK_BYTES and file.write_blocks_synced(buffers, position, size_bytes)

    def _write_and_sync(self) -> None:
        """Write the round to its files, and sync them if that is asked for."""
        for file, position, buffers, size_bytes in self._writes:
            # Without `sync` the bytes go into the page cache. A later sync brings them to the device.
            write_gathered(
                file, buffers, position, size_bytes, past_cache=self.sync, slice_bytes=OVERWRITTEN_SLICE_BYTES
            )
        if self.sync:
            self._sync_files()
