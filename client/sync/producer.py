"""Producer, blocking: `with producer.transaction() as tx`, aborted on any exception, Ctrl-C included.

The rule: `send` waits for room in the buffer, as the other does; a delivery's result() waits for the acknowledgement.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ..errors import AbortableTransactionError
from ..producer.delivery import Delivery as AsyncDelivery
from ..producer.producer import Producer as AsyncProducer
from ..producer.transaction import Transaction as AsyncTransaction
from ..transactions.machine import Outcome
from ..values import ConsumerGroupMetadata, HeadersLike, RecordMetadata
from .blocking import Blocking, forward, inner_of
from .loop_thread import LoopThread

if TYPE_CHECKING:
    from typing import Unpack

    from ..settings import Bootstrap, ProducerKeywords

T = TypeVar("T")

ABORT_S = 2.0
CLOSE_MS = 1_000


class Delivery:
    """A record on its way."""

    __slots__ = ("_inner", "_thread")

    def __init__(self, inner: AsyncDelivery, thread: LoopThread) -> None:
        self._inner = inner
        self._thread = thread

    def done(self) -> bool:
        """Whether result() would not wait."""
        return self._inner.done()

    def result(self) -> RecordMetadata:
        """Where it was written. Raises what kept it from that; waits no longer than delivery_timeout_ms."""

        async def wait() -> RecordMetadata:
            return await self._inner

        return self._thread.run(wait)

    def __repr__(self) -> str:
        return repr(self._inner)


class Producer(Blocking[AsyncProducer]):
    """As fencepost.Producer; every method waits."""

    def __init__(self, bootstrap_servers: "Bootstrap", **keywords: "Unpack[ProducerKeywords]") -> None:
        super().__init__(lambda: AsyncProducer(bootstrap_servers, **keywords))

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """With Java's and librdkafka's names: {"bootstrap.servers": …}."""
        producer = cls.__new__(cls)
        super(Producer, producer).__init__(lambda: AsyncProducer.from_config(config))
        return producer

    def start(self) -> None:
        """Find the cluster; with a transactional_id, fence who had the id and abort what was left open."""
        super().start()

    def close(self, *, timeout_ms: float | None = None) -> None:
        """Send what is left, for at most so long (delivery_timeout_ms if not given). Idempotent."""
        self._end(lambda: self._inner.close(timeout_ms=timeout_ms))

    stop = close

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        interrupted = error is not None and not isinstance(error, Exception)
        self.close(timeout_ms=CLOSE_MS if interrupted else None)

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike | None = None,
    ) -> Delivery:
        """Take a record. Raises as the other."""
        inner = self._wait(lambda: self._inner.send(topic, value, key, partition, timestamp_ms, headers))
        return Delivery(inner, self._thread)

    state = forward(AsyncProducer.state)
    send_and_wait = forward(AsyncProducer.send_and_wait)
    flush = forward(AsyncProducer.flush)
    partitions_for = forward(AsyncProducer.partitions_for)
    init_transactions = forward(AsyncProducer.init_transactions)
    begin_transaction = forward(AsyncProducer.begin_transaction)
    commit_transaction = forward(AsyncProducer.commit_transaction)
    abort_transaction = forward(AsyncProducer.abort_transaction)

    def send_offsets_to_transaction(self, source: Any, metadata: ConsumerGroupMetadata | None = None) -> None:
        """Of a blocking consumer (the batch it yielded last), of a batch, or a mapping with its metadata."""
        self._wait(lambda: self._inner.send_offsets_to_transaction(inner_of(source), metadata))

    def transaction(self, batch: Any = None, label: str | None = None) -> "Transaction":
        """`with producer.transaction() as tx`: commits at the end, aborts on any exception."""
        return Transaction(self._thread.call(lambda: self._inner.transaction(batch, label)), self._thread)

    def run_in_transaction(self, work: "Callable[[Transaction], T]", retries: int = 3) -> T:
        """Run `work` in a transaction of its own, and again if that had to be aborted, at most `retries` times more."""
        return run_until_committed(self.transaction, work, retries)

    @property
    def transactional_id(self) -> str | None:
        return self._inner.transactional_id

    @property
    def producer_id(self) -> int:
        """As of now; -1 before the broker gave one."""
        return _producer_id(self)

    @property
    def producer_epoch(self) -> int:
        return _producer_epoch(self)


_producer_id = forward(lambda inner: int(inner.producer_id))
_producer_epoch = forward(lambda inner: int(inner.producer_epoch))


class Transaction:
    """One transaction, in a `with` block."""

    def __init__(self, inner: AsyncTransaction, thread: LoopThread) -> None:
        self._inner = inner
        self._thread = thread

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def outcome(self) -> Outcome | None:
        """As of fencepost.Transaction: what became of it, also when it was interrupted."""
        return self._inner.outcome

    def send(self, topic: str, value: Any = None, key: Any = None, **more: Any) -> Delivery:
        """As Producer.send; the commit waits for all."""
        delivery: AsyncDelivery = self._thread.run(lambda: self._inner.send(topic, value, key, **more))
        return Delivery(delivery, self._thread)

    def send_and_wait(self, topic: str, value: Any = None, key: Any = None, **more: Any) -> RecordMetadata:
        """As Producer.send_and_wait."""
        return self._thread.run(lambda: self._inner.send_and_wait(topic, value, key, **more))

    def send_offsets_to_transaction(self, source: Any, metadata: ConsumerGroupMetadata | None = None) -> None:
        """Commit offsets with the transaction: of a consumer, a batch, or a mapping with its metadata."""
        self._thread.run(lambda: self._inner.send_offsets_to_transaction(inner_of(source), metadata))

    def __enter__(self) -> Self:
        try:
            self._thread.run(self._inner.__aenter__)
        except BaseException as error:  # a signal's, perhaps: it may have begun in that moment
            if self._inner.is_begun:
                end_transaction(self._thread, self._inner.__aexit__, type(error), error, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        end_transaction(self._thread, self._inner.__aexit__, kind, error, at)


def end_transaction(
    thread: LoopThread,
    aexit: Callable[..., Coroutine[Any, Any, None]],
    kind: type[BaseException] | None,
    error: BaseException | None,
    at: TracebackType | None,
) -> None:
    """Commit it or abort it, in the clients' thread; an abort for Ctrl-C is not waited for as long as others."""
    if error is None or isinstance(error, Exception):
        thread.run(lambda: aexit(kind, error, at))
    else:
        thread.run(lambda: _soon(aexit(kind, error, at)))


async def _soon(ending: Coroutine[Any, Any, None]) -> None:
    """Somebody is waiting for their prompt: the abort gets a moment, and after that what a cancelled one gets."""
    task = asyncio.ensure_future(ending)
    await asyncio.wait({task}, timeout=ABORT_S)
    if not task.done():
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def run_until_committed(
    begin: Callable[[], AbstractContextManager[Transaction]], work: Callable[[Transaction], T], retries: int
) -> T:
    """What `work` gives, in a transaction that was committed. One that had to be aborted is made again, so often."""
    while True:
        try:
            with begin() as transaction:
                done = work(transaction)
            return done  # noqa: RET504 (only once it is committed)
        except AbortableTransactionError:
            if not retries:
                raise
            retries -= 1
