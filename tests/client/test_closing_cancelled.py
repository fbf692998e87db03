"""Joining a group, and closing a consumer or a producer, cancelled at every turn of the loop and then done again.

After each: the member has left the group, or belongs to it; what was to be committed is; nothing is open or hangs.
"""

import asyncio
import contextlib

import pytest
from cancelled_everywhere import at_every_turn
from fencepost.client.errors import ClosedError, CommitOutcomeUnknownError
from fencepost.client.producer.producer import Producer
from reading import make, member, write
from txn_world import BOOTSTRAP

pytestmark = [pytest.mark.slow, pytest.mark.sampled]

T0 = ("t", 0)
SOON_S = 8


def members(world):
    """Return the ids of the members that the broker has in the group."""
    group = world.broker.groups.groups.get("g")
    return [] if group is None else list(group.members)


async def until_nobody_is_in_the_group(world):
    """Wait until the group has no members; for so short a time that no session ends by its timeout."""
    async with asyncio.timeout(SOON_S):
        while members(world):  # noqa: ASYNC110 (the broker says nothing)
            await asyncio.sleep(0.1)


def is_open(world):
    """Return whether the broker has an open transaction of the producer."""
    return world.broker.transactions.transactions["x"].status.name == "ONGOING"


@pytest.mark.parametrize("how", ["start", "join"])
def test_a_member_whose_join_is_cancelled_at_any_await_joins_with_the_next_poll(how):
    async def main(world, cancelling):
        await write(world, b"1")
        consumer = member(world)
        if how == "start":
            with contextlib.suppress(asyncio.CancelledError):
                await cancelling(consumer.start())
        await consumer.start()
        if how == "join":
            with contextlib.suppress(asyncio.CancelledError):
                await cancelling(consumer.assigned())
        assert await consumer.assigned(timeout_ms=5_000) == {T0}
        assert (await consumer.getone(timeout_ms=5_000)).value == b"1"
        assert len(members(world)) == 1, "no other member was left behind"
        await consumer.close()
        assert members(world) == []

    assert at_every_turn(main) > 5


@pytest.mark.parametrize("how", ["assigned", "getone"])
def test_close_after_a_join_cancelled_at_any_await_leaves_no_group_member(how):
    async def main(world, cancelling):
        await make(world)
        async with member(world) as consumer:
            with contextlib.suppress(asyncio.CancelledError):
                await cancelling(consumer.assigned() if how == "assigned" else consumer.getmany(timeout_ms=100))
        await until_nobody_is_in_the_group(world)

    assert at_every_turn(main) > 5


class Commits:
    """Commits what was read before it is given away."""

    def __init__(self):
        self.consumer = None
        self.revoked = 0

    def on_partitions_assigned(self, partitions):
        pass

    async def on_partitions_revoked(self, partitions):
        await asyncio.sleep(0.05)
        await self.consumer.commit()
        self.revoked += 1


@pytest.mark.parametrize("commits", ["itself", "in its listener", "not at all"])
def test_a_close_cancelled_at_any_await_still_leaves_the_group_when_repeated(commits):
    async def main(world, cancelling):
        await write(world, b"1", b"2")
        listener = Commits()
        consumer = member(world, topics=[], enable_auto_commit=commits == "itself")
        listener.consumer = consumer
        consumer.subscribe(["t"], listener=listener if commits == "in its listener" else None)
        await consumer.start()
        await consumer.getone()
        cancelled = False
        try:
            await cancelling(consumer.close())
        except asyncio.CancelledError:
            cancelled = True
        await consumer.close()
        await until_nobody_is_in_the_group(world)
        assert consumer.state().life == "closed"
        assert not any(one.is_open for one in consumer.state().connections)
        with pytest.raises(ClosedError):
            await consumer.getone()
        async with member(world, topics=[]) as other:
            found = (await other.committed(T0))[T0]
        if commits == "not at all":
            assert found is None
        elif not cancelled:
            assert found.offset == 1
        else:
            assert found is None or found.offset == 1, "the cancellation came before the commit was sent, or after"

    assert at_every_turn(main) > 5


def test_a_close_cancelled_at_any_await_during_a_position_lookup_leaves_no_member():
    async def main(world, cancelling):
        await write(world, b"1")
        consumer = member(world)
        await consumer.start()
        await consumer.getone()
        await consumer.seek_to_committed()
        await consumer.getmany()
        with contextlib.suppress(asyncio.CancelledError):
            await cancelling(consumer.close())
        await until_nobody_is_in_the_group(world)

    assert at_every_turn(main) > 2


def test_unsubscribe_cancelled_at_any_await_still_leaves_the_group():
    async def main(world, cancelling):
        await write(world, b"1")
        async with member(world) as consumer:
            await consumer.getone()
            with contextlib.suppress(asyncio.CancelledError):
                await cancelling(consumer.unsubscribe())
            await until_nobody_is_in_the_group(world)
            consumer.subscribe(["t"])
            assert (await consumer.getone(timeout_ms=5_000)).value == b"1"

    assert at_every_turn(main) > 2


@pytest.mark.parametrize("open_is", ["a transaction", "its commit", "nothing"])
def test_a_producers_close_cancelled_at_any_await_leaves_no_open_transaction(open_is):
    async def main(world, cancelling):
        await make(world)
        producer = await world.producer(delivery_timeout_ms=60_000)
        committing = None
        if open_is != "nothing":
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"a")
        if open_is == "its commit":
            committing = asyncio.create_task(producer.commit_transaction())
            await asyncio.sleep(0)
        with contextlib.suppress(asyncio.CancelledError):
            await cancelling(producer.close())
        await producer.close()
        if committing is not None:
            with contextlib.suppress(ClosedError, CommitOutcomeUnknownError):  # a close may cut it off
                async with asyncio.timeout(SOON_S):
                    await committing
        assert producer.state().life == "closed"
        assert not any(one.is_open for one in producer.state().connections)
        async with asyncio.timeout(SOON_S):
            while is_open(world):  # noqa: ASYNC110 (the broker says nothing)
                await asyncio.sleep(0.1)

    assert at_every_turn(main) >= 1


def test_a_second_close_after_a_cancelled_one_leaves_no_delivery_pending():
    async def main(world, cancelling):
        await make(world)
        producer = Producer(BOOTSTRAP, environment=world.world.environment, linger_ms=1_000)
        await producer.start()
        delivery = await producer.send("t", b"a")
        with contextlib.suppress(asyncio.CancelledError):
            await cancelling(producer.close())
        await producer.close()
        async with asyncio.timeout(SOON_S):
            try:
                await delivery
                written = True
            except ClosedError:
                written = False
        found = await world.values()
        assert found == [b"a"] or not written

    assert at_every_turn(main) >= 1
