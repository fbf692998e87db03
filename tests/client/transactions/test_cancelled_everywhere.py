"""Commit and abort of a transaction, cancelled at every turn of the loop and tried again as a user would.

After each: every record is there once, the group's offset goes with them, and what was said of the outcome is true.
"""

import asyncio
import contextlib

import pytest
from cancelled_everywhere import at_every_turn
from fencepost.client.errors import AlreadyCommittedError, CommitOutcomeUnknownError, ProducerFencedError
from reading import member, write

pytestmark = [pytest.mark.slow, pytest.mark.sampled]

T0 = ("t", 0)
PLENTY = 20
both = pytest.mark.parametrize("version", [pytest.param(1, marks=pytest.mark.long), 2])


async def copy(tx, batch):
    async with tx:
        for record in batch:
            await tx.send("out", record.value)


async def copy_again_as_a_user_would(producer, batch):
    """Copy the batch once more, unless it is committed. If that outcome is unknown, resolve it, and copy the batch a
    last time if it was aborted.
    """
    try:
        await copy(producer.transaction(batch), batch)
    except AlreadyCommittedError:
        return
    except CommitOutcomeUnknownError as unknown:
        if await unknown.resolve() == "aborted":
            await copy(producer.transaction(batch), batch)


@both
def test_a_batch_is_committed_once_though_its_commit_is_cancelled_at_any_await(version):
    outcomes = set()

    async def main(world, cancelling):
        await write(world, b"a", b"b")
        producer = await world.producer()
        async with member(world) as consumer:
            batch = await anext(consumer.batches())
            tx = producer.transaction(batch)
            with contextlib.suppress(asyncio.CancelledError):
                await cancelling(copy(tx, batch))
            outcomes.add(tx.outcome)
            copied = await world.values("out") if "out" in world.broker.topics.by_name else []
            assert copied == ([b"a", b"b"] if tx.outcome == "committed" else []), tx.outcome
            await copy_again_as_a_user_would(producer, batch)
            assert await world.values("out") == [b"a", b"b"]
            assert (await consumer.committed())[T0].offset == 2

    assert at_every_turn(main, version) > PLENTY
    assert outcomes >= {"committed", "aborted"}


@both
def test_an_abort_cancelled_at_any_await_leaves_no_visible_record(version):
    async def main(world, cancelling):
        await write(world, b"a", b"b")
        producer = await world.producer()

        async def fail(batch):
            async with producer.transaction(batch) as tx:
                await tx.send_and_wait("out", b"x")
                raise ZeroDivisionError

        async with member(world) as consumer:
            batch = await anext(consumer.batches())
            with contextlib.suppress(asyncio.CancelledError, ZeroDivisionError):
                await cancelling(fail(batch))
            await copy_again_as_a_user_would(producer, batch)
            assert await world.values("out") == [b"a", b"b"]
            assert (await consumer.committed())[T0].offset == 2

    assert at_every_turn(main, version) > PLENTY


@both
def test_a_fenced_transaction_cancelled_at_any_await_of_its_abort_raises_cancelled(version):
    """Not the error that fenced it: whoever cancels a task, as Ctrl-C does, waits for its end."""
    raised = set()

    async def main(world, cancelling):
        producer = await world.producer()

        async def fail(tx):
            async with tx:
                await tx.send_and_wait("out", b"x")
                await world.producer()
                await tx.send_and_wait("out", b"y")

        try:
            await cancelling(fail(producer.transaction()))
        except asyncio.CancelledError:
            raised.add("cancelled")
        except ProducerFencedError:
            assert not cancelling.__self__.is_cancelled
            raised.add("fenced")

    assert at_every_turn(main, version) > PLENTY
    assert raised == {"cancelled", "fenced"}
