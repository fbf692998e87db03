"""Checks, by a table, that some settings are not above or below others. The texts are Kafka's. Pure."""

from collections.abc import Callable, Iterable, Mapping
from operator import ge, le, lt

from .options import InvalidOption

AT_LEAST, AT_MOST, BELOW = "greater than or equal to", "less than or equal to", "less than"
_HOLDS: Mapping[str, Callable[[int, int], bool]] = {AT_LEAST: ge, AT_MOST: le, BELOW: lt}


GROUP_ORDER = (
    ("max.heartbeat.interval.ms", AT_LEAST, "min.heartbeat.interval.ms"),
    ("heartbeat.interval.ms", AT_LEAST, "min.heartbeat.interval.ms"),
    ("heartbeat.interval.ms", AT_MOST, "max.heartbeat.interval.ms"),
    ("max.session.timeout.ms", AT_LEAST, "min.session.timeout.ms"),
    ("session.timeout.ms", AT_LEAST, "min.session.timeout.ms"),
    ("session.timeout.ms", AT_MOST, "max.session.timeout.ms"),
    ("heartbeat.interval.ms", BELOW, "session.timeout.ms"),
    ("max.assignment.interval.ms", AT_LEAST, "min.assignment.interval.ms"),
    ("assignment.interval.ms", AT_LEAST, "min.assignment.interval.ms"),
    ("assignment.interval.ms", AT_MOST, "max.assignment.interval.ms"),
)
"""What has to hold of every kind of group whose partitions the broker assigns, in the order in which Kafka looks."""


def check_order(settings: object, prefix: str, order: Iterable[tuple[str, str, str]]) -> None:
    """Raise InvalidOption for the first (setting, relation, other setting) in `order` whose values do not have this
    relation.

    settings: an object with a field for each setting. prefix: the beginning of the names of both settings.
    """
    for of, words, other in order:
        name, other_name = prefix + of, prefix + other
        value, other_value = (getattr(settings, each.replace(".", "_")) for each in (name, other_name))
        if not _HOLDS[words](value, other_value):
            hint = f"{name} is {value}, {other_name} is {other_value}: set both"
            raise InvalidOption(f"{name} must be {words} {other_name}", name, hint)
