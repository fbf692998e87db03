"""The environment of a client: clock, randomness and network, as one value.

The rule: nothing in `client/` uses these in another way, so that all of it also runs in a simulation.
"""

from dataclasses import dataclass

from ...effects.clock import Clock, SystemClock
from ...effects.net import Net, SystemNet
from ...effects.rng import Rng, SystemRng


@dataclass(frozen=True, slots=True)
class Environment:
    """The clock, the random numbers and the network that a client uses; tests replace them."""

    clock: Clock
    rng: Rng
    net: Net


SYSTEM = Environment(SystemClock(), SystemRng(), SystemNet())
"""The real ones of this machine."""
