"""The blocking ProducerPool, for request handlers in threads: `with pool.transaction() as tx`.

The rule: a caller that is interrupted while it gets a slot leaves no slot taken.
"""

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ..producer.pool import MAX_WAIT_MS, SIZE
from ..producer.pool import PooledTransaction as AsyncPooledTransaction
from ..producer.pool import ProducerPool as AsyncProducerPool
from .blocking import Blocking, forward
from .ending import end_transaction
from .loop_thread import LoopThread
from .producer import CLOSE_MS, Transaction, run_until_committed

if TYPE_CHECKING:
    from typing import Unpack

    from ..addresses import Bootstrap
    from ..metrics.counters import ClientMetrics
    from ..settings import ProducerKeywords
    from ..tracing.tracing import TracerProvider, Tracing

T = TypeVar("T")


class ProducerPool(Blocking[AsyncProducerPool]):
    """Like fencepost.ProducerPool; threads may share it."""

    def __init__(
        self,
        bootstrap_servers: "Bootstrap",
        *,
        prefix: str,
        size: int = SIZE,
        max_wait_ms: float = MAX_WAIT_MS,
        metrics: "ClientMetrics | None" = None,
        tracing: "Tracing | TracerProvider | bool | None" = None,
        **keywords: "Unpack[ProducerKeywords]",
    ) -> None:
        super().__init__(
            lambda: AsyncProducerPool(
                bootstrap_servers,
                prefix=prefix,
                size=size,
                max_wait_ms=max_wait_ms,
                metrics=metrics,
                tracing=tracing,
                **keywords,
            )
        )

    @classmethod
    def from_config(
        cls,
        config: Mapping[str, Any],
        *,
        prefix: str,
        size: int = SIZE,
        max_wait_ms: float = MAX_WAIT_MS,
        metrics: "ClientMetrics | None" = None,
        tracing: "Tracing | TracerProvider | bool | None" = None,
    ) -> Self:
        """Create a pool whose producers have these settings, by the names of Java's client or of librdkafka."""
        pool = cls.__new__(cls)
        super(ProducerPool, pool).__init__(
            lambda: AsyncProducerPool.from_config(
                config, prefix=prefix, size=size, max_wait_ms=max_wait_ms, metrics=metrics, tracing=tracing
            )
        )
        return pool

    def close(self, *, timeout_ms: float | None = None) -> None:
        """Wait for open transactions, for at most timeout_ms (default: delivery_timeout_ms), then abort the rest.

        Idempotent.
        """
        self._end(lambda: self._inner.close(timeout_ms=timeout_ms))

    stop = close

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        interrupted = error is not None and not isinstance(error, Exception)
        self.close(timeout_ms=CLOSE_MS if interrupted else None)

    state = forward(AsyncProducerPool.state)

    def transaction(self, batch: Any = None, label: str | None = None) -> "PooledTransaction":
        """`with pool.transaction() as tx`: commits at the end, aborts on any exception. Like fencepost.ProducerPool."""
        return PooledTransaction(self._thread.call(lambda: self._inner.transaction(batch, label)), self._thread)

    def run_in_transaction(self, work: "Callable[[Transaction], T]", retries: int = 3) -> T:
        """Run `work` in a transaction and return its result; if it must be aborted, run it again, at most `retries`
        times.
        """
        return run_until_committed(self.transaction, work, retries)


class PooledTransaction:
    """For one `with`: takes a slot of the pool, and gives it back when the transaction has ended."""

    def __init__(self, inner: AsyncPooledTransaction, thread: LoopThread) -> None:
        self._inner = inner
        self._thread = thread

    def __enter__(self) -> Transaction:
        try:
            return Transaction(self._thread.run(self._inner.__aenter__), self._thread)
        except BaseException as error:  # after a signal the transaction may have begun
            end_transaction(self._thread, self._inner.__aexit__, type(error), error, None)
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        end_transaction(self._thread, self._inner.__aexit__, kind, error, at)
