"""Whether the running task was cancelled itself, or only the task that it waits for."""

import asyncio

from fencepost.client.transactions.cancellation import cancellations, is_cancelled


async def sees_cancelled(waiting: "asyncio.Future[None]") -> bool:
    """Wait, be cancelled in it, and return what is_cancelled() says then."""
    try:
        await waiting
    except asyncio.CancelledError:
        return is_cancelled()
    raise AssertionError("nothing was cancelled")


async def test_only_the_task_that_was_cancelled_itself_counts_as_cancelled() -> None:
    loop = asyncio.get_running_loop()
    for cancels_the_waiting_task in (True, False):
        awaited: asyncio.Future[None] = loop.create_future()
        task = loop.create_task(sees_cancelled(asyncio.shield(awaited) if cancels_the_waiting_task else awaited))
        await asyncio.sleep(0)
        (task if cancels_the_waiting_task else awaited).cancel()
        assert await task is cancels_the_waiting_task


async def test_without_a_running_task_nothing_counts_as_cancelled() -> None:
    """In a callback of the loop there is no task, and so nobody can have cancelled it."""
    loop = asyncio.get_running_loop()
    found: asyncio.Future[tuple[bool, int]] = loop.create_future()
    loop.call_soon(lambda: found.set_result((is_cancelled(), cancellations())))
    assert await found == (False, 0)
