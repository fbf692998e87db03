"""What the broker's settings mean for its parts that know nothing of settings."""

from ..storage.store import StoreSettings
from .config.live_settings import LiveSettings
from .upkeep.housekeeping import HousekeepingSettings


def store_settings(live: LiveSettings) -> StoreSettings:
    """Return the settings of the data directory that follow from the broker's settings."""
    settings = live.now
    return StoreSettings(
        journal_max_bytes=settings.journal_max_bytes,
        tail_max_bytes=settings.log_tail_max_bytes,
        min_free_bytes=settings.storage_min_free_bytes,
        max_open_files=settings.max_open_files,
        durability_mode=settings.durability_mode,
        unreadable_logs_offline=settings.storage_unreadable_partitions == "offline",
    )


def housekeeping_settings(live: LiveSettings) -> HousekeepingSettings:
    """Return the settings of flushes, checkpoints and cleaning that follow from the broker's settings."""
    settings = live.now
    return HousekeepingSettings(
        checkpoint_interval_ms=settings.log_checkpoint_interval_ms,
        retention_check_interval_ms=settings.log_retention_check_interval_ms,
        cleaner_backoff_ms=lambda: live.now.log_cleaner_backoff_ms,
        producer_expiration_check_interval_ms=settings.producer_id_expiration_check_interval_ms,
        producer_expiration_ms=lambda: live.now.producer_id_expiration_ms,
    )
