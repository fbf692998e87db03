"""The ledger of one broker: its entries in memory, their log __fencepost_ledger, and the requests about them.

The rules: as in any coordinator, a request is decided in memory, committed as one unit, and applied. The log has one
compacted partition, and its entries never expire. A transaction that waits for its decision longer than
transaction.prepared.alert.ms is logged once, as a warning, and counted.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ...effects.counts import count_text
from ...protocol.batches import Batch
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.ledger_keys import RESOLVES, database_of
from ...protocol.records import Record
from ..bugs import contain_bugs
from ..shared import Shared
from ..topics.names import LEDGER_TOPIC
from ..topics.participants import Append
from .coordinator import TransactionCoordinator
from .ledger import Entry, Item, Proposal, read_record, record_key, record_value, waits_for
from .states import machine
from .states.transaction import NEVER_MS, Decision, Prepared, Transaction

log = logging.getLogger("fencepost.broker")

LONGEST_LOOK_S = 60
HELD_ALERT_MS = 60_000
"""A held transaction that waits for so long is named, however long others may: what decides it is one commit away."""
LOOKED_AT_ONCE = 1000


class Preparation(NamedTuple):
    """The fields of a PrepareTxn request."""

    item: Item
    key: str
    number: int
    timeout_ms: int
    hold: bool = False


class Ledger:
    """All entries of one broker. Only apply() changes them, live and in replay."""

    def __init__(self, shared: Shared, coordinator: TransactionCoordinator) -> None:
        self.entries: dict[str, Entry] = {}
        self.coordinator = coordinator
        self.logs = shared.store.logs
        self.topic = shared.internal_topic(LEDGER_TOPIC, 1, {})
        self._store = shared.store
        self._settings = shared.settings
        self._clock = shared.clock
        self._metrics = shared.metrics
        self._tasks = shared.tasks
        self._warned: set[str] = set()  # transactional ids that wait for long and were named in the log

    def load(self) -> None:
        """Replay the log. Raises what read_record raises, and InternalTopicDamaged."""
        self.topic.load(self._replay)

    def _replay(self, partition: int, batch: Batch, contents: Iterable[Record]) -> None:
        """Apply the entries of one batch of the log, at start. Raises what read_record raises."""
        for record in contents:
            self.apply(*read_record(record.key or b"", record.value))

    def apply(self, key: str, entry: Entry | None) -> None:
        """Set the entry of the key in memory. entry: None removes it."""
        if entry is None:
            self.entries.pop(key, None)
        else:
            self.entries[key] = entry

    def now_ms(self) -> int:
        """Return the wall time in milliseconds."""
        return self._clock.now_ms()

    def append_of(self, key: str, entry: Entry) -> Append:
        """Return the log and the encoded entry, to be added to a unit. Raises COORDINATOR_NOT_AVAILABLE if the log is
        offline.
        """
        return self.topic.append_of(0, [(record_key(key), record_value(entry))], now_ms=self.now_ms())

    def check_known(self) -> None:
        """Raise COORDINATOR_NOT_AVAILABLE if the log is offline, because its decisions are not in memory then."""
        if self.topic.exists:
            self.topic.log(0)

    def ready_for(self, proposal: Proposal) -> None:
        """Create the ledger's log if needed, and check that the proposal's key fits into the ledger. Raises KafkaError
        if one of the two is impossible.
        """
        self.check_known()
        self._check_place(proposal.key)
        self.topic.ensure()

    def _check_place(self, key: str) -> None:
        """Raise POLICY_VIOLATION if the key is new and max.ledger.entries keys are in use.

        A key for which a held transaction waits counts as in use from its PrepareTxn on, so that its decision is never
        refused by this limit.
        """
        held, most = self.coordinator.prepared.held_keys(), self._settings.now.max_ledger_entries
        if key in self.entries or key in held or len(self.entries) + len(held) < most:
            return
        used = len(self.entries) + sum(1 for each in held if each not in self.entries)
        if used >= most:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{used} keys are in use already (max.ledger.entries)")

    def prepare(self, request: Preparation, check: Callable[[], None] | None = None) -> Decision:
        """Handle PrepareTxn: make the transaction wait for its decision. Returns the coordinator's decision.

        If the ledger has decided this number or a higher one already, the transaction is aborted and the error is
        LEDGER_CONFLICT. check: called before the transaction is made to wait; raises KafkaError to refuse that. Raises
        KafkaError; then nothing was changed.
        """
        item, coordinator = request.item, self.coordinator
        self.check_known()
        txn = coordinator.find(item.transactional_id)
        entry = self.entries.get(request.key)
        given = coordinator.inputs(item.transactional_id)
        waits = Prepared(request.key, request.number, request.timeout_ms, given.age_ms, request.hold)
        decided = None if entry is None else entry.number
        decision = machine.prepare(txn, item.producer_id, item.producer_epoch, waits, decided, given)
        if decision.states and not decision.error:
            self._check_limits(request.timeout_ms)
            if check is not None:
                check()
            if request.hold:
                self._check_place(request.key)
                self.topic.ensure()
        coordinator.log(item.transactional_id, decision, given)
        if decision.error and decision.states:
            return decision._replace(error=ErrorCode.LEDGER_CONFLICT)
        return decision

    def _check_limits(self, timeout_ms: int) -> None:
        """Check that one more transaction may wait for a decision, and that it may wait `timeout_ms` (-1: without
        limit).

        Raises KafkaError INVALID_TRANSACTION_TIMEOUT, POLICY_VIOLATION.
        """
        settings, waiting = self._settings.now, len(self.coordinator.prepared)
        if timeout_ms == NEVER_MS and not settings.transaction_two_phase_commit_enable:
            raise KafkaError(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                "to wait without limit (-1) needs transaction.two.phase.commit.enable=true",
            )
        most_ms = settings.transaction_prepared_max_timeout_ms
        if timeout_ms > most_ms:
            raise KafkaError(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"{timeout_ms} ms are more than {most_ms} (transaction.prepared.max.timeout.ms)",
            )
        if waiting >= settings.max_prepared_transactions:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"{waiting} transactions already wait for a decision (max.prepared.transactions)",
            )

    def abort_what_waits(self, proposal: Proposal, items: Sequence[Item]) -> int:
        """Abort those of `items` that still wait for this decision, which the ledger has made already. Returns how many
        it aborted.
        """
        transactions = self.coordinator.transactions
        decisions = []
        given = None
        for item in items:
            if waits_for(transactions.get(item.transactional_id), item, proposal.key, proposal.number):
                given = self.coordinator.inputs(item.transactional_id)
                txn = transactions[item.transactional_id]
                decisions.append((item.transactional_id, machine.settle_prepared(txn, False, given)))
        if given is not None:
            self.coordinator.log_all(decisions, given)
        return len(decisions)

    def remove(self, key: str) -> None:
        """Remove the entry of a key, by writing a tombstone.

        Raises KafkaError: RESOURCE_NOT_FOUND if there is no entry, INVALID_TXN_STATE while a transaction waits for a
        decision under this key.
        """
        self.check_known()
        if key not in self.entries:
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"nothing was decided under the key {key!r}")
        if waiting := self.coordinator.prepared.on(key):
            number = count_text(len(waiting), "transaction waits", "transactions wait")
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, f"{number} for a decision under the key {key!r}")
        self.topic.commit([self.topic.part(0, [(record_key(key), None)], now_ms=self.now_ms())])
        self.apply(key, None)

    # ---- those that wait for long ----------------------------------------------------------------------------

    async def watch(self) -> None:
        """Call look() at least every transaction.prepared.alert.ms, until the broker stops."""
        while not await self._tasks.pause(min(self._settings.now.transaction_prepared_alert_ms / 1000, LONGEST_LOOK_S)):
            with contain_bugs(self._metrics, "the look at transactions that wait for long"):
                self.look()

    def look(self) -> None:
        """Find the transactions that have waited for their decision for transaction.prepared.alert.ms (a held one: at
        most HELD_ALERT_MS). Log each of them once, and set the metric to their number.
        """
        alert_ms, age_ms = self._settings.now.transaction_prepared_alert_ms, self._store.age_ms()
        late = set()
        for name in self.coordinator.prepared.all():
            txn = self.coordinator.transactions[name]
            assert txn.prepared is not None
            waited_ms = age_ms - txn.prepared.since_age_ms
            if waited_ms >= (min(alert_ms, HELD_ALERT_MS) if txn.prepared.hold else alert_ms):
                late.add(name)
                if name not in self._warned:
                    _log_late(txn, txn.prepared, waited_ms)
        self._warned = late
        self._metrics.prepared_for_long = len(late)


def _log_late(txn: Transaction, waits: Prepared, waited_ms: int) -> None:
    """Log a warning about a prepared transaction that has waited long for its decision. waited_ms: how long so far."""
    partitions = ", ".join(f"{topic}-{index}" for topic, index in list(txn.partitions)[:10])
    more = f" and {len(txn.partitions) - 10} more" if len(txn.partitions) > 10 else ""
    left_ms = waits.timeout_ms - waited_ms
    database = database_of(waits.ledger_key) if waits.hold else None
    log.warning(
        "transaction %r has waited for %d s for decision %d %s and holds readers up at %s%s; %s",
        txn.transactional_id,
        waited_ms // 1000,
        waits.number,
        f"under the ledger key {waits.ledger_key!r}" if database is None else f"of database {database!r} ({RESOLVES})",
        partitions,
        more,
        "it waits without limit" if waits.timeout_ms == NEVER_MS else f"it is aborted in {max(left_ms, 0) // 1000} s",
    )
