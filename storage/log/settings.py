"""The settings of a log, which come from its topic's configuration. Names and defaults are Kafka's; see
docs/settings.md. Pure.
"""

from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

from ..checkpoints import NewerFormat

DAY_MS = 86_400_000
NEVER_MS = 2**63 - 1


class UnknownSetting(NewerFormat):
    """Raised for a setting of a log that a later version added: it may change the meaning of files."""

    def __init__(self, log: str, name: str) -> None:
        super().__init__(log, 0)
        self.args = (f"{log} has the setting {name}, which only a newer fencepost knows",)


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The settings of one log. Frozen: a change replaces the whole object. Sizes in bytes; -1 means no limit."""

    durability_mode: str = "fsync"
    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * DAY_MS
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = -1
    cleanup_policy: str = "delete"  # or "compact", or "compact,delete"; "" keeps everything
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = NEVER_MS
    delete_retention_ms: int = DAY_MS

    @property
    def compacts(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    @lru_cache(1024)  # noqa: B019 -- settings are few, and each checkpoint asks for those of every log
    def pack(self) -> dict[str, Any]:
        """Return the settings that differ from the defaults, for msgpack."""
        return {name: value for name, default in _DEFAULTS if (value := getattr(self, name)) != default}

    @classmethod
    def unpack(cls, packed: dict[str, Any], log: str = "a log") -> "LogSettings":
        """Restore settings that pack() encoded. Raises UnknownSetting. log: its name, for that error."""
        for name in packed:
            if name not in _NAMES:
                raise UnknownSetting(log, name)
        return cls(**packed)


_NAMES = frozenset(field.name for field in fields(LogSettings))
_DEFAULTS = tuple((field.name, field.default) for field in fields(LogSettings))
