"""A worker of a share group, cancelled at every turn of the loop: its records are done, or come again at once."""

import asyncio
import contextlib
from typing import Any

import pytest
from cancelled_everywhere import at_every_turn
from fencepost.client.errors import ClosedError
from reading import write
from share_members import seen, sharer

pytestmark = [pytest.mark.slow, pytest.mark.sampled]


async def given_to_another(world: Any) -> list[tuple[bytes, int]]:
    """Let another consumer accept what it gets before a lock or session can end. Returns values and delivery counts."""
    found: list[Any] = []
    async with sharer(world) as consumer:
        while records := await consumer.getmany(timeout_ms=1_000):
            found += records
            for record in records:
                consumer.acknowledge(record)
    return seen(found)


def test_a_transaction_cancelled_anywhere_commits_or_its_share_records_come_again() -> None:
    async def main(world: Any, cancelling: Any) -> None:
        await write(world, b"0", b"1")
        producer = await world.producer()

        async def bill() -> None:
            async with producer.transaction() as tx:
                await tx.send("bills", b"both", partition=0)
                await tx.acknowledge(consumer, *records)

        async with sharer(world) as consumer:
            records = await consumer.getmany(timeout_ms=5_000)
            cancelled = False
            try:
                await cancelling(bill())
            except asyncio.CancelledError:
                cancelled = True
            bills = await world.values("bills") if "bills" in world.broker.topics.by_name else []
            again = seen(await consumer.getmany(timeout_ms=1_000))
        if bills == [b"both"]:
            assert (again, await given_to_another(world)) == ([], [])
        else:
            assert cancelled
            assert bills == []
            assert len(await given_to_another(world)) == 2

    assert at_every_turn(main) > 5


@pytest.mark.long
def test_a_share_consumers_close_cancelled_anywhere_releases_unacknowledged_records() -> None:
    async def main(world: Any, cancelling: Any) -> None:
        await write(world, b"0", b"1")
        consumer = sharer(world)
        await consumer.start()
        one, _ = await consumer.getmany(timeout_ms=5_000)
        consumer.acknowledge(one)
        cancelled = False
        try:
            await cancelling(consumer.close())
        except asyncio.CancelledError:
            cancelled = True
        await consumer.close()
        assert not any(each.is_open for each in consumer.state().connections)
        with pytest.raises(ClosedError):
            await consumer.getone()
        found = await given_to_another(world)
        # A cancelled close may have released the record 0 before its acknowledgement was sent.
        assert found == [(b"1", 2)] or (cancelled and found == [(b"0", 2), (b"1", 2)])

    assert at_every_turn(main) > 3


@pytest.mark.long
@pytest.mark.parametrize("how", ["start", "read"])
def test_after_start_or_a_read_is_cancelled_every_record_is_still_delivered(how: str) -> None:
    async def main(world: Any, cancelling: Any) -> None:
        await write(world, b"0", b"1")
        consumer = sharer(world)
        if how == "start":
            with contextlib.suppress(asyncio.CancelledError):
                await cancelling(consumer.start())
        await consumer.start()
        if how == "read":
            with contextlib.suppress(asyncio.CancelledError):
                await cancelling(consumer.getmany(timeout_ms=5_000))
        found = await consumer.getmany(timeout_ms=1_000)
        for record in found:
            consumer.acknowledge(record)
        await consumer.close()
        assert sorted({value for value, _ in seen(found) + await given_to_another(world)}) == [b"0", b"1"]

    assert at_every_turn(main) > 3
