"""An Rng whose numbers follow from a seed."""

import random

from ..rng import Rng


class SeededRng(Rng):
    def __init__(self, seed: int | str = 0) -> None:
        self._source = random.Random(seed)

    def bytes(self, n: int) -> bytes:
        return self._source.randbytes(n)

    def below(self, n: int) -> int:
        return self._source.randrange(n)

    def random(self) -> float:
        return self._source.random()
