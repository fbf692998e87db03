"""Brokers that run one after the other on one simulated disk, for tests of what must survive a restart.

`small()` are settings under which journal files change, segments roll and the disk fills within a short test. A slowed
executor makes the time between a write and its sync long enough for assertions.
"""

from collections.abc import Sequence
from typing import Any

from fencepost.broker.config.settings import BrokerSettings
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.protocol import batches
from fencepost.protocol.batches import walk
from fencepost.protocol.records import Record, records
from produce_requests import batch, bytes_of, fetch, fetched, list_offsets
from simulated_broker import SimulatedBroker

LATEST, EARLIEST = -1, -2


def small(**more: Any) -> BrokerSettings:
    """Return settings of a broker that uses a few megabytes."""
    return BrokerSettings(**{"journal_max_bytes": 4 << 20, "storage_min_free_bytes": 0} | more)


def slow(disk: SimulatedDisk, **seconds: float) -> dict[str, float]:
    """Delay the effect of jobs, in executors that are created from now on. seconds: the delay by the executor's name:
    journal, segments, reads.

    Returns the delays, which may be changed while brokers run.
    """
    delays = dict(seconds)
    begin = disk.executor

    def executor(name: str, threads: int = 1) -> Any:
        disk.latency = lambda: (delays.get(name, 0.0), 0.0)
        return begin(name, threads)

    disk.executor = executor  # type: ignore[method-assign]
    return delays


def append_jointly(broker: SimulatedBroker, topic: str) -> None:
    """Append one batch to a topic as a joint unit (one journal entry with others' changes), as the start of a
    transaction is.
    """
    store = broker.broker.store
    log = next(log for log in store.logs.values() if log.topic == topic)
    store.append_together([(log, batches.read(memoryview(batch())))])


def kill(broker: SimulatedBroker) -> SimulatedDisk:
    """Kill the broker as SIGKILL does: nothing more happens in its process. Returns the disk as the next broker finds
    it.
    """
    left = broker.disk.after_process_crash()
    end(broker)
    return left


def unplug(broker: SimulatedBroker) -> SimulatedDisk:
    """Cut the power: only what was synced is left. Returns that disk."""
    left = broker.disk.after_power_cut()
    end(broker)
    return left


def end(broker: SimulatedBroker) -> None:
    broker.disk.halt()
    broker.abandon()


def read_all(broker: SimulatedBroker, topic: str, partition: int = 0) -> list[Record]:
    """Return every record of a partition that a consumer can read, from its start."""
    return [record for batch in read_batches(broker, topic, partition) for record in records(batch)]


def read_batches(broker: SimulatedBroker, topic: str, partition: int = 0) -> Sequence[Any]:
    offset, end = offset_at(broker, topic, EARLIEST, partition), offset_at(broker, topic, LATEST, partition)
    found: list[Any] = []
    while offset < end:
        part = fetched(broker.ask(fetch(topic, offset, partition=partition), 11))
        assert part.error_code == 0, part
        batches = list(walk(memoryview(bytes_of(part))))
        assert batches, f"nothing comes at {offset}, where {end} is the end"
        found += batches
        offset = batches[-1].last_offset + 1
    return found


def offset_at(broker: SimulatedBroker, topic: str, timestamp: int, partition: int = 0) -> int:
    """Return the offset that ListOffsets answers for this timestamp."""
    (answer,) = broker.ask(list_offsets(topic, timestamp, partition=partition)).topics[0].partitions
    assert answer.error_code == 0, answer
    return int(answer.offset)
