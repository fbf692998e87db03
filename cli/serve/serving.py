"""Runs `fencepost serve`: tunes the process, starts and stops the broker, prints its messages."""

import asyncio
import atexit
import contextlib
import ctypes
import functools
import gc
import os
import resource
import shlex
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ... import __version__
from ...broker.broker import Broker
from ...broker.config.configuration import EVERY_SETTING, UnknownName, broker_settings
from ...broker.config.descriptors import ENOUGH_OPEN_FILES, LEAST_DESCRIPTORS, RESERVE, Shares, shares
from ...broker.config.listener_settings import BY_TOKEN
from ...broker.config.options import InvalidOption
from ...broker.config.settings import BROKER_OPTIONS, BrokerSettings, Source
from ...broker.ownership.calls import StoppedWaiting
from ...broker.ownership.owner import InStore
from ...effects.clock import Clock, SystemClock
from ...effects.net import SystemNet, Writable
from ...effects.objects import BadUrl, open_at_each_address, open_shared
from ...effects.systemd import ALIVE, READY, STOPPING, ServiceManager
from ..output.failures import WRONG_USAGE, Failure
from ..output.writing import flush, log_to_standard_error, show
from .protection import check_protection, protection_lines
from .starting import explain_failure, halted
from .store_away import end_if_silent

if TYPE_CHECKING:
    from .console import HttpOptions
    from .following import BackupOptions, Following

MIB = 1 << 20
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of mallopt(3)
GC_THRESHOLDS = (1_000, 0, 0)  # older objects are frozen, so a collection examines at most 1,000: 0.1 ms of the loop
OLDEST = 2  # the number of the collector's oldest generation
DELETED_LOGS = 1_000  # deletions after which a full collection may free much of what was frozen
FULL_COLLECTION_INTERVALS = 10_000  # a full collection takes at most 1/10,000 of the time
FIRST_FULL_COLLECTION_S = 60.0
REMOVAL_MS = 3_000
WAITS_FOR = "until its object store answers, and no other broker owns the journal there"
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def run(
    flags: Mapping[str, str],
    file: Mapping[str, Any],
    file_name: str,
    *,
    ephemeral: bool,
    ignore_dynamic: bool = False,
    http: "HttpOptions | None" = None,
    backup: "BackupOptions | None" = None,
    insecure: bool = False,
    store: str | None = None,
    is_standby: bool = False,
) -> None:
    """Serve until a signal, with the console beside it. Raises Failure; returns after a clean stop."""
    began = time.monotonic()
    _open_standard_files()
    settings = _settings(flags, file, file_name)
    check_protection(settings)
    if http is not None:
        http.check(settings, insecure=insecure)
    log_to_standard_error()
    tune_process()
    settings, limits = _within_descriptors(settings)
    scratch = tempfile.mkdtemp(prefix="fencepost-") if ephemeral else None
    try:
        if scratch is not None:
            settings = settings.with_layer(
                Source.STATIC_BROKER, {**settings.layers[Source.STATIC_BROKER], "log.dir": scratch}
            )
        in_store = _in_store(store, is_standby=is_standby) if store is not None else None
        server = _Server(settings, began, limits, ephemeral=ephemeral, ignore_dynamic=ignore_dynamic, in_store=in_store)
        if http is not None:
            server.console = functools.partial(http.command, insecure=insecure)
        server.backup = backup
        _run_loop(server.run())
    finally:
        if scratch is not None:
            remove_scratch(scratch, SystemClock())


def _in_store(url: str, *, is_standby: bool) -> InStore:
    """Open the object store of the journal. Raises Failure."""
    try:
        return InStore(open_shared(url), time.sleep, open_at_each_address(url), is_standby)
    except BadUrl as error:
        raise Failure(str(error), error.hint, WRONG_USAGE) from None


def remove_scratch(path: str, clock: Clock) -> None:
    """Remove an ephemeral broker's directory. After REMOVAL_MS it stops, and prints that the rest is left."""
    until_ms = clock.monotonic_ms() + REMOVAL_MS
    for folder, folders, files in os.walk(path, topdown=False):
        for remove, names in ((os.unlink, files), (os.rmdir, folders)):
            for name in names:
                if clock.monotonic_ms() >= until_ms:
                    show(f"warning: removing {path} takes long: what is left of it can be removed now", err=True)
                    return
                with contextlib.suppress(OSError):
                    remove(os.path.join(folder, name))
    with contextlib.suppress(OSError):
        os.rmdir(path)


def _open_standard_files() -> None:
    """Open the null device for each of the descriptors 0, 1 and 2 that is closed.

    Otherwise a file of the data directory or a socket would get the number. C libraries write messages to number 2, and
    libuv aborts the process when it closes one of the three. If a library has taken the number before (libffi keeps its
    own file open), it stays that library's, and printed text goes to the null device all the same.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number
    sys.stdout = sys.stdout or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    sys.stderr = sys.stderr or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")


def _settings(flags: Mapping[str, str], file: Mapping[str, Any], file_name: str) -> BrokerSettings:
    """Return the broker's settings from flags, environment and file, and print warnings. Raises Failure for a wrong
    one.
    """
    try:
        settings, warnings = broker_settings(flags, os.environ, file, file_name)
    except UnknownName as error:
        raise Failure(str(error), error.hint, WRONG_USAGE) from None
    except InvalidOption as error:
        row = BROKER_OPTIONS.get(error.name)
        raise Failure(str(error), error.hint or (row.doc if row else EVERY_SETTING), WRONG_USAGE) from None
    for warning in warnings:
        show(f"warning: {warning}", err=True)
    return settings


def _within_descriptors(settings: BrokerSettings) -> tuple[BrokerSettings, Shares | None]:
    """Return settings that fit the process's file descriptors, and how these are divided (None: no limit on them).
    Raises Failure if there are too few.
    """
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return settings, None
    hint = "raise the limit: ulimit -n, LimitNOFILE= of systemd, --ulimit nofile of docker"
    if descriptors < LEAST_DESCRIPTORS:
        raise Failure(f"this process may open only {descriptors} files; {LEAST_DESCRIPTORS} are needed", hint)
    layer = settings.layers.get(Source.STATIC_BROKER, {})
    open_files = settings.max_open_files
    if "max.open.files" not in layer:
        open_files = max(open_files, min(ENOUGH_OPEN_FILES, descriptors - settings.max_connections - 2 * RESERVE))
    limits = shares(descriptors, open_files, settings.max_connections)
    if limits.connections < settings.max_connections:
        text = f"this process may open {descriptors} files: it accepts {limits.connections} connections"
        show(f"warning: {text}, not {settings.max_connections} (max.connections); {hint}", err=True)
    if limits.open_files != settings.max_open_files:
        settings = settings.with_layer(Source.STATIC_BROKER, {**layer, "max.open.files": str(limits.open_files)})
    return settings, limits


def tune_process() -> None:
    """Tune a process that only runs a broker: keep freed memory, collect rarely, open as many files as allowed.

    There is no collection before the broker serves: the objects of recovery live on or have no cycles. What exists by
    then is frozen: a collection that examines a million objects would stop the loop for 100 ms.
    """
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc only
        if mallopt is not None:
            mallopt(M_MMAP_THRESHOLD, 64 * MIB)
            mallopt(M_TRIM_THRESHOLD, 256 * MIB)
    gc.disable()
    gc.set_threshold(*GC_THRESHOLDS)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError):  # macOS has a lower limit of its own
            pass


def _run_loop(main: Any) -> None:
    """Run `main` on uvloop where it is installed, else on asyncio's own loop."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
    else:
        uvloop.run(main)


def _ignore_signals() -> None:
    """Ignore signals from now on, so that none changes the exit code in Python's last steps."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


class GcFreezer:
    """Freezes the objects that survive a garbage collection, so that the next one examines only newer objects.

    A broker can have hundreds of thousands of producers, ids and members; examining them all would stop the loop for
    100 ms. A frozen object is still freed with its last reference, but a frozen reference cycle is not. So there is a
    full collection after many topics were deleted, and one from time to time: the longer it takes, the less often.
    """

    def __init__(self, broker: Broker, now_s: Callable[[], float] = time.monotonic) -> None:
        self._store = broker.store
        self._now_s = now_s
        self._deleted = self._count_deleted()
        self._full = False  # whether the next collection of the oldest generation examines everything
        self._began_s = now_s()
        self._due_s = self._began_s + FIRST_FULL_COLLECTION_S

    def collected(self, phase: str, about: Mapping[str, int]) -> None:
        """After a collection, freeze the objects that survived it; if a full collection is due, unfreeze everything
        for the next collection instead. A callback of gc.callbacks: phase is "start" or "stop".
        """
        now_s = self._now_s()
        if phase == "start":
            self._began_s = now_s
        elif self._full:
            if about["generation"] == OLDEST:
                self._full = False
                took_s = now_s - self._began_s
                self._due_s = now_s + max(FIRST_FULL_COLLECTION_S, FULL_COLLECTION_INTERVALS * took_s)
                gc.freeze()
        elif now_s >= self._due_s or self._count_deleted() - self._deleted >= DELETED_LOGS:
            self._deleted = self._count_deleted()
            self._full = True
            gc.unfreeze()
        else:
            gc.freeze()

    def _count_deleted(self) -> int:
        """Return how many logs were ever deleted."""
        return self._store.next_log_id - len(self._store.logs)


class _Server:
    """Runs a broker until a signal or a halt."""

    def __init__(
        self,
        settings: BrokerSettings,
        began: float,
        limits: Shares | None,
        *,
        ephemeral: bool,
        ignore_dynamic: bool,
        in_store: InStore | None = None,
    ) -> None:
        self._settings = settings
        self._began = began
        self._ephemeral = ephemeral
        if limits:
            Writable.room = threading.Semaphore(limits.half_sent)
        self._broker = (
            Broker(
                settings,
                net=SystemNet(limits.backlog),
                most_connections=limits.connections,
                ignore_dynamic=ignore_dynamic,
                in_store=in_store,
            )
            if limits
            else Broker(settings, ignore_dynamic=ignore_dynamic, in_store=in_store)
        )
        self._in_store = in_store
        self._end = asyncio.Event()
        self._signals = 0
        self._gave_up = False
        self._manager = ServiceManager(os.environ)
        self.console: Callable[..., list[str]] | None = None  # its command line, for the broker's address
        self._running_console: asyncio.Task[None] | None = None
        self.backup: BackupOptions | None = None
        self._following: Following | None = None

    async def run(self) -> None:
        """Start, print the ready line, wait for a signal or a halt, stop."""
        self._loop = asyncio.get_running_loop()
        for number in SIGNALS:
            signal.signal(number, self._on_signal)  # the loop's handlers would not run during recovery
        atexit.register(_ignore_signals)
        self._broker.on_halt.append(lambda _: self._end.set())
        self._make_directory()
        try:
            await self._start_and_serve()
        finally:
            await self._end_children()

    async def _start_and_serve(self) -> None:
        """Start the broker, serve until a signal or a halt, and stop it. Raises Failure."""
        try:
            await self._start()
        except Exception as error:
            failure = explain_failure(error, self._settings)
            if failure is None:
                raise
            raise failure from None
        if self._gave_up:
            return
        gc.freeze()
        gc.callbacks.append(GcFreezer(self._broker).collected)
        gc.enable()
        if not self._signals:
            await self._serve()
        await self._stop()

    async def _start(self) -> None:
        """Start the broker; with a journal in a store that may take any time, so a signal ends it."""
        if self._in_store is None:
            await self._broker.start()
            return
        if (addresses := self._early_addresses()) is not None:
            self._start_console(addresses, WAITS_FOR)
        starting = asyncio.create_task(self._broker.start(), name="start")
        ending = asyncio.create_task(self._end.wait(), name="end")
        await asyncio.wait({starting, ending}, return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        if not starting.done() and self._signals:  # else the broker has halted, and the start says why
            self._gave_up = True
            self._end_if_store_is_silent()
            self._broker.give_up()
            starting.cancel()
        with contextlib.suppress(*((asyncio.CancelledError, StoppedWaiting) if self._gave_up else ())):
            await starting

    def _early_addresses(self) -> list[tuple[str, int]] | None:
        """Return the addresses for a console that runs while the broker waits for its store; None if none is wanted,
        or they are not known yet.
        """
        if self.console is None:
            return None
        from .console import known_addresses

        return known_addresses(self._settings)

    def _end_if_store_is_silent(self) -> None:
        """End the process, which is stopping, if the journal's object store does not answer."""
        if self._in_store is not None:
            end_if_silent(self._in_store.objects.where, self._broker.store_silent_ms)

    async def _serve(self) -> None:
        """Print the ready lines, and serve until a signal or a halt. Raises Failure after a halt."""
        try:
            self._print_ready()
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else the flush at the exit fails too
            await self._broker.stop(is_used_again=not self._ephemeral)
            hint = "the ready line goes to standard output: redirect it to a file, a pipe or /dev/null"
            raise Failure(f"standard output cannot be written: {error.strerror}", hint) from None
        self._manager.notify(READY)
        self._report_alive()
        self._start_console(self._broker.addresses)
        self._start_following()
        await self._end.wait()
        if self._running_console is not None:
            self._running_console.cancel()  # it ends while the broker stops; _end_children() waits for it

    def _start_console(self, addresses: Sequence[tuple[str, int]], waits_for: str = "") -> None:
        """Start the console's process, if it is wanted and not running yet. addresses: the broker's. waits_for: what
        the broker may wait for before it listens there.
        """
        if self.console is None or self._running_console is not None:
            return
        from .console import bootstrap_of, run_console

        command = self.console(bootstrap_of(self._settings, addresses), waits_for=waits_for)
        self._running_console = asyncio.create_task(run_console(command), name="console")

    def _start_following(self) -> None:
        """Start the process that ships the data directory to a store, if it is wanted."""
        if self.backup is None:
            return
        from .following import Following

        command = self.backup.command(os.path.abspath(self._settings.log_dir))
        self._following = Following(command, self._broker.metrics, SystemClock())

    async def _end_children(self) -> None:
        """End the processes of backup and console. The backup first ships the rest of the data."""
        if self._following is not None:
            await self._following.end()
        if self._running_console is not None:
            from .console import end_console

            await end_console(self._running_console)

    def _report_alive(self) -> None:
        """If the service manager has asked for it, tell it that the process is alive, now and at each interval."""
        interval_s = self._manager.alive_interval_s
        if interval_s is not None:
            self._manager.notify(ALIVE)
            self._loop.call_later(interval_s, self._report_alive)

    def _on_signal(self, number: int, frame: object) -> None:
        """Stop the broker at the first signal, and end the process at once at the second.

        SIGHUP, if a listener uses TLS, only loads the certificates again.
        """
        if number == signal.SIGHUP and any(one.uses_tls for one in self._settings.served_listeners):
            self._loop.call_soon_threadsafe(self._load_certificates)
            return
        self._signals += 1
        if self._signals > 1:
            os._exit(128 + number)
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._end.set)

    def _load_certificates(self) -> None:
        """Load the certificates of all listeners again. Does nothing while the broker starts."""
        if hasattr(self._broker, "listeners"):
            self._broker.listeners.reload_certificates()

    def _make_directory(self) -> None:
        """Create the default directory with a .gitignore: it is in the working directory, often a repository."""
        directory = Path(self._settings.log_dir)
        default = self._settings.log_dir == BROKER_OPTIONS["log.dir"].default
        if default and not directory.exists():
            try:
                directory.mkdir(mode=0o750)
                (directory / ".gitignore").write_text("*\n")
            except OSError:
                pass  # the broker's start fails with the reason

    def _print_ready(self) -> None:
        """Print version, data directory, durability, listeners and console."""
        broker = self._broker
        where = "removed at the end" if self._ephemeral else os.path.abspath(self._settings.log_dir)
        show(f"fencepost  {__version__}, process {os.getpid()}")
        show(f"data       {where}")
        if self._in_store is not None:
            show(f"store      {self._in_store.objects.where}, epoch {broker.store.incarnation}")
        show(f"durability {self._settings.durability_mode}{_warning_of(self._settings.durability_mode)}")
        for line in protection_lines(self._settings):
            show(f"listener   {line}")
        if _nobody_can_log_in(broker):
            show(f"warning: {no_users_text(self._settings.log_dir, ephemeral=self._ephemeral)}", err=True)
        for line in _recovery_lines(broker):
            show(f"recovered  {line}")
        show(f"started    in {time.monotonic() - self._began:.2f} s, topics: {len(broker.topics.by_name)}")
        show("ready      " + " ".join(_address(host, port) for host, port in broker.addresses))
        flush()

    async def _stop(self) -> None:
        """Stop the broker in an orderly way. Raises Failure if it halted for a fatal error."""
        self._manager.notify(STOPPING)
        if self._broker.halted is None:
            show("stopping   open writes become durable first", err=True)
            self._end_if_store_is_silent()
        await self._broker.stop(is_used_again=not self._ephemeral)
        if (cause := self._broker.halted) is not None:  # before, or while it stopped
            raise halted(cause)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _nobody_can_log_in(broker: Broker) -> bool:
    """Return whether every listener requires a password and no user has one."""
    listeners = broker.settings.served_listeners
    by_password = all(one.asks_for_login and one.options.sasl_enabled_mechanisms != (BY_TOKEN,) for one in listeners)
    return by_password and not broker.security_log.state.users.names


def no_users_text(directory: str, *, ephemeral: bool) -> str:
    """Return the message for a broker whose clients need a password while no user has one."""
    if ephemeral:
        return "there are no users, and a new directory never has any: use --data-dir DIR instead of --ephemeral"
    where = shlex.quote(os.path.abspath(directory))
    return f"there are no users yet: stop it, and run fencepost user add NAME --data-dir {where}"


def _warning_of(mode: str) -> str:
    return "" if mode == "fsync" else "  (acknowledged records may be lost at a power cut)"


def _recovery_lines(broker: Broker) -> list[str]:
    """Return lines about what the recovery at start did and found."""
    report = broker.recovery
    lines = [f"{report.units_replayed} units of the journal"] if report.units_replayed else []
    if report.cut_bytes:
        lines.append(f"{report.cut_bytes} bytes cut that were never synced: {report.cut_reason}")
    lines += report.warnings
    lines += [f"OFFLINE {folder}: {reason}" for folder, reason in report.offline.items()]
    return lines
