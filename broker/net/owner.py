"""What a connection sees of the server it belongs to, and of the store behind that."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from ...protocol.primitives import Readable
from ..metrics import Metrics

C = TypeVar("C", contravariant=True)
"""The connection's own class."""


class OlderConnection(Exception):
    """What comes over this connection was delayed: its client goes on over a newer one.

    Not answered, and not carried out; the connection is closed.
    """


class Stored(Protocol):
    """What of a store a connection looks at."""

    congested: bool  # it takes no more for now

    def has_room_for(self, request_bytes: int) -> bool:
        """Return whether to append a large request now; otherwise wait until a journal file has room for it."""

    @property
    def last_unit(self) -> int:
        """The newest unit: who waits for it waits for all that was written so far."""


class Owner(Protocol[C]):
    """What a connection asks of the server it belongs to."""

    metrics: Metrics

    @property
    def store(self) -> Stored:
        """The store whose units the replies wait for."""
        ...

    def touch(self, connection: C, /) -> None:
        """Call the connection's flush() at the end of this turn, and at releases while a reply waits."""

    def serve(self, connection: C, frame: Readable, /) -> None:
        """Handle one request: call reply() or park(), or neither if it is not to be answered."""

    def reserve(self, connection: C, size_bytes: int) -> bool:
        """Reserve memory for more of a large frame. Returns False if there is none; admitted() is called later."""

    def give_back(self, connection: C, size_bytes: int) -> None:
        """Release all memory reserved for the large frame: it is handled, or will never arrive."""

    def stalled(self, connection: C) -> None:
        """The connection waits for the store to take more; relieved() is called when it does."""

    def soon(self, work: Callable[[], None], /) -> object:
        """Call the function in a later turn of the loop."""

    def failed(self, connection: C, error: Exception) -> None:
        """Close the connection: a request could not even be refused."""

    def malformed(self, connection: C, reason: str) -> None:
        """Log that the connection is closed because of malformed bytes."""

    def lost(self, connection: C) -> None:
        """Called when a connection has ended."""
