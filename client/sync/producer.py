"""The blocking Producer: `with producer.transaction() as tx` aborts on any exception, including Ctrl-C.

The rule: `send` waits only for room in the buffer; a delivery's result() waits for the acknowledgement.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ..errors import AbortableTransactionError
from ..producer.delivery import Delivery as AsyncDelivery
from ..producer.producer import Producer as AsyncProducer
from ..producer.transaction import Transaction as AsyncTransaction
from ..transactions.machine import Outcome
from ..transactions.sqlstates import may_succeed_again
from ..values import AcknowledgeType, ConsumerGroupMetadata, HeadersLike, RecordMetadata, ShareRecord
from .blocking import Blocking, forward, inner_of
from .ending import end_transaction
from .loop_thread import LoopThread

if TYPE_CHECKING:
    from typing import Unpack

    from ..addresses import Bootstrap
    from ..metrics.counters import ClientMetrics
    from ..settings import ProducerKeywords
    from ..tracing.tracing import TracerProvider, Tracing
    from ..transactions.participant import Wait
    from .taking_part import Database

T = TypeVar("T")

CLOSE_MS = 1_000


class Delivery:
    """A record that was taken by `send`."""

    __slots__ = ("_inner", "_thread")

    def __init__(self, inner: AsyncDelivery, thread: LoopThread) -> None:
        self._inner = inner
        self._thread = thread

    def done(self) -> bool:
        """Return whether the record is acknowledged or has failed."""
        return self._inner.done()

    def result(self) -> RecordMetadata:
        """Wait for the acknowledgement, at most delivery_timeout_ms. Returns where the record was written. Raises its
        error.
        """

        async def wait() -> RecordMetadata:
            return await self._inner

        return self._thread.run(wait)

    def __repr__(self) -> str:
        return repr(self._inner)


class Producer(Blocking[AsyncProducer]):
    """Like fencepost.Producer; every method waits for its result."""

    def __init__(
        self,
        bootstrap_servers: "Bootstrap",
        *,
        metrics: "ClientMetrics | None" = None,
        tracing: "Tracing | TracerProvider | bool | None" = None,
        **keywords: "Unpack[ProducerKeywords]",
    ) -> None:
        super().__init__(lambda: AsyncProducer(bootstrap_servers, metrics=metrics, tracing=tracing, **keywords))

    @classmethod
    def from_config(
        cls,
        config: Mapping[str, Any],
        *,
        metrics: "ClientMetrics | None" = None,
        tracing: "Tracing | TracerProvider | bool | None" = None,
    ) -> Self:
        """Create a producer from setting names of Java's client or of librdkafka, such as {"bootstrap.servers": …}."""
        producer = cls.__new__(cls)
        super(Producer, producer).__init__(lambda: AsyncProducer.from_config(config, metrics=metrics, tracing=tracing))
        return producer

    def start(self) -> None:
        """Connect; with a transactional_id, fence the id's previous producer and abort its open transaction."""
        super().start()

    def close(self, *, timeout_ms: float | None = None) -> None:
        """Send the remaining records, for at most timeout_ms (default: delivery_timeout_ms), then close. Idempotent."""
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
        sequence: int | None = None,
    ) -> Delivery:
        """Take a record. Like fencepost.Producer.send."""
        inner = self._wait(lambda: self._inner.send(topic, value, key, partition, timestamp_ms, headers, sequence))
        return Delivery(inner, self._thread)

    state = forward(AsyncProducer.state)
    send_and_wait = forward(AsyncProducer.send_and_wait)
    flush = forward(AsyncProducer.flush)
    partitions_for = forward(AsyncProducer.partitions_for)
    last_sequences = forward(AsyncProducer.last_sequences)
    init_transactions = forward(AsyncProducer.init_transactions)
    begin_transaction = forward(AsyncProducer.begin_transaction)
    commit_transaction = forward(AsyncProducer.commit_transaction)
    abort_transaction = forward(AsyncProducer.abort_transaction)

    def send_offsets_to_transaction(self, source: Any, metadata: ConsumerGroupMetadata | None = None) -> None:
        """Add offsets: of a blocking consumer (its last batch), of a batch, or a mapping with its metadata."""
        self._wait(lambda: self._inner.send_offsets_to_transaction(inner_of(source), metadata))

    def transaction(
        self, batch: Any = None, label: str | None = None, *, db: "Database | None" = None, wait: "Wait" = "ended"
    ) -> "Transaction":
        """`with producer.transaction() as tx`: commits at the end, aborts on any exception.

        db: from `fencepost.sync.sql.connect`; its changes in the block are committed with the records. wait: like
        fencepost.Producer.transaction.
        """
        database = inner_of(db)
        inner = self._thread.call(lambda: self._inner.transaction(batch, label, db=database, wait=wait))
        return Transaction(inner, self._thread, db)

    def run(self, work: "Callable[[Transaction], T]", retries: int = 3, *, db: "Database | None" = None) -> T:
        """Run `work` in a transaction and return its result; after an abort or a conflict in the database run it again,
        at most `retries` times.
        """
        return run_until_committed(lambda: self.transaction(db=db), work, retries)

    run_in_transaction = run

    @property
    def transactional_id(self) -> str | None:
        return self._inner.transactional_id

    @property
    def producer_id(self) -> int:
        """Return the producer id; -1 if it has none."""
        return _producer_id(self)

    @property
    def producer_epoch(self) -> int:
        return _producer_epoch(self)


_producer_id = forward(lambda inner: int(inner.producer_id))
_producer_epoch = forward(lambda inner: int(inner.producer_epoch))


class Transaction:
    """One transaction, in a `with` block. db: a database whose transaction is this one too."""

    def __init__(self, inner: AsyncTransaction, thread: LoopThread, db: "Database | None" = None) -> None:
        self._db = db
        self._inner = inner
        self._thread = thread

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def outcome(self) -> Outcome | None:
        """Return the transaction's outcome, known also if the block was interrupted. Like
        fencepost.Transaction.outcome.
        """
        return self._inner.outcome

    def send(self, topic: str, value: Any = None, key: Any = None, **more: Any) -> Delivery:
        """Like Producer.send; the commit waits for all deliveries."""
        delivery: AsyncDelivery = self._thread.run(lambda: self._inner.send(topic, value, key, **more))
        return Delivery(delivery, self._thread)

    def send_and_wait(self, topic: str, value: Any = None, key: Any = None, **more: Any) -> RecordMetadata:
        """Like Producer.send_and_wait."""
        return self._thread.run(lambda: self._inner.send_and_wait(topic, value, key, **more))

    def send_offsets_to_transaction(self, source: Any, metadata: ConsumerGroupMetadata | None = None) -> None:
        """Commit offsets with the transaction: of a consumer, a batch, or a mapping with its metadata."""
        self._thread.run(lambda: self._inner.send_offsets_to_transaction(inner_of(source), metadata))

    def acknowledge(self, consumer: Any, *records: ShareRecord, type: AcknowledgeType = AcknowledgeType.ACCEPT) -> None:
        """Acknowledge records of a blocking ShareConsumer with the transaction. Like fencepost.Transaction's."""
        self._thread.run(lambda: self._inner.acknowledge(inner_of(consumer), *records, type=type))

    def __enter__(self) -> Self:
        if self._db is not None:
            self._db.before_block()
        try:
            self._thread.run(self._inner.__aenter__)
        except BaseException as error:  # after a signal the transaction may have begun
            if self._inner.is_begun:
                end_transaction(self._thread, self._inner.__aexit__, type(error), error, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        committed = False
        try:
            end_transaction(self._thread, self._inner.__aexit__, kind, error, at)
            committed = self.outcome == "committed"
        except BaseException as raised:  # perhaps a signal, before the end had begun
            if self._inner.is_open:
                end_transaction(self._thread, self._inner.__aexit__, type(raised), raised, None)
            raise
        finally:
            if self._db is not None:
                self._db.after_block(committed)


def run_until_committed(
    begin: Callable[[], AbstractContextManager[Transaction]], work: Callable[[Transaction], T], retries: int
) -> T:
    """Run `work` in a transaction and return its result after the commit. Repeats an aborted one, `retries` times."""
    while True:
        try:
            with begin() as transaction:
                done = work(transaction)
            return done  # noqa: RET504 (only after the commit)
        except Exception as error:
            if not retries or not (isinstance(error, AbortableTransactionError) or may_succeed_again(error)):
                raise
            retries -= 1
