"""One life of an embedded broker: from its start to its end, orderly, killed or halted, in a thread of its own.

The rule: whatever ends it, the thread ends, the files are closed and the lock is free, so that the next life can begin.
A kill is a halt that nobody hears of: the disk takes nothing more, then every connection is reset.
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
    """Raised for a call to a broker that has ended."""

    def __init__(self) -> None:
        super().__init__("the broker does not run")


class Life:
    """One run of a broker, with its loop and its thread."""

    def __init__(
        self,
        settings: BrokerSettings,
        disk: ForgetfulDisk,
        clock: MovableClock,
        between: Callable[[Serve], Serve] | None,
        rights: Rights | None = None,
    ) -> None:
        """rights: users and rules to create at the start."""
        self.disk = disk
        self._rights = rights
        self.broker = Broker(settings, disk=disk, clock=clock)
        self.broker.intercept(between)
        self.ready: Future[int] = Future()  # the port it was given
        self.ended: Future[None] = Future()
        self.halted: BaseException | None = None
        self._loop: Any = new_movable_loop()
        self._end = asyncio.Event()
        self._asks: set[asyncio.Task[None]] = set()
        self._killed = False
        self._resumed = threading.Event()
        self._resumed.set()

    def start(self) -> None:
        """Begin to start. The future `ready` is done once the broker serves, or has the reason why it does not."""
        try:
            start_thread(self._run, "fencepost-broker")
        except CannotStartThread as error:
            self._loop.close()
            self.ready.set_exception(error)
            self.ended.set_result(None)

    @property
    def beginning(self) -> bool:
        """Whether the start is still going on."""
        return not self.ready.done() and not self._killed

    @property
    def running(self) -> bool:
        return self.ready.done() and not self.ended.done() and not self._killed and self.halted is None

    @property
    def paused(self) -> bool:
        return not self._resumed.is_set()

    # ---- from other threads ----------------------------------------------------------------------------------

    def stop(self) -> "Future[None]":
        """Stop in order. Returns a future that is done when the broker has ended."""
        self._soon(self._end.set)
        self._resumed.set()  # after that: who is about to stand still sees the one or the other
        return self.ended

    def kill(self) -> None:
        """End now. Returns when it has ended and the disk has dropped what was not synced."""
        if not self.ended.done() and not self._killed:
            self._killed = True
            self._soon(self._die)
            self._resumed.set()
        self.ended.result()

    def pause(self) -> None:
        """Pause. Returns when the broker is paused, or has ended."""
        if not self.running or self.paused:
            return
        self._resumed.clear()
        standing: Future[None] = Future()
        self._soon(self._stand_still, standing)
        wait((standing, self.ended), return_when=FIRST_COMPLETED)
        if not standing.done():
            self._resumed.set()

    def resume(self) -> None:
        self._resumed.set()

    def inside(self, look: Callable[[Broker], T]) -> T:
        """Return look(broker), called in the loop's thread. Raises Ended."""
        self._check_answers()

        async def run() -> T:
            return look(self.broker)

        return self._ask(run)

    def change_security(self, changes: Callable[[SecurityState], list[Change]]) -> None:
        """Commit the changes that changes(state) returns. Waits until they are durable. Raises Ended, KafkaError."""
        self._check_answers()
        self._ask(lambda: self._commit(changes))

    def advance(self, seconds: float, clock: MovableClock, *, at_least: float) -> None:
        """Move clock and timers, and wait until everything due is done. Timers move by `at_least`.

        Where it ends meanwhile, the clock alone has moved.
        """
        if seconds < 0:
            raise ValueError("time does not go back")
        if self.paused:
            clock.advance(round(seconds * 1000))
            self._soon(self._loop.move, seconds)
            return

        @functools.cache  # so that it is done once, by whichever side comes first
        def time_passes() -> None:
            clock.advance(round(seconds * 1000))

        try:
            self._ask(lambda: self._advance(seconds, time_passes, at_least))
        except Ended:
            time_passes()

    def _ask(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Return the result of awaiting ask() in the loop. Raises Ended, if the broker ends before."""
        answer: Future[T] = Future()
        self._soon(self._take, ask, answer)
        either: list[Future[Any]] = [answer, self.ended]
        wait(either, return_when=FIRST_COMPLETED)
        if not answer.done():
            raise Ended
        return answer.result()

    def _check_answers(self) -> None:
        if not self.running:
            raise Ended
        if self.paused:
            raise RuntimeError("the broker is paused")

    def _soon(self, call: Callable[..., object], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:  # the loop is closed: it has ended
            pass

    # ---- in its thread ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._live())
        except BaseException as error:
            if not self.ready.done():
                self.ready.set_exception(error)
            elif self.halted is None:
                self.halted = error
        finally:
            self._loop.run_until_complete(self._refuse_the_rest())
            self._loop.close()
            if self._killed:
                self.disk.vanish()
                self.disk.forget()
            self.ended.set_result(None)

    async def _live(self) -> None:
        """Start the broker, serve until the end is asked for, then stop it."""
        self.broker.on_halt.append(self._halt)
        await self.broker.start()
        if self._rights is not None:
            await self._commit(self._rights.missing)
        self.ready.set_result(self.broker.addresses[0][1])
        await self._end.wait()
        await self.broker.stop()

    async def _commit(self, changes: Callable[[SecurityState], list[Change]]) -> None:
        self.broker.security_log.commit(changes(self.broker.security_log.state))
        await self.broker.idle()
        self.broker.store.check_running()

    def _halt(self, error: BaseException) -> None:
        self.halted = error
        self._end.set()

    def _die(self) -> None:
        """End as a killed process does: nothing more is written or answered."""
        self.disk.vanish()
        if hasattr(self.broker, "rounds"):
            self.broker.rounds.halt_unheard(Killed("the broker was killed"))
        if hasattr(self.broker, "server"):
            self.broker.server.abort_all()
        self._end.set()

    def _take(self, ask: Callable[[], Awaitable[T]], answer: "Future[T]") -> None:
        """Run `ask` on the loop and put its result into `answer`; Ended if the broker has ended."""
        if self._end.is_set():
            answer.set_exception(Ended())
            return
        task = self._loop.create_task(_answer(ask, answer))
        self._asks.add(task)
        task.add_done_callback(self._asks.discard)

    async def _refuse_the_rest(self) -> None:
        """Fail all calls that still wait for an answer with Ended."""
        self._end.set()
        for task in self._asks:
            task.cancel()
        await asyncio.gather(*self._asks, return_exceptions=True)
        await asyncio.sleep(0)

    def _stand_still(self, standing: "Future[None]") -> None:
        """Block the loop until the broker is resumed or killed."""
        if self._end.is_set():
            self._resumed.set()
        standing.set_result(None)
        self._resumed.wait()
        if self._killed:
            self._die()

    async def _advance(self, seconds: float, time_passes: Callable[[], None], at_least: float) -> None:
        await self._move(seconds, time_passes, at_least)
        # Retention takes only what a checkpoint names; that would have come meanwhile.
        a_checkpoint_ms = FLUSH_AFTER_MS + self.broker.settings.log_checkpoint_interval_ms
        if seconds * 1000 >= a_checkpoint_ms and await self._wait_for_checkpoint():
            await self._move(0, time_passes, at_least)

    async def _wait_for_checkpoint(self) -> bool:
        """Wait until a checkpoint covers everything written so far. Returns False if none can be made (disk full)."""
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
        """Move the clock forward in steps, and let the broker do what becomes due at each."""
        for _ in range(SLICES):  # a sweep that gave way in the middle would end with the time of before, and rest then
            self._loop.move(SLICE_S)
            await self._settle()
        time_passes()
        self._loop.move(max(seconds, at_least))
        await self._settle()

    async def _settle(self) -> None:
        """Let all tasks run that are ready, and wait until the broker is idle."""
        for _ in range(ROUNDS):
            for _ in range(TURNS):
                await asyncio.sleep(0)
            await self.broker.idle()


async def _answer(ask: Callable[[], Awaitable[T]], answer: "Future[T]") -> None:
    """Put the result or exception of `ask` into `answer`; Ended if it was cancelled."""
    try:
        answer.set_result(await ask())
    except asyncio.CancelledError:
        answer.set_exception(Ended())
    except BaseException as error:
        answer.set_exception(error)
