"""Connecting a producer with metrics and tracing, which are imported only where they are used."""

from typing import TYPE_CHECKING

from ..net.cluster import Cluster
from ..net.environment import Environment
from ..transactions.driver import TransactionDriver
from .batching import Accumulator
from .sender import Sender

if TYPE_CHECKING:
    from ..metrics.counters import ClientMetrics
    from ..tracing.tracing import TracerProvider, Tracing


def watch(
    metrics: "ClientMetrics | None",
    tracing: "Tracing | TracerProvider | bool | None",
    parts: tuple[Sender, Accumulator, TransactionDriver | None],
    cluster: Cluster,
    environment: Environment,
) -> None:
    """Connect the parts of a producer with metrics and tracing, if given. tracing: True for the default tracer."""
    sender, accumulator, driver = parts
    if metrics is not None:
        metrics.watch_producer(sender, accumulator, driver, environment.clock.monotonic_ms)
    if tracing:
        from ..tracing.tracing import tracing_of

        tracing_of(tracing).watch_producer(accumulator, driver, cluster.settings.client_id, cluster)
