"""A delivery: the result of `send`; await it to learn where the record was written.

The rule: it holds only a batch and an index. Each `await` creates its own future, so that cancelling it affects neither
other waiters nor the record. It has the methods of a future, so asyncio accepts it as one.
"""

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context, copy_context
from functools import partial
from typing import Any

from ..values import RecordMetadata
from .batching import Batch


def resolve(future: "asyncio.Future[None]") -> None:
    """Complete the future, unless it is done or cancelled."""
    if not future.done():
        future.set_result(None)


async def wait_until_done(batch: Batch) -> None:
    """Wait until the batch is acknowledged or has failed."""
    if not batch.done:
        future = asyncio.get_running_loop().create_future()
        batch.on_done.append(partial(resolve, future))
        await future


class Delivery:
    """The result of one sent record. It may be awaited any number of times, and raises the error of its batch.

    `asyncio.wait`, `gather` and `wait_for` accept it. A failure that nobody awaits and no callback gets is logged,
    except in a transaction, which fails then.
    """

    __slots__ = ("_batch", "_calls", "_index")
    _calls: list[tuple[Callable[["Delivery"], object], Context]]  # set with the first callback

    def __init__(self, batch: Batch, index: int) -> None:
        self._batch = batch
        self._index = index

    def done(self) -> bool:
        """Return whether the record is acknowledged or has failed."""
        return self._batch.done

    def result(self) -> RecordMetadata:
        """Return where the record was written. Raises its error, or asyncio.InvalidStateError if it is not done yet."""
        if not self._batch.done:
            raise asyncio.InvalidStateError("the record is not acknowledged yet: await the delivery")
        return self._batch.metadata(self._index)

    def exception(self) -> Exception | None:
        """Return the record's error, or None if it was written. Raises asyncio.InvalidStateError if
        it is not done yet.
        """
        try:
            self.result()
        except asyncio.InvalidStateError:
            raise
        except Exception as error:
            return error
        return None

    def cancel(self, msg: Any = None) -> bool:
        """Do nothing and return False: a record that was taken is sent."""
        return False

    def cancelled(self) -> bool:
        """Return False: a delivery cannot be cancelled."""
        return False

    def add_done_callback(self, call: Callable[["Delivery"], object], *, context: Context | None = None) -> None:
        """Call this with the delivery when it is done. Use it within the event loop."""
        batch = self._batch
        batch.is_awaited = True
        loop = asyncio.get_running_loop()
        context = context or copy_context()
        if batch.done:
            loop.call_soon(call, self, context=context)
            return
        if not hasattr(self, "_calls"):
            self._calls = []
            batch.on_done.append(partial(self._call_back, loop))
        self._calls.append((call, context))

    def remove_done_callback(self, call: Callable[["Delivery"], object]) -> int:
        """Remove all registrations of this callback. Returns how many there were."""
        calls = getattr(self, "_calls", [])
        kept = [one for one in calls if one[0] != call]
        removed = len(calls) - len(kept)
        calls[:] = kept
        return removed

    def _call_back(self, loop: asyncio.AbstractEventLoop) -> None:
        """Schedule all registered callbacks in the event loop: the batch is done."""
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
