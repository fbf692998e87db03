"""A broker whose journal is in an object store: how it becomes the owner of the journal, and what it does as the owner.

Begin: wait for the present owner to be gone, and take over (candidate.py). Run: the owner shows that it is alive
(alive.py); and from time to time it puts the newest checkpoint into the store, so that others need not read all rounds
(storage/objects/points.py).
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...effects.clock import Clock
from ...effects.disk import Disk, Executor
from ...effects.objects import Objects, ObjectsError
from ...effects.rng import Rng
from ...storage import checkpoints
from ...storage.backup.manifest import BackupRefused
from ...storage.objects.creating import create_seal
from ...storage.objects.journal import ObjectJournal
from ...storage.objects.points import Collecting
from ...storage.objects.writer import ObjectWriter, pause_s
from ...storage.recovery import LookFrom, RecoveryReport
from ...storage.shipping.creating import NameTaken
from ...storage.store import Store, StoreSettings
from ..config.settings import BrokerSettings
from ..metrics import Histogram
from ..net.early_clients import EarlyClients
from .alive import Beating, Pause, Refusing, beat, send_clients_away
from .calls import StoreCalls, advice
from .candidate import Candidate
from .other_nodes import LEASES_BETWEEN, OtherNodes
from .pacing import Pace

log = logging.getLogger("fencepost.broker")

POINT_EVERY_S = 30.0
ATTEMPTS = 4  # to hand over; to delete an object: of hundreds, one is often unclear


@dataclass(frozen=True)
class InStore:
    """The object store that has the broker's journal.

    sleep: called by worker threads, with seconds. among: the same store through each of its addresses, if it has
    several. is_standby: whether the broker, while it waits for another owner to be gone, fetches that owner's newest
    checkpoints into its data directory.
    """

    objects: Objects
    sleep: Callable[[float], None]
    among: Sequence[Objects] = ()
    is_standby: bool = False


class AnotherTime(Exception):
    """Raised if the store does not answer while a point (a checkpoint in the store) is made. The next point then
    includes what this one would have.
    """


class StoreOwner:
    """Makes one broker the owner of its journal in an object store, and keeps it so."""

    def __init__(
        self,
        store: InStore,
        disk: Disk,
        clock: Clock,
        rng: Rng,
        executor: Executor,
        point_executor: Executor,
        *,
        directory: str,
        settings: BrokerSettings,
        early_clients: EarlyClients,
    ) -> None:
        """executor: WINDOW threads, only for this; point_executor: one thread, for points (checkpoints in the
        store). early_clients: may connect once another owner has handed over to this broker.
        """
        self._calls = StoreCalls(store.objects, clock, executor, store.sleep)
        self._objects = self._calls.objects
        self._clock = clock
        self._executor = executor
        self._early_clients = early_clients
        self._point_executor = point_executor
        self._lease_ms = settings.store_lease_ms
        self._heartbeat_ms = settings.store_heartbeat_ms
        self._candidate = Candidate(
            self._calls,
            disk,
            clock,
            rng,
            point_executor,
            directory=directory,
            settings=settings,
            among=store.among,
            is_standby=store.is_standby,
            early_clients=early_clients,
        )
        self.other_nodes = OtherNodes(self._objects, settings.node_id)
        self.pace = Pace(settings.store_puts_per_second, at_once=settings.store_puts_per_second)
        self.epoch = 0  # the one that it owns; 0 until then
        self.trouble: ObjectsError | None = None  # the store's last answer, if it was an error
        self._created_ms = 0  # when a round was created in the store

    async def open(self, settings: StoreSettings, look_from: LookFrom) -> tuple[Store, RecoveryReport]:
        """Wait until the present owner is gone, then take over its journal. Returns the open store and a report of
        recovery. Raises what Candidate.take_over raises.
        """
        try:
            return await self._open(settings, look_from)
        except BaseException:
            self._early_clients.send_away()
            raise

    async def _open(self, settings: StoreSettings, look_from: LookFrom) -> tuple[Store, RecoveryReport]:
        """Do what open() does, except that clients which wait are not sent away if it fails."""
        source, opened = await self._candidate.take_over(settings, look_from)
        self._created_ms = self._clock.monotonic_ms()
        self.epoch = epoch = source.taken.claim.epoch
        recall = partial(self.other_nodes.recall, epoch, self._calls.pause_unless_refused, self._created_ms)
        await self._calls.in_worker(recall)
        log.info("epoch %d of %s is owned by this broker", epoch, self._objects.where)
        if lost := ", ".join(source.replaced):
            log.warning("%s has lost %s; the next checkpoint replaces that", self._objects.where, lost)
        self._points = source.points
        self._points.pause_with(_give_up, lambda done, of: self._check_running())
        self._collecting = Collecting(self._objects, self._pause_briefly, epoch, self._check_running)
        if source.adopted is not None:
            self._collecting.add(source.adopted)
        assert isinstance(opened[0].journal, ObjectJournal)
        self._journal = opened[0].journal
        return opened

    # ---- writing and living ----------------------------------------------------------------------------------

    def writer(self, loop: asyncio.AbstractEventLoop) -> ObjectWriter:
        """Return a writer that creates rounds (writes of the journal) as objects in the store."""
        return ObjectWriter(self._executor, self._clock, loop.call_later, self._answered)

    def _answered(self, error: ObjectsError | None) -> None:
        """Note that an attempt to create a round has failed and is repeated; error None: that its attempts have ended.
        Log when the store begins to fail, fails in another way, or answers again.
        """
        if error is not None and (self.trouble is None or type(error) is not type(self.trouble)):
            log.warning("%s: %s; nothing is acknowledged until it answers", self._objects.where, advice(error))
        elif error is None and self.trouble is not None:
            log.warning("%s answers again", self._objects.where)
        if error is None:
            self._created_ms = self._clock.monotonic_ms()
        self.trouble = error

    def tasks(self, rounds: Beating, server: Refusing, pause: Pause) -> list[Coroutine[Any, Any, None]]:
        """Return the coroutines of the owner's tasks, which run until the broker stops."""
        return [
            beat(rounds, self._heartbeat_ms, pause),
            send_clients_away(self, server, self._lease_ms, pause),
            self.watch_others(pause),
            self.keep_points(rounds, pause),
        ]

    def since_created_ms(self) -> int:
        """Return for how many ms no round (write of the journal) was created in the store."""
        return self._clock.monotonic_ms() - self._created_ms

    def waiting_nodes(self) -> list[int]:
        """Return the node ids of the brokers that wait to take over, as they were seen last."""
        return self.other_nodes.alive()

    async def watch_others(self, pause: Pause) -> None:
        """Check from time to time which brokers wait to take over from this one, until it stops. First delete the
        object by which this broker told the former owner that it waits.
        """
        await self._calls.in_worker(self._candidate.presence.end, self._point_executor)
        while True:
            look = partial(self.other_nodes.look, self._clock.monotonic_ms())
            await self._calls.in_worker(look, self._point_executor)
            if await pause(LEASES_BETWEEN * self._lease_ms / 1000):
                return

    # ---- points ----------------------------------------------------------------------------------------------

    async def keep_points(self, rounds: Beating, pause: Pause) -> None:
        """Make a point (a checkpoint in the store) every POINT_EVERY_S, until the broker stops."""
        while not await pause(POINT_EVERY_S):
            try:
                await self._keep_point(rounds, pause)
            except (AnotherTime, ObjectsError) as error:
                if self.trouble is None and not self._calls.is_stopping and self._calls.is_due(AnotherTime):
                    # else it was said that the store does not answer
                    where = self._objects.where
                    log.warning("%s: a checkpoint is not complete: %s; the next one makes up for it", where, error)
            except (OSError, BackupRefused, checkpoints.Damaged, NameTaken) as error:
                log.warning("no checkpoint was put into %s: %s", self._objects.where, error)

    async def _keep_point(self, rounds: Beating, pause: Pause) -> None:
        """Make a point (a checkpoint in the store), name it in a round, and once that is durable delete the objects
        that are no longer needed.

        If there is no newer checkpoint, and no new unit, the newest point is named again, with a later first round.
        Otherwise a broker that takes over would read every heartbeat since that point.
        """
        journal, calls = self._journal, self._calls
        taken = await calls.in_worker(self._points.take, self._point_executor)
        is_new = taken is not None
        taken = taken or self._collecting.newest_with_all_units(journal)
        if taken is None or (first := journal.name_point(taken.place, taken.start)) is None:
            return
        if is_new:  # else the next heartbeat names it
            rounds.sync_soon()
        while journal.released_rounds <= first:  # until that round is durable the point does not count
            if await pause(self._heartbeat_ms / 1000):
                return
        self._collecting.add(taken)
        await calls.in_worker(partial(self._collecting.collect, journal.released_rounds), self._point_executor)

    def _check_running(self) -> None:
        """Raise AnotherTime if the broker is stopped, since the rest of a checkpoint, or of what is deleted after it,
        may take longer than a stop.
        """
        if self._calls.is_stopping:
            raise AnotherTime("the broker is stopped")

    # ---- the end ---------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Make the worker threads that wait for the store stop waiting. They raise StoppedWaiting. Clients that wait
        for the broker to serve are sent away.
        """
        self._calls.stop()
        self._early_clients.send_away()

    async def hand_over(self) -> None:
        """End this broker's epoch, so that a broker that waits takes over at once. Call it when no round of the journal
        is open or being written.

        If the store does not answer, a warning is logged, and others take over after a lease.
        """
        seal = self._journal.end()
        try:
            await self._calls.in_worker(partial(create_seal, self._objects, seal, self._pause_briefly))
        except AnotherTime as error:
            log.warning("epoch %d of %s was not handed over: %s", seal.by, self._objects.where, error)

    def _pause_briefly(self, error: ObjectsError, attempts: int) -> None:
        """Wait before another attempt of a call that need not succeed now. After ATTEMPTS attempts, raise AnotherTime
        instead.
        """
        if attempts >= ATTEMPTS:
            _give_up(error, attempts)
        self._calls.sleep(pause_s(attempts))

    # ---- metrics ---------------------------------------------------------------------------------------------

    @property
    def is_troubled(self) -> bool:
        """Whether the store's last answer to an attempt to write a round of the journal was an error."""
        return self.trouble is not None

    def silent_ms(self) -> int:
        """Return for how many ms the broker has waited for a needed answer of the store; 0 if it waits for none."""
        return self._objects.silent_ms()

    def durations(self) -> dict[tuple[str, ...], Histogram]:
        """Return how long calls to the store took (ns), by call and kind of object."""
        return self._objects.durations()

    def endings(self) -> dict[tuple[str, ...], int]:
        """Return how many calls to the store have ended, by call, kind of object and how they ended."""
        return self._objects.endings()


def _give_up(error: ObjectsError, attempts: int) -> None:
    """Raise AnotherTime at the first error. Passed where other callers pass a function that waits for another
    attempt.
    """
    raise AnotherTime(str(error)) from error
