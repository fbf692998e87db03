"""The settings of share groups (KIP-932): a part of the broker's table (settings.py). Kafka's names and defaults.

Each default must lie within bounds, within which one group may have another value (group_configs.py). The limits on
these bounds are Kafka's, from its ShareGroupConfig and ShareCoordinatorConfig; they limit the memory that a window of
records takes.
"""

from dataclasses import dataclass

from .options import ConfigType, InvalidOption, option
from .order import AT_LEAST, GROUP_ORDER, check_order

INT = ConfigType.INT
PREFIX = "group.share."
_ORDER = (
    *GROUP_ORDER,
    ("max.delivery.count.limit", AT_LEAST, "delivery.count.limit"),
    ("delivery.count.limit", AT_LEAST, "min.delivery.count.limit"),
    ("max.partition.max.record.locks", AT_LEAST, "partition.max.record.locks"),
    ("partition.max.record.locks", AT_LEAST, "min.partition.max.record.locks"),
    ("record.lock.duration.ms", AT_LEAST, "min.record.lock.duration.ms"),
    ("max.record.lock.duration.ms", AT_LEAST, "record.lock.duration.ms"),
    ("max.share.sessions", AT_LEAST, "max.size"),
)
"""What has to hold of the settings of one broker, in the order in which Kafka looks."""


@dataclass(frozen=True, kw_only=True)
class ShareSettings:
    """The settings of share groups, and of the topic that stores their state."""

    group_share_session_timeout_ms: int = option(
        45_000, "After how long without a heartbeat a member of a share group is removed.", type=INT, at_least=1
    )
    group_share_min_session_timeout_ms: int = option(
        45_000, "The shortest session timeout that a share group may have.", type=INT, at_least=1
    )
    group_share_max_session_timeout_ms: int = option(
        60_000, "The longest session timeout that a share group may have.", type=INT, at_least=1
    )
    group_share_heartbeat_interval_ms: int = option(
        5_000, "How often members of a share group are to send heartbeats.", type=INT, at_least=1
    )
    group_share_min_heartbeat_interval_ms: int = option(
        5_000, "The shortest heartbeat interval that a share group may have.", type=INT, at_least=1
    )
    group_share_max_heartbeat_interval_ms: int = option(
        15_000, "The longest heartbeat interval that a share group may have.", type=INT, at_least=1
    )
    group_share_assignment_interval_ms: int = option(
        1_000, "The shortest time between two assignments of a share group.", type=INT, at_least=0, dynamic=True
    )
    group_share_min_assignment_interval_ms: int = option(
        0, "The shortest assignment interval that a share group may have.", type=INT, at_least=0
    )
    group_share_max_assignment_interval_ms: int = option(
        15_000, "The longest assignment interval that a share group may have.", type=INT, at_least=0
    )
    group_share_max_size: int = option(
        200, "Members that one share group may have.", type=INT, at_least=1, at_most=1_000
    )
    group_share_max_share_sessions: int = option(
        2_000, "Sessions that members of share groups may have open with the broker.", type=INT, at_least=1
    )
    group_share_assignors: tuple[str, ...] = option(
        ("simple",), "Who decides what members of a share group read: exactly one.", one_of=("simple",)
    )
    group_share_record_lock_duration_ms: int = option(
        30_000,
        "How long a member of a share group has a record before it is delivered again.",
        type=INT,
        at_least=1_000,
        at_most=3_600_000,
    )
    group_share_min_record_lock_duration_ms: int = option(
        15_000, "The shortest such time that a share group may have.", type=INT, at_least=1_000, at_most=30_000
    )
    group_share_max_record_lock_duration_ms: int = option(
        60_000, "The longest such time that a share group may have.", type=INT, at_least=30_000, at_most=3_600_000
    )
    group_share_delivery_count_limit: int = option(
        5,
        "How often a record is delivered to a share group that does not accept it, before it is archived.",
        type=INT,
        at_least=2,
        at_most=10,
    )
    group_share_min_delivery_count_limit: int = option(
        2, "The smallest such number that a share group may have.", type=INT, at_least=2, at_most=5
    )
    group_share_max_delivery_count_limit: int = option(
        10, "The largest such number that a share group may have.", type=INT, at_least=5, at_most=25
    )
    group_share_partition_max_record_locks: int = option(
        2_000,
        "Records of one partition, from the first that is not done to the last that was delivered, that a share group "
        "may have in flight. Those that were accepted in between count.",
        type=INT,
        at_least=100,
        at_most=10_000,
    )
    group_share_min_partition_max_record_locks: int = option(
        100, "The smallest such number that a share group may have.", type=INT, at_least=100, at_most=2_000
    )
    group_share_max_partition_max_record_locks: int = option(
        4_000, "The largest such number that a share group may have.", type=INT, at_least=2_000, at_most=10_000
    )
    share_coordinator_state_topic_num_partitions: int = option(
        50, "Partitions of __share_group_state, for the day it is made.", type=INT, at_least=1
    )
    share_coordinator_state_topic_segment_bytes: int = option(
        4 << 20, "segment.bytes of __share_group_state, for the day it is made.", type=INT, at_least=1 << 20
    )
    share_coordinator_snapshot_update_records_per_snapshot: int = option(
        500,
        "Changes of one share partition after which its whole state is written, so that older ones can be removed.",
        type=INT,
        at_least=0,
        at_most=500,
    )

    def check_share_groups(self) -> None:
        """Raise InvalidOption if a default is out of its bounds, if a session timeout is too short for its heartbeat
        interval, or if there is not exactly one assignor.
        """
        name, count = PREFIX + "assignors", len(self.group_share_assignors)
        if count != 1:
            raise InvalidOption(f"{name} must contain exactly one assignor, but found {count}", name)
        check_order(self, PREFIX, _ORDER)
