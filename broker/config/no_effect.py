"""Settings of a Kafka broker that have no effect here: what DescribeConfigs shows of them, and what may be set.

The rules: every name that Kafka has is shown, because programs look names up and fail if one is missing. Its value is
the one that is true of a single node without replication and tiered storage, or else Kafka's default. The settings in
SETTABLE can be changed in Kafka while a broker runs, and promise nothing (thread counts, buffers, flushes, logins where
nobody logs in). They are accepted, checked and stored, so that automation that sets them succeeds. None of them has an
effect (see kafka_names.py for the same names in a file). The table is in kafka_options.py. Pure.
"""

from collections.abc import Mapping
from dataclasses import replace

from .configuration import accepted_names
from .kafka_options import DEFAULTS, NO_EFFECT, OF_ONE_BROKER
from .options import ConfigType, InvalidOption, Option, text_of
from .settings import BrokerSettings, Source

_SPELT = {
    "broker.id": ConfigType.INT,
    "log.dirs": ConfigType.LIST,
    "log.retention.hours": ConfigType.INT,
    "log.retention.minutes": ConfigType.INT,
    "log.roll.hours": ConfigType.INT,
}
SPELT_OTHERWISE = {
    name: replace(accepted_names()[name][0], name=name, type=kind, dynamic=False) for name, kind in _SPELT.items()
}
"""Kafka's other names for what this broker has: shown with its value."""

_DEFAULT_OF_TOPICS = {
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}
"""Which setting of the broker is the default of a topic's, where neither has an effect: ServerTopicConfigSynonyms."""

Synonyms = list[tuple[str, str | None, Source]]


def check_ignored_option(name: str, text: str, broker: str) -> None:
    """Raise InvalidOption if Kafka would refuse this value of a setting that has no effect here.

    broker: the id of the broker that it is set for; "" for all brokers.
    """
    if name in OF_ONE_BROKER and not broker:
        raise InvalidOption(
            f"Cannot update these configs at default cluster level, broker id must be specified: [{name}]"
        )
    NO_EFFECT[name].parse(text)


def synonyms_of_ignored_option(name: str, of_one: Mapping[str, str], of_all: Mapping[str, str]) -> Synonyms:
    """Return the synonyms of a setting that this broker stores but does not act on, as a list of (name, value, source):
    its value for this broker, its value for all brokers, and its default, each where there is one.

    of_one, of_all: the configs stored for this broker and for all brokers, by name.
    """
    given = ((of_one, Source.DYNAMIC_BROKER), (of_all, Source.DYNAMIC_DEFAULT_BROKER))
    kept: Synonyms = [(name, configs[name], source) for configs, source in given if name in configs]
    return [*kept, (name, DEFAULTS.get(name), Source.DEFAULT)]


def inherited_synonyms(option: str, of_one: Mapping[str, str], of_all: Mapping[str, str]) -> Synonyms:
    """Return (name, value, source) of the broker's values that a topic's setting inherits, without the default.

    option: the topic's setting. The list is empty if the broker has no setting for it. of_one, of_all: as in
    synonyms_of_ignored_option().
    """
    name = _DEFAULT_OF_TOPICS.get(option)
    return synonyms_of_ignored_option(name, of_one, of_all)[:-1] if name else []


def spelt_synonyms(name: str, settings: BrokerSettings) -> Synonyms:
    """Return (name, value, source) of a setting under one of its aliases, such as log.retention.hours, with values in
    that alias's unit.
    """
    row, factor, _ = accepted_names()[name]
    return [(name, _in_units(text, factor), source) for _, text, source in settings.synonyms(row.name)]


def _in_units(text: str, factor: int) -> str:
    """Convert a number from ms or bytes to the larger unit of an alias. Negative numbers are returned unchanged.

    factor: as in accepted_names().
    """
    return text if factor == 1 or int(text) < 0 else text_of(int(text) // factor)


def left_over(names: Mapping[str, str]) -> dict[str, Option]:
    """Return options for stored configs that earlier versions knew and this one does not. As options of type PASSWORD,
    they are shown without values.
    """
    doc = "Kept by an earlier version; nobody knows it. It can be removed."
    return {name: Option(name, ConfigType.PASSWORD, "", doc, dynamic=True) for name in names}
