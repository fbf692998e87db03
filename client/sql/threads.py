"""Calls of drivers that block: each in a thread, and one at a time."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AbstractContextManager, asynccontextmanager
from functools import partial
from typing import Any, TypeVar

from ...effects.threads.starting import call_in_thread, start_thread

T = TypeVar("T")
_NAME = "fencepost-sql"


async def call_blocking(call: Callable[[], T]) -> T:
    """Make a call that blocks in a thread, and return its result. If the awaiter is cancelled, the call goes on."""
    return await call_in_thread(call, _NAME)


async def take_blocking(take: Callable[[], T], give_back: Callable[[T], object]) -> T:
    """Make a call like `call_blocking`. If the awaiter is cancelled, its result is given back, since nobody gets it."""
    taking = asyncio.ensure_future(call_in_thread(take, _NAME))
    try:
        return await asyncio.shield(taking)
    except asyncio.CancelledError:
        taking.add_done_callback(partial(_give_back, give_back))
        raise


def _give_back(give_back: Callable[[T], object], taken: "asyncio.Future[T]") -> None:
    if not taken.cancelled() and taken.exception() is None:
        start_thread(give_back, _NAME, taken.result())


class OneAtATime:
    """Makes calls on an object that two threads must not use at once. A call whose awaiter is cancelled goes on, and
    the next one is made after it.
    """

    def __init__(self) -> None:
        self._last: asyncio.Future[Any] | None = None

    async def __call__(self, call: Callable[[], T]) -> T:
        """Make the call in a thread, and return its result."""
        while self._last is not None and not self._last.done():
            await asyncio.wait({self._last})
        made = self._last = asyncio.ensure_future(call_in_thread(call, _NAME))
        made.add_done_callback(_ignore_error)
        return await asyncio.shield(made)


def _ignore_error(made: "asyncio.Future[Any]") -> None:
    """Look at the error of a call, which nobody else does if its awaiter was cancelled."""
    if not made.cancelled():
        made.exception()


@asynccontextmanager
async def entered(
    make: Callable[[], AbstractContextManager[Any]], call: Callable[[Callable[[], Any]], Coroutine[Any, Any, Any]]
) -> AsyncGenerator[None, None]:
    """Make a driver's block, which blocks, enter it, and leave it. call: makes a call in a thread."""

    def enter() -> AbstractContextManager[Any]:
        block = make()
        block.__enter__()
        return block

    block = await call(enter)
    try:
        yield
    except BaseException as error:
        await call(partial(block.__exit__, type(error), error, error.__traceback__))
        raise
    await call(partial(block.__exit__, None, None, None))
