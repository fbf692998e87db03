"""Creates very many producers and transactional ids, and measures how long a client waits at most meanwhile, and how
long the next start takes.

A separate process creates them through the protocol, with many requests in flight: each producer writes one record, and
each id is initialised. An idle client sends requests meanwhile (stalls.py). Then the broker is killed and started
again.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ...protocol import records
from ...protocol.messages.produce import ProduceRequest
from ...protocol.messages.transactions import InitProducerIdRequest
from .. import topics
from ..peers import peers
from ..wire import frame, skip_answer
from . import stalls

PRODUCERS = 200_000
TRANSACTIONAL_IDS = 100_000
PARTITIONS = 16
PIPELINED = 200
FIRST_PRODUCER_ID = 1 << 40  # far above the ids that the broker allocates
SETTINGS = ("-X", "max.producer.ids=1000000", "-X", "log.checkpoint.interval.ms=2000")
TOPIC = "many-ids"


@dataclass(frozen=True, slots=True)
class ManyIds:
    """stall_ms: the longest time that a client waited, without waits for a processor. ready_s: until the broker is
    ready after kill -9. seconds: to create all.
    """

    stall_ms: float
    ready_s: float
    seconds: float


def measure(producers: int = PRODUCERS, transactional_ids: int = TRANSACTIONAL_IDS) -> ManyIds:
    """Create the producers and ids, measure an idle client's waits meanwhile, kill the broker, and time its next
    start.
    """
    with tempfile.TemporaryDirectory(prefix="fencepost-bench-") as directory:
        with peers.fencepost("os", directory, *SETTINGS) as broker:
            topics.create(broker.host, broker.port, TOPIC, PARTITIONS)
            began = time.perf_counter()
            with _load(broker, producers, transactional_ids) as running:
                asked = stalls.ask(broker, running)
            seconds = time.perf_counter() - began
            os.kill(broker.pid, signal.SIGKILL)
        began = time.perf_counter()
        with peers.fencepost("os", directory, *SETTINGS):
            return ManyIds(asked.own, time.perf_counter() - began, seconds)


@contextmanager
def _load(broker: peers.Peer, producers: int, transactional_ids: int) -> Iterator[Callable[[], bool]]:
    """Run a process that creates producers and ids, during the block. Yields a function that returns whether it still
    runs.
    """
    counts = [str(producers), str(transactional_ids)]
    command = [sys.executable, "-m", f"{__package__}.many_ids", broker.host, str(broker.port), *counts]
    with subprocess.Popen(command, env=peers.environment()) as process:
        try:
            yield lambda: process.poll() is None
            if process.wait():
                raise RuntimeError("the load failed")
        finally:
            process.kill()


# ---- the process that loads ----------------------------------------------------------------------------------


def load(host: str, port: int, producers: int, transactional_ids: int) -> None:
    """Create the producers by writing a record of each, then the transactional ids."""
    with socket.create_connection((host, port), 60) as connection:
        _pipeline(connection, (_record_of(FIRST_PRODUCER_ID + number) for number in range(producers)))
        _pipeline(connection, (id_frame(number) for number in range(transactional_ids)))


def _record_of(producer_id: int) -> bytes:
    """Return a Produce request, with length prefix, with one record of this producer."""
    batch = records.build(
        [records.Record(0, 0, None, b"one")], producer_id=producer_id, producer_epoch=0, base_sequence=0
    )
    part = ProduceRequest.Topic.Partition(index=producer_id % PARTITIONS, records=memoryview(batch))
    topic = ProduceRequest.Topic(name=TOPIC, partition_data=[part])
    return frame(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic]), 7)


def id_frame(number: int) -> bytes:
    """Return the InitProducerId request (version 1), with length prefix, of the transactional id with this number."""
    asked = InitProducerIdRequest(transactional_id=f"many-{number}", transaction_timeout_ms=60_000)
    return frame(asked, 1)


def _pipeline(connection: socket.socket, frames: Iterator[bytes]) -> None:
    """Send the requests, PIPELINED at a time, and skip as many responses."""
    while chunk := [frame for _, frame in zip(range(PIPELINED), frames, strict=False)]:
        connection.sendall(b"".join(chunk))
        for _ in chunk:
            skip_answer(connection)


if __name__ == "__main__":
    load(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
