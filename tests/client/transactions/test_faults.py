"""Transactions when requests fail: what is retried, what is aborted, what is said, and what clients once got wrong."""

import asyncio

import pytest
from fencepost.client.errors import (
    AbortableTransactionError,
    AuthorizationError,
    CommitOutcomeUnknownError,
    FatalError,
    ProducerFencedError,
    RequestTimedOutError,
    error_of,
)
from fencepost.client.transactions.driver import TransactionDriver
from fencepost.client.transactions.table import State
from fencepost.client.values import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from fencepost.protocol.errors import ErrorCode
from txn_world import TxnWorld, within, write

both = pytest.mark.parametrize("version", [1, 2])
SWEEP_S = 15


# ---- a commit whose answer does not come ---------------------------------------------------------------------------


@both
@pytest.mark.parametrize("when", ["before_write", "after_write"])
def test_an_end_txn_lost_with_its_connection_is_sent_again_and_commits(version, when):
    async def main(world: TxnWorld) -> None:
        producer = await world.producer()
        world.faults.disconnect("EndTxn", when=when).once()
        await write(producer, b"a")
        await write(producer, b"b")
        assert await world.values() == [b"a", b"b"]
        begun_anew = world.names().count("InitProducerId") - 1
        assert begun_anew == (version == 1), "a late EndTxn of version 1 must find another epoch"

    within(main, version)


@both
@pytest.mark.requirement("S-138")
@pytest.mark.parametrize("when", ["before_write", "after_write"])
def test_an_unanswered_commit_blocks_the_producer_until_resolve_gets_an_answer(version, when):
    """Writing and aborting raise CommitOutcomeUnknownError until then."""

    async def main(world: TxnWorld) -> None:
        producer = await world.producer()
        silence = world.faults.blackhole("EndTxn", when=when)
        with pytest.raises(CommitOutcomeUnknownError) as unknown:
            await write(producer, b"a")
        with pytest.raises(CommitOutcomeUnknownError):
            await write(producer, b"b")
        with pytest.raises(CommitOutcomeUnknownError):
            await producer.abort_transaction()
        assert await unknown.value.resolve() == "unknown", "nobody answers yet"
        world.faults.remove(silence)
        assert await unknown.value.resolve() == "committed"
        assert await unknown.value.resolve() == "committed"
        await write(producer, b"c")
        assert await world.values() == [b"a", b"c"]
        assert await unknown.value.resolve() == "committed", "also when another transaction has begun since"

    within(main, version)


@both
def test_after_the_timeout_a_lost_commit_is_aborted_with_v2_and_unknown_with_v1(version):
    async def main(world: TxnWorld) -> None:
        producer = await world.producer(transaction_timeout_ms=10_000)
        silence = world.faults.blackhole("EndTxn")
        with pytest.raises(CommitOutcomeUnknownError) as unknown:
            await write(producer, b"a")
        await asyncio.sleep(10 + SWEEP_S)
        world.faults.remove(silence)
        assert await unknown.value.resolve() == ("aborted" if version == 2 else "unknown")
        assert await world.values() == []
        if version == 2:
            await write(producer, b"b")
            assert await world.values() == [b"b"]
        else:
            with pytest.raises(ProducerFencedError):
                await write(producer, b"b")

    within(main, version)


@both
def test_after_an_unknown_outcome_init_transactions_makes_the_producer_usable(version):
    async def main(world: TxnWorld) -> None:
        producer = await world.producer()
        silence = world.faults.blackhole("EndTxn")
        with pytest.raises(CommitOutcomeUnknownError):
            await write(producer, b"a")
        world.faults.remove(silence)
        await producer.init_transactions()
        await write(producer, b"b")
        assert await world.values() == [b"b"]

    within(main, version)


@both
@pytest.mark.parametrize("code", ["UNKNOWN_SERVER_ERROR", "COORDINATOR_NOT_AVAILABLE", "CONCURRENT_TRANSACTIONS"])
def test_kgo_42b3d83_a_retriable_error_of_end_txn_is_retried(version, code):
    """The Go client kgo did not send EndTxn again, and reported the transaction as committed."""

    async def main(world: TxnWorld) -> None:
        producer = await world.producer()
        world.faults.error("EndTxn", code).times(2)
        await write(producer, b"a")
        assert await world.values() == [b"a"]
        assert world.names().count("EndTxn") == 3

    within(main, version)


def test_aiokafka_1134_a_moved_coordinator_is_looked_up_again():
    """aiokafka went on asking the former coordinator, without looking for the new one."""

    async def main(world: TxnWorld) -> None:
        found = world.faults.delay("FindCoordinator", 0.01).times(2)
        producer = await world.producer()
        world.faults.error("EndTxn", "NOT_COORDINATOR").once()
        await write(producer, b"a")
        assert found.calls == 2

    within(main)


@pytest.mark.parametrize("version", [1, 2])
def test_a_commit_that_is_received_twice_commits_once(version):
    async def main(world: TxnWorld) -> None:
        producer = await world.producer()
        world.faults.duplicate("EndTxn").times(3)
        for value in (b"a", b"b", b"c"):
            await write(producer, value)
        assert await world.values() == [b"a", b"b", b"c"]

    within(main, version)


# ---- writes that fail ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "api"),
    [
        *[(1, api) for api in ("AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "InitProducerId")],
        *[(2, api) for api in ("TxnOffsetCommit", "InitProducerId")],
    ],
)
@pytest.mark.parametrize("when", ["before_write", "after_write"])
def test_lost_transaction_requests_are_sent_again(version, api, when):
    async def main(world: TxnWorld) -> None:
        world.faults.disconnect(api, when=when).times(2)
        producer = await world.producer()
        async with producer.transaction() as tx:
            await tx.send_and_wait("t", b"a")
            await tx.send_offsets_to_transaction(
                {TopicPartition("t", 0): OffsetAndMetadata(1)}, ConsumerGroupMetadata("g")
            )
        await write(producer, b"b")
        assert await world.values() == [b"a", b"b"]

    within(main, version)


@both
def test_a_delivery_that_nobody_awaited_fails_the_commit(version):
    async def main(world: TxnWorld) -> None:
        producer = await world.producer()
        await write(producer, b"a")
        world.faults.error("Produce", "INVALID_RECORD").once()
        with pytest.raises(AbortableTransactionError):
            await write(producer, b"b")
        await write(producer, b"c")
        assert await world.values() == [b"a", b"c"]

    within(main, version)


@both
def test_kgo_de5af46_a_transaction_whose_only_write_failed_is_aborted(version):
    """The Go client kgo sent no EndTxn: the transaction stayed open, and the next one joined it."""

    async def main(world: TxnWorld) -> None:
        producer = await world.producer()
        world.faults.error("Produce", "INVALID_RECORD", when="after_write").once()
        with pytest.raises(AbortableTransactionError):
            await write(producer, b"a")
        assert "EndTxn" in world.names()
        await write(producer, b"b")
        assert await world.values() == [b"b"]

    within(main, version)


@both
def test_librdkafka_3575_an_out_of_order_error_aborts_only_its_transaction(version):
    """librdkafka asked for a new epoch in mid-transaction, and committed only what it sent after that."""

    async def main(world: TxnWorld) -> None:
        producer = await world.producer()
        world.faults.error("Produce", "OUT_OF_ORDER_SEQUENCE_NUMBER").on_call(2)
        await write(producer, b"a")
        with pytest.raises(AbortableTransactionError):
            await write(producer, b"b")
        await write(producer, b"c")
        assert await world.values() == [b"a", b"c"]

    within(main, version)


@pytest.mark.slow
@both
def test_librdkafka_1_7_a_transaction_is_aborted_if_the_broker_stops_in_its_body(version):
    """Before librdkafka 1.7, a commit succeeded though its records were never sent."""

    async def main(world: TxnWorld) -> None:
        producer = await world.producer()
        await write(producer, b"a")
        with pytest.raises(AbortableTransactionError) as failed:  # noqa: PT012
            async with producer.transaction() as tx:
                await tx.send_and_wait("t", b"b")
                await world.world.stop_broker()
                await tx.send("t", b"b")
        assert "could not be aborted" in failed.value.__notes__[0]
        await world.start()
        await write(producer, b"c")
        assert await world.values() == [b"a", b"c"]

    within(main, version)


@pytest.mark.slow
@both
def test_a_transaction_open_during_a_broker_restart_can_be_committed(version):
    async def main(world: TxnWorld) -> None:
        producer = await world.producer()
        async with producer.transaction() as tx:
            await tx.send_and_wait("t", b"a")
            await world.restart()
            await tx.send("t", b"b")
        assert await world.values() == [b"a", b"b"]

    within(main, version)


@both
def test_kafka_12152_13794_a_transaction_commits_after_one_with_lost_batches(version):
    """Kafka's client then continued with wrong sequences, or lost a batch."""

    async def main(world: TxnWorld) -> None:
        producer = await world.producer(delivery_timeout_ms=3_000)
        await write(producer, b"a", partition=0)
        silence = world.faults.blackhole("Produce")
        with pytest.raises(AbortableTransactionError):
            await write(producer, b"b", partition=0)
        world.faults.remove(silence)
        async with producer.transaction() as tx:
            for partition in (0, 1):
                await tx.send("t", b"c", partition=partition)
        assert (await world.values(), await world.values(partition=1)) == ([b"a", b"c"], [b"c"])

    within(main, version, num_partitions=2)


@pytest.mark.slow
@both
@pytest.mark.requirement("S-67")
def test_a_write_that_fails_while_the_commit_begins_prevents_the_commit(version):
    """The answer to the write arrives in each of eight turns of the loop around the commit. Records of the transaction
    must not be committed without those of the failed write.
    """

    async def main(world: TxnWorld) -> None:
        for turns in range(8):
            producer = await world.producer(f"x{turns}")
            left = turns
            await producer.begin_transaction()
            await (await producer.send("t", b"beside", partition=0))
            fault = world.faults.error("Produce", "TRANSACTION_ABORTABLE").once()
            await producer.send("u", b"failed", partition=0)
            for _ in range(1000):
                left -= fault.fired
                if left < 0:
                    break
                await asyncio.sleep(0)
            world.asked.clear()
            with pytest.raises(AbortableTransactionError):
                await producer.commit_transaction()
            assert "EndTxn" not in world.names(), f"after {turns} turns"
            await producer.abort_transaction()
        assert await world.values() + await world.values("u") == []

    within(main, version)


@both
def test_a_write_that_fails_in_the_turn_of_the_commit_prevents_the_commit(version):
    async def main(world: TxnWorld) -> None:
        producer = await world.producer()
        await producer.begin_transaction()
        await (await producer.send("t", b"beside", partition=0))
        world.asked.clear()
        committing = asyncio.get_running_loop().create_task(producer.commit_transaction())
        await asyncio.sleep(0)
        assert producer._driver is not None
        producer._driver.failed(TopicPartition("t", 1), error_of(ErrorCode.TRANSACTION_ABORTABLE))
        with pytest.raises(AbortableTransactionError):
            await committing
        assert world.names() == []
        await producer.abort_transaction()
        assert await world.values() == []

    within(main, version)


# ---- aborts ----------------------------------------------------------------------------------------------------------


@both
def test_a_failed_abort_is_noted_on_the_exception_and_repeated_by_the_next_begin(version):
    async def main(world: TxnWorld) -> None:
        producer = await world.producer()
        silence = world.faults.blackhole("EndTxn")
        with pytest.raises(ZeroDivisionError) as failed:  # noqa: PT012
            async with producer.transaction() as tx:
                await tx.send_and_wait("t", b"a")
                raise ZeroDivisionError
        assert "could not be aborted" in failed.value.__notes__[0]
        world.faults.remove(silence)
        await write(producer, b"b")
        assert await world.values() == [b"b"]

    within(main, version)


# ---- fenced ----------------------------------------------------------------------------------------------------------


@both
def test_the_fenced_error_names_a_newer_producer_as_its_reason(version):
    async def main(world: TxnWorld) -> None:
        old = await world.producer()
        with pytest.raises(ProducerFencedError) as fenced:  # noqa: PT012
            async with old.transaction() as tx:
                await tx.send_and_wait("t", b"a")
                new = await world.producer()
                await tx.send("t", b"b")
        assert (fenced.value.reason, fenced.value.current_epoch) == ("newer_producer", new.producer_epoch)
        with pytest.raises(ProducerFencedError):
            await write(old, b"c")
        await write(new, b"d")
        assert await world.values() == [b"d"]

    within(main, version)


@pytest.mark.slow
@both
@pytest.mark.parametrize("writes", [True, False])
def test_a_timed_out_transaction_raises_fenced_with_reason_transaction_timeout(version, writes):
    async def main(world: TxnWorld) -> None:
        producer = await world.producer(transaction_timeout_ms=10_000)
        with pytest.raises(ProducerFencedError) as fenced:  # noqa: PT012
            async with producer.transaction() as tx:
                await tx.send_and_wait("t", b"a")
                await asyncio.sleep(10 + SWEEP_S)
                if writes:
                    await tx.send("t", b"b")
        assert fenced.value.reason == "transaction_timeout"
        await write(producer, b"c")
        assert await world.values() == [b"c"]

    within(main, version)


@pytest.mark.parametrize("awaits", [True, False])
def test_a_timeout_that_only_the_brokers_clock_has_reached_is_reported_as_such(awaits):
    """The client learns the reason from the broker (from Kafka's brokers since 3.8, KIP-994)."""

    async def main(world: TxnWorld) -> None:
        producer = await world.producer()
        with pytest.raises(ProducerFencedError) as fenced:  # noqa: PT012
            async with producer.transaction() as tx:
                await tx.send_and_wait("t", b"a")
                await world.only_the_broker_sees(60 + SWEEP_S)
                await (tx.send_and_wait("t", b"b") if awaits else tx.send("t", b"b"))
        assert fenced.value.reason == "transaction_timeout"
        await write(producer, b"c")
        assert await world.values() == [b"c"]

    within(main)


@both
def test_an_operators_abort_raises_fenced_with_reason_admin_abort(version):
    async def main(world: TxnWorld) -> None:
        producer = await world.producer()
        with pytest.raises(ProducerFencedError) as fenced:  # noqa: PT012
            async with producer.transaction() as tx:
                await tx.send_and_wait("t", b"a")
                world.force_abort("x")
        assert fenced.value.reason == "admin_abort"
        await write(producer, b"b")
        assert await world.values() == [b"b"]

    within(main, version)


@pytest.mark.parametrize("version", [1, 2])
def test_confluent_python_1125_a_repeated_init_producer_id_fences_nobody(version):
    async def main(world: TxnWorld) -> None:
        world.faults.disconnect("InitProducerId", when="after_write").times(2)
        producer = await world.producer()
        for value in (b"a", b"b"):
            await write(producer, value)
        assert await world.values() == [b"a", b"b"]

    within(main, version)


# ---- initialising ----------------------------------------------------------------------------------------------------


def test_kafka_13412_an_initialisation_that_timed_out_is_retried():
    """The test calls the driver itself, because a failed start() of a producer closes everything."""

    async def main(world: TxnWorld) -> None:
        cluster = await world.world.cluster()
        settings = world.world.settings(transactional_id="x", request_timeout_ms=1_000, max_block_ms=5_000)
        driver = TransactionDriver(settings, cluster, world.world.environment)
        silence = world.faults.blackhole("InitProducerId")
        with pytest.raises(RequestTimedOutError):
            await driver.initialise()
        assert driver.state is State.UNINITIALIZED
        world.faults.remove(silence)
        await driver.initialise()
        assert driver.state is State.READY

    within(main)


def test_kafka_13412_an_epoch_bump_that_timed_out_is_retried():
    """The next transaction requests a new epoch, so that a late request of the one before cannot count for it."""

    async def main(world: TxnWorld) -> None:
        producer = await world.producer()
        world.faults.disconnect("EndTxn", when="after_write").once()
        await write(producer, b"a")
        silence = world.faults.blackhole("InitProducerId")
        for _ in range(2):
            with pytest.raises(RequestTimedOutError):
                await write(producer, b"b")
        world.faults.remove(silence)
        await write(producer, b"c")
        assert await world.values() == [b"a", b"c"]

    within(main, 1)


@pytest.mark.slow
@both
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("INVALID_TXN_STATE", FatalError),
        ("INVALID_PRODUCER_EPOCH", ProducerFencedError),
        ("TOPIC_AUTHORIZATION_FAILED", AuthorizationError),
    ],
)
def test_send_and_wait_of_a_record_that_cannot_be_sent_fails_at_once(version, error, kind):
    async def main(world: TxnWorld) -> None:
        producer = await world.producer(delivery_timeout_ms=60_000)
        await write(producer, b"a")
        world.faults.error("AddPartitionsToTxn" if version == 1 else "Produce", error).once()
        await producer.begin_transaction()
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(kind) as reported:
            await producer.send_and_wait("t", b"b")
        assert reported.value.code.name == error
        assert loop.time() - began < 1

    within(main, version)
