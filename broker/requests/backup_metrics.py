"""Metrics of a backup that follows the broker (`serve --backup`). Without one they have no samples."""

from collections.abc import Callable

from ...protocol.messages.monitoring import COUNTER, GAUGE
from ..metrics import Backup
from .metric_families import Exported, Samples, Seen
from .services import Services


def _followed(value: Callable[[Backup, int], float | None]) -> Callable[[Services, Seen], Samples]:
    """Return a function that reads a metric of the backup; it returns no sample while no backup follows the broker.

    value: computes the metric from the backup and the monotonic time in ms; None: no sample.
    """

    def read(broker: Services, seen: Seen) -> Samples:
        """Return the metric's sample; none if no backup follows."""
        backup = broker.metrics.backup
        found = value(backup, broker.clock.monotonic_ms()) if backup.is_followed else None
        return [] if found is None else [((), found)]

    return read


def _loss_window(backup: Backup, now_ms: int) -> float | None:
    """Return the seconds since the last moment that the backup covers; None if it covers nothing yet."""
    return None if backup.covered_ms is None else (now_ms - backup.covered_ms) / 1000


BACKUP_FAMILIES = (
    Exported(
        "fencepost_backup_loss_window_seconds",
        GAUGE,
        (),
        "With --backup: how old the newest acknowledgement is that a lost disk would cost now. None before the first "
        "point.",
        _followed(_loss_window),
    ),
    Exported(
        "fencepost_backup_troubled",
        GAUGE,
        (),
        "With --backup: 1 while nothing can be shipped; the log says why.",
        _followed(lambda backup, now_ms: int(backup.is_troubled)),
    ),
    Exported(
        "fencepost_backup_points_total",
        COUNTER,
        (),
        "With --backup: points that the follower has taken since it began.",
        _followed(lambda backup, now_ms: backup.points),
    ),
    Exported(
        "fencepost_backup_objects_total",
        COUNTER,
        (),
        "With --backup: objects that it has created in the store since it began.",
        _followed(lambda backup, now_ms: backup.objects),
    ),
    Exported(
        "fencepost_backup_bytes_total",
        COUNTER,
        (),
        "With --backup: bytes of these.",
        _followed(lambda backup, now_ms: backup.size_bytes),
    ),
)
