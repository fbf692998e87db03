"""A request about thousands of things, answered some milliseconds at a time, so that nobody else waits for it.

Each thing is decided by itself, as the requests that are served this way promise no more; requests over other
connections come in between, those of the same connection wait. What is left when the client goes, or the broker stops,
is not done.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

from ..storage.store import BrokerHalted
from .waiting import Parked

if TYPE_CHECKING:
    from .broker import Broker
    from .dispatch import Call

T = TypeVar("T")
A = TypeVar("A")
R = TypeVar("R")
SLICE_MS = 4


def in_slices(
    broker: "Broker", call: "Call", items: Iterable[T], answer: Callable[[T], A], respond: Callable[[list[A]], R]
) -> R | Parked:
    """respond([answer(item) for item in items]), at once if that is quick."""
    slices = _Slices(broker, iter(items), answer)
    if slices.take():
        return respond(slices.answers)
    parked = Parked()
    loop = asyncio.get_running_loop()
    call.connection.hold()

    def go_on() -> None:
        try:
            if parked.cancelled or broker.housekeeping.ending:
                return
            if not slices.take():
                loop.call_soon(go_on)
                return
            parked.answer(respond(slices.answers))
        except BrokerHalted:
            pass  # nobody is answered any more
        except Exception as error:
            parked.answer(error)
        call.connection.go_on()

    loop.call_soon(go_on)
    return parked


class _Slices(Generic[T, A]):
    """What is answered, and what is left."""

    def __init__(self, broker: "Broker", items: Iterator[T], answer: Callable[[T], A]) -> None:
        self.answers: list[A] = []
        self._clock = broker.clock
        self._items = items
        self._answer = answer

    def take(self) -> bool:
        """One slice. Returns whether that was the last."""
        until_ms = self._clock.monotonic_ms() + SLICE_MS
        for item in self._items:
            self.answers.append(self._answer(item))
            if self._clock.monotonic_ms() >= until_ms:
                return False
        return True
