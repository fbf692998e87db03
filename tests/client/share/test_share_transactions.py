"""`tx.acknowledge`, against a real broker in virtual time: a record is done with exactly if its transaction commits."""

import asyncio
from typing import Any

import pytest
from fencepost.broker.handlers import share_transactions
from fencepost.broker.share.values import AckRange
from fencepost.client.errors import (
    AbortableTransactionError,
    IllegalStateError,
    ProducerFencedError,
    RecordNotHeldError,
    UnsupportedVersionError,
)
from fencepost.client.share.taken import MANY
from fencepost.client.transactions import writes
from fencepost.client.values import Record
from reading import make, write
from share_acknowledging import acknowledge_now
from share_members import ACCEPT, REJECT, RELEASE, left, seen, sharer
from txn_world import TxnWorld, within

NAME = "TxnShareAcknowledge"


async def bill(world: TxnWorld, producer: Any, consumer: Any, record: Any) -> None:
    async with producer.transaction() as tx:
        await tx.send("bills", b"bill " + record.value, partition=0)
        await tx.acknowledge(consumer, record)


async def bills(world: TxnWorld) -> list[bytes]:
    return await world.values("bills")


@pytest.mark.requirement("S-121")
def test_one_transaction_per_record_writes_one_result_and_acknowledges_the_record() -> None:
    async def main(world: TxnWorld) -> None:
        await write(world, b"0", b"1", b"2")
        producer = await world.producer()
        async with sharer(world) as consumer:
            async for record in consumer:
                await bill(world, producer, consumer, record)
                if record.value == b"2":
                    break
            assert await consumer.getmany(timeout_ms=500) == []
        assert await bills(world) == [b"bill 0", b"bill 1", b"bill 2"]
        assert await left(world) == []

    within(main)


def test_commit_sends_records_and_acknowledgements_at_the_same_time() -> None:
    async def main(world: TxnWorld) -> None:
        await write(world, b"0")
        producer = await world.producer(linger_ms=60_000)
        async with sharer(world) as consumer:
            record = await consumer.getone()
            world.asked.clear()
            world.faults.delay(NAME, 0.5).once()
            billing = asyncio.create_task(bill(world, producer, consumer, record))
            await asyncio.sleep(0.3)
            assert world.names() == ["Produce"]
            await billing
            assert world.names() == ["EndTxn"]
        assert await bills(world) == [b"bill 0"]
        assert await left(world) == []

    within(main)


@pytest.mark.slow
@pytest.mark.requirement("S-123")
def test_an_abort_redelivers_records_whether_their_acknowledgement_was_sent_or_not() -> None:
    async def main(world: TxnWorld) -> None:
        count = MANY + 50
        await write(world, *[b"%d" % n for n in range(count)])
        producer = await world.producer()
        async with sharer(world, max_poll_records=count) as consumer:
            records = await read_now(consumer, count)
            with pytest.raises(ZeroDivisionError):  # noqa: PT012
                async with producer.transaction() as tx:
                    await tx.acknowledge(consumer, *records[: MANY + 1])  # these are sent at once
                    await tx.acknowledge(consumer, *records[MANY + 1 :])
                    assert pending(world) == MANY + 1
                    raise ZeroDivisionError
            again = await read_now(consumer, count)
            assert sorted(seen(again)) == sorted((b"%d" % n, 2) for n in range(count))
            async with producer.transaction() as tx:
                for record in again:
                    await tx.acknowledge(consumer, record)
        assert await left(world) == []

    within(main)


def pending(world: TxnWorld) -> int:
    """Return how many records are acknowledged in open transactions."""
    shares = world.broker.share_partitions
    windows = [shares.window(key) for key in shares.of_group("g")]
    return sum(each.last - each.first + 1 for window in windows if window is not None for each in window.pending)


def test_a_transaction_can_accept_some_records_of_a_batch_and_reject_others() -> None:
    async def main(world: TxnWorld) -> None:
        await write(world, *[b"%d" % n for n in range(5)])
        producer = await world.producer()
        async with sharer(world) as consumer:
            records = await consumer.getmany(timeout_ms=5_000)
            async with producer.transaction() as tx:
                await tx.acknowledge(consumer, *records[:2])
                await tx.acknowledge(consumer, records[2], type=REJECT)
                await tx.acknowledge(consumer, records[4])
                await tx.send("bills", b"all", partition=0)
            consumer.acknowledge(records[3], RELEASE)
        assert await left(world) == [(b"3", 2)]

    within(main)


def test_acknowledged_ranges_above_the_limit_of_a_request_go_in_several_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writes, "MAX_RANGES", 3)
    monkeypatch.setattr(share_transactions, "MAX_RANGES", 3)  # the broker refuses a request with more

    async def main(world: TxnWorld) -> None:
        await write(world, *[b"%d" % n for n in range(10)])
        producer = await world.producer()
        async with sharer(world) as consumer:
            records = await consumer.getmany(timeout_ms=5_000)
            async with producer.transaction() as tx:
                for record in records:
                    await tx.acknowledge(consumer, record, type=(ACCEPT, REJECT)[record.offset % 2])
                await tx.send("bills", b"all", partition=0)
        assert await left(world) == []

    within(main)


@pytest.mark.parametrize("when", ["before_write", "after_write"])
def test_an_unanswered_acknowledgement_aborts_and_its_record_is_redelivered(when: Any) -> None:
    async def main(world: TxnWorld) -> None:
        await write(world, b"0")
        producer = await world.producer()
        async with sharer(world) as consumer:
            world.faults.disconnect(NAME, when=when).once()
            record = await consumer.getone()
            with pytest.raises(AbortableTransactionError):
                await bill(world, producer, consumer, record)
            again = await consumer.getone(timeout_ms=60_000)
            assert seen([again]) == [(b"0", 2)]
            await bill(world, producer, consumer, again)
        assert await bills(world) == [b"bill 0"]
        assert await left(world) == []

    within(main)


@pytest.mark.parametrize("when", ["before_write", "after_write"])
def test_a_refused_acknowledgement_fails_a_transaction_whose_records_are_unanswered(when: Any) -> None:
    async def main(world: TxnWorld) -> None:
        await write(world, b"0")
        producer = await world.producer()
        async with sharer(world) as consumer:
            record = await consumer.getone()
            world.faults.disconnect("Produce", when=when).once()
            world.faults.error(NAME, "INVALID_RECORD_STATE").once()
            began = asyncio.get_running_loop().time()
            with pytest.raises(AbortableTransactionError, match="acknowledging records of share group 'g'"):
                await bill(world, producer, consumer, record)
            assert asyncio.get_running_loop().time() - began < 2
            await bill(world, producer, consumer, await consumer.getone(timeout_ms=1_000))
        assert await bills(world) == [b"bill 0"]
        assert await left(world) == []

    within(main)


def test_a_refused_acknowledgement_fails_a_commit_before_unsent_records_time_out() -> None:
    async def main(world: TxnWorld) -> None:
        await write(world, b"0")
        producer = await world.producer(delivery_timeout_ms=120_000, max_block_ms=3_000)
        async with sharer(world) as consumer:
            record = await consumer.getone()
            world.faults.disconnect("Produce", when="before_write").every_time()
            world.faults.error(NAME, "INVALID_RECORD_STATE").once()
            began = asyncio.get_running_loop().time()
            with pytest.raises(AbortableTransactionError, match="acknowledging records of share group 'g'"):
                await bill(world, producer, consumer, record)
            assert asyncio.get_running_loop().time() - began < 10
            world.faults.clear()
            await bill(world, producer, consumer, await consumer.getone(timeout_ms=1_000))
        assert await bills(world) == [b"bill 0"]
        assert await left(world) == []

    within(main)


def test_invalid_record_state_aborts_the_transaction_and_a_retriable_error_does_not() -> None:
    async def main(world: TxnWorld) -> None:
        await write(world, b"0")
        producer = await world.producer()
        async with sharer(world) as consumer:
            world.faults.error(NAME, "COORDINATOR_NOT_AVAILABLE").once()
            await bill(world, producer, consumer, await consumer.getone())
            world.faults.error(NAME, "INVALID_RECORD_STATE").once()
            await write(world, b"1")
            record = await consumer.getone()
            with pytest.raises(AbortableTransactionError, match="acknowledging records of share group 'g'"):
                await bill(world, producer, consumer, record)
            again = await consumer.getone(timeout_ms=1_000)
            await bill(world, producer, consumer, again)
        assert await bills(world) == [b"bill 0", b"bill 1"]

    within(main)


def end_lock(world: TxnWorld, consumer: Any, offset: int) -> None:
    """Let the broker release the record, as if its lock had ended. The consumer is not told."""
    shares = world.broker.share_partitions
    (key,) = shares.of_group("g")
    acks = {(key.topic_id, key.partition): [AckRange(offset, offset, [int(RELEASE)])]}
    assert list(acknowledge_now(shares, "g", consumer._polls.member.member_id, acks).values()) == [None]


async def read_now(consumer: Any, count: int) -> list[Any]:
    """Read this many records. Asserts that none of them is locked, or otherwise has to be waited for."""
    found: list[Any] = []
    while len(found) < count:
        more = await consumer.getmany(timeout_ms=1_000)
        assert more, f"{count - len(found)} are still locked"
        found += more
    return found


def test_if_one_records_lock_ended_the_transaction_aborts_and_the_rest_is_released() -> None:
    async def main(world: TxnWorld) -> None:
        await write(world, *[b"%d" % n for n in range(13)])
        producer = await world.producer()
        async with sharer(world) as consumer:
            records = await read_now(consumer, 13)
            consumer.acknowledge(records[12])
            end_lock(world, consumer, 5)
            with pytest.raises(AbortableTransactionError):
                async with producer.transaction() as tx:
                    await tx.acknowledge(consumer, *records[:12])
            await consumer.commit()
            again = await read_now(consumer, 12)
            assert sorted(seen(again)) == sorted((b"%d" % n, 2) for n in range(12))
            async with producer.transaction() as tx:
                await tx.acknowledge(consumer, *again)
        assert await left(world) == []

    within(main)


@pytest.mark.parametrize("when", ["before_write", "after_write"])
def test_the_record_of_a_timed_out_acknowledgement_in_a_transaction_is_redelivered(when: Any) -> None:
    async def main(world: TxnWorld) -> None:
        await write(world, b"0", b"1")
        producer = await world.producer()
        async with sharer(world) as consumer:
            one, other = await read_now(consumer, 2)
            world.faults.blackhole(NAME, when=when).once()
            with pytest.raises(AbortableTransactionError):
                await bill(world, producer, consumer, one)
            consumer.acknowledge(other)  # at the same time: it is not refused because of the other record
            await consumer.commit()
            (again,) = await read_now(consumer, 1)
            assert seen([again]) == [(b"0", 2)]
            consumer.acknowledge(again)
        assert await left(world) == []

    within(main)


def test_an_old_delivery_does_not_acknowledge_a_record_that_was_redelivered() -> None:
    async def main(world: TxnWorld) -> None:
        await write(world, b"0")
        producer = await world.producer()
        async with sharer(world) as consumer:
            old = await consumer.getone()
            for connection in world.world.net.connections:
                connection.cut()
            new = await consumer.getone()
            with pytest.raises(RecordNotHeldError):
                await bill(world, producer, consumer, old)
            await bill(world, producer, consumer, new)
        assert await bills(world) == [b"bill 0"]

    within(main)


def test_a_share_lock_that_ends_before_the_commit_aborts_the_transaction() -> None:
    async def main(world: TxnWorld) -> None:
        await write(world, b"0")
        producer = await world.producer(transaction_timeout_ms=300_000)
        async with sharer(world) as consumer:
            record = await consumer.getone()
            with pytest.raises(RecordNotHeldError):  # noqa: PT012
                async with producer.transaction() as tx:
                    await tx.send("bills", b"never", partition=0)
                    await tx.acknowledge(consumer, record)
                    world.faults.error("ShareAcknowledge", "SHARE_SESSION_NOT_FOUND").once()  # the renewal
                    await asyncio.sleep(61)
            await bill(world, producer, consumer, await consumer.getone())
        assert await bills(world) == [b"bill 0"]

    within(main)


@pytest.mark.slow
def test_no_other_consumer_gets_a_record_acknowledged_in_a_slow_transaction() -> None:
    async def main(world: TxnWorld) -> None:
        await write(world, b"0")
        producer = await world.producer(transaction_timeout_ms=300_000)
        async with sharer(world) as consumer, sharer(world) as other:
            record = await consumer.getone()
            async with producer.transaction() as tx:
                await tx.acknowledge(consumer, record)
                assert await other.getmany(timeout_ms=100_000) == []  # longer than a record's lock (30 s)
                await tx.send("bills", b"slow", partition=0)
            assert await other.getmany(timeout_ms=40_000) == []
        assert await bills(world) == [b"slow"]

    within(main)


@pytest.mark.requirement("S-130")
def test_a_record_in_a_dead_producers_transaction_is_redelivered_after_its_abort() -> None:
    async def main(world: TxnWorld) -> None:
        await write(world, b"0")
        dead, producer = await world.producer("dead"), await world.producer("alive")
        async with sharer(world) as consumer:
            tx = dead.transaction()
            await tx.__aenter__()
            record = await consumer.getone()
            await tx.acknowledge(consumer, record)
            await dead._driver.acknowledge(tx._taken[consumer])
            assert await consumer.getmany(timeout_ms=40_000) == []
            world.force_abort("dead")
            again = await consumer.getone(timeout_ms=5_000)
            assert seen([again]) == [(b"0", 2)]
            await bill(world, producer, consumer, again)
            with pytest.raises(ProducerFencedError, match="an operator aborted"):
                await tx.__aexit__(None, None, None)
        assert await left(world) == []

    within(main)


def test_a_record_acknowledged_in_a_transaction_cannot_be_acknowledged_again() -> None:
    async def main(world: TxnWorld) -> None:
        await write(world, b"0", b"1")
        producer = await world.producer()
        async with sharer(world) as consumer:
            one, other = await consumer.getmany(timeout_ms=5_000)
            async with producer.transaction() as tx:
                await tx.acknowledge(consumer, one)
                with pytest.raises(IllegalStateError, match="offset 0 is acknowledged already"):
                    await tx.acknowledge(consumer, other, one)
                with pytest.raises(IllegalStateError, match="a transaction acknowledges"):
                    consumer.acknowledge(one, RELEASE)
                with pytest.raises(ValueError, match="can ACCEPT or REJECT a record, not RELEASE it"):
                    await tx.acknowledge(consumer, other, type=RELEASE)
                await tx.acknowledge(consumer, other, type=ACCEPT)
            with pytest.raises(IllegalStateError, match="can be sent only within a transaction"):
                await tx.acknowledge(consumer, one)
        assert await left(world) == []

    within(main)


def test_acknowledging_an_object_that_is_not_a_share_record_raises_type_error() -> None:
    async def main(world: TxnWorld) -> None:
        await write(world, b"0")
        producer = await world.producer()
        async with sharer(world) as consumer:
            record = await consumer.getone()
            plain = Record(*record[:8])
            async with producer.transaction() as tx:
                for wrong, named in ((plain, "Record"), ([record], "list")):
                    text = f"a record that a ShareConsumer returned, not {named}"
                    with pytest.raises(TypeError, match=text):
                        await tx.acknowledge(consumer, record, wrong)  # type: ignore[arg-type]
                    with pytest.raises(TypeError, match=text):
                        consumer.acknowledge(wrong)  # type: ignore[arg-type]
                with pytest.raises(TypeError, match=r"expected a fencepost\.ShareConsumer, not builtins\.str"):
                    await tx.acknowledge("g", record)
                await tx.acknowledge(consumer, record)
        assert await left(world) == []

    within(main)


def test_in_implicit_mode_acknowledging_in_a_transaction_raises_illegal_state() -> None:
    async def main(world: TxnWorld) -> None:
        await write(world, b"0")
        producer = await world.producer()
        async with sharer(world, acknowledgement="implicit") as consumer:
            record = await consumer.getone()
            with pytest.raises(IllegalStateError, match='needs acknowledgement="explicit"'):
                await bill(world, producer, consumer, record)

    within(main)


def test_share_transactions_on_a_kafka_broker_are_refused_before_any_acknowledgement() -> None:
    async def main(world: TxnWorld) -> None:
        await make(world)
        await write(world, b"0")
        producer = await world.producer()
        async with sharer(world) as consumer:
            record = await consumer.getone()
            connection = await producer._cluster.coordinator("group", "g")
            connection._versions = {
                kind: each for kind, each in connection._versions.items() if NAME not in kind.__name__
            }
            with pytest.raises(UnsupportedVersionError, match="cannot acknowledge records of a share group inside"):
                await bill(world, producer, consumer, record)
        assert await bills(world) == []
        assert await left(world) == [(b"0", 2)]

    within(main)
