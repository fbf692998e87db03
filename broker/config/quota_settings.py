"""The settings of how quotas are measured: a part of the broker's table (settings.py). Kafka's names and defaults."""

from dataclasses import dataclass

from .options import ConfigType, option

INT = ConfigType.INT


@dataclass(frozen=True, kw_only=True)
class QuotaSettings:
    """Windows of the two measures."""

    quota_window_num: int = option(
        11,
        "Windows over which the rate of a client is measured, the one that has just begun included.",
        type=INT,
        at_least=1,
    )
    quota_window_size_seconds: int = option(1, "The length of one of them.", type=INT, at_least=1)
    controller_quota_window_num: int = option(
        11,
        "Windows whose partitions a client may make or delete at once where `controller_mutation_rate` limits it.",
        type=INT,
        at_least=1,
    )
    controller_quota_window_size_seconds: int = option(1, "The length of one of them.", type=INT, at_least=1)
