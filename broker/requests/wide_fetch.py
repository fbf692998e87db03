"""A Fetch of many partitions: reads, waits and answers in steps, in turns with other jobs (net/turns.py).

The rules: it registers for changes of a partition before it reads it, so that no change is missed while others are
read. If a partition changes meanwhile, all are read once more. A waiting fetch takes memory in proportion to its
partitions, so only one may wait for each connection, and a second one ends the wait of the first. No Kafka client sends
a second one before it has the first answer.
"""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from ...protocol.messages.fetch import FetchResponse
from ..net.turns import Job, Steps
from ..net.waiting import Parked, Waiter
from .fetch_sessions import Key, Wanted
from .running_fetch import RunningFetch
from .services import Services

T = TypeVar("T")


PARTITIONS_A_STEP = 100


def chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield the items in slices of PARTITIONS_A_STEP items."""
    for first in range(0, len(items), PARTITIONS_A_STEP):
        yield items[first : first + PARTITIONS_A_STEP]


class WideFetch:
    """One Fetch of many partitions until it is answered."""

    def __init__(self, fetch: RunningFetch, broker: Services) -> None:
        self._fetch = fetch
        self._broker = broker
        self._parked = Parked()
        self._waiter: Waiter | None = None
        self._is_reading = True
        self._has_moved = False  # something did since reading began
        self._is_late = fetch.max_wait_ms <= 0  # the time to wait is over

    def begin(self) -> Steps[FetchResponse | Parked]:
        """Read the partitions. Returns the response, or a Parked that will be given the response later."""
        if not self._is_late:
            self._broker.waiting_places.take(self._fetch.connection, self)
            self._parked.on_cancel = self._leave
            self._waiter = Waiter([], self._broker.clock.monotonic_ms() + self._fetch.max_wait_ms, self._look)
            self._broker.waiting.park(self._waiter)
        response = yield from self._read(first=True)
        return self._parked if response is None else response

    def _read(self, *, first: bool = False) -> Steps[FetchResponse | None]:
        """Read all partitions, and again if some have changed meanwhile, until there is enough for an answer.

        first: whether the fetch has not waited yet, so that it must register for changes. Returns the response; None if
        the fetch waits, or reads from disk, and is answered later.
        """
        try:
            while True:
                self._is_reading, self._has_moved = True, False
                enough = yield from self._read_once(self._waiter if first and not self._is_late else None)
                self._fetch.parked = self._parked
                if enough or self._is_late:
                    break
                self._fetch.forget_reads()
                if not self._has_moved:
                    self._is_reading = False
                    self._broker.metrics.fetch_waits += first
                    return None
                first = False
        except BaseException:
            self._leave()
            raise
        self._leave()
        if self._fetch.jobs_left:
            self._fetch.when_read = self.answer
            self._fetch.read_cold()
            return None
        return (yield from self._response())

    def _read_once(self, waiter: Waiter | None) -> Steps[bool]:
        """Read all partitions once. Returns whether there is enough for an answer. waiter: what to register for changes
        of the partitions; None to register nothing.
        """
        fetch = self._fetch
        fetch.begin_reading()
        for parts in chunks(fetch.parts):
            if waiter is not None:
                self._watch(parts, waiter)
            fetch.read_some(parts)
            yield len(parts)
        return fetch.is_enough()

    def _watch(self, parts: Sequence[tuple[Key, Wanted]], waiter: Waiter) -> None:
        """Register for changes of these partitions' logs, which call _look()."""
        fetch, waiting = self._fetch, self._broker.waiting
        for _, wanted in parts:
            topic = fetch.by_name.get(wanted.topic or "") if fetch.by_id is None else fetch.by_id.get(wanted.topic_id)
            if topic is not None and 0 <= wanted.index < len(topic.partitions):
                waiting.watch(waiter, topic.partitions[wanted.index].log)

    def _response(self) -> Steps[FetchResponse]:
        """Return the response with all partitions, in steps."""
        response, named = self._fetch.begin_response()
        for reads in chunks(self._fetch.reads):
            self._fetch.add_answers(response, reads, named)
            yield len(reads)
        return response

    def _leave(self) -> None:
        """Stop waiting for changes of the partitions.

        Nothing refers to this fetch then, so it is freed as soon as it is answered, without a collection of reference
        cycles.
        """
        self._parked.on_cancel = None
        if self._waiter is not None:
            self._broker.waiting.leave(self._waiter)
        self._broker.waiting_places.leave(self._fetch.connection, self)

    def end_wait(self) -> None:
        """Answer with what can be read now, before max_wait_ms is over."""
        self._leave()
        self._look(True)

    def _look(self, at_deadline: bool) -> bool:
        """Read everything again. Called when a partition has changed, or when max_wait_ms is over (at_deadline).

        Returns False, which keeps the wait going until the answer is made.
        """
        self._is_late = self._is_late or at_deadline
        self._has_moved = True
        if not self._is_reading:
            self._is_reading = True
            self._enqueue(self._read())
        return False

    def answer(self) -> None:
        """Make and send the answer. Called when all reads from disk are done."""
        self._fetch.when_read = None
        self._enqueue(self._response())

    def _enqueue(self, steps: Steps[FetchResponse | None]) -> None:
        """Run the steps as a job, in turns with others; _finish() gets their result. Dropped if the client has left."""
        job = Job(steps)
        job.wanted = lambda: not self._parked.cancelled
        job.finish = self._finish
        self._broker.turns.enqueue(job)

    def _finish(self, result: FetchResponse | Exception | None) -> None:
        """Answer with the response, or with the exception that the job raised. With None the fetch still waits."""
        if result is not None:
            self._parked.answer(_response_steps(result) if isinstance(result, FetchResponse) else result)


def _response_steps(response: FetchResponse) -> Steps[FetchResponse]:
    """Return the response from a generator, so that dispatch encodes it in steps."""
    yield 0
    return response
