"""Runs `fencepost serve`: tunes the process, starts and stops the broker, prints its messages."""

import asyncio
import ctypes
import gc
import logging
import os
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from ... import __version__
from ...broker.broker import Broker
from ...broker.config.configuration import UnknownName, broker_settings
from ...broker.config.options import InvalidOption
from ...broker.config.settings import BROKER_OPTIONS, BrokerSettings, Source
from ...broker.descriptors import ENOUGH_OPEN_FILES, LEAST_DESCRIPTORS, RESERVE, Shares, shares
from ...effects.net import SystemNet, Writable
from ..failures import WRONG_USAGE, Failure
from .starting import halted, why_not

MIB = 1 << 20
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of mallopt(3)
GC_THRESHOLDS = (5_000, 0, 0)  # with all that was there before frozen, each looks at so many objects: 2 ms
OLDEST = 2  # of the collector's generations
LOGS_GONE = 1_000  # with so many deleted partitions, what was frozen may hold much that nobody uses
LOOKS_APART = 10_000  # looking at everything takes at most one part in so many of the time
FIRST_LOOK_S = 60.0


def run(
    flags: Mapping[str, str],
    file: Mapping[str, Any],
    file_name: str,
    *,
    ephemeral: bool,
    ignore_dynamic: bool = False,
) -> None:
    """Serve until a signal. Raises Failure; returns after a clean stop."""
    began = time.monotonic()
    _open_standard_files()
    settings = _settings(flags, file, file_name)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    tune_process()
    settings, most = _within_descriptors(settings)
    scratch = tempfile.mkdtemp(prefix="fencepost-") if ephemeral else None
    try:
        if scratch is not None:
            settings = settings.with_layer(
                Source.STATIC_BROKER, {**settings.layers[Source.STATIC_BROKER], "log.dir": scratch}
            )
        _run_loop(_Life(settings, began, most, ephemeral=ephemeral, ignore_dynamic=ignore_dynamic).live())
    finally:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)


def _open_standard_files() -> None:
    """Where they were closed, the null device: else files of the data directory and sockets would get their numbers.

    What a library in C has to say goes to number 2, and libuv ends the process when it is to close one of the three.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")


def _settings(flags: Mapping[str, str], file: Mapping[str, Any], file_name: str) -> BrokerSettings:
    try:
        settings, warnings = broker_settings(flags, os.environ, file, file_name)
    except UnknownName as error:
        raise Failure(str(error), error.hint, WRONG_USAGE) from None
    except InvalidOption as error:
        row = BROKER_OPTIONS.get(error.name)
        raise Failure(str(error), row.doc if row else "docs/settings.md lists every name", WRONG_USAGE) from None
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
    return settings


def _within_descriptors(settings: BrokerSettings) -> tuple[BrokerSettings, Shares | None]:
    """What the limit of descriptors leaves for open files, and for connections; None: it has no limit."""
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
    most = shares(descriptors, open_files, settings.max_connections)
    if most.connections < settings.max_connections:
        text = f"this process may open {descriptors} files: it takes {most.connections} connections"
        click.echo(f"warning: {text}, not {settings.max_connections} (max.connections); {hint}", err=True)
    if most.open_files != settings.max_open_files:
        settings = settings.with_layer(Source.STATIC_BROKER, {**layer, "max.open.files": str(most.open_files)})
    return settings, most


def tune_process() -> None:
    """For a process that is nothing but a broker: keep freed memory, collect seldom, open as many files as allowed.

    Nothing is collected before it serves (what recovery makes stays, or is freed without), and what it has by then is
    never looked at again: a collection over a million objects would take the loop 100 ms.
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
    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
    else:
        uvloop.run(main)


class Freezing:
    """What a collection leaves is frozen, so that the next one looks only at what came since.

    Producers, ids and members are made by the hundred thousand; looking at all of them would take the loop 100 ms. What
    is frozen is freed as ever when the last reference to it goes, but circles of it stay. So everything is looked at
    after many topics were deleted, and now and then: the longer that takes, the more seldom.
    """

    def __init__(self, broker: Broker, now_s: Callable[[], float] = time.monotonic) -> None:
        self._store = broker.store
        self._now_s = now_s
        self._logs_gone = self._count_gone()
        self._looks_at_all = False  # from now on, until everything was
        self._began_s = now_s()
        self._due_s = self._began_s + FIRST_LOOK_S

    def collected(self, phase: str, about: Mapping[str, int]) -> None:
        """As gc.callbacks asks."""
        now_s = self._now_s()
        if phase == "start":
            self._began_s = now_s
        elif self._looks_at_all:
            if about["generation"] == OLDEST:
                self._looks_at_all = False
                self._due_s = now_s + max(FIRST_LOOK_S, LOOKS_APART * (now_s - self._began_s))
                gc.freeze()
        elif now_s >= self._due_s or self._count_gone() - self._logs_gone >= LOGS_GONE:
            self._logs_gone = self._count_gone()
            self._looks_at_all = True
            gc.unfreeze()
        else:
            gc.freeze()

    def _count_gone(self) -> int:
        return self._store.next_log_id - len(self._store.logs)


class _Life:
    """From settings to the end of the process."""

    def __init__(
        self, settings: BrokerSettings, began: float, most: Shares | None, *, ephemeral: bool, ignore_dynamic: bool
    ) -> None:
        self._settings = settings
        self._began = began
        self._ephemeral = ephemeral
        if most:
            Writable.room = threading.Semaphore(most.half_sent)
        self._broker = (
            Broker(
                settings,
                net=SystemNet(most.backlog),
                most_connections=most.connections,
                ignore_dynamic=ignore_dynamic,
            )
            if most
            else Broker(settings, ignore_dynamic=ignore_dynamic)
        )
        self._end = asyncio.Event()
        self._signals = 0

    async def live(self) -> None:
        """Start, say so, wait for a signal or a halt, stop."""
        self._loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_signal)  # the loop's own would not be heard while recovery works
        self._broker.on_halt.append(lambda _: self._end.set())
        self._make_directory()
        try:
            await self._broker.start()
        except Exception as error:
            failure = why_not(error, self._settings)
            if failure is None:
                raise
            raise failure from None
        gc.freeze()
        gc.callbacks.append(Freezing(self._broker).collected)
        gc.enable()
        if not self._signals:
            await self._serve()
        await self._stop()

    async def _serve(self) -> None:
        try:
            self._say_ready()
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is buffered has nowhere to go
            await self._broker.stop()
            hint = "the ready line goes to standard output: give it a place, or /dev/null"
            raise Failure(f"standard output: {error.strerror}", hint) from None
        await self._end.wait()

    def _on_signal(self, number: int, frame: object) -> None:
        """The first asks, the second does not."""
        self._signals += 1
        if self._signals > 1:
            os._exit(128 + number)
        self._loop.call_soon_threadsafe(self._end.set)

    def _make_directory(self) -> None:
        """The default directory lies in somebody's project: git is not to see it."""
        directory = Path(self._settings.log_dir)
        default = self._settings.log_dir == BROKER_OPTIONS["log.dir"].default
        if default and not directory.exists():
            try:
                directory.mkdir(mode=0o750)
                (directory / ".gitignore").write_text("*\n")
            except OSError:
                pass  # opening it will say why

    def _say_ready(self) -> None:
        broker = self._broker
        where = "gone when it ends" if self._ephemeral else os.path.abspath(self._settings.log_dir)
        click.echo(f"fencepost  {__version__}, process {os.getpid()}")
        click.echo(f"data       {where}")
        click.echo(f"durability {self._settings.durability_mode}{_warning_of(self._settings.durability_mode)}")
        for line in _recovery_lines(broker):
            click.echo(f"recovered  {line}")
        click.echo(f"started    in {time.monotonic() - self._began:.2f} s, topics: {len(broker.topics.by_name)}")
        click.echo("ready      " + " ".join(_shown(host, port) for host, port in broker.addresses))
        sys.stdout.flush()

    async def _stop(self) -> None:
        cause = self._broker.halted
        if cause is None:
            click.echo("stopping   what is open becomes durable first", err=True)
        await self._broker.stop()
        if cause is not None:
            raise halted(cause)


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _warning_of(mode: str) -> str:
    return "" if mode == "fsync" else "  (a power cut may take back what was acknowledged)"


def _recovery_lines(broker: Broker) -> list[str]:
    """What recovery has to say, where it had anything to do."""
    report = broker.recovery
    lines = [f"{report.units_replayed} units of the journal"] if report.units_replayed else []
    if report.cut_bytes:
        lines.append(f"{report.cut_bytes} bytes cut that nobody was told of: {report.cut_reason}")
    lines += report.warnings
    lines += [f"OFFLINE {folder}: {reason}" for folder, reason in report.offline.items()]
    return lines
