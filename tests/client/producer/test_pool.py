"""A pool of producers: transactions beside each other, slots that always come back, and who has the ids."""

import asyncio
import contextlib

import pytest
from cancelled_everywhere import at_every_turn
from fencepost.client.errors import (
    AbortableTransactionError,
    AuthorizationError,
    ClosedError,
    CommitOutcomeUnknownError,
    FatalError,
    IllegalStateError,
    InvalidConfigurationError,
    PoolBusyError,
    ProducerFencedError,
    RequestTimedOutError,
)
from fencepost.client.producer.pool import ProducerPool
from reading import make, member, write
from txn_world import BOOTSTRAP, TxnWorld, within

pytestmark = [pytest.mark.slow, pytest.mark.sampled]

both = pytest.mark.parametrize("version", [1, 2])
SETTINGS = {"request_timeout_ms": 1_000, "max_block_ms": 5_000, "delivery_timeout_ms": 5_000}


def pool_of(world, size=2, prefix="api", **more):
    return ProducerPool(BOOTSTRAP, prefix=prefix, size=size, environment=world._environment, **{**SETTINGS, **more})


async def one(pool, value, topic="t", seconds=0.0):
    async with pool.transaction() as tx:
        await tx.send(topic, value)
        await asyncio.sleep(seconds)
    return tx.outcome


async def all_slots_are_usable(pool):
    """Assert that no slot is taken, and that as many transactions as there are slots can be open together."""
    assert pool._slots.taken == pool._slots.waiting == 0
    together = asyncio.Barrier(pool.size)

    async def transact():
        async with pool.transaction():
            await together.wait()

    await asyncio.gather(*(transact() for _ in range(pool.size)))


# ---- side by side --------------------------------------------------------------------------------------------------


@both
def test_a_pool_of_size_3_has_at_most_3_transactions_open_at_once(version):
    async def main(world: TxnWorld) -> None:
        most = 0

        async def handle(value):
            nonlocal most
            async with pool.transaction() as tx:
                most = max(most, pool._slots.taken)
                await tx.send("t", value)
                await asyncio.sleep(0.1)

        async with pool_of(world, size=3) as pool:
            await asyncio.gather(*(handle(b"%d" % number) for number in range(10)))
            assert most == 3
            assert sorted(await world.values()) == [b"%d" % number for number in range(10)]
            assert sorted(world.broker.transactions.transactions) == ["api-0", "api-1", "api-2"]

    within(main, version)


def test_a_pool_creates_producers_on_demand():
    async def main(world: TxnWorld) -> None:
        async with pool_of(world, size=8) as pool:
            assert not pool._producers
            for _ in range(5):
                await one(pool, b"a")
            assert list(pool._producers) == [0]

    within(main)


def test_a_pools_producer_refuses_to_send_outside_an_open_transaction():
    async def main(world: TxnWorld) -> None:
        async with pool_of(world, size=1) as pool:
            assert not {"send", "send_and_wait", "begin_transaction", "commit_transaction"} & set(dir(pool))
            async with pool.transaction() as first:
                pass
            with pytest.raises(IllegalStateError):
                await first.send("t", b"late")
            async with pool.transaction() as second:
                with pytest.raises(IllegalStateError, match="not the producer's open one"):
                    await first.send("t", b"in another's")
                await second.send("t", b"own")
            assert await world.values() == [b"own"]

    within(main)


def test_a_pool_transaction_cannot_be_entered_twice():
    async def main(world: TxnWorld) -> None:
        async with pool_of(world) as pool:
            transaction = pool.transaction()
            async with transaction:
                pass
            with pytest.raises(IllegalStateError, match="entered only once"):
                await transaction.__aenter__()

    within(main)


def test_run_in_transaction_repeats_aborted_work_on_a_free_slot():
    async def main(world: TxnWorld) -> None:
        tries = []

        async def work(tx):
            tries.append(tx)
            await tx.send("t", b"x")
            if len(tries) < 3:
                raise AbortableTransactionError("once more")
            return "done"

        async with pool_of(world) as pool:
            assert await pool.run_in_transaction(work) == "done"
            assert await world.values() == [b"x"]
            tries.clear()
            with pytest.raises(AbortableTransactionError):
                await pool.run_in_transaction(work, retries=1)

    within(main)


# ---- waiting -------------------------------------------------------------------------------------------------------


def test_waiting_longer_than_max_wait_ms_raises_pool_busy_and_begins_nothing():
    async def main(world: TxnWorld) -> None:
        async with pool_of(world, size=1, max_wait_ms=500) as pool:
            holding = asyncio.create_task(one(pool, b"a", seconds=2))
            await asyncio.sleep(0.1)
            with pytest.raises(PoolBusyError, match="all 1 transactions of 'api' were open for 500 ms") as busy:
                await one(pool, b"b")
            assert "size" in busy.value.hint
            assert (pool.state().taken, pool.state().waiting) == (1, 0)
            assert await holding == "committed"
            await all_slots_are_usable(pool)
            assert await world.values() == [b"a"]

    within(main)


def test_a_batch_whose_transaction_raised_pool_busy_is_returned_again():
    async def main(world: TxnWorld) -> None:
        await write(world, b"1", b"2")
        async with pool_of(world, size=1, max_wait_ms=500) as pool, member(world) as consumer:
            batch = await anext(consumer.batches())
            async with pool.transaction():
                with pytest.raises(PoolBusyError):
                    async with pool.transaction(batch):
                        pass
            again = await anext(consumer.batches(timeout_ms=5_000))
            assert [record.value for record in again] == [b"1", b"2"]
            async with pool.transaction(again):
                pass
            assert (await consumer.committed())["t", 0].offset == 2

    within(main)


# ---- slots that come back ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["waiting for a slot", "with a producer", "first"])
def test_a_pool_transaction_cancelled_at_any_await_frees_its_slot(how):
    seen = set()

    async def main(world, cancelling):
        await make(world)
        async with pool_of(world, size=1) as pool:
            holding = None
            if how == "waiting for a slot":
                holding = asyncio.create_task(one(pool, b"first", seconds=0.05))
                await asyncio.sleep(0.01)
            elif how == "with a producer":
                await one(pool, b"first")
            before = await world.values() if holding is None else [b"first"]
            outcome = None
            with contextlib.suppress(asyncio.CancelledError):
                outcome = await cancelling(one(pool, b"x"))
            if holding is not None:
                await holding
            seen.add(outcome)
            found = await world.values()
            assert found in (before, [*before, b"x"]), "whether its commit was on its way depends on the await"
            assert outcome is None or found == [*before, b"x"]
            await all_slots_are_usable(pool)
            assert await one(pool, b"last") == "committed"
            assert (await world.values())[-1] == b"last"

    assert at_every_turn(main) > 10
    assert seen == {None, "committed"}


@pytest.mark.parametrize("first_error", [FatalError, ZeroDivisionError])
def test_a_pool_slot_can_be_used_again_after_a_fatal_error_or_an_exception(first_error):
    async def main(world: TxnWorld) -> None:
        async with pool_of(world, size=1) as pool:
            if first_error is FatalError:
                world.faults.error("Produce", "INVALID_TXN_STATE").once()
            for error in (first_error, ZeroDivisionError):
                with pytest.raises(error):  # noqa: PT012
                    async with pool.transaction() as tx:
                        await tx.send_and_wait("t", b"x")
                        raise ZeroDivisionError
            await all_slots_are_usable(pool)
            assert await world.values() == []

    within(main)


def test_a_pool_retries_starting_a_producer_for_the_next_transaction():
    async def main(world: TxnWorld) -> None:
        async with pool_of(world, size=1) as pool:
            world.faults.error("InitProducerId", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED").once()
            with pytest.raises(AuthorizationError):
                await one(pool, b"a")
            assert await one(pool, b"b") == "committed"

    within(main)


@both
def test_a_commit_with_a_lost_answer_is_resolved_by_the_slots_next_transaction(version):
    async def main(world: TxnWorld) -> None:
        async with pool_of(world, size=1) as pool:
            await one(pool, b"a")
            silence = world.faults.blackhole("EndTxn", when="after_write")
            with pytest.raises(CommitOutcomeUnknownError) as unknown:
                await one(pool, b"b")
            with pytest.raises(RequestTimedOutError, match="nothing was begun"):
                await one(pool, b"c")
            world.faults.remove(silence)
            assert await one(pool, b"d") == "committed"
            assert await unknown.value.resolve() == "committed"
            assert await world.values() == [b"a", b"b", b"d"]

    within(main, version)


def test_concurrent_resolve_calls_beside_a_new_pool_transaction_return_committed():
    async def main(world: TxnWorld) -> None:
        async with pool_of(world, size=1) as pool:
            silence = world.faults.blackhole("EndTxn", when="after_write")
            with pytest.raises(CommitOutcomeUnknownError) as unknown:
                await one(pool, b"a")
            world.faults.remove(silence)
            found = await asyncio.gather(unknown.value.resolve(), one(pool, b"b"), unknown.value.resolve())
            assert found == ["committed"] * 3

    within(main)


# ---- whose the ids are ---------------------------------------------------------------------------------------------


@both
def test_a_pool_start_fences_and_aborts_its_predecessor_on_every_slot(version):
    async def main(world: TxnWorld) -> None:
        old = pool_of(world, size=2)
        await old.start()
        async with contextlib.AsyncExitStack() as stack:
            for value in (b"old 0", b"old 1"):
                tx = await stack.enter_async_context(old.transaction())
                await tx.send_and_wait("t", value)
            async with pool_of(world, size=2) as new:
                assert not new._producers
                assert await one(new, b"new") == "committed"
                assert await world.values() == [b"new"], "nothing of the old ones is open before it"
            with pytest.raises(ProducerFencedError):
                await stack.aclose()
        await old.close()

    within(main, version)


def test_starting_a_pool_again_does_not_fence_its_own_producers():
    async def main(world: TxnWorld) -> None:
        pool = pool_of(world, size=2)
        await asyncio.gather(pool.start(), pool.start())
        async with pool.transaction() as tx:
            await tx.send_and_wait("t", b"a")
            await pool.start()
        async with pool:
            assert await one(pool, b"b") == "committed"
        assert await world.values() == [b"a", b"b"]

    within(main)


@both
def test_all_transactions_of_a_fenced_pool_raise_and_the_new_pool_is_not_fenced(version):
    """The old pool does not initialise its ids again."""

    async def main(world: TxnWorld) -> None:
        async with pool_of(world, size=2) as old:
            await one(old, b"a")
            async with pool_of(world, size=2) as new:
                await one(new, b"b")
                with pytest.raises(ProducerFencedError) as first:
                    await one(old, b"c")
                assert first.value.reason == "newer_producer"
                assert "InitProducerId" in world.names()
                for _ in range(3):
                    with pytest.raises(ProducerFencedError, match="prefix 'api'") as later:
                        await one(old, b"d")
                assert "the other replaces it" in later.value.hint
                assert later.value.reason == "newer_producer"
                assert "InitProducerId" not in world.names(), "it does not fight"
                assert "fenced" in repr(old)
                await one(new, b"e")
            assert await world.values() == [b"a", b"b", b"e"]

    within(main, version)


@both
def test_a_transaction_waiting_in_a_pool_raises_when_a_new_pool_fences_it(version):
    async def main(world: TxnWorld) -> None:
        async with pool_of(world, size=1) as old:
            await one(old, b"a")
            first = asyncio.ensure_future(one(old, b"b", seconds=2))
            await asyncio.sleep(0.1)
            waiting = asyncio.ensure_future(one(old, b"c"))
            await asyncio.sleep(0.1)
            async with pool_of(world, size=1) as new:
                await one(new, b"d")
                fates = await asyncio.gather(first, waiting, return_exceptions=True)
                assert [type(fate) for fate in fates] == [ProducerFencedError] * 2
                await one(new, b"e")
            assert await world.values() == [b"a", b"d", b"e"]

    within(main, version)


def test_a_pool_slot_whose_transaction_timed_out_is_used_again():
    async def main(world: TxnWorld) -> None:
        async with pool_of(world, size=1, transaction_timeout_ms=5_000) as pool:
            await one(pool, b"a")
            with pytest.raises(ProducerFencedError):
                await one(pool, b"b", seconds=30)
            assert await one(pool, b"c") == "committed"
            assert await world.values() == [b"a", b"c"]

    for version in (1, 2):
        within(main, version)


def test_an_operators_abort_fails_one_transaction_and_not_the_pool():
    async def main(world: TxnWorld) -> None:
        async with pool_of(world, size=1) as pool:
            working = asyncio.create_task(one(pool, b"a", seconds=1))
            await asyncio.sleep(0.5)
            world.force_abort("api-0")
            with pytest.raises(ProducerFencedError):
                await working
            assert await one(pool, b"b") == "committed"
            assert await world.values() == [b"b"]

    for version in (1, 2):
        within(main, version)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"prefix": ""}, "prefix must be"),
        ({"prefix": None}, "prefix must be"),
        ({"size": 0}, "size"),
        ({"transactional_id": "x"}, "a prefix instead of a transactional_id"),
    ],
)
def test_a_pool_with_no_prefix_no_slot_or_a_transactional_id_is_refused(given, why):
    with pytest.raises(InvalidConfigurationError, match=why):
        ProducerPool(BOOTSTRAP, **{"prefix": "api", **given})


def test_a_pool_accepts_setting_names_of_other_clients():
    pool = ProducerPool.from_config({"bootstrap.servers": BOOTSTRAP, "linger.ms": 5}, prefix="api", size=2)
    assert [settings.transactional_id for settings in pool._settings] == ["api-0", "api-1"]
    assert pool._settings[0].linger_ms == 5


# ---- the end -------------------------------------------------------------------------------------------------------


def test_closing_a_pool_waits_for_open_transactions_and_refuses_waiting_ones():
    async def main(world: TxnWorld) -> None:
        pool = pool_of(world, size=1)
        with pytest.raises(IllegalStateError, match="not started"):
            await one(pool, b"a")
        await pool.start()
        working = asyncio.create_task(one(pool, b"a", seconds=1))
        waiting = asyncio.create_task(one(pool, b"b"))
        await asyncio.sleep(0.1)
        await pool.close()
        assert working.done()
        assert await working == "committed"
        for attempt in (waiting, one(pool, b"c")):
            with pytest.raises(ClosedError):
                await attempt
        await pool.close()
        assert await world.values() == [b"a"]

    within(main)


def test_closing_a_pool_waits_for_the_last_open_transaction():
    async def main(world: TxnWorld) -> None:
        pool = pool_of(world, size=2)
        await pool.start()
        working = [asyncio.create_task(one(pool, b"%d" % seconds, seconds=seconds)) for seconds in (1, 3)]
        await asyncio.sleep(0.1)
        await pool.close()
        assert [await each for each in working] == ["committed"] * 2
        assert sorted(await world.values()) == [b"1", b"3"]

    within(main)


def test_close_aborts_transactions_open_after_its_timeout_with_an_error():
    async def main(world: TxnWorld) -> None:
        pool = pool_of(world, size=1)
        await pool.start()
        working = asyncio.create_task(one(pool, b"a", seconds=3))
        await asyncio.sleep(0.1)
        await pool.close(timeout_ms=1_000)
        assert await world.values() == []
        assert world.names()[-1] == "EndTxn"
        with pytest.raises(IllegalStateError):
            await working
        assert pool._slots.taken == 0

    within(main)


def test_closing_a_pool_again_after_a_cancelled_close_leaves_no_open_transaction():
    async def main(world, cancelling):
        pool = pool_of(world, size=2)
        await pool.start()
        await one(pool, b"a")
        working = asyncio.create_task(one(pool, b"b", seconds=5))
        await asyncio.sleep(0.1)
        with contextlib.suppress(asyncio.CancelledError):
            await cancelling(pool.close(timeout_ms=100))
        await pool.close(timeout_ms=0)
        with pytest.raises(IllegalStateError):
            await working
        async with pool_of(world, size=2):
            assert await world.values() == [b"a"]

    assert at_every_turn(main) > 3
