"""The settings of consumer groups: a part of the broker's table (settings.py). Kafka's names and defaults.

The defaults for the newer protocol (KIP-848) must lie within bounds, within which a group may have another value
(group_configs.py). The error texts are those of Kafka's GroupCoordinatorConfig.
"""

from dataclasses import dataclass

from .options import ConfigType, Value, option
from .order import GROUP_ORDER, check_order

INT = ConfigType.INT
PREFIX = "group.consumer."


def _not_empty(value: Value) -> str | None:
    """Return an error if the list of assignors is empty; else None."""
    return None if value else "Configuration 'group.consumer.assignors' must not be empty."


@dataclass(frozen=True, kw_only=True)
class GroupSettings:
    """The settings of the group coordinator."""

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
    group_consumer_session_timeout_ms: int = option(
        45_000,
        "After how long without a heartbeat a member of the newer protocol (KIP-848) is removed.",
        type=INT,
        at_least=1,
    )
    group_consumer_min_session_timeout_ms: int = option(
        45_000, "The shortest session timeout that a group of the newer protocol may have.", type=INT, at_least=1
    )
    group_consumer_max_session_timeout_ms: int = option(
        60_000, "The longest session timeout that a group of the newer protocol may have.", type=INT, at_least=1
    )
    group_consumer_heartbeat_interval_ms: int = option(
        5_000, "How often members of the newer protocol are to send heartbeats.", type=INT, at_least=1
    )
    group_consumer_min_heartbeat_interval_ms: int = option(
        5_000, "The shortest heartbeat interval that a group of the newer protocol may have.", type=INT, at_least=1
    )
    group_consumer_max_heartbeat_interval_ms: int = option(
        15_000, "The longest heartbeat interval that a group of the newer protocol may have.", type=INT, at_least=1
    )
    group_consumer_max_size: int = option(
        2**31 - 1, "Members that one group of the newer protocol may have.", type=INT, at_least=1
    )
    group_consumer_assignors: tuple[str, ...] = option(
        ("uniform", "range"),
        "Who decides what members of the newer protocol read; the first, where they do not ask for one.",
        one_of=("uniform", "range"),
        check=_not_empty,
    )
    group_consumer_assignment_interval_ms: int = option(
        1_000,
        "The shortest time between two assignments of a group of the newer protocol.",
        type=INT,
        at_least=0,
        dynamic=True,
    )
    group_consumer_min_assignment_interval_ms: int = option(
        0, "The shortest assignment interval that a group of the newer protocol may have.", type=INT, at_least=0
    )
    group_consumer_max_assignment_interval_ms: int = option(
        15_000, "The longest assignment interval that a group of the newer protocol may have.", type=INT, at_least=0
    )
    group_consumer_regex_refresh_interval_ms: int = option(
        600_000,
        "After how long the topics of a group's regular expressions are looked up again, where no topic has changed.",
        type=INT,
        at_least=10_000,
    )
    group_consumer_migration_policy: str = option(
        "bidirectional",
        "Which way groups may change their protocol while somebody is in them: `upgrade` to the newer one when its "
        "first member comes, `downgrade` to the classic one when its last member is gone, both, or `disabled`.",
        one_of=("disabled", "upgrade", "downgrade", "bidirectional"),
    )
    group_metadata_max_bytes: int = option(
        256 << 20,
        "Memory for all groups and their members: names, subscriptions, and a fixed cost of each. Above it nobody new "
        "joins, and groups that nobody is in are forgotten if they have no offsets; above twice that no assignments "
        "are taken. As much again for settings of single groups, and as much for what share groups know of single "
        "records: above it a share partition is given new ones only if it takes no more than its part, which is that "
        "divided by the groups that take some, and by the share partitions of its group that do.",
        at_least=1 << 20,
    )

    def check_groups(self) -> None:
        """Raise InvalidOption if a default is out of its bounds, or a heartbeat interval is not shorter than a
        session.
        """
        check_order(self, PREFIX, GROUP_ORDER)
