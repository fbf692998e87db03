"""The blocking ShareConsumer: `for record in consumer`, `for records in consumer.batches()`.

The rule: locks are renewed, and heartbeats sent, in the clients' own thread while the caller works.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ..reader_parts import CLOSING_MS
from ..share.consumer import ShareBatches as AsyncShareBatches
from ..share.consumer import ShareConsumer as AsyncShareConsumer
from ..values import ShareRecord
from .blocking import Blocking, forward
from .consumer import INTERRUPTED_MS
from .loop_thread import LoopThread

if TYPE_CHECKING:
    from typing import Unpack

    from ..addresses import Bootstrap
    from ..metrics.counters import ClientMetrics
    from ..settings import ShareConsumerKeywords
    from ..tracing.tracing import TracerProvider, Tracing


class ShareBatches(Iterator[list[ShareRecord]]):
    """`for records in consumer.batches(...)`: waits for records; it may be iterated again after an error."""

    def __init__(self, inner: AsyncShareBatches, thread: LoopThread) -> None:
        self._inner = inner
        self._thread = thread

    def __next__(self) -> list[ShareRecord]:
        async def wait() -> list[ShareRecord] | None:
            return await anext(self._inner, None)

        found = self._thread.run(wait)
        if found is None:
            raise StopIteration
        return found


class ShareConsumer(Blocking[AsyncShareConsumer]):
    """Like fencepost.ShareConsumer; methods that wait for records or answers block."""

    def __init__(
        self,
        bootstrap_servers: "Bootstrap",
        *,
        topics: Collection[str] = (),
        metrics: "ClientMetrics | None" = None,
        tracing: "Tracing | TracerProvider | bool | None" = None,
        **keywords: "Unpack[ShareConsumerKeywords]",
    ) -> None:
        super().__init__(
            lambda: AsyncShareConsumer(bootstrap_servers, topics=topics, metrics=metrics, tracing=tracing, **keywords)
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
        super(ShareConsumer, consumer).__init__(
            lambda: AsyncShareConsumer.from_config(config, topics=topics, metrics=metrics, tracing=tracing)
        )
        return consumer

    def close(self, *, timeout_ms: float = CLOSING_MS) -> None:
        """Send the acknowledgements, release all other records, and leave the group, within timeout_ms. Idempotent."""
        self._end(lambda: self._inner.close(timeout_ms=timeout_ms))

    stop = close

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        is_quick = error is not None and not isinstance(error, Exception)  # after Ctrl-C a user waits for the prompt
        timeout_ms: float = INTERRUPTED_MS if is_quick else CLOSING_MS
        self._end(lambda: self._inner._close_after(error, timeout_ms))  # pyright: ignore[reportPrivateUsage]

    def __iter__(self) -> "ShareConsumer":
        return self

    def __next__(self) -> ShareRecord:
        return self._wait(self._inner.__anext__)

    def batches(self, max_records: int | None = None, *, timeout_ms: float | None = None) -> ShareBatches:
        """Return an iterator over lists of records. Like fencepost.ShareConsumer.batches."""
        return ShareBatches(
            self._thread.call(lambda: self._inner.batches(max_records, timeout_ms=timeout_ms)), self._thread
        )

    def processing(self, records: ShareRecord | Sequence[ShareRecord]) -> AbstractContextManager[Any]:
        """Like fencepost.ShareConsumer.processing: the span is current in the caller's thread."""
        return self._inner.processing(records)

    state = forward(AsyncShareConsumer.state)
    subscribe = forward(AsyncShareConsumer.subscribe)
    subscription = forward(AsyncShareConsumer.subscription)
    getone = forward(AsyncShareConsumer.getone)
    getmany = forward(AsyncShareConsumer.getmany)
    acknowledge = forward(AsyncShareConsumer.acknowledge)
    commit = forward(AsyncShareConsumer.commit)
