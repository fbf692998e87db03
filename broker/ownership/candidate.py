"""A broker that wants to own the journal in an object store: it waits until the present owner is gone, and takes over.

An owner is gone if it was silent for a lease (silence.py), or has handed over. A broker does not wait if its data
directory is that of the newest owner: then it is this broker's own, and its lock says that nobody serves from it. The
take-over itself is part of opening the directory, with the store as its journal (storage/objects/source.py).
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version

from ...effects.clock import Clock
from ...effects.disk import Disk, Executor
from ...effects.objects import Objects
from ...effects.rng import Rng
from ...storage import store_mark
from ...storage.journal_source import StoreDamaged
from ...storage.objects import fence, format
from ...storage.objects.creating import as_wait, until_clear
from ...storage.objects.epochs import Epochs, list_places
from ...storage.objects.errors import AdoptionBegun, Overtaken
from ...storage.objects.fence import NOWHERE, Answer, Place
from ...storage.objects.format import WINDOW, Claim, Seal
from ...storage.objects.kept import KeptRounds, ReadingAhead
from ...storage.objects.points import newest_checkpoint
from ...storage.objects.probing import PROBES, RACES, check_lost, check_winners, racers_of, remove, try_create
from ...storage.objects.source import JournalOfObjects
from ...storage.objects.standby import StandbyDirectory
from ...storage.recovery import LookFrom, RecoveryReport, open_store
from ...storage.shipping.kinds import Kind, kind_of
from ...storage.shipping.names import PARTS
from ...storage.store import Store, StoreSettings
from ..config.settings import BrokerSettings
from ..net.early_clients import EarlyClients
from .alive import LOOKS_A_LEASE
from .calls import StoreCalls
from .other_nodes import Presence, told_addresses
from .silence import Silence, ended_while_loading
from .standby import Standby

log = logging.getLogger("fencepost.broker")

MAX_LEASES = 32  # of silence that a broker waits for which others were faster than again and again


class Candidate:
    """One broker until it owns the journal. presence: tells the owner that this broker waits."""

    def __init__(
        self,
        calls: StoreCalls,
        disk: Disk,
        clock: Clock,
        rng: Rng,
        point_executor: Executor,
        *,
        directory: str,
        settings: BrokerSettings,
        among: Sequence[Objects],
        is_standby: bool,
        early_clients: EarlyClients,
    ) -> None:
        """among, is_standby: as in InStore (owner.py). early_clients: may connect once an owner has handed over."""
        self._calls = calls
        self._objects = calls.objects
        self._disk = disk
        self._clock = clock
        self._rng = rng
        self._point_executor = point_executor
        self._directory = directory
        self._among = among
        self._is_standby = is_standby
        self._early_clients = early_clients
        self._node = settings.node_id
        self._addresses = told_addresses(settings.served_listeners)
        self._lease_ms = settings.store_lease_ms
        self._leases = 1  # of silence, until this broker takes over
        self._is_empty_beside_another = False  # another broker has begun to put its directory into the store
        self.presence = Presence(self._objects, self._node, self._addresses, rng.bytes(8), self._lease_ms)

    async def take_over(
        self, settings: StoreSettings, look_from: LookFrom
    ) -> tuple[JournalOfObjects, tuple[Store, RecoveryReport]]:
        """Wait until the present owner is gone, then take over its journal. Returns the source of the journal, which
        knows the epoch that this broker owns now, with the open store and a report of recovery.

        If another broker is faster, wait until that one is gone, each time for twice as long. A take-over may be silent
        for longer than a lease, and two brokers that take each other for gone would otherwise end each other's epochs
        for ever. Raises what open_store raises.
        """
        await self._check_store()
        kept = KeptRounds(self._objects)
        while True:
            source = self._source(settings, kept)
            await self._calls.in_worker(source.check)
            source.watched_epoch = await self._wait(source, kept)
            try:
                opened = await self._calls.in_worker(
                    partial(
                        open_store, self._disk, self._clock, self._rng, self._directory, settings, look_from, source
                    )
                )
                break
            except AdoptionBegun as begun:
                self._is_empty_beside_another = True
                if self._calls.is_due(AdoptionBegun):
                    log.warning("%s: %s; waiting for it, since this directory is empty", self._objects.where, begun)
            except Overtaken as overtaken:
                log.warning("%s: %s; waiting again", self._objects.where, overtaken)
                self._early_clients.send_away()
                self._leases = min(2 * self._leases, MAX_LEASES)
        kept.keep_nothing()
        return source, opened

    def _source(self, settings: StoreSettings, kept: KeptRounds) -> JournalOfObjects:
        """Return the object that takes over the journal and loads it, for one attempt. kept: the store, with the rounds
        (writes of the journal) that were read already.
        """
        where = self._objects.where
        return JournalOfObjects(
            kept,
            Claim(1, self._node, self._addresses, self._rng.bytes(8)),
            self._calls.pause,
            disk=self._disk,
            clock=self._clock,
            directory=self._directory,
            settings=settings,
            identity=self._rng.bytes(16),
            made_by=version("fencepost"),
            report=self._calls.progress_log(f"putting {self._directory} into {where}").note,
            report_fetched=self._calls.progress_log(f"fetching from {where}").note,
        )

    # ---- the store -------------------------------------------------------------------------------------------

    async def _check_store(self) -> None:
        """Raise StoreDamaged if the store holds a backup, or if it does not let exactly one of several concurrent
        creates of the same object succeed: only such a store can guarantee that there is one owner. Raises Refused.

        The creates are repeated until RACES objects were created. If no create of an object succeeds because the store
        gave no clear answer, this proves nothing, so another object is tried.
        """
        calls, where = self._calls, self._objects.where
        if await calls.in_worker(self._is_backup):
            raise StoreDamaged(where, "it holds a backup", "name another URL for the journal")
        racers = racers_of(self._among or [self._objects])
        races = lost = 0
        while races < RACES:
            name = f"{PROBES}{self._rng.bytes(16).hex()}"
            content = [b"%d" % n for n in range(len(racers))]
            jobs = [
                partial(try_create, each, name, content[n], calls.pause_unless_refused) for n, each in enumerate(racers)
            ]
            answers = await asyncio.gather(*map(calls.in_worker, jobs))
            winners = answers.count(Answer.CREATED)
            check_winners(where, len(racers), winners)
            lost += answers.count(Answer.EXISTS) == len(racers)  # the store says of a new name that it exists
            check_lost(where, lost)
            races += winners
            await calls.in_worker(partial(remove, self._objects, name))

    def _is_backup(self) -> bool:
        """Return whether the store holds a backup, not a journal. Blocks."""
        return kind_of(self._objects, as_wait(self._calls.pause_unless_refused)) is Kind.BACKUP

    # ---- waiting ---------------------------------------------------------------------------------------------

    async def _wait(self, source: JournalOfObjects, kept: KeptRounds) -> int:
        """Wait until the owner is gone; as a standby, fetch its checkpoints meanwhile. Returns the owner's epoch; 0 if
        there was no owner.
        """
        ahead = ReadingAhead(kept, self._calls.pause, whole=self._is_standby)
        if not self._is_standby:
            return await self._wait_for_silence(ahead, lambda newest: None)
        where = self._objects.where
        directory = StandbyDirectory(
            kept,
            self._disk,
            self._directory,
            self._calls.pause,
            mark=source.mark_directory,
            say=partial(log.info, "standby of %s: %s", where),
            report=self._calls.progress_log(f"standby: fetching from {where}").note,
        )
        standby = Standby(directory, ahead, partial(self._calls.in_worker, executor=self._point_executor))
        try:
            return await self._wait_for_silence(ahead, standby.follow)
        finally:
            await standby.end()

    async def _wait_for_silence(self, ahead: ReadingAhead, follow: Callable[[Place], None]) -> int:
        """Return the epoch of the present owner once it has written nothing for `_leases` leases, or has handed over
        and this broker can listen. If it cannot, another process on this machine may be taking over at its address.

        Returns at once if this data directory was the last owner, unless another broker was told to take over or is
        taking over. ahead: finds newer rounds (writes of the journal). follow: called again and again with the newest
        round or seal (end of an epoch).
        """
        calls, clock = self._calls, self._clock
        silence_ms = self._leases * self._lease_ms
        silence = Silence(silence_ms)
        await self._look(silence)
        epoch = silence.newest.epoch
        is_own = epoch > 0 and epoch == self._last_own_epoch()
        if epoch and await calls.in_worker(partial(self._is_free, epoch, is_own=is_own)):
            return epoch
        if epoch or (silence.newest != NOWHERE and not self._is_empty_beside_another):
            log.info("waiting until the owner of %s is silent for %d ms", self._objects.where, silence_ms)
        while not silence.is_over(clock.monotonic_ms()):
            follow(silence.newest)
            await calls.in_worker(partial(self.presence.tell, silence.newest.epoch, clock.monotonic_ms()))
            await asyncio.sleep(self._lease_ms / 1000 / LOOKS_A_LEASE)
            newest, handed_over = await calls.in_worker(partial(ahead.newer, silence.newest))
            if handed_over:
                if await self._early_clients.let_wait():
                    return newest.epoch
                newest = newest._replace(number=newest.number - 1)  # so the next look finds the seal again
            silence.saw(newest, clock.monotonic_ms())
            if silence.is_over(clock.monotonic_ms()):
                await self._look(silence)  # for a later epoch, of which `ahead` knows nothing
        return silence.newest.epoch

    async def _look(self, silence: Silence) -> None:
        """List the journal, and note the newest round or seal there."""
        newest, ended = await self._calls.in_worker(self._list_newest)
        silence.saw(newest, self._clock.monotonic_ms(), ended)

    def _list_newest(self) -> tuple[Place, int]:
        """Return the newest round (write of the journal) or seal (end of an epoch) in the store, and how many epochs
        before it were ended while their owners loaded (silence.py). Blocks.

        Before the first round, return a place of epoch 0 whose number grows with each object that a broker creates
        before it writes rounds: claims and parts.
        """
        places = list_places(self._objects, format.JOURNAL, self._calls.pause)
        if places:
            return places[-1], ended_while_loading(places)
        folders = (format.CLAIMS, PARTS)
        found = [until_clear(partial(self._objects.list, one), self._calls.pause) for one in folders]
        return Place(0, sum(map(len, found))), 0

    def _is_free(self, epoch: int, *, is_own: bool) -> bool:
        """Return whether the owner of this epoch, the newest one, can no longer be at work, and no other broker takes
        over. Blocks.

        is_own: this broker was its owner. Then the epoch is free unless another broker has ended it, as `fencepost
        store take` does. Otherwise it is free only if its owner has handed over. It is not free if a later epoch was
        claimed, because the broker that claimed it comes first.
        """
        epochs = Epochs(self._objects, self._calls.pause)
        rounds = epochs.near_top(epochs.places(format.epoch_prefix(epoch)))
        end = fence.valid_end(rounds, WINDOW)  # there may be later objects, of rounds that were being created
        there = None if end is None else epochs.head(Place(epoch, end))
        is_free = there.by == epoch if isinstance(there, Seal) else is_own
        return is_free and max(epochs.claimed(), default=0) <= epoch

    def _last_own_epoch(self) -> int:
        """Return the epoch in which this data directory was last the owner; 0 if it is new or never was in a store."""
        if not self._disk.exists(self._directory) or store_mark.read_mark(self._disk, self._directory) is None:
            return 0
        _, newest = newest_checkpoint(self._disk, self._directory)
        return newest.journal_incarnation if newest else 0
