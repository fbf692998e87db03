"""Restores of a journal in an object store to plain data directories, in some seeds; brokers begin on them.

One restore is made while clients work and owners come and go, one of what the store has in the end. A broker that
begins on such a directory is checked against what clients were told before the restore began. Then objects are lost
or damaged, one at a time: a restore has to be refused, and leave the directory empty, unless it needs nothing of that.
"""

import asyncio
from functools import partial
from typing import NamedTuple

from fencepost.effects.objects import ObjectsError
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.objects import SimulatedObjects
from fencepost.effects.simulated.rng import SeededRng
from fencepost.storage.backup.manifest import BackupRefused
from fencepost.storage.objects import format
from fencepost.storage.objects.creating import Pause
from fencepost.storage.objects.errors import ObjectDamaged
from fencepost.storage.objects.fence import Place
from fencepost.storage.objects.looking import JournalVerifying, Looked, Looking
from fencepost.storage.objects.restoring import Restoring
from simulation.backups import Look, check_restored
from simulation.machines import InOrder, StoredWorld
from simulation.store_faults import BAD
from simulation.store_links import GOOD, StoreLink, Turns, sleep

EVERY, FIRST = 5, 3  # seeds; those of named producers and share groups are others
HARMED = 8  # objects, half of them those that a restore needs
PATIENCE_S = 30.0  # virtual, of the restore while clients work


class _Moment(NamedTuple):
    """A directory that was restored. began_ms: when its restore began. moment: of the history, when it had ended."""

    disk: SimulatedDisk
    began_ms: int
    moment: int


def restores_of(world: StoredWorld, seconds: float) -> "Restores | None":
    """Return the restores of a seed; None if it has none. seconds: of traffic."""
    return Restores(world, seconds) if world.seed % EVERY == FIRST else None


class Restores:
    """The restores of one world."""

    def __init__(self, world: StoredWorld, seconds: float) -> None:
        self._world = world
        self._rng = world.rng("restores")
        self._directory = f"/{world.settings.log_dir}"
        self._link = StoreLink(world.loop, world.objects, world.rng("link of a restore"), world.page)
        self._link.weather = self._rng.choice((GOOD, BAD))
        self._beside = asyncio.create_task(self._restore_beside(seconds * self._rng.random()))

    async def _restore_beside(self, after_s: float) -> _Moment | None:
        """Restore beside the owner. Returns None, and notes a failure, if that is refused."""
        await asyncio.sleep(after_s)
        clock, disk = self._world.clock, SimulatedDisk(history=False)
        began_ms = clock.monotonic_ms()
        job = partial(self._restore, self._link, disk, lambda error, attempts: sleep(0.1))
        error = await Turns(job).run()
        if error is not None:
            self._world.failures.append(f"not restored beside the owner: {error!r}")
            return None
        self._world.met["store: restores beside"] += 1
        return _Moment(disk, began_ms, self._world.history.moment())

    def _restore(self, objects: SimulatedObjects | StoreLink, disk: SimulatedDisk, pause: Pause) -> None:
        Restoring(objects, disk, self._world.clock, SeededRng(self._world.seed), self._directory, pause).run()

    async def look(self, look: Look) -> None:
        """Check the directory that was restored beside the owner, one that is restored now, and what restores do if
        objects are lost or damaged. Only to be called when no client works.
        """
        world = self._world
        self._link.weather = GOOD
        async with asyncio.timeout(PATIENCE_S):
            beside = await self._beside
        there = InOrder()
        there.content = dict(world.objects.content)
        whole = SimulatedDisk(history=False)
        self._restore(there, whole, _give_up)
        fingerprint = whole.fingerprint()
        end = _Moment(whole, world.clock.monotonic_ms(), world.history.moment())
        self._harm_objects(there, fingerprint)
        for restored in filter(None, (beside, end)):
            await check_restored(world, restored.disk, restored.began_ms, restored.moment, look)

    # ---- what the store has lost -----------------------------------------------------------------------------

    def _harm_objects(self, there: InOrder, fingerprint: int) -> None:
        """Lose or damage one object at a time, and check what a restore does then. fingerprint: of the disk that is
        restored if no object is missing.
        """
        looking = Looking(there, _give_up)
        looked = looking.look()
        point = looking.point(looked)
        needed = [] if point is None else sorted(point.parts())
        needed += [format.place_name(Place(run.epoch, number)) for run in looked.runs for number in range(*run[1:])]
        half = HARMED // 2
        some = self._rng.sample(sorted(there.content), half) + self._rng.sample(needed, min(half, len(needed)))
        for name in dict.fromkeys(some):
            content = there.content[name]
            if is_lost := self._rng.random() < 0.5:
                del there.content[name]
            elif content:
                there.rot(name, self._rng.randrange(len(content)))
            if not (is_lost and _may_be_unnoticed(name, looked)):
                self._check_harmed(there, f"{name}, {'lost' if is_lost else 'damaged'}", fingerprint)
            there.content[name] = content

    def _check_harmed(self, there: InOrder, what: str, fingerprint: int) -> None:
        """Note a failure if a restore makes another directory than before; or if it is refused, but leaves files or
        JournalVerifying finds nothing wrong.
        """
        world, disk = self._world, SimulatedDisk(history=False)
        try:
            self._restore(there, disk, _give_up)
        except (ObjectDamaged, BackupRefused):
            world.met["store: restores refused"] += 1
            left = disk.list(self._directory) if disk.exists(self._directory) else []
            if left:
                world.failures.append(f"{what}: the restore was refused, and has left {left}")
            if not JournalVerifying(Looking(there, _give_up)).run():
                world.failures.append(f"{what}: the restore is refused, and verifying finds nothing")
        else:
            if disk.fingerprint() != fingerprint:
                world.failures.append(f"{what}: the restore does without it, and makes another directory")


def _may_be_unnoticed(name: str, looked: Looked) -> bool:
    """Return whether no later object says that this round was there: it is one of the newest."""
    place = format.read_place(name)
    return place is not None and looked.last is not None and place >= (looked.epoch, looked.last.released)


def _give_up(error: ObjectsError, attempts: int = 0) -> None:
    raise error
