"""What a transaction uses of its producer's sender. Pure."""

from typing import Protocol

from ..errors import KafkaError


class Sending(Protocol):
    """The methods of the Sender that the driver uses; the Sender describes them. It is created after the driver."""

    def wake(self) -> None: ...
    async def flush(self) -> None: ...
    def drop_unsent(self, error: KafkaError) -> None: ...
    async def settle(self) -> None: ...
