"""Why a task has stopped a topic is in its positions, where the status of the mirror finds it."""

import asyncio
from dataclasses import replace

import pytest
from fencepost.broker.embedded.broker import Broker
from fencepost.client.admin.admin import Admin
from fencepost.client.admin.values import NewTopic
from fencepost.client.mirror.cutover.looking import Looking
from fencepost.client.mirror.names import group_id
from fencepost.client.mirror.positions import decode_position, encode_position
from fencepost.client.mirror.status import gather
from fencepost.client.mirror.task import MirrorTask
from fencepost.client.producer.producer import Producer
from fencepost.client.values import ConsumerGroupMetadata, TopicPartition
from mirrored import PATIENCE_S, Sides, assert_exact

pytestmark = pytest.mark.slow
LARGE, OTHER = TopicPartition("large", 0), TopicPartition("other", 0)


@pytest.fixture
def sides():
    """Give two brokers. The target's topic `large` refuses records above 2000 bytes, of which the source has one."""
    with Broker() as source, Broker() as target:
        made = Sides(source.bootstrap_servers, target.bootstrap_servers)
        asyncio.run(prepare(made))
        yield made


async def prepare(sides: Sides) -> None:
    async with Admin(sides.source) as source, Admin(sides.target) as target:
        await source.create_topics([NewTopic("large", 1), NewTopic("other", 1)])
        await target.create_topics([NewTopic("large", 1, configs={"max.message.bytes": "2000"})])
    await write(sides, "large", b"a", bytes(3000), b"b")
    await write(sides, "other", b"1", b"2")


async def write(sides: Sides, topic: str, *values: bytes) -> None:
    async with Producer(sides.source) as producer:
        for value in values:
            await producer.send_and_wait(topic, value, partition=0)


async def all_stopped(sides: Sides) -> dict[TopicPartition, str]:
    """Return what the status of the mirror says of stopped partitions."""
    async with Admin(sides.source) as source, Admin(sides.target) as target:
        return dict((await gather(Looking(source, target, "default", ""))).stopped)


async def has_stopped(task: MirrorTask) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not task.counts.stopped:  # noqa: ASYNC110  # a dict of the task
            await asyncio.sleep(0.05)


async def test_the_status_says_why_a_task_has_stopped_a_topic_until_one_goes_on(sides: Sides) -> None:
    async with sides.running(task := sides.task()):
        await has_stopped(task)
        await write(sides, "other", b"3")
        await sides.drained("other")
        stopped = await all_stopped(sides)
    assert list(stopped) == [LARGE]
    assert stopped[LARGE].startswith("the target does not take a record at offset 1: ")
    assert "raise max.message.bytes of the topic on the target; then start the mirror again" in stopped[LARGE]
    assert await all_stopped(sides) == stopped  # no task runs any more
    async with Admin(sides.target) as target:
        await target.alter_configs(topic="large", set={"max.message.bytes": "1000000"})
    async with sides.running(sides.task()):
        await sides.drained("large", "other")
    assert await all_stopped(sides) == {}
    assert [await assert_exact(sides, topic) for topic in ("large", "other")] == [3, 3]


async def test_a_task_that_ends_because_all_its_topics_have_stopped_has_said_why(sides: Sides) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await sides.task("large").run()
    assert list(await all_stopped(sides)) == [LARGE]


async def test_a_task_that_goes_on_clears_its_stop_reason_even_without_new_records(sides: Sides) -> None:
    async with sides.running(sides.task("other")):
        await sides.drained("other")
    async with Admin(sides.target) as target:
        position = decode_position((await target.list_group_offsets(group_id("default")))[OTHER])
        at = encode_position(position._replace(stopped="another mirror copies to it"))
        await target.alter_group_offsets(group_id("default"), {OTHER: at})
    assert list(await all_stopped(sides)) == [OTHER]
    async with asyncio.timeout(PATIENCE_S), sides.running(sides.task("other")):
        while await all_stopped(sides):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_a_task_whose_generation_is_over_writes_no_reason_and_copies_other_topics(sides: Sides) -> None:
    """Its partition belongs to another task by then, which finds the reason itself."""
    async with sides.running(task := sides.task()):
        await has_stopped(task)
        await sides.drained("other")
        before = await all_stopped(sides)
        member, error = task._task.member, task.counts.stopped["large"]
        assert member is not None
        task._task = replace(task._task, member=ConsumerGroupMetadata(member.group_id, 0, member.member_id))
        error.why = "of an older generation"
        await task._stop(error)
        assert await all_stopped(sides) == before
        await write(sides, "other", b"3")
        await sides.drained("other")
