"""Measures how much each delivery mode costs: at most once, at least once, and transactions of growing size, with one
producer.

All modes do the same work: they send a batch of records, and then wait as the mode requires before the batch counts. At
most once does not wait, at least once waits for the acknowledgements, and transactions wait for the commit.
"""

import time
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ..client.producer.producer import Producer

AT_MOST_ONCE, AT_LEAST_ONCE, EXACTLY_ONCE = "at most once", "at least once", "exactly once"
TRANSACTIONS = (1, 10, 100, 1000)  # records in one
BATCH = 100  # records between two waits of the plain modes


@dataclass(frozen=True, slots=True)
class ModeLoad:
    """What each mode sends. A mode ends when it has sent `records` or when `seconds` are over, whichever comes
    first.
    """

    topic: str
    records: int = 100_000
    record_bytes: int = 100
    seconds: float = 3.0


@dataclass(slots=True)
class ModeResult:
    """What one mode did. latencies: seconds from the first record of a batch until the batch is delivered, as far as
    the mode waits for that.
    """

    mode: str
    batch: int
    records: int
    seconds: float
    latencies: "array[float]"


def modes() -> list[tuple[str, int]]:
    """Return (name, records in a batch) of each mode, the cheapest first."""
    plain = [(AT_MOST_ONCE, BATCH), (AT_LEAST_ONCE, BATCH)]
    return plain + [(EXACTLY_ONCE, size) for size in TRANSACTIONS]


async def run(
    bootstrap: str,
    load: ModeLoad,
    mode: str,
    batch: int,
    progress: Callable[[int], None],
    login: Mapping[str, str] = MappingProxyType({}),
) -> ModeResult:
    """Measure one mode. batch: how many records before each wait, or in each transaction. progress: called with the
    number of records sent; an exception of it ends the load.

    login: properties of the SDK.
    """
    async with producer_of(bootstrap, mode, f"{load.topic}-{batch}", login) as producer:
        await send_batch(producer, mode, load, 1)  # not measured: it waits for metadata, coordinator and producer id
        return await _measure(producer, mode, load, batch, progress)


def producer_of(
    bootstrap: str, mode: str, transactional_id: str, login: Mapping[str, str] = MappingProxyType({})
) -> Producer:
    """Return a producer for this mode, not started. login: properties of the SDK."""
    config: dict[str, Any] = {"bootstrap.servers": bootstrap, **login}
    if mode == AT_MOST_ONCE:
        config |= {"acks": "0", "enable.idempotence": False}
    elif mode == EXACTLY_ONCE:
        config["transactional.id"] = transactional_id
    return Producer.from_config(config)


async def _measure(
    producer: Producer, mode: str, load: ModeLoad, batch: int, progress: Callable[[int], None]
) -> ModeResult:
    """Send batches until the load's records or seconds are reached."""
    latencies = array("d")
    sent = 0
    began = now = time.perf_counter()
    while sent < load.records and now - began < load.seconds:
        await send_batch(producer, mode, load, batch)
        sent += batch
        last, now = now, time.perf_counter()
        latencies.append(now - last)
        progress(sent)
    return ModeResult(mode, batch, sent, now - began, latencies)


async def send_batch(producer: Producer, mode: str, load: ModeLoad, batch: int) -> None:
    """Send `batch` records, in a transaction for exactly once, then wait: for the commit, for the acknowledgements, or,
    for at most once, until all are sent.
    """
    value = b"." * load.record_bytes
    if mode == EXACTLY_ONCE:
        async with producer.transaction() as tx:
            for _ in range(batch):
                await tx.send(load.topic, value)
        return
    for _ in range(batch):
        await producer.send(load.topic, value)
    await producer.flush()
