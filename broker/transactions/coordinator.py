"""The transaction coordinator: the state of every transactional id. Nothing else reads or writes __transaction_state.

How a request goes:

    handler -> coordinator   find the id's state; the connection fence (fence_policy.py); is its log partition online?
            -> machine       decide: a pure function of state and request, by one table (table.py). Nothing changes yet
            -> unit          the state record, and for an end PREPARE, a marker for each partition, and COMPLETE:
                             all of it is one unit of the journal, committed or not at all
            -> apply         the last state that was logged becomes the state in memory
            <- reply         leaves when the unit is released, as any reply

All of this is one step of the loop, without an await. So there is no lock and no half-made state to be seen: pipelined
requests see each other, and a decision that cannot be committed (no room, or its log is offline) changed nothing.

Since the markers are in the same unit as the decision, a commit that was answered is visible everywhere, after a crash
too; Kafka's markers come later, from other brokers. A partition that is offline gets a debt in the same unit instead,
and its marker when it is back (settling.py).

A replay at start applies the same states in the same order; `apply` is the only way into memory.

Limits. At most max.transactional.ids are known: a new one takes the place of the one that was not used for longest,
which leaves memory as it does when it expires, with a null value in the log. Source: Kafka's TransactionCoordinator and
TransactionStateManager; KIP-98, KIP-890.
"""

import logging
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from ...protocol.batches import Batch
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.records import Record
from ..groups.offset_log import GroupOffsets
from ..metrics import ABORTED, BY_ADMIN, COMMITTED, FENCED, TIMED_OUT
from ..net.connection import Connection
from ..rare_log import RareLog
from ..shared import Shared
from ..topics.names import OFFSETS_TOPIC, STATE_TOPIC
from ..topics.participants import Append, Participants
from ..topics.partition import Partition
from . import records
from .fence import ADD_OFFSETS, END_TXN, INIT_PRODUCER_ID, Kind
from .fence_policy import FencePolicy
from .ledger import PreparedIds
from .owners import Owners
from .state_batch import state_batch
from .states import machine
from .states.init_producer_id import Initialisation, Limits, init_producer_id
from .states.renewal import with_new_producer_id
from .states.transaction import (
    NO_ID,
    Decision,
    Inputs,
    MarkerOrder,
    PartitionKey,
    Status,
    Transaction,
    transaction_id,
)
from .unit import TransactionUnit

log = logging.getLogger("fencepost.broker")

FEW_PARTITIONS = 50  # of a transaction: all of them are written with each of its states
HOMES_KEPT = 10_000
EVICTED_AT_ONCE = 20  # for one new id, if the setting was lowered
EVICTION_ATTEMPTS = 10  # for one new id, if partitions of the log are offline


class TransactionCoordinator:
    """All transactional ids of one broker. The state: transactions, by_producer_id, open and unused."""

    def __init__(self, shared: Shared, offsets: GroupOffsets, participants: Participants) -> None:
        settings = shared.settings.now
        self.transactions: dict[str, Transaction] = {}
        self.by_producer_id: dict[int, str] = {}
        self.open: dict[str, None] = {}  # ids with an open transaction
        self.unused: OrderedDict[str, None] = OrderedDict()  # ids without one, the longest unused first
        self.prepared = PreparedIds()
        self.fence_policy = FencePolicy(shared.settings, shared.clock, shared.metrics)
        self.topic = shared.internal_topic(
            STATE_TOPIC,
            settings.transaction_state_log_num_partitions,
            {"segment.bytes": str(settings.transaction_state_log_segment_bytes)},
        )
        self.owners = Owners(self.transactions.__contains__)
        self._rare_log = RareLog(log, shared.clock.monotonic_ms)
        self._ended = shared.metrics.transactions_ended
        self._durations_ms = shared.metrics.transaction_ms
        self.participants = participants
        self._offsets = offsets
        self._topics = shared.topics
        self._store = shared.store
        self._settings = shared.settings
        self._clock = shared.clock
        self._turns = shared.turns
        self._homes: dict[str, tuple[int, bytes]] = {}  # of ids in use: partition of the topic, and key

    # ---- the state -------------------------------------------------------------------------------------------

    def apply(self, transactional_id: str, state: Transaction | None) -> None:
        """Replace an id's state in memory, live or in replay. No other method does that. state: None removes the id."""
        before = self.transactions.get(transactional_id)
        if before is not None:
            if state is None or before.producer_id != state.producer_id:
                self.by_producer_id.pop(before.producer_id, None)
            if before.next_producer_id != NO_ID:
                self.by_producer_id.pop(before.next_producer_id, None)
        if state is None or state.prepared is not None or (before is not None and before.prepared is not None):
            self.prepared.follow(transactional_id, state)
        if state is None:
            self.transactions.pop(transactional_id, None)
            self.open.pop(transactional_id, None)
            self.unused.pop(transactional_id, None)
            self.fence_policy.forget(transactional_id)
            self.owners.forget(transactional_id)
            self._homes.pop(transactional_id, None)
            return
        self.transactions[transactional_id] = state
        self.by_producer_id[state.producer_id] = transactional_id
        if state.next_producer_id != NO_ID:  # its client may know it already (KIP-939)
            self.by_producer_id[state.next_producer_id] = transactional_id
        self.unused.pop(transactional_id, None)
        if state.status is Status.ONGOING:
            self.open[transactional_id] = None
            return
        self.open.pop(transactional_id, None)
        if machine.is_unused(state):
            self.unused[transactional_id] = None

    def replay(self, partition: int, batch: Batch, contents: Iterable[Record]) -> None:
        """Apply the state records of one batch of __transaction_state, at start.

        Raises DamagedTransactionRecord, NewerTransactionRecord.
        """
        if batch.is_control:
            return
        for record in contents:
            self.apply(*records.read(record.key or b"", record.value))

    def inputs(self, transactional_id: str) -> Inputs:
        """Return what else a decision about this id needs: times, producer ids, next offset, if it is ephemeral."""
        new_producer_id = self._topics.next_producer_id
        ephemeral = self.is_ephemeral(transactional_id)
        return Inputs(self._clock.now_ms(), self._store.age_ms(), new_producer_id, self._next_state_offset, ephemeral)

    def _next_state_offset(self, transactional_id: str) -> int:
        """Return the offset that the next record of this id will have. Raises COORDINATOR_NOT_AVAILABLE."""
        partition, _ = self.home(transactional_id)
        return self.topic.log(partition).end_offset

    def transaction_id(self, txn: Transaction) -> bytes:
        """Return the 16 bytes that identify the id's last transaction (see transaction.transaction_id()); zeros if
        unknown.
        """
        return transaction_id(self.topic.partition_for(txn.transactional_id), txn.opened_at)

    def is_ephemeral(self, transactional_id: str) -> bool:
        """Return whether the id begins with transactional.id.ephemeral.prefix, so that it is forgotten when its
        transaction ends.
        """
        prefix = self._settings.now.transactional_id_ephemeral_prefix
        return bool(prefix) and transactional_id.startswith(prefix)

    def new_unit(self) -> TransactionUnit:
        """Return an empty unit (batches that are committed atomically), to be filled and committed without a pause in
        between.
        """
        return TransactionUnit(self._store, self._topics, self.participants)

    def log(self, transactional_id: str, decision: Decision, given: Inputs, aborted: str = ABORTED) -> None:
        """Write a decision's states and markers as one unit, then apply its last state in memory.

        A decision without states writes nothing. Raises KafkaError if it cannot be written; then nothing was changed.
        aborted: the outcome under which the metrics count the transaction, if the decision aborts it.
        """
        if decision.states:
            partitions = len(decision.states[0].partitions)
            if partitions > FEW_PARTITIONS:
                self._turns.spend(partitions)
            unit = self.new_unit()
            self._write(unit, transactional_id, decision, given)
            unit.commit()
            if decision.marker is not None:
                self._count_end(decision, given.age_ms, COMMITTED if decision.marker.commit else aborted)
            self.apply(transactional_id, None if decision.gone else decision.states[-1])

    def log_all(self, decisions: Sequence[tuple[str, Decision]], given: Inputs) -> None:
        """Write several decisions (id, decision) in one unit, then apply their last states. Raises KafkaError if that
        cannot be written; then nothing was changed.
        """
        unit = self.new_unit()
        for transactional_id, decision in decisions:
            self._write(unit, transactional_id, decision, given)
        unit.commit()
        self.count_ended(decision for _, decision in decisions)
        for transactional_id, decision in decisions:
            self.apply(transactional_id, None if decision.gone else decision.states[-1])

    def count_ended(self, decisions: Iterable[Decision]) -> None:
        """Count in the metrics the transactions that these committed decisions have ended."""
        age_ms = self._store.age_ms()
        for decision in decisions:
            if decision.marker is not None:
                self._count_end(decision, age_ms, COMMITTED if decision.marker.commit else ABORTED)

    def _count_end(self, decision: Decision, age_ms: int, outcome: str) -> None:
        """Count one ended transaction and, if its start is known, its duration. outcome: COMMITTED, ABORTED or
        TIMED_OUT.
        """
        self._ended[outcome] += 1
        started_ms = decision.states[0].started_age_ms
        if 0 <= started_ms <= age_ms:
            self._durations_ms.add(age_ms - started_ms)

    def _write(self, unit: TransactionUnit, transactional_id: str, decision: Decision, given: Inputs) -> None:
        """Add the states of a decision, and the markers of its partitions, to the unit."""
        unit.add(self.state_append(transactional_id, decision, given))
        if decision.marker is not None:
            unit.mark(decision.marker, given.now_ms)

    def state_append(self, transactional_id: str, decision: Decision, given: Inputs) -> Append:
        """Return the id's partition of __transaction_state and one batch with the decision's states, to be appended to
        it.
        """
        partition, key = self.home(transactional_id)
        return self.topic.log(partition), state_batch(key, decision.states, given.now_ms, gone=decision.gone)

    def home(self, transactional_id: str) -> tuple[int, bytes]:
        """Return the partition of __transaction_state that has the id's state, and the encoded key of its records.
        Creates the topic if needed.
        """
        home = self._homes.get(transactional_id)
        if home is None:
            self.topic.ensure()
            if len(self._homes) >= HOMES_KEPT:
                self._homes.clear()
            home = self.topic.partition_for(transactional_id), records.key(transactional_id)
            self._homes[transactional_id] = home
        return home

    def find(self, transactional_id: str) -> Transaction | None:
        """Return the id's state; None if the id is unknown.

        Raises COORDINATOR_NOT_AVAILABLE if the id is not in memory and its partition of the log is offline.
        """
        found = self.transactions.get(transactional_id)
        if found is None and self.topic.exists:
            self.topic.log(self.home(transactional_id)[0])
        return found

    # ---- requests of the coordinator -------------------------------------------------------------------------

    def init_producer_id(self, request: Initialisation, version: int, connection: Connection) -> Decision:
        """Handle InitProducerId. Returns the decision, with the new producer id and epoch or an error.

        Raises KafkaError, or OlderConnection if a newer connection of this producer was served already.
        """
        transactional_id = request.transactional_id
        settings = self._settings.now
        self.topic.ensure()
        txn = self.find(transactional_id)
        self.fence_policy.check_policy(INIT_PRODUCER_ID, version)
        limits = Limits(settings.transaction_max_timeout_ms, settings.transaction_two_phase_commit_enable)
        given = self.inputs(transactional_id)
        decision = init_producer_id(txn, request, limits, given)
        if decision.error:
            return decision
        if txn is not None:
            self.fence_policy.admit(txn, Kind.COORDINATOR, INIT_PRODUCER_ID, version, connection)
        else:
            self._make_room(settings.max_transactional_ids)
        was_open = transactional_id in self.open
        self.log(transactional_id, decision, given, FENCED)
        if request.producer_id == NO_ID:  # else it is the same producer, which goes on
            self._log_new_producer(transactional_id, connection, was_open)
        self.owners.took(transactional_id, connection)
        self.fence_policy.admit(
            self.transactions[transactional_id], Kind.COORDINATOR, INIT_PRODUCER_ID, version, connection
        )
        return decision

    def _log_new_producer(self, transactional_id: str, connection: Connection, was_open: bool) -> None:
        """Log which client becomes the id's producer in place of another one; the number of such lines is limited.

        Nothing is logged if the connection is the present owner's. was_open: whether this aborts an open transaction.
        """
        before = self.owners.get(transactional_id)
        if before is None or before.number == connection.number:
            return
        self._rare_log.write(
            logging.WARNING if was_open else logging.INFO,
            "%s (%.200r) is the producer of %.200r now, and fences that of %s (%.200r)%s",
            connection.client_host, connection.client_id, transactional_id, before.host, before.client_id,
            ", whose open transaction is aborted" if was_open else "",
        )  # fmt: skip

    def _make_room(self, most: int) -> None:
        """If `most` ids are known, forget the longest unused ones, so that one more fits.

        Raises KafkaError POLICY_VIOLATION if none can be forgotten, because all are in use or the log cannot be
        written.
        """
        known = len(self.transactions)
        if known < most:
            return
        for _ in range(EVICTION_ATTEMPTS):
            evicted = list(islice(self.unused, min(known + 1 - most, EVICTED_AT_ONCE)))
            self.forget(evicted)
            if len(self.transactions) < known:
                return
            for transactional_id in evicted:  # their partitions of the log are offline: the next attempt takes others
                self.unused.move_to_end(transactional_id)
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"{known} transactional ids are known, and all are in use (max.transactional.ids)",
        )

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        added: Mapping[PartitionKey, int],
        *,
        api: int,
        version: int,
        connection: Connection,
    ) -> ErrorCode:
        """Add partitions, each with its log id, to the id's transaction: all of them or none. Returns the error for
        the client.

        api, version: of the request, for the policy and the connection fence. Raises KafkaError, OlderConnection.
        """
        txn = self._check_sender(transactional_id, producer_id, producer_epoch, api, version, connection)
        given = self.inputs(transactional_id)
        decision = machine.add_partitions(txn, producer_id, producer_epoch, added, machine.TV1, given)
        if decision.error is ErrorCode.POLICY_VIOLATION:
            raise KafkaError(decision.error, machine.TOO_MANY)
        self.log(transactional_id, decision, given)
        return decision.error

    def add_offsets(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        group_id: str,
        *,
        version: int,
        connection: Connection,
    ) -> ErrorCode:
        """Add the group's partition of __consumer_offsets to the transaction (AddOffsetsToTxn). Returns the error for
        the client.
        """
        key, log_id = self.offsets_of(group_id)
        return self.add_partitions(
            transactional_id,
            producer_id,
            producer_epoch,
            {key: log_id},
            api=ADD_OFFSETS,
            version=version,
            connection=connection,
        )

    def end(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        *,
        version: int,
        connection: Connection,
    ) -> Decision:
        """Handle EndTxn. Returns the decision, with an error, or with the producer id and epoch for the answer.

        The decision, the markers of all partitions and the completion are written as one unit. version: of the request;
        from version 5 on the request is TV2, which bumps the epoch. Raises KafkaError, OlderConnection.
        """
        txn = self._check_sender(transactional_id, producer_id, producer_epoch, END_TXN, version, connection)
        given = self.inputs(transactional_id)
        protocol = machine.TV2 if version >= 5 else machine.TV1
        decision = machine.end(txn, commit, producer_id, producer_epoch, protocol, given)
        self.log(transactional_id, decision, given)
        return decision

    # ---- what nobody asks for --------------------------------------------------------------------------------

    def load(self) -> None:
        """Replay __transaction_state at start. Raises what replay() raises.

        Partitions that are offline are left out; requests for their ids are then answered with an error.
        """
        self.topic.load(self.replay)
        self.unused = OrderedDict.fromkeys(sorted(self.unused, key=self._updated_age_ms))

    def _updated_age_ms(self, transactional_id: str) -> int:
        """Return the store's age in milliseconds at which the transactional id last changed."""
        return self.transactions[transactional_id].updated_age_ms

    def finish(self, transactional_id: str) -> None:
        """Complete a transaction that is in PREPARE_COMMIT or PREPARE_ABORT: write its markers and the COMPLETE state.
        Raises KafkaError.
        """
        given = self.inputs(transactional_id)
        self.log(transactional_id, machine.finish(self.transactions[transactional_id], given), given)

    def renew(self, transactional_ids: Sequence[str]) -> None:
        """Give each of these ids a new producer id, all in one unit. Raises KafkaError; then nothing was changed."""
        given = self.inputs(transactional_ids[0])
        self.log_all(
            [(each, with_new_producer_id(self.transactions[each], given)) for each in transactional_ids], given
        )

    def abort_late(self, transactional_id: str) -> bool:
        """Abort the id's transaction if its timeout has passed. Returns whether it was aborted. Raises KafkaError."""
        txn = self.transactions.get(transactional_id)
        if txn is None:
            return False
        given = self.inputs(transactional_id)
        decision = machine.expire(txn, given)
        self.log(transactional_id, decision, given, TIMED_OUT)
        return bool(decision.states)

    def end_by_hand(self, partition: Partition, order: MarkerOrder, coordinator_epoch: int) -> None:
        """Write the marker that an admin requested to one partition (WriteTxnMarkers). The caller has checked the
        request.

        If the producer has a transaction open there, the whole transaction is aborted (machine.part_aborted). Raises
        KafkaError: INVALID_TXN_STATE if the marker would commit a part of such a transaction, or if the transaction
        waits for a ledger's decision.
        """
        log_id = partition.log.log_id
        key = partition.topic.name, partition.index
        transactional_id = self.by_producer_id.get(order.producer_id)
        if transactional_id is not None:
            given, txn = self.inputs(transactional_id), self.transactions[transactional_id]
            decision = machine.part_aborted(txn, order.producer_id, order.producer_epoch, key, log_id, given)
            if decision.error:
                raise KafkaError(decision.error, f"the transaction of {transactional_id!r} waits for its decision")
            if decision.states and order.commit:
                raise KafkaError(ErrorCode.INVALID_TXN_STATE, f"{transactional_id!r} is open: it alone may commit")
            if decision.states:
                self.log(transactional_id, decision, given, BY_ADMIN)
                self._rare_log.write(logging.WARNING, "an admin has aborted the transaction of %r", transactional_id)
                return
        unit = self.new_unit()
        unit.mark(order._replace(partitions={key: log_id}), self._clock.now_ms(), coordinator_epoch)
        unit.commit()

    def forget(self, transactional_ids: Sequence[str]) -> None:
        """Write a tombstone for each of these ids, one batch for each partition of the log, and forget the ids.

        Ids whose partition is offline are not forgotten. Raises KafkaError if the journal has no room.
        """
        by_partition: dict[int, list[str]] = {}
        for transactional_id in transactional_ids:
            by_partition.setdefault(self.topic.partition_for(transactional_id), []).append(transactional_id)
        unit, forgotten = self.new_unit(), []
        now_ms = self._clock.now_ms()
        for partition, ids in by_partition.items():
            try:
                unit.add(self.topic.append_of(partition, [(records.key(each), None) for each in ids], now_ms=now_ms))
                forgotten += ids
            except KafkaError:
                continue
        if forgotten:
            unit.commit()
        for transactional_id in forgotten:
            self.apply(transactional_id, None)

    # ---- what requests have in common ------------------------------------------------------------------------

    def offsets_of(self, group_id: str) -> tuple[PartitionKey, int]:
        """Return the partition of __consumer_offsets that has the group's offsets, and its log id. Creates the topic
        if needed.
        """
        topic = self._offsets.topic
        topic.ensure()
        partition = topic.partition_for(group_id)
        return (OFFSETS_TOPIC, partition), topic.log(partition).log_id

    def _check_sender(
        self, transactional_id: str, producer_id: int, producer_epoch: int, api: int, version: int, on: Connection
    ) -> Transaction | None:
        """Return the id's state; None if the id is unknown.

        Raises KafkaError if transaction.v1.policy refuses the request, and OlderConnection if the producer has already
        used a newer connection. It does not refuse a stale producer epoch: the machine does that (states/machine.py).
        """
        self.fence_policy.check_policy(api, version)
        txn = self.find(transactional_id)
        if txn is not None and txn.producer_id == producer_id and txn.producer_epoch == producer_epoch:
            self.fence_policy.admit(txn, Kind.COORDINATOR, api, version, on)
            self.owners.heard(transactional_id, on)
        return txn
