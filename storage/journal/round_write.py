"""A round on its way to the disk: by a worker, by the loop, or begun by the loop and waited for by nobody.

The rule: it touches nothing of the journal's, so run() may be a worker's. `done` and `failed` say what became of it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from ...effects.disk import AsyncWriter, Buffer, File
from ...effects.gathering import OVERWRITTEN_SLICE_BYTES, write_gathered

FileWrite: TypeAlias = tuple[File, int, list[Buffer], int]  # where, what, and how many bytes that is


@dataclass(frozen=True, slots=True)
class SyncJob:
    """A sync of all rounds up to one, beside those that go on. run() it in a worker."""

    run: Callable[[], None]
    through_unit: int
    through_round: int
    synced_through: int


class RoundWrite:
    """Rounds on their way to disk: one, or several where a unit did not fit a file and the next file was begun.

    run() it, or begin() it.
    """

    __slots__ = (
        "_alone",
        "_sync_files",
        "_writes",
        "done",
        "failed",
        "size_bytes",
        "sync",
        "sync_ns",
        "synced_through",
        "through_round",
        "through_unit",
        "to_sync_bytes",
    )

    def __init__(
        self,
        writes: list[FileWrite],
        sync_files: Callable[[], None],
        *,
        sync: bool,
        alone: bool,
        size_bytes: int,
        to_sync_bytes: int,
        through_unit: int,
        through_round: int,
        synced_through: int,
    ) -> None:
        self._writes = writes
        self._sync_files = sync_files
        self.sync = sync
        self._alone = alone and len(writes) == 1  # its sync need cover nothing but this one write
        self.size_bytes = size_bytes
        self.to_sync_bytes = to_sync_bytes  # these, and what was written and not synced before
        self.through_unit = through_unit
        self.through_round = through_round
        self.synced_through = synced_through
        self.sync_ns = 0  # how long begin() took to be over
        self.done = self.failed = False

    @property
    def sizes(self) -> list[tuple[File, int]]:
        """How many bytes go to which file."""
        return [(file, size) for file, _, _, size in self._writes]

    def begin(self, writer: AsyncWriter, told: Callable[[OSError | None], None]) -> bool:
        """Have it written and synced without a worker; `told` is called on the loop then. False: it must be run()."""
        if not (self.sync and self._alone and self.size_bytes >= writer.from_bytes):
            return False

        def ended(error: OSError | None, took_ns: int) -> None:
            self.sync_ns = took_ns
            self.done, self.failed = error is None, error is not None
            told(error)

        file, position, buffers, size_bytes = self._writes[0]
        return writer.begin(file, position, buffers, size_bytes, ended)

    def run(self) -> None:
        """Write all, then sync. Raises OSError: then nothing of it may be released, now or later."""
        try:
            for file, position, buffers, size_bytes in self._writes:
                # Without a sync the page cache takes it, and a later one brings it on.
                write_gathered(
                    file, buffers, position, size_bytes, past_cache=self.sync, slice_bytes=OVERWRITTEN_SLICE_BYTES
                )
            if self.sync:
                self._sync_files()
        except BaseException:
            self.failed = True
            raise
        self.done = True
