"""A backup that follows the broker, in some seeds, into a store that answers badly; then the disk is lost.

The follower runs in a thread of its own, which stands still while anything else runs: at each call to the store, and
from time to time before it reads, it waits in virtual time, and the broker goes on. It dies at any call, and with the
machine. In the end the broker begins on what was restored, and the last readers look at that; before, another one
begins on what the store had at an earlier moment, and is judged by what clients were told until then.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from fencepost.effects.objects import ObjectsError
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.objects import Faults, SimulatedObjects, StoreCut
from fencepost.effects.threads import start_thread
from fencepost.storage.backup.manifest import BackupRefused
from fencepost.storage.checkpoints import Damaged
from fencepost.storage.shipping.fetching import Fetching
from fencepost.storage.shipping.following import Follower, Following
from fencepost.storage.shipping.point import Claim
from fencepost.storage.shipping.verifying import Verifying
from simulation.checker import check
from simulation.history import until
from simulation.world import STALL_MS, World

EVERY, FIRST = 5, 2  # seeds
BAD_DAYS = Faults(before=0.02, after=0.02, late=0.01, conflicts=0.01, keeps=0.05, reads=0.02, lists=0.02)
LATENCIES_S = (0.0, 0.005, 0.005, 0.05, 0.3)
DIES, CALLS = 0.7, (10, 300)  # share of the followers that die, and at which of their calls
LOOKS_BACK = 0.2  # share of the moments that are remembered: each can be restored, and the last one is judged
PATIENCE_S = 60.0
Look = Callable[[World], Awaitable[None]]


class Killed(BaseException):
    """Raised in a waiting thread that is to end. No `except Exception` catches it."""


class Turns:
    """A thread that runs only while the loop waits for it: from one call of wait() to the next."""

    def __init__(self, work: Callable[["Turns"], None]) -> None:
        self._work = work
        self._to_thread, self._to_loop = threading.Semaphore(0), threading.Semaphore(0)
        self._pause_s: float | None = 0.0  # None: it has ended
        self._error: BaseException | None = None
        self.is_killed = False

    async def run(self) -> None:
        """Let the thread work until it ends. Raises what the work raised."""
        start_thread(self._run, "follower")
        while self._pause_s is not None:
            await asyncio.sleep(self._pause_s)
            self._to_thread.release()
            self._to_loop.acquire()
        if self._error is not None:
            raise self._error

    def wait(self, seconds: float) -> None:
        """Only to be called in the thread: stop it for this many seconds, while the loop runs. Raises Killed if it was
        killed.
        """
        self._pause_s = seconds
        self._to_loop.release()
        self._to_thread.acquire()
        if self.is_killed:
            raise Killed

    def _run(self) -> None:
        self._to_thread.acquire()
        try:
            self._work(self)
        except (Killed, StoreCut):
            pass
        except BaseException as error:
            self._error = error
        self._pause_s = None
        self._to_loop.release()


class _DiskOfAll:
    """The disk of the broker that runs now, as another process sees it. may_wait: whether it sometimes waits before it
    reads.
    """

    def __init__(self, world: World, turns: Turns, may_wait: Callable[[], bool]) -> None:
        self._world = world
        self._may_wait = may_wait
        self._turns = turns
        self._rng = world.rng("reads of a follower")
        self._of: Any = None

    def __getattr__(self, name: str) -> Any:
        if name in ("open", "list") and self._rng.random() < 0.05 and self._may_wait():
            self._turns.wait(self._rng.choice((0.0, 0.01, 0.2)))
        if self._of is not self._world.disk:
            self._of, self._beside = self._world.disk, self._world.disk.beside()
        return getattr(self._beside, name)


class _Moment(NamedTuple):
    """What the store had at one moment of the history, and up to which time that covers what was acknowledged."""

    content: dict[str, bytes]
    covered_ms: int
    moment: int


def backup_of(world: World) -> "Backup | None":
    return Backup(world) if world.seed % EVERY == FIRST else None


class Backup:
    """The followers of one world's broker, one after the other."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.rng("backup")
        self._objects = SimulatedObjects(world.seed, Faults(**vars(BAD_DAYS)))
        self._directory = f"/{world.settings.log_dir}"
        self._turns: Turns | None = None
        self._past: list[_Moment] = []
        self._ends_from_ms: int | None = None  # what was acknowledged before is to be in the store at last
        self._task = asyncio.create_task(self._run())
        world.on_kill.append(self._broker_was_killed)

    async def _run(self) -> None:
        while True:
            self._world.met["backup: followers"] += 1
            self._turns = Turns(self._follow)
            await self._turns.run()
            if self._ends_from_ms is not None and not self._turns.is_killed:
                return
            await asyncio.sleep(self._rng.uniform(0.0, 1.0))

    def _broker_was_killed(self, *, power: bool) -> None:
        if self._turns is not None and (power or self._rng.random() < 0.3):
            self._turns.is_killed = True

    # ---- a follower, in its thread ---------------------------------------------------------------------------

    def _follow(self, turns: Turns) -> None:
        rng, objects = self._rng, self._objects.client()
        objects.before_each = lambda call, name: turns.wait(rng.choice(LATENCIES_S))
        if self._ends_from_ms is None and rng.random() < DIES:
            objects.cut_at(rng.randint(*CALLS), after=rng.random() < 0.5)
        how = Following(
            rng.choice((500, 5_000, 60_000)),
            "simulation",
            point_bytes=rng.choice((0, 20_000, 200_000)),
            look_bytes=rng.choice((20_000, 1 << 20)),
            piece_bytes=rng.choice((2_000, 50_000)),
            threads=1,
        )
        disk: Any = _DiskOfAll(self._world, turns, lambda: self._ends_from_ms is None)
        one = Follower(
            disk,
            self._directory,
            objects,
            self._world.clock,
            how,
            wait=lambda trouble: turns.wait(0.1),
            pause=lambda: turns.wait(0.05),
        )
        has_begun = False
        while True:
            try:
                if not has_begun:
                    one.begin(Claim("here", 1, self._directory, "simulation", 0), lambda: None, take_over=True)
                    has_begun = True
                self._world.met["backup: points"] += one.step()
            except (BackupRefused, Damaged, OSError, ObjectsError):
                self._world.met["backup: troubles"] += 1
            else:
                if self._note(one):
                    one.end()
                    return
            turns.wait(rng.uniform(0.02, 1.0))

    def _note(self, one: Follower) -> bool:
        """Sometimes remember what the store has. Returns whether the follower may end: the disk is about to be lost,
        and the store has all that was acknowledged by then.
        """
        if one.loss_window_ms is None:
            return False
        covered_ms = self._world.clock.monotonic_ms() - one.loss_window_ms
        if self._ends_from_ms is not None:
            return covered_ms > self._ends_from_ms
        self._world.met["backup: rounds"] += any(name.startswith("0/rounds/") for name in self._objects.content)
        if self._rng.random() < LOOKS_BACK:
            self._past.append(_Moment(dict(self._objects.content), covered_ms, self._world.history.moment()))
        return False

    # ---- the end ---------------------------------------------------------------------------------------------

    async def lose_disk(self, look: Look) -> None:
        """Let a last follower ship everything, and check what can be restored of earlier moments. Then lose the disk,
        and start a broker on what is restored. Only to be called when no client works any more.
        """
        world = self._world
        vars(self._objects.faults).update(vars(Faults()))
        if self._turns is not None:
            self._turns.is_killed = True  # _run() starts another follower, which is the last if nothing kills it
        self._ends_from_ms = world.clock.monotonic_ms()
        async with asyncio.timeout(PATIENCE_S):
            await self._task
        for past in self._past[:-1]:
            self._restored(_store_of(past))
        if self._past:
            await self._look_back(self._past[-1], look)
        if (disk := self._restored(self._objects)) is not None:
            world.kill(power=False)
            world.disk = disk
            await world.start()

    async def _look_back(self, past: _Moment, look: Look) -> None:
        """Start a broker in another world, with the same loop and clock, on what the store had at that moment, and
        check it against what clients were told by then.
        """
        world = self._world
        disk = self._restored(_store_of(past))
        if disk is None:
            return
        await check_restored(world, disk, past.covered_ms, past.moment, look)

    def _restored(self, objects: SimulatedObjects) -> SimulatedDisk | None:
        """Restore the store's newest point to a new disk. Returns None, and notes a failure, if that is refused."""
        target = SimulatedDisk(history=False)
        problems = Verifying(objects.client(), _give_up).run()
        self._world.failures += [f"in the store: {problem}" for problem in problems]
        try:
            Fetching(objects.client(), target, self._directory, _give_up, threads=1).run()
        except BackupRefused as refused:
            self._world.failures.append(f"not restored: {refused}")
            return None
        return target


async def check_restored(world: World, disk: SimulatedDisk, covered_ms: int, moment: int, look: Look) -> None:
    """Start a broker in another world, with the same loop and clock, on a disk that was restored, and check it against
    what clients were told by covered_ms. moment: of the history, when the restore had read all.
    """
    there = World(world.seed, world.loop)
    there.history = until(world.history, covered_ms, moment)
    there.disk = disk
    await there.start()
    await asyncio.sleep(STALL_MS / 1000)  # what was open has to be ended by now
    await look(there)
    world.failures += [f"restored to a moment: {text}" for text in (*check(there.history), *there.failures)]
    there.end()
    world.met["backup: looks back"] += 1
    world.loop.set_exception_handler(world._complained)


def _store_of(past: _Moment) -> SimulatedObjects:
    objects = SimulatedObjects()
    objects.content = past.content
    return objects


def _give_up(trouble: Exception) -> None:
    raise trouble
