"""Who has which of a few slots, and who waits for one: first come, first served. Pure.

The rule: a slot is free or taken, never both and never neither, and nobody waits while one is free.
"""

import heapq
from collections import deque
from typing import Generic, TypeVar

W = TypeVar("W")


class Slots(Generic[W]):
    """Slots 0 to size - 1. W: whoever waits."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._free = list(range(size))  # a heap: the lowest comes first, so that few are ever used
        self._waiting: deque[W] = deque()

    @property
    def taken(self) -> int:
        """How many."""
        return self.size - len(self._free)

    @property
    def waiting(self) -> int:
        """How many."""
        return len(self._waiting)

    def take(self) -> int | None:
        """The lowest that is free. None: there is none."""
        return heapq.heappop(self._free) if self._free else None

    def wait(self, waiter: W) -> None:
        """For one to be given back. Only after `take` gave none."""
        self._waiting.append(waiter)

    def leave(self, waiter: W) -> None:
        """Wait no longer, if it still does."""
        if waiter in self._waiting:
            self._waiting.remove(waiter)

    def give_back(self, slot: int) -> W | None:
        """Who has it now: whoever waits longest. None: nobody, it is free. Who cannot take it gives it back again."""
        if self._waiting:
            return self._waiting.popleft()
        heapq.heappush(self._free, slot)
        return None

    def dismiss(self) -> list[W]:
        """All who waited. They wait no longer."""
        dismissed = list(self._waiting)
        self._waiting.clear()
        return dismissed
