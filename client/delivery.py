"""A delivery: what `send` gives, and what one awaits to know where a record was written.

The rule: it costs a batch and an index; a future is made for who awaits, so that cancelling one who waits is no matter
to another, nor to the record.
"""

import asyncio
from collections.abc import Generator
from functools import partial
from typing import Any

from .batching import Batch
from .values import RecordMetadata


def resolve(future: "asyncio.Future[None]") -> None:
    """Let go on who waits, if it still does."""
    if not future.done():
        future.set_result(None)


class Delivery:
    """Awaitable any number of times. Raises what its batch failed with."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: Batch, index: int) -> None:
        self._batch = batch
        self._index = index

    def done(self) -> bool:
        """Whether awaiting it would not wait."""
        return self._batch.done

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        batch = self._batch
        batch.is_awaited = True
        if not batch.done:
            future = asyncio.get_running_loop().create_future()
            batch.on_done.append(partial(resolve, future))
            yield from future
        return batch.metadata(self._index)

    def __repr__(self) -> str:
        topic, partition = self._batch.partition.topic_partition
        state = "waiting" if not self.done() else "failed" if self._batch.error is not None else "written"
        return f"<Delivery to {topic}-{partition}, {state}>"
