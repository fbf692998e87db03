"""A producer that was silent until the broker forgot its transactional id: nothing of its next transaction is written,
nobody has fenced it, and it goes on.
"""

import pytest
from fencepost.client.errors import AbortableTransactionError, ProducerFencedError
from fencepost.client.producer.pool import ProducerPool
from fencepost.protocol.errors import ErrorCode
from txn_world import BOOTSTRAP, TxnWorld, within, write

both = pytest.mark.parametrize("version", [1, 2])
SILENCE = {
    "transactional_id_expiration_ms": 60_000,
    "transaction_remove_expired_transaction_cleanup_interval_ms": 1_000,
}


async def forgotten(world: TxnWorld) -> None:
    await world.only_the_broker_sees(120)
    assert not world.broker.transactions.transactions


@pytest.mark.slow
@both
def test_a_producer_whose_transactional_id_expired_can_begin_the_next_transaction(version):
    async def main(world: TxnWorld) -> None:
        producer = await world.producer()
        await write(producer, b"a")
        await forgotten(world)
        with pytest.raises(AbortableTransactionError) as late:
            await write(producer, b"b")
        assert late.value.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        await write(producer, b"c")
        assert await world.values() == [b"a", b"c"]

    within(main, version, **SILENCE)


@pytest.mark.slow
@both
def test_a_pool_whose_transactional_ids_expired_commits_its_next_transaction(version):
    async def main(world: TxnWorld) -> None:
        async with ProducerPool(BOOTSTRAP, prefix="api", size=1, environment=world.world.environment) as pool:
            await write(pool, b"a")
            await forgotten(world)
            await pool.run_in_transaction(lambda tx: tx.send("t", b"b"))
        assert await world.values() == [b"a", b"b"]

    within(main, version, **SILENCE)


@pytest.mark.slow
@both
def test_a_producer_whose_forgotten_id_was_taken_by_another_is_fenced(version):
    async def main(world: TxnWorld) -> None:
        producer = await world.producer()
        await write(producer, b"a")
        await forgotten(world)
        successor = await world.producer()
        await write(successor, b"b")
        for _ in range(2):
            with pytest.raises(ProducerFencedError):
                await write(producer, b"c")
        await write(successor, b"d")
        assert await world.values() == [b"a", b"b", b"d"]

    within(main, version, **SILENCE)
