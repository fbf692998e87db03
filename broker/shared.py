"""What the coordinators of one broker have in common: the parts below them, each of which knows nothing of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from ..effects.clock import Clock
from ..effects.rng import Rng
from ..storage.store import Store
from .config.live_settings import LiveSettings
from .metrics import Metrics
from .net.turns import Turns
from .topics.internal_topic import InternalTopic
from .topics.topics import Topics


class Tasks(Protocol):
    """The methods of Housekeeping that a background task uses.

    pause: wait this number of seconds, or until the broker ends; returns whether it ends.
    """

    @property
    def ending(self) -> bool:
        """Whether the broker stops or is halted."""
        ...

    async def pause(self, seconds: float) -> bool:
        """Sleep, at most until the broker ends. Returns whether it ends."""
        ...


@dataclass(frozen=True, slots=True)
class Shared:
    """The parts that coordinators share. known_offline: by directory, why recovery left a log offline."""

    store: Store
    clock: Clock
    rng: Rng
    settings: LiveSettings
    metrics: Metrics
    turns: Turns
    topics: Topics
    tasks: Tasks
    known_offline: dict[str, str]

    def internal_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> InternalTopic:
        """Return a coordinator's topic; it is created when first needed, with these partitions and configs."""
        return InternalTopic(self.topics, self.store, self.known_offline, name, partitions, configs)
