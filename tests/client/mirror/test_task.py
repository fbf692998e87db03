"""A mirror's tasks between two brokers, over sockets: what they copy, and what stops them."""

import asyncio
from dataclasses import replace

import pytest
from fencepost.broker.embedded.broker import Broker
from fencepost.client.admin.admin import Admin
from fencepost.client.admin.values import DEFAULT_ENTITY, NewTopic, QuotaEntity
from fencepost.client.mirror.leftovers import Leftovers
from fencepost.client.mirror.membership import Membership
from fencepost.client.mirror.names import group_id, transactional_id
from fencepost.client.mirror.positions import decode_position, encode_position
from fencepost.client.net.environment import SYSTEM
from fencepost.client.producer.producer import Producer
from fencepost.client.values import ConsumerGroupMetadata, TopicPartition
from fencepost.effects.clock import SystemClock
from mirrored import Sides, assert_exact, map_entries, records_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def clusters():
    """Give the bootstrap servers of two brokers: source and target."""
    quick = {"group_consumer_min_heartbeat_interval_ms": 100, "group_consumer_heartbeat_interval_ms": 100}
    with Broker() as source, Broker(**quick) as target:
        yield source.bootstrap_servers, target.bootstrap_servers


@pytest.fixture
def sides(clusters) -> Sides:
    return Sides(*clusters)


async def make(bootstrap: str, name: str, partitions: int = 2, **configs: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topics(
            NewTopic(name, partitions, configs={k.replace("_", "."): v for k, v in configs.items()})
        )


async def write(bootstrap: str, name: str, values: range, partitions: int = 2) -> None:
    async with Producer(bootstrap) as producer:
        for each in values:
            await producer.send(
                name, b"v%d" % each, key=b"k%d" % (each % 7), partition=each % partitions, timestamp_ms=1_000_000 + each
            )
        await producer.flush()


async def write_transactions(bootstrap: str, name: str, count: int) -> None:
    """Write transactions of three records, in partitions 0, 1 and 0. Each third transaction is aborted."""
    async with Producer(bootstrap, transactional_id=f"w-{name}") as producer:
        for each in range(count):
            await producer.begin_transaction()
            for number in range(3):
                headers = [("a", b"1"), ("a", None), ("b", b"%d" % each)]
                await producer.send(name, b"t%d-%d" % (each, number), partition=number % 2, headers=headers)
            await (producer.abort_transaction() if each % 3 == 2 else producer.commit_transaction())


async def test_a_mirror_copies_each_record_once_and_maps_its_offset(sides: Sides) -> None:
    await make(sides.source, "all")
    await write(sides.source, "all", range(500))
    await write_transactions(sides.source, "all", 20)
    async with sides.running(sides.task("all")) as task:
        await sides.drained("all")
        await write(sides.source, "all", range(500, 600))
        await write_transactions(sides.source, "all", 5)
        await sides.drained("all")
    assert await assert_exact(sides, "all") == 600 + 3 * 14 + 3 * 4
    assert task.counts.records == 600 + 3 * 14 + 3 * 4
    assert not sides.told


async def test_a_task_ends_its_own_transaction_if_that_still_holds_its_positions(sides: Sides) -> None:
    """Its last commit had no answer and never arrived, and neither did the abort."""
    await make(sides.source, "held", 1)
    await write(sides.source, "held", range(10), 1)
    async with sides.running(sides.task("held", name="one")):
        await sides.drained("held")
    await write(sides.source, "held", range(10, 20), 1)
    held = TopicPartition("held", 0)
    async with Producer(sides.target, transactional_id=transactional_id("default", "one")) as before:
        await before.begin_transaction()
        async with Admin(sides.target) as admin:
            position = (await admin.list_group_offsets(group_id("default")))[held]
        await before.send_offsets_to_transaction({held: position}, ConsumerGroupMetadata(group_id("default")))
        async with asyncio.timeout(20), sides.running(sides.task("held", name="one")):  # its timeout is a minute
            await sides.drained("held")
    assert await assert_exact(sides, "held") == 20


async def test_a_task_ends_the_transaction_that_a_dead_task_left_open(sides: Sides) -> None:
    """It would hide the task's records from read_committed readers. The dead task had not yet added its positions to
    it, so the task does not have to wait for them.
    """
    await make(sides.source, "left", 1)
    await write(sides.source, "left", range(10), 1)
    async with sides.running(sides.task("left")):
        await sides.drained("left")
    await write(sides.source, "left", range(10, 20), 1)
    async with Producer(sides.target, transactional_id=transactional_id("default", "dead")) as dead:
        await dead.begin_transaction()
        await dead.send_and_wait("left", b"half", partition=0)
        async with sides.running(sides.task("left")), Admin(sides.target) as admin:
            await sides.drained("left")
            left = TopicPartition("left", 0)
            end = (await admin.ends([left], -1))[left]
            assert (await admin.ends([left], -1, "read_committed"))[left] == end
    assert await assert_exact(sides, "left") == 20


async def test_no_task_ends_what_a_cutover_or_another_mirrors_tasks_have_open(sides: Sides) -> None:
    await make(sides.source, "theirs", 1)
    await write(sides.source, "theirs", range(10), 1)
    cutover = Producer(sides.target, transactional_id=transactional_id("default", "cutover"))
    other = sides.task("theirs", "default-eu")
    async with cutover, sides.running(other):
        await sides.drained("theirs", mirror="default-eu")
        living = Producer(sides.target, transactional_id=other._id)  # what that task does next, made longer
        async with living:
            for each in (cutover, living):
                await each.begin_transaction()
                await each.send("theirs", b"x", partition=0)
                await each.flush()
            admin = Admin(sides.target)
            async with admin:
                leftovers = Leftovers(admin, "default", SYSTEM)
                await leftovers.end_orphans(patience_ms=0)
            for each in (cutover, living):
                await each.commit_transaction()  # raises if end_orphans() has ended it


async def test_a_task_cancelled_while_its_producer_starts_closes_the_producer(sides: Sides, monkeypatch) -> None:
    starting, closed = asyncio.Event(), list[Producer]()
    start, close = Producer.start, Producer.close

    async def hang(producer: Producer) -> None:
        await start(producer)
        starting.set()
        await asyncio.Event().wait()

    async def note(producer: Producer, **more: int) -> None:
        closed.append(producer)
        await close(producer, **more)

    await make(sides.source, "starting", 1)
    await write(sides.source, "starting", range(10), 1)
    monkeypatch.setattr(Producer, "start", hang)
    monkeypatch.setattr(Producer, "close", note)
    async with sides.running(sides.task("starting")):
        await starting.wait()
    assert len(closed) == 1


@pytest.mark.parametrize("turns", range(8))
async def test_a_task_cancelled_again_at_any_turn_while_it_closes_closes_everything(
    sides: Sides, monkeypatch, turns: int
) -> None:
    closed = list[str]()

    def noting(kind: type, name: str) -> None:
        close = kind.close

        async def note(self, **more: int) -> None:
            await close(self, **more)
            closed.append(name)

        monkeypatch.setattr(kind, "close", note)

    topic = f"leaving-{turns}"
    await make(sides.source, topic, 1)
    await write(sides.source, topic, range(10), 1)
    work = asyncio.ensure_future(sides.task(topic).run())
    await sides.drained(topic)
    for kind in (Admin, Membership, Producer):
        noting(kind, kind.__name__)
    work.cancel()
    for _ in range(turns):
        await asyncio.sleep(0)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert sorted(closed) == ["Admin", "Admin", "Membership", "Producer"]


class FastClock(SystemClock):
    """The clock of a machine that is a day ahead."""

    def now_ms(self) -> int:
        return super().now_ms() + 86_400_000


async def test_a_mirror_copies_records_although_its_own_clock_is_a_day_ahead(clusters) -> None:
    with Broker() as target:  # in which the map of offsets is still to be made
        sides = Sides(clusters[0], target.bootstrap_servers)
        await make(sides.source, "ahead")
        await write(sides.source, "ahead", range(10))
        async with sides.running(sides.task("ahead", environment=replace(SYSTEM, clock=FastClock()))):
            await sides.drained("ahead")
        assert await assert_exact(sides, "ahead") == 10


async def test_a_mirror_begins_at_the_first_offsets_of_the_source(sides: Sides) -> None:
    await make(sides.source, "trimmed")
    await write(sides.source, "trimmed", range(100))
    async with Admin(sides.source) as admin:
        await admin.delete_records({TopicPartition("trimmed", 0): 17, TopicPartition("trimmed", 1): 50})
    async with sides.running(sides.task("trimmed")):
        await sides.drained("trimmed")
        await write(sides.source, "trimmed", range(100, 140))
        await sides.drained("trimmed")
    assert await assert_exact(sides, "trimmed") == 73


async def test_map_entries_below_the_sources_first_offset_are_removed(sides: Sides) -> None:
    await make(sides.source, "moved", 1)
    for first in (0, 30, 60):
        await write(sides.source, "moved", range(first, first + 30), 1)
        async with sides.running(sides.task("moved")):
            await sides.drained("moved")
    assert sorted(key.first for key in await map_entries(sides) if key.topic == "moved") == [0, 30, 60]
    async with Admin(sides.source) as admin:
        await admin.delete_records({TopicPartition("moved", 0): 60})
    async with sides.running(sides.task("moved")):
        for first in (90, 91):  # the first of them shows where the log begins
            await write(sides.source, "moved", range(first, first + 1), 1)
            await sides.drained("moved")
    assert sorted(key.first for key in await map_entries(sides) if key.topic == "moved") == [60, 90]


async def test_tasks_of_a_mirror_share_the_partitions_while_tasks_join_and_leave(sides: Sides) -> None:
    await make(sides.source, "shared", 6)
    async with sides.running(sides.task("shared", "m2")):
        await write(sides.source, "shared", range(300), 6)
        await sides.drained("shared", mirror="m2")
    await write(sides.source, "shared", range(300, 600), 6)
    async with sides.running(sides.task("shared", "m2")) as one, sides.running(sides.task("shared", "m2")) as two:
        async with sides.running(sides.task("shared", "m2")) as three:
            await sides.joined(3, "m2")
            await write_transactions(sides.source, "shared", 10)
            await write(sides.source, "shared", range(2000, 2300), 6)
            await sides.drained("shared", mirror="m2")
            assert three.counts.records
        await sides.joined(2, "m2")
        await write(sides.source, "shared", range(600, 900), 6)
        await sides.drained("shared", mirror="m2")
        assert one.counts.records
        assert two.counts.records
    assert await assert_exact(sides, "shared", "m2") == 1200 + 7 * 3


async def test_mirror_tasks_can_use_the_consumer_group_protocol(sides: Sides) -> None:
    await make(sides.source, "newer", 4)
    more = {"group.protocol": "consumer"}
    async with sides.running(sides.task("newer", "m4", **more)), sides.running(sides.task("newer", "m4", **more)):
        await sides.joined(2, "m4")
        await write(sides.source, "newer", range(400), 4)
        await sides.drained("newer", mirror="m4")
    assert await assert_exact(sides, "newer", "m4") == 400


async def test_partitions_and_topics_added_at_the_source_are_mirrored(sides: Sides) -> None:
    await make(sides.source, "grows-a", 1)
    async with sides.running(sides.task("grows-.*")):
        await write(sides.source, "grows-a", range(20), 1)
        await sides.drained("grows-a")
        await make(sides.source, "grows-b", 2)
        async with Admin(sides.source) as admin:
            await admin.create_partitions({"grows-a": 3})
        await write(sides.source, "grows-a", range(20, 80), 3)
        await write(sides.source, "grows-b", range(20), 2)
        await sides.drained("grows-a", "grows-b")
    assert await assert_exact(sides, "grows-a") == 80
    assert await assert_exact(sides, "grows-b") == 20


async def stopped(sides: Sides, name: str, mirror: str = "default") -> str:
    """Run a task until all topics of this name have stopped. Returns the line that says why."""
    task = sides.task(name, mirror)
    async with asyncio.timeout(60):
        await task.run()
    assert list(task.counts.stopped) == [name]
    return sides.told[-1]


async def test_the_mirror_of_a_recreated_topic_stops(sides: Sides) -> None:
    await make(sides.source, "again")
    await write(sides.source, "again", range(20))
    async with sides.running(sides.task("again")):
        await sides.drained("again")
    async with Admin(sides.source) as admin:
        await admin.delete_topics("again")
    await make(sides.source, "again")
    await write(sides.source, "again", range(40, 80))
    before = await records_of(sides.target, "again")
    assert "stopped: again: it was deleted on the source and made again" in await stopped(sides, "again")
    assert await records_of(sides.target, "again") == before


async def test_the_mirror_of_a_topic_stops_if_retention_deleted_unmirrored_records(sides: Sides) -> None:
    await make(sides.source, "overtaken", 1)
    await write(sides.source, "overtaken", range(20), 1)
    async with sides.running(sides.task("overtaken")):
        await sides.drained("overtaken")
    await write(sides.source, "overtaken", range(20, 40), 1)
    async with Admin(sides.source) as admin:
        await admin.delete_records({TopicPartition("overtaken", 0): 25})
    line = await stopped(sides, "overtaken")
    assert "partition 0 of the source begins at offset 25, after the mirror's position 20" in line


async def test_the_mirror_of_a_topic_stops_if_its_records_were_replaced(sides: Sides) -> None:
    await make(sides.source, "forked", 1)
    await write(sides.source, "forked", range(20), 1)
    async with sides.running(sides.task("forked")):
        await sides.drained("forked")
    async with Admin(sides.target) as admin:
        tp = TopicPartition("forked", 0)
        at = (await admin.list_group_offsets(group_id("default")))[tp]
        position = decode_position(at)
        assert position.mark is not None
        # As if the last copied batch was another one than the source has now.
        other = position._replace(mark=position.mark._replace(crc=position.mark.crc ^ 1))
        await admin.alter_group_offsets(group_id("default"), {tp: encode_position(other)})
    await write(sides.source, "forked", range(20, 40), 1)
    line = await stopped(sides, "forked")
    assert "other records at offset" in line
    assert len((await records_of(sides.target, "forked"))[0]) == 20


async def test_the_mirror_of_a_topic_stops_if_its_log_was_truncated(sides: Sides) -> None:
    await make(sides.source, "cut", 1)
    await write(sides.source, "cut", range(20), 1)
    async with sides.running(sides.task("cut")):
        await sides.drained("cut")
    async with Admin(sides.target) as admin:
        tp = TopicPartition("cut", 0)
        position = decode_position((await admin.list_group_offsets(group_id("default")))[tp])
        # As if the source had had records up to offset 33.
        await admin.alter_group_offsets(group_id("default"), {tp: encode_position(position._replace(offset=33))})
    assert "ends at offset 20, before the mirror's position 33" in await stopped(sides, "cut")


async def test_the_mirror_of_a_topic_stops_if_others_wrote_to_its_target(sides: Sides) -> None:
    await make(sides.source, "foreign")
    await make(sides.target, "foreign")
    await write(sides.source, "foreign", range(20))
    await write(sides.target, "foreign", range(4))
    assert "has records, and this mirror has no position in it" in await stopped(sides, "foreign")
    assert sum(map(len, (await records_of(sides.target, "foreign")).values())) == 4


async def test_the_mirror_of_a_topic_with_more_partitions_on_the_target_stops(sides: Sides) -> None:
    await make(sides.source, "fewer", 2)
    await make(sides.target, "fewer", 3)
    assert "has 3 partitions on the target" in await stopped(sides, "fewer")


async def test_a_record_that_the_target_refuses_stops_the_mirror_of_its_topic(sides: Sides) -> None:
    await make(sides.source, "large", 1)
    await make(sides.target, "large", 1, max_message_bytes="2000")
    await write(sides.source, "large", range(10), 1)
    async with Producer(sides.source) as producer:
        await producer.send_and_wait("large", bytes(3000), partition=0)
    await write(sides.source, "large", range(10, 20), 1)
    line = await stopped(sides, "large")
    assert "the target does not take a record at offset 10" in line
    assert "max.message.bytes" in line
    assert not (await records_of(sides.target, "large"))[0]  # those before it were in the same transaction


async def test_records_of_a_transaction_in_one_partition_are_mirrored_together(sides: Sides) -> None:
    await make(sides.source, "whole", 1)
    async with (
        Producer(sides.source, transactional_id="w1") as one,
        Producer(sides.source, transactional_id="w2") as two,
    ):
        await one.begin_transaction()
        await one.send_and_wait("whole", b"1a", partition=0)
        await two.begin_transaction()
        await two.send_and_wait("whole", b"2a", partition=0)
        await one.send_and_wait("whole", b"1b", partition=0)
        await one.commit_transaction()
        async with sides.running(sides.task("whole")):
            await asyncio.sleep(1)  # the first half of the first one is below the last stable offset
            assert not (await records_of(sides.target, "whole"))[0]
            await two.send_and_wait("whole", b"2b", partition=0)
            await two.commit_transaction()
            await sides.drained("whole")
    assert await assert_exact(sides, "whole") == 4


async def test_a_mirror_of_another_source_waits_for_one_of_the_same_name_and_stops(sides: Sides) -> None:
    """The other source's topic has another id than the one that was mirrored, as if it had been made again."""
    await make(sides.source, "named")
    await write(sides.source, "named", range(20))
    with Broker() as other:
        await make(other.bootstrap_servers, "named")
        await write(other.bootstrap_servers, "named", range(50))
        async with sides.running(sides.task("named", "m3")):
            await sides.drained("named", mirror="m3")
            wrong = Sides(other.bootstrap_servers, sides.target)
            async with wrong.running(wrong.task("named", "m3")) as task:
                await wrong.told_something()
                assert wrong.told == ["waiting: another mirror of this name, from another source, to leave the group"]
                assert not task.counts.records
        assert "deleted on the source and made again" in await stopped(wrong, "named", "m3")
    assert await assert_exact(sides, "named", "m3") == 20


async def test_a_mirror_goes_on_after_the_source_or_target_broker_was_away() -> None:
    with Broker() as source, Broker() as target:
        sides = Sides(source.bootstrap_servers, target.bootstrap_servers)
        await make(sides.source, "away")
        async with sides.running(sides.task("away")):
            for number, broker in enumerate((target, source, target)):
                await write(sides.source, "away", range(100 * number, 100 * number + 50))
                await asyncio.to_thread(broker.kill)
                await asyncio.sleep(1)
                await asyncio.to_thread(broker.restart)
                await write(sides.source, "away", range(100 * number + 50, 100 * number + 100))
                await sides.drained("away")
        assert await assert_exact(sides, "away") == 300


async def test_a_mirror_to_a_throttled_target_copies_each_record_once(clusters: tuple[str, str]) -> None:
    """The target answers late, because of a quota for all clients; the source goes on being written to."""
    with Broker() as target:
        sides = Sides(clusters[0], target.bootstrap_servers)
        await make(sides.source, "throttled")
        async with Admin(sides.target) as admin:
            await admin.alter_client_quotas(QuotaEntity(client_id=DEFAULT_ENTITY), set={"producer_byte_rate": 5_000})
        async with Producer(sides.source) as producer:
            for each in range(80):
                await producer.send("throttled", b"%d" % each * 500, partition=each % 2)
        async with sides.running(sides.task("throttled")):
            await write_transactions(sides.source, "throttled", 20)
            await sides.drained("throttled")
        assert target.inside(lambda inner: inner.metrics.throttles)
        assert await assert_exact(sides, "throttled") == 80 + 3 * 14
    assert not sides.told
