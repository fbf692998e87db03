"""Carries out the steps of protocol.py with a producer, in the loop's thread, whole columns at a time.

The rule: while one batch of rows is encoded and sent, the task reads the next one from Spark, but never more, so the
producer's buffer limits the memory. While the task waits for rows, the loop prepares a transaction that has become too
old; a lock keeps this and the sending of the next rows apart.
"""

import asyncio
import time
from collections.abc import Iterable
from concurrent.futures import Future, wait
from threading import Lock
from typing import Any

from ...client.errors import KafkaError
from ...client.net.cluster import Cluster
from ...client.net.connection import log
from ...client.producer.task_producer import TaskProducer
from ..client_thread import begin, cluster_for, run
from .options import SinkOptions
from .protocol import Abort, Begin, Prepare, Step, Write, Written
from .written_rows import TopicRows

CLOSE_TIMEOUT_MS = 5_000
MARGIN_S = 10.0


def monotonic_ms() -> int:
    """Return a monotonic time, in milliseconds."""
    return time.monotonic_ns() // 1_000_000


class StepRunner:
    """Carries out the steps of one task. It has at most one open transaction."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._cluster: Cluster = cluster_for(options)
        self._producer: TaskProducer | None = None
        self._sending: Future[None] | None = None
        self._aging: Future[None] | None = None  # prepares the open transaction when it is old
        self._lock = Lock()
        self._is_old = False  # the open transaction is being prepared because of its age

    def do(self, step: Step) -> Any:
        """Carry out one step. Returns for Begin a Written, for Write the number of rows or None, else None.

        Raises KafkaError and other errors, after which the caller must abort the transaction.
        """
        if isinstance(step, Write):
            return self._write(step.rows)
        if isinstance(step, Begin):
            return self._begin(step)
        if isinstance(step, Prepare):
            return self._prepare(step)
        assert isinstance(step, Abort)
        return self.close()

    def _begin(self, step: Begin) -> Written:
        """Begin a transaction, and arrange that it is prepared when it becomes too old. Returns its identity."""
        producer = self._producer = self._make_producer(step.transactional_id, step.timeout_ms)
        self._run(producer.begin())
        with self._lock:
            self._is_old = False
            self._aging = begin(self._prepare_when_old(producer, step))
        return Written(step.transactional_id, producer.producer_id, producer.producer_epoch)

    def _make_producer(self, transactional_id: str | None, timeout_ms: int) -> TaskProducer:
        """Return a new producer, made in the loop's thread. transactional_id: None: without transactions."""

        async def make() -> TaskProducer:
            return TaskProducer(
                self._cluster,
                self._options.produce,
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout_ms,
            )

        made: TaskProducer = self._run(make())
        return made

    def _run(self, work: Any) -> Any:
        """Run a coroutine of the producer and return its result. Waits for its own timeouts at most, and a margin."""
        produce = self._options.produce
        return run(work, (produce.delivery_timeout_ms + 2 * produce.max_block_ms) / 1000 + MARGIN_S)

    async def _prepare_when_old(self, producer: TaskProducer, step: Begin) -> None:
        """Prepare the transaction when it is prepare_after_ms old, after the rows that are being sent. It does nothing
        if the task has prepared or aborted it before.
        """
        await asyncio.sleep(step.prepare_after_ms / 1000)
        with self._lock:
            if self._aging is None:
                return
            self._is_old = True
            sending = self._sending
        if sending is not None:
            await asyncio.wait([asyncio.wrap_future(sending)])
        await producer.prepare(*step.prepare)

    def _stop_aging(self) -> Future[None] | None:
        """Keep the transaction from being prepared because of its age. If that has begun already, returns its future,
        to be waited for; else None.
        """
        with self._lock:
            aging, self._aging = self._aging, None
            if aging is not None and not self._is_old:
                aging.cancel()
            return aging if self._is_old else None

    def _write(self, rows: TopicRows) -> int | None:
        """Wait until all earlier rows are in the producer, then start to send these. Returns the number of these rows;
        None, and sends nothing, if the transaction is being prepared because of its age.
        """
        producer = self._producer
        assert producer is not None
        self._await_sent()
        with self._lock:
            if self._is_old:
                return None
            self._sending = begin(
                producer.send_columns(rows.topic, rows.values, rows.keys, rows.partitions, rows.headers)
            )
        return len(rows.values)

    def _await_sent(self) -> None:
        """Wait until the rows given last are in the producer. Raises what sending them raised."""
        sending = self._sending
        try:
            if sending is not None:
                sending.result()
        finally:
            self._sending = None

    def _prepare(self, step: Prepare) -> None:
        """Prepare the open transaction, unless that is done already because of its age, and release the producer."""
        self._await_sent()
        assert self._producer is not None
        preparing = self._stop_aging()
        if preparing is not None:
            preparing.result()
        else:
            self._run(self._producer.prepare(*step))
        self.close()

    def finish(self, pieces: Iterable[TopicRows]) -> int:
        """Write all rows without a transaction, and wait for their acknowledgements. Returns the number of rows."""
        rows = 0
        for piece in pieces:
            if self._producer is None:
                self._producer = self._make_producer(None, 0)
                self._run(self._producer.begin())
            rows += self._write(piece) or 0
        self._await_sent()
        if self._producer is not None:
            self._run(self._producer.finish())
        return rows

    def close(self) -> None:
        """Abort an open transaction, within a bounded time, and release the producer."""
        preparing = self._stop_aging()
        if preparing is not None:
            wait([preparing], CLOSE_TIMEOUT_MS / 1000)
        producer, self._producer = self._producer, None
        sending, self._sending = self._sending, None
        if sending is not None:
            sending.cancel()
        if producer is None:
            return
        try:
            run(producer.close(timeout_ms=CLOSE_TIMEOUT_MS), CLOSE_TIMEOUT_MS / 1000 + MARGIN_S)
        except KafkaError as error:
            log.info("%r: %s", producer, error)


def write_at_least_once(options: SinkOptions, pieces: Iterable[TopicRows]) -> int:
    """Write all rows without a transaction, and wait for their acknowledgements. Returns the number of rows."""
    runner = StepRunner(options)
    try:
        return runner.finish(pieces)
    finally:
        runner.close()
