"""All topics of a broker, in memory as handlers use them, and their changes through the catalogue.

Every change is decided here, and committed as one unit together with the logs that it creates or deletes. `_reflect`
then changes the objects below, both for a new change and at a start. Nobody keeps a Topic across requests, so a deleted
one is gone for all at once. An id is given out only once: a topic that is created again is another one (KIP-516).
"""

import base64
import logging
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ...effects.clock import Clock
from ...effects.rng import Rng
from ...protocol.compression import Codec
from ...protocol.errors import ErrorCode, KafkaError
from ...storage.journal.journal import Part
from ...storage.log.settings import LogSettings
from ...storage.store import Store
from ..config.kafka_options import SETTABLE
from ..config.live_settings import LiveSettings
from ..config.no_effect import Synonyms, inherited_synonyms
from ..config.options import InvalidOption
from ..config.settings import (
    BROKER_OPTIONS,
    COMMITTED,
    TOPIC_OPTIONS,
    BrokerSettings,
    Source,
    TopicSettings,
    topic_synonyms,
)
from .catalogue import (
    Change,
    TopicEntry,
    broker_configs_changed,
    cluster_begun,
    leader_epoch_begun,
    topic_changed,
    topic_gone,
)
from .catalogue_log import CatalogueLog
from .config_sizes import ConfigSizes
from .names import CLUSTER_TOPIC, COMPACTED, INTERNAL, check_collision, check_name, unify
from .partition import AppendRules, Partition
from .producer_ids import ProducerIds

log = logging.getLogger("fencepost.broker")

KEPT = "delete"  # with no limits of retention: the coordinator itself deletes old records
SKIPPED_LEADER_EPOCHS = 1 << 16  # by restored data: more than a store gets owners since a backup; they go up to 2^31
LAST_MINUTE = 1 << 30  # the largest that is taken for a leader epoch: a clock far ahead must not use them all up
MAX_PARTITIONS = 10_000  # of one request, as Kafka's controller has it
_CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
_LEVELS = {"gzip": "compression_gzip_level", "lz4": "compression_lz4_level", "zstd": "compression_zstd_level"}


Along = tuple[list[Part], Callable[[], None]]
"""What is written in somebody's unit, and what is to be called once that is committed."""


class Topic:
    """One topic. Its number of partitions never decreases."""

    __slots__ = ("configs", "id", "internal", "name", "partitions", "settings")

    def __init__(self, name: str, topic_id: bytes) -> None:
        self.name = name
        self.id = topic_id
        self.internal = name in INTERNAL
        self.partitions: list[Partition] = []
        self.configs: Mapping[str, str] = {}
        self.settings = TopicSettings()


class _Ruled(NamedTuple):
    """The rules for batches and for logs that follow from a topic's settings; kept so that they are not made again."""

    settings: TopicSettings
    cleanup: str | None
    rules: AppendRules
    logs: LogSettings


class Topics:
    """All topics of a broker, and the other content of its catalogue: settings, producer ids, the cluster id."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        rng: Rng,
        settings: LiveSettings,
        wake: Callable[[Collection[Hashable]], None],
        *,
        ignore_dynamic: bool = False,
        owned_epoch: int = 0,
    ) -> None:
        """wake: called with the logs of deleted topics, so that requests that wait for them are answered.
        ignore_dynamic: settings that were changed at runtime stay stored but have no effect. owned_epoch: the epoch of
        the journal in an object store that the broker owns; 0 if its journal is local.
        """
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[bytes, Topic] = {}
        self.made_when_needed: dict[str, Callable[[], None]] = {}  # internal topics, by name: what makes each
        self.at_deletion: list[Callable[[Topic], Along]] = []  # what goes with a topic, in the same unit
        self._store = store
        self._rng = rng
        self._broker_settings = settings
        self._wake = wake
        self._ignore_dynamic = ignore_dynamic
        self._owned_epoch = owned_epoch
        self._ruled: _Ruled | None = None  # what was worked out last, since thousands of topics have the same configs
        self._last_settings: tuple[BrokerSettings, dict[str, str], TopicSettings] | None = None
        self._alike: dict[str, set[str]] = {}  # names by what metric systems make of them
        self.partition_count = 0  # of all topics but the broker's own
        self.version = 0  # grows when topics are made, deleted, or get partitions, by this broker since it started
        self._log = CatalogueLog(store, clock)
        self._sizes = ConfigSizes()
        self._producer_ids = ProducerIds(self._log)
        self.catalogue = self._log.catalogue

    def load(self) -> None:
        """Read the catalogue; in a new data directory, create it. Raises CatalogueDamaged, NewerCatalogue, NoRoom."""
        self._log.load()
        if not self.cluster_id:
            self._log.commit([cluster_begun(self._new_text_id())])
        self._sizes.count(self.catalogue.broker_configs.values())
        self._sizes.count(entry.configs for entry in self.catalogue.topics.values() if entry.name not in INTERNAL)
        self._broker_settings.now = self._with_dynamic(self._broker_settings.now)
        self._warn_of_left_over()
        for topic_id in self.catalogue.topics:
            self._reflect(topic_id)
        if self._owned_epoch:
            self._begin_leader_epoch(max(self._owned_epoch, self.catalogue.leader_epoch + 1))

    def fence_leader_epoch(self, now_ms: int) -> None:
        """Raise the leader epoch of restored data above every epoch that clients may have seen for these topics.

        The data cannot tell which: after its backup, owners of a store may have begun higher epochs. Owners begin less
        than one epoch a minute on average, so the number of minutes since 1970 is above all of theirs. Raises
        KafkaError while that cannot be written.
        """
        minutes = min(now_ms // 60_000, LAST_MINUTE)
        self._begin_leader_epoch(max(self.catalogue.leader_epoch + SKIPPED_LEADER_EPOCHS, minutes))

    def _begin_leader_epoch(self, epoch: int) -> None:
        """Set the leader epoch of all partitions, durably: clients ignore metadata with a lower one than they know."""
        self._log.commit([leader_epoch_begun(epoch)], frees=True)  # a nearly full disk is no reason not to serve
        for topic in self.by_name.values():
            for partition in topic.partitions:
                partition.leader_epoch = epoch

    @property
    def cluster_id(self) -> str:
        return self.catalogue.cluster_id

    def next_producer_id(self) -> int:
        """Give out a producer id that was never given out before."""
        return self._producer_ids.next()

    def skip_producer_ids(self, count: int) -> None:
        """Never give out the next `count` producer ids. Raises KafkaError while that cannot be written."""
        self._producer_ids.skip(count)

    def gave_producer_id(self, producer_id: int) -> bool:
        """Return whether this producer id may have been given to a client."""
        return self._producer_ids.gave(producer_id)

    def commit(self, changes: Sequence[Change], parts: Sequence[Part]) -> None:
        """Commit changes of the catalogue and parts of other logs as one unit. Raises KAFKA_STORAGE_ERROR for
        no room.
        """
        self._log.commit(changes, parts)

    # ---- topics ----------------------------------------------------------------------------------------------

    def check_new(self, name: str, partitions: int, configs: Mapping[str, str]) -> TopicSettings:
        """Return the settings of a new topic. Raises KafkaError, in Kafka's words, if it cannot be created."""
        check_name(name)
        if name == CLUSTER_TOPIC:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
        if name in self.by_name:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        check_collision(name, self._alike.get(unify(name), ()))
        if partitions > MAX_PARTITIONS:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
        self._check_sizes({}, configs, internal=name in INTERNAL)
        return self._settings(configs)

    def check_room(self, added: int) -> None:
        """Raise POLICY_VIOLATION if `added` more partitions exceed max.partitions. Not for the broker's own topics."""
        most = self._broker_settings.now.max_partitions
        if self.partition_count + added > most:
            text = f"there are {self.partition_count} partitions, and {most} are allowed: max.partitions"
            raise KafkaError(ErrorCode.POLICY_VIOLATION, text)

    def create(self, name: str, partitions: int, configs: Mapping[str, str] | None = None) -> Topic:
        """Create a topic with that many partitions. Raises KafkaError, and then nothing was created."""
        configs = configs or {}
        settings = self.check_new(name, partitions, configs)
        if name not in INTERNAL:
            self.check_room(partitions)
        topic_id = self._new_topic_id()
        log_ids = [self._store.new_log_id() for _ in range(partitions)]
        logs = self._rules(settings, name).logs
        parts = [self._store.create_part(log_id, name, topic_id, i, logs) for i, log_id in enumerate(log_ids)]
        change = topic_changed(TopicEntry(name, topic_id, tuple(log_ids), configs))
        self._log.commit([change], parts, internal=False)
        if name not in INTERNAL:
            self._sizes.change({}, configs)
        self._reflect(topic_id)
        return self.by_id[topic_id]

    def auto_create(self, name: str) -> Topic:
        """Create a topic that a client names. Raises UNKNOWN_TOPIC_OR_PARTITION if auto-creation is off.

        An internal topic is created as its coordinator would, because its number of partitions cannot change later.
        """
        if not self._broker_settings.now.auto_create_topics_enable or name == CLUSTER_TOPIC:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        make = self.made_when_needed.get(name)
        if make is not None:
            make()
            return self.by_name[name]
        return self.create(name, self._broker_settings.now.num_partitions)

    def delete(self, topic: Topic) -> None:
        """Delete a topic and its logs in one unit, together with what other modules store about the topic.

        Fetches that wait for its partitions are answered.
        """
        logs = [partition.log for partition in topic.partitions]
        along = [goes_along(topic) for goes_along in self.at_deletion]
        parts = [self._store.drop_part(log) for log in logs]
        self._log.commit([topic_gone(topic.id)], [*parts, *(part for each in along for part in each[0])], frees=True)
        for _, apply in along:
            apply()
        if not topic.internal:
            self._sizes.change(topic.configs, {})
        self._reflect(topic.id)
        self._wake(logs)

    def add_partitions(self, topic: Topic, total: int) -> None:
        """Increase a topic's number of partitions to `total`. Raises KafkaError; then nothing was changed."""
        entry = self.catalogue.topics[topic.id]
        self.check_room(total - len(entry.log_ids))
        new = [self._store.new_log_id() for _ in range(total - len(entry.log_ids))]
        logs = self._rules(topic.settings, topic.name).logs
        parts = [
            self._store.create_part(log_id, topic.name, topic.id, index, logs)
            for index, log_id in enumerate(new, len(entry.log_ids))
        ]
        self._log.commit([topic_changed(replace(entry, log_ids=(*entry.log_ids, *new)))], parts, internal=False)
        self._reflect(topic.id)

    def alter_configs(self, topic: Topic, configs: Mapping[str, str]) -> None:
        """Replace all overrides of the topic. Raises INVALID_CONFIG, POLICY_VIOLATION."""
        self.check_configs(topic, configs)
        self._log.commit([topic_changed(replace(self.catalogue.topics[topic.id], configs=dict(configs)))])
        if not topic.internal:
            self._sizes.change(topic.configs, configs)
        self._reflect(topic.id)

    def _settings(self, configs: Mapping[str, str]) -> TopicSettings:
        """Return the topic settings with these overrides. Raises INVALID_CONFIG."""
        unknown = next((name for name in configs if name not in TOPIC_OPTIONS), None)
        if unknown is not None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {unknown}")
        try:
            settings = self._settings_of(configs)
            settings.check()
        except InvalidOption as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
        return settings

    def _settings_of(self, configs: Mapping[str, str]) -> TopicSettings:
        """Parse configs. Consecutive calls with the same configs return the same object. Raises InvalidOption."""
        now, known = self._broker_settings.now, self._last_settings
        if known is None or known[0] is not now or known[1] != configs:
            known = self._last_settings = now, dict(configs), TopicSettings.of(configs, now)
        return known[2]

    def _rules(self, settings: TopicSettings, name: str) -> "_Ruled":
        """Return the rules for batches and logs that follow from these settings. Made anew only if they changed."""
        known, cleanup = self._ruled, _own_cleanup(name)
        if known is None or known.settings is not settings or known.cleanup != cleanup:
            rules, logs = append_rules(settings, cleanup is not None), log_settings(settings, cleanup)
            known = self._ruled = _Ruled(settings, cleanup, rules, logs)
        return known

    def check_configs(self, topic: Topic, configs: Mapping[str, str]) -> None:
        """Raise the errors that alter_configs() would raise: INVALID_CONFIG, POLICY_VIOLATION."""
        self._check_sizes(topic.configs, configs, internal=topic.internal)
        self._settings(configs)

    def _check_sizes(self, before: Mapping[str, str], after: Mapping[str, str], *, internal: bool = False) -> None:
        """Raise KafkaError if the new settings are too large."""
        self._sizes.check(before, after, None if internal else self._broker_settings.now.configs_max_bytes)

    # ---- settings changed while running ----------------------------------------------------------------------

    def broker_configs(self, broker: str) -> Mapping[str, str]:
        """Return the configs set for one broker (its id) or for all ("")."""
        return self.catalogue.broker_configs.get(broker, {})

    def config_synonyms(self, option: str, configs: Mapping[str, str]) -> Synonyms:
        """Return (name, value, source) of each value of a topic's option, the one in effect first. configs: its own."""
        settings = self._broker_settings.now
        *own, default = topic_synonyms(option, configs, settings)
        of_one, of_all = self.broker_configs(str(settings.node_id)), self.broker_configs("")
        return [*own, *inherited_synonyms(option, of_one, of_all), default]

    def alter_broker_configs(self, broker: str, configs: Mapping[str, str]) -> None:
        """Replace the configs set for one broker or for all. Raises like check_broker_configs()."""
        self.check_broker_configs(broker, configs)
        before = self.broker_configs(broker)
        self._log.commit([broker_configs_changed(broker, configs)])
        self._sizes.change(before, configs)
        self._broker_settings.now = self._with_dynamic(self._broker_settings.now)
        for topic_id in self.catalogue.topics:
            self._reflect(topic_id)

    def check_broker_configs(self, broker: str, configs: Mapping[str, str]) -> None:
        """Check the configs of a broker. Raises InvalidOption; INVALID_CONFIG if one value or all together are too
        large; POLICY_VIOLATION if the settings of all topics and brokers would exceed configs.max.bytes.
        """
        self._check_sizes(self.broker_configs(broker), configs)
        known = _known_settings(configs)
        for name, text in known.items():
            BROKER_OPTIONS[name].parse_dynamic(text)
        self._broker_settings.now.with_layer(_layer(broker), known)

    def _with_dynamic(self, settings: BrokerSettings) -> BrokerSettings:
        """Return the settings with those changed at runtime put on top; with ignore_dynamic these are only logged."""
        for broker in ("", str(settings.node_id)):
            stored = _known_settings(self.broker_configs(broker))
            if self._ignore_dynamic:
                for name, text in stored.items():
                    log.warning("set while running, and ignored by this start: %s=%s", name, text)
                continue
            settings = settings.with_layer(_layer(broker), _usable(stored))
        return settings

    def _warn_of_left_over(self) -> None:
        """Log the stored broker settings that this version does not know and ignores, so that they can be removed."""
        for broker, configs in self.catalogue.broker_configs.items():
            unknown = sorted(configs.keys() - _known_settings(configs).keys() - SETTABLE)
            if unknown:
                whose = f"broker {broker}" if broker else "all brokers"
                log.warning(
                    "kept for %s by an earlier version, and ignored: %s (kafka-configs --delete-config removes them)",
                    whose,
                    ", ".join(unknown),
                )

    # ---- from the catalogue to the objects -------------------------------------------------------------------

    def _reflect(self, topic_id: bytes) -> None:
        """Update the topic in memory from its entry in the catalogue: create, change or remove it."""
        entry = self.catalogue.topics.get(topic_id)
        topic = self.by_id.get(topic_id)
        if entry is None:
            if topic is not None:
                self._forget(topic)
            return
        if topic is None:
            topic = self._remember(Topic(entry.name, topic_id))
        topic.configs = entry.configs
        topic.settings = self._settings_of(_without_ineffective(entry.configs))
        self._update_partitions(topic, entry)

    def _update_partitions(self, topic: Topic, entry: TopicEntry) -> None:
        """Add the partitions that the topic lacks, and apply its settings to all its partitions and their logs."""
        _, _, rules, logs = self._rules(topic.settings, topic.name)
        for index in range(len(topic.partitions), len(entry.log_ids)):
            log = self._store.logs[entry.log_ids[index]]
            topic.partitions.append(Partition(log, topic, index, rules, self.catalogue.leader_epoch))
            self.partition_count += not topic.internal
            self.version += 1
        committed_only = topic.settings.fencepost_isolation_level_min == COMMITTED
        for partition in topic.partitions:
            partition.obey(rules)
            partition.committed_only = committed_only
            if partition.log.settings != logs:
                partition.log.settings = logs

    def _remember(self, topic: Topic) -> Topic:
        """Add the topic to all indexes, and return it."""
        self.by_id[topic.id] = self.by_name[topic.name] = topic
        self._alike.setdefault(unify(topic.name), set()).add(topic.name)
        return topic

    def _forget(self, topic: Topic) -> None:
        """Remove the topic from all indexes."""
        self.version += 1
        self.partition_count -= 0 if topic.internal else len(topic.partitions)
        del self.by_id[topic.id]
        del self.by_name[topic.name]
        alike = self._alike[unify(topic.name)]
        alike.discard(topic.name)
        if not alike:
            del self._alike[unify(topic.name)]

    # ---- ids -------------------------------------------------------------------------------------------------

    def _new_topic_id(self) -> bytes:
        """Return a random UUID (version 4) for a topic. Its text does not begin with '-', as a flag would (KIP-516)."""
        while True:
            drawn = bytearray(self._rng.bytes(16))
            drawn[6] = drawn[6] & 0x0F | 0x40
            drawn[8] = drawn[8] & 0x3F | 0x80
            if text_id(drawn)[0] != "-" and bytes(drawn) not in self.by_id:
                return bytes(drawn)

    def _new_text_id(self) -> str:
        """Return a new random UUID as text."""
        return text_id(self._new_topic_id())


def text_id(topic_id: bytes | bytearray) -> str:
    """Return a topic id as Kafka's tools write it: base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()


def append_rules(settings: TopicSettings, internal: bool) -> AppendRules:
    """Return the rules for batches that follow from a topic's settings."""
    kind = settings.compression_type
    level = getattr(settings, _LEVELS[kind]) if kind in _LEVELS else None
    return AppendRules(
        max_message_bytes=settings.max_message_bytes,
        segment_bytes=settings.segment_bytes,
        log_append_time=settings.message_timestamp_type == "LogAppendTime",
        timestamp_before_max_ms=settings.message_timestamp_before_max_ms,
        timestamp_after_max_ms=settings.message_timestamp_after_max_ms,
        codec=_CODECS.get(kind),
        codec_level=level,
        keys_required="compact" in settings.cleanup_policy,
        internal=internal,
        writes_refused=settings.fencepost_writes_refused,
    )


def _own_cleanup(name: str) -> str | None:
    """Return the cleanup policy of a coordinator's log, which does not depend on settings; None for other topics."""
    return "compact" if name in COMPACTED else KEPT if name in INTERNAL else None


def log_settings(settings: TopicSettings, cleanup: str | None = None) -> LogSettings:
    """Return a topic's log settings. cleanup: of a coordinator's log, which ignores retention settings; else None."""
    return LogSettings(
        durability_mode=settings.durability_mode,
        segment_bytes=settings.segment_bytes,
        segment_ms=settings.segment_ms,
        segment_index_bytes=settings.segment_index_bytes,
        index_interval_bytes=settings.index_interval_bytes,
        retention_ms=settings.retention_ms if cleanup is None else -1,
        retention_bytes=settings.retention_bytes if cleanup is None else -1,
        cleanup_policy=",".join(settings.cleanup_policy) if cleanup is None else cleanup,
        min_cleanable_dirty_ratio=settings.min_cleanable_dirty_ratio,
        min_compaction_lag_ms=settings.min_compaction_lag_ms,
        max_compaction_lag_ms=settings.max_compaction_lag_ms,
        delete_retention_ms=settings.delete_retention_ms,
    )


def _without_ineffective(configs: Mapping[str, str]) -> Mapping[str, str]:
    """Return the configs without those that are only stored and have no effect."""
    if not any(TOPIC_OPTIONS[name].no_effect for name in configs if name in TOPIC_OPTIONS):
        return configs
    return {name: text for name, text in configs.items() if name in TOPIC_OPTIONS and not TOPIC_OPTIONS[name].no_effect}


def _layer(broker: str) -> Source:
    """Return the source of values set for one broker (its id), or for all ("")."""
    return Source.DYNAMIC_BROKER if broker else Source.DYNAMIC_DEFAULT_BROKER


def _known_settings(configs: Mapping[str, str]) -> dict[str, str]:
    """Return the stored settings that this version knows and can change while it runs."""
    return {name: text for name, text in configs.items() if name in BROKER_OPTIONS and BROKER_OPTIONS[name].dynamic}


def _usable(stored: Mapping[str, str]) -> dict[str, str]:
    """Return the stored configs that are still valid: an earlier version may have accepted more values."""
    found = {}
    for name, text in stored.items():
        try:
            BROKER_OPTIONS[name].parse_dynamic(text)
            found[name] = text
        except InvalidOption as error:
            log.warning("set while running by an earlier version, and ignored: %s", error)
    return found
