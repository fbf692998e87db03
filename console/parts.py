"""The parts of one console, made once and given to every handler."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ..client.admin.admin import Admin
from ..client.admin.transactions import MAX_TRANSACTION_TIMEOUT_MS
from ..client.admin.values import ClusterDescription
from ..client.consumer.consumer import Consumer
from ..client.errors import AuthorizationError, UnsupportedVersionError
from ..effects.clock import Clock, SystemClock
from .connecting import Connecting
from .http.guard import Guard
from .http.limits import ConnectionLimits, StreamLimits
from .metrics import Scraper
from .model.cluster_model import ClusterModel
from .model.events import Events
from .model.view import View

CLUSTER_FRESH_MS = 1_000
SILENCE = "fencepost_store_unanswered_seconds"
MAX_DOWNLOADS = 4  # of values, each of which is in memory until it is taken
MAX_READINGS = 4  # of parts of a partition, each of which is in memory until its rows are made


@dataclass(slots=True)
class Parts:
    """What all handlers of one console use. bootstrap: the broker's address as it was given, to show it. new_admin:
    makes an Admin that is not started.

    new_consumer: makes a Consumer without a group, not started, for the log of transactions; None: it is not read.
    start: unguessable, identifies this start of the console. searching: locked during a search for hanging
    transactions. downloading: limits downloads of a value at the same time. reading: limits pages of records or blocks
    at the same time; others wait. waits_for: what the broker may wait for before it answers for the first time.
    """

    bootstrap: str
    version: str
    start: str
    guard: Guard
    new_admin: Callable[[], Admin]
    new_consumer: Callable[[], Consumer] | None = None
    clock: Clock = field(default_factory=SystemClock)
    waits_for: str = ""
    hangs_after_ms: int = MAX_TRANSACTION_TIMEOUT_MS
    searching: asyncio.Lock = field(default_factory=asyncio.Lock)
    downloading: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_DOWNLOADS))
    reading: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_READINGS))
    connections: ConnectionLimits[asyncio.Transport] = field(default_factory=ConnectionLimits)
    streams: StreamLimits = field(default_factory=StreamLimits)
    connecting: Connecting = field(init=False)
    scraper: Scraper = field(init=False)
    events: Events = field(init=False)
    model: ClusterModel = field(init=False)
    _cluster: ClusterDescription | None = None
    _cluster_ms: int = 0
    _silence_s: float = 0.0
    _silence_ms: int | None = None  # when that was read

    def __post_init__(self) -> None:
        self.connecting = Connecting(self.new_admin, self.clock)
        self.scraper = Scraper(self.connecting.admin)
        self.events = Events(self.start)
        self.model = ClusterModel(self.connecting.admin, self.events, self.clock, self.new_consumer)

    def look(self) -> None:
        """Keep the cluster being read regularly for some more time. Called for each page; see ClusterModel.look."""
        self.model.look()

    def snapshot(self, view: View | None) -> dict[str, Any]:
        """Return what a page shows when it is opened, as JSON. view: None for the last one."""
        return self.model.snapshot(view)

    def hang_up(self) -> None:
        """End all event streams."""
        self.events.close()

    async def end(self) -> None:
        """Stop reading the cluster and close the connection to the broker."""
        await self.model.close()
        await self.connecting.close()

    async def cluster(self) -> ClusterDescription:
        """Return brokers and features of the cluster, at most CLUSTER_FRESH_MS old. Raises KafkaError."""
        now_ms = self.clock.monotonic_ms()
        if self._cluster is None or now_ms - self._cluster_ms > CLUSTER_FRESH_MS:
            self._cluster = await (await self.connecting.admin()).describe_cluster()
            self._cluster_ms = now_ms
        return self._cluster

    @property
    def has_answered(self) -> bool:
        """Whether the broker has ever answered."""
        return self._cluster is not None

    async def store_silence_s(self) -> float:
        """Return for how many seconds the broker's object store has not answered, so that nothing can be acknowledged;
        0 if the store answers, the journal is local, or this console may not see it.

        The number is read again after CLUSTER_FRESH_MS. Raises KafkaError if the broker does not answer.
        """
        now_ms = self.clock.monotonic_ms()
        if self._silence_ms is None or now_ms - self._silence_ms > CLUSTER_FRESH_MS:
            self._silence_s, self._silence_ms = 0.0, now_ms
            with suppress(UnsupportedVersionError, AuthorizationError):  # not fencepost, or a login without the right
                families = await (await self.connecting.admin()).describe_metrics()
                samples = [each.samples for each in families if each.name == SILENCE]
                self._silence_s = max((sample.value for found in samples for sample in found), default=0.0)
        return self._silence_s
