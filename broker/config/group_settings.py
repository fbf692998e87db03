"""The settings of consumer groups: a part of the broker's table (settings.py). Kafka's names and defaults."""

from dataclasses import dataclass

from .options import ConfigType, option

INT = ConfigType.INT


@dataclass(frozen=True, kw_only=True)
class GroupSettings:
    """What the group coordinator obeys."""

    group_min_session_timeout_ms: int = option(
        6_000, "The shortest session timeout that a member may ask for.", type=INT, at_least=1
    )
    group_max_session_timeout_ms: int = option(
        1_800_000, "The longest session timeout that a member may ask for.", type=INT, at_least=1
    )
    group_initial_rebalance_delay_ms: int = option(
        3_000,
        "How long an empty group waits for more members after its first. 0 for tests: the first is served at once.",
        type=INT,
        at_least=0,
    )
    group_max_size: int = option(2**31 - 1, "Members that one group may have.", type=INT, at_least=1)
    group_metadata_max_bytes: int = option(
        256 << 20,
        "Memory for all groups and their members: names, subscriptions, and a fixed cost of each. Above it nobody new "
        "joins, and groups that nobody is in are forgotten if they have no offsets; above twice that no assignments "
        "are taken.",
        at_least=1 << 20,
    )
