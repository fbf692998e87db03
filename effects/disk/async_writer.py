"""The interface for synced writes that a loop begins without a thread that waits for them. aio.py has Linux's."""

from collections.abc import Callable, Sequence
from typing import Protocol

from ..gathering import Buffer

Done = Callable[[OSError | None, int], None]
"""Called when a write has ended, with its error or None, and with how many nanoseconds it took."""

WAITED_FOR = 3
"""After so many writes in a row no more are begun, if each had ended before the call that began it returned, and that
call took long: it made the loop wait for the device.
"""


class DirectFile(Protocol):
    """What an async writer needs of a File."""

    @property
    def path(self) -> str:
        """The path by which the file was opened."""
        ...

    def direct_fileno(self) -> int:
        """Return a descriptor for O_DIRECT writes, which the file itself closes. Raises OSError."""
        ...

    def write(self, buffers: Sequence[Buffer], position: int) -> None:
        """Write all buffers, one after another, from `position` on."""
        ...


class AsyncWriter(Protocol):
    """Begins synced writes for one loop, and calls back when each is durable. Disk.async_writer returns one."""

    @property
    def from_bytes(self) -> int:
        """The size of the smallest write worth giving to begin(); smaller ones are faster by other means."""
        ...

    @property
    def largest_bytes(self) -> int:
        """The size of the largest write that begin() accepts."""
        ...

    @property
    def at_once(self) -> int:
        """How many writes may be in flight; 0 if none can be begun, or to begin one would block the loop."""
        ...

    def begin(self, file: DirectFile, position: int, buffers: Sequence[Buffer], size_bytes: int, done: Done) -> bool:
        """Begin to write these bytes (size_bytes of them) and make them durable; then done(error, ns) is called on the
        loop.

        Returns False if it cannot be done this way, or not now; nothing was begun then. file: a file of the disk that
        made this writer. The buffers are copied first. The error given to `done` is None, or means the same as an error
        of File.sync, for these bytes alone.
        """
        ...

    def close(self) -> None:
        """Wait until no write is in flight. `done` is not called any more. May be called again."""
        ...
