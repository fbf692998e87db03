"""The load of transactions: producers of confluent-kafka, each in a thread of its own, commit one transaction after
another.

A transaction is begun, filled with records and committed; it counts when commit_transaction() has returned. Its latency
is the time for all of that. The threads share one process, so the client needs a whole processor long before a broker
does: if two rates are similar, compare the CPU time per transaction.
"""

import threading
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

TIMEOUT_S = 30
TICK_S = 0.1
PRODUCER = {
    "enable.idempotence": True,
    "linger.ms": 0,
    "log_level": 0,
    "transaction.timeout.ms": 60_000,
}


@dataclass(frozen=True, slots=True)
class TransactionLoad:
    """What to commit: `producers` at the same time, each with `records` in a transaction, to `partitions` of the
    topic.
    """

    topic: str
    producers: int = 1
    partitions: int = 1
    records: int = 1
    record_bytes: int = 100
    seconds: float = 5.0
    warmup_seconds: float = 1.0
    ids: str = "bench"  # what their transactional ids begin with
    login: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # properties of librdkafka


@dataclass(slots=True)
class TransactionResult:
    """How many transactions were committed within `seconds`, and how long each took, in seconds."""

    transactions: int
    seconds: float
    latencies: "array[float]"


class _Worker(threading.Thread):
    """The thread of one producer. It measures while the event `measuring` is set, and ends when `ending` is set."""

    def __init__(self, bootstrap: str, load: TransactionLoad, number: int, phases: "_Phases") -> None:
        super().__init__(daemon=True)
        self._servers = bootstrap
        self._load = load
        self._number = number
        self._phases = phases
        self.latencies: array[float] = array("d")
        self.error: Exception | None = None

    def run(self) -> None:
        """Commit transactions until `ending` is set. An error is stored in `error` and ends all threads."""
        try:
            self._run()
        except Exception as error:
            self.error = error
            self._phases.ending.set()

    def _run(self) -> None:
        """Commit transactions until `ending` is set. Raises what the producer raises."""
        from confluent_kafka import Producer

        load, phases = self._load, self._phases
        named = {"bootstrap.servers": self._servers, "transactional.id": f"{load.ids}-{self._number}"}
        producer = Producer({**PRODUCER, **named, **dict(load.login)})
        producer.init_transactions(TIMEOUT_S)
        value = bytes(i * 131 % 251 for i in range(load.record_bytes))
        phases.ready.release()
        turn = self._number
        while not phases.ending.is_set():
            began = time.perf_counter()
            self._transaction(producer, value, turn)
            if phases.measuring.is_set():
                self.latencies.append(time.perf_counter() - began)
            turn += 1

    def _transaction(self, producer: Any, value: bytes, turn: int) -> None:
        """Commit one transaction. If it has fewer records than there are partitions, the next transaction continues
        with the next partitions. turn: its number.
        """
        load = self._load
        producer.begin_transaction()
        for i in range(load.records):
            producer.produce(load.topic, value, partition=(turn * load.records + i) % load.partitions)
        producer.commit_transaction(TIMEOUT_S)


class _Phases:
    """The events that the threads wait for. ready: released by each thread that can begin."""

    def __init__(self) -> None:
        self.ready = threading.Semaphore(0)
        self.measuring = threading.Event()
        self.ending = threading.Event()


def run(
    bootstrap: str, load: TransactionLoad, measured: Callable[[], None], progress: Callable[[int], None] | None = None
) -> TransactionResult:
    """Warm up, call `measured`, run the load for its seconds, and call `measured` again: so the caller can read the
    broker's CPU time around it.

    progress: called ten times a second with the number of transactions measured so far; what it raises ends the run.
    Raises: RuntimeError if a producer failed, with that error as its cause; the producer's transaction is not aborted.
    """
    phases = _Phases()
    workers = [_Worker(bootstrap, load, number, phases) for number in range(load.producers)]
    for worker in workers:
        worker.start()

    def hold(seconds: float) -> None:
        """Let the load run for this many seconds, or until it has failed."""
        end = time.perf_counter() + seconds
        while (left := end - time.perf_counter()) > 0 and not phases.ending.wait(min(left, TICK_S)):
            if progress is not None:
                progress(sum(len(worker.latencies) for worker in workers))

    try:
        for _ in workers:
            while not phases.ready.acquire(blocking=False) and not phases.ending.is_set():
                hold(TICK_S)
        hold(load.warmup_seconds)
        measured()
        phases.measuring.set()
        began = time.perf_counter()
        hold(load.seconds)
        phases.measuring.clear()
        seconds = time.perf_counter() - began
        measured()
    finally:
        phases.ending.set()
        for worker in workers:
            worker.join(2 * TIMEOUT_S)
    for worker in workers:
        if worker.error is not None:
            raise RuntimeError(f"a transaction failed: {worker.error}") from worker.error
    latencies: array[float] = array("d")
    for worker in workers:
        latencies.extend(worker.latencies)
    return TransactionResult(len(latencies), seconds, latencies)
