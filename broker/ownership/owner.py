"""A broker whose journal is in an object store: how it becomes the owner of the journal, and shows that it is alive.

Begin: wait until the owner there is has been silent for a lease (silence.py), unless the data directory is that of the
newest owner: then it is this broker's, and its lock says that nobody serves from it. Then the directory is opened with
the store as its journal, which takes over. Run: it shows that it is alive (alive.py); and from time to time the newest
checkpoint goes into the store, so that others need not read all rounds (points.py there).
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any, TypeVar

from ...effects.clock import Clock
from ...effects.disk import Disk, Executor
from ...effects.objects import Objects, ObjectsError, Refused
from ...effects.rng import Rng
from ...storage import checkpoints, store_checkpoint, store_mark
from ...storage.backup.manifest import BackupRefused
from ...storage.journal_source import StoreDamaged
from ...storage.objects import fence, format
from ...storage.objects.creating import as_wait, create_seal, until_clear
from ...storage.objects.epochs import Epochs, list_places
from ...storage.objects.errors import AdoptionBegun, Overtaken
from ...storage.objects.fence import NOWHERE, Answer, Place
from ...storage.objects.format import WINDOW, Claim, Seal
from ...storage.objects.journal import ObjectJournal
from ...storage.objects.kept import KeptRounds, ReadingAhead
from ...storage.objects.points import Collecting
from ...storage.objects.probing import PROBES, RACES, check_lost, check_winners, racers_of, remove, try_create
from ...storage.objects.source import JournalOfObjects
from ...storage.objects.standby import StandbyDirectory
from ...storage.objects.writer import ObjectWriter, pause_s
from ...storage.recovery import LookFrom, RecoveryReport, open_store
from ...storage.shipping.creating import NameTaken
from ...storage.shipping.kinds import Kind, kind_of
from ...storage.shipping.names import PARTS
from ...storage.store import Store, StoreSettings
from ..config.settings import BrokerSettings
from ..metrics import Histogram
from .alive import LOOKS_A_LEASE, Beating, Pause, Refusing, beat, send_clients_away
from .counted import CountedObjects
from .other_nodes import LEASES_BETWEEN, OtherNodes, Presence, told_addresses
from .pacing import Pace
from .progress import Told
from .silence import Silence, ended_while_loading
from .standby import Standby

log = logging.getLogger("fencepost.broker")

T = TypeVar("T")
POINT_EVERY_S = 30.0
ATTEMPTS_TO_HAND_OVER = 4
SAID_EVERY_MS = 60_000
MAX_LEASES = 32  # of silence that a broker waits for which others were faster than again and again


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


class StoppedWaiting(Exception):
    """Raised if the broker is stopped before it owns the journal."""


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
    ) -> None:
        """executor: WINDOW threads, only for this; point_executor: one thread, for points (checkpoints in the
        store).
        """
        self._store = store
        self._objects = self._counted = CountedObjects(store.objects, clock)
        self._disk = disk
        self._clock = clock
        self._rng = rng
        self._directory = directory
        self._node = settings.node_id
        self._lease_ms = settings.store_lease_ms
        self._leases = 1  # of silence, until this broker takes over
        self._addresses = told_addresses(settings.served_listeners)
        self._presence = Presence(store.objects, self._node, self._addresses, rng.bytes(8), self._lease_ms)
        self.other_nodes = OtherNodes(store.objects, self._node)
        self._heartbeat_ms = settings.store_heartbeat_ms
        self.pace = Pace(settings.store_puts_per_second, at_once=settings.store_puts_per_second)
        self._executor = executor
        self._point_executor = point_executor
        self._stopping = False
        self.epoch = 0  # the one that it owns; 0 until then
        self._saying = threading.Lock()
        self._said_ms: dict[type[BaseException], int] = {}  # when errors were logged, by kind
        self.trouble: ObjectsError | None = None  # the store's last answer, if it was an error
        self._is_empty_beside_another = False  # which has begun to put its directory into the store
        self._ended_while_loading = 0  # of the epochs before the newest one in the store
        self._created_ms = 0  # when a round was created in the store

    # ---- taking over -----------------------------------------------------------------------------------------

    async def open(self, settings: StoreSettings, look_from: LookFrom) -> tuple[Store, RecoveryReport]:
        """Wait until the present owner is gone, then take over its journal. Returns the open store and a report of
        recovery.

        If another broker is faster, wait until that one is gone, each time for twice as long. A take-over may be silent
        for longer than a lease, and two brokers that take each other for gone would otherwise end each other's epochs
        for ever. Raises what open_store raises.
        """
        await self._check_store()
        kept = KeptRounds(self._objects)
        while True:
            source = self._source(settings, kept)
            await self._in_worker(source.check)
            source.watched_epoch = await self._wait(source, kept)
            try:
                opened = await self._in_worker(
                    partial(
                        open_store, self._disk, self._clock, self._rng, self._directory, settings, look_from, source
                    )
                )
                break
            except AdoptionBegun as begun:
                self._is_empty_beside_another = True
                if self._is_due(AdoptionBegun):
                    log.warning("%s: %s; waiting for it, since this directory is empty", self._objects.where, begun)
            except Overtaken as overtaken:
                log.warning("%s: %s; waiting again", self._objects.where, overtaken)
                self._leases = min(2 * self._leases, MAX_LEASES)
        kept.keep_nothing()
        self._created_ms = self._clock.monotonic_ms()
        self.epoch = epoch = source.taken.claim.epoch
        log.info("epoch %d of %s is owned by this broker", epoch, self._objects.where)
        if lost := ", ".join(source.replaced):
            log.warning("%s has lost %s; the next checkpoint replaces that", self._objects.where, lost)
        self._points = source.points
        self._points.pause_with(_give_up, self._check_owning)
        self._collecting = Collecting(self._objects, _give_up, epoch)
        if source.adopted is not None:
            self._collecting.add(source.adopted)
        assert isinstance(opened[0].journal, ObjectJournal)
        self._journal = opened[0].journal
        return opened

    def _source(self, settings: StoreSettings, kept: KeptRounds) -> JournalOfObjects:
        """Return the object that takes over the journal and loads it, for one attempt. kept: the store, with the rounds
        (writes of the journal) that were read already.
        """
        return JournalOfObjects(
            kept,
            Claim(1, self._node, self._addresses, self._rng.bytes(8)),
            self._pause,
            disk=self._disk,
            clock=self._clock,
            directory=self._directory,
            settings=settings,
            identity=self._rng.bytes(16),
            made_by=version("fencepost"),
            report=self._progress_log(f"putting {self._directory} into {self._objects.where}").note,
            report_fetched=self._progress_log(f"fetching from {self._objects.where}").note,
        )

    async def _check_store(self) -> None:
        """Raise StoreDamaged if the store holds a backup, or if it does not let exactly one of several concurrent
        creates of the same object succeed.

        Only a store that does so can guarantee that there is one owner. Raises Refused, too.
        """
        if await self._in_worker(self._is_backup):
            raise StoreDamaged(self._objects.where, "it holds a backup", "name another URL for the journal")
        racers = racers_of(self._store.among or [self._objects])
        races = lost = 0
        while races < RACES:
            name = f"{PROBES}{self._rng.bytes(16).hex()}"
            content = [b"%d" % n for n in range(len(racers))]
            jobs = [
                partial(try_create, each, name, content[n], self._pause_unless_refused) for n, each in enumerate(racers)
            ]
            answers = await asyncio.gather(*map(self._in_worker, jobs))
            winners = answers.count(Answer.CREATED)
            check_winners(self._objects.where, len(racers), winners)
            lost += answers.count(Answer.EXISTS) == len(racers)
            check_lost(self._objects.where, lost)
            races += winners
            await self._in_worker(partial(remove, self._objects, name))

    def _is_backup(self) -> bool:
        """Return whether the store holds a backup, not a journal. Blocks."""
        return kind_of(self._objects, as_wait(self._pause_unless_refused)) is Kind.BACKUP

    async def _wait(self, source: JournalOfObjects, kept: KeptRounds) -> int:
        """Wait until the owner is gone; as a standby, fetch its checkpoints meanwhile. Returns the owner's epoch; 0 if
        there was no owner.
        """
        ahead = ReadingAhead(kept, self._pause, whole=self._store.is_standby)
        if not self._store.is_standby:
            return await self._wait_for_silence(ahead, lambda newest: None)
        told = self._progress_log(f"standby: fetching from {self._objects.where}")
        directory = StandbyDirectory(
            self._objects,
            self._disk,
            self._directory,
            self._pause,
            mark=source.mark_directory,
            say=partial(log.info, "standby of %s: %s", self._objects.where),
            report=told.note,
        )
        standby = Standby(directory, ahead, partial(self._in_worker, executor=self._point_executor))
        try:
            return await self._wait_for_silence(ahead, standby.follow)
        finally:
            await standby.end()

    async def _wait_for_silence(self, ahead: ReadingAhead, follow: Callable[[Place], None]) -> int:
        """Return the epoch of the present owner once it has written nothing for `_leases` leases, or has handed over.

        Returns at once if this data directory was the last owner, unless another broker was told to take over or is
        taking over. ahead: finds newer rounds (writes of the journal). follow: called again and again with the newest
        round or seal (end of an epoch).
        """
        silence_ms = self._leases * self._lease_ms
        silence = Silence(silence_ms)
        newest = await self._in_worker(self._newest)
        is_own = newest.epoch > 0 and newest.epoch == self._last_own_epoch()
        if newest.epoch and await self._in_worker(partial(self._is_free, newest.epoch, is_own=is_own)):
            return newest.epoch
        silence.saw(newest, self._clock.monotonic_ms(), self._ended_while_loading)
        if newest.epoch or (newest != NOWHERE and not self._is_empty_beside_another):
            log.info("waiting until the owner of %s is silent for %d ms", self._objects.where, silence_ms)
        while not (silence.is_over(self._clock.monotonic_ms()) and await self._in_worker(self._newest) == newest):
            follow(newest)
            await self._in_worker(partial(self._presence.tell, newest.epoch, self._clock.monotonic_ms()))
            await asyncio.sleep(self._lease_ms / 1000 / LOOKS_A_LEASE)
            newest, handed_over = await self._in_worker(partial(ahead.newer, silence.newest))
            if handed_over:
                return newest.epoch
            if silence.is_over(self._clock.monotonic_ms()):
                newest = await self._in_worker(self._newest)
            silence.saw(newest, self._clock.monotonic_ms(), self._ended_while_loading)
        return newest.epoch

    def _newest(self) -> Place:
        """Return the newest round (write of the journal) or seal (end of an epoch) in the store. Blocks.

        Before the first round, return a place of epoch 0, which grows with each object that a broker puts there first.
        """
        places = list_places(self._objects, format.JOURNAL, self._pause)
        self._ended_while_loading = ended_while_loading(places)
        if places:
            return places[-1]
        folders = (format.CLAIMS, PARTS)
        return Place(0, sum(len(until_clear(partial(self._objects.list, one), self._pause)) for one in folders))

    def _is_free(self, epoch: int, *, is_own: bool) -> bool:
        """Return whether the owner of this epoch, the newest one, can no longer be at work, and no other broker takes
        over. Blocks.

        is_own: this broker was its owner. Then the epoch is free unless another broker has ended it, as `fencepost
        store take` does. Otherwise it is free only if its owner has handed over. It is not free if a later epoch was
        claimed, because the broker that claimed it comes first.
        """
        epochs = Epochs(self._objects, self._pause)
        rounds = epochs.near_top(epochs.places(format.epoch_prefix(epoch)))
        end = fence.valid_end(rounds, WINDOW)  # rounds may stand behind it, which were on their way
        there = None if end is None else epochs.head(Place(epoch, end))
        is_free = there.by == epoch if isinstance(there, Seal) else is_own
        return is_free and max(epochs.claimed(), default=0) <= epoch

    def _last_own_epoch(self) -> int:
        """Return the epoch in which this data directory was last the owner; 0 if it is new or never was in a store."""
        if not self._disk.exists(self._directory):
            return 0
        mark = store_mark.read_mark(self._disk, self._directory)
        if mark is None or mark.adopting:
            return 0
        for number in store_checkpoint.numbers(self._disk, self._directory)[:1]:
            return store_checkpoint.read(self._disk, self._directory, number).journal_incarnation
        return 0

    # ---- while it is the owner -------------------------------------------------------------------------------

    def writer(self, loop: asyncio.AbstractEventLoop) -> ObjectWriter:
        """Return a writer that creates rounds (writes of the journal) as objects in the store."""
        return ObjectWriter(self._executor, self._clock, loop.call_later, self._answered)

    def tasks(self, rounds: Beating, server: Refusing, pause: Pause) -> list[Coroutine[Any, Any, None]]:
        """Return what the owner does all the time, until the broker stops."""
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
        """Check from time to time which brokers wait to take over from this one, until it stops."""
        await self._in_worker(self._presence.end, self._point_executor)
        while True:
            look = partial(self.other_nodes.look, self._clock.monotonic_ms())
            await self._in_worker(look, self._point_executor)
            if await pause(LEASES_BETWEEN * self._lease_ms / 1000):
                return

    async def keep_points(self, rounds: Beating, pause: Pause) -> None:
        """Make a point (a checkpoint in the store) every POINT_EVERY_S, until the broker stops."""
        while not await pause(POINT_EVERY_S):
            try:
                await self._keep_point(rounds, pause)
            except (AnotherTime, ObjectsError) as error:
                if self.trouble is None and not self._stopping and self._is_due(AnotherTime):
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
        journal = self._journal
        taken = await self._in_worker(self._points.take, self._point_executor)
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
        await self._in_worker(partial(self._collecting.collect, journal.released_rounds), self._point_executor)

    async def hand_over(self) -> None:
        """End this broker's epoch, so that a broker that waits takes over at once. Call it when no round of the journal
        is open or being written.

        If the store does not answer, a warning is logged, and others take over after a lease.
        """
        seal = self._journal.end()
        try:
            await self._in_worker(partial(create_seal, self._objects, seal, self._pause_briefly))
        except AnotherTime as error:
            log.warning("epoch %d of %s was not handed over: %s", seal.by, self._objects.where, error)

    def _pause_briefly(self, error: ObjectsError, attempts: int) -> None:
        """Wait before another attempt. After ATTEMPTS_TO_HAND_OVER attempts, raise AnotherTime instead."""
        if attempts >= ATTEMPTS_TO_HAND_OVER:
            _give_up(error, attempts)
        self._store.sleep(pause_s(attempts))

    @property
    def is_troubled(self) -> bool:
        """Whether the store's last answer to an attempt to write a round of the journal was an error."""
        return self.trouble is not None

    def silent_ms(self) -> int:
        """Return for how many ms the broker has waited for a needed answer of the store; 0 if it waits for none."""
        return self._counted.silent_ms()

    def durations(self) -> dict[tuple[str, ...], Histogram]:
        """Return how long calls to the store took (ns), by call and kind of object."""
        return self._counted.durations()

    def endings(self) -> dict[tuple[str, ...], int]:
        """Return how many calls to the store have ended, by call, kind of object and how they ended."""
        return self._counted.endings()

    def stop(self) -> None:
        """Make the worker threads that wait for the store stop waiting. They raise StoppedWaiting."""
        self._stopping = True

    def _answered(self, error: ObjectsError | None) -> None:
        """Log when the store begins to fail, fails in another way, or answers again. error: of the last attempt; None
        if it succeeded.
        """
        if error is not None and (self.trouble is None or type(error) is not type(self.trouble)):
            log.warning("%s: %s; nothing is acknowledged until it answers", self._objects.where, _advice(error))
        elif error is None and self.trouble is not None:
            log.warning("%s answers again", self._objects.where)
        if error is None:
            self._created_ms = self._clock.monotonic_ms()
        self.trouble = error

    def _check_owning(self, done: int, of: int) -> None:
        """Raise AnotherTime if the broker is stopped, since the rest of a checkpoint may take longer than a stop.

        done, of: the progress of the checkpoint in bytes, which is not used.
        """
        if self._stopping:
            raise AnotherTime("the broker is stopped")

    def _progress_log(self, what: str) -> Told:
        """Return an object that logs the progress of an operation before the broker serves, and raises StoppedWaiting
        if the broker is stopped. what: the operation, for the log.
        """
        return Told(self._clock, what, self._check_waiting)

    def _check_waiting(self) -> None:
        """Raise StoppedWaiting if the broker is stopped."""
        if self._stopping:
            raise StoppedWaiting("stopped while it copied data")

    def _pause(self, error: ObjectsError, attempts: int) -> None:
        """Wait before the next attempt, longer after more of them. Blocks a worker. Raises StoppedWaiting when the
        broker stops.
        """
        if self._stopping:
            raise StoppedWaiting(f"stopped before {self._objects.where} had answered: {error}") from error
        if self._is_due(type(error)):
            log.warning("%s: %s; trying again", self._objects.where, _advice(error))
        self._store.sleep(pause_s(attempts))

    def _pause_unless_refused(self, error: ObjectsError, attempts: int) -> None:
        """Wait as _pause() does, or raise Refused, which at a start means a mistake in the configuration."""
        if isinstance(error, Refused):
            raise error
        self._pause(error, attempts)

    def _is_due(self, kind: type[BaseException]) -> bool:
        """Return whether to log errors of this kind now: once in SAID_EVERY_MS, however many workers meet one."""
        now_ms = self._clock.monotonic_ms()
        with self._saying:
            is_due = now_ms - self._said_ms.get(kind, -SAID_EVERY_MS) >= SAID_EVERY_MS
            if is_due:
                self._said_ms[kind] = now_ms
            return is_due

    async def _in_worker(self, job: Callable[[], T], executor: Executor | None = None) -> T:
        """Run the job in a worker thread, and return its result or raise its exception."""
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def ended(result: Any) -> None:
            """Pass the job's result or exception to the waiting coroutine."""
            if done.cancelled():
                return
            if isinstance(result, BaseException):
                done.set_exception(result)
            else:
                done.set_result(result)

        (executor or self._executor).submit(job, ended)
        found: T = await done
        return found


def _give_up(error: ObjectsError, attempts: int) -> None:
    """Raise AnotherTime at the first error. Passed where other callers pass a function that waits for another
    attempt.
    """
    raise AnotherTime(str(error)) from error


def _advice(error: ObjectsError) -> str:
    """Return the text of a store's error, with a hint if the store refused the request."""
    return f"{error.reason}; {error.hint}" if isinstance(error, Refused) else error.reason
