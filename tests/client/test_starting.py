"""Starting a client; a producer with a transactional id takes it over then, before anybody waits for that."""

import asyncio
from functools import partial

import pytest
from fencepost.client.admin.admin import Admin
from fencepost.client.consumer.consumer import Consumer
from fencepost.client.errors import (
    AuthorizationError,
    ClosedError,
    IllegalStateError,
    InvalidConfigurationError,
    ProducerFencedError,
    RequestTimedOutError,
)
from fencepost.client.producer.producer import Producer
from fencepost.client.values import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from txn_world import BOOTSTRAP, TxnWorld, within, write

both = pytest.mark.parametrize("version", [1, 2])
T0 = TopicPartition("t", 0)
SOON_S = 5  # the transaction's timeout is 60


def now():
    return asyncio.get_running_loop().time()


def reader(world: TxnWorld, **keywords) -> Consumer:
    return Consumer(BOOTSTRAP, environment=world.world.environment, auto_offset_reset="earliest", **keywords)


def not_started(world: TxnWorld, **keywords) -> Producer:
    keywords = {"request_timeout_ms": 1_000, "max_block_ms": 5_000, **keywords}
    return Producer(BOOTSTRAP, transactional_id="x", environment=world.world.environment, **keywords)


async def died_with_an_open_transaction(world: TxnWorld, *, offsets: bool = False) -> None:
    """Write in a transaction, with offsets of a group if `offsets`, and kill the producer before it ends it."""
    producer = await world.producer()
    await producer.begin_transaction()
    await producer.send_and_wait("t", b"left open", partition=0)
    if offsets:
        await producer.send_offsets_to_transaction({T0: OffsetAndMetadata(2)}, ConsumerGroupMetadata("g"))
    await producer._cluster.close()
    world.asked.clear()


# ---- what a predecessor left -------------------------------------------------------------------------------------


@both
@pytest.mark.requirement("S-93")
def test_starting_a_producer_aborts_its_predecessors_transaction(version):
    async def main(world: TxnWorld) -> None:
        await died_with_an_open_transaction(world)
        async with reader(world) as consumer:
            assert await consumer.end_offsets([T0]) == {T0: 0}
            began = now()
            async with not_started(world):
                assert await consumer.end_offsets([T0]) == {T0: 2}, "after the record and its marker"
            assert now() - began < SOON_S
        assert set(world.names()) == {"InitProducerId"}
        assert await world.values() == []

    within(main, version)


@pytest.mark.slow
@both
@pytest.mark.requirement("S-89")
def test_starting_a_producer_again_ends_its_pending_offsets_so_that_the_group_reads(version):
    """Until then the broker answers UNSTABLE_OFFSET_COMMIT and the consumer reads nothing, so it could not begin a
    transaction that would end them.
    """

    async def main(world: TxnWorld) -> None:
        async with Producer(BOOTSTRAP, environment=world.world.environment) as plain:
            for value in (b"a", b"b"):
                await plain.send_and_wait("t", value, partition=0)
        await died_with_an_open_transaction(world, offsets=True)
        began = now()
        async with not_started(world) as producer, reader(world, topics=["t"], group_id="g") as consumer:
            batch = await anext(consumer.batches())
            assert now() - began < SOON_S
            assert [record.value for record in batch] == [b"a", b"b"]
            async with producer.transaction(batch) as tx:
                await tx.send("copies", b"of both")
            assert (await consumer.committed(T0))[T0].offset == batch.offsets[T0].offset
        assert await world.values("copies") == [b"of both"]

    within(main, version)


@both
def test_starting_a_producer_fences_the_previous_producer_of_its_id(version):
    async def main(world: TxnWorld) -> None:
        old = await world.producer()
        async with old.transaction() as tx:
            await tx.send("t", b"a")
        async with not_started(world):
            with pytest.raises(ProducerFencedError) as fenced:
                async with old.transaction() as tx:
                    await tx.send_and_wait("t", b"b")
            assert fenced.value.reason == "newer_producer"
            with pytest.raises(ProducerFencedError):
                await old.init_transactions()

    within(main, version)


# ---- a start that fails ------------------------------------------------------------------------------------------


async def turn(times: int) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


def clients_at_work() -> list[str]:
    """Return the modules of all running tasks of clients."""
    frames = [task.get_coro().cr_frame for task in asyncio.all_tasks()]
    names = [each.f_globals["__name__"] for each in frames if each is not None]
    return [name for name in names if name.startswith("fencepost.client")]


async def leaves_nothing(world: TxnWorld, starting, error: type[BaseException]) -> BaseException:
    """Assert that `starting` raises this error, and leaves no task of a client and no connection. Returns the error."""
    with pytest.raises(error) as raised:
        await starting
    assert not clients_at_work()
    await asyncio.sleep(0.1)  # for the broker to see it
    assert not world.broker.server.connections
    return raised.value


REFUSALS = {
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": AuthorizationError,
    "CLUSTER_AUTHORIZATION_FAILED": AuthorizationError,
    "INVALID_PRODUCER_EPOCH": ProducerFencedError,
}


@pytest.mark.parametrize("code", REFUSALS)
def test_start_raises_the_error_with_which_init_producer_id_is_refused(code):
    async def main(world: TxnWorld) -> None:
        world.faults.error("InitProducerId", code)
        producer = not_started(world)
        await leaves_nothing(world, producer.start(), REFUSALS[code])
        assert "not started" in repr(producer)
        with pytest.raises(IllegalStateError):
            producer.transaction()
        await producer.close()

    within(main)


@pytest.mark.requirement("S-109")
def test_start_refuses_a_transaction_timeout_above_the_brokers_maximum():
    async def main(world: TxnWorld) -> None:
        producer = not_started(world, transaction_timeout_ms=1_000_000)
        raised = await leaves_nothing(world, producer.__aenter__(), InvalidConfigurationError)
        assert "timeout" in str(raised)

    within(main)


def test_start_waits_max_block_ms_for_a_coordinator_that_does_not_answer():
    async def main(world: TxnWorld) -> None:
        silence = world.faults.blackhole("InitProducerId")
        began = now()
        starting = not_started(world, request_timeout_ms=30_000, max_block_ms=5_000).start()
        await leaves_nothing(world, starting, RequestTimedOutError)
        assert now() - began == pytest.approx(5, abs=0.5), "in virtual time"
        world.faults.remove(silence)
        async with not_started(world) as producer, producer.transaction() as tx:
            await tx.send("t", b"a")
        assert await world.values() == [b"a"]

    within(main)


def test_a_cancelled_start_leaves_no_connection_and_no_task():
    async def main(world: TxnWorld) -> None:
        world.faults.blackhole("InitProducerId")

        async def starting() -> None:
            async with asyncio.timeout(0.5):
                await not_started(world).start()

        await leaves_nothing(world, starting(), TimeoutError)

    within(main)


CLIENTS = {
    "producer": Producer,
    "transactional producer": partial(Producer, transactional_id="x"),
    "consumer": partial(Consumer, topics=["t"]),
    "member": partial(Consumer, topics=["t"], group_id="g"),
    "admin": Admin,
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", CLIENTS)
def test_a_start_cancelled_twice_leaves_no_connection_and_no_task(kind):
    """At any point of the start, and at any of the first points of the clean-up after the first cancellation."""

    async def main(world: TxnWorld) -> None:
        for turns in range(100):
            for more in range(4):
                client = CLIENTS[kind](BOOTSTRAP, environment=world.world.environment)
                starting = asyncio.get_running_loop().create_task(client.__aenter__())
                await turn(turns)
                if starting.done():
                    await client.close()
                    assert turns > 5
                    return
                starting.cancel()
                await turn(more)
                starting.cancel()
                await leaves_nothing(world, starting, asyncio.CancelledError)
        raise AssertionError("it never started")

    within(main)


@pytest.mark.slow
@pytest.mark.parametrize("kind", CLIENTS)
def test_a_client_closed_at_any_point_of_its_start_stays_closed(kind):
    async def main(world: TxnWorld) -> None:
        refused = 0
        for turns in range(100):
            client = CLIENTS[kind](BOOTSTRAP, environment=world.world.environment)
            starting = asyncio.get_running_loop().create_task(client.start())
            await turn(turns)
            had_started = starting.done()
            await client.close()
            (result,) = await asyncio.gather(starting, return_exceptions=True)
            assert not clients_at_work()
            with pytest.raises(ClosedError):
                await client.start()
            if had_started:
                assert result is None
                break
            assert isinstance(result, ClosedError), f"after {turns} turns: {result!r}"
            refused += 1
        else:
            raise AssertionError("it never started")
        assert refused > 5

    within(main)


@pytest.mark.parametrize("transactional_id", [None, "x"])
def test_concurrent_starts_initialise_the_producer_once(transactional_id):
    async def main(world: TxnWorld) -> None:
        producer = Producer(BOOTSTRAP, environment=world.world.environment, transactional_id=transactional_id)
        assert await asyncio.gather(producer.start(), producer.start(), producer.start()) == [None] * 3
        assert world.names() == (["InitProducerId"] if transactional_id else [])
        if transactional_id:
            await write(producer, b"a")
        else:
            await producer.send_and_wait("t", b"a")
        await producer.close()
        assert not clients_at_work()
        assert await world.values() == [b"a"]

    within(main)


# ---- what is left to do after it ---------------------------------------------------------------------------------


@both
def test_init_transactions_after_start_sends_no_request(version):
    async def main(world: TxnWorld) -> None:
        producer = await world.producer()
        assert world.names() == ["InitProducerId"]
        identity = producer.producer_id, producer.producer_epoch
        await producer.init_transactions()
        await producer.start()
        assert world.names() == []
        assert (producer.producer_id, producer.producer_epoch) == identity
        await write(producer, b"a")
        assert "InitProducerId" not in world.names()
        assert await world.values() == [b"a"]

    within(main, version)


async def owing_an_epoch(world: TxnWorld) -> Producer:
    """Return a producer that has sent EndTxn twice, since the first answer was lost. With version 1 it requests a new
    epoch before its next transaction.
    """
    producer = await world.producer()
    world.faults.disconnect("EndTxn", when="after_write").once()
    await write(producer, b"a")
    return producer


def test_init_transactions_requests_a_new_epoch_that_is_due_after_a_failed_end():
    async def main(world: TxnWorld) -> None:
        producer = await owing_an_epoch(world)
        epoch = producer.producer_epoch
        world.asked.clear()
        await producer.init_transactions()
        assert (world.names(), producer.producer_epoch) == (["InitProducerId"], epoch + 1)
        await write(producer, b"b")
        assert "InitProducerId" not in world.names()
        assert await world.values() == [b"a", b"b"]

    within(main, 1)


def test_after_a_cancelled_epoch_bump_the_next_transaction_bumps_again():
    async def main(world: TxnWorld) -> None:
        producer = await owing_an_epoch(world)
        silence = world.faults.blackhole("InitProducerId")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5), producer.transaction() as tx:
                await tx.send("t", b"never")
        world.faults.remove(silence)
        epoch = producer.producer_epoch
        world.asked.clear()
        await write(producer, b"b")
        assert "InitProducerId" in world.names()
        assert producer.producer_epoch > epoch
        assert await world.values() == [b"a", b"b"]

    within(main, 1)


def test_a_producer_without_a_transactional_id_sends_no_request_at_its_start():
    async def main(world: TxnWorld) -> None:
        async with Producer(BOOTSTRAP, environment=world.world.environment) as producer:
            assert world.names() == []
            with pytest.raises(IllegalStateError):
                await producer.init_transactions()

    within(main)
