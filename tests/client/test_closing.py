"""Closing while others still wait: in its time, and they are told what is known, not that they were cancelled."""

import asyncio

import pytest
from fencepost.client.consumer.polls import Polls
from fencepost.client.errors import ClosedError, CommitOutcomeUnknownError, IllegalStateError
from fencepost.client.transactions.driver import SHIELD_S
from fencepost.client.values import TopicPartition
from reading import make, member, reader, write
from txn_world import TxnWorld, within

both = pytest.mark.parametrize("version", [1, 2])


async def _write(producer, value):
    async with producer.transaction() as tx:
        await tx.send("t", value)


async def _closed_within(producer, seconds, timeout_ms):
    loop = asyncio.get_running_loop()
    before = loop.time()
    await producer.close(timeout_ms=timeout_ms)
    assert loop.time() - before <= seconds


@both
@pytest.mark.parametrize(("timeout_ms", "seconds"), [(1_000, 1.5), (None, 31)])
def test_a_commit_cut_off_by_close_raises_commit_outcome_unknown(version, timeout_ms, seconds):
    async def main(world: TxnWorld) -> None:
        producer = await world.producer()
        await _write(producer, b"a")
        world.faults.blackhole("EndTxn", when="after_write")
        writing = asyncio.create_task(_write(producer, b"b"))
        await asyncio.sleep(0.5)
        await _closed_within(producer, seconds, timeout_ms)
        with pytest.raises(CommitOutcomeUnknownError):
            await asyncio.wait_for(writing, 1)

    within(main, version)


@both
def test_a_transaction_cut_off_by_close_before_its_commit_raises_closed_error(version):
    async def main(world: TxnWorld) -> None:
        producer = await world.producer()
        await _write(producer, b"a")
        silence = world.faults.blackhole("Produce", when="before_write")
        writing = asyncio.create_task(_write(producer, b"b"))
        await asyncio.sleep(0.5)
        await _closed_within(producer, 1.5, 1_000)
        with pytest.raises(ClosedError):
            await asyncio.wait_for(writing, 10)
        world.faults.remove(silence)
        assert await world.values() == [b"a"]

    within(main, version)


@pytest.mark.parametrize("offsets", [None, {TopicPartition("t", 0): 1}])
def test_commits_work_in_a_listener_during_close_and_are_refused_after_it(offsets):
    class Commits:
        def on_partitions_assigned(self, partitions):
            pass

        async def on_partitions_revoked(self, partitions):
            await consumer.commit(offsets)
            seen.append((await consumer.committed(*partitions), consumer.group_metadata().generation))
            with pytest.raises(ClosedError):
                await consumer.getone()

    async def main(world: TxnWorld) -> None:
        nonlocal consumer
        await make(world)
        await write(world, b"a", b"b")
        consumer = reader(world, group_id="g")
        consumer.subscribe(["t"], listener=Commits())
        async with consumer:
            assert (await consumer.getone()).value == b"a"
        ((committed, generation),) = seen
        assert committed[TopicPartition("t", 0)].offset == 1
        assert generation == 1
        with pytest.raises(ClosedError):
            await consumer.commit()

    consumer, seen = None, []
    within(main)


def test_a_cancelled_commit_raises_cancelled_error_although_close_runs():
    async def main(world: TxnWorld) -> None:
        producer = await world.producer()
        await _write(producer, b"a")
        world.faults.blackhole("Produce", when="before_write")
        writing = asyncio.create_task(_write(producer, b"b"))
        await asyncio.sleep(0.5)
        writing.cancel()
        closing = asyncio.create_task(producer.close(timeout_ms=3_000))
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(writing, 30)
        await closing

    within(main)


@both
@pytest.mark.parametrize("where", ["in its block", "in its commit"])
def test_a_cancelled_transaction_ends_after_shield_s_and_the_next_one_aborts_it(version, where):
    """The abort is shielded from cancellation for SHIELD_S seconds only, since the broker does not answer."""

    async def main(world: TxnWorld) -> None:
        producer = await world.producer()
        await _write(producer, b"a")
        silence = world.faults.blackhole("Produce", when="before_write")

        async def work():
            async with producer.transaction() as tx:
                await tx.send("t", b"b")
                if where == "in its block":
                    await asyncio.sleep(100)

        writing = asyncio.create_task(work())
        await asyncio.sleep(0.5)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(writing, SHIELD_S + 0.5)
        world.faults.remove(silence)
        await _write(producer, b"c")
        assert await world.values() == [b"a", b"c"]

    within(main, version)


@pytest.mark.parametrize("how", ["close", "unsubscribe"])
def test_a_poll_with_a_slow_listener_is_not_cancelled_by_close_or_unsubscribe(how):
    class Slow:
        async def on_partitions_assigned(self, partitions):
            await asyncio.sleep(1_000)

        def on_partitions_revoked(self, partitions):
            pass

    async def main(world: TxnWorld) -> None:
        await make(world)
        consumer = reader(world, group_id="g")
        consumer.subscribe(["t"], listener=Slow())
        async with consumer:
            polling = asyncio.create_task(consumer.getmany(timeout_ms=60_000))
            await asyncio.sleep(10)
            await (consumer.close() if how == "close" else consumer.unsubscribe())
            await asyncio.wait({polling})
            assert not polling.cancelled()
            if how == "close":
                assert isinstance(polling.exception(), ClosedError)
            else:
                assert polling.result() == {}
                assert consumer.state().membership == "unjoined", "it did not join again, for no topics"

    within(main)


@pytest.mark.parametrize("timeout_ms", [0, 1, 5_000])
def test_a_consumer_closed_while_it_looks_for_its_position_leaves_nothing_running(timeout_ms):
    async def main(world: TxnWorld) -> None:
        await write(world, b"a")
        before = asyncio.all_tasks()
        consumer = reader(world, group_id="g", topics=["t"])
        async with consumer:
            await consumer.getone()
            await consumer.seek_to_committed()
            assert await consumer.getmany(timeout_ms=0) == {}
            await consumer.close(timeout_ms=timeout_ms)
            await asyncio.sleep(1)
        left = asyncio.all_tasks() - before
        assert not [task for task in left if "HeartbeatTask" in repr(task) or "Positions" in repr(task)]

    within(main)


class Dawdler:
    """Takes its time when partitions go."""

    def on_partitions_assigned(self, partitions):
        pass

    async def on_partitions_revoked(self, partitions):
        await asyncio.sleep(1)


def counted_polls(monkeypatch):
    """Return a list that gets an item for each poll. After 1,000 polls the next one fails, so that a loop that never
    waits ends.
    """
    polls = []
    poll = Polls.poll

    async def counting(self, *arguments):
        polls.append(arguments)
        assert len(polls) < 1_000, "it polls without waiting"
        await poll(self, *arguments)

    monkeypatch.setattr(Polls, "poll", counting)
    return polls


@pytest.mark.parametrize("slow", ["the listener", "LeaveGroup"])
def test_a_poll_waits_while_another_task_unsubscribes(slow, monkeypatch):
    async def main(world: TxnWorld) -> None:
        await make(world)
        consumer = reader(world, group_id="g")
        consumer.subscribe(["t"], listener=Dawdler() if slow == "the listener" else None)
        async with consumer:
            await consumer.assigned()
            if slow == "LeaveGroup":
                world.faults.delay("LeaveGroup", 2)
            polls = counted_polls(monkeypatch)
            polling = asyncio.create_task(consumer.getone(timeout_ms=60_000))
            await asyncio.sleep(0.1)
            await consumer.unsubscribe()
            assert len(polls) < 10
            consumer.subscribe(["t"])
            await write(world, b"a")
            assert (await polling).value == b"a"

    within(main)


def test_subscribe_during_a_running_unsubscribe_takes_effect_after_it():
    async def main(world: TxnWorld) -> None:
        await write(world, b"a")
        async with member(world) as consumer:
            await consumer.getone()
            world.faults.delay("LeaveGroup", 2)
            leaving = asyncio.create_task(consumer.unsubscribe())
            await asyncio.sleep(0.5)
            consumer.subscribe(["t"])
            await leaving
            assert consumer.subscription() == {"t"}
            assert (await consumer.getone(timeout_ms=5_000)).value == b"a"

    within(main)


def test_subscribe_raises_while_unsubscribe_runs_the_rebalance_listener():
    async def main(world: TxnWorld) -> None:
        await write(world, b"a")
        consumer = reader(world, group_id="g")
        consumer.subscribe(["t"], listener=Dawdler())
        async with consumer:
            await consumer.getone()
            leaving = asyncio.create_task(consumer.unsubscribe())
            await asyncio.sleep(0.5)
            with pytest.raises(IllegalStateError, match="unsubscrib"):
                consumer.subscribe(["t"])
            await leaving
            consumer.subscribe(["t"])
            assert (await consumer.getone(timeout_ms=5_000)).value == b"a"

    within(main)


@pytest.mark.parametrize("closes", ["another task", "the listener"])
def test_on_partitions_revoked_is_called_once_if_unsubscribe_and_close_overlap(closes):
    class Counts(Dawdler):
        async def on_partitions_revoked(self, partitions):
            heard.append(partitions)
            await super().on_partitions_revoked(partitions)
            if closes == "the listener":
                await consumer.close()
            heard.append("done")

    async def main(world: TxnWorld) -> None:
        nonlocal consumer
        await write(world, b"a")
        consumer = reader(world, group_id="g")
        consumer.subscribe(["t"], listener=Counts())
        async with consumer:
            await consumer.getone()
            leaving = asyncio.create_task(consumer.unsubscribe())
            await asyncio.sleep(0.5)
            if closes == "another task":
                await consumer.close()
            await leaving
            assert heard == [[TopicPartition("t", 0)], "done"]

    consumer, heard = None, []
    within(main)
