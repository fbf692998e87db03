"""Every setting of the broker and of a topic: two tables, from which flags, DescribeConfigs and docs/settings.md come.

A broker option is resolved flag > environment > file > default, and above all of them what an admin client set while
running; a topic's option is its own override, else the broker's. Names are Kafka's where Kafka has one; the others are
marked as ours in docs/settings.md. Frozen: a change makes a new value, so a reader never sees half of one.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, cast

from .group_settings import GroupSettings
from .limit_settings import LimitSettings
from .listener_settings import (
    OVERRIDE,
    OWN_NAMES,
    PROTOCOLS,
    ListenerOptions,
    ListenerSettings,
    all_addresses,
    all_protocols,
    all_reachable,
    listeners_of,
)
from .options import ConfigType, InvalidOption, Value, option, options_of, text_of
from .quota_settings import QuotaSettings
from .security_settings import SecuritySettings
from .share_settings import ShareSettings
from .store_settings import StoreOptions
from .transaction_settings import TransactionSettings

INT = ConfigType.INT
FOR_EVER = 2**63 - 1
MIB = 1 << 20
CLEANUP = ("compact", "delete")
COMPRESSIONS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
DURABILITY_MODES = ("fsync", "interval", "os")
COMMITTED = "read_committed"
ISOLATION_LEVELS = ("read_uncommitted", COMMITTED)


class Source(IntEnum):
    """Where a value comes from: the ids of DescribeConfigs. Of several values the one with the lowest id is in
    effect.
    """

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


def _replicas(role: str) -> Callable[[Value], str | None]:
    """Return a function that checks {role}.replication.throttled.replicas: it returns the error for a value, or None if
    the value is valid.
    """

    def check(value: Value) -> str | None:
        """Return the error of a value; None if it is valid."""
        assert isinstance(value, tuple)
        if value in ((), ("*",)) or re.fullmatch(r"[0-9]+:[0-9]+(,[0-9]+:[0-9]+)*", ",".join(value)):
            return None
        return (
            f"{role}.replication.throttled.replicas must be the literal '*' or a list of replicas in the following "
            "format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."
        )

    return check


@dataclass(frozen=True, kw_only=True)
class BrokerSettings(
    LimitSettings,
    ListenerOptions,
    SecuritySettings,
    QuotaSettings,
    TransactionSettings,
    GroupSettings,
    ShareSettings,
    StoreOptions,
):
    """The settings of the broker. layers: the texts that each source gave, to show where a value comes from."""

    node_id: int = option(1, "The id this broker has in metadata.", type=INT, at_least=0, aliases={"broker.id": 1})
    listeners: tuple[str, ...] = option(
        ("127.0.0.1:9092",),
        "Addresses to listen on, HOST:PORT or NAME://HOST:PORT. Port 0 takes any; localhost binds both families.",
        aliases={"listen": 1},
        check=all_addresses,
    )
    listener_security_protocol_map: tuple[str, ...] = option(
        OWN_NAMES,
        "The protocol of each listener, NAME:PROTOCOL: `PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`.",
        check=all_protocols,
    )
    security_protocol: str = option(
        PROTOCOLS[0], "The protocol of addresses without a name, and the name of their listener.", one_of=PROTOCOLS
    )
    advertised_listeners: tuple[str, ...] = option(
        (),
        "The address that clients get to connect to, by the name of the listener that they came by, or by its place. "
        "Default: the listen address; where that is every interface, the address that the client's connection arrived "
        "on.",
        aliases={"advertise": 1},
        check=all_reachable,
    )
    log_dir: str = option(
        ".fencepost", "The data directory: one broker, all its data.", aliases={"data.dir": 1, "log.dirs": 1}
    )

    # Topics
    auto_create_topics_enable: bool = option(
        True, "A metadata request creates the topic it names, as clients ask when they are about to produce."
    )
    delete_topic_enable: bool = option(True, "Whether topics can be deleted.")
    num_partitions: int = option(1, "Partitions of a topic that is created without a count.", type=INT, at_least=1)
    message_max_bytes: int = option(MIB + 12, "The largest record batch.", type=INT, at_least=0, dynamic=True)
    compression_type: str = option("producer", "Default of compression.type.", one_of=COMPRESSIONS, dynamic=True)
    compression_gzip_level: int = option(
        -1, "Default of compression.gzip.level.", type=INT, at_least=1, at_most=9, or_equal=-1, dynamic=True
    )
    compression_lz4_level: int = option(
        9, "Default of compression.lz4.level.", type=INT, at_least=1, at_most=17, dynamic=True
    )
    compression_zstd_level: int = option(
        3, "Default of compression.zstd.level.", type=INT, at_least=-131072, at_most=22, dynamic=True
    )
    log_message_timestamp_type: str = option(
        "CreateTime", "Default of message.timestamp.type.", one_of=TIMESTAMP_TYPES, dynamic=True
    )
    log_message_timestamp_before_max_ms: int = option(
        FOR_EVER, "Default of message.timestamp.before.max.ms.", at_least=0, dynamic=True
    )
    log_message_timestamp_after_max_ms: int = option(
        3_600_000, "Default of message.timestamp.after.max.ms.", at_least=0, dynamic=True
    )

    # Consumers
    fencepost_isolation_level_min: str = option(
        "read_uncommitted",
        "Default of fencepost.isolation.level.min.",
        one_of=ISOLATION_LEVELS,
        dynamic=True,
    )

    # Producers
    producer_id_expiration_ms: int = option(
        86_400_000, "A producer silent for so long is forgotten by its partitions.", type=INT, at_least=1, dynamic=True
    )
    producer_id_expiration_check_interval_ms: int = option(
        600_000, "How often silent producers are looked for.", type=INT, at_least=1
    )
    max_producer_ids: int = option(
        500_000,
        "Producers that all partitions remember together, each partition its own; a new one takes the place of the "
        "longest silent that has no transaction open.",
        type=INT,
        at_least=1,
        dynamic=True,
    )
    producer_unknown_id_refuse: bool = option(
        False,
        "Refuse a batch with a sequence other than 0 from a producer that the partition does not know "
        "(UNKNOWN_PRODUCER_ID), as Kafka did before 2.5.",
        dynamic=True,
    )

    # Logs of the coordinators
    offsets_topic_num_partitions: int = option(
        50, "Partitions of __consumer_offsets, for the day it is made.", type=INT, at_least=1
    )
    offsets_topic_segment_bytes: int = option(
        100 * MIB, "segment.bytes of __consumer_offsets, for the day it is made.", type=INT, at_least=MIB
    )
    offset_metadata_max_bytes: int = option(
        4_096, "The longest text that may be committed with an offset.", type=INT, at_least=0
    )
    offsets_retention_minutes: int = option(
        10_080, "How long offsets of a group that nobody is in are kept.", type=INT, at_least=1
    )
    offsets_retention_check_interval_ms: int = option(
        600_000, "How often offsets to be forgotten are looked for.", at_least=1
    )
    transaction_state_log_num_partitions: int = option(
        50, "Partitions of __transaction_state, for the day it is made.", type=INT, at_least=1
    )
    transaction_state_log_segment_bytes: int = option(
        100 * MIB, "segment.bytes of __transaction_state, for the day it is made.", type=INT, at_least=MIB
    )

    # Durability and disk
    durability_mode: str = option(
        "fsync",
        "What an acknowledgement waits for: fsync (on disk), interval (written; synced every durability.interval.ms), "
        "os (written).",
        one_of=DURABILITY_MODES,
        aliases={"durability": 1},
    )
    durability_interval_ms: int = option(100, "The time between syncs in mode interval.", at_least=1)
    journal_max_bytes: int = option(256 * MIB, "The journal's size on disk.", at_least=4 * MIB)
    log_tail_max_bytes: int = option(
        256 * MIB, "Bytes in memory that are not in segments yet; above it sockets are not read.", at_least=MIB
    )
    storage_min_free_bytes: int = option(
        64 * MIB, "Below so much free disk space produce requests are refused, and accepted again above.", at_least=0
    )
    storage_unreadable_partitions: str = option(
        "refuse",
        "What a start does that meets files of a partition which the device cannot read (EIO): refuse, and change "
        "nothing, or put that partition offline.",
        one_of=("refuse", "offline"),
    )

    # Segments, retention and compaction
    log_segment_bytes: int = option(1024 * MIB, "Default of segment.bytes.", type=INT, at_least=MIB, dynamic=True)
    log_roll_ms: int = option(
        604_800_000, "Default of segment.ms.", at_least=1, aliases={"log.roll.hours": 3_600_000}, dynamic=True
    )
    log_index_interval_bytes: int = option(
        4_096, "Default of index.interval.bytes.", type=INT, at_least=0, dynamic=True
    )
    log_retention_ms: int = option(
        604_800_000,
        "Default of retention.ms.",
        at_least=-1,
        aliases={"log.retention.minutes": 60_000, "log.retention.hours": 3_600_000},
        dynamic=True,
    )
    log_retention_bytes: int = option(-1, "Default of retention.bytes.", dynamic=True)
    log_checkpoint_interval_ms: int = option(
        10_000,
        "How often a checkpoint is written while something changes or a transaction is open; "
        "sooner if the journal is half full.",
        at_least=100,
    )
    log_retention_check_interval_ms: int = option(300_000, "How often retention looks.", at_least=1)
    log_cleanup_policy: tuple[str, ...] = option(
        ("delete",), "Default of cleanup.policy.", one_of=CLEANUP, dynamic=True
    )
    log_cleaner_backoff_ms: int = option(15_000, "How often compaction looks.", at_least=0, dynamic=True)
    log_cleaner_min_cleanable_ratio: float = option(
        0.5, "Default of min.cleanable.dirty.ratio.", at_least=0, at_most=1, dynamic=True
    )
    log_cleaner_min_compaction_lag_ms: int = option(0, "Default of min.compaction.lag.ms.", at_least=0, dynamic=True)
    log_cleaner_max_compaction_lag_ms: int = option(
        FOR_EVER, "Default of max.compaction.lag.ms.", at_least=1, dynamic=True
    )
    log_cleaner_delete_retention_ms: int = option(
        86_400_000, "Default of delete.retention.ms.", at_least=0, dynamic=True
    )

    listener_overrides: Mapping[str, str] = field(default_factory=dict, repr=False)  # by whole names
    layers: Mapping[Source, Mapping[str, str]] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        """If `layers` is not given, set it to the settings that differ from their defaults."""
        if not self.layers:
            given = {
                name: text_of(getattr(self, row.field_name))
                for name, row in BROKER_OPTIONS.items()
                if getattr(self, row.field_name) != row.default
            }
            object.__setattr__(self, "layers", {Source.STATIC_BROKER: {**given, **self.listener_overrides}})

    @classmethod
    def of(cls, layers: Mapping[Source, Mapping[str, str]]) -> "BrokerSettings":
        """Return the settings from texts, given by source and name. All names must be known. Raises InvalidOption."""
        rows = BROKER_OPTIONS
        values: dict[str, Value] = {}
        overrides: dict[str, str] = {}
        for source in sorted(layers, reverse=True):  # the lowest source last, because its values are in effect
            own = {name: text for name, text in layers[source].items() if name.startswith(OVERRIDE)}
            overrides |= own
            names = [name for name in layers[source] if name not in own]
            values |= {rows[name].field_name: rows[name].parse(layers[source][name]) for name in names}
        settings = cls(**cast(dict[str, Any], values), listener_overrides=overrides, layers=dict(layers))
        settings._check()
        return settings

    @property
    def served_listeners(self) -> tuple[ListenerSettings, ...]:
        """The listeners. Raises InvalidOption if their settings contradict each other."""
        return listeners_of(
            self.listeners,
            self.security_protocol,
            self.advertised_listeners,
            self.listener_security_protocol_map,
            self,
            self.listener_overrides,
        )

    def with_layer(self, source: Source, texts: Mapping[str, str]) -> "BrokerSettings":
        """Return the settings with the texts of this source replaced by `texts`. Raises InvalidOption."""
        return BrokerSettings.of({**self.layers, source: texts})

    def synonyms(self, name: str) -> list[tuple[str, str, Source]]:
        """Return (name, value, source) of every value that was set for `name`: the one in effect first, the default
        last.
        """
        row = BROKER_OPTIONS[name]
        given = [
            (name, self.layers[source][name], source) for source in sorted(self.layers) if name in self.layers[source]
        ]
        return [*given, (name, text_of(row.default), Source.DEFAULT)]

    def _check(self) -> None:
        """Raise InvalidOption if settings contradict each other."""
        _ = self.served_listeners
        self.check_groups()
        self.check_share_groups()
        self.check_store()
        if 0 <= self.queued_max_request_bytes < self.socket_request_max_bytes:
            raise InvalidOption(
                "queued.max.request.bytes must be at least socket.request.max.bytes, or -1", "queued.max.request.bytes"
            )
        if self.super_users and not self.authorizer_class_name:
            raise InvalidOption(
                "super.users asks for protection, and nobody is kept out without authorizer.class.name", "super.users"
            )


@dataclass(frozen=True, kw_only=True)
class TopicSettings:
    """The settings of one topic, in Kafka's order, in which invalid values are reported."""

    segment_bytes: int = option(
        1024 * MIB, "A segment file is closed at this size.", type=INT, at_least=MIB, broker="log.segment.bytes"
    )
    segment_ms: int = option(604_800_000, "… or at this age.", at_least=1, broker="log.roll.ms")
    segment_jitter_ms: int = option(0, "Random time taken off segment.ms.", at_least=0, no_effect=True)
    segment_index_bytes: int = option(10 * MIB, "A segment is closed when its index is full.", type=INT, at_least=4)
    flush_messages: int = option(FOR_EVER, "Records between syncs; see durability.mode.", at_least=1, no_effect=True)
    flush_ms: int = option(FOR_EVER, "Time between syncs; see durability.mode.", at_least=0, no_effect=True)
    retention_bytes: int = option(
        -1, "Oldest segments are deleted while a partition is larger. -1: no limit.", broker="log.retention.bytes"
    )
    retention_ms: int = option(
        604_800_000,
        "Records that arrived so long ago are deleted, whatever their timestamps are (Kafka goes by these). -1: never.",
        at_least=-1,
        broker="log.retention.ms",
    )
    remote_storage_enable: bool = option(False, "Tiered storage, which does not exist here.", no_effect=True)
    local_retention_ms: int = option(-2, "Of tiered storage.", at_least=-2, no_effect=True)
    local_retention_bytes: int = option(-2, "Of tiered storage.", at_least=-2, no_effect=True)
    remote_log_copy_disable: bool = option(False, "Of tiered storage.", no_effect=True)
    remote_log_delete_on_disable: bool = option(False, "Of tiered storage.", no_effect=True)
    max_message_bytes: int = option(
        MIB + 12, "The largest record batch.", type=INT, at_least=0, broker="message.max.bytes"
    )
    index_interval_bytes: int = option(
        4_096, "Bytes between entries of the offset index.", type=INT, at_least=0, broker="log.index.interval.bytes"
    )
    delete_retention_ms: int = option(
        86_400_000,
        "How long compaction keeps a tombstone.",
        at_least=0,
        broker="log.cleaner.delete.retention.ms",
    )
    min_compaction_lag_ms: int = option(
        0, "Younger records are not compacted.", at_least=0, broker="log.cleaner.min.compaction.lag.ms"
    )
    max_compaction_lag_ms: int = option(
        FOR_EVER, "Older records are compacted in any case.", at_least=1, broker="log.cleaner.max.compaction.lag.ms"
    )
    file_delete_delay_ms: int = option(60_000, "Time before a file is removed.", at_least=0, no_effect=True)
    min_cleanable_dirty_ratio: float = option(
        0.5,
        "Compaction waits until so much of a log is not compacted.",
        at_least=0,
        at_most=1,
        broker="log.cleaner.min.cleanable.ratio",
    )
    cleanup_policy: tuple[str, ...] = option(
        ("delete",), "delete, compact, or both.", one_of=CLEANUP, broker="log.cleanup.policy"
    )
    unclean_leader_election_enable: bool = option(False, "Of replication.", no_effect=True)
    min_insync_replicas: int = option(1, "Of replication.", type=INT, at_least=1, no_effect=True)
    compression_type: str = option(
        "producer",
        "The codec batches are stored with; producer: as they came.",
        one_of=COMPRESSIONS,
        broker="compression.type",
    )
    compression_gzip_level: int = option(
        -1,
        "Level where compression.type is gzip.",
        type=INT,
        at_least=1,
        at_most=9,
        or_equal=-1,
        broker="compression.gzip.level",
    )
    compression_lz4_level: int = option(
        9,
        "Level where compression.type is lz4.",
        type=INT,
        at_least=1,
        at_most=17,
        broker="compression.lz4.level",
    )
    compression_zstd_level: int = option(
        3,
        "Level where compression.type is zstd.",
        type=INT,
        at_least=-131072,
        at_most=22,
        broker="compression.zstd.level",
    )
    preallocate: bool = option(False, "Of segment files.", no_effect=True)
    message_timestamp_type: str = option(
        "CreateTime",
        "Whose clock stamps records: the producer's or, LogAppendTime, the broker's.",
        one_of=TIMESTAMP_TYPES,
        broker="log.message.timestamp.type",
    )
    message_timestamp_before_max_ms: int = option(
        FOR_EVER,
        "How far behind the broker's clock a record may be.",
        at_least=0,
        broker="log.message.timestamp.before.max.ms",
    )
    message_timestamp_after_max_ms: int = option(
        3_600_000,
        "How far ahead of the broker's clock a record may be.",
        at_least=0,
        broker="log.message.timestamp.after.max.ms",
    )
    leader_replication_throttled_replicas: tuple[str, ...] = option(
        (), "Of replication.", no_effect=True, check=_replicas("leader")
    )
    follower_replication_throttled_replicas: tuple[str, ...] = option(
        (), "Of replication.", no_effect=True, check=_replicas("follower")
    )
    durability_mode: str = option(
        "fsync",
        "What an acknowledgement waits for: fsync, interval or os.",
        one_of=DURABILITY_MODES,
        broker="durability.mode",
    )
    fencepost_isolation_level_min: str = option(
        "read_uncommitted",
        "What readers are shown at most, whatever their own isolation.level is. read_committed: nothing of "
        "transactions that are open or were aborted; the high watermark that they see is the last stable offset.",
        one_of=ISOLATION_LEVELS,
        broker="fencepost.isolation.level.min",
    )
    fencepost_writes_refused: bool = option(
        False, "Refuse every produced batch, of anybody, with POLICY_VIOLATION: the topic is moving elsewhere."
    )

    @classmethod
    def of(cls, overrides: Mapping[str, str], broker: BrokerSettings) -> "TopicSettings":
        """Return a topic's settings: its own where set, else the broker's defaults.

        Checks each value alone; check() compares values with each other. Raises InvalidOption, with Kafka's texts.
        """
        values: dict[str, Value] = {}
        for name, row in TOPIC_OPTIONS.items():
            if name in overrides:
                values[row.field_name] = row.parse(overrides[name])
            elif row.broker:
                values[row.field_name] = getattr(broker, row.broker.replace(".", "_"))
        return cls(**cast(dict[str, Any], values))

    def check(self) -> None:
        """Raise InvalidOption if values contradict each other."""
        if self.remote_storage_enable:
            raise InvalidOption(
                "Tiered Storage functionality is disabled in the broker. "
                "Topic cannot be configured with remote log storage."
            )
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise InvalidOption(
                f"conflict topic config setting min.compaction.lag.ms ({self.min_compaction_lag_ms}) > "
                f"max.compaction.lag.ms ({self.max_compaction_lag_ms})"
            )


BROKER_OPTIONS = options_of(BrokerSettings)
TOPIC_OPTIONS = options_of(TopicSettings)


def topic_synonyms(name: str, overrides: Mapping[str, str], broker: BrokerSettings) -> list[tuple[str, str, Source]]:
    """Return (name, value, source) of every value that was set for a topic's setting, the one in effect first."""
    row = TOPIC_OPTIONS[name]
    own = [(name, text_of(row.parse(overrides[name])), Source.TOPIC)] if name in overrides else []
    rest = broker.synonyms(row.broker) if row.broker else [(name, text_of(row.default), Source.DEFAULT)]
    return own + rest
