"""What a client needs of the outside, in one value: the clock, randomness, the network.

The rule: nothing in `client/` asks the machine for these in another way, so all of it runs in a simulation too.
"""

from dataclasses import dataclass

from ...effects.clock import Clock, SystemClock
from ...effects.net import Net, SystemNet
from ...effects.rng import Rng, SystemRng


@dataclass(frozen=True, slots=True)
class Environment:
    clock: Clock
    rng: Rng
    net: Net


SYSTEM = Environment(SystemClock(), SystemRng(), SystemNet())
"""The machine's own."""
