"""`async with producer.transaction() as tx`: commits at the end; aborts on any exception and raises that unchanged.

The rules: a failed abort is added to the user's exception as a note and never replaces it; an error of the SDK itself
is replaced by a more precise one (the reason for fencing). The consumed batch is notified of the outcome, because its
consumer's position depends on it.
"""

from asyncio import CancelledError
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Protocol, TypeVar

from ..errors import (
    AbortableTransactionError,
    IllegalStateError,
    InvalidConfigurationError,
    KafkaError,
    ProducerFencedError,
)
from ..transactions.driver import TransactionDriver
from ..transactions.machine import Outcome
from ..transactions.participant import DecidingDatabase, Wait
from ..transactions.sending import Sending
from ..transactions.sources import FromGroup, FromShareGroup, Sources, offsets_of
from ..transactions.sqlstates import may_succeed_again
from ..transactions.table import State
from ..values import AcknowledgeType, ConsumerGroupMetadata, HeadersLike, RecordMetadata, ShareRecord
from .delivery import Delivery

T = TypeVar("T")


class Sends(Protocol):
    """The methods of the producer that a transaction uses."""

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike | None = None,
    ) -> Delivery:
        """Take a record, as Producer.send does."""
        ...

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike | None = None,
    ) -> RecordMetadata:
        """Take a record and wait until it is acknowledged, as Producer.send_and_wait does."""
        ...


class Transaction:
    """One transaction of a producer. label: a name for `repr`.

    database: one whose transaction commits or is rolled back together with this one. wait: "ended": until the broker
    was told what the database has decided; "decided": only until the database has decided.
    """

    def __init__(
        self,
        producer: Sends,
        driver: TransactionDriver,
        batch: FromGroup | None = None,
        label: str | None = None,
        sources: Sources | None = None,
        database: DecidingDatabase | None = None,
        wait: Wait = "ended",
    ) -> None:
        if database is not None and not hasattr(database, "decide"):
            raise InvalidConfigurationError(
                f"db= takes a database of fencepost.sql, not {type(database).__module__}.{type(database).__qualname__}",
                hint='db = sql.connect(…): a URL, a pool, or a connection with ask="postgresql://…"',
            )
        self.label = label
        self._wait: Wait = wait
        self._database = database
        self._producer = producer
        self._driver = driver
        self._batch = batch
        self._committing = None if batch is None else offsets_of(batch)[:2]
        self._number = -1
        self._taken: dict[Any, FromShareGroup] = {}  # by consumer
        self._sources = sources or Sources()
        self._sources.label = label

    def __repr__(self) -> str:
        machine = self._driver.machine
        count = len(machine.partitions)
        name = machine.transactional_id if self.label is None else f"{machine.transactional_id} {self.label!r}"
        age_s = self._driver.age_ms() / 1000
        return (
            f"<Transaction {name} pid={machine.identity.producer_id} epoch={machine.identity.epoch} "
            f"{_NAMES.get(machine.state, 'Ended')} {count} partition{'s' * (count != 1)} "
            f"{age_s:.1f}s/{machine.timeout_ms / 1000:g}s>"
        )

    @property
    def outcome(self) -> Outcome | None:
        """Return the transaction's outcome, which is known also if the `async with` was cancelled. None while it is
        open, or while its abort is not confirmed.
        """
        return self._sources.outcome

    # ---- writing ---------------------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike | None = None,
    ) -> Delivery:
        """Like Producer.send: waits for room in the buffer only. The commit waits for all deliveries."""
        self._check_open()
        return await self._producer.send(topic, value, key, partition, timestamp_ms, headers)

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike | None = None,
    ) -> RecordMetadata:
        """Like Producer.send_and_wait. If the transaction fails, raises the transaction's error."""
        self._check_open()
        try:
            return await self._producer.send_and_wait(topic, value, key, partition, timestamp_ms, headers)
        except KafkaError as error:
            if self._driver.state in (State.ABORTABLE_ERROR, State.FATAL):
                raise self._driver.machine.failure() from error
            raise

    @property
    def is_begun(self) -> bool:
        """Return whether this is the transaction that its producer has begun last."""
        return self._number == self._driver.begun

    @property
    def is_open(self) -> bool:
        """Return whether this transaction accepts writes, so that nobody has begun to end it."""
        return self.is_begun and self._driver.state is State.IN_TRANSACTION

    def _check_open(self) -> None:
        """Raise IllegalStateError if a write would go into another transaction."""
        if not self.is_begun:
            raise IllegalStateError("this transaction is not the producer's open one")

    async def send_offsets_to_transaction(self, source: Any, metadata: ConsumerGroupMetadata | None = None) -> None:
        """Commit offsets with the transaction. source: a consumer (all it returned since its last commit), a batch, or
        a mapping.

        metadata: for a mapping, consumer.group_metadata() from the time of the fetch; a group id alone is a TypeError.
        """
        self._check_open()
        offsets, group, batch = offsets_of(source, metadata)
        await self._driver.send_offsets(offsets, group, batch)
        if self._committing is not None and self._committing[1].group_id == group.group_id:  # these are newer
            own, member = self._committing
            self._committing = {tp: at for tp, at in own.items() if tp not in offsets}, member

    async def acknowledge(
        self, consumer: Any, *records: ShareRecord, type: AcknowledgeType = AcknowledgeType.ACCEPT
    ) -> None:
        """Acknowledge records of a ShareConsumer with the transaction: ACCEPT or REJECT.

        If it is committed, they are done with; after an abort, a crash or a timeout they are delivered again. They are
        sent with the commit, or as soon as they are many. Raises RecordNotHeldError for a record that is not the
        consumer's any more.
        """
        self._check_open()
        self._driver.check_writable()
        taken = self._taken.get(consumer)
        if taken is None:
            if not hasattr(consumer, "taken_by_transaction"):
                kind = consumer.__class__
                raise TypeError(f"expected a fencepost.ShareConsumer, not {kind.__module__}.{kind.__qualname__}")
            taken = self._taken[consumer] = consumer.taken_by_transaction()
            self._driver.sources.at_end.append(taken.give_back)
        taken.add(records, type)
        if self._driver.sources.watch is not None:
            self._driver.sources.watch.acknowledges(taken.group_id, records)
        if taken.are_many:
            await self._driver.acknowledge(taken)

    # ---- begin and end ---------------------------------------------------------------------------------------

    async def __aenter__(self) -> "Transaction":
        if self._number >= 0:
            raise IllegalStateError("a Transaction can be entered only once; call producer.transaction() for another")
        if self._batch is not None:
            self._batch.claim(self._sources)
        try:
            await self._driver.begin(self._sources, self._database)
            if self._database is not None:
                await self._begin_database(self._database)
        except BaseException:
            if self._batch is not None:
                self._batch.aborted()  # the consumer has to yield it again
            raise
        self._number = self._driver.begun
        if self._batch is not None:
            self._driver.sources.add(self._batch)
        return self

    async def _begin_database(self, database: DecidingDatabase) -> None:
        """Begin the database's transaction. If that fails, this transaction is aborted, and the error raised."""
        try:
            await self._driver.databases.begin(database, self._sources)
        except BaseException as error:
            await self._abort_for(error)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if error is not None:
            await self._abort_for(error)
            return
        try:
            acknowledging = [await self._driver.hand_over(taken) for taken in self._taken.values()]
            await self._driver.offsets_sent()  # another task may have sent newer ones than the batch's
            if self._batch is not None:
                self._batch.claim(self._sources)
        except (KafkaError, CancelledError) as failed:  # another producer's transaction has the batch, for example
            await self._abort_for(failed)
            raise
        try:
            decide = None if self._database is None else self._decide
            await self._driver.commit(self._committing, acknowledging, decide)
        except BaseException as failed:
            if self._driver.state is State.ABORTABLE_ERROR:
                await self._abort_for(failed)
            elif (cancelled := await self._driver.databases.roll_back()) is not None and isinstance(failed, Exception):
                raise cancelled from failed
            if not isinstance(failed, Exception):  # the caller sees only this, perhaps as the cause of a TimeoutError
                failed.add_note(
                    f"cancelled during the commit of the transaction; its outcome: {self.outcome or 'aborted'}"
                )
            raise

    async def _decide(self, sender: Sending, flushing: Awaitable[None]) -> bool:
        """Commit in the database and at the broker, like DatabaseCommits.commit. The class of an error is noted as
        `cause`, for the tracing span.
        """
        try:
            return await self._driver.databases.commit(sender, flushing, self._wait)
        except Exception as error:
            self._sources.cause = type(error).__qualname__
            raise

    async def _abort_for(self, error: BaseException) -> None:
        """Roll the database back, and abort the transaction because of this error. A failed abort is noted on the
        error; if the error is the SDK's and a more precise one is known, raises that.
        """
        driver = self._driver
        failure: BaseException | None = await driver.databases.roll_back()
        self._sources.cause = type(error).__qualname__
        if driver.state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR):
            try:
                await driver.abort(shielded=failure is not None or not isinstance(error, Exception))
            except BaseException as raised:
                failure = failure or raised
                error.add_note(f"the transaction could not be aborted: {raised}")
        driver.sources.notify(driver.machine.outcome)
        if failure is not None and not isinstance(failure, Exception | type(error)):
            raise failure  # cancelled meanwhile
        if isinstance(error, AbortableTransactionError | ProducerFencedError):
            known = driver.machine.error
            reason = error.reason if isinstance(error, ProducerFencedError) else None
            if isinstance(known, ProducerFencedError) and known.reason != reason:
                raise driver.machine.failure() from error


_NAMES = {
    State.IN_TRANSACTION: "Ongoing",
    State.FLUSHING: "Committing",
    State.COMMITTING: "Committing",
    State.ABORTING: "Aborting",
    State.ABORTABLE_ERROR: "Failed",
    State.UNKNOWN_OUTCOME: "Unknown",
    State.PREPARED: "Prepared",
    State.FATAL: "Fatal",
}


async def run_until_committed(
    begin: Callable[[], AbstractAsyncContextManager[Transaction]],
    work: Callable[[Transaction], Awaitable[T]],
    retries: int,
) -> T:
    """Run `work` in a transaction and return its result after the commit. begin: creates a transaction. After an
    AbortableTransactionError, a serialization failure or a deadlock it runs again, at most `retries` times.
    """
    while True:
        try:
            async with begin() as transaction:
                return await work(transaction)
        except Exception as error:
            if not retries or not (isinstance(error, AbortableTransactionError) or may_succeed_again(error)):
                raise
            retries -= 1
