"""Rng: all random choices, behind one interface, so that a test can repeat a run with the same seed.

The system's random numbers come from the kernel and are good enough for secrets; ids, salts and jitter all use them.
"""

import os
import random
from typing import Protocol


class Rng(Protocol):
    """A source of random numbers."""

    def bytes(self, n: int) -> bytes:
        """Return `n` random bytes."""
        ...

    def below(self, n: int) -> int:
        """Return a random whole number, at least 0 and below `n` (n ≥ 1)."""
        ...

    def random(self) -> float:
        """Return a random number, at least 0 and below 1."""
        ...


class SystemRng(Rng):
    """Random numbers from the kernel."""

    __slots__ = ("_source",)

    def __init__(self) -> None:
        self._source = random.SystemRandom()

    def bytes(self, n: int) -> bytes:
        return os.urandom(n)

    def below(self, n: int) -> int:
        return self._source.randrange(n)

    def random(self) -> float:
        return self._source.random()
