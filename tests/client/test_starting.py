"""What a producer with a transactional id does when it is started: it takes the id over before anybody waits for it."""

import asyncio

import pytest
from fencepost.client.consumer import Consumer
from fencepost.client.errors import (
    AuthorizationError,
    IllegalStateError,
    InvalidConfigurationError,
    ProducerFencedError,
    RequestTimedOutError,
)
from fencepost.client.producer import Producer
from fencepost.client.values import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from txn_world import BOOTSTRAP, TxnWorld, within

both = pytest.mark.parametrize("version", [1, 2])
T0 = TopicPartition("t", 0)
SOON_S = 5  # the transaction's timeout is 60


def now():
    return asyncio.get_running_loop().time()


def reader(world: TxnWorld, **keywords) -> Consumer:
    return Consumer(BOOTSTRAP, outside=world.world.outside, auto_offset_reset="earliest", **keywords)


def not_started(world: TxnWorld, **keywords) -> Producer:
    keywords = {"request_timeout_ms": 1_000, "max_block_ms": 5_000, **keywords}
    return Producer(BOOTSTRAP, transactional_id="x", outside=world.world.outside, **keywords)


async def died_with_an_open_transaction(world: TxnWorld, *, offsets: bool = False) -> None:
    """A producer wrote, and was killed before EndTxn."""
    producer = await world.producer()
    await producer.begin_transaction()
    await producer.send_and_wait("t", b"left open", partition=0)
    if offsets:
        await producer.send_offsets_to_transaction({T0: OffsetAndMetadata(2)}, ConsumerGroupMetadata("g"))
    await producer._cluster.close()
    world.names()


# ---- what a predecessor left -------------------------------------------------------------------------------------


@both
@pytest.mark.requirement("S-93")
def test_a_producer_that_is_only_started_ends_what_its_predecessor_left_open(version):
    async def main(world: TxnWorld) -> None:
        await died_with_an_open_transaction(world)
        async with reader(world) as consumer:
            assert await consumer.end_offsets([T0]) == {T0: 0}
            began = now()
            async with not_started(world):
                assert await consumer.end_offsets([T0]) == {T0: 2}, "behind the record and its marker"
            assert now() - began < SOON_S
        assert set(world.names()) == {"InitProducerId"}
        assert await world.values() == []

    within(main, version)


@both
@pytest.mark.requirement("S-89")
def test_a_group_whose_offsets_were_left_pending_reads_on_once_the_successor_is_started(version):
    """Nothing is read while the broker answers UNSTABLE_OFFSET_COMMIT, so no transaction of its own would end that."""

    async def main(world: TxnWorld) -> None:
        async with Producer(BOOTSTRAP, outside=world.world.outside) as plain:
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
def test_being_started_is_enough_to_fence_who_had_the_id(version):
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


async def leaves_nothing(world: TxnWorld, starting, error: type[BaseException]) -> BaseException:
    """Await what is to fail. Returns what was raised; neither a task of a client is left then, nor a connection."""
    with pytest.raises(error) as raised:
        await starting
    frames = [task.get_coro().cr_frame for task in asyncio.all_tasks()]
    assert not [each for each in frames if each.f_globals["__name__"].startswith("fencepost.client")]
    await asyncio.sleep(0.1)  # for the broker to see it
    assert not world.broker.server.connections
    return raised.value


REFUSALS = {
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": AuthorizationError,
    "CLUSTER_AUTHORIZATION_FAILED": AuthorizationError,
    "INVALID_PRODUCER_EPOCH": ProducerFencedError,
}


@pytest.mark.parametrize("code", REFUSALS)
def test_a_coordinator_that_refuses_is_an_error_of_start(code):
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
def test_a_timeout_above_the_brokers_maximum_is_an_error_of_start():
    async def main(world: TxnWorld) -> None:
        producer = not_started(world, transaction_timeout_ms=1_000_000)
        raised = await leaves_nothing(world, producer.__aenter__(), InvalidConfigurationError)
        assert "timeout" in str(raised)

    within(main)


def test_a_coordinator_that_does_not_answer_is_waited_for_as_long_as_max_block_ms():
    async def main(world: TxnWorld) -> None:
        silence = world.faults.blackhole("InitProducerId")
        began = now()
        await leaves_nothing(world, not_started(world).start(), RequestTimedOutError)
        assert 3 <= now() - began <= 7
        world.faults.remove(silence)
        async with not_started(world) as producer, producer.transaction() as tx:
            await tx.send("t", b"a")
        assert await world.values() == [b"a"]

    within(main)


def test_a_start_that_is_cancelled_leaves_nothing():
    async def main(world: TxnWorld) -> None:
        world.faults.blackhole("InitProducerId")

        async def starting() -> None:
            async with asyncio.timeout(0.5):
                await not_started(world).start()

        await leaves_nothing(world, starting(), TimeoutError)

    within(main)


# ---- what is left to do after it ---------------------------------------------------------------------------------


@both
def test_init_transactions_after_start_has_nothing_to_do(version):
    async def main(world: TxnWorld) -> None:
        producer = await world.producer()
        assert world.names() == ["InitProducerId"]
        identity = producer.producer_id, producer.producer_epoch
        await producer.init_transactions()
        await producer.init_transactions()
        await producer.start()
        assert world.names() == []
        assert (producer.producer_id, producer.producer_epoch) == identity
        async with producer.transaction() as tx:
            await tx.send("t", b"a")
            with pytest.raises(IllegalStateError, match="once"):
                await producer.init_transactions()
        await producer.init_transactions()
        assert "InitProducerId" not in world.names()
        assert await world.values() == [b"a"]

    within(main, version)


def test_without_a_transactional_id_nothing_is_asked_when_it_starts():
    async def main(world: TxnWorld) -> None:
        async with Producer(BOOTSTRAP, outside=world.world.outside) as producer:
            assert world.names() == []
            with pytest.raises(IllegalStateError):
                await producer.init_transactions()

    within(main)
