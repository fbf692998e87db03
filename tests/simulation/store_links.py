"""The way from a machine to a store of objects: calls that block a thread, while virtual time passes for all others.

A call of the product blocks its thread. Here each job of the executors for a store has a thread that runs only while
the loop waits for it: from one of its waits to the next. So a take-over, a point or a round is interrupted by whatever
else happens at each of its calls, and a run repeats exactly.

A call leaves, takes effect and is answered at three moments. What has left takes effect whatever becomes of the process
that sent it; some of it very late, behind what was called later. A listing of more names than fit a page takes effect
in two pieces.
"""

import asyncio
import random
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import Context
from dataclasses import dataclass
from typing import Any, TypeVar

from fencepost.effects.disk import Executor
from fencepost.effects.objects import Content, Exists, Found, Missing, ObjectsError, Refused, Unclear
from fencepost.effects.simulated.loop import SimulatedLoop
from fencepost.effects.simulated.objects import ERRORS, SimulatedObjects
from fencepost.effects.threads import CannotStartThread, Entry, FairQueue, JobDropped, start_thread

T = TypeVar("T")
DEADLINE_S = 2.0  # a call without an answer fails then
LATEST_S = 40.0  # so late what was sent may take effect
_here = threading.local()  # .turns: those of the job that the thread runs


class Killed(BaseException):
    """Raised in a waiting job whose process is gone. No `except Exception` catches it."""


class Turns:
    """A job in a thread that runs only while the loop waits for it."""

    def __init__(self, job: Callable[[], Any]) -> None:
        self._job = job
        self._to_thread, self._to_loop = threading.Lock(), threading.Lock()
        self._to_thread.acquire()
        self._to_loop.acquire()
        self._pause_s = 0.0
        self._has_ended = False
        self._result: Any = None
        self._is_killed = False
        self.is_hurried = False
        start_thread(self._run, "store")

    async def run(self) -> Any:
        """Let the job work to its end. Returns its result, or the exception that it raises."""
        while not self._has_ended:
            await asyncio.sleep(self._pause_s)
            self._go_on()
        return self._result

    def finish(self) -> Any:
        """Let the job work to its end while no time passes. Returns its result, or the exception that it raises."""
        self.is_hurried = True
        while not self._has_ended:
            self._go_on()
        return self._result

    def kill(self) -> None:
        """End the job where it waits."""
        self._is_killed = True
        while not self._has_ended:
            self._go_on()

    def wait(self, seconds: float) -> None:
        """Only to be called in the thread: wait for this many seconds. Raises Killed."""
        self._pause_s = seconds
        self._to_loop.release()
        self._to_thread.acquire()
        if self._is_killed:
            raise Killed

    def _go_on(self) -> None:
        if not self._has_ended:
            self._to_thread.release()
            self._to_loop.acquire()

    def _run(self) -> None:
        _here.turns = self
        self._to_thread.acquire()
        try:
            if not self._is_killed:
                self._result = self._job()
        except BaseException as error:
            self._result = error
        self._has_ended = True
        self._to_loop.release()


def sleep(seconds: float) -> None:
    """Wait for this many seconds in the thread of a job. Brokers are given this function to wait with."""
    _here.turns.wait(seconds)


@contextmanager
def beside_each_other(calls: int) -> Iterator[None]:
    """Within the block, this many calls of the thread, one after the other, take as long as one: as if they were made
    at the same time.
    """
    _here.beside = calls
    try:
        yield
    finally:
        _here.beside = 1


def start_no_further_thread(run: Callable[..., object], name: str, *arguments: Any) -> threading.Thread:
    """Start a thread; but in a job of a store raise CannotStartThread, so that the job makes its calls one by one."""
    if getattr(_here, "turns", None) is not None:
        raise CannotStartThread(name)
    return start_thread(run, name, *arguments)


class StoreExecutor(Executor):
    """Runs jobs that call a store, as many at a time as it has threads."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._waiting: FairQueue[Entry] = FairQueue()
        self._running: dict[Entry, Turns] = {}
        self._closed = False

    @property
    def quick(self) -> bool:
        return False

    @property
    def last_ns(self) -> int:
        return 0

    def submit(
        self,
        job: Callable[[], T],
        done: Callable[[T | BaseException], None],
        *,
        owner: Hashable = None,
        wanted: Callable[[], bool] | None = None,
    ) -> None:
        if self._closed:
            raise RuntimeError("the executor is closed")
        self._waiting.put(Entry(job, done, owner, wanted))
        self._begin()

    def run_here(self, job: Callable[[], T]) -> T:
        raise RuntimeError("a call to a store would block the loop")

    def _begin(self) -> None:
        while self._waiting and len(self._running) < self._threads:
            entry = self._waiting.take()
            if entry.is_dropped(self._closed):
                asyncio.get_running_loop().call_soon(entry.done, JobDropped())
                continue
            self._running[entry] = turns = Turns(entry.job)
            asyncio.get_running_loop().create_task(self._run(entry, turns))

    async def _run(self, entry: Entry, turns: Turns) -> None:
        result = await turns.run()
        del self._running[entry]
        self._begin()
        entry.done(result)

    def close(self) -> None:
        """Let all jobs run to their ends."""
        self._closed = True
        for turns in list(self._running.values()):
            turns.finish()
        for entry in self._waiting.all():
            Turns(entry.job).finish()
        self._waiting.clear()

    def abandon(self) -> None:
        self.close()

    def halt(self) -> None:
        """End all jobs where they are, because their process is gone."""
        self._waiting.clear()
        for turns in list(self._running.values()):
            turns.kill()
        self._running.clear()


@dataclass
class Weather:
    """How a store answers: shares of calls, from 0 to 1; seconds that a call takes, there and back.

    unclear: calls that fail before their effect; lost: answers that are lost; late: writes that take effect long after
    their caller was told that they failed; conflicts: creates answered with 409, without an effect; keeps: deletes that
    do nothing; refused: calls answered with 403.
    """

    unclear: float = 0.0
    lost: float = 0.0
    late: float = 0.0
    conflicts: float = 0.0
    keeps: float = 0.0
    refused: float = 0.0
    latency_s: tuple[float, float] = (0.002, 0.02)


GOOD = Weather()


class StoreLink:
    """One machine's client of the store.

    on_failure: called with the name and the start (loop time) of each create or read that fails or is not answered,
    when its caller is told.
    """

    where = "sim://bucket"

    def __init__(self, loop: SimulatedLoop, store: SimulatedObjects, rng: random.Random, page: int) -> None:
        """page: a listing of more names has two answers, of two moments. The first one has `page` names."""
        self._loop = loop
        self._store = store
        self._rng = rng
        self._page = page
        self.weather = GOOD
        self.is_cut = False
        self.calls = 0
        self.on_failure: Callable[[str, float], None] = _nothing

    def create(self, name: str, content: Content) -> None:
        content = b"".join(content) if isinstance(content, list) else bytes(content)
        began_s = self._loop.time()
        try:
            if self._rng.random() < self.weather.conflicts:
                self._wait(self._latency())
                raise _Conflict(name, "409")
            self._call(name, lambda: self._store.create(name, content), writes=True)
        except (_Conflict, Unclear, Refused):
            self.on_failure(name, began_s)
            raise

    def put(self, name: str, content: bytes) -> None:
        self._call(name, lambda: self._store.put(name, bytes(content)), writes=True)

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        began_s = self._loop.time()
        try:
            return self._call(name, lambda: self._store.read(name, start, length))
        except (Unclear, Refused):
            self.on_failure(name, began_s)
            raise

    def list(self, prefix: str, after: str = "") -> list[Found]:
        found = self._call(prefix, lambda: self._store.list(prefix, after))
        if len(found) <= self._page:
            return found  # as one answer, in no order
        first = sorted(found)[: self._page]
        rest = self._call(prefix, lambda: self._store.list(prefix, first[-1].name))
        return [*first, *sorted(rest)]

    def delete(self, name: str) -> None:
        if self._rng.random() < self.weather.keeps:
            self._call(name, lambda: None)
        else:
            self._call(name, lambda: self._store.delete(name), writes=True)

    def _call(self, name: str, effect: Callable[[], T], *, writes: bool = False) -> T:
        """Send a call, and wait for its answer. Raises Missing, Exists, Unclear, Refused."""
        self.calls += 1
        rng, weather = self._rng, self.weather
        if rng.random() < weather.refused:
            self._wait(self._latency())
            raise Refused(name, "the server answered 403", "give it the rights")
        if self.is_cut or rng.random() < weather.unclear:
            self._wait(rng.choice((self._latency(), DEADLINE_S)))
            raise Unclear(name, rng.choice(ERRORS))
        call = _Call(effect)
        if writes and rng.random() < weather.late:
            self._loop.call_later(rng.uniform(0.0, rng.choice((3.0, LATEST_S))), call.land, context=Context())
            self._wait(rng.choice((self._latency(), DEADLINE_S)))
            raise Unclear(name, "the deadline has passed")
        on_its_way_s = self._latency()
        self._loop.call_later(on_its_way_s, call.land, context=Context())
        self._wait(on_its_way_s + self._latency())
        while not call.has_landed and not self._is_hurried:  # a timer may be late
            self._wait(0.001)
        if self.is_cut or rng.random() < weather.lost:
            self._wait(DEADLINE_S)
            raise Unclear(name, "the deadline has passed")
        return call.answer()

    def _latency(self) -> float:
        return self._rng.uniform(*self.weather.latency_s) / max(1, getattr(_here, "beside", 1))

    @property
    def _is_hurried(self) -> bool:
        return bool(_here.turns.is_hurried)

    def _wait(self, seconds: float) -> None:
        sleep(seconds)


class _Conflict(Exists):
    """The answer 409: nothing was created, although no object has the name."""


class _Call:
    """A call that was sent to the store."""

    def __init__(self, effect: Callable[[], Any]) -> None:
        self._effect = effect
        self.has_landed = False
        self._result: Any = None
        self._error: ObjectsError | None = None

    def land(self) -> None:
        """Let the call take effect, once."""
        if not self.has_landed:
            self.has_landed = True
            try:
                self._result = self._effect()
            except (Exists, Missing) as error:
                self._error = error

    def answer(self) -> Any:
        self.land()
        if self._error is not None:
            raise self._error
        return self._result


def _nothing(name: str, since_s: float) -> None:
    """Do nothing: the default of on_failure."""
