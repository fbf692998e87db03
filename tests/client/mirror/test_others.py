"""What stops the mirror of a topic because of others: other mirrors, and whoever deletes the topic on the target."""

import asyncio
from collections.abc import Collection, Iterable

import pytest
from fencepost.broker.embedded.broker import Broker
from fencepost.client.admin.admin import Admin
from fencepost.client.admin.values import ConfigEntry, NewTopic
from fencepost.client.group.commits import GroupCommits
from fencepost.client.mirror import others, topics
from fencepost.client.mirror.findings import StoppedError
from fencepost.client.mirror.machine import Step
from fencepost.client.mirror.names import group_id
from fencepost.client.mirror.positions import Position, encode_position
from fencepost.client.mirror.task import MirrorTask
from fencepost.client.producer.producer import Producer
from fencepost.client.values import TopicPartition
from mirrored import Sides, assert_exact, records_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def clusters():
    """Give the bootstrap servers of two brokers: source and target."""
    with Broker() as source, Broker() as target:
        yield source.bootstrap_servers, target.bootstrap_servers


@pytest.fixture
def sides(clusters) -> Sides:
    return Sides(*clusters)


async def make(bootstrap: str, name: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topics(NewTopic(name, 1))


async def write(bootstrap: str, name: str, values: range) -> None:
    async with Producer(bootstrap) as producer:
        for each in values:
            await producer.send(name, b"v%d" % each, partition=0)
        await producer.flush()


async def stopped(task: MirrorTask) -> str:
    """Run a task until all its topics have stopped. Returns why."""
    async with asyncio.timeout(60):
        await task.run()
    (error,) = task.counts.stopped.values()
    return error.text


async def one_stopped(task: MirrorTask) -> str:
    """Wait until the running task has stopped its first topic. Returns why."""
    async with asyncio.timeout(60):
        while not task.counts.stopped:  # noqa: ASYNC110  # a dict of the task
            await asyncio.sleep(0.05)
    (error,) = task.counts.stopped.values()
    return error.text


async def positions_of(sides: Sides, mirror: str) -> set[TopicPartition]:
    async with Admin(sides.target) as admin:
        return set(await admin.list_group_offsets(group_id(mirror)))


async def test_a_second_mirror_of_an_empty_topic_stops_and_leaves_no_position(sides: Sides) -> None:
    """If the target had records, they alone would show that somebody else writes there. Here the topic is empty."""
    await make(sides.source, "twice")
    async with sides.running(sides.task("twice", "one")):
        await sides.drained("twice", mirror="one")
        why = await stopped(sides.task("twice", "two"))
        assert "another mirror copies to it on the target, with the group fencepost-mirror-one" in why
        assert not await positions_of(sides, "two")
        await write(sides.source, "twice", range(10))
        await sides.drained("twice", mirror="one")
    assert await assert_exact(sides, "twice", "one") == 10


async def test_two_mirrors_of_an_empty_topic_that_begin_at_once_do_not_both_copy_it(sides: Sides) -> None:
    await make(sides.source, "race")
    await write(sides.source, "race", range(10))
    both = [asyncio.ensure_future(sides.task("race", name).run()) for name in ("left", "right")]
    try:
        async with asyncio.timeout(60):
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            while not all(each.done() for each in both) and not await has_ten(sides):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    finally:
        for each in both:
            each.cancel()
        await asyncio.gather(*both, return_exceptions=True)
    assert len((await records_of(sides.target, "race"))[0]) in (0, 10)  # 0: each saw the other, and both stopped


async def has_ten(sides: Sides) -> bool:
    return len((await records_of(sides.target, "race"))[0]) >= 10


async def test_find_rivals_names_the_own_group_only_if_it_copies_from_another_source(sides: Sides) -> None:
    here, there, other = b"h" * 16, b"t" * 16, b"o" * 16
    await make(sides.target, "named")
    async with Admin(sides.target) as admin:
        at = {TopicPartition("named", 0): encode_position(Position(3, other, None, there))}
        await admin.alter_group_offsets(group_id("same"), at)
        for source, found in ((here, {"named": group_id("same")}), (other, {})):
            assert await others.find_rivals(admin, "same", {"named": there}, {"named": source}) == found


async def test_two_sources_with_one_name_are_not_mixed_by_the_newer_group_protocol() -> None:
    """By that protocol tasks of both sources may join the group, and each may commit first positions of some
    partitions.
    """
    quick = {"group_consumer_min_heartbeat_interval_ms": 100, "group_consumer_heartbeat_interval_ms": 100}
    with Broker() as first, Broker() as second, Broker(**quick) as target:
        both = [Sides(each.bootstrap_servers, target.bootstrap_servers) for each in (first, second)]
        for number, each in enumerate(both):
            async with Admin(each.source) as admin:
                await admin.create_topics(NewTopic("mixed", 4))
            async with Producer(each.source) as producer:
                for partition in range(4):
                    await producer.send("mixed", b"%d" % number, partition=partition)
        tasks = [each.task("mixed", **{"group.protocol": "consumer"}) for each in both]
        async with asyncio.timeout(60):
            running = [asyncio.ensure_future(task.run()) for task in tasks]
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for each in running:
                each.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        copied = await records_of(target.bootstrap_servers, "mixed")
        # Each value names its source: at most one of them was copied.
        assert len({record.value for records in copied.values() for record in records}) <= 1
        lines = [line for each in both for line in each.told if line.startswith("stopped")]
        assert lines
        assert all("from another source" in line for line in lines)


async def test_two_mirrors_that_copy_an_empty_topic_there_and_back_do_not_both_run(sides: Sides) -> None:
    """Both begin at once. Each looks for the other: the later one finds it and stops."""
    for at in (sides.source, sides.target):
        await make(at, "circle")
    back = Sides(sides.target, sides.source)
    tasks = sides.task("circle", "c-out"), back.task("circle", "c-home")
    both = [asyncio.ensure_future(task.run()) for task in tasks]
    async with asyncio.timeout(60):
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    for each in both:
        each.cancel()
    await asyncio.gather(*both, return_exceptions=True)
    assert any("records would go round" in line for line in [*sides.told, *back.told])


async def test_a_mirror_that_would_copy_in_a_circle_stops(sides: Sides) -> None:
    await make(sides.source, "round")
    back = Sides(sides.target, sides.source)
    async with sides.running(sides.task("round", "out")):
        await sides.drained("round", mirror="out")
        assert "records would go round" in await stopped(back.task("round", "home"))
        await write(sides.source, "round", range(10))
        await sides.drained("round", mirror="out")
    assert await assert_exact(sides, "round", "out") == 10


async def test_a_topic_deleted_on_the_target_stops_and_is_copied_anew_by_the_next_task(sides: Sides) -> None:
    """It stops also if the topic is made again before the task notices: otherwise only later records would be there."""
    await make(sides.source, "gone")
    await write(sides.source, "gone", range(10))
    async with sides.running(task := sides.task("gone")):
        await sides.drained("gone")
        async with Admin(sides.target) as admin:
            await admin.delete_topics("gone")
            await admin.create_topics(NewTopic("gone", 1))
        assert await one_stopped(task) == "gone: it was deleted on the target"
    await write(sides.source, "gone", range(10, 20))
    async with sides.running(sides.task("gone")):
        await sides.drained("gone")
    assert await assert_exact(sides, "gone") == 20


async def test_a_position_of_a_deleted_target_topic_does_not_count_for_a_new_one(sides: Sides) -> None:
    """Such a position is there if the broker keeps a group's offsets when it deletes a topic, or if a transaction
    commits them afterwards.
    """
    await make(sides.source, "kept")
    await write(sides.source, "kept", range(10))
    async with sides.running(sides.task("kept")):
        await sides.drained("kept")
    async with Admin(sides.target) as admin:
        kept = await admin.list_group_offsets(group_id("default"))
        await admin.delete_topics("kept")
        await admin.create_topics(NewTopic("kept", 1))
        await admin.alter_group_offsets(group_id("default"), {tp: kept[tp] for tp in kept if tp.topic == "kept"})
    async with sides.running(sides.task("kept")):
        async with asyncio.timeout(60):
            while len((await records_of(sides.target, "kept"))[0]) < 10:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    assert await assert_exact(sides, "kept") == 10


async def test_a_record_that_the_target_refuses_does_not_stop_other_topics(sides: Sides) -> None:
    """The refusal arrives while other records, also of other topics, are sent in the same transaction."""
    await make(sides.source, "refused-1")
    await make(sides.source, "refused-2")
    await write(sides.source, "refused-2", range(10))
    async with Producer(sides.source, compression_type="gzip", max_request_size=8 << 20) as producer:
        for value in (b"a", bytes(3_000_000), b"b"):
            await producer.send("refused-1", value, partition=0)
        await producer.flush()
    async with sides.running(task := sides.task("refused-.")):
        why = await one_stopped(task)
        await sides.drained("refused-2")
    assert why.startswith("refused-1: the target does not take a record at offset 1")
    assert await assert_exact(sides, "refused-2") == 10
    assert not (await records_of(sides.target, "refused-1"))[0]  # the record before it was in the same transaction


async def test_a_task_with_an_old_position_does_not_stop_a_topic_that_others_copy(sides: Sides) -> None:
    """While a task slept, another one copied records that retention then deleted at the source. The first one's own
    position is below them, which would else stop the topic.
    """
    await make(sides.source, "old")
    await write(sides.source, "old", range(10))
    tp = TopicPartition("old", 0)
    async with sides.running(task := sides.task("old")):
        await sides.drained("old")
        task._take = list  # type: ignore[method-assign]  # it copies nothing
        await write(sides.source, "old", range(10, 20))
        await write(sides.target, "old", range(10, 20))
        position = dict(task._task.positions)[tp]
        moved = {tp: encode_position(position._replace(offset=20, mark=None))}
        await task._membership._group.commit(moved)  # type: ignore[union-attr]
        # As after retention has deleted up to offset 20 at the source.
        task._source.failed = StoppedError("old", "it begins after the mirror's position")
        del task._take
        await write(sides.source, "old", range(20, 25))
        await sides.drained("old")
    assert not sides.told
    assert [each.value for each in (await records_of(sides.target, "old"))[0]] == [b"v%d" % each for each in range(25)]


async def test_a_task_goes_on_where_another_task_began_while_it_looked_at_the_target(sides: Sides) -> None:
    """A sleeping task has seen no position; when it wakes, the other has committed one and has written."""
    await make(sides.source, "late")
    await write(sides.source, "late", range(10))
    async with sides.running(task := sides.task("late")):
        on_source = task._ids.on_source

        async def sleep_meanwhile(names: Iterable[str]) -> dict[str, bytes]:
            ids = await on_source(names)
            if list(ids) == ["late"] and task._task.step is Step.ASKING and not asleep:
                asleep.append(True)
                copies = await task._ids.on_target(["late"])
                first = encode_position(Position(1, ids["late"], None, copies["late"]))
                await task._membership._group.commit({TopicPartition("late", 0): first})  # type: ignore[union-attr]
                await write(sides.target, "late", range(1))
            return ids

        asleep: list[bool] = []
        task._ids.on_source = sleep_meanwhile  # type: ignore[method-assign]
        await sides.drained("late")
    assert asleep
    assert not sides.told
    assert [each.value for each in (await records_of(sides.target, "late"))[0]] == [b"v%d" % each for each in range(10)]


async def test_a_topic_whose_settings_the_target_refuses_stops_alone(sides: Sides, monkeypatch) -> None:
    """An older Kafka takes values that the target does not take. Made there by hand, the topic is copied."""
    made = topics.configs_to_make

    def refused(source: Iterable[ConfigEntry], known: Collection[str]) -> dict[str, str]:
        odd = any(each.name == "retention.ms" and each.value == "7777777" for each in source)
        return made(source, known) | ({"segment.bytes": "1"} if odd else {})

    monkeypatch.setattr(topics, "configs_to_make", refused)
    await make(sides.source, "odd-1")
    await make(sides.source, "odd-2")
    async with Admin(sides.source) as admin:
        await admin.alter_configs(topic="odd-1", set={"retention.ms": "7777777"})
    for name in ("odd-1", "odd-2"):
        await write(sides.source, name, range(10))
    async with sides.running(task := sides.task("odd-.")):
        assert "Invalid value 1 for configuration segment.bytes" in await one_stopped(task)
        await sides.drained("odd-2")
    await make(sides.target, "odd-1")
    async with sides.running(sides.task("odd-.")):
        await sides.drained("odd-1")
    assert [await assert_exact(sides, name) for name in ("odd-1", "odd-2")] == [10, 10]


async def test_a_task_commits_its_first_positions_in_a_transaction(sides: Sides, monkeypatch) -> None:
    """A plain commit may arrive late, on a connection that was given up, and set the positions back."""

    async def refuse(*args: object, **more: object) -> None:
        raise AssertionError("a plain commit")

    monkeypatch.setattr(GroupCommits, "commit", refuse)
    await make(sides.source, "first")
    await write(sides.source, "first", range(10))
    async with sides.running(sides.task("first")):
        await sides.drained("first")
    assert await assert_exact(sides, "first") == 10
