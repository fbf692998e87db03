"""One run of an embedded broker, from its start until it is stopped, killed or fails, in a thread of its own.

The rule: however the run ends, its thread ends, its files are closed and its lock is released, so that the next run can
begin. A kill halts the broker without a call of on_halt: the disk accepts no more writes, then every connection is
reset.
"""

import asyncio
import functools
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, TypeVar

from ...effects.simulated.forgetful import ForgetfulDisk
from ...effects.simulated.movable import MovableClock, new_movable_loop
from ...effects.threads import CannotStartThread, start_thread
from ..broker import Broker, Serve
from ..config.settings import BrokerSettings
from ..security.acl_records import Change
from ..security.security_state import SecurityState
from ..upkeep.housekeeping import FLUSH_AFTER_MS
from .rights import Rights

T = TypeVar("T")
TURNS = 20  # of the loop: longer than any chain of wake-ups from a timer to a unit
ROUNDS = 3
LANE_S = 0.001  # what an executor may need
CHECKPOINT_S = 10.0  # on a busy disk
SLICES = 3  # of a sweep, at most, that give way to others
SLICE_S = 0.004


class Killed(Exception):
    """The reason given for unanswered calls to a killed broker."""


class Ended(RuntimeError):
    """Raised for a call to a broker that has stopped, or that stops before it has given the result."""

    def __init__(self) -> None:
        super().__init__("the broker does not run")


class Life:
    """One run of a broker, with an event loop and a thread of its own."""

    def __init__(
        self,
        settings: BrokerSettings,
        disk: ForgetfulDisk,
        clock: MovableClock,
        between: Callable[[Serve], Serve] | None,
        rights: Rights | None = None,
    ) -> None:
        """between: replaces the function that serves requests; see Broker.intercept. rights: the users and ACLs to
        create at start.
        """
        self.disk = disk
        self._rights = rights
        self.broker = Broker(settings, disk=disk, clock=clock)
        self.broker.intercept(between)
        self.ready: Future[int] = Future()  # the port at which it serves
        self.ended: Future[None] = Future()
        self.halted: BaseException | None = None
        self._loop: Any = new_movable_loop()
        self._end = asyncio.Event()
        self._asks: set[asyncio.Task[None]] = set()
        self._thread: threading.Thread | None = None
        self._killed = False
        self._resumed = threading.Event()
        self._resumed.set()

    def start(self) -> None:
        """Start the thread. The future `ready` then gets the port once the broker serves, or the exception if it
        cannot.
        """
        try:
            self._thread = start_thread(self._run, "fencepost-broker")
        except CannotStartThread as error:
            self._loop.close()
            self.ready.set_exception(error)
            self.ended.set_result(None)

    @property
    def beginning(self) -> bool:
        """Whether the broker is still starting."""
        return not self.ready.done() and not self._killed

    @property
    def running(self) -> bool:
        """Whether the broker has started, and has not stopped, failed or been killed."""
        return self.ready.done() and not self.ended.done() and not self._killed and self.halted is None

    @property
    def paused(self) -> bool:
        return not self._resumed.is_set()

    # ---- from other threads ----------------------------------------------------------------------------------

    def stop(self) -> "Future[None]":
        """Ask the broker to stop. Returns a future that is done when it has stopped."""
        self._soon(self._end.set)
        self._resumed.set()  # after _end is set, so that a pause that begins now ends
        return self.ended

    def join(self) -> None:
        """Wait until the broker has stopped and its thread has ended."""
        self.ended.result()
        if self._thread is not None:
            self._thread.join()

    def kill(self) -> None:
        """Stop at once, as in a power cut. Returns when the broker has stopped and the disk has dropped what was not
        synced.
        """
        if not self.ended.done() and not self._killed:
            self._killed = True
            self._soon(self._die)
            self._resumed.set()
        self.join()

    def pause(self) -> None:
        """Block the event loop until resume(). Returns when it is blocked, or when the broker has stopped."""
        if not self.running or self.paused:
            return
        self._resumed.clear()
        standing: Future[None] = Future()
        self._soon(self._block, standing)
        wait((standing, self.ended), return_when=FIRST_COMPLETED)
        if not standing.done():
            self._resumed.set()

    def resume(self) -> None:
        self._resumed.set()

    def inside(self, look: Callable[[Broker], T]) -> T:
        """Return look(broker), called in the loop's thread. Raises Ended if the broker does not run, RuntimeError if it
        is paused.
        """
        self._check_answers()

        async def run() -> T:
            return look(self.broker)

        return self._ask(run)

    def change_security(self, changes: Callable[[SecurityState], list[Change]]) -> None:
        """Commit the changes that changes(state) returns, and wait until they are durable. Raises Ended, KafkaError."""
        self._check_answers()
        self._ask(lambda: self._commit(changes))

    def advance(self, seconds: float, clock: MovableClock, *, at_least: float) -> None:
        """Move the clock and the loop's timers ahead, and wait until all that becomes due is done.

        at_least: by how many seconds timers move at least. If the broker stops meanwhile, only the clock has moved.
        Raises ValueError if `seconds` is negative.
        """
        if seconds < 0:
            raise ValueError("time does not go back")
        if self.paused:
            clock.advance(round(seconds * 1000))
            self._soon(self._loop.move, seconds)
            return

        @functools.cache  # so that the clock is moved once, here or in the loop
        def time_passes() -> None:
            clock.advance(round(seconds * 1000))

        try:
            self._ask(lambda: self._advance(seconds, time_passes, at_least))
        except Ended:
            time_passes()

    def _ask(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Run ask() in the loop, from another thread, and return its result. Raises Ended if the broker stops before
        there is a result.
        """
        answer: Future[T] = Future()
        self._soon(self._take, ask, answer)
        either: list[Future[Any]] = [answer, self.ended]
        wait(either, return_when=FIRST_COMPLETED)
        if not answer.done():
            raise Ended
        return answer.result()

    def _check_answers(self) -> None:
        """Raise Ended if the broker does not run, and RuntimeError if it is paused."""
        if not self.running:
            raise Ended
        if self.paused:
            raise RuntimeError("the broker is paused")

    def _soon(self, call: Callable[..., object], *arguments: object) -> None:
        """Call this function in the loop, from another thread. Does nothing if the loop is closed."""
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:  # the loop is closed: it has ended
            pass

    # ---- in its thread ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        """Run the event loop until the broker has stopped, then set `ended`. The thread's function."""
        try:
            self._loop.run_until_complete(self._live())
        except BaseException as error:
            if not self.ready.done():
                self.ready.set_exception(error)
            elif self.halted is None:
                self.halted = error
        finally:
            self._loop.run_until_complete(self._end_waiting_calls())
            self._loop.close()
            if self._killed:
                self.disk.vanish()
                self.disk.forget()
            self.ended.set_result(None)

    async def _live(self) -> None:
        """Start the broker, serve until it is to stop, then stop it."""
        self.broker.on_halt.append(self._halt)
        await self.broker.start()
        if self._rights is not None:
            await self._commit(self._rights.missing)
        self.ready.set_result(self.broker.addresses[0][1])
        await self._end.wait()
        await self.broker.stop()

    async def _commit(self, changes: Callable[[SecurityState], list[Change]]) -> None:
        """Commit the changes that changes(state) returns, and wait until they are durable. Raises BrokerHalted."""
        self.broker.security_log.commit(changes(self.broker.security_log.state))
        await self.broker.idle()
        self.broker.store.check_running()

    def _halt(self, error: BaseException) -> None:
        """Note the error with which the broker failed, and end this run. Called by the broker."""
        self.halted = error
        self._end.set()

    def _die(self) -> None:
        """Stop as a killed process does: nothing more is written or answered."""
        self.disk.vanish()
        if hasattr(self.broker, "rounds"):
            self.broker.rounds.halt_unheard(Killed("the broker was killed"))
        if hasattr(self.broker, "server"):
            self.broker.server.abort_all()
        self._end.set()

    def _take(self, ask: Callable[[], Awaitable[T]], answer: "Future[T]") -> None:
        """Run `ask` in the loop, and set its result in `answer`. If the broker stops, set the exception Ended
        instead.
        """
        if self._end.is_set():
            answer.set_exception(Ended())
            return
        task = self._loop.create_task(_answer(ask, answer))
        self._asks.add(task)
        task.add_done_callback(self._asks.discard)

    async def _end_waiting_calls(self) -> None:
        """Make all calls that still wait for a result raise Ended."""
        self._end.set()
        for task in self._asks:
            task.cancel()
        await asyncio.gather(*self._asks, return_exceptions=True)
        await asyncio.sleep(0)  # what is scheduled already runs before the loop is closed

    def _block(self, standing: "Future[None]") -> None:
        """Block the loop until the broker is resumed or killed.

        standing: set just before the loop blocks. pause() waits for it in another thread, and then returns.
        """
        if self._end.is_set():
            self._resumed.set()
        standing.set_result(None)
        self._resumed.wait()
        if self._killed:
            self._die()

    async def _advance(self, seconds: float, time_passes: Callable[[], None], at_least: float) -> None:
        """Move the clock ahead and do what is due. If a checkpoint is due too, wait for it, because retention deletes
        only what a checkpoint names.
        """
        await self._move(seconds, time_passes, at_least)
        a_checkpoint_ms = FLUSH_AFTER_MS + self.broker.settings.log_checkpoint_interval_ms
        if seconds * 1000 >= a_checkpoint_ms and await self._wait_for_checkpoint():
            await self._move(0, time_passes, at_least)

    async def _wait_for_checkpoint(self) -> bool:
        """Wait until a checkpoint covers everything written so far. Returns False if none is made in time, for example
        because the disk is full.
        """
        housekeeping = self.broker.housekeeping
        unit = self.broker.store.last_unit
        deadline = time.monotonic() + CHECKPOINT_S
        while housekeeping.checkpointed_unit < unit:
            if self.broker.halted is not None or time.monotonic() > deadline:
                return False
            housekeeping.hurry()
            await asyncio.sleep(LANE_S)
        return True

    async def _move(self, seconds: float, time_passes: Callable[[], None], at_least: float) -> None:
        """Move the clock and the timers ahead, and let the broker do what becomes due.

        time_passes: moves the clock. at_least: by how many seconds timers move at least.
        """
        # A sweep that pauses between its slices ends first: it goes by the time at which it began, and rests after it.
        for _ in range(SLICES):
            self._loop.move(SLICE_S)
            await self._settle()
        time_passes()
        self._loop.move(max(seconds, at_least))
        await self._settle()

    async def _settle(self) -> None:
        """Let all tasks run that are ready, and wait until the broker has nothing left to write."""
        for _ in range(ROUNDS):
            for _ in range(TURNS):
                await asyncio.sleep(0)
            await self.broker.idle()


async def _answer(ask: Callable[[], Awaitable[T]], answer: "Future[T]") -> None:
    """Set the result or exception of ask() in `answer`. If ask() was cancelled, set the exception Ended."""
    try:
        answer.set_result(await ask())
    except asyncio.CancelledError:
        answer.set_exception(Ended())
    except BaseException as error:
        answer.set_exception(error)
