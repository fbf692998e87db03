"""Regular passes over all transactional ids: they abort transactions that have timed out, and remove ids that are no
longer used.

The rules: a transaction that has timed out is aborted and its producer fenced, so that the producer gets an error
(S-111). Durations are in the store's age, so no change of the wall clock and no restart changes a timeout. An id
without a transaction for transactional.id.expiration.ms is removed from memory, and a null value is logged for it
(S-113). A pass pauses after each few ids. What finds no room on the disk is tried again in the next pass, not before.
"""

import logging
import math
from collections.abc import Awaitable, Callable, Sequence

from ...protocol.errors import KafkaError
from ...storage.store import BrokerHalted
from ..bugs import contain_bugs
from ..shared import Shared
from .coordinator import TransactionCoordinator
from .states import machine

log = logging.getLogger("fencepost.broker")

SHORTEST_PAUSE_S = 0.004
SLICE_PAUSE_S = 0.002
ABORTED_AT_ONCE = 50
EXPIRED_AT_ONCE = 500
LOOKED_AT_ONCE = 5_000


class Sweeps:
    """The regular passes over all transactional ids of one broker."""

    def __init__(self, shared: Shared, coordinator: TransactionCoordinator) -> None:
        self._coordinator = coordinator
        self._settings = shared.settings
        self._store = shared.store
        self._metrics = shared.metrics
        self._tasks = shared.tasks
        self._next_deadline_ms: int | None = None  # of the open ones that the last pass left, the earliest age

    async def abort_late(self) -> None:
        """Abort transactions that have timed out, at start and then repeatedly, until the broker stops.

        The pause is transaction.abort.timed.out.transaction.cleanup.interval.ms; it is shorter if a known transaction
        times out earlier, because readers wait for its end.
        """
        interval_ms = self._settings.now.transaction_abort_timed_out_transaction_cleanup_interval_ms
        while not self._tasks.ending:
            self._next_deadline_ms = None
            await self._pass(self._abort_pass)
            await self._tasks.pause(max(min(interval_ms, self._next_late_ms()) / 1000, SHORTEST_PAUSE_S))

    def _next_late_ms(self) -> float:
        """Return the ms until the first transaction that the last pass left open times out; infinite without one."""
        deadline_ms = self._next_deadline_ms
        return math.inf if deadline_ms is None else deadline_ms + 1 - self._store.age_ms()

    async def expire_ids(self) -> None:
        """Remove unused ids every transaction.remove.expired.transaction.cleanup.interval.ms.

        Returns when the broker stops.
        """
        interval_ms = self._settings.now.transaction_remove_expired_transaction_cleanup_interval_ms
        while not await self._tasks.pause(max(interval_ms / 1000, SHORTEST_PAUSE_S)):
            await self._pass(self._expiry_pass)

    async def _pass(self, run: Callable[[], Awaitable[None]]) -> None:
        """Run one pass. A KafkaError is logged and not raised, because the next pass tries again."""
        try:
            await run()
        except KafkaError as error:
            log.warning("transactions could not be cleaned up, which is tried again later: %s", error)

    async def _abort_pass(self) -> None:
        """Abort all transactions that have timed out, in slices with pauses. Returns early when the broker stops."""
        ids = list(self._coordinator.open)
        for start in range(0, len(ids), LOOKED_AT_ONCE):
            await self._abort(self._late(ids[start : start + LOOKED_AT_ONCE]))
            if await self._tasks.pause(SLICE_PAUSE_S):
                return

    async def _abort(self, ids: Sequence[str]) -> None:
        """Abort these transactions with a pause after every ABORTED_AT_ONCE. Returns early when the broker stops."""
        for number, transactional_id in enumerate(ids, 1):
            with contain_bugs(self._metrics, f"transaction {transactional_id!r}"):
                self._abort_one(transactional_id)
            if number % ABORTED_AT_ONCE == 0 and await self._tasks.pause(SLICE_PAUSE_S):
                return

    def _abort_one(self, transactional_id: str) -> None:
        """Abort the transaction if it has timed out, and log that. A KafkaError is logged too; the next pass tries
        again.
        """
        try:
            if self._coordinator.abort_late(transactional_id):
                log.info("transaction %r was open for longer than its timeout and is aborted", transactional_id)
        except KafkaError as error:  # perhaps only one partition of the log is offline: the next id may be of another
            log.warning("transaction %r, open for too long, is not aborted yet: %s", transactional_id, error)

    def _late(self, ids: Sequence[str]) -> list[str]:
        """Return those ids whose transaction has timed out. Notes the earliest deadline of the others."""
        transactions, age_ms = self._coordinator.transactions, self._store.age_ms()
        found = []
        for transactional_id in ids:
            txn = transactions.get(transactional_id)
            deadline_ms = None if txn is None else machine.deadline_age_ms(txn)
            if deadline_ms is None:
                continue
            if deadline_ms < age_ms:
                found.append(transactional_id)
            elif self._next_deadline_ms is None or deadline_ms < self._next_deadline_ms:
                self._next_deadline_ms = deadline_ms
        return found

    async def _expiry_pass(self) -> None:
        """Remove all ids that have been unused for long enough, in slices with pauses. Returns early when the broker
        stops.
        """
        ids = list(self._coordinator.transactions)
        for start in range(0, len(ids), LOOKED_AT_ONCE):
            await self._expire(self._unused_ids(ids[start : start + LOOKED_AT_ONCE]))
            if await self._tasks.pause(SLICE_PAUSE_S):
                return

    async def _expire(self, ids: Sequence[str]) -> None:
        """Remove those of `ids` that are still unused, EXPIRED_AT_ONCE at a time, with a pause after each time. Returns
        early when the broker stops.
        """
        for start in range(0, len(ids), EXPIRED_AT_ONCE):
            self._forget(self._unused_ids(ids[start : start + EXPIRED_AT_ONCE]))
            if await self._tasks.pause(SLICE_PAUSE_S):
                return

    def _forget(self, ids: Sequence[str]) -> None:
        """Remove ids, all at once. If that fails because of a bug, remove them one by one, so that the bug affects only
        one id. Raises KafkaError.
        """
        try:
            self._coordinator.forget(ids)
        except (KafkaError, BrokerHalted, OSError):
            raise
        except Exception:
            for transactional_id in ids:
                with contain_bugs(self._metrics, f"transactional id {transactional_id!r}, which expires"):
                    self._coordinator.forget([transactional_id])

    def _unused_ids(self, ids: Sequence[str]) -> list[str]:
        """Return those of `ids` that may be removed now (transactional.id.expiration.ms)."""
        transactions, age_ms = self._coordinator.transactions, self._store.age_ms()
        expiration_ms = self._settings.now.transactional_id_expiration_ms
        found = []
        for transactional_id in ids:
            txn = transactions.get(transactional_id)
            if txn is not None and machine.may_expire(txn, expiration_ms, age_ms):
                found.append(transactional_id)
        return found
