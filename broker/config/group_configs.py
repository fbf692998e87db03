"""The settings of one group (resource type GROUP): the table, and what a group obeys.

The rule: a value is checked against the broker's bounds when it is set, and kept as it was given; where the bounds
are other ones after a start, the group obeys the nearest value within them. Settings of share and streams groups are
unknown names: there are no such groups here. Source: Kafka's GroupConfig (KIP-848), asked of 4.3.1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from .options import ConfigType, InvalidOption, option, options_of, text_of
from .settings import BROKER_OPTIONS, BrokerSettings, Source

INT = ConfigType.INT
OF_OTHER_KINDS = ("share.", "streams.")


@dataclass(frozen=True, kw_only=True)
class GroupConfigs:
    """What one group of the newer protocol obeys, in the order in which Kafka looks at the values."""

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

    @classmethod
    def of(cls, configs: Mapping[str, str], broker: BrokerSettings) -> "GroupConfigs":
        """What a group with these configs obeys. Raises InvalidOption: a value is none at all."""
        return cls(**{_field(name): _within_bounds(name, _value(name, configs, broker), broker) for name in OPTIONS})


OPTIONS = options_of(GroupConfigs)


def check(configs: Mapping[str, str], broker: BrokerSettings) -> None:
    """Whether these may be all configs of a group. Raises InvalidOption, in Kafka's words and order."""
    for name in configs:
        if name not in OPTIONS:
            raise InvalidOption(f"Unknown group config name: {name}{_whose(name)}", name)
    values = {name: _value(name, configs, broker) for name in OPTIONS}
    for name, value in values.items():
        least, most = _bounds(name)
        if value < _setting(least, broker):
            raise InvalidOption(f"{name} must be greater than or equal to {least}", name)
        if value > _setting(most, broker):
            raise InvalidOption(f"{name} must be less than or equal to {most}", name)
    heartbeat, session = "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"
    if values[session] <= values[heartbeat]:
        raise InvalidOption(f"{session} must be greater than {heartbeat}", session)


def synonyms(name: str, configs: Mapping[str, str], broker: BrokerSettings) -> list[tuple[str, str, Source]]:
    """Every value that a setting of a group has been given, the group's own first."""
    row = OPTIONS[name]
    own = [(name, _shown(name, configs[name]), Source.GROUP)] if name in configs else []
    return [*own, *broker.synonyms(row.broker or name)]


def _shown(name: str, text: str) -> str:
    """How a value is spelt, or as it was kept where this version would not take it."""
    try:
        return text_of(OPTIONS[name].parse(text))
    except InvalidOption:
        return text


def _whose(name: str) -> str:
    kind = next((kind for kind in OF_OTHER_KINDS if name.startswith(kind)), None)
    return f" (there are no {kind[:-1]} groups here)" if kind else ""


def _field(name: str) -> str:
    return OPTIONS[name].field_name


def _value(name: str, configs: Mapping[str, str], broker: BrokerSettings) -> int:
    row = OPTIONS[name]
    return cast(int, row.parse(configs[name])) if name in configs else _setting(f"group.{name}", broker)


def _bounds(name: str) -> tuple[str, str]:
    """The names of the broker's settings between which a value has to be."""
    kind, _, of = name.partition(".")
    return f"group.{kind}.min.{of}", f"group.{kind}.max.{of}"


def _within_bounds(name: str, value: int, broker: BrokerSettings) -> int:
    least, most = (_setting(each, broker) for each in _bounds(name))
    return min(max(value, least), most)


def _setting(name: str, broker: BrokerSettings) -> int:
    return cast(int, getattr(broker, BROKER_OPTIONS[name].field_name))
