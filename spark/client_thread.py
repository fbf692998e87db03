"""The connections of a worker process: one thread with a loop, and one Cluster for each set of servers and security.

The rule: Spark calls blocking functions, the client is asyncio; this module runs the client's coroutines for Spark.
Connections stay open as long as the process lives, because Spark reuses a worker for the next batch. A forked child
opens its own.
"""

import asyncio
import os
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from ..client.errors import KafkaError, RequestTimedOutError, is_retriable
from ..client.net.cluster import Cluster
from ..client.net.environment import SYSTEM
from ..client.net.retry import Deadline
from ..client.settings import ConnectionSettings
from ..client.sync.loop_thread import loop_thread

T = TypeVar("T")

START_MS = 15_000
PAUSE_S = 0.3


class HasConnection(Protocol):
    """Options that include the settings of a connection."""

    @property
    def connection(self) -> ConnectionSettings:
        """The settings of the connection to the cluster."""
        ...


class _Clusters:
    """The open clusters of one process by their settings, and the event loop that they run in. pid: that process,
    since a forked child must not use them.
    """

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = loop_thread().call(asyncio.get_running_loop)
        self.clusters: dict[ConnectionSettings, Cluster] = {}


_clusters: _Clusters | None = None


def _of_this_process() -> _Clusters:
    """Return the clusters of this process; a forked child gets new, empty ones."""
    global _clusters
    if _clusters is None or _clusters.pid != os.getpid():
        _clusters = _Clusters()
    return _clusters


def run(coroutine: Coroutine[Any, Any, T], timeout_s: float) -> T:
    """Run the coroutine in the client's loop, in its thread, and wait for its result. Raises what the coroutine
    raises, and RequestTimedOutError after timeout_s seconds.
    """

    async def bounded() -> T:
        """Await the coroutine for timeout_s seconds at most; a timeout of its own is raised unchanged."""
        try:
            async with asyncio.timeout(timeout_s) as limit:
                return await coroutine
        except TimeoutError:
            if not limit.expired():
                raise
            raise RequestTimedOutError(f"the call did not end within {timeout_s:g} s") from None

    return loop_thread().run(bounded)


def begin(coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
    """Start the coroutine in the client's loop and return its future without waiting. The coroutine must limit its own
    time.
    """
    return asyncio.run_coroutine_threadsafe(coroutine, _of_this_process().loop)


def cluster_for(options: HasConnection) -> Cluster:
    """Return this process's Cluster for these servers and security settings, started at the first call. Raises
    BrokerUnreachableError, AuthenticationError.
    """
    clusters = _of_this_process().clusters
    settings = options.connection
    cluster = clusters.get(settings)
    if cluster is None:
        cluster = run(_start_cluster(settings), settings.default_api_timeout_ms / 1000)
        clusters[settings] = cluster
    return cluster


async def _start_cluster(settings: ConnectionSettings) -> Cluster:
    """Start a Cluster. Tries again for START_MS while the broker cannot be reached, because a failed task may end the
    whole query.
    """
    deadline = Deadline(SYSTEM.clock, START_MS)
    while True:
        cluster = Cluster(settings)
        try:
            await cluster.start()
            return cluster
        except BaseException as error:
            await cluster.close()
            if not isinstance(error, KafkaError) or not is_retriable(error) or deadline.passed():
                raise
        await asyncio.sleep(PAUSE_S)


def close_all() -> None:
    """Close all clusters of this process. For tests, and when a process exits."""
    opened = _of_this_process().clusters
    clusters = list(opened.values())
    opened.clear()

    async def close() -> None:
        for cluster in clusters:
            await cluster.close()

    run(close(), 10)
