"""Makes docs/settings.md from the tables of settings.py; a test compares the file with the result."""

from collections.abc import Iterator, Mapping

from .group_configs import OPTIONS as GROUP_OPTIONS
from .options import ConfigType, Option, text_of
from .settings import BROKER_OPTIONS, TOPIC_OPTIONS

INTRODUCTION = """\
# Settings

Written from the tables in `broker/config/` by `python -m fencepost.broker.config.settings_page > docs/settings.md`.

A setting of the broker is taken from a flag (`-X name=value`, and `--listen`, `--advertise`, `--data-dir`,
`--durability`), else from the environment (`FENCEPOST_` and the name in capitals, `_` for `.`), else from the TOML
file given with `--config` (names quoted, dotted or as nested tables), else it is the default. What is marked
*dynamic* can also be changed while the broker runs (IncrementalAlterConfigs on the broker, or on all brokers), which
wins over all of them and survives a restart; `serve --ignore-dynamic` starts without it, for the day when what was
set so keeps everybody out. A name that nobody knows is refused with the nearest one, while the broker runs too; names
that only Kafka needs (ZooKeeper, KRaft, replication, thread counts) are ignored with one warning if Kafka would take
the value, and refused if not; DescribeConfigs shows them with what is true of one node, and keeps those that Kafka lets
change; of topics' settings without effect it shows what they inherit from the broker's. Names of TLS and SASL
that are not here (`ssl.provider`, `sasl.jaas.config`, …) are refused. What a listener asks of its clients
(`ssl.*`, `sasl.enabled.mechanisms`, `connections.max.reauth.ms`) can be set for one of them, with
`listener.name.<name>.` before it.
"""
TOPIC_INTRODUCTION = """\
## Topics

Given when a topic is created, or changed later. Default: the broker's setting named beside it.
Those marked † are Kafka's, are checked, kept and shown, and have nothing to do here.
"""


GROUP_INTRODUCTION = """\
## Groups

What one group whose broker assigns may have of its own (resource type GROUP; `fencepost group alter`), whether it
exists or not: `consumer.…` is for groups of the newer protocol (KIP-848), `share.…` for share groups (KIP-932). Members
obey a change from their next heartbeat on, share partitions from the next record that is acquired or acknowledged on;
`share.auto.offset.reset` counts when the group begins with a topic. The bounds are the broker's
`group.consumer.min.…`, `group.share.max.…` and so on: where they change, what a group was given stays, and it obeys
the nearest value within them.
"""


def page() -> str:
    """Return the text of docs/settings.md."""
    broker = "\n".join(_broker_rows(BROKER_OPTIONS))
    topic = "\n".join(_topic_rows(TOPIC_OPTIONS))
    group = "\n".join(_topic_rows(GROUP_OPTIONS))
    return f"{INTRODUCTION}\n## Broker\n\n{broker}\n\n{TOPIC_INTRODUCTION}\n{topic}\n\n{GROUP_INTRODUCTION}\n{group}\n"


def _broker_rows(options: Mapping[str, Option]) -> Iterator[str]:
    """Yield the lines of the table of these broker settings."""
    yield "| name | default | bounds | what it does |"
    yield "|---|---|---|---|"
    for row in options.values():
        also = f" Also spelt {', '.join(f'`{alias}`' for alias in row.aliases)}." if row.aliases else ""
        least = "" if row.dynamic_at_least is None else f", ≥ {row.dynamic_at_least}"
        dynamic = f" *Dynamic{least}.*" if row.dynamic else ""
        yield f"| `{row.name}` | {_value(row)} | {_bounds(row)} | {row.doc}{also}{dynamic} |"


def _topic_rows(options: Mapping[str, Option]) -> Iterator[str]:
    """Yield the lines of the table of these settings of topics or groups."""
    yield "| name | broker's setting | default | bounds | what it does |"
    yield "|---|---|---|---|---|"
    for row in options.values():
        broker = f"`{row.broker}`" if row.broker else ""
        mark = "†" if row.no_effect else ""
        yield f"| `{row.name}`{mark} | {broker} | {_value(row)} | {_bounds(row)} | {row.doc} |"


def _value(row: Option) -> str:
    """Return the cell with the default of an option."""
    text = text_of(row.default)
    return f"`{text}`" if text else "none"


def _bounds(row: Option) -> str:
    """Return the cell with the allowed values of an option; empty if every value is allowed."""
    if row.one_of:
        return ("any of " if row.type is ConfigType.LIST else "") + ", ".join(f"`{entry}`" for entry in row.one_of)
    bounds = [f"≥ {row.at_least:,}"] if row.at_least is not None else []
    bounds += [f"≤ {row.at_most:,}"] if row.at_most is not None else []
    return " and ".join(bounds) + (f", or {row.or_equal}" if row.or_equal is not None else "")


if __name__ == "__main__":
    print(page(), end="")
