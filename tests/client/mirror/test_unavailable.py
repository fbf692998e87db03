"""A partition of the source that has no leader, or whose leader does not answer, holds up no other partition."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from fencepost.broker.embedded.broker import Broker
from fencepost.client.admin.admin import Admin
from fencepost.client.admin.reading import FetchedPage
from fencepost.client.admin.values import NewTopic
from fencepost.client.errors import refusal
from fencepost.client.mirror.task import MirrorTask
from fencepost.client.producer.producer import Producer
from fencepost.client.values import TopicPartition
from fencepost.protocol.errors import ErrorCode
from mirrored import PATIENCE_S, Sides, assert_exact, records_of

pytestmark = pytest.mark.slow
AWAY = TopicPartition("away", 1)


@pytest.fixture
def sides():
    """Give two brokers without topics: see make_topics()."""
    with Broker() as source, Broker() as target:
        yield Sides(source.bootstrap_servers, target.bootstrap_servers)


async def make_topics(sides: Sides) -> None:
    async with Admin(sides.source) as admin:
        await admin.create_topics([NewTopic("away", 2), NewTopic("led", 2)])


async def write(sides: Sides, values: range) -> None:
    """Write to all four partitions."""
    async with Producer(sides.source) as producer:
        for each in values:
            for topic in ("away", "led"):
                await producer.send(topic, b"%d" % each, partition=each % 2)
        await producer.flush()


class Leaders:
    """Has the task see this broker as the leader of the partition AWAY, until is_back."""

    def __init__(self, task: MirrorTask, leader: int) -> None:
        self.is_back = False
        ask = task._source_admin._leaders

        async def leaders(partitions: Iterable[TopicPartition], *, skip_missing: bool) -> dict[TopicPartition, int]:
            found = await ask(partitions, skip_missing=skip_missing)
            return found if self.is_back else {tp: leader if tp == AWAY else found[tp] for tp in found}

        task._source_admin._leaders = leaders  # type: ignore[method-assign]


async def wait_until_copied(sides: Sides, partition: int, count: int) -> None:
    """Wait until this partition of the topic `away` has `count` records on the target."""
    async with asyncio.timeout(PATIENCE_S):
        while len((await records_of(sides.target, "away"))[partition]) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("leader", [pytest.param(-1, id="no leader"), pytest.param(77, id="an unreachable leader")])
@pytest.mark.parametrize("is_known", [pytest.param(False, id="from the start"), pytest.param(True, id="later")])
async def test_a_source_partition_without_a_leader_holds_up_only_itself(
    sides: Sides, leader: int, is_known: bool
) -> None:
    await make_topics(sides)
    await write(sides, range(10))
    if is_known:
        async with sides.running():
            await sides.drained("away", "led")
        await write(sides, range(10, 20))
    task = sides.task()
    leaders = Leaders(task, leader)
    async with sides.running(task):
        await sides.drained("led")
        await wait_until_copied(sides, 0, 10 if is_known else 5)
        await write(sides, range(20, 30))
        await sides.drained("led")
        assert len((await records_of(sides.target, "away"))[1]) == (5 if is_known else 0)
        (line,) = sides.told
        assert line.startswith("waiting: away-1 of the source: ")
        leaders.is_back = True
        await sides.drained("away", "led")
    assert sides.told == [line]
    assert [await assert_exact(sides, topic) for topic in ("away", "led")] == [30 if is_known else 20] * 2


async def test_a_source_partition_that_refuses_every_fetch_holds_up_only_itself(sides: Sides) -> None:
    """Its leader answers where the partition ends, and refuses each fetch with NOT_LEADER_OR_FOLLOWER."""
    await make_topics(sides)
    await write(sides, range(10))
    task = sides.task()
    read_page, refused = task._source_admin.read_page, [True]

    async def read(partition: TopicPartition, start: int, **more: object) -> FetchedPage:
        if partition == AWAY and refused:
            raise refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return await read_page(partition, start, **more)  # type: ignore[arg-type]

    task._source_admin.read_page = read  # type: ignore[method-assign]
    async with sides.running(task):
        await sides.drained("led")
        await wait_until_copied(sides, 0, 5)
        (line,) = sides.told
        assert line.startswith("waiting: away-1 of the source: ")
        refused.clear()
        await sides.drained("away", "led")
    assert await assert_exact(sides, "away") == 10


@pytest.mark.parametrize("is_partition", [True, False], ids=["a partition", "the source"])
async def test_a_topic_stops_if_its_source_comes_back_with_other_records_and_no_new_one(
    sides: Sides, is_partition: bool
) -> None:
    """As if it was restored while it was away, to the same length."""
    await make_topics(sides)
    await write(sides, range(10))
    task = sides.task()
    leaders, ends, is_away = Leaders(task, -1), task._source_admin.ends, [False]
    leaders.is_back = True

    async def fail_while_away(*args: Any, **more: Any) -> dict[TopicPartition, int]:
        if is_away[0]:
            raise refusal(ErrorCode.NETWORK_EXCEPTION)
        return await ends(*args, **more)

    task._source_admin.ends = fail_while_away  # type: ignore[method-assign]
    async with sides.running(task):
        await sides.drained("away", "led")
        ahead = task._aheads[AWAY]
        assert ahead._last is not None
        # As if the last batch at the source was another one.
        ahead._last = ahead._last._replace(crc=ahead._last.crc ^ 1)
        leaders.is_back, is_away[0] = not is_partition, not is_partition
        await sides.told_something()
        leaders.is_back, is_away[0] = True, False
        async with asyncio.timeout(PATIENCE_S):
            while not task.counts.stopped:  # noqa: ASYNC110  # a dict of the task
                await asyncio.sleep(0.05)
    assert "partition 1 of the source has other records at offset" in task.counts.stopped["away"].text
