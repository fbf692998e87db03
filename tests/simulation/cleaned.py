"""Topics that lose records by themselves: by age, by size, by newer records of the same key; and who writes with keys.

Every log is closed often, so that there are segments to go while they are written and read.
"""

from typing import Any

from simulation.history import Cleanup
from simulation.plain_clients import PlainProducer
from simulation.txn_clients import Incarnation

TOMBSTONES_MS = 2_000  # SETTINGS of world.py have it for the coordinators' logs as well
CLOSED_AFTER_MS = 1_000
CLEANUPS = {
    "aged": Cleanup(("aged", 0), retention_ms=5_000),
    "heavy": Cleanup(("heavy", 0), retention_bytes=20_000),
    "keys": Cleanup(("keys", 0), tombstones_ms=TOMBSTONES_MS),
}
KEYS = tuple(f"k{number}" for number in range(6))


def configs_of(cleanup: Cleanup | None, configs: dict[str, Any]) -> dict[str, Any]:
    """Return these configs of a topic, for CreateTopics, with those that this cleanup needs."""
    if cleanup is None:
        return configs
    configs = configs | {"segment_ms": min(configs["segment_ms"], CLOSED_AFTER_MS)}
    if cleanup.compacts:
        return configs | {"cleanup_policy": "compact", "delete_retention_ms": cleanup.tombstones_ms}
    return configs | {"retention_ms": cleanup.retention_ms, "retention_bytes": cleanup.retention_bytes}


class KeyedProducer(PlainProducer):
    """An idempotent producer of records with few keys; some records are tombstones."""

    keys = KEYS


class KeyedIncarnation(Incarnation):
    """The same in transactions. Aborted records replace no others."""

    keys = KEYS
