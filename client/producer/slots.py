"""A fixed number of slots, and a queue of waiters for them. Pure.

The rule: each slot is either free or taken; waiters get slots in the order in which they came, and nobody waits while
one is free.
"""

import heapq
from collections import deque
from typing import Generic, TypeVar

W = TypeVar("W")


class Slots(Generic[W]):
    """Slots 0 to size - 1. W: the type of a waiter."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._free = list(range(size))  # a heap: the lowest is taken first, so that few are ever used
        self._waiting: deque[W] = deque()

    @property
    def taken(self) -> int:
        """Return how many slots are taken."""
        return self.size - len(self._free)

    @property
    def waiting(self) -> int:
        """Return how many waiters there are."""
        return len(self._waiting)

    def take(self) -> int | None:
        """Take the lowest free slot. None: all are taken."""
        return heapq.heappop(self._free) if self._free else None

    def wait(self, waiter: W) -> None:
        """Add a waiter to the end of the queue. Call it only after `take` returned None."""
        self._waiting.append(waiter)

    def leave(self, waiter: W) -> None:
        """Remove the waiter, if it still waits."""
        if waiter in self._waiting:
            self._waiting.remove(waiter)

    def give_back(self, slot: int) -> W | None:
        """Pass the slot to the first waiter and return that waiter, or mark the slot as free and return None if nobody
        waits.

        If the waiter cannot use the slot, the caller gives it back again.
        """
        if self._waiting:
            return self._waiting.popleft()
        heapq.heappush(self._free, slot)
        return None

    def dismiss(self) -> list[W]:
        """Remove all waiters, and return them."""
        dismissed = list(self._waiting)
        self._waiting.clear()
        return dismissed
