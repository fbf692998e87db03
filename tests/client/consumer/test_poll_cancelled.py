"""A poll that is cancelled: the listener it has called is heard out before anything is read."""

import asyncio
import contextlib

import pytest
from cancelled_everywhere import at_every_turn
from fencepost.client.consumer.consumer import Consumer
from fencepost.client.errors import IllegalStateError, RequestTimedOutError
from reading import write
from txn_world import BOOTSTRAP, within

T0 = ("t", 0)


class Seeks:
    """Seeks to 2 when partitions come, after asking somebody where to."""

    def __init__(self):
        self.consumer = None
        self.calls = []

    async def on_partitions_assigned(self, partitions):
        self.calls.append("begun")
        await asyncio.sleep(0.3)
        for tp in partitions:
            self.consumer.seek(tp, 2)
        self.calls.append("done")


class Commits(Seeks):
    """Also commits, slowly, when partitions go."""

    async def on_partitions_revoked(self, partitions):
        self.calls.append("revoking")
        await asyncio.sleep(0.3)
        await self.consumer.commit()
        self.calls.append("revoked")


def reader(world, listener=None, **keywords):
    keywords = {"group_id": "g", "auto_offset_reset": "earliest"} | keywords
    consumer = Consumer(BOOTSTRAP, environment=world.world.environment, **keywords)
    if listener is not None:
        listener.consumer = consumer
    consumer.subscribe(["t"], listener=listener)
    return consumer


async def one(consumer):
    return (await consumer.getone()).value


async def many(consumer):
    while True:
        for records in (await consumer.getmany(timeout_ms=50)).values():
            return records[0].value


async def batch(consumer):
    return (await anext(consumer.batches()))[0].value


@pytest.mark.parametrize("read", [one, many, batch])
def test_a_listener_whose_poll_is_cancelled_seeks_before_anything_is_read(read):
    async def main(world):
        await write(world, b"0", b"1", b"2")
        listener = Seeks()
        async with reader(world, listener) as consumer:
            while not listener.calls:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await read(consumer)
            assert listener.calls == ["begun"]
            assert await read(consumer) == b"2"
            assert listener.calls == ["begun", "done"]

    within(main)


def test_other_tasks_get_no_records_while_a_rebalance_listener_runs():
    async def main(world):
        await write(world, b"0", b"1", b"2")
        listener = Seeks()
        async with reader(world, listener) as consumer:
            first = asyncio.ensure_future(one(consumer))
            await asyncio.sleep(0)
            while "done" not in listener.calls:
                given = await consumer.getmany(timeout_ms=20)
                assert not given or "done" in listener.calls
            first.cancel()
            await asyncio.wait([first])

    within(main)


def test_an_error_of_a_listener_after_a_cancelled_poll_is_raised_by_the_next():
    class Fails(Seeks):
        async def on_partitions_assigned(self, partitions):
            await super().on_partitions_assigned(partitions)
            raise ZeroDivisionError

    async def main(world):
        await write(world, b"0", b"1", b"2")
        listener = Fails()
        async with reader(world, listener) as consumer:
            while not listener.calls:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await one(consumer)
            await asyncio.sleep(1)
            with pytest.raises(ZeroDivisionError):
                await one(consumer)
            assert await one(consumer) == b"2"

    within(main)


def test_a_revocation_listener_finishes_its_commit_though_the_poll_was_cancelled():
    async def main(world):
        await write(world, b"0", b"1", b"2", b"3")
        listener = Commits()
        async with reader(world, listener) as consumer:
            assert await one(consumer) == b"2"
            consumer.subscribe(["t", "other"], listener=listener)
            while "revoking" not in listener.calls:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await one(consumer)
            await asyncio.sleep(1)
            assert listener.calls[-1] == "revoked"
            assert (await consumer.committed(T0))[T0].offset >= 3  # further records may have been read meanwhile

    within(main)


def test_a_poll_inside_a_listener_raises_even_if_the_outer_poll_was_cancelled():
    async def main(world):
        await write(world, b"0", b"1", b"2")
        refused = []

        class Reads(Seeks):
            async def on_partitions_assigned(self, partitions):
                self.calls.append("begun")
                await asyncio.sleep(0.3)
                with pytest.raises(IllegalStateError) as error:
                    await self.consumer.getone()
                refused.append(error)

        listener = Reads()
        async with reader(world, listener) as consumer:
            while not listener.calls:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await one(consumer)
            assert await one(consumer) == b"0"
            assert refused

    within(main)


def test_close_ends_although_the_listener_of_a_cancelled_poll_never_does():
    async def main(world):
        class Hangs(Seeks):
            async def on_partitions_assigned(self, partitions):
                self.calls.append("begun")
                await asyncio.sleep(1_000_000)

        listener = Hangs()
        consumer = reader(world, listener)
        await consumer.start()
        while not listener.calls:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    await one(consumer)
        async with asyncio.timeout(10):
            await consumer.close()

    within(main)


def test_getone_and_batches_accept_a_timeout_and_can_be_called_again():
    async def main(world):
        async with reader(world) as consumer:
            with pytest.raises(RequestTimedOutError, match="within 200 ms"):
                await consumer.getone(timeout_ms=200)
            batches = consumer.batches(timeout_ms=5_000)
            assert [found async for found in batches] == []
            await write(world, b"0", b"1")
            assert (await consumer.getone(timeout_ms=5_000)).value == b"0"
            assert [record.value async for found in batches for record in found] == [b"1"]

    within(main)


@pytest.mark.long
def test_a_poll_cancelled_at_any_await_lets_its_listener_finish():
    async def main(world, cancelling):
        await write(world, b"0", b"1", b"2")
        listener = Seeks()
        async with reader(world, listener) as consumer:
            with contextlib.suppress(asyncio.CancelledError):
                await cancelling(one(consumer))
                return  # the poll ended before it was to be cancelled: nothing to check
            assert await one(consumer) == b"2"
            assert listener.calls[:2] == ["begun", "done"]

    assert at_every_turn(main) > 10


@pytest.mark.slow
@pytest.mark.parametrize("committed", [None, 1])
@pytest.mark.parametrize("look", ["position", "seek_to_end", "lag"])
def test_a_listener_may_ask_for_positions_of_new_partitions(look, committed):
    class Looks:
        consumer = None

        async def on_partitions_assigned(self, partitions):
            if look == "position":
                found.append(await consumer.position(*partitions))
            elif look == "seek_to_end":
                await consumer.seek_to_end(*partitions)
            else:
                found.append((await consumer.lag())[T0])

        def on_partitions_revoked(self, partitions):
            pass

    async def main(world):
        nonlocal consumer
        await write(world, b"0", b"1", b"2")
        if committed is not None:
            async with reader(world) as before:
                await before.assigned()
                await before.commit({T0: committed})
        async with (consumer := reader(world, Looks())):
            await consumer.assigned()
            await write(world, b"3")
            wanted = b"3" if look == "seek_to_end" else b"%d" % (committed or 0)
            assert await one(consumer) == wanted
        first = committed or 0
        assert found == {"position": [first], "seek_to_end": [], "lag": [3 - first]}[look]

    consumer, found = None, []
    within(main)
