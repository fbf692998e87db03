"""Measures how much metrics and traces cost a producer of the SDK: it sends the same records without them, with
metrics, and with tracers.

All kinds of observation alternate in this process. The CPU time of each (of this process, without the broker) is
divided by the CPU time without observation in the same round, because the speed of a shared machine changes between
rounds. Nothing is exported, so the cost of an exporter is not included.
"""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import NoOpTracerProvider

from ..client.metrics.counters import ClientMetrics
from ..client.producer.producer import Producer
from ..client.tracing.tracing import Tracing

PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class ObservedLoad:
    """What is sent. records: how many in each round with each kind of observation."""

    topic: str
    records: int = 50_000
    record_bytes: int = 100
    rounds: int = 5


@dataclass(slots=True)
class Observed:
    """The cost of one kind of observation (way), the median of the rounds. cpu_ratio: CPU time compared with that
    without observation in the same round.
    """

    way: str
    records_per_second: float
    cpu_us_per_record: float
    cpu_ratio: float


def ways() -> dict[str, Callable[[], dict[str, Any]]]:
    """Return a function for each kind of observation, by its name, that makes the producer's keyword arguments."""
    return {
        PLAIN: dict,
        "metrics": lambda: {"metrics": ClientMetrics()},
        "tracing without a provider": lambda: {"tracing": NoOpTracerProvider()},
        "a span for each batch": lambda: {"tracing": Tracing(TracerProvider(), record_spans=False)},
        "a span for each record, not sampled": lambda: {"tracing": TracerProvider(ALWAYS_OFF)},
        "a span for each record": lambda: {"tracing": TracerProvider()},
    }


async def run(
    bootstrap: str,
    load: ObservedLoad,
    progress: Callable[[int], None],
    login: Mapping[str, str] = MappingProxyType({}),
) -> list[Observed]:
    """Measure all kinds of observation alternately. progress: called with the number of records sent; an exception of
    it ends the load. login: properties of the SDK.
    """
    rates: dict[str, list[float]] = {way: [] for way in ways()}
    costs: dict[str, list[float]] = {way: [] for way in ways()}
    done = 0
    for _ in range(load.rounds):
        for way, keywords in ways().items():
            config = {"bootstrap.servers": bootstrap, **login}
            async with Producer.from_config(config, **keywords()) as producer:
                seconds, cpu_seconds = await _send(producer, load)
            rates[way].append(load.records / seconds)
            costs[way].append(cpu_seconds * 1e6 / load.records)
            done += load.records
            progress(done)
    return [
        Observed(
            way,
            statistics.median(rates[way]),
            statistics.median(costs[way]),
            statistics.median(cost / plain for cost, plain in zip(costs[way], costs[PLAIN], strict=True)),
        )
        for way in rates
    ]


async def _send(producer: Producer, load: ObservedLoad) -> tuple[float, float]:
    """Send the records. Returns (seconds, CPU seconds) from the first record to the last acknowledgement."""
    value = b"." * load.record_bytes
    await producer.send_and_wait(load.topic, value)  # not measured: it waits for metadata and producer id
    began, cpu_began = time.perf_counter(), time.process_time()
    for _ in range(load.records):
        await producer.send(load.topic, value)
    await producer.flush()
    return time.perf_counter() - began, time.process_time() - cpu_began
