"""Writes and syncs that a loop begins and no thread waits for: what is asked of a disk. Linux's are in aio.py."""

from collections.abc import Callable, Sequence
from typing import Protocol

from ..gathering import Buffer

Done = Callable[[OSError | None, int], None]
"""What a write is told with when it has ended: its error, and how many nanoseconds it took."""

WAITED_FOR = 3  # writes in a row that had ended when the call that began them returned, and not soon: no more are begun


class DirectFile(Protocol):
    """The methods of a File that are used here."""

    @property
    def path(self) -> str:
        """The path by which the file was opened."""
        ...

    def direct_fileno(self) -> int:
        """Return a descriptor for O_DIRECT writes, which the file closes. Raises OSError."""
        ...

    def write(self, buffers: Sequence[Buffer], position: int) -> None:
        """Write all buffers, one after another, from `position` on."""
        ...


class AsyncWriter(Protocol):
    """Begins synced writes for one loop, and calls back when each is durable. Chosen by Disk.async_writer."""

    @property
    def from_bytes(self) -> int:
        """Return the smallest write worth giving to begin(); smaller ones are faster by other means."""
        ...

    @property
    def largest_bytes(self) -> int:
        """Return the largest write that begin() accepts."""
        ...

    @property
    def at_once(self) -> int:
        """Return how many writes may be in flight; 0 if none can be begun, or beginning them blocks the loop."""
        ...

    def begin(self, file: DirectFile, position: int, buffers: Sequence[Buffer], size_bytes: int, done: Done) -> bool:
        """Write these bytes, size_bytes of them, and make them durable; then `done` is called on the loop.

        file: of the disk that made this writer. The buffers are copied first. False: it cannot be done this way, or not
        now; nothing was begun. An error given to `done` means what one of File.sync means, for these bytes alone.
        """
        ...

    def close(self) -> None:
        """Wait until no write is in flight. `done` is not called any more. Idempotent."""
        ...
