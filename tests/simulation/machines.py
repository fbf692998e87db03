"""Machines whose brokers share one journal in a store of objects: an owner, and others that wait for it to be gone.

Each machine has an address, a disk and a way to the store of its own. Whatever ends a broker, the next one begins on
the same disk, or on an empty one. Of what is acknowledged the owners themselves are asked as well: `Epochs` knows which
units of the journal each epoch has released, and no two may have released one, nor one have begun below another's.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import Context
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from unittest import mock

from fencepost.broker.broker import Broker
from fencepost.broker.ownership import owner as ownership
from fencepost.broker.ownership.owner import InStore
from fencepost.effects.disk import DiskFull
from fencepost.effects.objects import Found, Refused
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.loop import SimulatedLoop
from fencepost.effects.simulated.objects import SimulatedObjects
from fencepost.effects.simulated.rng import SeededRng
from fencepost.effects.threads import call_all, starting
from fencepost.storage.objects import epochs, fence, format, kept, probing
from fencepost.storage.objects.journal import ObjectJournal
from fencepost.storage.objects.looking import JournalVerifying, Looking
from fencepost.storage.shipping import fetching, shipper
from simulation.history import History, NotWritten, Op, Outlived, Restart
from simulation.processes import Process, ProcessNet
from simulation.store_links import StoreExecutor, StoreLink, beside_each_other, sleep, start_no_further_thread
from simulation.world import ADDRESS, World

PORT = ADDRESS[1]
LEASES_MS, HEARTBEATS_MS = (1_000, 2_000, 3_000), (200, 500)
PUTS_A_SECOND = (10, 50, 200)
POINTS_S = (1.0, 3.0, 8.0)  # from one checkpoint in the store to the next
PAGES = (3, 20, 1_000)
TRIED_AGAIN_MS = 2_000  # so long a broker waits at most before it tries again to create a round
OWNED_AGAIN_S = 90.0  # virtual: with nothing wrong any more, a broker serves by then


@dataclass(slots=True)
class Epoch:
    """What the owner in one epoch has released: the units from `first` through `released`."""

    first: int
    released: int


class Epochs:
    """Notes which epoch has released which units. A reply leaves only when its unit is released."""

    def __init__(self) -> None:
        self.known: dict[int, Epoch] = {}

    def began(self, journal: ObjectJournal) -> None:
        self.known[journal.incarnation] = Epoch(journal.next_unit, journal.next_unit - 1)

    def released(self, journal: ObjectJournal) -> None:
        self.known[journal.incarnation].released = journal.released_unit

    def problems(self) -> list[str]:
        """Return what must never be: an epoch that has released units above the beginning of a later epoch."""
        found: list[str] = []
        for number, epoch in self.known.items():
            for later, other in self.known.items():
                if number < later and epoch.released >= other.first:
                    what = f"epoch {number} has released units through {epoch.released}"
                    found.append(f"acknowledged by two epochs, or lost: {what}, epoch {later} began at {other.first}")
        return found


class HeldUp:
    """Notes in the history when the owner released nothing because the store failed its writes.

    Such a time begins with the attempt that failed, or with the last release if that was later. It ends with the next
    release, or TRIED_AGAIN_MS after the last failure: from then on the owner is to blame.
    """

    def __init__(self, history: History) -> None:
        self._history = history
        self._released_ms = 0
        self._failed: NotWritten | None = None  # since the last release

    def failed(self, since_ms: int) -> None:
        """Note that an attempt to write has failed now, which began at since_ms."""
        now_ms = self._history.now_ms()
        if self._failed is not None and since_ms > self._failed.until_ms:
            self._note(now_ms)
        first_ms = max(since_ms, self._released_ms) if self._failed is None else self._failed.since_ms
        self._failed = NotWritten(first_ms, now_ms + TRIED_AGAIN_MS)

    def released(self) -> None:
        """Note that the owner has released a round, or that another owner begins."""
        self._released_ms = self._history.now_ms()
        self._note(self._released_ms)

    def _note(self, now_ms: int) -> None:
        """Add the time that was begun, if there is one, to the history."""
        if self._failed is not None:
            told = self._failed._replace(until_ms=min(now_ms, self._failed.until_ms))
            self._history.invoke("store", told).ok()
            self._failed = None


class Machine:
    """One address, with one broker after the other."""

    def __init__(self, world: "StoredWorld", number: int) -> None:
        self.number = number
        self.name = f"10.0.0.{number}"
        self.link = StoreLink(world.loop, world.objects, world.rng(f"link {number}"), world.page)
        self.link.on_failure = self._call_failed
        self.disk = SimulatedDisk(history=False)
        self.broker: Broker | None = None
        self.process: Process | None = None
        self.serves = False
        self.outlived: Op | None = None  # since it was taken over from
        self.lives = 0
        self._world = world
        self._rng = world.rng(f"machine {number}")
        self._net = world.net
        self._life: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start a broker. It serves once it owns the journal."""
        assert self.broker is None
        self.lives += 1
        world, disk = self._world, self.disk
        disk.quick = self._rng.random() < 0.3
        disk.begins_in_call, disk.syncs_blocks = self._rng.random() < 0.2, self._rng.random() < 0.5
        disk.is_cold = lambda path: self._rng.random() < world.schedule.cold
        self._make_executors(disk)
        self.process = Process(world.loop, f"broker {self.number}.{self.lives}")
        self._net = world.net.host(self.name)
        settings = replace(
            world.settings,
            node_id=self.number,
            listeners=(f"{self.name}:{PORT}",),
            durability_mode="fsync",
            layers={},  # which are made of the fields
        )
        self.broker = broker = Broker(
            settings,
            disk=disk,
            clock=world.clock,
            rng=SeededRng(world.seed * 1_000 + self.number * 100_000 + self.lives),
            net=ProcessNet(self._net, self.process),
            in_store=InStore(self.link, sleep, is_standby=self._rng.random() < 0.7),
        )
        world.prepare(broker)
        broker.on_halt.append(lambda error: self._halted(broker))
        self.process.is_starting = True
        self._life = world.loop.create_task(self._live(broker, self.process), context=Context())

    async def _live(self, broker: Broker, process: Process) -> None:
        begun = process.start(broker.start())
        await asyncio.wait([begun])  # for ever, if it is killed
        error = begun.exception()
        if error is None:
            process.is_starting = False
            self.serves = True
            self._world.has_begun(self)
        elif broker is self.broker:
            if not (isinstance(error, DiskFull | Refused) or self._is_fenced(error)):  # which ends `serve`
                self._world.failures.append(f"{self.name} does not begin: {type(error).__name__} {error}"[:400])
            self._again_after(0.5)

    @staticmethod
    def _is_fenced(error: BaseException) -> bool:
        return type(error).__name__ == "Fenced"

    def _halted(self, broker: Broker) -> None:
        """Start a broker again soon: the process of one that halts ends, as `serve` does, and is started again. Does
        nothing if the broker was replaced meanwhile.
        """
        if broker is self.broker:
            self._world.met["store: fenced"] += self._is_fenced(broker.halted or OSError())
            self._world.loop.call_later(0.01, self._end_halted, broker, context=Context())

    def _end_halted(self, broker: Broker) -> None:
        if broker is self.broker:
            self._again_after(self._rng.uniform(0.1, 1.0))

    def _again_after(self, seconds: float) -> None:
        self.kill()
        self._world.loop.call_later(seconds, self.start_if_down, context=Context())

    def start_if_down(self) -> None:
        if self.broker is None and not self._world.has_ended:
            self.start()

    def kill(self, *, power: bool = False, wiped: bool = False) -> None:
        """Kill the process. power: what was not synced is lost as well. wiped: the whole disk is."""
        if self.broker is None or self.process is None:
            return
        left = self.disk.after_power_cut() if power else self.disk.after_process_crash()
        self.disk.halt()
        self._net.kill()
        self.process.kill()
        if self._life is not None:
            self._life.cancel()
        self._world.bury_broker(self)
        self.broker = self.process = None
        self.serves = False
        if self.outlived is not None:
            self.outlived.ok()
            self.outlived = None
        self.disk = SimulatedDisk(history=False) if wiped else left

    def _call_failed(self, name: str, since_s: float) -> None:
        """Note that a create or a read of a round has failed at the owner; failures at other machines delay nobody.

        Called in the thread that waited for the answer.
        """
        if name.startswith(format.JOURNAL) and self._world.owner is self:
            self._world.held_up.failed(round(since_s * 1000))

    async def stop(self) -> None:
        """Stop a broker that serves, in an orderly way, so that one that waits takes over at once."""
        broker, process = self.broker, self.process
        if broker is not None and process is not None and self.serves:
            stopped = process.start(broker.stop())
            await asyncio.wait([stopped], timeout=20.0)
            if broker is self.broker:
                self.kill()

    def _make_executors(self, disk: SimulatedDisk) -> None:
        begin, delays = disk.executor, self._world.delays

        def executor(name: str, threads: int = 1) -> Any:
            if name in ("store", "points"):
                made = StoreExecutor(threads)
                disk._workers.append(made)  # type: ignore[arg-type]
                return made
            disk.latency = lambda: (delays.get(name, 0.0), 0.0)
            return begin(name, threads)

        disk.executor = executor  # type: ignore[method-assign]


class InOrder(SimulatedObjects):
    """A store whose listings are always in the order of names."""

    def list(self, prefix: str, after: str = "") -> list[Found]:
        return sorted(super().list(prefix, after))


class StoredWorld(World):
    """A world of two or three machines."""

    def __init__(self, seed: int, loop: SimulatedLoop, prepare: Callable[[Broker], None] = lambda broker: None) -> None:
        self._ownerless: Any = None
        super().__init__(seed, loop, prepare)
        rng = self.rng("stored")
        self.objects = SimulatedObjects(seed)
        self.page = rng.choice(PAGES)
        self.epochs = Epochs()
        self.held_up = HeldUp(self.history)
        self.has_ended = False
        self.is_guarded = False
        self.schedule = replace(self.schedule, has_follower=False)
        lease_ms = rng.choice(LEASES_MS)
        self.settings = replace(
            self.settings,
            store_lease_ms=lease_ms,
            store_heartbeat_ms=min(lease_ms // 2, rng.choice(HEARTBEATS_MS)),
            store_puts_per_second=rng.choice(PUTS_A_SECOND),
        )
        self._point_s = rng.choice(POINTS_S)
        self._dialled = self.rng("dialled")
        self.machines = [Machine(self, number) for number in range(1, 3 + (rng.random() < 0.5))]
        self.bootstrap = ",".join(f"{one.name}:{PORT}" for one in self.machines)

    @property
    def owner(self) -> Machine | None:
        """The machine that serves with the newest epoch; None if none serves."""
        serving = [one for one in self.machines if one.serves and one.broker is not None and one.broker.halted is None]
        return max(serving, key=lambda one: one.broker.store.incarnation, default=None)  # type: ignore[union-attr]

    @property
    def broker(self) -> Broker | None:  # type: ignore[override]
        return self.owner.broker if self.owner is not None else None

    @broker.setter
    def broker(self, value: Any) -> None:
        assert value is None

    @property
    def brokers(self) -> list[Broker]:
        """All brokers but those that were taken over from: they own the journal, take it over, or wait for it."""
        return [one.broker for one in self.machines if one.broker is not None and one.outlived is None]

    @property
    def is_serving(self) -> bool:
        return self.owner is not None

    def prepare(self, broker: Broker) -> None:
        self._prepare(broker)

    async def dial(self, factory: Any, port: int = PORT) -> Any:
        """Connect to any of the machines that listen: no client knows which one owns the journal."""
        refused: OSError | None = None
        for one in self._dialled.sample(self.machines, len(self.machines)):
            try:
                return await self.net.connect(factory, one.name, port)
            except ConnectionRefusedError as error:
                refused = error
        assert refused is not None
        raise refused

    async def start(self) -> None:
        """Start a broker on each machine that has none, and wait until one serves."""
        for one in self.machines:
            one.start_if_down()
        async with asyncio.timeout(OWNED_AGAIN_S):
            while self.owner is None:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    def has_begun(self, machine: Machine) -> None:
        """Note that a machine owns the journal and serves, and that it took over from those that still do."""
        self.lives += 1
        self.held_up.released()
        self.met["store: epochs"] += 1
        for one in self.machines:
            if one is not machine and one.serves and one.outlived is None:
                self.met["store: outlived"] += 1
                one.outlived = self.history.invoke("broker", Outlived())
        self.history.invoke("broker", Restart()).ok()

    def kill(self, *, power: bool, rng: Any = None) -> None:
        for one in self.machines:
            one.kill(power=power)

    async def restart(self, *, power: bool = False, rng: Any = None, after_s: float = 0.0) -> None:
        self.kill(power=power)
        await asyncio.sleep(after_s)
        await self.start()

    def run_in_broker(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        assert self.owner is not None
        assert self.owner.process is not None
        return self.owner.process.start(work)

    def bury_broker(self, machine: Machine) -> None:
        """Note the failures of a broker that was killed, and keep it until all is over, so that it is not collected."""
        broker = machine.broker
        if broker is not None:
            self.failures += [f"in broker {machine.number}: {error!r}" for error in broker.metrics.failures]
            self.errors.update(broker.metrics.errors)
        if machine.process is not None:
            self.killed.append(machine.process)
        self._graveyard += [broker, machine.disk]

    def forget_indexes(self) -> None:
        """Do nothing: no broker here has a cache too small for its indexes."""

    def end(self) -> None:
        self.has_ended = True
        self.held_up.released()
        self.kill(power=False)
        self.failures += self.epochs.problems()
        self.failures += [f"in the store: {problem}" for problem in self._verified()]

    def _verified(self) -> list[str]:
        def give_up(error: Exception, attempts: int) -> None:
            raise error

        there = InOrder()
        there.content = self.objects.content
        return JournalVerifying(Looking(there, give_up)).run()

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Within the block, patch all brokers of this process: no threads but those of store_links, small pages; and
        `epochs` notes what they release.
        """
        began, finished = ObjectJournal._create_first, ObjectJournal.finished

        def create_first(journal: ObjectJournal, says: Any) -> None:
            first = Epoch(journal.next_unit, journal.next_unit - 1)
            began(journal, says)
            self.epochs.known[journal.incarnation] = first

        def finish(journal: ObjectJournal, write: Any) -> None:
            finished(journal, write)
            self.epochs.released(journal)
            if self.broker is not None and self.broker.store.journal is journal:
                self.held_up.released()

        def one_by_one(calls: Any, name: str, threads: int, meanwhile: Any = None) -> None:
            calls = list(calls)
            with beside_each_other(min(threads, len(calls))):
                call_all(calls, name, 1)

        with ExitStack() as stack:
            patched = partial(mock.patch.object)
            stack.enter_context(patched(starting, "start_thread", start_no_further_thread))
            for module in (epochs, kept, probing, fetching, shipper):
                stack.enter_context(patched(module, "call_all", one_by_one))
            stack.enter_context(patched(fence.is_proof, "__defaults__", (self.page,)))
            stack.enter_context(patched(ownership, "POINT_EVERY_S", self._point_s))
            stack.enter_context(patched(ObjectJournal, "_create_first", create_first))
            stack.enter_context(patched(ObjectJournal, "finished", finish))
            yield
