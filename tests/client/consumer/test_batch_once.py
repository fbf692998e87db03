"""A batch is committed by one transaction at most; who was cancelled, or uses two producers, is told its outcome."""

import asyncio
import contextlib

import pytest
from fencepost.client.errors import (
    AbortableTransactionError,
    AlreadyCommittedError,
    AuthorizationError,
    CommitOutcomeUnknownError,
    IllegalStateError,
)
from fencepost.client.producer.producer import Producer
from reading import member, reader, values, write
from txn_world import BOOTSTRAP, within

T0 = ("t", 0)
both = pytest.mark.parametrize("version", [1, 2])


async def copy(producer, batch, seconds=60.0):
    async with asyncio.timeout(seconds), producer.transaction(batch) as tx:
        for record in batch:
            await tx.send("out", record.value)


@both
def test_retrying_a_batch_whose_commit_timed_out_raises_already_committed(version):
    """The timeout's exception has a note with the outcome, and the next batch can be committed."""

    async def main(world):
        await write(world, b"a", b"b", b"c")
        producer = await world.producer()
        async with member(world) as consumer:
            batches = consumer.batches(max_records=2)
            batch = await anext(batches)
            world.faults.delay("EndTxn", 0.5, when="after_write").once()
            with pytest.raises(TimeoutError) as late:
                await copy(producer, batch, seconds=0.2)
            assert "its outcome: committed" in str(late.value.__cause__.__notes__)
            with pytest.raises(AlreadyCommittedError, match="was committed already") as refused:
                await copy(producer, batch)
            assert refused.value.hint
            assert await world.values("out") == [b"a", b"b"]
            await copy(producer, await anext(batches))
            assert await world.values("out") == [b"a", b"b", b"c"]

    within(main, version)


def test_outcome_says_if_a_cancelled_transaction_was_committed_or_aborted():
    async def main(world):
        producer = await world.producer()
        world.faults.delay("EndTxn", 0.5, when="after_write").once()
        tx = producer.transaction()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2), tx:
                await tx.send("t", b"a")
        assert tx.outcome == "committed"
        tx = producer.transaction()
        assert tx.outcome is None
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2), tx:
                await asyncio.sleep(1)
        assert tx.outcome == "aborted"

    within(main)


@pytest.mark.slow
@both
@pytest.mark.parametrize("raised_by", ["transaction(batch)", "begin_transaction()"])
def test_after_an_unanswered_commit_its_batch_raises_outcome_unknown_until_resolved(version, raised_by):
    """Once it is known as committed, the batch raises AlreadyCommittedError."""

    async def main(world):
        await write(world, b"a", b"b")
        producer = await world.producer()
        async with member(world) as consumer:
            batch = await anext(consumer.batches())
            silence = world.faults.blackhole("EndTxn", when="after_write")
            with pytest.raises(TimeoutError) as late:
                await copy(producer, batch, seconds=0.2)
            assert "its outcome: unknown" in str(late.value.__cause__.__notes__)
            with pytest.raises(CommitOutcomeUnknownError) as unknown:
                await copy(producer, batch)
            world.faults.remove(silence)
            assert "read the next batch" in unknown.value.hint
            if raised_by == "begin_transaction()":
                with pytest.raises(CommitOutcomeUnknownError) as unknown:
                    await producer.begin_transaction()
            assert await unknown.value.resolve() == "committed"
            async with producer.transaction():
                pass  # the producer goes on, and what is known stays known
            assert await unknown.value.resolve() == "committed"
            with pytest.raises(AlreadyCommittedError):
                await copy(producer, batch)
            assert len(await world.values("out")) == 2

    within(main, version)


@pytest.mark.slow
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("how", ["transaction(batch)", "send_offsets_to_transaction(batch)"])
def test_a_batch_is_refused_while_another_transaction_has_a_batch_of_its_partition(order, how):
    async def main(world):
        await write(world, b"a", b"b", b"c", b"d")
        one, other = await world.producer("x"), await world.producer("y")
        async with member(world) as consumer:
            batches = consumer.batches(max_records=2)
            both = await anext(batches), await anext(batches)
            begun, refused = (both[index] for index in order)

            async def commit_the_other():
                if how == "transaction(batch)":
                    await copy(other, refused)
                else:
                    async with other.transaction() as tx:
                        await tx.send_offsets_to_transaction(refused)

            async def roll_back():
                async with one.transaction(begun):
                    with pytest.raises(IllegalStateError, match="another open transaction") as error:
                        await commit_the_other()
                    assert error.value.hint
                    raise AbortableTransactionError("as it happens")

            with pytest.raises(AbortableTransactionError):
                await roll_back()
            assert await consumer.committed() == {T0: None}
            assert values(await anext(batches)) == [b"a", b"b"]  # neither of the two batches is committed

    within(main)


def test_two_producers_can_have_batches_of_different_partitions_in_transactions():
    async def main(world):
        async with Producer(BOOTSTRAP, environment=world.world.environment) as producer:
            for partition in (0, 1):
                await producer.send_and_wait("t", b"%d" % partition, partition=partition)
        one, other = await world.producer("x"), await world.producer("y")
        async with member(world) as consumer:
            batches = consumer.batches(max_records=1)
            first, second = await anext(batches), await anext(batches)
            async with one.transaction(first), other.transaction(second):
                pass
            assert {at.offset for at in (await consumer.committed()).values()} == {1}

    within(main, num_partitions=2)


def test_committing_an_earlier_batch_after_a_later_one_raises_already_committed():
    async def main(world):
        await write(world, b"a", b"b", b"c", b"d")
        producer = await world.producer()
        async with member(world) as consumer:
            batches = consumer.batches(max_records=2)
            passed, batch = await anext(batches), await anext(batches)
            await copy(producer, batch)
            with pytest.raises(AlreadyCommittedError, match="than this batch's first"):
                await copy(producer, passed)
            assert (await consumer.committed())[T0].offset == 4

    within(main)


def test_a_batch_after_an_uncommitted_one_can_be_committed():
    """The application decides what happens to the skipped batch: the client does not refuse the gap."""

    async def main(world):
        await write(world, b"a", b"b", b"c")
        producer = await world.producer()
        async with member(world) as consumer:
            batches = consumer.batches(max_records=1)
            await copy(producer, await anext(batches))
            await anext(batches)
            await copy(producer, await anext(batches))
            assert (await consumer.committed())[T0].offset == 3
            assert await world.values("out") == [b"a", b"c"]

    within(main)


def test_a_rolled_back_batch_is_returned_again_without_the_committed_one_before_it():
    async def main(world):
        await write(world, b"a", b"b")
        producer = await world.producer()
        async with member(world) as consumer:
            batches = consumer.batches(max_records=1)
            first = await anext(batches)
            await consumer.commit()
            with pytest.raises(RuntimeError, match="by the test"):
                async with producer.transaction(await anext(batches)):
                    raise RuntimeError("by the test")
            await copy(producer, first)  # the rollback began after it, so it may be copied
            await copy(producer, await anext(batches))
            assert await world.values("out") == [b"a", b"b"]

    within(main)


def test_committed_records_may_be_read_and_committed_again_after_a_seek():
    async def main(world):
        await write(world, b"a", b"b")
        producer = await world.producer()
        async with member(world) as consumer:
            batches = consumer.batches()
            batch = await anext(batches)
            async with producer.transaction(batch):
                consumer.seek(T0, 0)
            for again in range(2):
                batch = await anext(batches)
                assert values(batch) == [b"a", b"b"]
                await copy(producer, batch)
                consumer.seek(T0, 0)
                assert len(await world.values("out")) == 2 * (again + 1)

    within(main)


def test_one_transaction_takes_several_batches_of_a_partition():
    async def main(world):
        await write(world, b"a", b"b", b"c", b"d")
        producer = await world.producer()
        async with member(world) as consumer:
            batches = consumer.batches(max_records=2)
            async with producer.transaction(await anext(batches)) as tx:
                await tx.send_offsets_to_transaction(await anext(batches))
            assert (await consumer.committed())[T0].offset == 4

    within(main)


def test_a_batch_can_be_reused_when_its_transaction_could_not_begin():
    async def main(world):
        await write(world, b"a", b"b")
        producer, other = await world.producer(), await world.producer("y")
        async with member(world) as consumer:
            batch = await anext(consumer.batches())
            async with producer.transaction():
                with pytest.raises(IllegalStateError):
                    await copy(producer, batch)
            await copy(other, batch)
            assert await world.values("out") == [b"a", b"b"]

    within(main)


@pytest.mark.slow
@both
@pytest.mark.parametrize("how", ["transaction(batch)", "send_offsets_to_transaction(batch)"])
def test_sending_an_earlier_batch_after_a_later_one_of_its_partition_raises(version, how):
    """Both batches are returned again, so the group's committed offset never moves back."""

    async def main(world):
        await write(world, b"a", b"b", b"c", b"d")
        producer = await world.producer()

        async def send_both(later, earlier):
            async with producer.transaction(later if how == "transaction(batch)" else None) as tx:
                if how != "transaction(batch)":
                    await tx.send_offsets_to_transaction(later)
                await tx.send_offsets_to_transaction(earlier)

        async with member(world) as consumer:
            batches = consumer.batches(max_records=2)
            earlier, later = await anext(batches), await anext(batches)
            with pytest.raises(IllegalStateError, match="has a later batch of t-0") as refused:
                await send_both(later, earlier)
            assert refused.value.hint
            again = await anext(batches)
            assert values(again) == [b"a", b"b"]
            async with producer.transaction(again) as tx:
                await tx.send_offsets_to_transaction(await anext(batches))
            assert (await consumer.committed())[T0].offset == 4

    within(main, version)


# ---- partitions that were assigned by hand -----------------------------------------------------------------------


def give_away(consumer, how):
    consumer.assign([("other", 0)] if how == "for another" else [])


away = pytest.mark.parametrize("how", ["for none", "for another"])


@pytest.mark.slow
@both
@away
def test_reassigning_a_partition_used_by_a_transaction_is_refused(version, how):
    async def main(world):
        await write(world, b"a", b"b", b"c")
        one, other = await world.producer("x"), await world.producer("y")
        async with reader(world, group_id="g") as consumer:
            consumer.assign([T0])
            batches = consumer.batches(max_records=2)
            batch = await anext(batches)
            async with one.transaction(batch) as tx:
                for record in batch:
                    await tx.send("out", record.value)
                give_away(consumer, how)
                with pytest.raises(IllegalStateError, match="an open transaction uses a batch of t-0") as refused:
                    consumer.assign([T0])
                assert refused.value.hint
                assert T0 not in consumer.assignment()
            consumer.assign([T0])
            await copy(other, await anext(batches))
            assert await world.values("out") == [b"a", b"b", b"c"]

    within(main, version)


@pytest.mark.slow
@both
@away
def test_a_batch_read_before_the_partitions_were_assigned_anew_cannot_be_committed(version, how):
    async def main(world):
        await write(world, b"a", b"b", b"c")
        producer = await world.producer()
        async with reader(world, group_id="g") as consumer:
            consumer.assign([T0])
            batches = consumer.batches(max_records=2)
            batch = await anext(batches)
            give_away(consumer, how)
            consumer.assign([T0])
            with pytest.raises(IllegalStateError, match="it will be read again") as refused:
                await copy(producer, batch)
            assert refused.value.hint
            again = await anext(batches)
            await copy(producer, again)
            with pytest.raises(IllegalStateError, match="it will be read again"):
                await copy(producer, batch)
            assert await world.values("out") == values(again) == [b"a", b"b"]

    within(main, version)


def test_a_batch_whose_partition_was_only_unassigned_is_committed():
    async def main(world):
        await write(world, b"a", b"b", b"c")
        producer = await world.producer()
        async with reader(world, group_id="g") as consumer:
            consumer.assign([T0])
            batches = consumer.batches(max_records=2)
            batch = await anext(batches)
            consumer.assign([])
            await copy(producer, batch)
            consumer.assign([T0])
            await copy(producer, await anext(batches))
            assert await world.values("out") == [b"a", b"b", b"c"]

    within(main)


@pytest.mark.slow
@both
@pytest.mark.parametrize("end", [Producer.close, Producer.abort_transaction, Producer.commit_transaction])
def test_a_batch_can_be_committed_by_a_new_producer_after_a_fatal_error(end, version):
    async def main(world):
        await write(world, b"a", b"b")
        async with member(world) as consumer:
            refused = await world.producer("refused")
            await refused.begin_transaction()
            world.faults.error("TxnOffsetCommit", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED").once()
            with pytest.raises(AuthorizationError):
                await refused.send_offsets_to_transaction(await anext(consumer.batches(1)))
            with contextlib.nullcontext() if end is Producer.close else pytest.raises(AuthorizationError):
                await end(refused)
            producer = await world.producer()
            await copy(producer, await anext(consumer.batches(1)))
            assert await world.values("out") == [b"a"]

    within(main, version)
