"""What a connection needs of the server it belongs to, and of the store behind that."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from ...protocol.primitives import Readable
from ..metrics import Metrics

C = TypeVar("C", contravariant=True)
"""The connection's own class."""


class OlderConnection(Exception):
    """Raised for a request that comes over an older connection than one its client already uses. It was delayed on the
    way.

    The request is neither carried out nor answered, and the connection is closed.
    """


class Stored(Protocol):
    """The attributes of the store that a connection uses."""

    congested: bool  # whether it is full, so that nothing more may be appended for now

    def has_room_for(self, request_bytes: int) -> bool:
        """Return whether a large request may be appended now. If not, it must wait until a journal file has room for
        it.
        """

    @property
    def last_unit(self) -> int:
        """The number of the newest unit (journal entry). When it is durable, everything written so far is."""


class Owner(Protocol[C]):
    """The methods that a connection calls of the server it belongs to."""

    metrics: Metrics

    @property
    def store(self) -> Stored:
        """The store for whose units (journal entries) the replies wait."""
        ...

    def touch(self, connection: C, /) -> None:
        """Arrange that the connection's flush() is called at the end of this turn, and again later while a reply waits
        for the journal.
        """

    def serve(self, connection: C, frame: Readable, /) -> None:
        """Handle one request, by calling the connection's reply() or park(); neither is called if there is to be no
        reply.
        """

    def reserve(self, connection: C, size_bytes: int) -> bool:
        """Reserve memory for more bytes of a large request. Returns False if there is none; then admitted() is called
        when there is.
        """

    def give_back(self, connection: C, size_bytes: int) -> None:
        """Release all memory reserved for a large request, because it is handled, or the connection has ended."""

    def stalled(self, connection: C) -> None:
        """Note that the connection waits for room in the store. Its relieved() is called when there is room."""

    def soon(self, work: Callable[[], None], /) -> object:
        """Call the function in a later turn of the loop."""

    def failed(self, connection: C, error: Exception) -> None:
        """Close the connection after an unexpected error, because the request cannot even be answered with an error."""

    def malformed(self, connection: C, reason: str) -> None:
        """Log that the connection is closed because of malformed bytes."""

    def lost(self, connection: C) -> None:
        """Note that a connection has ended."""
