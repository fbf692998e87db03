"""Topics over the catalogue: one unit a change, the same state after a restart, ids that never come back."""

import msgpack
import pytest
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.topics import catalogue_log
from fencepost.broker.topics.catalogue_log import CatalogueDamaged
from fencepost.broker.topics.topics import Topics, append_rules, log_settings, text_id
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.protocol.messages.fetch import FetchRequest
from fencepost.protocol.messages.topics import CreateTopicsRequest, DeleteTopicsRequest
from fencepost.protocol.records import Record, build
from fencepost.storage.layout import CATALOGUE_LOG_ID
from simulated_broker import SimulatedBroker


def pictured(topics: Topics) -> dict[str, object]:
    """Return all that can be seen of the topics."""
    return {
        name: (
            topic.id,
            topic.internal,
            dict(topic.configs),
            topic.settings,
            [(p.index, p.log.log_id, p.log.settings, p.rules, p.topic is topic) for p in topic.partitions],
        )
        for name, topic in sorted(topics.by_name.items())
    }


def busy(broker: SimulatedBroker) -> Topics:
    """Create, change and delete topics. Return them."""
    topics = broker.broker.topics
    kept = topics.create("kept", 2, {"retention.ms": "5", "cleanup.policy": "compact"})
    topics.delete(topics.create("gone", 3))
    topics.create("gone", 1)
    topics.add_partitions(kept, 4)
    topics.alter_configs(kept, {"segment.ms": "60000", "compression.type": "zstd"})
    topics.alter_broker_configs("", {"log.retention.ms": "77"})
    topics.create("__consumer_offsets", 1)
    broker.wait(1)
    return topics


@pytest.mark.slow
def test_replaying_the_catalogue_gives_the_same_topics_as_before_the_restart() -> None:
    broker = SimulatedBroker()
    before = pictured(busy(broker))
    ids = broker.broker.topics.by_id.keys()
    with broker.after_power_cut() as unplugged:
        assert pictured(unplugged.broker.topics) == before
        assert unplugged.broker.topics.by_id.keys() == ids
        with unplugged.again() as restarted:
            assert pictured(restarted.broker.topics) == before


@pytest.mark.slow
def test_a_compacted_catalogue_gives_the_same_topics_as_before_the_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue_log, "SEGMENT_BYTES", 8_000)
    with SimulatedBroker(BrokerSettings(log_cleaner_backoff_ms=100)) as broker:
        topics = busy(broker)
        for number in range(400):
            topics.alter_configs(topics.by_name["kept"], {"segment.ms": str(60_000 + number)})
        before = pictured(topics)
        log = broker.broker.store.logs[CATALOGUE_LOG_ID]
        whole = log.size_bytes
        broker.wait(120)
        assert log.size_bytes < whole / 4
        with broker.after_power_cut() as unplugged:
            assert pictured(unplugged.broker.topics) == before


def test_creating_growing_or_deleting_a_topic_writes_one_journal_entry() -> None:
    with SimulatedBroker() as broker:
        store, topics = broker.broker.store, broker.broker.topics
        before = store.last_unit
        topic = topics.create("a", 50)
        assert store.last_unit == before + 1
        topics.add_partitions(topic, 60)
        assert store.last_unit == before + 2
        topics.delete(topic)
        assert store.last_unit == before + 3
        assert set(store.logs) == {CATALOGUE_LOG_ID}


@pytest.mark.slow
def test_the_broker_refuses_to_start_with_a_damaged_catalogue() -> None:
    broker = SimulatedBroker(BrokerSettings(log_dir="/d"))
    busy(broker)
    broker.wait(60)
    disk = broker.disk
    broker.stop()
    (name,) = (name for name in disk.list("/d/logs/__catalogue-0.0") if name.endswith(".log"))
    file = disk.open(f"/d/logs/__catalogue-0.0/{name}")
    size = file.size()
    for position in (3, 20, 70, 100, size - 1):
        (byte,) = file.read(1, position)
        file.write([bytes([byte ^ 4])], position)
        with pytest.raises(CatalogueDamaged, match="from offset"):
            SimulatedBroker(BrokerSettings(log_dir="/d"), disk=disk)
        file.write([bytes([byte])], position)
    with SimulatedBroker(BrokerSettings(log_dir="/d"), disk=disk) as mended:
        assert set(mended.broker.topics.by_name) == {"kept", "gone", "__consumer_offsets"}
    file.close()


@pytest.mark.slow
@pytest.mark.parametrize("key", [["topic"], ["marker debt", 1], []])
def test_a_catalogue_record_with_too_few_fields_fails_the_start_as_damaged(key: list[str]) -> None:
    broker = SimulatedBroker(BrokerSettings(log_dir="/d"))
    store, disk = broker.broker.store, broker.disk
    record = Record(0, 0, msgpack.packb(key), msgpack.packb({"name": "t", "logs": [], "configs": {}}))
    store.commit([store.append_part(CATALOGUE_LOG_ID, build([record]))])
    broker.stop()
    with pytest.raises(CatalogueDamaged, match="from offset"):
        SimulatedBroker(BrokerSettings(log_dir="/d"), disk=disk)


@pytest.mark.slow
def test_a_damaged_catalogue_is_restored_from_a_copy_and_the_journal() -> None:
    broker = SimulatedBroker(BrokerSettings(log_dir="/d"))
    busy(broker)
    broker.wait(60)
    broker.broker.topics.create("only-in-the-journal", 2)
    broker.wait(0.1)
    disk = broker.disk.after_process_crash()
    broker.abandon()
    (name,) = (name for name in disk.list("/d/logs/__catalogue-0.0") if name.endswith(".log"))
    file = disk.open(f"/d/logs/__catalogue-0.0/{name}")
    copy = file.read(file.size(), 0)
    file.write([b"?"], 70)
    for _ in range(2):
        with pytest.raises(CatalogueDamaged, match="restore this folder from a copy"):
            SimulatedBroker(BrokerSettings(log_dir="/d"), disk=disk)
    file.truncate(0)
    file.write([copy], 0)
    file.close()
    with SimulatedBroker(BrokerSettings(log_dir="/d"), disk=disk) as mended:
        assert set(mended.broker.topics.by_name) == {"kept", "gone", "__consumer_offsets", "only-in-the-journal"}


@pytest.mark.slow
def test_log_ids_and_topic_ids_are_never_reused() -> None:
    broker = SimulatedBroker()
    seen_logs: set[int] = set()
    seen_ids: set[bytes] = set()
    for _ in range(4):
        topic = broker.broker.topics.create("a", 3)
        logs = {partition.log.log_id for partition in topic.partitions}
        assert not logs & seen_logs
        assert topic.id not in seen_ids
        seen_logs |= logs
        seen_ids.add(topic.id)
        broker.broker.topics.delete(topic)
        broker.wait(1)
        broker = broker.after_power_cut()
    broker.stop()


def test_topic_ids_are_version_4_uuids_whose_text_does_not_begin_with_a_hyphen() -> None:
    with SimulatedBroker() as broker:
        for number in range(70):
            topic_id = broker.broker.topics.create(f"t{number}", 1).id
            assert (topic_id[6] >> 4, topic_id[8] >> 6) == (4, 2)
            assert text_id(topic_id)[0] != "-"
            assert len(text_id(topic_id)) == 22


def test_a_refused_topic_change_writes_nothing_and_leaves_all_topics_as_before() -> None:
    with SimulatedBroker() as broker:
        topics = broker.broker.topics
        topic = topics.create("a", 1)
        before, unit = pictured(topics), broker.broker.store.last_unit
        with pytest.raises(KafkaError) as exists:
            topics.create("a", 1)
        assert exists.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
        with pytest.raises(KafkaError) as invalid:
            topics.alter_configs(topic, {"retention.ms": "x"})
        assert invalid.value.code is ErrorCode.INVALID_CONFIG
        broker.broker.store.space_low = True
        with pytest.raises(KafkaError) as refused:
            topics.create("b", 1)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert (pictured(topics), broker.broker.store.last_unit) == (before, unit)


def test_when_space_is_low_topics_can_still_be_deleted() -> None:
    with SimulatedBroker() as broker:
        topic = broker.broker.topics.create("a", 1)
        broker.broker.store.space_low = True
        broker.broker.topics.delete(topic)
        assert broker.broker.topics.by_name == {}


def test_deleting_a_topic_answers_a_fetch_that_waits_for_its_records() -> None:
    with SimulatedBroker() as broker:
        (made,) = broker.ask(CreateTopicsRequest(topics=[CreateTopicsRequest.Topic(name="a")])).topics
        partition = FetchRequest.Topic.Partition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        topic = FetchRequest.Topic(topic="a", topic_id=made.topic_id, partitions=[partition])
        fetch = FetchRequest(max_wait_ms=60_000, min_bytes=1, max_bytes=1000, topics=[topic])
        began = broker.loop.time()
        broker.loop.call_later(1, lambda: broker.broker.topics.delete(broker.broker.topics.by_name["a"]))
        (answer,) = broker.ask(fetch, 12).responses
        assert answer.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert broker.loop.time() - began < 2


def test_an_answered_topic_deletion_survives_a_power_cut() -> None:
    broker = SimulatedBroker()
    broker.ask(CreateTopicsRequest(topics=[CreateTopicsRequest.Topic(name="a")]))
    (answer,) = broker.ask(DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name="a")], timeout_ms=1)).responses
    assert answer.error_code == 0
    with broker.after_power_cut() as unplugged:
        assert unplugged.broker.topics.by_name == {}


def test_topic_settings_become_log_settings_and_append_rules() -> None:
    with SimulatedBroker() as broker:
        configs = {
            "cleanup.policy": "compact,delete",
            "compression.type": "lz4",
            "compression.lz4.level": "3",
            "message.timestamp.type": "LogAppendTime",
            "durability.mode": "os",
            "segment.bytes": "2000000",
        }
        topic = broker.broker.topics.create("a", 1, configs)
        logs, rules = log_settings(topic.settings), append_rules(topic.settings, internal=False)
        assert (logs.cleanup_policy, logs.compacts, logs.deletes) == ("compact,delete", True, True)
        assert (logs.durability_mode, logs.segment_bytes) == ("os", 2_000_000)
        assert (rules.codec, rules.codec_level, rules.log_append_time, rules.keys_required) == (3, 3, True, True)
        topic = broker.broker.topics.create("b", 1, {"compression.type": "uncompressed"})
        assert append_rules(topic.settings, internal=False).codec == 0
        assert append_rules(broker.broker.topics.create("c", 1).settings, internal=False).codec is None
