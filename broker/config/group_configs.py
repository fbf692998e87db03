"""The configs of one group (resource type GROUP): their table, and the values in effect for a group.

The rule: a value is checked against the broker's bounds when it is set, and stored as it was given. If a later start
has other bounds, the nearest value within them is in effect for the group. Settings of streams groups are unknown
names, because there are no streams groups here.

Source: Kafka's GroupConfig (KIP-848, KIP-932), asked of 4.3.1.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from .options import ConfigType, InvalidOption, Option, Value, option, options_of, text_of
from .settings import BROKER_OPTIONS, BrokerSettings, Source

INT = ConfigType.INT
OF_OTHER_KINDS = ("streams.",)
EARLIEST, LATEST, BY_DURATION = "earliest", "latest", "by_duration:"
_DURATION = re.compile(
    r"([-+]?)P(?=[-+0-9T])(?:([-+]?[0-9]{1,19})D)?"
    r"(?:T(?=[-+0-9])(?:([-+]?[0-9]{1,19})H)?(?:([-+]?[0-9]{1,19})M)?(?:([-+]?[0-9]{1,19})(?:[.,]([0-9]{0,9}))?S)?)?",
    re.IGNORECASE,
)
"""What Java's Duration.parse takes: PnDTnHnMn.nS."""
_LONGEST_S = 2**63 - 1


def reset_duration_ms(reset: str) -> int:
    """Parse a share.auto.offset.reset of the form by_duration:PnDTnHnMn.nS. Returns how many ms before now a new group
    starts to read.

    Raises ValueError for any other value.
    """
    found = _DURATION.fullmatch(reset.removeprefix(BY_DURATION))
    if not reset.startswith(BY_DURATION) or not found:
        raise ValueError(reset)
    sign, days, hours, minutes, seconds, fraction = found.groups()
    whole = int(days or 0) * 86_400 + int(hours or 0) * 3_600 + int(minutes or 0) * 60 + int(seconds or 0)
    part_ns = int((fraction or "").ljust(9, "0")) * (-1 if (seconds or "").startswith("-") else 1)
    total_ns = (whole * 10**9 + part_ns) * (-1 if sign == "-" else 1)
    if not 0 <= total_ns <= _LONGEST_S * 10**9:
        raise ValueError(reset)
    return total_ns // 10**6


def _check_reset(value: Value) -> str | None:
    """Return the error for a value of share.auto.offset.reset; None if it is valid."""
    text = str(value)
    if text in (EARLIEST, LATEST):
        return None
    try:
        reset_duration_ms(text)
    except ValueError:
        return (
            f"Invalid value `{text}` for configuration share.auto.offset.reset. The value must be either 'earliest', "
            "'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
        )
    return None


@dataclass(frozen=True, kw_only=True)
class GroupConfigs:
    """The configs in effect for one consumer or share group, in the order in which Kafka checks them."""

    consumer_heartbeat_interval_ms: int = option(
        5_000,
        "How often members are to send heartbeats.",
        type=INT,
        at_least=1,
        broker="group.consumer.heartbeat.interval.ms",
    )
    consumer_session_timeout_ms: int = option(
        45_000,
        "After how long without a heartbeat a member is removed.",
        type=INT,
        at_least=1,
        broker="group.consumer.session.timeout.ms",
    )
    consumer_assignment_interval_ms: int = option(
        1_000,
        "The shortest time between two assignments.",
        type=INT,
        at_least=0,
        broker="group.consumer.assignment.interval.ms",
    )
    share_heartbeat_interval_ms: int = option(
        5_000,
        "How often members are to send heartbeats.",
        type=INT,
        at_least=1,
        broker="group.share.heartbeat.interval.ms",
    )
    share_session_timeout_ms: int = option(
        45_000,
        "After how long without a heartbeat a member is removed. It keeps what it has acquired until the locks end.",
        type=INT,
        at_least=1,
        broker="group.share.session.timeout.ms",
    )
    share_record_lock_duration_ms: int = option(
        30_000,
        "How long a member has a record before it is delivered again.",
        type=INT,
        at_least=1_000,
        broker="group.share.record.lock.duration.ms",
    )
    share_delivery_count_limit: int = option(
        5,
        "How often a record that nobody accepts is delivered before it is archived.",
        type=INT,
        at_least=2,
        broker="group.share.delivery.count.limit",
    )
    share_partition_max_record_locks: int = option(
        2_000,
        "Records of one partition that may be in flight, from the first that is not done to the last delivered.",
        type=INT,
        at_least=100,
        broker="group.share.partition.max.record.locks",
    )
    share_assignment_interval_ms: int = option(
        1_000,
        "The shortest time between two assignments.",
        type=INT,
        at_least=0,
        broker="group.share.assignment.interval.ms",
    )
    share_auto_offset_reset: str = option(
        LATEST,
        "Where the group begins in a topic that it has not read: `earliest`, `latest`, or so long ago as "
        "`by_duration:PnDTnHnMn.nS` says.",
        check=_check_reset,
    )
    share_isolation_level: str = option(
        "read_uncommitted",
        "Whether records of open and aborted transactions are delivered.",
        one_of=("read_committed", "read_uncommitted"),
    )
    share_renew_acknowledge_enable: bool = option(True, "Whether members may ask for longer locks.")

    @classmethod
    def of(cls, configs: Mapping[str, str], broker: BrokerSettings) -> "GroupConfigs":
        """Return the values in effect for a group: from its own configs, limited to the broker's bounds, else the
        broker's settings.

        configs: the group's own, as texts by name. Raises InvalidOption for a value that cannot be parsed.
        """
        values: dict[str, Any] = {row.field_name: _value(row, configs, broker) for row in OPTIONS.values()}
        bounded = {row.field_name: _within_bounds(row.name, values[row.field_name], broker) for row in BOUNDED}
        return cls(**(values | bounded))


OPTIONS = options_of(GroupConfigs)
BOUNDED = tuple(row for row in OPTIONS.values() if row.broker)
"""The group configs whose default and bounds are settings of the broker."""


def check(configs: Mapping[str, str], broker: BrokerSettings) -> None:
    """Raise InvalidOption, with Kafka's texts and in its order, if a group cannot have these configs."""
    for name in configs:
        if name not in OPTIONS:
            raise InvalidOption(f"Unknown group config name: {name}{_note_on_group_type(name)}", name)
    values = {name: _value(row, configs, broker) for name, row in OPTIONS.items()}
    for name in (row.name for row in BOUNDED):
        value, (least, most) = cast(int, values[name]), _bounds(name)
        if value < _setting(least, broker):
            raise InvalidOption(f"{name} must be greater than or equal to {least}", name)
        if value > _setting(most, broker):
            raise InvalidOption(f"{name} must be less than or equal to {most}", name)
    for kind in ("consumer", "share"):
        heartbeat, session = f"{kind}.heartbeat.interval.ms", f"{kind}.session.timeout.ms"
        if cast(int, values[session]) <= cast(int, values[heartbeat]):
            raise InvalidOption(f"{session} must be greater than {heartbeat}", session)


def synonyms(name: str, configs: Mapping[str, str], broker: BrokerSettings) -> list[tuple[str, str, Source]]:
    """Return (name, value, source) of every value that was set for a group's config, the one in effect first."""
    row = OPTIONS[name]
    own = [(name, _shown(name, configs[name]), Source.GROUP)] if name in configs else []
    return [*own, *(broker.synonyms(row.broker) if row.broker else [(name, text_of(row.default), Source.DEFAULT)])]


def _shown(name: str, text: str) -> str:
    """Return a stored value in the form in which it is shown; unchanged if this version would refuse it."""
    try:
        return text_of(OPTIONS[name].parse(text))
    except InvalidOption:
        return text


def _note_on_group_type(name: str) -> str:
    """Return an addition to the error for an unknown config, which says that there are no groups of its type here (such
    as streams groups); "" for any other name.
    """
    kind = next((kind for kind in OF_OTHER_KINDS if name.startswith(kind)), None)
    return f" (there are no {kind[:-1]} groups here)" if kind else ""


def _value(row: Option, configs: Mapping[str, str], broker: BrokerSettings) -> Value:
    """Return the group's own value, else the broker's setting for it, else the default. Raises InvalidOption."""
    if row.name in configs:
        return row.parse(configs[row.name])
    return _setting(row.broker, broker) if row.broker else row.default


def _bounds(name: str) -> tuple[str, str]:
    """Return the names of the two broker settings that limit this config: first the minimum, then the maximum."""
    kind, _, of = name.partition(".")
    return f"group.{kind}.min.{of}", f"group.{kind}.max.{of}"


def _within_bounds(name: str, value: int, broker: BrokerSettings) -> int:
    """Return the value, or the broker's bound that it is below or above."""
    least, most = (_setting(each, broker) for each in _bounds(name))
    return min(max(value, least), most)


def _setting(name: str, broker: BrokerSettings) -> int:
    """Return the value of a broker's setting."""
    return cast(int, getattr(broker, BROKER_OPTIONS[name].field_name))
