"""What is left to be done at start: markers that were decided and could not be written, before anybody is served.

Two kinds. A debt: a transaction ended while a partition was offline; its marker is the first thing the partition gets
when it is back, in one unit with the end of the debt. And PREPARE_x without COMPLETE_x, which this broker never leaves,
but a log may hold: it is finished with the outcome that was decided (S-67).
"""

import asyncio
import logging
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING

from ...effects.clock import Clock
from ...protocol.batches import read
from ...protocol.errors import KafkaError
from ...protocol.records import Marker, control_marker
from ..groups.offset_log import GroupOffsets
from ..shared import Shared
from ..topics.catalogue import Change, MarkerDebt, marker_paid
from ..topics.names import OFFSETS_TOPIC
from .coordinator import TransactionCoordinator
from .states import machine

if TYPE_CHECKING:
    from ...storage.journal.journal import Part

log = logging.getLogger("fencepost.broker")

SLICE = 200
ROOM_CHECK_S = 0.02
WAIT_FOR_ROOM_S = 10.0

Owed = tuple[tuple[int, int], MarkerDebt]


async def settle(shared: Shared, offsets: GroupOffsets, coordinator: TransactionCoordinator) -> None:
    """Write all owed markers and finish all decided transactions. Raises KafkaError if the disk has no room."""
    while debts := list(islice(_payable(shared), SLICE)):
        await with_room(shared.clock, lambda: _pay(shared, offsets, debts))
    for transactional_id in [name for name, txn in coordinator.transactions.items() if machine.owed_markers(txn)]:
        log.info("transaction %r was decided and not ended: it is now", transactional_id)
        await with_room(shared.clock, lambda: coordinator.finish(transactional_id))  # noqa: B023


async def with_room(clock: Clock, work: Callable[[], None]) -> None:
    """Do the work as soon as the journal has a file ready for it."""
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
    """Return owed markers of logs that are online now, or deleted."""
    logs = shared.store.logs
    debts = shared.topics.catalogue.marker_debts.items()
    return [(key, debt) for key, debt in debts if key[0] not in logs or logs[key[0]].offline is None]


def _pay(shared: Shared, offsets: GroupOffsets, debts: list[Owed]) -> None:
    store, wall_ms = shared.store, shared.clock.now_ms()
    changes: list[Change] = []
    parts: list[Part] = []
    of_offsets: list[tuple[int, int, bool]] = []
    for (log_id, producer_id), debt in debts:
        changes.append(marker_paid(log_id, producer_id))
        owner = store.logs.get(log_id)
        if owner is None:
            continue
        kind = Marker.COMMIT if debt.commit else Marker.ABORT
        marker = control_marker(kind, producer_id, debt.producer_epoch, debt.coordinator_epoch, wall_ms)
        parts.append(store.append_part(log_id, read(memoryview(marker))))
        if owner.topic == OFFSETS_TOPIC:
            of_offsets.append((owner.partition, producer_id, debt.commit))
        log.info("%s-%s gets the marker that ends producer %s's transaction", owner.topic, owner.partition, producer_id)
    shared.topics.commit(changes, parts)
    for partition, producer_id, commit in of_offsets:
        log_end = offsets.topic.log(partition).end_offset
        offsets.end_transaction(partition, producer_id, commit, log_end - 1)
