"""The catalogue: topics, settings changed at runtime, producer ids given out, and the cluster id. This module has its
state and its records.

The state is pure, and changes only by applying a record of the catalogue's log. Each record contains the whole new
state of its key, or null if that is deleted. So only the last record of each key matters, compaction keeps the log
short, and a replay after compaction gives the same state as a replay of everything (docs/formats.md, "Catalogue").
Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgpack

VERSION = 1
DAMAGED_RECORD = (ValueError, LookupError, TypeError, msgpack.UnpackException)  # what apply raises for one
PRODUCER_ID_BLOCK = 1000


class Change(NamedTuple):
    """A record to be written: its key and value."""

    key: bytes
    value: bytes | None


class NewerCatalogue(Exception):
    """Raised for a record that a later version of fencepost wrote, and this one may misunderstand."""


@dataclass(frozen=True, slots=True)
class TopicEntry:
    """A topic: its name, its id, the log id of each partition, and the settings that it overrides."""

    name: str
    topic_id: bytes
    log_ids: tuple[int, ...]
    configs: Mapping[str, str]


class MarkerDebt(NamedTuple):
    """A transaction marker that an offline partition lacks. It is appended when the partition is online again."""

    producer_epoch: int
    coordinator_epoch: int
    commit: bool


@dataclass(slots=True)
class Catalogue:
    """The catalogue's state. next_producer_id: the first id above all blocks given out so far."""

    version: int = VERSION
    cluster_id: str = ""
    next_producer_id: int = 0
    topics: dict[bytes, TopicEntry] = field(default_factory=dict)
    broker_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    group_configs: dict[str, dict[str, str]] = field(default_factory=dict)  # by group id, none empty
    marker_debts: dict[tuple[int, int], MarkerDebt] = field(default_factory=dict)  # by log id and producer id
    security_log: int | None = None  # its id; None while there is nothing to keep in it
    leader_epoch: int = 0  # of all partitions; 0 if the data was neither in an object store nor restored

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Apply a record. No other method changes the state. Raises NewerCatalogue, which can only happen at a
        start.
        """
        kind, *rest = msgpack.unpackb(key, raw=False)
        state: Any = None if value is None else msgpack.unpackb(value, raw=False)
        if kind == "topic":
            self._apply_topic(rest[0], state)
        elif kind == "producer ids":
            self.next_producer_id = state["next"]
        elif kind == "broker configs":
            self.broker_configs[rest[0]] = state or {}
        elif kind == "group configs":
            self._apply_group_configs(rest[0], state)
        elif kind == "cluster":
            self._apply_cluster(state)
        elif kind == "security log":
            self.security_log = state["log"]
        elif kind == "leader epoch":
            self.leader_epoch = state["epoch"]
        elif kind == "marker debt":
            self._apply_marker_debt(rest[0], rest[1], state)
        else:
            raise NewerCatalogue(f"this broker does not know the kind of record {kind!r}")

    def _apply_topic(self, topic_id: bytes, state: dict[str, Any] | None) -> None:
        """Create or change a topic in memory, or remove it if `state` is None."""
        if state is None:
            self.topics.pop(topic_id, None)
        else:
            self.topics[topic_id] = TopicEntry(state["name"], topic_id, tuple(state["logs"]), dict(state["configs"]))

    def _apply_group_configs(self, group_id: str, state: dict[str, str] | None) -> None:
        """Replace a group's own settings. If there are none left, the group's entry is removed."""
        if state:
            self.group_configs[group_id] = dict(state)
        else:
            self.group_configs.pop(group_id, None)

    def _apply_marker_debt(self, log_id: int, producer_id: int, state: list[Any] | None) -> None:
        """Note that a marker is owed to a log. state None: it was written, or the log was deleted."""
        if state is None:
            self.marker_debts.pop((log_id, producer_id), None)
        else:
            self.marker_debts[log_id, producer_id] = MarkerDebt(*state)

    def _apply_cluster(self, state: dict[str, Any]) -> None:
        """Set version and cluster id. Raises NewerCatalogue if a later version of fencepost wrote them."""
        if state["version"] > VERSION:
            raise NewerCatalogue(f"version {state['version']}, where {VERSION} is known")
        self.version = state["version"]
        self.cluster_id = state["id"]


def topic_changed(entry: TopicEntry) -> Change:
    """Return the record that sets the state of a topic."""
    state = {"name": entry.name, "logs": list(entry.log_ids), "configs": dict(entry.configs)}
    return _change(["topic", entry.topic_id], state)


def topic_gone(topic_id: bytes) -> Change:
    """Return the record that removes a topic."""
    return _change(["topic", topic_id], None)


def producer_ids_given(next_id: int) -> Change:
    """Return the record after which every producer id below `next_id` may be in use."""
    return _change(["producer ids"], {"next": next_id})


def broker_configs_changed(broker: str, configs: Mapping[str, str]) -> Change:
    """Return the record that sets the broker settings changed at runtime. broker: a node id; "" for all brokers."""
    return _change(["broker configs", broker], dict(configs) or None)


def group_configs_changed(group_id: str, configs: Mapping[str, str]) -> Change:
    """Return the record that replaces a group's own settings."""
    return _change(["group configs", group_id], dict(configs) or None)


def marker_owed(log_id: int, producer_id: int, debt: MarkerDebt) -> Change:
    """Return the record that notes that an offline log is owed this marker. It must be appended there before anything
    else.
    """
    return _change(["marker debt", log_id, producer_id], list(debt))


def marker_paid(log_id: int, producer_id: int) -> Change:
    """Return the record that removes a marker debt, because the log has got its marker, or was deleted."""
    return _change(["marker debt", log_id, producer_id], None)


def security_log_made(log_id: int) -> Change:
    """Return the record that names the log of users, rules of access and quotas."""
    return _change(["security log"], {"log": log_id})


def leader_epoch_begun(epoch: int) -> Change:
    """Return the record that sets the leader epoch of all partitions."""
    return _change(["leader epoch"], {"epoch": epoch})


def cluster_begun(cluster_id: str) -> Change:
    """Return the first record of a data directory: the cluster id and the catalogue's version."""
    return _change(["cluster"], {"version": VERSION, "id": cluster_id})


def _change(key: list[Any], state: Any) -> Change:
    """Encode a record of the catalogue. state None: a tombstone."""
    value = None if state is None else msgpack.packb(state, use_bin_type=True)
    return Change(msgpack.packb(key, use_bin_type=True), value)
