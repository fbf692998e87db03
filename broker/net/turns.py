"""Whose turn it is: how much of one turn of the loop requests may take, and what becomes of those that need more.

The loop serves everybody, so the longest step of any request is the longest wait of all others. Few bytes can ask for
much: 20 KB name one partition 5,000 times, and each time its thousands of producers are to be listed. Kafka gives such
a request a thread; here it is cut into slices. This module is the one place that bounds them:

- A handler whose work grows with its request, or with what the broker holds, is a generator (`Steps`): it yields
  after each item the units that this item took, and returns the response. Encoding the response goes on in the same
  way, an item a step, and so does decoding a large request. A unit is the work of one plain row: some microseconds.
- A slice is at most SLICE_UNITS units or SLICE_MS, whichever ends first. The first slice of a request is worked at
  once, which nearly always is all. What is left waits in a queue of the broker, first come, first served. There are
  two, so that a short one waits for one of the long and not for all: each joins the first. It gets one slice there, of
  SHORT_UNITS or what is left of the turn's; if it is not done then, or yields BEHIND_SHORT, it goes to the end of the
  second. A turn of the loop works SLICE_UNITS of each queue, and then reads sockets.
- Requests on arrival take from the allowance of the turn (ARRIVAL_UNITS), REQUEST_UNITS each at least. When it is
  spent, requests go to the queue unread. So thousands of pipelined requests take turns with everybody else too.
- A request that is in the queue holds up those behind it on its connection, so they take effect in order. When it is
  done, its connection goes to the end of the queue for the next one: the queue is fair to connections.
- What is left of a request is dropped when its client goes. When the broker stops, nothing of the queues is worked.

What answers hold is bounded as well: rows are made while they are written (encoding.Lazy), and what is asked for when
an answer has its share of ALL_ANSWERS_BYTES is refused with an error upon which admin clients ask again (`AnswerRoom`).
Not cut are Produce, whose partitions are bounded in number by request_limits.py, and what must be one step because it
is one unit of the journal: tests/broker/net/test_work_of_requests.py has the bounds of every API in one table. They
take what they are likely to cost from the allowance (spend), so that there are not many of them in a turn.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import Any, TypeAlias, TypeVar

from ...effects.clock import Clock
from ...storage.store import BrokerHalted, Store

T = TypeVar("T")
R = TypeVar("R")

Steps: TypeAlias = Generator[int, None, R]
"""Work in steps: yields the units that each took, returns what came of it."""

SLICE_MS = 4
SLICE_UNITS = 2_000
SHORT_UNITS = 100  # a job that needs more moves from the queue of short jobs to that of long ones
ARRIVAL_UNITS = 4_000
REQUEST_UNITS = 8
MAX_ANSWER_BYTES = 16 << 20
LEAST_ANSWER_BYTES = 256 << 10  # of one answer, however many connections there are
ALL_ANSWERS_BYTES = 256 << 20  # for all connections: they may all ask at once, and read nothing
BYTES_PER_UNIT = 8  # of a request: reading it is work too
LOOK_UNITS = 20  # between two looks at the clock
BEHIND_SHORT = -1  # a job yields this before long work, which then waits behind all short jobs
SUBJECT_UNITS = 20  # a topic is made or deleted, or its settings are looked up: these take some 100 us


def answer_each(items: Iterable[T], answer: Callable[[T], R], units: int = 1) -> Steps[list[R]]:
    """Return [answer(item) for item in items], computed in steps. units: how many units of work each item costs."""
    answers = []
    for item in items:
        answers.append(answer(item))
        yield units
    return answers


class AnswerRoom:
    """How many bytes the answer of one request may still have. The first item is answered, however large it is."""

    __slots__ = ("left_bytes",)

    def __init__(self, connections: int) -> None:
        """connections: their present number, among which the bytes for answers are divided."""
        self.left_bytes = min(MAX_ANSWER_BYTES, max(LEAST_ANSWER_BYTES, ALL_ANSWERS_BYTES // max(1, connections)))

    @property
    def is_full(self) -> bool:
        """Whether the answer is full, so that the client must ask for further items in another request."""
        return self.left_bytes <= 0

    def take(self, size_bytes: int) -> None:
        """Subtract the size of an answered item from the bytes left."""
        self.left_bytes -= size_bytes


class Job:
    """Work of one request, done in steps.

    result: what the steps returned, or the exception they raised, once the job is done. wanted: returns whether anybody
    still waits for the result; if not, the job is dropped. finish: called with the result when the job is done, and
    with None when it is dropped. is_long: whether its steps have yielded BEHIND_SHORT, which says that they take long.
    """

    __slots__ = ("_steps", "finish", "is_long", "result", "wanted")

    def __init__(self, steps: Steps[Any]) -> None:
        self._steps = steps
        self.is_long = False
        self.result: Any = None
        self.wanted: Callable[[], bool] = lambda: True
        self.finish: Callable[[Any], object] = lambda result: None

    def work(self, clock: Clock, until_ms: int, most_units: int) -> tuple[bool, int]:
        """Run steps until until_ms, or until they have cost most_units units of work. Returns (whether the job is done,
        its cost). A step that yields BEHIND_SHORT ends this call, and makes the job a long one.

        An exception in the steps becomes the result; only BrokerHalted is raised.
        """
        units, look_at = 0, LOOK_UNITS
        try:
            while units < most_units:
                step = next(self._steps)
                if step == BEHIND_SHORT:
                    self.is_long = True
                    break
                units += step
                if units >= look_at:
                    if clock.monotonic_ms() >= until_ms:
                        break
                    look_at = units + LOOK_UNITS
        except StopIteration as end:
            self.result = end.value
            return True, units
        except BrokerHalted:
            raise
        except Exception as error:
            self.result = error
            return True, units
        return False, units

    def drop(self) -> None:
        """Close the generator of the steps, so that no further step runs."""
        self._steps.close()


class Turns:
    """How much work requests may do in this turn of the loop, and the queues of jobs that need more."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        soon: Callable[[Callable[[], None]], object],
        is_ending: Callable[[], bool],
    ) -> None:
        """soon: calls a function in the next turn of the loop. is_ending: returns whether the broker stops."""
        self.left = ARRIVAL_UNITS  # units of work left in this turn
        self._is_ending = is_ending
        self._store = store
        self._clock = clock
        self._soon = soon
        self._turn = store.turn
        self._short: deque[Job] = deque()
        self._long: deque[Job] = deque()
        self._scheduled = False

    def __len__(self) -> int:
        return len(self._short) + len(self._long)

    def is_spent(self) -> bool:
        """Return whether this turn's units of work are used up, so that further requests must wait for a later turn."""
        self._renew()
        return self.left <= 0

    def _renew(self) -> None:
        """If a new turn of the loop has begun, set the units of work that are left to those of a full turn."""
        if self._turn != self._store.turn:
            self._turn = self._store.turn
            self.left = ARRIVAL_UNITS

    def spend(self, units: int) -> None:
        """Subtract the cost of work that was done, in units of work, from what this turn of the loop has left."""
        self.left -= units

    def begin(self, job: Job) -> bool:
        """Run the first slice of a request that has just arrived. Returns whether the job is done; if not, the caller
        calls enqueue().
        """
        self._renew()
        return self._work(job, min(SLICE_UNITS, max(1, self.left)))

    def enqueue(self, job: Job, *, long: bool = False) -> None:
        """Run the rest of the job in later turns of the loop. long: put it in the queue of long jobs at once."""
        (self._long if long else self._short).append(job)
        if not self._scheduled:
            self._scheduled = True
            self._soon(self._work_queue)

    def _work(self, job: Job, most_units: int) -> bool:
        """Run one slice of the job, and subtract its cost from this turn's units. Returns whether the job is done. A
        slice of at least LOOK_UNITS units costs more if it took longer than its units should.
        """
        began_ms = self._clock.monotonic_ms()
        finished, units = job.work(self._clock, began_ms + SLICE_MS, most_units)
        if units >= LOOK_UNITS:
            took_ms = self._clock.monotonic_ms() - began_ms
            units = max(units, took_ms * SLICE_UNITS // SLICE_MS)
        self.left -= units
        return finished

    def _work_queue(self) -> None:
        """Run a slice of each queued job, short jobs first, within the units of one turn. Called once in each turn of
        the loop while jobs are queued.
        """
        try:
            for queue, most_units in ((self._short, SHORT_UNITS), (self._long, SLICE_UNITS)):
                self._turn, self.left = self._store.turn, SLICE_UNITS
                for _ in range(len(queue)):
                    if self.left <= 0 or self._is_ending():
                        break
                    self._work_next(queue.popleft(), most_units)
        finally:
            self._turn, self.left = self._store.turn, ARRIVAL_UNITS
            self._scheduled = len(self) > 0 and not self._is_ending()
            if self._scheduled:
                self._soon(self._work_queue)

    def _work_next(self, job: Job, most_units: int) -> None:
        """Run one slice of a queued job. If it is not done then, put it into the queue of long jobs. If its client has
        left, drop it instead.
        """
        if not job.wanted():
            job.drop()
            job.finish(None)
            return
        try:
            finished = self._work(job, min(self.left, most_units))
        except BrokerHalted:  # the broker has failed: no client gets an answer
            return
        if finished:
            job.finish(job.result)
        else:
            self._long.append(job)
