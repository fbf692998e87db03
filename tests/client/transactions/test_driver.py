"""Transactions of a producer against a real broker in virtual time: what is asked for, and what is said of faults."""

import asyncio

import pytest
from fencepost.client.errors import (
    AbortableTransactionError,
    CommitOutcomeUnknownError,
    IllegalStateError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from fencepost.client.producer.producer import Producer
from fencepost.client.values import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from txn_world import BOOTSTRAP, TxnWorld, within

both = pytest.mark.parametrize("version", [1, 2])
GROUP = ConsumerGroupMetadata("g")
OFFSETS = {TopicPartition("t", 0): OffsetAndMetadata(5)}


# ---- what is asked for -------------------------------------------------------------------------------------------


@pytest.mark.requirement("S-115")
@pytest.mark.requirement("S-135")
def test_a_version_2_transaction_sends_only_produce_and_end_txn():
    async def main(world: TxnWorld) -> None:
        producer = await world.producer()
        async with producer.transaction() as tx:
            await tx.send("t", b"a")
        async with producer.transaction() as tx:
            await tx.send("t", b"b")
        assert world.asked == [("InitProducerId", 5), ("Produce", 13), ("EndTxn", 5), ("Produce", 13), ("EndTxn", 5)]
        assert producer.producer_epoch == 2
        assert await world.values() == [b"a", b"b"]

    within(main)


@pytest.mark.requirement("S-77")
def test_with_version_1_partitions_are_added_in_one_request_before_the_writes():
    async def main(world: TxnWorld) -> None:
        producer = await world.producer()
        async with producer.transaction() as tx:
            await tx.send("t", b"a", partition=0)
            await tx.send("t", b"b", partition=1)
            await tx.send("t", b"c", partition=0)
        assert world.names() == ["InitProducerId", "AddPartitionsToTxn", "Produce", "EndTxn"]
        assert producer.producer_epoch == 0
        assert (await world.values(), await world.values(partition=1)) == ([b"a", b"c"], [b"b"])

    within(main, 1, num_partitions=2)


def test_kafka_4_with_transaction_version_1_gets_the_requests_of_version_1(monkeypatch):
    """Such a broker lists the newest versions of the requests, and transaction.version 1 or none."""
    monkeypatch.setattr("fencepost.client.transactions.requests.TRANSACTION_FEATURE", "not listed")

    async def main(world: TxnWorld) -> None:
        producer = await world.producer()
        async with producer.transaction() as tx:
            await tx.send("t", b"a")
            await tx.send_offsets_to_transaction(OFFSETS, GROUP)
        asked = dict(world.asked)
        assert (asked["AddPartitionsToTxn"], asked["Produce"], asked["EndTxn"]) == (3, 11, 4)
        assert (asked["AddOffsetsToTxn"], asked["TxnOffsetCommit"]) == (4, 4)
        assert producer.producer_epoch == 0
        assert await world.values() == [b"a"]

    within(main)


@both
@pytest.mark.requirement("S-87")
def test_an_exception_aborts_the_transaction_and_is_raised_unchanged(version):
    async def main(world: TxnWorld) -> None:
        producer = await world.producer()
        with pytest.raises(ZeroDivisionError):  # noqa: PT012
            async with producer.transaction() as tx:
                await tx.send_and_wait("t", b"written")
                await tx.send("t", b"not sent")
                raise ZeroDivisionError
        async with producer.transaction() as tx:
            await tx.send("t", b"kept")
        assert await world.values() == [b"kept"]

    within(main, version)


@both
@pytest.mark.requirement("S-76")
def test_an_empty_transaction_sends_no_request(version):
    async def main(world: TxnWorld) -> None:
        producer = await world.producer()
        world.asked.clear()
        async with producer.transaction():
            pass
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction():
                raise ZeroDivisionError
        assert world.names() == []

    within(main, version)


@pytest.mark.requirement("S-93")
def test_a_second_init_transactions_raises_illegal_state():
    async def main(world: TxnWorld) -> None:
        producer = await world.producer()
        await producer.init_transactions()
        with pytest.raises(IllegalStateError, match="once"):
            await producer.init_transactions()
        async with producer.transaction() as tx:
            await tx.send("t", b"a")
        assert await world.values() == [b"a"]

    within(main)


@both
def test_init_transactions_after_the_first_transaction_raises(version):
    async def main(world: TxnWorld) -> None:
        producer = await world.producer()
        async with producer.transaction():
            with pytest.raises(IllegalStateError, match="before the first"):
                await producer.init_transactions()
        with pytest.raises(IllegalStateError, match="before the first"):
            await producer.init_transactions()

    within(main, version)


def test_javas_transaction_methods_work_like_the_transaction_block():
    async def main(world: TxnWorld) -> None:
        producer = Producer(BOOTSTRAP, environment=world.world.environment, transactional_id="x")
        for step in (producer.init_transactions, producer.begin_transaction):
            with pytest.raises(IllegalStateError, match="not started"):
                await step()
        producer = await world.producer()
        await producer.init_transactions()
        with pytest.raises(IllegalStateError):
            await producer.send("t", b"outside")
        await producer.begin_transaction()
        await producer.send("t", b"a")
        await producer.commit_transaction()
        await producer.begin_transaction()
        await producer.send("t", b"b")
        await producer.abort_transaction()
        assert await world.values() == [b"a"]

    within(main)


@pytest.mark.requirement("S-134")
def test_without_a_transactional_id_no_coordinator_is_asked():
    async def main(world: TxnWorld) -> None:
        producer = await world.producer(transactional_id=None)
        await producer.send_and_wait("t", b"a")
        with pytest.raises(IllegalStateError):
            producer.transaction()
        assert world.names() == ["InitProducerId", "Produce"]

    within(main)


@pytest.mark.requirement("S-86")
@both
def test_commit_waits_for_every_send(version):
    async def main(world: TxnWorld) -> None:
        producer = await world.producer(linger_ms=10_000)
        world.faults.error("Produce", "NOT_ENOUGH_REPLICAS").times(2)
        async with producer.transaction() as tx:
            deliveries = [await tx.send("t", b"%d" % number) for number in range(50)]
        assert all(each.done() for each in deliveries)
        assert await world.values() == [b"%d" % number for number in range(50)]

    within(main, version)


def test_the_repr_of_a_transaction_has_its_state():
    async def main(world: TxnWorld) -> None:
        producer = await world.producer("orders-1")
        async with producer.transaction() as tx:
            await tx.send_and_wait("t", b"a")  # the topic is there from now on
        async with producer.transaction(label="nightly") as tx:
            await tx.send_and_wait("t", b"a")
            await asyncio.sleep(1.2)
            assert repr(tx).startswith("<Transaction orders-1 'nightly' pid=")
            assert repr(tx).endswith("epoch=1 Ongoing 1 partition 1.2s/60s>")

    within(main)


def test_an_ended_transactions_handle_cannot_write_to_the_next_one():
    async def main(world: TxnWorld) -> None:
        producer = await world.producer()
        async with producer.transaction() as first:
            await first.send("t", b"a")
        async with producer.transaction():
            with pytest.raises(IllegalStateError):
                await first.send("t", b"b")
            with pytest.raises(IllegalStateError):
                await first.send_offsets_to_transaction(OFFSETS, GROUP)

    within(main)


# ---- offsets -----------------------------------------------------------------------------------------------------


@both
@pytest.mark.requirement("S-81")
@pytest.mark.requirement("S-82")
def test_consumer_offsets_are_committed_with_the_transaction(version):
    async def main(world: TxnWorld) -> None:
        producer = await world.producer()
        await producer.partitions_for("t")
        async with producer.transaction() as tx:
            await tx.send_offsets_to_transaction(OFFSETS, GROUP)
            await tx.send_offsets_to_transaction({TopicPartition("t", 0): OffsetAndMetadata(6)}, GROUP)
        adding = ["AddOffsetsToTxn"] if version == 1 else []
        assert world.names() == ["InitProducerId", *adding, "TxnOffsetCommit", "TxnOffsetCommit", "EndTxn"]

    within(main, version)


def test_send_offsets_with_a_group_name_instead_of_metadata_is_a_type_error():
    async def main(world: TxnWorld) -> None:
        producer = await world.producer()
        with pytest.raises(TypeError, match="does not identify a member"):
            async with producer.transaction() as tx:
                await tx.send_offsets_to_transaction(OFFSETS, "g")  # type: ignore[arg-type]
        assert "TxnOffsetCommit" not in world.names()

    within(main)


def test_below_kafka_2_5_offsets_in_a_transaction_are_refused_and_records_are_not():
    async def main(world: TxnWorld) -> None:
        producer = await world.producer()
        async with producer.transaction() as tx:
            await tx.send("t", b"a")
        with pytest.raises(UnsupportedVersionError, match=r"TxnOffsetCommit.*needs version 3"):  # noqa: PT012
            async with producer.transaction() as tx:
                await tx.send("t", b"b")
                await tx.send_offsets_to_transaction(OFFSETS, GROUP)
        assert "AddOffsetsToTxn" not in world.names()
        async with producer.transaction() as tx:
            await tx.send("t", b"c")
        assert await world.values() == [b"a", b"c"]

    within(main, release="2.3")


@both
@pytest.mark.requirement("S-83")
def test_offsets_with_another_generation_of_the_group_raise_an_abortable_error(version):
    async def main(world: TxnWorld) -> None:
        producer = await world.producer()
        with pytest.raises(AbortableTransactionError):
            async with producer.transaction() as tx:
                await tx.send_offsets_to_transaction(OFFSETS, ConsumerGroupMetadata("g", 3, "gone"))
        async with producer.transaction() as tx:
            await tx.send("t", b"again")
        assert await world.values() == [b"again"]

    within(main, version)


class RecordingBatch:
    """A batch as a consumer yields it."""

    def __init__(self, group: ConsumerGroupMetadata | None = GROUP) -> None:
        self.offsets = OFFSETS
        self.group_metadata = group
        self.calls: list[str] = []

    def aborted(self) -> None:
        self.calls.append("aborted")

    def committed(self) -> None:
        self.calls.append("committed")

    def claim(self, by) -> None:
        pass

    def outcome_unknown(self) -> None:
        self.calls.append("unknown")


@both
@pytest.mark.requirement("S-91")
def test_a_batch_is_marked_committed_or_aborted_as_its_transaction_ends(version):
    async def main(world: TxnWorld) -> None:
        producer = await world.producer()
        batch = RecordingBatch()
        async with producer.transaction(batch) as tx:
            await tx.send("t", b"a")
        assert batch.calls == ["committed"]
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction(batch):
                raise ZeroDivisionError
        assert batch.calls == ["committed", "aborted"]
        assert world.names().count("TxnOffsetCommit") == 1

    within(main, version)


@pytest.mark.requirement("S-91")
def test_a_batch_whose_transaction_cannot_begin_is_marked_aborted():
    async def main(world: TxnWorld) -> None:
        producer, batch = await world.producer(), RecordingBatch()
        world.faults.disconnect("EndTxn", when="after_write").once()
        async with producer.transaction() as tx:  # with version 1 the next one asks for another epoch
            await tx.send("t", b"before")
        silence = world.faults.blackhole("InitProducerId")
        with pytest.raises(RequestTimedOutError):
            async with producer.transaction(batch):
                pytest.fail("it has not begun")
        assert batch.calls == ["aborted"]
        world.faults.remove(silence)
        async with producer.transaction(batch) as tx:
            await tx.send("t", b"a")
        assert batch.calls == ["aborted", "committed"]

    within(main, 1)


def test_send_offsets_with_a_consumer_takes_its_last_batch_or_raises_without():
    class Consumer:
        last_batch: RecordingBatch | None = None

    async def main(world: TxnWorld) -> None:
        producer, consumer = await world.producer(), Consumer()
        await producer.partitions_for("t")
        with pytest.raises(IllegalStateError, match="returned nothing since"):
            async with producer.transaction() as tx:
                await tx.send_offsets_to_transaction(consumer)
        consumer.last_batch = RecordingBatch()
        async with producer.transaction() as tx:
            await tx.send_offsets_to_transaction(consumer)
        assert consumer.last_batch.calls == ["committed"]

    within(main)


@both
@pytest.mark.parametrize("commit", [True, False])
def test_javas_transaction_methods_mark_a_batch_as_committed_or_aborted(version, commit):
    async def main(world: TxnWorld) -> None:
        producer, batch = await world.producer(), RecordingBatch()
        await producer.partitions_for("t")
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction(batch)
        assert batch.calls == []
        await (producer.commit_transaction() if commit else producer.abort_transaction())
        assert batch.calls == ["committed" if commit else "aborted"]

    within(main, version)


def test_a_cancelled_commit_marks_its_batch_committed_and_an_unanswered_one_unknown():
    async def main(world: TxnWorld) -> None:
        producer, batch = await world.producer(), RecordingBatch()
        await producer.partitions_for("t")
        world.faults.delay("EndTxn", 0.5).once()

        async def work() -> None:
            async with producer.transaction(batch):
                pass

        task = asyncio.get_running_loop().create_task(work())
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert batch.calls == ["committed"]
        world.faults.blackhole("EndTxn")
        with pytest.raises(CommitOutcomeUnknownError):
            await work()
        assert batch.calls == ["committed", "unknown"]

    within(main)


@both
def test_run_in_transaction_does_the_work_again_after_an_abort(version):
    async def main(world: TxnWorld) -> None:
        producer = await world.producer()
        world.faults.error("Produce", "INVALID_RECORD").times(2)
        tries = []

        async def work(tx) -> int:
            tries.append(await tx.send("t", b"a"))
            return len(tries)

        assert await producer.run_in_transaction(work) == 3
        assert await world.values() == [b"a"]

    within(main, version)


def test_a_second_transaction_beside_an_open_one_raises_with_a_hint_to_producer_pool():
    async def main(world: TxnWorld) -> None:
        producer = await world.producer()
        async with producer.transaction() as tx:
            await tx.send("t", b"a")
            with pytest.raises(IllegalStateError) as second:
                async with producer.transaction():
                    pass
            assert "ProducerPool" in second.value.hint
            await tx.send("t", b"b")
        with pytest.raises(IllegalStateError) as raised:
            await producer.commit_transaction()
        assert not raised.value.hint, "the hint is for who begins"
        assert await world.values() == [b"a", b"b"]

    within(main)
