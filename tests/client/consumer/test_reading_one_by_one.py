"""Partitions that are not read now do not keep others from being read, and each record that is given is a poll."""

import asyncio

import pytest
from fencepost.client.producer.producer import Producer
from fencepost.client.values import TopicPartition
from long_runs import first_only
from reading import all_there, make, reader, values, write
from txn_world import BOOTSTRAP, within

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SMALL = {"fetch_max_bytes": 8_000, "max_partition_fetch_bytes": 8_000}


async def with_t0_filling_the_room(world, consumer):
    """Assign T0 and T1, and wait until records of T0 fill all room for fetched records; then write one to T1."""
    await make(world, 2)
    await write(world, *[b"%04d" % n + bytes(1000) for n in range(20)])
    consumer.assign([T0, T1])
    assert await consumer.position(T0) == 0
    await asyncio.sleep(5)
    assert consumer._subscription.state(T0).fetched_bytes >= 8_000
    await write(world, b"late", partition=1)


def test_fetched_records_of_a_paused_partition_are_dropped_and_fetched_again():
    async def main(world):
        async with reader(world, **SMALL) as consumer:
            await with_t0_filling_the_room(world, consumer)
            consumer.pause(T0)
            async with asyncio.timeout(60):
                assert (await consumer.getone()).value == b"late"
            consumer.resume(T0)
            assert [value[:4] for value in await all_there(consumer, 20)] == [b"%04d" % n for n in range(20)]

    within(main)


@pytest.mark.parametrize("how", ["getone", "getmany"])
def test_a_partition_can_be_read_while_others_records_fill_the_fetch_buffer(how):
    async def main(world):
        async with reader(world, **SMALL) as consumer:
            await with_t0_filling_the_room(world, consumer)
            async with asyncio.timeout(60):
                if how == "getone":
                    assert (await consumer.getone(T1)).value == b"late"
                else:
                    assert values((await consumer.getmany(T1, timeout_ms=50_000))[T1]) == [b"late"]
            assert [value[:4] for value in await all_there(consumer, 20)] == [b"%04d" % n for n in range(20)]

    within(main)


def test_fetched_records_are_not_fetched_again_while_all_partitions_are_read():
    async def main(world):
        async with reader(world, **SMALL) as consumer:
            await with_t0_filling_the_room(world, consumer)
            epoch = consumer._subscription.state(T0).epoch  # it grows when fetched records are dropped
            assert len(await all_there(consumer, 21)) == 21
            assert consumer._subscription.state(T0).epoch == epoch

    within(main)


@pytest.mark.slow
@pytest.mark.parametrize("one_by_one", first_only([True, False]))
@pytest.mark.parametrize("commits_itself", [True, False])
def test_iterating_records_counts_as_polling_for_max_poll_interval(one_by_one, commits_itself):
    async def main(world):
        async with Producer(BOOTSTRAP, environment=world.world.environment, linger_ms=50) as producer:
            for n in range(30):  # in one batch, which is given without another look at the group
                await producer.send("t", b"%d" % n)
        settings = {"group_id": "g", "max_poll_interval_ms": 60_000, "enable_auto_commit": commits_itself}
        async with reader(world, topics=["t"], **settings) as consumer:
            found = [(await consumer.getone()).value]
            generation = consumer.group_metadata().generation
            while len(found) < 30:
                await asyncio.sleep(20)  # its handler
                found.append((await (consumer.getone() if one_by_one else anext(consumer))).value)
            assert found == [b"%d" % n for n in range(30)]
            assert consumer.group_metadata().generation == generation
            committed = (await consumer.committed(T0))[T0]
            # An automatic commit leaves out what was returned since the last poll.
            assert (committed is not None and committed.offset >= 28) is commits_itself

    within(main)


@pytest.mark.slow
def test_a_member_that_reads_nothing_past_max_poll_interval_is_removed():
    async def main(world):
        await write(world, b"a", b"b")
        async with reader(world, topics=["t"], group_id="g", max_poll_interval_ms=60_000) as consumer:
            await consumer.getone()
            await asyncio.sleep(70)
            assert not world.broker.groups.groups["g"].members

    within(main)


def test_calling_getmany_in_a_loop_lets_other_tasks_run():
    async def main(world):
        await make(world, 1)
        async with reader(world) as consumer:
            consumer.assign([T0])
            turns = []

            async def other():
                for turn in range(5):
                    turns.append(turn)
                    await asyncio.sleep(0)

            task = asyncio.ensure_future(other())
            for _ in range(10):
                await consumer.getmany()
            assert len(turns) == 5
            await task

    within(main)


@pytest.mark.slow
@pytest.mark.parametrize("group_id", [None, "g"])
def test_a_topic_that_does_not_exist_is_named_in_the_log_once(group_id, caplog):
    async def main(world):
        async with reader(world, topics=["t", "u"], group_id=group_id, metadata_max_age_ms=1_000) as consumer:
            await consumer.getmany(timeout_ms=10_000)
            await write(world, b"a")
            assert (await consumer.getone()).value == b"a"

    within(main)
    warned = [one.getMessage() for one in caplog.records if "does not exist" in one.getMessage()]
    assert [text.split("'")[1] for text in warned] == ["t", "u"]
