"""Several batches are read for one transaction, of which only the last is passed to it, as Kafka's offsets allow.

After an abort everything that was given and is not committed comes again, however the rest was committed.
"""

import pytest
import reading
from fencepost.client.errors import AbortableTransactionError, CommitOutcomeUnknownError, IllegalStateError
from fencepost.client.values import TopicPartition
from reading import member, values, write
from txn_world import within

T0 = TopicPartition("t", 0)
FAILED = AbortableTransactionError("as it happens")
FOUR = (b"a", b"b", b"c", b"d")


@pytest.fixture(autouse=True, params=["classic", "consumer"])
def group_protocol(request, monkeypatch):
    monkeypatch.setattr(reading, "PROTOCOL", {"group_protocol": request.param})


async def given(consumer, most=2):
    """Return the values of the next batch."""
    return values(await anext(consumer.batches(max_records=most)))


async def commit(producer, *sources, error=None):
    async with producer.transaction() as tx:
        for source in sources:
            await tx.send_offsets_to_transaction(source)
        if error is not None:
            raise error


async def roll_back(producer, *sources):
    with pytest.raises(AbortableTransactionError):
        await commit(producer, *sources, error=FAILED)


async def fail_after_a_refused_earlier_batch(producer, earlier, later):
    async with producer.transaction(later) as tx:
        with pytest.raises(IllegalStateError, match="the offsets would go back"):
            await tx.send_offsets_to_transaction(earlier)
        raise FAILED


@pytest.mark.parametrize("passed", ["the later batch", "the consumer", "the later batch after the earlier was refused"])
def test_after_an_abort_earlier_uncommitted_batches_are_returned_again_too(passed):
    """The transaction was given the later batch, the consumer, or the later batch after the earlier was refused."""

    async def main(world):
        await write(world, *FOUR, b"e", b"f")
        producer = await world.producer()
        async with member(world) as consumer:
            batches = consumer.batches(max_records=2)
            earlier, later = await anext(batches), await anext(batches)
            if passed == "the later batch after the earlier was refused":
                with pytest.raises(AbortableTransactionError):
                    await fail_after_a_refused_earlier_batch(producer, earlier, later)
            else:
                await roll_back(producer, consumer if passed == "the consumer" else later)
            assert await consumer.position(T0) == 0
            assert values(await anext(batches)) == [b"a", b"b"]
            again = await anext(batches)
            assert values(again) == [b"c", b"d"]
            await commit(producer, again)
            assert (await consumer.committed())[T0].offset == 4
            assert await given(consumer) == [b"e", b"f"]

    within(main)


def test_after_an_abort_records_read_singly_before_the_batch_are_returned_again():
    async def main(world):
        await write(world, *FOUR)
        producer = await world.producer()
        async with member(world) as consumer:
            assert (await consumer.getone()).value == b"a"
            batch = await anext(consumer.batches(max_records=2))
            assert values(batch) == [b"b", b"c"]
            await roll_back(producer, batch)
            assert await given(consumer, most=4) == [*FOUR]

    within(main)


def test_the_later_of_two_batches_may_be_retried_at_once_after_its_abort():
    async def main(world):
        await write(world, *FOUR, b"e", b"f")
        producer = await world.producer()
        async with member(world) as consumer:
            batches = consumer.batches(max_records=2)
            _, later = await anext(batches), await anext(batches)
            for _ in range(2):
                await roll_back(producer, later)
            await commit(producer, later)
            assert (await consumer.committed())[T0].offset == 4
            assert values(await anext(batches)) == [b"e", b"f"]

    within(main)


def test_two_batches_of_one_aborted_transaction_may_be_retried_at_once():
    async def main(world):
        await write(world, *FOUR, b"e", b"f")
        producer = await world.producer()
        async with member(world) as consumer:
            batches = consumer.batches(max_records=2)
            both = await anext(batches), await anext(batches)
            await roll_back(producer, both[1])
            await roll_back(producer, *both)
            await commit(producer, *both)
            assert values(await anext(batches)) == [b"e", b"f"]

    within(main)


def test_committing_only_the_later_of_two_aborted_batches_raises_illegal_state():
    async def main(world):
        await write(world, *FOUR)
        producer = await world.producer()
        async with member(world) as consumer:
            batches = consumer.batches(max_records=2)
            both = await anext(batches), await anext(batches)
            await roll_back(producer, *both)
            with pytest.raises(IllegalStateError, match="it will be read again"):
                await commit(producer, both[1])
            assert values(await anext(batches)) == [b"a", b"b"]

    within(main)


@pytest.mark.parametrize("how", ["all positions", "named offsets", "a transaction with the batch"])
def test_an_aborted_batch_can_be_retried_at_once_if_all_before_it_is_committed(how):
    async def main(world):
        await write(world, *FOUR)
        producer = await world.producer()
        async with member(world) as consumer:
            batches = consumer.batches(max_records=2)
            earlier = await anext(batches)
            if how == "all positions":
                await consumer.commit()
            elif how == "named offsets":
                await consumer.commit({T0: 2})
            else:
                await commit(producer, earlier)
            later = await anext(batches)
            await roll_back(producer, later)
            await commit(producer, later)  # nothing has to be asked before it can be tried again
            assert (await consumer.committed())[T0].offset == 4

    within(main)


@pytest.mark.parametrize("then", ["it is read again", "it is tried again when the position is known"])
def test_an_abort_returns_to_offsets_that_an_earlier_transaction_committed(then):
    """The earlier transaction sent its offsets as a dict, so the client learns of them only from the group's
    coordinator.
    """

    async def main(world):
        await write(world, *FOUR)
        producer = await world.producer()
        async with member(world) as consumer:
            batches = consumer.batches(max_records=2)
            await anext(batches)
            async with producer.transaction() as tx:
                await tx.send_offsets_to_transaction({T0: 2}, consumer.group_metadata())
            later = await anext(batches)
            await roll_back(producer, later)
            assert await consumer.position(T0) == 2
            if then == "it is read again":
                later = await anext(batches)
                assert values(later) == [b"c", b"d"]
            await commit(producer, later)
            assert (await consumer.committed())[T0].offset == 4

    within(main)


def test_commit_right_after_an_abort_does_not_commit_the_aborted_offsets():
    async def main(world):
        await write(world, *FOUR)
        producer = await world.producer()
        async with member(world) as consumer:
            batches = consumer.batches(max_records=2)
            await anext(batches)
            async with producer.transaction() as tx:
                await tx.send_offsets_to_transaction({T0: 2}, consumer.group_metadata())
            await roll_back(producer, await anext(batches))
            await consumer.commit()
            assert (await consumer.committed())[T0].offset == 2

    within(main)


def test_an_abort_after_a_seek_returns_no_record_below_the_sought_offset():
    async def main(world):
        await write(world, *FOUR)
        producer = await world.producer()
        async with member(world) as consumer:
            assert await given(consumer, most=1) == [b"a"]
            consumer.seek(T0, 2)
            await roll_back(producer, await anext(consumer.batches(max_records=1)))
            assert await given(consumer) == [b"c", b"d"]

    within(main)


def test_a_second_abort_returns_to_committed_offset_2_not_to_the_first_aborts_0():
    """The first abort goes back to offset 0, below the committed 2. The second has a batch from 2 on."""

    async def main(world):
        await write(world, *FOUR)
        producer = await world.producer()
        async with member(world) as consumer:
            batches = consumer.batches(max_records=2)
            first = await anext(batches)
            await consumer.commit()
            consumer.seek(T0, 2)
            await roll_back(producer, first)  # back to 0, which the group has committed already
            assert values(await anext(batches)) == [b"a", b"b"]
            later = await anext(batches)
            await roll_back(producer, later)
            assert await consumer.position(T0) == 2  # as the group has committed it

    within(main)


def test_after_an_unknown_outcome_uncommitted_earlier_batches_are_returned_again():
    async def main(world):
        await write(world, *FOUR)
        producer = await world.producer()
        async with member(world) as consumer:
            batches = consumer.batches(max_records=2)
            _, later = await anext(batches), await anext(batches)
            silence = world.faults.blackhole("EndTxn", when="before_write")
            with pytest.raises(CommitOutcomeUnknownError):
                await commit(producer, later)
            world.faults.remove(silence)
            await world.producer()  # of the same id: the broker aborts what the one before it has left
            assert values(await anext(batches)) == [b"a", b"b"]

    within(main)


def test_a_batch_after_a_marker_can_be_committed_right_after_its_abort():
    """The marker's offset lies between the committed offset and the batch; it does not count as an unread record."""

    async def main(world):
        producer = await world.producer()
        for value in (b"a", b"b"):
            async with producer.transaction() as tx:
                await tx.send("t", value, partition=0)
        async with member(world) as consumer:
            batches = consumer.batches(max_records=1)
            await commit(producer, await anext(batches))
            later = await anext(batches)
            await roll_back(producer, later)
            await commit(producer, later)
            assert (await consumer.committed())[T0].offset == 4

    within(main)


@pytest.mark.parametrize("outcome", ["aborted", "unknown"])
def test_after_a_seek_to_0_a_failed_commit_returns_to_0_not_the_old_commit(outcome):
    async def main(world):
        await write(world, *FOUR, b"e", b"f")
        producer = await world.producer()
        async with member(world) as consumer:
            assert await given(consumer, most=6) == [*FOUR, b"e", b"f"]
            await consumer.commit()
            consumer.seek(T0, 0)
            batches = consumer.batches(max_records=2, timeout_ms=60_000)
            _, later = await anext(batches), await anext(batches)
            if outcome == "aborted":
                await roll_back(producer, later)
            else:
                silence = world.faults.blackhole("EndTxn", when="before_write")
                with pytest.raises(CommitOutcomeUnknownError):
                    await commit(producer, later)
                world.faults.remove(silence)
                await world.producer()  # the broker aborts it
            assert values(await anext(batches)) == [b"a", b"b"]

    within(main)


def test_batches_of_a_commit_with_a_lost_answer_are_not_returned_again():
    """The broker has committed them: only its answer to EndTxn is lost."""

    async def main(world):
        await write(world, *FOUR, b"e")
        producer = await world.producer()
        async with member(world) as consumer:
            batches = consumer.batches(max_records=2, timeout_ms=60_000)
            both = await anext(batches), await anext(batches)
            silence = world.faults.blackhole("EndTxn", when="after_write")
            with pytest.raises(CommitOutcomeUnknownError):
                await commit(producer, *both)
            world.faults.remove(silence)
            assert values(await anext(batches)) == [b"e"]

    within(main)
