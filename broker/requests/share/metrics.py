"""Metrics of share groups: rows of the table in requests/exported_metrics.py.

Kafka's names for them, in its order: RecordAcknowledgementsPerSec, AcquisitionLockTimeoutPerSec, InFlightMessageCount,
InFlightBatchCount. Source: KIP-932, KIP-1103.
"""

from ....protocol.messages.monitoring import COUNTER, GAUGE
from ...net.turns import Steps
from ..metric_families import Exported, Seen, by, one
from ..services import Services

SHARE_PARTITIONS_PER_UNIT, RANGES_PER_UNIT = 10, 10

SHARE_FAMILIES = (
    Exported(
        "fencepost_share_acknowledgements_total",
        COUNTER,
        ("type",),
        "Records that members of share groups have acknowledged, in transactions too.",
        by(lambda broker: broker.metrics.share_acknowledged),
    ),
    Exported(
        "fencepost_share_lock_timeouts_total",
        COUNTER,
        (),
        "Records that members of share groups had for too long, and that were given out again or archived.",
        one(lambda broker: broker.metrics.share_locks_timed_out),
    ),
    Exported(
        "fencepost_share_archived_total",
        COUNTER,
        ("reason",),
        "Records that a share group does not deliver any more although nobody has accepted them.",
        by(lambda broker: broker.metrics.share_archived),
    ),
    Exported(
        "fencepost_share_in_flight_records",
        GAUGE,
        (),
        "Records of all share partitions, from the first that is not done to the last that was delivered.",
        lambda broker, seen: [((), seen.in_flight_records)],
    ),
    Exported(
        "fencepost_share_in_flight_runs",
        GAUGE,
        (),
        "Runs of these: neighbours that are alike are kept as one.",
        lambda broker, seen: [((), seen.in_flight_runs)],
    ),
    Exported(
        "fencepost_share_partitions_without_memory",
        GAUGE,
        (),
        "Share partitions that get nothing new: runs take group.metadata.max.bytes, theirs more than their part.",
        lambda broker, seen: [((), seen.without_memory)],
    ),
    Exported(
        "fencepost_share_pending_records",
        GAUGE,
        (),
        "Records of these that open transactions have acknowledged.",
        lambda broker, seen: [((), seen.pending_records)],
    ),
    Exported(
        "fencepost_share_pending_oldest_seconds",
        GAUGE,
        (),
        "For how long the oldest of these transactions has been open; 0 without one.",
        lambda broker, seen: [((), seen.pending_oldest_ms / 1000)],
    ),
)


def see_share_partitions(broker: Services, seen: Seen) -> Steps[None]:
    """Add to `seen`, in steps, the records and transactions of all share partitions. Transactions must be in `seen`
    already.
    """
    known = broker.share_partitions.state_log.known
    for count, key in enumerate(list(known)):
        kept = known.get(key)
        if kept is not None:
            machine = kept.machine
            seen.in_flight_records += machine.end - machine.start + 1
            seen.in_flight_runs += len(machine.runs)
            seen.without_memory += not broker.share_partitions.has_memory(key)
            for transaction in machine.transactions:
                pending = list(machine.pending_of(transaction))
                seen.pending_records += sum(last - first + 1 for first, last, _ in pending)
                seen.pending_oldest_ms = max(seen.pending_oldest_ms, seen.open_ms.get(transaction[1], 0))
                yield 1 + len(pending) // RANGES_PER_UNIT
        if not count % SHARE_PARTITIONS_PER_UNIT:
            yield 1
