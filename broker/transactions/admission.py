"""Checks whether a producer may write a batch, offsets or acknowledgements in its transaction now, and which state the
coordinator must log with it.

The rule: a batch, or a group's offsets, is accepted only if the transaction is open and contains the partition. With
TV1 the client has added the partition before. With TV2 the first batch (or offsets) adds it, in the same unit, and
joined() changes the coordinator's state once that unit is committed. Source: Kafka's ReplicaManager and
AddPartitionsToTxnManager; KIP-890.
"""

from collections.abc import Mapping
from typing import NamedTuple

from ...effects.clock import Clock
from ...protocol.batches import Batch
from ...protocol.errors import ErrorCode, KafkaError
from ...storage.log.partition_log import PartitionLog
from ..groups.offset_log import GroupOffsets
from ..net.connection import Connection
from ..topics.partition import Partition
from .awaited_offsets import AwaitedOffsets, CallLater
from .coordinator import TransactionCoordinator
from .fence import HIGHEST_TV1_VERSION, PRODUCE, TXN_OFFSET_COMMIT, Kind
from .states import machine
from .states.transaction import PartitionKey, Status, Transaction
from .unit import PART_BYTES

TV1_PRODUCE, TV1_TXN_OFFSET_COMMIT = HIGHEST_TV1_VERSION[PRODUCE], HIGHEST_TV1_VERSION[TXN_OFFSET_COMMIT]
ABORTABLE_SINCE = {PRODUCE: 11, TXN_OFFSET_COMMIT: 4}  # versions that know TRANSACTION_ABORTABLE


class Joining(NamedTuple):
    """A partition that becomes part of a transaction with the first batch written to it (TV2, KIP-890).

    The caller appends `batch`, which contains the new transaction state, to `log` in the same unit (atomic commit) as
    the data. It calls Admission.joined() after that unit is committed, not before.
    """

    log: PartitionLog
    batch: Batch
    transaction: Transaction

    @property
    def size_bytes(self) -> int:
        """How many bytes the state record adds to the unit, for the check whether the store has room."""
        return PART_BYTES + self.batch.size


class Admission:
    """Admits transactional batches and offsets of one broker."""

    def __init__(
        self, coordinator: TransactionCoordinator, offsets: GroupOffsets, clock: Clock, call_later: CallLater
    ) -> None:
        self.awaited = AwaitedOffsets(coordinator.transactions, offsets, clock, call_later)
        self._coordinator = coordinator
        self._transactions = coordinator.transactions
        self._fence_policy = coordinator.fence_policy

    def admit_batch(self, transactional_id: str, batch: Batch, partition: Partition, version: int) -> Joining | None:
        """Check that this transactional batch may be written to the partition. Raises KafkaError if not.

        Returns the transaction state to log in the same unit (Joining) if the batch adds the partition to the
        transaction, or None if the partition is in it already. The caller has called check_data() for the request.
        version: of the Produce request.
        """
        txn = self._transactions.get(transactional_id)
        producer_id, producer_epoch = batch.producer_id, batch.producer_epoch
        log_id = partition.log.log_id
        key = partition.topic.name, partition.index
        if (
            txn is not None
            and txn.producer_id == producer_id
            and txn.producer_epoch == producer_epoch
            and txn.writes_to(key, log_id)
        ):
            return None
        if txn is None:
            self._must_be_known(transactional_id)
        if version <= TV1_PRODUCE:  # AddPartitionsToTxn had to add the partition before: verify() finds the error
            error = machine.verify(txn, producer_id, producer_epoch, key, log_id)
            raise _refusal(error, PRODUCE, version, txn)
        return self._joining(txn, transactional_id, producer_id, producer_epoch, key, log_id)

    def is_prepared(self, transactional_id: str, batch: Batch) -> bool:
        """Return whether the batch's transaction is prepared, so that nothing can be written in it any more."""
        txn = self._transactions.get(transactional_id)
        return (
            txn is not None
            and txn.prepared is not None
            and txn.producer_id == batch.producer_id
            and txn.producer_epoch == batch.producer_epoch
        )

    def goes_on(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partition: Partition,
        version: int,
        connection: Connection,
    ) -> bool:
        """Return whether a batch for this partition simply continues the open transaction, so that the fast path needs
        no further check.

        If True, check_data() and admit_batch() would accept it and log nothing, and the connection fence has noted its
        connection. If False, the caller must call them, to find out.
        """
        txn = self._transactions.get(transactional_id)
        if (
            txn is None
            or txn.producer_id != producer_id
            or txn.producer_epoch != producer_epoch
            or not txn.writes_to((partition.topic.name, partition.index), partition.log.log_id)
        ):
            return False
        return self._fence_policy.passes(txn, Kind.DATA, PRODUCE, version, connection)

    def is_remade(self, transactional_id: str | None, partition: Partition) -> bool:
        """Return whether the id's open transaction contains a partition of a deleted topic that had the same topic name
        and index as this partition.
        """
        txn = self._transactions.get(transactional_id or "")
        key, log_id = (partition.topic.name, partition.index), partition.log.log_id
        return txn is not None and txn.status is Status.ONGOING and txn.partitions.get(key, log_id) != log_id

    def check_data(
        self, transactional_id: str, producer_id: int, producer_epoch: int, version: int, on: Connection
    ) -> None:
        """Check a Produce request before its batches are read.

        Raises OlderConnection if the producer has already used a newer connection than `on`, and KafkaError
        UNSUPPORTED_VERSION if transaction.v1.policy refuses the request's version.
        """
        self._fence_policy.check_policy(PRODUCE, version)
        txn = self._transactions.get(transactional_id)
        if txn is not None and txn.producer_id == producer_id and txn.producer_epoch == producer_epoch:
            self._fence_policy.admit(txn, Kind.DATA, PRODUCE, version, on)
            self._coordinator.owners.heard(transactional_id, on)

    def admit_offsets(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        group_id: str,
        version: int,
        connection: Connection,
    ) -> Joining | None:
        """Check that a group's offsets may be committed in the transaction. Raises KafkaError if not.

        Returns the state to log in the same unit if TV2 adds the group's offsets to the transaction now, or None if
        nothing has to be logged. version: of the TxnOffsetCommit request.
        """
        self._fence_policy.check_policy(TXN_OFFSET_COMMIT, version)
        txn = self._transactions.get(transactional_id)
        key, log_id = self._coordinator.offsets_of(group_id)
        if txn is None:
            self._must_be_known(transactional_id)
        elif txn.producer_id == producer_id and txn.producer_epoch == producer_epoch:
            self._fence_policy.admit(txn, Kind.GROUP, TXN_OFFSET_COMMIT, version, connection)
        if version <= TV1_TXN_OFFSET_COMMIT:
            error = machine.verify(txn, producer_id, producer_epoch, key, log_id)
            if error:
                raise _refusal(error, TXN_OFFSET_COMMIT, version, txn)
            return None
        return self._joining(txn, transactional_id, producer_id, producer_epoch, key, log_id)

    def admit_acknowledgements(
        self, transactional_id: str, producer_id: int, producer_epoch: int, homes: Mapping[PartitionKey, int]
    ) -> Joining | None:
        """Check that a transaction may acknowledge records of a share group. Raises KafkaError if not.

        Returns the transaction state to log in the same unit, or None if no partition is added. homes: the partitions
        of __share_group_state concerned, with their log ids. Raises INVALID_TXN_STATE if a client of TV1 has opened the
        transaction, because its next transaction would have the same epoch.
        """
        txn = self._coordinator.find(transactional_id)
        given = self._coordinator.inputs(transactional_id)
        decision = machine.add_partitions(txn, producer_id, producer_epoch, homes, machine.TV2, given)
        if decision.error is ErrorCode.POLICY_VIOLATION:
            raise KafkaError(decision.error, machine.TOO_MANY)
        if decision.error:
            raise KafkaError(decision.error)
        if txn is not None and txn.status is Status.ONGOING and txn.client_version < machine.TV2:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "a client of an older protocol has opened the transaction")
        if not decision.states:
            return None
        log, batch = self._coordinator.state_append(transactional_id, decision, given)
        return Joining(log, batch, decision.states[-1])

    def _joining(
        self,
        txn: Transaction | None,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        key: PartitionKey,
        log_id: int,
    ) -> Joining | None:
        """Decide whether the first batch to a partition may add it to the transaction (TV2).

        Returns the state to log with the batch, or None if there is none to log. Raises KafkaError with the error that
        the client gets.
        """
        given = self._coordinator.inputs(transactional_id)
        try:
            decision = machine.add_partitions(txn, producer_id, producer_epoch, {key: log_id}, machine.TV2, given)
        except KafkaError as error:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, error.text) from error
        if decision.error:
            raise _refusal(decision.error, None, 0, txn)
        if not decision.states:
            return None
        try:
            log, batch = self._coordinator.state_append(transactional_id, decision, given)
        except KafkaError as error:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, error.text) from error
        return Joining(log, batch, decision.states[-1])

    def join_together(
        self, transactional_id: str, producer_id: int, producer_epoch: int, added: Mapping[PartitionKey, int]
    ) -> None:
        """Add all partitions of one Produce request (TV2) to the transaction with one state record.

        If they cannot be added together, changes nothing and raises nothing: admit_batch() then decides about each
        partition alone.
        """
        given = self._coordinator.inputs(transactional_id)
        txn = self._transactions.get(transactional_id)
        try:
            decision = machine.add_partitions(txn, producer_id, producer_epoch, added, machine.TV2, given)
            if decision.error:
                return
            self._coordinator.log(transactional_id, decision, given)
        except KafkaError:
            return

    def joined(self, joining: Joining) -> None:
        """Apply the transaction state of `joining` in memory. Call it after the unit that contains the state is
        committed.
        """
        state = joining.transaction
        self._coordinator.apply(state.transactional_id, state)

    def _must_be_known(self, transactional_id: str) -> None:
        """Raise NOT_ENOUGH_REPLICAS, which clients retry, if the id's partition of __transaction_state is offline.

        An answer that the id is unknown would make clients give up.
        """
        try:
            self._coordinator.find(transactional_id)
        except KafkaError as error:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, error.text) from error


def _refusal(error: ErrorCode, api: int | None, version: int, txn: Transaction | None) -> KafkaError:
    """Translate an error of the coordinator into one that clients of this API and version handle.

    api: None for a partition that the broker adds to the transaction itself (TV2). txn: the id's state; None if the id
    is unknown.
    """
    if error is ErrorCode.PRODUCER_FENCED:
        return KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, "the producer is fenced by a newer epoch")
    if error is ErrorCode.POLICY_VIOLATION:
        return KafkaError(error, machine.TOO_MANY)
    if api is None:
        return KafkaError(error)
    if error is ErrorCode.CONCURRENT_TRANSACTIONS:
        return KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "its last transaction is still being ended")
    if error is ErrorCode.INVALID_TXN_STATE and version >= ABORTABLE_SINCE[api] and (txn is None or not txn.prepared):
        return KafkaError(ErrorCode.TRANSACTION_ABORTABLE, "the partition was not added to the transaction")
    return KafkaError(error, "the partition is not part of an open transaction")
