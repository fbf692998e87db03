"""Completes at start, before clients are served, what an earlier run decided but could not write: owed markers and ends
of transactions.

There are two cases. A debt: a transaction ended while a partition was offline. The marker is the first thing that is
appended when the partition is back, in one unit with the removal of the debt. And a PREPARE_x without COMPLETE_x: this
broker never leaves one, but a log may contain it. It is completed with the outcome that was decided (S-67).
"""

import asyncio
import logging
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING

from ...effects.clock import Clock
from ...protocol.batches import Batch, read
from ...protocol.errors import KafkaError
from ...protocol.records import Marker, control_marker
from ..shared import Shared
from ..topics.catalogue import Change, MarkerDebt, marker_paid
from ..topics.participants import Participants, Settlement
from .coordinator import TransactionCoordinator
from .states import machine

if TYPE_CHECKING:
    from ...storage.journal.journal import Part

log = logging.getLogger("fencepost.broker")

SLICE = 200
ROOM_CHECK_S = 0.02
WAIT_FOR_ROOM_S = 10.0

Owed = tuple[tuple[int, int], MarkerDebt]


async def settle(shared: Shared, coordinator: TransactionCoordinator) -> None:
    """Write all owed markers that can be written, and complete all transactions in PREPARE_COMMIT or PREPARE_ABORT.
    Raises KafkaError if the disk has no room.
    """
    while debts := list(islice(_payable(shared), SLICE)):
        await with_room(shared.clock, lambda: _pay(shared, coordinator.participants, debts))
    for transactional_id in [name for name, txn in coordinator.transactions.items() if machine.owed_markers(txn)]:
        log.info("transaction %r was decided and not ended: it is now", transactional_id)
        await with_room(shared.clock, lambda: coordinator.finish(transactional_id))  # noqa: B023


async def with_room(clock: Clock, work: Callable[[], None]) -> None:
    """Call `work`; while it raises KafkaError, because the journal has no room, try again.

    Raises the last KafkaError after WAIT_FOR_ROOM_S seconds.
    """
    deadline = clock.monotonic_ms() + WAIT_FOR_ROOM_S * 1000
    while True:
        try:
            work()
            return
        except KafkaError:
            if clock.monotonic_ms() >= deadline:
                raise
        await asyncio.sleep(ROOM_CHECK_S)


def _payable(shared: Shared) -> list[Owed]:
    """Return the owed markers that can be dealt with now: their logs are online, or deleted, so that only the debt is
    to be removed.
    """
    logs = shared.store.logs
    debts = shared.topics.catalogue.marker_debts.items()
    return [(key, debt) for key, debt in debts if key[0] not in logs or logs[key[0]].offline is None]


def _pay(shared: Shared, participants: Participants, debts: list[Owed]) -> None:
    """Write these owed markers and remove the debts, in one unit, with the batches that participants add to the markers
    in their topics. If a log is deleted, its debt is removed without a marker.
    """
    store, wall_ms = shared.store, shared.clock.now_ms()
    changes: list[Change] = []
    parts: list[Part] = []
    settled: list[tuple[Settlement, Batch]] = []
    for (log_id, producer_id), debt in debts:
        changes.append(marker_paid(log_id, producer_id))
        owner = store.logs.get(log_id)
        if owner is None:
            continue
        kind = Marker.COMMIT if debt.commit else Marker.ABORT
        written = control_marker(kind, producer_id, debt.producer_epoch, debt.coordinator_epoch, wall_ms)
        marker = read(memoryview(written))
        parts.append(store.append_part(log_id, marker))
        settle = participants.get(owner.topic)
        if settle is not None:
            settlement = settle(owner.partition, producer_id, debt.commit)
            parts += [store.append_part(each.log_id, batch) for each, batch in settlement.appends]
            settled.append((settlement, marker))
        log.info("%s-%s gets the marker that ends producer %s's transaction", owner.topic, owner.partition, producer_id)
    shared.topics.commit(changes, parts)
    for settlement, marker in settled:
        settlement.apply(marker.base_offset)
