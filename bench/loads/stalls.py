"""Measures how long the broker's event loop is blocked at most under load, while it flushes, makes checkpoints, and
runs retention and compaction.

The loop of another process cannot be measured from inside. So a client that does nothing else sends one ApiVersions
request after another, and the longest answer times are the stalls. The time in which the broker's or the client's
thread was ready to run but had no processor is the machine's part; the kernel counts it (schedstat), and it is reported
separately. The load comes from a process of its own, at a steady rate far below the broker's limit.
"""

import contextlib
import socket
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ...protocol import records
from ...protocol.messages.cluster import ApiVersionsRequest
from ...protocol.messages.produce import ProduceRequest
from ...protocol.messages.topics import CreateTopicsRequest
from .. import small
from ..figures import percentile
from ..peers import peers
from ..wire import Wire, frame, skip_answer

PARTITIONS = 2_000
REQUESTS_A_SECOND = 2_000
PING_EVERY_S = 0.002
MIB = 1 << 20
OFTEN = ("log.checkpoint.interval.ms=2000", "log.retention.check.interval.ms=500", "log.cleaner.backoff.ms=500")
TOPICS = {
    "many": (PARTITIONS, {}),
    "short": (1, {"segment.bytes": str(MIB), "retention.bytes": str(2 * MIB)}),
    "compacted": (
        1,
        {"cleanup.policy": "compact", "segment.bytes": str(MIB), "min.cleanable.dirty.ratio": "0.01"},
    ),
}


@dataclass(frozen=True, slots=True)
class Stalls:
    """How long an idle client waited for its answers, in ms. p50 to most: as the client measured it. own: the
    longest wait, less the time in which threads waited for a processor.
    """

    p50: float
    p99: float
    p999: float
    most: float
    own: float


def measure(seconds: float) -> Stalls:
    """Run the load on a new broker, and measure an idle client's waits for this many seconds."""
    options = [word for setting in OFTEN for word in ("-X", setting)]
    with peers.fencepost("fsync", None, *options) as broker, _load(broker):
        time.sleep(min(5.0, seconds))  # segments exist and the first checkpoint is done
        end = time.perf_counter() + seconds
        return ask(broker, lambda: time.perf_counter() < end)


def ask(broker: peers.Peer, going_on: Callable[[], bool]) -> Stalls:
    """Send small requests, one after another with a pause, as long as going_on() is true. Returns the waits for their
    answers.
    """
    request = frame(ApiVersionsRequest(), 0)
    seen: array[float] = array("d")
    own = 0.0
    with socket.create_connection((broker.host, broker.port), 30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while going_on():
            before = _waits_ns(broker.pid)
            began = time.perf_counter()
            connection.sendall(request)
            skip_answer(connection)
            took_ms = 1e3 * (time.perf_counter() - began)
            seen.append(took_ms)
            if took_ms > own:
                own = max(own, took_ms - _machines_part_ms(broker.pid, before))
            time.sleep(PING_EVERY_S)
    found = array("d", sorted(seen))
    return Stalls(percentile(found, 0.5), percentile(found, 0.99), percentile(found, 0.999), found[-1], own)


def _waits_ns(pid: int) -> dict[str, int]:
    """Return by thread id how long each thread of the broker, and this one, has waited for a processor so far,
    in ns.
    """
    threads = [*Path(f"/proc/{pid}/task").iterdir(), Path(f"/proc/self/task/{threading.get_native_id()}")]
    waits = {}
    for thread in threads:
        with contextlib.suppress(OSError):  # it has ended
            waits[thread.name] = int((thread / "schedstat").read_text().split()[1])
    return waits


def _machines_part_ms(pid: int, before: dict[str, int]) -> float:
    """Return how many ms of a late answer the machine caused: the time that the broker's loop thread and this thread
    have waited for a processor since _waits_ns() returned `before`, plus the longest such wait of another thread of the
    broker.

    The other thread counts because it may have held Python's lock, which the loop needed to continue.
    """
    waited = {name: now - before.get(name, now) for name, now in _waits_ns(pid).items()}
    of_two = waited.pop(str(pid), 0) + waited.pop(str(threading.get_native_id()), 0)
    return (of_two + max(waited.values(), default=0)) / 1e6


@contextlib.contextmanager
def _load(broker: peers.Peer) -> Iterator[None]:
    """Run the load in a process, during the block, which begins when the load has created its topics."""
    command = [sys.executable, "-m", f"{__package__}.stalls", broker.host, str(broker.port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=peers.environment()) as process:
        assert process.stdout is not None
        try:
            if process.stdout.readline() != "loading\n":
                raise RuntimeError("the load did not begin")
            yield
            if process.poll() is not None:
                raise RuntimeError("the load ended early")
        finally:
            process.kill()


# ---- the process that loads ----------------------------------------------------------------------------------


def load(host: str, port: int) -> None:
    """Create the topics, then send until killed: small batches to all partitions, larger ones to the other topics."""
    wire = Wire(host, port)
    items = [_topic(name, partitions, configs) for name, (partitions, configs) in TOPICS.items()]
    for made in wire.call(CreateTopicsRequest(topics=items, timeout_ms=30_000), 5).topics:
        if made.error_code:
            raise RuntimeError(f"{made.name} could not be made: error {made.error_code}")
    frames = [_frame("many", partition, 1) for partition in range(PARTITIONS)]
    large = [_frame("short", 0, 200), _frame("compacted", 0, 200)]
    print("loading", flush=True)
    with socket.create_connection((host, port)) as connection:
        threading.Thread(target=_drain, args=(connection,), daemon=True).start()
        began, sent = time.perf_counter(), 0
        while True:
            due = int((time.perf_counter() - began) * REQUESTS_A_SECOND)
            for number in range(sent, due):
                connection.sendall(frames[number % PARTITIONS])
                if number % 40 == 0:
                    connection.sendall(large[number // 40 % 2])
            sent = due
            time.sleep(0.001)


def _topic(name: str, partitions: int, configs: dict[str, str]) -> CreateTopicsRequest.Topic:
    """Return a topic as an item of a CreateTopics request."""
    entries = [CreateTopicsRequest.Topic.Config(name=key, value=value) for key, value in configs.items()]
    return CreateTopicsRequest.Topic(name=name, num_partitions=partitions, replication_factor=1, configs=entries)


def _frame(topic: str, partition: int, count: int) -> bytes:
    """Return a Produce request, with length prefix, of one batch with `count` records."""
    batch = records.build([records.Record(i, 0, b"key %d" % i, b"x" * 100, ()) for i in range(count)])
    part = ProduceRequest.Topic.Partition(index=partition, records=memoryview(batch))
    item = ProduceRequest.Topic(name=topic, partition_data=[part])
    return frame(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[item]), small.VERSION)


def _drain(connection: socket.socket) -> None:
    """Read and drop responses until the connection ends."""
    while connection.recv(1 << 16):
        pass


if __name__ == "__main__":
    if len(sys.argv) > 2:
        load(sys.argv[1], int(sys.argv[2]))
    else:
        print(measure(20.0))
