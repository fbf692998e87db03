"""Rng: every random choice, behind one interface, so that a seed can replay a run.

The system's is fit for secrets (it is the kernel's); ids, salts and jitter all come from it.
"""

import os
import random
from typing import Protocol


class Rng(Protocol):
    """Where random bits come from."""

    def bytes(self, n: int) -> bytes:
        """`n` random bytes."""
        ...

    def below(self, n: int) -> int:
        """A whole number from 0 up to, and without, `n` (n ≥ 1)."""
        ...

    def random(self) -> float:
        """A number from 0 up to, and without, 1."""
        ...


class SystemRng(Rng):
    """The kernel's random bits."""

    __slots__ = ("_source",)

    def __init__(self) -> None:
        self._source = random.SystemRandom()

    def bytes(self, n: int) -> bytes:
        return os.urandom(n)

    def below(self, n: int) -> int:
        return self._source.randrange(n)

    def random(self) -> float:
        return self._source.random()
