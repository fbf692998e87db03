"""The internal topic with the state of a coordinator: created once, in one unit, replayed as a whole or not at all."""

import errno
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import pytest
from fencepost.broker.broker import Broker
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.share.records import Kind, record_key, update_value
from fencepost.broker.share.values import SharePartitionKey, Update
from fencepost.broker.topics.internal_topic import InternalTopic, InternalTopicDamaged
from fencepost.protocol.batches import Batch
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.protocol.messages.produce import ProduceRequest
from fencepost.protocol.messages.topics import CreatePartitionsRequest, DeleteTopicsRequest
from fencepost.protocol.records import Marker, Record, build, control_marker
from simulated_broker import SimulatedBroker

NAME = "__share_group_state"  # its coordinator ignores changes of share partitions that it does not know
A, B, C = (record_key(Kind.UPDATE, SharePartitionKey(name, bytes(16), 0)) for name in "abc")
ONE, TWO, THREE = (update_value(Update(0, number, ()), 0) for number in (1, 2, 3))
Seen = list[tuple[int, int, bytes | None, bytes | None]]


def topic_of(broker: Broker, partitions: int = 3) -> InternalTopic:
    return broker.shared.internal_topic(NAME, partitions, {"cleanup.policy": "compact", "segment.bytes": "1048576"})


def replayed(broker: Broker) -> Seen:
    seen: Seen = []

    def apply(partition: int, batch: Batch, contents: Iterable[Record]) -> None:
        seen.extend((partition, record.offset, record.key, record.value) for record in contents)

    topic_of(broker).load(apply)
    return seen


@pytest.mark.requirement("S-58")
def test_an_internal_topic_is_created_at_its_first_use_in_one_journal_entry() -> None:
    with SimulatedBroker() as world:
        broker = world.broker
        topic = topic_of(broker)
        assert not topic.exists
        assert topic.partitions == 3
        before = broker.store.last_unit
        topic.ensure()
        assert broker.store.last_unit == before + 1
        topic.ensure()
        assert broker.store.last_unit == before + 1
        made = broker.topics.by_name[NAME]
        assert made.internal
        assert made.settings.cleanup_policy == ("compact",)
        assert made.settings.segment_bytes == 1 << 20


def test_an_internal_topic_keeps_the_partition_count_it_was_created_with() -> None:
    with SimulatedBroker() as world:
        world.broker.topics.create(NAME, 5)
        topic = topic_of(world.broker)
        topic.ensure()
        assert topic.partitions == 5
        assert topic.partition_for("hello") == 99162322 % 5  # Java's hashCode() of the text


def test_ensuring_an_internal_topic_without_disk_space_raises_and_creates_none() -> None:
    with SimulatedBroker() as world:
        topic = topic_of(world.broker)
        world.broker.store.space_low = True
        with pytest.raises(KafkaError) as refused:
            topic.ensure()
        assert refused.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert not topic.exists


def test_committing_to_an_internal_topic_without_disk_space_raises_writing_nothing() -> None:
    with SimulatedBroker() as world:
        topic = topic_of(world.broker)
        topic.ensure()
        world.broker.store.space_exhausted = True
        with pytest.raises(KafkaError) as refused:
            topic.commit([topic.part(0, [(b"k", b"v")], now_ms=1)])
        assert refused.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert topic.log(0).end_offset == 0


@pytest.mark.requirement("S-59")
def test_records_and_markers_of_an_internal_topic_replay_in_order_after_a_power_cut() -> None:
    world = SimulatedBroker()
    topic = topic_of(world.broker)
    topic.ensure()
    topic.commit([topic.part(2, [(A, ONE), (B, None)], now_ms=5), topic.part(0, [(C, TWO)], now_ms=5)])
    topic.commit([topic.part(2, [(A, THREE)], now_ms=6, producer_id=9, producer_epoch=1, transactional=True)])
    marker = control_marker(Marker.COMMIT, producer_id=9, producer_epoch=1, coordinator_epoch=0, timestamp=7)
    world.broker.store.commit([world.broker.store.append_part(topic.log(2).log_id, marker)])
    world.wait(1)
    with world.after_power_cut() as later:
        *data, (partition, offset, _, _) = replayed(later.broker)
        assert data == [(0, 0, C, TWO), (2, 0, A, ONE), (2, 1, B, None), (2, 2, A, THREE)]
        assert (partition, offset) == (2, 3)


def test_kafka_9065_a_log_that_is_empty_after_compaction_is_replayed_to_its_end() -> None:
    """KAFKA-9065: the load of a compacted log whose last records are gone went on for ever."""
    with SimulatedBroker() as world:
        topic = topic_of(world.broker)
        topic.ensure()
        topic.commit([topic.part(1, [(b"a", b"1")], now_ms=5)])
        world.wait(60)
        log = topic.log(1)
        log.segments.clear()  # as if all of it had been cleaned away
        assert log.start_offset < log.flushed_offset == log.end_offset == 1
        assert replayed(world.broker) == []


@pytest.mark.parametrize(("at", "reason"), [(0, "base offset .* where 10 must be"), (70, "at byte 1200: the CRC")])
def test_redpanda_9d75795_a_damaged_partition_is_skipped_and_others_load(at: int, reason: str) -> None:
    """Redpanda 9d75795: the state was served although the replay had stopped before the end of the log."""
    world = SimulatedBroker(BrokerSettings(log_dir="/d"))
    topic = topic_of(world.broker)
    topic.ensure()
    for number in range(20):
        topic.commit([topic.part(1, [(b"k%d" % number, b"v" * 50)], now_ms=5)])
    topic.commit([topic.part(2, [(b"a", b"1")], now_ms=5)])
    world.wait(60)
    log = topic.log(1)
    (name,) = (name for name in world.disk.list(log.directory) if name.endswith(".log"))
    file = world.disk.open(f"{log.directory}/{name}")
    file.write([b"x"], file.size() // 2 + at)
    file.close()
    assert replayed(world.broker) == [(2, 0, b"a", b"1")]
    with pytest.raises(KafkaError, match=f"__share_group_state-1: .*{reason}") as refused:
        topic.log(1)
    assert refused.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert list(world.broker.recovery.offline) == [log.directory]
    assert log.manifest() is log.evidence
    world.stop()


def read_until_refused(log: Any, sound_reads: int, refuse: Callable[[], NoReturn]) -> Callable[..., Any]:
    """Return a read function of the log that works this many times, and calls refuse() after that."""
    reads = [log.read] * sound_reads

    def read(*given: Any, **more: Any) -> Any:
        return reads.pop()(*given, **more) if reads else refuse()

    return read


@pytest.mark.parametrize("sound_reads", [0, 1], ids=["refused in the check", "refused when records are applied"])
def test_a_start_without_free_descriptors_fails_and_marks_no_partition_as_damaged(
    monkeypatch: pytest.MonkeyPatch, sound_reads: int
) -> None:
    with SimulatedBroker() as world:
        topic = topic_of(world.broker)
        topic.ensure()
        topic.commit([topic.part(1, [(b"a", b"1")], now_ms=5)])
        world.wait(60)
        log = topic.log(1)

        def refuse() -> NoReturn:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "full") from OSError(errno.EMFILE, "too many")

        with monkeypatch.context() as patched:
            patched.setattr(log, "read", read_until_refused(log, sound_reads, refuse))
            with pytest.raises(OSError, match="too many"):
                replayed(world.broker)
        assert replayed(world.broker) == [(1, 0, b"a", b"1")]


def test_a_read_error_in_the_middle_of_a_replay_fails_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Some records are applied by then; the start fails with the device's error and calls no log damaged."""
    with SimulatedBroker() as world:
        topic = topic_of(world.broker)
        topic.ensure()
        topic.commit([topic.part(1, [(b"a", b"1")], now_ms=5)])
        world.wait(60)
        log = topic.log(1)

        def refuse() -> NoReturn:
            log.offline = "unreadable"  # as readers do after an error of the device
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "unreadable") from OSError(errno.EIO, "the device")

        with monkeypatch.context() as patched:
            patched.setattr(log, "read", read_until_refused(log, 1, refuse))
            with pytest.raises(OSError, match="the device"):
                replayed(world.broker)
        log.offline = None
        assert replayed(world.broker) == [(1, 0, b"a", b"1")]


def test_a_coordinator_record_that_cannot_be_applied_raises_an_error_with_its_offset() -> None:
    with SimulatedBroker() as world:
        topic = topic_of(world.broker)
        topic.ensure()
        topic.commit([topic.part(1, [(b"a", b"1")], now_ms=5)])
        world.wait(1)

        def apply(partition: int, batch: Batch, contents: Iterable[Record]) -> None:
            raise ValueError("what is this?")

        with pytest.raises(InternalTopicDamaged, match=r"__share_group_state-1.*from offset 0 on: what is this"):
            topic_of(world.broker).load(apply)


def test_producing_to_an_internal_topic_gets_invalid_topic_exception() -> None:
    with SimulatedBroker() as world:
        topic_of(world.broker).ensure()
        batch = memoryview(build([Record(0, 0, b"k", b"v")]))
        data = ProduceRequest.Topic.Partition(index=0, records=batch)
        asked = ProduceRequest.Topic(name=NAME, partition_data=[data])
        answer = world.ask(ProduceRequest(acks=-1, timeout_ms=0, topic_data=[asked]), 9)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_clients_can_neither_delete_nor_extend_an_internal_topic() -> None:
    """Apache Kafka allows it: then all groups lose their offsets, or look for them in another partition."""
    with SimulatedBroker() as world:
        topic_of(world.broker).ensure()
        answer = world.ask(DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name=NAME)], timeout_ms=0))
        assert answer.responses[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        more = CreatePartitionsRequest.Topic(name=NAME, count=9, assignments=None)
        answer = world.ask(CreatePartitionsRequest(topics=[more], timeout_ms=0, validate_only=False))
        assert answer.results[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert topic_of(world.broker).partitions == 3


def test_coordinator_logs_are_only_compacted_even_if_their_settings_say_delete() -> None:
    with SimulatedBroker() as world:
        topics = world.broker.topics
        topic = topics.create("__consumer_offsets", 2, {"cleanup.policy": "delete", "retention.ms": "1"})
        assert topic.partitions[0].log.settings.cleanup_policy == "compact"
        topics.alter_configs(topic, {"cleanup.policy": "compact,delete"})
        assert topic.partitions[1].log.settings.cleanup_policy == "compact"
