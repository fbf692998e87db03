"""What a transaction uses of its producer's sender. Pure."""

from collections.abc import Callable, Collection
from typing import Protocol

from ..errors import KafkaError


class Sending(Protocol):
    """The methods of the Sender that the driver uses; the Sender describes them. It is created after the driver."""

    def wake(self) -> None:
        """In the next turn of the loop, send the batches that may be sent then."""
        ...

    async def flush(self) -> None:
        """Send all batches now; return when each is acknowledged or failed."""
        ...

    @property
    def buffered_bytes(self) -> int:
        """Return the bytes of memory that unacknowledged records take."""
        ...

    def call_when_sent(self, call: Callable[[Collection[int]], object] | None) -> None:
        """Once all current batches are on their way, call this function with the brokers that have not answered all of
        them. What it sends leaves in the same write as the last batch. It is not called while a batch is sent again, or
        may have to be split. None: call nothing any more.
        """
        ...

    def drop_unsent(self, error: KafkaError) -> None:
        """Fail the batches that were never sent. Sent ones continue until their result is known."""
        ...

    async def settle(self) -> None:
        """Wait until no sent batch waits for a response or a retry."""
        ...
