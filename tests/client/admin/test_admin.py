"""Admin against a broker: what it asks, what it gives back, and what becomes of refusals."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from confluent_kafka import KafkaException, Producer
from fencepost.client.admin.admin import Admin
from fencepost.client.admin.offsets import EARLIEST, LATEST
from fencepost.client.admin.topics import TO_THE_END
from fencepost.client.admin.transactions import TransactionAdmin
from fencepost.client.admin.values import NewTopic
from fencepost.client.consumer.consumer import Consumer
from fencepost.client.errors import BrokerUnreachableError, KafkaError, OffsetOutOfRangeError, UnknownTopicError
from fencepost.client.values import OffsetAndMetadata, TopicPartition
from fencepost.protocol.errors import ErrorCode
from served_broker import ServedBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[ServedBroker]:
    with ServedBroker(group_initial_rebalance_delay_ms=0) as served:
        yield served


@pytest_asyncio.fixture
async def admin(broker: ServedBroker) -> AsyncIterator[Admin]:
    async with Admin(f"127.0.0.1:{broker.port}") as opened:
        yield opened


def plain(broker: ServedBroker, topic: str, count: int, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{broker.port}"})
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=partition)
    assert producer.flush(10) == 0


def transaction(broker: ServedBroker, transactional_id: str, topic: str, count: int) -> Producer:
    """Return a producer with an open transaction, whose records are acknowledged."""
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{broker.port}", "transactional.id": transactional_id})
    producer.init_transactions(10)
    producer.begin_transaction()
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=0)
    assert producer.flush(10) == 0
    return producer


async def test_admin_creates_extends_alters_and_deletes_a_topic(admin: Admin) -> None:
    """Describing it afterwards raises UnknownTopicError."""
    await admin.create_topics([NewTopic("grown", 2, configs={"retention.ms": "1000"}), "plain"])
    found = await admin.describe_topics(["grown", "plain"])
    assert [len(each.partitions) for each in found.values()] == [2, 1]
    assert found["grown"].partitions[1].leader == found["grown"].partitions[1].replicas[0] == 1
    await admin.create_partitions({"grown": 3})
    await admin.alter_configs(topic="grown", set={"max.message.bytes": "2000"}, delete=["retention.ms"])
    configs = {each.name: each for each in (await admin.describe_configs(topics="grown"))["grown"]}
    assert (configs["max.message.bytes"].value, configs["max.message.bytes"].source) == ("2000", "topic")
    assert configs["retention.ms"].is_default
    assert len((await admin.describe_topics("grown"))["grown"].topic_partitions) == 3
    assert {"grown", "plain"} <= set(await admin.list_topics())
    await admin.delete_topics(["grown", "plain"])
    with pytest.raises(UnknownTopicError, match="grown"):
        await admin.describe_topics("grown")


async def test_the_first_of_several_topic_errors_is_raised_and_others_are_its_notes(admin: Admin) -> None:
    await admin.create_topics(["a-1", "a-2"])
    with pytest.raises(KafkaError, match="a-1") as raised:
        await admin.create_topics(["a-1", "a-2", "a-3"])
    assert raised.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert ["a-2" in note for note in raised.value.__notes__] == [True]
    assert "a-3" in await admin.list_topics()


async def test_create_topic_with_validate_only_creates_nothing(admin: Admin) -> None:
    await admin.create_topics("not-made", validate_only=True)
    assert "not-made" not in await admin.list_topics()


async def test_admin_describes_and_alters_broker_settings(admin: Admin) -> None:
    await admin.alter_configs(broker=1, set={"log.retention.ms": "7200000"})
    configs = {each.name: each for each in (await admin.describe_configs(brokers=[1]))["1"]}
    assert (configs["log.retention.ms"].value, configs["log.retention.ms"].source) == ("7200000", "broker")
    await admin.alter_configs(broker=1, delete=["log.retention.ms"])
    with pytest.raises(KafkaError, match=r"broker 1.*soon"):
        await admin.alter_configs(broker=1, set={"log.retention.ms": "soon"})


async def test_admin_describes_and_alters_group_settings(admin: Admin) -> None:
    name = "consumer.session.timeout.ms"
    await admin.alter_configs(group="tuned", set={name: "50000"})
    configs = {each.name: each for each in (await admin.describe_configs(groups="tuned"))["tuned"]}
    assert (configs[name].value, configs[name].source) == ("50000", "group")
    assert configs["consumer.heartbeat.interval.ms"].is_default
    with pytest.raises(KafkaError, match=r"group tuned.*group\.consumer\.max\.session\.timeout\.ms"):
        await admin.alter_configs(group="tuned", set={name: "70000"})
    await admin.alter_configs(group="tuned", delete=[name])
    assert all(each.is_default for each in (await admin.describe_configs(groups=["tuned"]))["tuned"])
    with pytest.raises(TypeError, match="one of them only"):
        await admin.alter_configs(group="tuned", topic="tuned", set={name: "50000"})


async def test_admin_lists_offsets_by_end_and_by_time_and_deletes_records_below_an_offset(
    admin: Admin, broker: ServedBroker
) -> None:
    """Deleting beyond the end raises OFFSET_OUT_OF_RANGE."""
    await admin.create_topics("trimmed")
    plain(broker, "trimmed", 5)
    tp = TopicPartition("trimmed", 0)
    assert (await admin.ends([tp], EARLIEST), await admin.ends([tp], LATEST)) == ({tp: 0}, {tp: 5})
    stamp = (await admin.list_offsets({tp: 0}))[tp].timestamp_ms
    assert (await admin.list_offsets({tp: stamp}))[tp].offset == 0
    assert (await admin.list_offsets({tp: stamp + 60_000}))[tp].offset == -1
    assert await admin.delete_records({tp: 3}) == {tp: 3}
    assert await admin.delete_records({tp: TO_THE_END}) == {tp: 5}
    with pytest.raises(KafkaError) as raised:
        await admin.delete_records({tp: 99})
    assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_an_admin_call_for_an_unknown_partition_raises_an_error_naming_it(admin: Admin) -> None:
    await admin.create_topics("one-partition")
    with pytest.raises(UnknownTopicError, match="one-partition has no partition 7"):
        await admin.ends([TopicPartition("one-partition", 7)], LATEST)


async def test_admin_sets_reads_and_deletes_group_offsets_and_deletes_the_group(admin: Admin) -> None:
    """Deleting it once more raises GROUP_ID_NOT_FOUND."""
    await admin.create_topics(NewTopic("read", 2))
    first, second = TopicPartition("read", 0), TopicPartition("read", 1)
    await admin.alter_group_offsets("readers", {first: 4, second: OffsetAndMetadata(5, "note")})
    assert await admin.list_group_offsets("readers") == {
        first: OffsetAndMetadata(4),
        second: OffsetAndMetadata(5, "note"),
    }
    assert set(await admin.list_group_offsets("readers", [second])) == {second}
    assert [each.group_id for each in await admin.list_groups()] == ["readers"]
    assert (await admin.describe_groups(["readers", "nobody"]))["readers"].state == "Empty"
    assert list(await admin.describe_groups(["readers", "nobody"])) == ["readers"]
    await admin.delete_group_offsets("readers", [first])
    assert set(await admin.list_group_offsets("readers")) == {second}
    await admin.delete_groups("readers")
    with pytest.raises(KafkaError, match="readers") as raised:
        await admin.delete_groups("readers")
    assert raised.value.code is ErrorCode.GROUP_ID_NOT_FOUND


async def test_admin_describes_lists_and_deletes_consumer_protocol_groups(admin: Admin) -> None:
    """Deleting a group with members, or setting its offsets, raises."""
    await admin.create_topics(NewTopic("assigned", 2))
    servers = admin._settings.bootstrap_servers
    async with Consumer(
        servers,
        topics=["assigned"],
        group_id="newer",
        group_protocol="consumer",
        client_id="me",
        auto_offset_reset="earliest",
    ) as consumer:
        await consumer.assigned()
        group = (await admin.describe_groups(["newer", "nobody"]))["newer"]
        assert (group.group_type, group.state, group.protocol) == ("consumer", "Stable", "uniform")
        (member,) = group.members
        assert (member.client_id, member.epoch, member.is_classic) == ("me", group.epoch, False)
        assert member.assignment == member.target == (TopicPartition("assigned", 0), TopicPartition("assigned", 1))
        listed = {each.group_id: each for each in await admin.list_groups(types=["consumer"])}
        assert list(listed) == ["newer"]
        assert listed["newer"].group_type.lower() == "consumer"
        assert "newer" not in [each.group_id for each in await admin.list_groups(types=["classic"])]
        with pytest.raises(KafkaError) as raised:
            await admin.delete_groups("newer")
        assert raised.value.code is ErrorCode.NON_EMPTY_GROUP
        with pytest.raises(KafkaError, match="has active members"):
            await admin.alter_group_offsets("newer", {TopicPartition("assigned", 0): 0})
    assert (await admin.describe_groups("newer"))["newer"].state == "Empty"
    await admin.delete_groups("newer")
    assert await admin.describe_groups("newer") == {}


async def test_admin_describes_and_removes_group_members(admin: Admin, broker: ServedBroker) -> None:
    from aiokafka import AIOKafkaConsumer

    await admin.create_topics("shared")
    consumer = AIOKafkaConsumer(
        "shared", bootstrap_servers=f"127.0.0.1:{broker.port}", group_id="sharers", client_id="somebody"
    )
    await consumer.start()
    try:
        (member,) = (await admin.describe_groups("sharers"))["sharers"].members
        assert (member.client_id, member.assignment) == ("somebody", (TopicPartition("shared", 0),))
        with pytest.raises(KafkaError, match="has active members") as raised:
            await admin.alter_group_offsets("sharers", {TopicPartition("shared", 0): 0})
        assert raised.value.code is ErrorCode.NON_EMPTY_GROUP
        await admin.remove_members("sharers", [member.member_id])
        assert member not in (await admin.describe_groups("sharers"))["sharers"].members
    finally:
        await consumer.stop()


async def test_admin_describes_an_open_transaction_and_lists_it_as_blocking_readers(
    admin: Admin, broker: ServedBroker
) -> None:
    await admin.create_topics("held")
    tp = TopicPartition("held", 0)
    plain(broker, "held", 2)
    producer = await asyncio.to_thread(transaction, broker, "holder", "held", 3)
    (blocker,) = await admin.find_blockers([tp])
    assert (blocker.last_stable_offset, blocker.high_watermark, blocker.open.start_offset) == (2, 5, 2)
    assert blocker.description is not None
    assert (blocker.description.transactional_id, blocker.hangs) == ("holder", False)
    assert ("holder", "Ongoing") in {
        (each.transactional_id, each.state) for each in await admin.list_transactions(states=["Ongoing"])
    }
    (described,) = (await admin.describe_transactions(["holder", "nobody"])).values()
    assert described.is_open
    assert (described.partitions, described.started_ms is not None) == ((tp,), True)
    await asyncio.to_thread(producer.abort_transaction)
    assert await admin.find_blockers([tp]) == []
    assert (await admin.describe_transactions("holder"))["holder"].started_ms is None


@pytest.mark.slow
async def test_fence_producers_aborts_the_open_transaction_and_fences_its_producer(
    admin: Admin, broker: ServedBroker
) -> None:
    await admin.create_topics("fenced")
    producer = await asyncio.to_thread(transaction, broker, "to-fence", "fenced", 1)
    before = (await admin.describe_transactions("to-fence"))["to-fence"]
    identity = (await admin.fence_producers("to-fence"))["to-fence"]
    assert identity.producer_id == before.producer_id
    assert identity.epoch > before.producer_epoch
    after = (await admin.describe_transactions("to-fence"))["to-fence"]
    assert (after.is_open, after.timeout_ms) == (False, before.timeout_ms)
    with pytest.raises(KafkaException, match="fenced by a newer instance"):
        await asyncio.to_thread(producer.commit_transaction)


class _Forgetful(Admin):
    """Its coordinators know of no transaction."""

    async def _owners(self, producer_ids: object) -> dict[int, object]:  # type: ignore[override]
        return {}


@pytest.mark.slow
async def test_admin_ends_a_hanging_transaction_by_a_marker(admin: Admin, broker: ServedBroker) -> None:
    """Only a transaction that its coordinator does not know counts as hanging. A wrong start offset raises
    INVALID_TXN_STATE.
    """
    await admin.create_topics("hung")
    tp = TopicPartition("hung", 0)
    await asyncio.to_thread(transaction, broker, "hanger", "hung", 2)
    assert await admin.find_hanging_transactions([tp], open_for_ms=0) == []
    async with _Forgetful(f"127.0.0.1:{broker.port}") as forgetful:
        assert await forgetful.find_hanging_transactions([tp], open_for_ms=3_600_000) == []
        (hanging,) = await forgetful.find_hanging_transactions([tp], open_for_ms=0)
        (blocker,) = await forgetful.find_blockers([tp])
    assert (hanging.topic_partition, hanging.start_offset, blocker.hangs) == (tp, 0, True)
    with pytest.raises(KafkaError, match="offset 1") as raised:
        await admin.abort_transaction(tp, 1)
    assert raised.value.code is ErrorCode.INVALID_TXN_STATE
    assert (await admin.abort_transaction(tp, 0)).producer == hanging.producer
    assert await admin.open_transactions([tp]) == []


async def test_an_unknown_transaction_state_is_refused_and_the_hint_lists_all(admin: Admin) -> None:
    with pytest.raises(KafkaError, match="Sleeping") as raised:
        await admin.list_transactions(states=["Sleeping"])
    assert "Ongoing" in raised.value.hint  # type: ignore[attr-defined]


@pytest.mark.slow
async def test_read_batches_returns_stored_batches_including_markers(admin: Admin, broker: ServedBroker) -> None:
    await admin.create_topics("raw")
    tp = TopicPartition("raw", 0)
    producer = await asyncio.to_thread(transaction, broker, "raw-writer", "raw", 3)
    await asyncio.to_thread(producer.commit_transaction)
    batches = [batch async for batch in admin.read_batches(tp, 0, 100)]
    assert [batch.is_control for batch in batches][-1] is True
    assert batches[0].base_offset == 0
    assert batches[-1].next_offset == 4
    assert [batch.base_offset async for batch in admin.read_batches(tp, 3, 4)] == [3]
    with pytest.raises(OffsetOutOfRangeError):
        _ = [batch async for batch in admin.read_batches(tp, 50, 60)]


async def test_describe_cluster_returns_brokers_and_finalized_features(admin: Admin) -> None:
    cluster = await admin.describe_cluster()
    assert ([each.node_id for each in cluster.nodes], cluster.controller) == ([1], 1)
    assert cluster.features["transaction.version"] == 2


@pytest.mark.slow
async def test_an_admin_without_a_broker_raises_broker_unreachable_at_its_start() -> None:
    with pytest.raises(BrokerUnreachableError):
        async with Admin("127.0.0.1:1", request_timeout_ms=2_000):
            pass


async def test_admin_accepts_setting_names_of_java_and_librdkafka(broker: ServedBroker) -> None:
    config = {"bootstrap.servers": f"127.0.0.1:{broker.port}", "client.id": "x", "socket.timeout.ms": "5000"}
    async with Admin.from_config(config) as admin:
        assert isinstance(admin, TransactionAdmin)
        assert await admin.list_topics() is not None


async def test_admin_describes_log_dirs_and_finds_those_below_storage_min_free_bytes(
    admin: Admin, broker: ServedBroker
) -> None:
    (node,) = (await admin.describe_cluster()).nodes
    ((found,),) = (await admin.describe_log_dirs()).values()
    assert found.path == broker.settings.log_dir
    assert 0 < (found.usable_bytes or 0) <= (found.total_bytes or 0)
    assert await admin.describe_log_dirs([node.node_id]) != {}
    assert await admin.find_low_log_dirs() == []
    floor = 2 * (found.usable_bytes or 0)
    with ServedBroker(storage_min_free_bytes=floor) as full:
        async with Admin(f"127.0.0.1:{full.port}") as other:
            (low,) = await other.find_low_log_dirs()
    assert (low.broker, low.path, low.floor_bytes) == (node.node_id, full.settings.log_dir, floor)
    assert low.usable_bytes < floor
