"""A delivery: what `send` gives, and what one awaits to know where a record was written.

The rule: it costs a batch and an index; what it needs beyond that is made for who waits, so that cancelling one who
waits is no matter to another, nor to the record. It has a future's methods, so asyncio takes it as one.
"""

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context, copy_context
from functools import partial
from typing import Any

from ..values import RecordMetadata
from .batching import Batch


def resolve(future: "asyncio.Future[None]") -> None:
    """Let go on who waits, if it still does."""
    if not future.done():
        future.set_result(None)


class Delivery:
    """Awaitable any number of times. Raises what its batch failed with.

    `asyncio.wait`, `gather` and `wait_for` take it. What nobody has awaited or asked to be called for is logged when it
    fails, unless it fails a transaction.
    """

    __slots__ = ("_batch", "_calls", "_index")
    _calls: list[tuple[Callable[["Delivery"], object], Context]]  # only once there was a callback

    def __init__(self, batch: Batch, index: int) -> None:
        self._batch = batch
        self._index = index

    def done(self) -> bool:
        """Whether awaiting it would not wait."""
        return self._batch.done

    def result(self) -> RecordMetadata:
        """Where it was written. Raises what kept it from that, and asyncio.InvalidStateError while it is on its way."""
        if not self._batch.done:
            raise asyncio.InvalidStateError("the record is not acknowledged yet: await the delivery")
        return self._batch.metadata(self._index)

    def exception(self) -> Exception | None:
        """What kept it from being written, or None. Raises asyncio.InvalidStateError while it is on its way."""
        try:
            self.result()
        except asyncio.InvalidStateError:
            raise
        except Exception as error:
            return error
        return None

    def cancel(self, msg: Any = None) -> bool:
        """False: a record that was taken is sent."""
        return False

    def cancelled(self) -> bool:
        """False, as it cannot be."""
        return False

    def add_done_callback(self, call: Callable[["Delivery"], object], *, context: Context | None = None) -> None:
        """Have it called with this delivery by the loop, once it is done. To be used in the loop."""
        batch = self._batch
        batch.is_awaited = True
        loop = asyncio.get_running_loop()
        context = context or copy_context()
        if batch.done:
            loop.call_soon(call, self, context=context)
            return
        if not hasattr(self, "_calls"):
            self._calls = []
            batch.on_done.append(partial(self._tell, loop))
        self._calls.append((call, context))

    def remove_done_callback(self, call: Callable[["Delivery"], object]) -> int:
        """How many times it was to be called, and will not be."""
        calls = getattr(self, "_calls", [])
        kept = [one for one in calls if one[0] != call]
        removed = len(calls) - len(kept)
        calls[:] = kept
        return removed

    def _tell(self, loop: asyncio.AbstractEventLoop) -> None:
        for call, context in self._calls:
            loop.call_soon(call, self, context=context)
        self._calls.clear()

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
