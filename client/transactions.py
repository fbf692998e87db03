"""`async with producer.transaction() as tx`: committed at the end, aborted on any exception, which goes on as it was.

The rules: what comes out says what is known. A failed abort is a note on the user's exception and never takes its
place; an error of the SDK itself gives way to a better one (who fenced this producer). The batch that the transaction
was made from is told how it ended, because its consumer's position depends on it.
"""

import contextlib
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from .errors import AbortableTransactionError, IllegalStateError, KafkaError, ProducerFencedError
from .transaction_table import State
from .transactor import Offsets, Transactor
from .values import ConsumerGroupMetadata, OffsetAndMetadata, RecordMetadata, TopicPartition

if TYPE_CHECKING:
    from .delivery import Delivery
    from .producer import HeadersLike, Producer


@runtime_checkable
class FromGroup(Protocol):
    """A batch as a consumer yields it: which offsets to commit, and as which member they were fetched."""

    @property
    def offsets(self) -> Mapping[TopicPartition, OffsetAndMetadata]: ...
    @property
    def group_metadata(self) -> ConsumerGroupMetadata | None: ...
    def aborted(self) -> None: ...
    def outcome_unknown(self) -> None: ...
    def committed(self) -> None: ...


class Yielding(Protocol):
    """A consumer: the batch it yielded last."""

    @property
    def last_batch(self) -> FromGroup | None: ...


def offsets_of(
    source: Any, metadata: ConsumerGroupMetadata | None = None
) -> tuple[Offsets, ConsumerGroupMetadata, FromGroup | None]:
    """What to commit: of a batch, of the batch that a consumer yielded last, or as given. Raises TypeError."""
    if isinstance(metadata, str):
        raise TypeError(
            f"send_offsets_to_transaction wants the consumer's group metadata, not the group's name {metadata!r}: "
            "a name cannot tell a member from its successor. Pass the consumer, a batch, or consumer.group_metadata()"
        )
    if isinstance(source, Mapping):
        if metadata is None:
            raise TypeError("offsets go with group metadata: send_offsets_to_transaction(offsets, metadata)")
        return {TopicPartition(*partition): _position(at) for partition, at in source.items()}, metadata, None
    batch = source if isinstance(source, FromGroup) else getattr(source, "last_batch", source)
    if batch is None:
        raise IllegalStateError("the consumer has yielded nothing yet, so there are no offsets to commit")
    if not isinstance(batch, FromGroup):
        raise TypeError(f"a consumer, a batch, or a mapping of offsets is wanted, not {type(source).__name__}")
    group = metadata or batch.group_metadata
    if group is None:
        raise IllegalStateError("the batch was read without a group, so it has no offsets to commit")
    return batch.offsets, group, batch


def _position(at: OffsetAndMetadata | int) -> OffsetAndMetadata:
    return OffsetAndMetadata(at) if isinstance(at, int) else at


class Transaction:
    """One transaction. label: a name for people."""

    def __init__(
        self, producer: "Producer", transactor: Transactor, batch: FromGroup | None = None, label: str | None = None
    ) -> None:
        self.label = label
        self._producer = producer
        self._transactor = transactor
        self._batch = batch
        self._sources: list[FromGroup] = [] if batch is None else [batch]
        self._committing = None if batch is None else offsets_of(batch)[:2]
        self._number = -1

    def __repr__(self) -> str:
        machine = self._transactor.machine
        count = len(machine.partitions)
        name = machine.transactional_id if self.label is None else f"{machine.transactional_id} {self.label!r}"
        age_s = self._transactor.age_ms() / 1000
        return (
            f"<Transaction {name} pid={machine.identity.producer_id} epoch={machine.identity.epoch} "
            f"{_NAMES.get(machine.state, 'Ended')} {count} partition{'s' * (count != 1)} "
            f"{age_s:.1f}s/{machine.timeout_ms / 1000:g}s>"
        )

    # ---- writing ---------------------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: "HeadersLike | None" = None,
    ) -> "Delivery":
        """As Producer.send: waits for room in the buffer only, and returns the delivery. Commit waits for all."""
        self._check_open()
        return await self._producer.send(topic, value, key, partition, timestamp_ms, headers)

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: "HeadersLike | None" = None,
    ) -> RecordMetadata:
        """As Producer.send_and_wait. What spoils the transaction is raised as the transaction's error."""
        self._check_open()
        try:
            return await self._producer.send_and_wait(topic, value, key, partition, timestamp_ms, headers)
        except KafkaError as error:
            if self._transactor.state in (State.ABORTABLE_ERROR, State.FATAL):
                raise self._transactor.machine.failure() from error
            raise

    def _check_open(self) -> None:
        """Nothing that is meant for this transaction goes into another."""
        if self._number != self._transactor.begun:
            raise IllegalStateError("this transaction is not the producer's open one")

    async def send_offsets_to_transaction(self, source: Any, metadata: ConsumerGroupMetadata | None = None) -> None:
        """Commit offsets with the transaction: of a consumer (the batch it yielded last), a batch, or a mapping.

        metadata: with a mapping, consumer.group_metadata() as of its fetch; a group's name alone is a TypeError.
        """
        self._check_open()
        offsets, group, batch = offsets_of(source, metadata)
        if batch is not None and batch not in self._sources:
            self._sources.append(batch)
        await self._transactor.send_offsets(offsets, group)

    # ---- begin and end ---------------------------------------------------------------------------------------

    async def __aenter__(self) -> "Transaction":
        if self._number >= 0:
            raise IllegalStateError("a Transaction is entered once; producer.transaction() makes another")
        await self._transactor.begin(initialise=True)
        self._number = self._transactor.begun
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if error is not None:
            await self._abort_for(error)
            return
        try:
            await self._transactor.commit(self._committing)
        except BaseException as failed:
            if self._transactor.state is State.ABORTABLE_ERROR:
                await self._abort_for(failed)
            else:
                self._tell()
            raise
        self._tell()

    async def _abort_for(self, error: BaseException) -> None:
        """Abort, and say so where it matters. Raises an error of ours in the place of one of ours that says less."""
        transactor = self._transactor
        failure: BaseException | None = None
        if transactor.state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR):
            try:
                await transactor.abort()
            except BaseException as raised:
                failure = raised
                error.add_note(f"the transaction could not be aborted: {raised}")
        self._tell()
        if isinstance(error, AbortableTransactionError | ProducerFencedError):
            known = transactor.machine.error
            told = error.reason if isinstance(error, ProducerFencedError) else None
            if isinstance(known, ProducerFencedError) and known.reason != told:
                raise transactor.machine.failure() from error
        if failure is not None and not isinstance(failure, Exception):
            raise failure  # cancelled meanwhile

    def _tell(self) -> None:
        """Those whose offsets were to be committed: their consumers go on, go back, or have to look."""
        outcome = self._transactor.machine.outcome
        for batch in self._sources:
            with contextlib.suppress(IllegalStateError):
                if outcome == "committed":
                    batch.committed()
                elif outcome == "unknown":
                    batch.outcome_unknown()
                else:  # no commit was sent, or it was refused: it is not, and never will be, committed
                    batch.aborted()


_NAMES = {
    State.IN_TRANSACTION: "Ongoing",
    State.FLUSHING: "Committing",
    State.COMMITTING: "Committing",
    State.ABORTING: "Aborting",
    State.ABORTABLE_ERROR: "Failed",
    State.UNKNOWN_OUTCOME: "Unknown",
    State.FATAL: "Fatal",
}
