"""A broker: the parts that it is made of, and the order in which they start and stop.

Begin: recover the data directory, read the catalogue and the coordinators' logs, end what was decided, and then, only
then, listen. End: listen no more, let the open round become durable and its replies leave, close the connections, say
on disk that all is synced, let go of the directory. A failed write or sync halts it instead: nobody is answered any
more.
"""

import asyncio
import logging
from collections.abc import Callable, Collection

from ..effects.clock import Clock, SystemClock
from ..effects.counts import count_text
from ..effects.disk import DirectoryMoved, Disk, DiskLow, Executor, SystemDisk
from ..effects.net import Net, SystemNet
from ..effects.rng import Rng, SystemRng
from ..protocol.primitives import Readable
from ..storage.log.partition_log import PartitionLog
from ..storage.objects.errors import Fenced
from ..storage.objects.format import WINDOW
from ..storage.recovery import RecoveryReport, open_store
from .config.live_settings import LiveSettings
from .config.settings import BrokerSettings
from .groups.configs import ConfigsByGroup
from .groups.consumer.coordinator import ConsumerGroups
from .groups.coordinator import GroupCoordinator
from .groups.kinds import GroupKinds
from .groups.offset_log import GroupOffsets
from .groups.share.coordinator import ShareGroups
from .listeners.listeners import Listeners
from .metrics import Metrics
from .net.connection import Connection
from .net.early_clients import EarlyClients
from .net.server import UNBOUNDED, ServedConnection, Server
from .net.timed_waiting import TimedWaiting
from .net.turns import Turns
from .net.waiting_places import WaitingPlaces
from .ownership.owner import InStore, StoreOwner
from .part_settings import housekeeping_settings, store_settings
from .producers.names_log import NamedProducers
from .quotas.connection_pace import ConnectionPace
from .quotas.limits import Measures
from .quotas.mutes import Mutes
from .quotas.rates import Windows
from .requests.dispatch import Dispatcher
from .requests.fetch_sessions import FetchSessions
from .requests.request_times import RequestTimes
from .requests.safe_pattern import SafePattern
from .requests.services import Services
from .requests.share.session_ends import end_sessions_of
from .requests.share.sessions import ShareSessions
from .requests.throttling import Throttling
from .rounds import Rounds
from .security.access import Access
from .security.authorizer import Authorizer
from .security.principals import parse_super_users
from .security.security_log import SecurityLog
from .security.security_state import SecurityState
from .share.partitions import SharePartitions
from .shared import Shared
from .stopping import Stopping
from .topics.catalogue_log import NoRoom
from .topics.names import OFFSETS_TOPIC, SHARE_STATE_TOPIC
from .topics.producer_limit import ProducerLimit
from .topics.topics import Topics
from .transactions.admission import Admission
from .transactions.coordinator import TransactionCoordinator
from .transactions.ledger_log import Ledger
from .transactions.settling import settle
from .transactions.sweeps import Sweeps
from .upkeep.coordinator_snapshots import CoordinatorSnapshots, read_from
from .upkeep.coordinator_sources import sources_of
from .upkeep.housekeeping import Housekeeping
from .upkeep.restored import fence_all, forget_mark, was_restored

log = logging.getLogger("fencepost.broker")

Serve = Callable[[Connection, Readable], None]

READ_THREADS = 4
RECORD_THREADS = 2  # they look into batches, which takes time of the processor: reads do not queue behind that
SEGMENT_THREADS = 5  # a flush takes two, a checkpoint, a removal and a file made ahead one each


class Broker(Services):
    """One broker on one data directory, in the event loop that runs start(). Handlers get it as Services."""

    coordinator_snapshots: CoordinatorSnapshots
    recovery: RecoveryReport

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        disk: Disk | None = None,
        clock: Clock | None = None,
        rng: Rng | None = None,
        net: Net | None = None,
        most_connections: int = UNBOUNDED,
        ignore_dynamic: bool = False,
        in_store: InStore | None = None,
    ) -> None:
        """most_connections: how many connections the process can serve, whatever the settings say.

        ignore_dynamic: settings changed at runtime have no effect until the next start without it. in_store: None if
        the journal is local.
        """
        self.live_settings = LiveSettings(settings)
        self.ignore_dynamic = ignore_dynamic
        self.most_connections = most_connections
        self.disk = disk or SystemDisk()
        self.clock = clock or SystemClock()
        self.rng = rng or SystemRng()
        self.net = net or SystemNet()
        self.metrics = Metrics()
        self.waiting = TimedWaiting(self.clock)
        self.waiting_places = WaitingPlaces()
        self.fetch_sessions = FetchSessions(
            settings.max_incremental_fetch_session_cache_slots,
            settings.min_incremental_fetch_session_eviction_ms,
            lambda: self.rng.below(2**31 - 1) + 1,
        )
        self.share_sessions = ShareSessions()
        self.on_halt: list[Callable[[BaseException], None]] = []
        self._between: Callable[[Serve], Serve] | None = None
        self._executors: list[Executor] = []
        self._in_store = in_store
        self._owner: StoreOwner | None = None
        self._started = False

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """The addresses that the broker listens on, (host, port), with the ports that the system chose."""
        return self.server.addresses

    @property
    def halted(self) -> BaseException | None:
        """The error with which the broker failed, after which it answers nothing; None while it works."""
        return self.store.halted

    # ---- start and stop --------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Recover the data directory, then begin to serve clients.

        Raises what open_store raises; CannotStartThread; OSError for an address; DiskLow for a new data directory.
        """
        began_ms = self.clock.monotonic_ms()
        try:
            self._start_executors()
            await self._open_store()
        except BaseException:
            self._close_executors()
            raise
        self._loop = asyncio.get_running_loop()
        self._journal_writer = self._owner.writer(self._loop) if self._owner else self.disk.async_writer()
        self._started = True
        try:
            self._assemble()
            self._remember_appended()
            admissions = self.listeners.admissions(self.security_log)
            await settle(self.shared, self.transactions)
            if restored := was_restored(self.disk, self.settings.log_dir):
                assigned = (self.consumer_groups, self.share_groups)
                await fence_all(self.shared, self.groups, assigned, self.transactions, self.named_producers)
            self.housekeeping.keep(self._sweeps.abort_late())
            await self.idle()  # what recovery, the catalogue and transactions began is durable before anyone can ask
            self.store.check_running()
            if restored:
                forget_mark(self.disk, self.settings.log_dir, self.shared)
            await self.server.listen(admissions)
            self.listeners.start()
            self.metrics.recovery_ms = self.clock.monotonic_ms() - began_ms
        except NoRoom as refused:
            await self.stop()
            raise DiskLow(refused.text) from None
        except BaseException:
            await self.stop()
            raise

    def store_silent_ms(self) -> int:
        """Return for how many ms the broker has waited for a needed answer of its object store; 0 if for none."""
        return 0 if self._owner is None else self._owner.silent_ms()

    def give_up(self) -> None:
        """Make a start() that waits for an object store raise StoppedWaiting; CancelledError if it was cancelled."""
        if self._owner is not None:
            self._owner.stop()

    def _start_executors(self) -> None:
        """Start the worker threads, before the data directory is touched: the broker cannot start without them."""
        self.read_executor = self._executor("reads", READ_THREADS)
        self.records_executor = self._executor("records", RECORD_THREADS)
        self._segments_executor = self._executor("segments", SEGMENT_THREADS)
        self._journal_executor = self._executor("journal", 1)

    def _executor(self, name: str, threads: int) -> Executor:
        """Create a named queue of worker threads, which the broker closes when it stops."""
        executor = self.disk.executor(name, threads)
        self._executors.append(executor)
        return executor

    def _close_executors(self) -> None:
        """Wait for the jobs of all worker threads, then end the threads."""
        for executor in self._executors:
            executor.close()
        self._executors.clear()

    async def _open_store(self) -> None:
        """Open and recover the data directory. If the journal is in an object store, become its owner first."""
        directory, settings = self.settings.log_dir, store_settings(self.live_settings)
        look_from = read_from(self.disk, directory)
        if self._in_store is None:
            self.store, self.recovery = open_store(self.disk, self.clock, self.rng, directory, settings, look_from)
            return
        self._owner = owner = StoreOwner(
            self._in_store,
            self.disk,
            self.clock,
            self.rng,
            self._executor("store", WINDOW),
            self._executor("points", 1),
            directory=directory,
            settings=self.settings,
            early_clients=EarlyClients(self.net, self.settings),
        )
        self.store, self.recovery = await owner.open(settings, look_from)
        self.other_nodes = owner.other_nodes
        self.metrics.store_of_objects = owner

    def _begin_rounds(self) -> None:
        """Create the objects that write and sync the journal in rounds, and that measure request times."""
        self.times = RequestTimes(self.metrics, self.store, self.clock.work_ns)
        self.rounds = Rounds(
            self.store,
            self._journal_executor,
            self._loop,
            self.metrics,
            sync_every_ms=self.settings.durability_interval_ms,
            times=self.times,
            writer=self._journal_writer,
            pace=self._owner.pace if self._owner else None,
        )

    def _assemble(self) -> None:
        loop = self._loop
        self._begin_rounds()
        self.producer_limit = ProducerLimit(self.store, lambda: self.settings.max_producer_ids)
        self.turns = Turns(self.store, self.clock, loop.call_soon, lambda: not self._started)
        self.rounds.on_release.append(self._wake_readers)
        self.rounds.on_halt.append(self._cut_all)
        self.housekeeping = Housekeeping(
            self.store,
            self.rounds,
            self._segments_executor,
            loop,
            self.clock,
            housekeeping_settings(self.live_settings),
        )
        self.topics = Topics(
            self.store,
            self.clock,
            self.rng,
            self.live_settings,
            self.waiting.wake,
            ignore_dynamic=self.ignore_dynamic,
            owned_epoch=self._owner.epoch if self._owner else 0,
        )
        self.topics.load()
        self._load_security()
        self._begin_quotas()
        self.shared = shared = self._what_coordinators_share()
        self._begin_groups(shared)
        self._begin_transactions(shared)
        self.ledger = Ledger(shared, self.transactions)
        self.named_producers = NamedProducers(shared)
        of_shares = self.share_partitions.state_log
        sources = sources_of(self.group_offsets, self.transactions, self.ledger, of_shares, self.named_producers)
        self.coordinator_snapshots = CoordinatorSnapshots(
            shared, self.disk, self.housekeeping, self.rounds.halt, sources
        )
        self._load_coordinators()
        self._serve = Dispatcher(self).serve
        self.server = Server(
            self.net, self.clock, loop, lambda: self.settings, self.store, self.rounds, self.metrics, self._serve
        )
        self.listeners = Listeners(self.server, self.clock, self.rng, loop, lambda: self.settings, self.disk)
        self.server.at_end.append(self._end_share_sessions)
        self.server.pace = self._connection_pace()
        self.intercept(self._between)
        self.server.most_connections = self.most_connections
        self.housekeeping.on_relief.append(self.server.relieve)
        self.housekeeping.on_failure.append(self.metrics.failed)
        self.housekeeping.on_tick.append(self.metrics.loop_lag_ms.add)
        self.housekeeping.on_expiry.append(lambda log: self.producer_limit.look([log]))
        self.housekeeping.timeout_pending = lambda: bool(self.transactions.open)
        self._begin_tasks(shared)

    def _begin_tasks(self, shared: Shared) -> None:
        """Start the background tasks, which run until the broker stops."""
        self.housekeeping.start()
        if self._owner is not None:
            for task in self._owner.tasks(self.rounds, self.server, self.housekeeping.pause):
                self.housekeeping.keep(task)
        self._sweeps = Sweeps(shared, self.transactions)
        self.housekeeping.keep(self._sweeps.expire_ids())
        self.housekeeping.keep(self.ledger.watch())
        self.housekeeping.keep(self.group_kinds.forget_from_time_to_time())
        self.housekeeping.keep(self.group_offsets.forget_from_time_to_time())
        self.housekeeping.keep(self.share_partitions.state_log.prune_from_time_to_time())
        self.housekeeping.before_checkpoint.append(self.coordinator_snapshots.take_if_due)

    def _load_coordinators(self) -> None:
        """Load the state of groups, transactions, the ledger and named producers, from snapshots and logs."""
        self.coordinator_snapshots.restore()
        self.group_offsets.load()
        self.groups.start()
        self.consumer_groups.start()
        self.share_groups.start()
        self.transactions.load()
        self.ledger.load()
        self.named_producers.load()
        self.share_partitions.load()
        self.coordinator_snapshots.complete = True

    def _remember_appended(self) -> None:
        """Note how much the logs contain already, because metrics count only what is appended from now on."""
        for topic in self.topics.by_name.values():
            for partition in topic.partitions:
                if partition.log.end_offset:
                    before = partition.log.end_offset, partition.appended_bytes
                    self.metrics.appended_before[partition.log.log_id] = before

    def _load_security(self) -> None:
        """Load users, ACLs and quotas from the security log, and create the access control."""
        settings = self.settings
        everyone = settings.allow_everyone_if_no_acl_found
        authorizer = Authorizer(parse_super_users(settings.super_users), allow_everyone_if_no_acl=everyone)
        self.access = Access(authorizer, is_enforced=bool(settings.authorizer_class_name))
        self.security_log = SecurityLog(self.topics, self.store, self.clock, SecurityState(authorizer))
        self.security_log.load()
        if len(authorizer) and not self.access.is_enforced:
            rules = count_text(len(authorizer), "rule of access is kept and not", "rules of access are kept and not")
            log.warning("%s enforced: set authorizer.class.name", rules)

    def _begin_groups(self, shared: Shared) -> None:
        """Create the coordinators of classic, consumer and share groups, and connect them. Nothing is loaded yet."""
        self.group_offsets = GroupOffsets(shared)
        self.groups = GroupCoordinator(shared, self.group_offsets, self._loop)
        self.group_configs = ConfigsByGroup(shared.topics, shared.settings)
        self.consumer_groups = ConsumerGroups(
            shared, self.group_configs, self.group_offsets.topic, self._loop, SafePattern, self.access
        )
        self.share_partitions = SharePartitions(shared, self.group_configs.obeyed, self._loop, self.waiting.wake)
        self.share_groups = ShareGroups(
            shared, self.group_configs, self.group_offsets.topic, self._loop, self.access, self.share_partitions
        )
        self.group_kinds = GroupKinds(shared, self.group_offsets, self.groups, self.consumer_groups, self.share_groups)
        self.group_offsets.groups = self.group_kinds

    def _begin_transactions(self, shared: Shared) -> None:
        participants = {OFFSETS_TOPIC: self.group_offsets.settle, SHARE_STATE_TOPIC: self.share_partitions.settle}
        self.transactions = TransactionCoordinator(shared, self.group_offsets, participants)
        self.share_partitions.transactional_id_of = self.transactions.by_producer_id.get
        self.admission = Admission(self.transactions, self.group_offsets, shared.clock, self._loop.call_later)

    def _begin_quotas(self) -> None:
        measures = Measures(self.security_log.state.quotas, self._windows, self._controller_windows)
        mutes = Mutes(self.clock, self._loop.call_later)
        self.throttling = Throttling(measures, mutes, self.clock, self.metrics)

    def _windows(self) -> Windows:
        return Windows(self.settings.quota_window_num, self.settings.quota_window_size_seconds * 1000)

    def _controller_windows(self) -> Windows:
        settings = self.settings
        return Windows(settings.controller_quota_window_num, settings.controller_quota_window_size_seconds * 1000)

    def _connection_pace(self) -> ConnectionPace[ServedConnection]:
        """Return the limit on new connections per second, from quotas and max.connection.creation.rate."""
        return ConnectionPace(
            self.security_log.state.quotas,
            self._windows,
            lambda: self.settings.max_connection_creation_rate,
            self.clock,
            self._loop.call_later,
            self.metrics,
            self.server.let_in,
        )

    def _what_coordinators_share(self) -> Shared:
        """Return the parts of the broker that every coordinator uses."""
        return Shared(
            store=self.store,
            clock=self.clock,
            rng=self.rng,
            settings=self.live_settings,
            metrics=self.metrics,
            turns=self.turns,
            topics=self.topics,
            tasks=self.housekeeping,
            known_offline=self.recovery.offline,
        )

    async def stop(self, *, is_used_again: bool = True) -> None:
        """Stop when all that was answered is durable. is_used_again: whether to prepare for a quick next start."""
        if self._owner is not None:
            self._owner.stop()
        if not self._started:
            return
        self._started = False
        stopping = Stopping(self.clock, self._loop, is_used_again=is_used_again)
        try:
            await self._end_work(stopping)
        finally:
            await self._close_store(stopping)

    async def _end_work(self, stopping: Stopping) -> None:
        """Stop listening, reading and groups, wait for open writes and answers, flush, and make the last checkpoint."""
        if hasattr(self, "listeners"):
            await self.server.stop_listening()
            self.listeners.stop()
            self.server.read_no_more()
            with stopping.waits_for("open writes to become durable"):
                await self.idle()
            with stopping.waits_for("clients to take their answers"):
                await self.server.stop()
        self.waiting.stop()
        if hasattr(self, "groups"):
            for each in (self.admission.awaited, self.groups, self.consumer_groups, self.share_groups):
                each.stop()
        if hasattr(self, "share_partitions"):
            self.share_partitions.stop()
        if hasattr(self, "coordinator_snapshots"):
            with stopping.waits_for("a snapshot of groups and transactions"):
                await self.coordinator_snapshots.take_last(stopping.has_time)
        if hasattr(self, "housekeeping"):
            with stopping.waits_for("flushes, checkpoints and cleaning to end"):
                await self.housekeeping.end_tasks()
            with stopping.waits_for("the last checkpoint"):
                await self.housekeeping.leave_tidy(stopping.has_time)

    async def _close_store(self, stopping: Stopping) -> None:
        """Sync and hand over the journal, close the listeners, and in any case close the store and release its lock."""
        try:
            if hasattr(self, "rounds"):
                self.rounds.end()
                if self.halted is None:
                    self.rounds.sync_soon()
                    with stopping.waits_for("the last sync of the journal"):
                        await self.idle()
                        if self._owner is not None and self.halted is None:
                            await self._owner.hand_over()
            if hasattr(self, "listeners"):
                self.listeners.close()
        finally:
            with stopping.waits_for("jobs of workers"):
                self._close_executors()
            if self._journal_writer is not None:
                self._journal_writer.close()
            await asyncio.sleep(0)  # for the last callbacks of the executors
            self.store.close()

    async def idle(self) -> None:
        """Wait until all that was written to the journal is durable, or the broker has failed."""
        if self.halted is not None:
            return
        idle = asyncio.Event()
        self.rounds.when_idle(idle.set)
        await idle.wait()
        await asyncio.sleep(0)

    def _cut_all(self, error: BaseException) -> None:
        """Log why the broker has failed, call the functions in on_halt, and close all connections."""
        if isinstance(error, DirectoryMoved | Fenced):
            log.critical("the broker is halted: %s; %s", error, error.hint)
        else:
            log.critical("the broker is halted: what is on disk is not known any more", exc_info=error)
        for callback in self.on_halt:  # first: a client whose connection ends may ask for the cause at once
            callback(error)
        if hasattr(self, "server"):
            self.server.abort_all()

    def _end_share_sessions(self, connection: Connection) -> None:
        """End the share sessions of a connection that has ended, which releases its acquired records."""
        if self._started and self.halted is None:
            end_sessions_of(self, connection)

    def intercept(self, between: Callable[[Serve], Serve] | None) -> None:
        """Replace the function that serves requests by between(function); None restores it. For faults in tests."""
        self._between = between
        if hasattr(self, "server"):
            self.server.serve = self._serve if between is None else between(self._serve)

    def _wake_readers(self, moved: Collection[PartitionLog]) -> None:
        """Wake the fetches that wait for these logs. Evict producers if there are too many now (producer_limit.py)."""
        self.waiting.wake(moved)
        self.producer_limit.look(moved)
