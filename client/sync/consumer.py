"""The blocking Consumer: `for batch in consumer.batches()`, `for record in consumer`.

The rule: like the asyncio client, it joins its group, and its assignment changes, only within the calls that wait for
records; rebalance listeners run in the clients' own thread. Heartbeats continue while the caller works.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ..consumer.batches import Batch
from ..consumer.batches import Batches as AsyncBatches
from ..consumer.consumer import Consumer as AsyncConsumer
from ..reader_parts import CLOSING_MS
from ..values import Record
from .blocking import Blocking, forward
from .loop_thread import LoopThread

if TYPE_CHECKING:
    from typing import Unpack

    from ..addresses import Bootstrap
    from ..metrics.counters import ClientMetrics
    from ..settings import ConsumerKeywords
    from ..tracing.tracing import TracerProvider, Tracing

INTERRUPTED_MS = 1_000


class Batches(Iterator[Batch]):
    """`for batch in consumer.batches(...)`: waits for records; it may be iterated again after an error."""

    def __init__(self, inner: AsyncBatches, thread: LoopThread) -> None:
        self._inner = inner
        self._thread = thread

    def __next__(self) -> Batch:
        async def wait() -> Batch | None:
            return await anext(self._inner, None)

        found = self._thread.run(wait)
        if found is None:
            raise StopIteration
        return found


class Consumer(Blocking[AsyncConsumer]):
    """Like fencepost.Consumer; methods that wait for records block."""

    def __init__(
        self,
        bootstrap_servers: "Bootstrap",
        *,
        topics: Collection[str] = (),
        metrics: "ClientMetrics | None" = None,
        tracing: "Tracing | TracerProvider | bool | None" = None,
        **keywords: "Unpack[ConsumerKeywords]",
    ) -> None:
        super().__init__(
            lambda: AsyncConsumer(bootstrap_servers, topics=topics, metrics=metrics, tracing=tracing, **keywords)
        )

    @classmethod
    def from_config(
        cls,
        config: Mapping[str, Any],
        *,
        topics: Collection[str] = (),
        metrics: "ClientMetrics | None" = None,
        tracing: "Tracing | TracerProvider | bool | None" = None,
    ) -> Self:
        """Create a consumer from setting names of Java's client or of librdkafka, such as {"bootstrap.servers": …}."""
        consumer = cls.__new__(cls)
        super(Consumer, consumer).__init__(
            lambda: AsyncConsumer.from_config(config, topics=topics, metrics=metrics, tracing=tracing)
        )
        return consumer

    def close(self, *, timeout_ms: float = CLOSING_MS) -> None:
        """Leave the group and close all connections, within timeout_ms. Idempotent."""
        self._end(lambda: self._inner.close(timeout_ms=timeout_ms))

    stop = close

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        timeout_ms: float
        if error is None or isinstance(error, Exception):
            timeout_ms = CLOSING_MS
        else:
            timeout_ms = INTERRUPTED_MS  # after Ctrl-C a user waits for the prompt
        self._end(lambda: self._inner._close_after(error, timeout_ms))  # pyright: ignore[reportPrivateUsage]

    def __iter__(self) -> "Consumer":
        return self

    def __next__(self) -> Record:
        return self._wait(self._inner.__anext__)

    def batches(
        self, max_records: int | None = None, *, max_wait_ms: float = 0, timeout_ms: float | None = None
    ) -> Batches:
        """Return an iterator over batches of records with their offsets, for producer.transaction(batch). Like
        fencepost.Consumer.batches.
        """
        make = partial(self._inner.batches, max_records, max_wait_ms=max_wait_ms, timeout_ms=timeout_ms)
        return Batches(self._thread.call(make), self._thread)

    def processing(self, records: Record | Sequence[Record]) -> AbstractContextManager[Any]:
        """Like fencepost.Consumer.processing: the span is current in the caller's thread."""
        return self._inner.processing(records)

    @property
    def last_batch(self) -> Batch | None:
        """What `send_offsets_to_transaction(consumer)` commits, or None. Like fencepost.Consumer.last_batch."""
        return _last_batch(self)

    state = forward(AsyncConsumer.state)
    subscribe = forward(AsyncConsumer.subscribe)
    assign = forward(AsyncConsumer.assign)
    unsubscribe = forward(AsyncConsumer.unsubscribe)
    subscription = forward(AsyncConsumer.subscription)
    assignment = forward(AsyncConsumer.assignment)
    assigned = forward(AsyncConsumer.assigned)
    topics = forward(AsyncConsumer.topics)
    partitions_for_topic = forward(AsyncConsumer.partitions_for_topic)
    getone = forward(AsyncConsumer.getone)
    getmany = forward(AsyncConsumer.getmany)
    position = forward(AsyncConsumer.position)
    seek = forward(AsyncConsumer.seek)
    seek_to_beginning = forward(AsyncConsumer.seek_to_beginning)
    seek_to_end = forward(AsyncConsumer.seek_to_end)
    seek_to_committed = forward(AsyncConsumer.seek_to_committed)
    pause = forward(AsyncConsumer.pause)
    resume = forward(AsyncConsumer.resume)
    paused = forward(AsyncConsumer.paused)
    beginning_offsets = forward(AsyncConsumer.beginning_offsets)
    end_offsets = forward(AsyncConsumer.end_offsets)
    offsets_for_times = forward(AsyncConsumer.offsets_for_times)
    lag = forward(AsyncConsumer.lag)
    group_metadata = forward(AsyncConsumer.group_metadata)
    commit = forward(AsyncConsumer.commit)
    committed = forward(AsyncConsumer.committed)


def _get_last_batch(inner: AsyncConsumer) -> Batch | None:
    return inner.last_batch


_last_batch = forward(_get_last_batch)
