"""Calls of drivers that block, one at a time."""

import asyncio

from fencepost.client.sql import threads


async def test_a_call_whose_awaiter_was_cancelled_is_made_before_the_next_one(monkeypatch):
    """Even if its thread is slow to start. Otherwise a statement could run after the rollback of its block, and be
    committed by itself.
    """
    made, may_start, call_in_thread = [], asyncio.Event(), threads.call_in_thread
    slow_ones = [True]

    async def slow_to_start(call, name):
        if slow_ones:
            slow_ones.clear()
            await may_start.wait()
        return await call_in_thread(call, name)

    monkeypatch.setattr(threads, "call_in_thread", slow_to_start)
    one_at_a_time = threads.OneAtATime()
    statement = asyncio.create_task(one_at_a_time(lambda: made.append("statement")))
    await asyncio.sleep(0)
    rollback = asyncio.create_task(one_at_a_time(lambda: made.append("rollback")))
    await asyncio.sleep(0)
    statement.cancel()
    await asyncio.wait({statement})
    may_start.set()
    await rollback
    assert made == ["statement", "rollback"]
