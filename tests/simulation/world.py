"""The world of a simulation: one real broker after the other on one disk, under virtual time, and all that happens.

Everything comes from the seed: the network's delays, the disk's, the broker's own chance, what clients do and which
faults strike. The history is what clients did and saw; `failures` are what no client needs to see to be a bug.
"""

import asyncio
import logging
import random
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import Any

from fencepost.broker.broker import Broker
from fencepost.broker.config.security_settings import STANDARD_AUTHORIZER
from fencepost.broker.config.settings import BrokerSettings
from fencepost.effects.disk import CannotOpen, DiskFull
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.loop import SimulatedLoop
from fencepost.effects.simulated.net import SimulatedNet
from fencepost.effects.simulated.rng import SeededRng
from simulation.history import History, Place, Restart
from simulation.measured_loop import MeasuredLoop
from simulation.processes import Process, ProcessNet, owned_task
from simulation.schedules import Schedule

ADDRESS = ("127.0.0.1", 9092)
LEADER_PORT = 9_192  # of the relay that stands for it where there is a follower, too
GUARDED_PORT = 9_093  # of the listener that asks for a login
RACK = "r2"  # of the follower
TXN_TIMEOUT_MS = 4_000
SWEEP_MS = 1_000
PREPARED_MAX_MS = 6_000
NEWER_SESSION_MS = 2_000  # of members whose broker assigns (KIP-848)
SHARE_LOCK_MS, SHARE_WINDOW = 2_000, 100  # of members of share groups
CLASSIC, NEWER = "classic", "consumer"
STALL_MS = 3 * TXN_TIMEOUT_MS + 2 * SWEEP_MS  # a repeated transaction may have to wait for another on the same id
SETTINGS: dict[str, Any] = {
    "journal_max_bytes": 4 << 20,
    "storage_min_free_bytes": 0,
    "log_checkpoint_interval_ms": 3_000,
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": SWEEP_MS,
    "transaction_prepared_max_timeout_ms": PREPARED_MAX_MS,
    "transaction_state_log_num_partitions": 3,
    "offsets_topic_num_partitions": 3,
    "group_initial_rebalance_delay_ms": 0,
    "group_min_session_timeout_ms": 1_000,
    "group_consumer_session_timeout_ms": NEWER_SESSION_MS,
    "group_consumer_min_session_timeout_ms": 1_000,
    "group_consumer_heartbeat_interval_ms": 300,
    "group_consumer_min_heartbeat_interval_ms": 100,
    "group_share_record_lock_duration_ms": SHARE_LOCK_MS,
    "group_share_min_record_lock_duration_ms": 1_000,
    "group_share_max_delivery_count_limit": 25,
    "group_share_partition_max_record_locks": SHARE_WINDOW,
    "group_share_assignment_interval_ms": 100,
    "share_coordinator_state_topic_num_partitions": 2,
    "log_roll_ms": 4_000,  # so that the coordinators' logs are compacted
    "log_retention_check_interval_ms": 500,
    "log_cleaner_backoff_ms": 1_000,
    "log_cleaner_min_cleanable_ratio": 0.01,
    "log_cleaner_delete_retention_ms": 2_000,
}
GUARDED_EVERY = 4  # each such seed has an authorizer, a listener with a login, and users whose rights change
GUARDED: dict[str, Any] = {
    "listeners": (f"{ADDRESS[0]}:{ADDRESS[1]}", f"SASL_PLAINTEXT://{ADDRESS[0]}:{GUARDED_PORT}"),
    "sasl_enabled_mechanisms": ("PLAIN",),
    "authorizer_class_name": STANDARD_AUTHORIZER,
    "super_users": "User:ANONYMOUS",  # all that come over the other listener
}
OS_EVERY = 7  # each such seed has a broker that does not wait for syncs; it is killed and never unplugged
QUICK_EVERY = 3  # each such life has a device that the loop itself waits for
AT_ONCE = (4, 2, 0)  # by life: how many rounds may be in flight; with 0 a worker writes them, one after another
JOURNAL_S, SEGMENTS_S, READS_S = 0.004, 0.003, 0.001


def settings(**more: Any) -> BrokerSettings:
    """Return the settings of a small broker with short times; options that it does not know yet are left out."""
    known = BrokerSettings.__dataclass_fields__
    return BrokerSettings(**{name: value for name, value in (SETTINGS | more).items() if name in known})


class World:
    """One simulation's broker, disk, network, clock and history."""

    only_queues = False  # the clients of a share group are all that there are, whatever the seed
    address = ADDRESS[0]  # of the broker

    def __init__(self, seed: int, loop: SimulatedLoop, prepare: Callable[[Broker], None] = lambda broker: None) -> None:
        """prepare: called with each broker before it starts, to plant a bug for instance."""
        self.seed = seed
        self.loop = loop
        loop.set_task_factory(owned_task)
        loop.set_exception_handler(self._complained)
        self.clock = loop.clock()
        self.history = History(self.clock.monotonic_ms, STALL_MS)
        self.net = SimulatedNet(seed=seed)
        self.network = self.net.network
        self.disk = SimulatedDisk(history=False)
        self.delays = {"journal": JOURNAL_S, "segments": SEGMENTS_S, "reads": READS_S}
        self.failures: list[str] = []
        self.errors: Counter[int] = Counter()  # that brokers answered with, by code
        self.met: Counter[str] = Counter()  # what clients came across
        self.broker: Broker | None = None
        self.lives = 0
        self.looks: list[Callable[[], Place]] = []  # further places to look at in the end
        self.on_kill: list[Callable[..., None]] = []  # called with power=… when a broker is killed
        self.looks_before_the_end: list[Callable[[], Awaitable[None]]] = []  # while the broker runs that was healed
        self.topic_names: dict[bytes, str] = {}  # by id, of those that members of groups subscribe to
        self.over = False  # clients begin nothing new
        self.is_moved = False  # the data directory is not where brokers look for it
        # Shown to the faults: requests that are about to leave, by the keys of their APIs.
        self.on_send: Callable[[Any, list[int]], None] = lambda transport, keys: None
        self.schedule = Schedule.of(seed)
        self.is_guarded = not seed % GUARDED_EVERY
        guarded = GUARDED if self.is_guarded else {}
        mode = "fsync" if seed % OS_EVERY else "os"
        self.settings = settings(durability_mode=mode, **self.schedule.settings, **guarded)
        port = LEADER_PORT if self.schedule.has_follower else ADDRESS[1]
        self.bootstrap = f"{ADDRESS[0]}:{port}"  # of the SDK's clients
        self._cold = self.rng("cold")
        self._prepare = prepare
        self._process: Process | None = None
        self._broker_net = self.net
        self._restart: asyncio.Task[None] | None = None
        self._graveyard: list[Any] = []
        self.killed: list[Process] = []  # of clients

    def rng(self, name: str) -> random.Random:
        """Return a source of chance for this name alone, so that one more question of one client changes nothing for
        the others.
        """
        return random.Random(f"{self.seed} {name}")

    def protocol_of(self, group: str) -> str:
        """Return the protocol of all members of a group: the classic one, or the newer one in which the broker assigns
        partitions.
        """
        return self.rng(f"protocol of {group}").choice((CLASSIC, NEWER))

    def protocols_of(self, group: str) -> tuple[str, ...]:
        """Return the protocols of a group, of which each member has one. With both, the group is converted to and fro
        while members come and go.
        """
        return self.rng(f"protocols of {group}").choice(((CLASSIC,), (NEWER,), (CLASSIC, NEWER)))

    def dial(self, factory: Any, port: int = ADDRESS[1]) -> Awaitable[Any]:
        """Connect a scripted client to a broker."""
        return self.net.connect(factory, self.address, port)

    # ---- the broker ------------------------------------------------------------------------------------------

    @property
    def brokers(self) -> "list[Broker]":
        """The brokers of which it is noted what they forget: here the one that runs."""
        return [self.broker] if self.broker is not None else []

    @property
    def is_serving(self) -> bool:
        """Whether a broker has started, and is not halted."""
        broker, process = self.broker, self._process
        return broker is not None and process is not None and not process.is_starting and broker.halted is None

    async def start(self) -> None:
        """Start a broker on what is on the disk. Raises what the broker raises."""
        self.lives += 1
        self.disk.quick = not self.lives % QUICK_EVERY
        self.disk.at_once = AT_ONCE[(self.seed + self.lives) % len(AT_ONCE)]
        self.disk.begins_in_call = self.rng(f"begins of life {self.lives}").random() < 0.2
        self.disk.syncs_blocks = self.rng(f"blocks of life {self.lives}").random() < 0.5
        self.disk.is_cold = lambda path: self._cold.random() < self.schedule.cold
        self._slow_executors()
        process = self._process = Process(self.loop, f"broker {self.lives}")
        self._broker_net = self.net.host(self.address)
        rng = SeededRng(self.seed * 1000 + self.lives)
        net = ProcessNet(self._broker_net, process)
        broker = Broker(self.settings, disk=self.disk, clock=self.clock, rng=rng, net=net)
        self._prepare(broker)
        broker.on_halt.append(lambda error: self._halted(broker, error))
        self.broker = broker
        if isinstance(self.loop, MeasuredLoop):
            process.counted = self.loop.count
        process.is_starting = True
        await process.start(broker.start())
        process.is_starting = False
        self.history.invoke("broker", Restart()).ok()

    def kill(self, *, power: bool, rng: random.Random | None = None) -> None:
        """Kill the broker's process. power: what was not synced is lost as well (not in mode os); with rng, some of it
        may be kept.
        """
        if self.broker is None or self._process is None:
            return
        unplugged = power and self.settings.durability_mode == "fsync"
        left = self._after_power_cut(rng) if unplugged else self.disk.after_process_crash()
        self.disk.halt()
        self._broker_net.kill()
        self._process.kill()
        for told in self.on_kill:
            told(power=power)
        self._look_for_failures()
        self._graveyard += [self.broker, self._process, self.disk]
        self.broker = self._process = None
        self.disk = left

    async def stop(self) -> None:
        """Stop the broker in an orderly way: then everything is on the disk."""
        if self.broker is not None and self._process is not None:
            await self._process.start(self.broker.stop())
            self.kill(power=False)

    def run_in_broker(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Run a coroutine as part of the broker that runs. If that is killed, the task never ends."""
        assert self._process is not None
        return self._process.start(work)

    async def restart(self, *, power: bool = False, rng: random.Random | None = None, after_s: float = 0.0) -> None:
        """Kill the broker, wait, and start another one. If a full disk or another fault of it prevents that, the fault
        is ended first.
        """
        self.kill(power=power, rng=rng)
        await asyncio.sleep(after_s)
        while self.is_moved:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        try:
            await self.start()
        except OSError as error:
            if not (isinstance(error, DiskFull) or self.disk._faults):
                raise
            self.kill(power=power, rng=rng)
            self.disk.capacity_bytes = None  # an operator makes room, or sees to what else the error says
            self.disk._faults.clear()
            await self.start()

    def _halted(self, broker: Broker, error: BaseException) -> None:
        """Start a broker again soon: the process of one that halts ends, as `serve` does, and is started again. To halt
        for want of descriptors is noted as a failure.
        """
        if isinstance(error, CannotOpen):
            self.failures.append(f"halted for want of descriptors: {error!r}")
        if broker is self.broker and (self._restart is None or self._restart.done()):
            self._restart = self.loop.create_task(self._begin_again(broker), context=Context())

    async def _begin_again(self, broker: Broker) -> None:
        await asyncio.sleep(0.01)
        if broker is self.broker:
            await self.restart(after_s=0.2)

    def _after_power_cut(self, rng: random.Random | None) -> SimulatedDisk:
        if rng is None or rng.random() < 0.5:
            return self.disk.after_power_cut()
        cut = self.disk._history.cut
        kept = {operation.index for operation in cut.unsynced() if rng.random() < 0.5}
        return self.disk.found(cut.found(kept=kept))

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Within the block, patch what is patched for all brokers of this process: here nothing."""
        yield

    def forget_indexes(self) -> None:
        """Drop all loaded indexes, as if their cache was too small."""
        if self.broker is not None:
            indexes = self.broker.store.open_files.indexes
            indexes._loaded.clear()
            indexes._size_bytes = 0

    def _slow_executors(self) -> None:
        disk, begin, begin_writes = self.disk, self.disk.executor, self.disk.async_writer

        def executor(name: str, threads: int = 1) -> Any:
            disk.latency = lambda: (self.delays.get(name, 0.0), 0.0)
            return begin(name, threads)

        def async_writer() -> Any:
            rng = self.rng(f"writes of life {self.lives}")
            disk.latency = lambda: (rng.random() * self.delays["journal"], rng.random() * self.delays["journal"])
            return begin_writes()

        disk.executor = executor  # type: ignore[method-assign]
        disk.async_writer = async_writer  # type: ignore[method-assign]

    def _look_for_failures(self) -> None:
        if self.broker is not None:
            self.failures += [f"in the broker: {error!r}" for error in self.broker.metrics.failures]
            self.errors.update(self.broker.metrics.errors)

    def _complained(self, loop: Any, context: dict[str, Any]) -> None:
        """Note an exception that nobody handled; not once the history is closed, when killed clients are ended."""
        if not self.history.closed:
            self.failures.append(f"unhandled: {context['message']} {context.get('exception')!r}"[:400])

    def end(self) -> None:
        """Note the failures of the last broker, and kill it."""
        self._look_for_failures()
        self.kill(power=False)

    def bury(self) -> None:
        """Only to be called when the history was checked: end what killed clients were about to do. The history takes
        in nothing of it.
        """
        self.history.closed = True
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of coroutines that nobody will ever await
            for process in self.killed:
                process.bury()


class Quiet:
    """Logs of brokers that are killed all the time are noise; bugs are found in metrics.failures."""

    def __enter__(self) -> None:
        self._level = logging.root.manager.disable
        logging.disable(logging.CRITICAL)

    def __exit__(self, *_: object) -> None:
        logging.disable(self._level)
