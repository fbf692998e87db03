"""The parts of the broker that every coordinator uses; none of these parts knows a coordinator."""

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
    """What a background task needs of Housekeeping."""

    @property
    def ending(self) -> bool:
        """Whether the broker stops or has failed."""
        ...

    async def pause(self, seconds: float) -> bool:
        """Sleep for this number of seconds, or until the broker stops. Returns whether it stops."""
        ...


@dataclass(frozen=True, slots=True)
class Shared:
    """The parts of the broker that coordinators use. known_offline: by directory of a log, why recovery left it
    offline.
    """

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
        """Return an internal topic with these partitions and configs. It is created when it is first needed."""
        return InternalTopic(self.topics, self.store, self.known_offline, name, partitions, configs)
