"""Runs work again and again, each time cancelled at another turn of the loop, as crash points do it for a broker.

`make test` tries the first turns and then every third one, `make test-long` all of them: the tests are `sampled`.

A turn is one pass of the loop over what is ready, so every await of the work and of all tasks that work for it is met.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from fencepost.effects.simulated.loop import SimulatedLoop
from long_runs import share_of
from txn_world import TxnWorld, within

FIRST = 8  # turns, of which each is tried
STEP = 4 - share_of(3)  # from one to the next, after those
Cancelling = Callable[[Coroutine[Any, Any, Any]], Awaitable[Any]]


class _Point:
    """Counts the turns of the work, and cancels it at one of them, and then again at those that follow: `times` times
    in all.
    """

    def __init__(self, at: int, times: int) -> None:
        self.at, self.times = at, times
        self.turns = 0
        self.is_cancelled = False

    async def cancelling(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Await the work and return its result. Raises what it raises, and CancelledError when this run's turn has
        come. Work that is cancelled must raise: a caller that returns goes on as if nobody had told it to stop.
        """
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        task = loop.create_task(work)
        once: Callable[[], None] = loop._run_once

        def counted() -> None:
            once()
            self.turns += 1
            if self.at <= self.turns < self.at + self.times and not task.done():
                self.is_cancelled = task.cancel()

        loop._run_once = counted
        try:
            result = await task
        finally:
            del loop._run_once
        assert not self.is_cancelled, "the work was cancelled, and returned as if it were not"
        return result


def at_every_turn(
    main: Callable[[TxnWorld, Cancelling], Awaitable[Any]], version: int = 2, times: int = 1, **settings: Any
) -> int:
    """Run main(world, cancelling) again for each turn tried; it must await `cancelling(work)` once. Returns the last
    turn at which the work was cancelled. times: how often it is cancelled, as by two timeouts around it.
    """
    at, cancelled_at = 1, 0
    while True:
        point = _Point(at, times)
        try:
            within(lambda world, point=point: main(world, point.cancelling), version, **settings)
        except BaseException as error:
            error.add_note(f"cancelled at turn {at}")
            raise
        if not point.is_cancelled:
            return cancelled_at
        cancelled_at = at
        at += 1 if at < FIRST else STEP
