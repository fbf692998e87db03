"""The map of offsets as a cutover reads it: after entries were removed from it, and after a topic was copied anew."""

import asyncio

import pytest
from fencepost.broker.embedded.broker import Broker
from fencepost.client.admin.admin import Admin
from fencepost.client.admin.values import NewTopic
from fencepost.client.mirror.cutover.looking import Looking
from fencepost.client.mirror.cutover.running import CutoverFailed, cut_over
from fencepost.client.mirror.cutover.sides import AdminSides
from fencepost.client.mirror.names import MAP_TOPIC, group_id
from fencepost.client.mirror.positions import decode_position, encode_position
from fencepost.client.producer.producer import Producer
from fencepost.client.values import TopicPartition
from mirrored import Sides, assert_exact, records_of
from plain_mirror import values_from

pytestmark = pytest.mark.slow
T0 = TopicPartition("t", 0)


@pytest.fixture
def sides(monkeypatch):
    """Give two brokers, with a topic `t` of one partition at the source."""
    monkeypatch.setattr("fencepost.client.mirror.cutover.sides.QUIET_S", 0.02)
    with Broker() as source, Broker() as target:
        made = Sides(source.bootstrap_servers, target.bootstrap_servers)

        async def make():
            async with Admin(made.source) as admin:
                await admin.create_topics(NewTopic("t", 1))

        asyncio.run(make())
        yield made


async def write(sides, first, count, *, commits=True):
    """Write transactions of one record each, with the numbers from `first` on. commits: False aborts them."""
    async with Producer(sides.source, transactional_id="w") as producer:
        for each in range(first, first + count):
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"%d" % each, partition=0)
            await (producer.commit_transaction() if commits else producer.abort_transaction())


async def move(sides, groups=".*"):
    """Run a cutover of the groups with names that match this pattern."""
    async with Admin(sides.source) as source, Admin(sides.target) as target:
        cutover = AdminSides(
            Looking(source, target, "default", groups),
            lambda name: Producer(sides.target, transactional_id=name),
            wait_s=5,
        )
        try:
            await cut_over(cutover, lambda line: None)
        finally:
            await cutover.close()


class Killed(BaseException):
    """The process is gone."""


async def kill_after_its_commit(sides, monkeypatch):
    """Run a cutover of the group g that dies once its offsets are committed."""

    async def die(*args, **more):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("fencepost.client.mirror.cutover.running._look_again", die)
        with pytest.raises(Killed):
            await move(sides, "g")


async def assert_group_continues_at(sides, offset):
    """Assert that group g reads the same values from its offset at the target as from this offset at the source."""
    async with Admin(sides.source) as source, Admin(sides.target) as target:
        moved = await target.list_group_offsets("g")
        assert await values_from(target, T0, moved[T0].offset) == await values_from(source, T0, offset)


async def test_a_map_entry_that_grew_since_it_was_read_is_not_removed_with_old_records(sides):
    task = sides.task("t")
    async with sides.running(task), Admin(sides.source) as source:
        await write(sides, 0, 100)
        await sides.drained("t")
        await asyncio.sleep(1)  # the task looks at the map
        task._follow_ms = 600_000  # and not again
        await write(sides, 100, 600)  # the entry becomes full, and another one is begun
        await sides.drained("t")
        await source.delete_records({T0: 300})
        for each in range(3):
            await write(sides, 700 + each, 1)
            await sides.drained("t")
        await source.alter_group_offsets("g", {T0: 400})
        await move(sides)
    await assert_group_continues_at(sides, 400)


async def test_a_topic_may_be_copied_anew_by_a_mirror_of_the_same_name(sides):
    async with Admin(sides.source) as source, Admin(sides.target) as target:
        for first in (0, 10, 20):
            async with sides.running(sides.task("t")):
                await write(sides, first, 10)
                await sides.drained("t")
        await target.delete_groups([group_id("default")])  # the positions have expired
        await target.delete_topics("t")
        async with sides.running(sides.task("t")):
            await sides.drained("t")
            assert await assert_exact(sides, "t") == 30
            await source.alter_group_offsets("g", {T0: 25})
            await move(sides)
    await assert_group_continues_at(sides, 25)


async def test_a_cutover_moves_groups_of_a_partition_whose_records_are_all_gone(sides):
    async with sides.running(sides.task("t")):
        await write(sides, 0, 10)
        await sides.drained("t")
    async with Admin(sides.source) as source:
        end = (await source.ends([T0], -1))[T0]
        await source.delete_records({T0: end})
        async with sides.running(sides.task("t")):
            for first in (10, 20):
                await write(sides, first, 2, commits=False)
                await sides.drained("t")
            await source.alter_group_offsets("g", {T0: end})
            await move(sides)
    await assert_group_continues_at(sides, end)


async def test_a_cutover_of_other_groups_leaves_those_of_a_killed_one_alone(sides, monkeypatch):
    async with sides.running(sides.task("t")), Admin(sides.source) as source, Admin(sides.target) as target:
        await write(sides, 0, 10)
        await source.alter_group_offsets("g", {T0: 4})
        await source.alter_group_offsets("other", {T0: 6})
        await sides.drained("t")
        await kill_after_its_commit(sides, monkeypatch)
        before = await target.list_group_offsets("g")
        await move(sides, "other")
        assert await target.list_group_offsets("g") == before != {}
        # Source offset 6 is the record after that at 4: there is a marker between. The target has none there.
        assert (await target.list_group_offsets("other"))[T0] == before[T0]._replace(offset=before[T0].offset + 1)


async def test_a_killed_cutover_is_undone_although_its_group_is_gone_at_the_source(sides, monkeypatch):
    async with sides.running(sides.task("t")), Admin(sides.source) as source, Admin(sides.target) as target:
        await write(sides, 0, 10)
        await source.alter_group_offsets("g", {T0: 4})
        await sides.drained("t")
        await kill_after_its_commit(sides, monkeypatch)
        await source.delete_groups(["g"])
        with pytest.raises(CutoverFailed) as failed:
            await move(sides)
        assert failed.value.now == "taken back"
        assert await target.list_group_offsets("g") == {}
        await write(sides, 10, 1)  # the source allows writes again


async def test_a_cutover_moves_no_group_to_offsets_of_which_the_map_was_lost(sides):
    """If the map's topic is deleted, the mirror makes a new one, without entries of what was copied before."""
    await write(sides, 0, 10)
    async with sides.running():
        await sides.drained("t")
        async with Admin(sides.target) as target:
            await target.delete_topics(MAP_TOPIC)
    await write(sides, 10, 10)
    async with Admin(sides.source) as source:
        await source.alter_group_offsets("g", {T0: 5})
    async with sides.running():
        await sides.drained("t")
        with pytest.raises(CutoverFailed, match="t-0: it does not say where source offset 5 went, and begins at 20"):
            await move(sides, "g")
        async with Admin(sides.source) as source:
            await source.alter_group_offsets("g", {T0: 22})
        await move(sides, "g")
    await assert_group_continues_at(sides, 22)


async def test_a_running_mirror_goes_on_after_the_topic_of_its_map_was_deleted(sides):
    async with sides.running(sides.task("t")) as task:
        for first in range(0, 50, 10):
            await write(sides, first, 10)
            await sides.drained("t")
        async with asyncio.timeout(60), Admin(sides.target) as target:
            while not task._leftovers._read_to:  # noqa: ASYNC110  # it has read the map
                await asyncio.sleep(0.05)
            await target.delete_topics(MAP_TOPIC)
            while MAP_TOPIC not in await target.describe_topics():  # noqa: ASYNC110  # the task makes it again
                await asyncio.sleep(0.05)
        await write(sides, 50, 10)
        await sides.drained("t")
    assert len((await records_of(sides.target, "t"))[0]) == 60


async def test_a_mirror_goes_on_after_records_of_its_map_were_deleted(sides):
    map_ = TopicPartition(MAP_TOPIC, 0)
    async with sides.running(sides.task("t")), Admin(sides.target) as target:
        await write(sides, 0, 10)
        await sides.drained("t")
        await target.alter_configs(topic=MAP_TOPIC, set={"cleanup.policy": "compact,delete"})
        await target.delete_records({map_: (await target.ends([map_], -1))[map_]})
    await write(sides, 10, 10)
    async with sides.running(sides.task("t")):
        await sides.drained("t")
    assert len((await records_of(sides.target, "t"))[0]) == 20


async def test_a_cutover_fails_if_the_source_was_restored_to_the_same_length(sides):
    """No new record makes the mirror read: so only the cutover compares the last copied batch with the source's."""
    await write(sides, 0, 10)
    async with Admin(sides.source) as source, Admin(sides.target) as target:
        await source.alter_group_offsets("g", {T0: 5})
        async with sides.running():
            await sides.drained("t")
        position = decode_position((await target.list_group_offsets(group_id("default")))[T0])
        # As if the last copied batch was another one than the source has now.
        other = position._replace(mark=position.mark._replace(crc=position.mark.crc ^ 1))
        await target.alter_group_offsets(group_id("default"), {T0: encode_position(other)})
    with pytest.raises(CutoverFailed, match="t-0 has other records at offset 19 of the source than were copied"):
        await move(sides, "g")
    async with asyncio.timeout(60):
        await sides.task("t").run()
    assert "has other records at offset 19" in sides.told[-1]
