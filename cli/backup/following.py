"""`fencepost backup URL`: ships a data directory to a store of objects, once or with --follow until a signal."""

import os
import platform
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from ...effects.clock import SystemClock
from ...effects.counts import count_text
from ...effects.disk import Disk, SystemDisk
from ...effects.objects import Objects, ObjectsError, Refused
from ...effects.threads import start_thread
from ...storage.backup.manifest import BackupRefused
from ...storage.backup.source import locked_if_free
from ...storage.checkpoints import Damaged, NewerFormat
from ...storage.shipping.claims import Fenced, StillFollowed
from ...storage.shipping.following import Follower, Following
from ...storage.shipping.point import Claim
from ..output.copying import copying, failure_of, size_text
from ..output.failures import CONFLICT, DENIED, FAILED, Failure
from ..output.interruption import Interruption
from ..output.writing import flush, show, show_json
from .patience import Patience
from .watched import Told, prometheus_text, write_metrics

ONCE_S = 60.0  # for how long a store that does not answer is asked again; with --follow there is no limit
ENDING_S = 3.0
BUSY_S = 0.25  # the longest time between two looks while there is much to ship
WATCHED_S, WATCHED_INTERVALS = 3.0, 3
TOLD_EVERY_S, TOLD_AT_FIRST_S = 60.0, 10.0
NICE = 10


@dataclass(frozen=True)
class How:
    """The options of the command. beside_broker: it is a child of `serve`, which reads its reports from a pipe."""

    follow: bool
    every_ms: int
    keep_ms: int
    take_over: bool
    metrics_file: str | None
    beside_broker: bool
    as_json: bool
    made_by: str


def ship(directory: str, objects: Objects, how: How) -> None:
    """Run `fencepost backup` to an object store: once, or with --follow until a signal. Raises Failure."""
    with Interruption() as interruption:
        shipping = _Shipping(directory, objects, how, interruption)
        try:
            shipping.run()
        except KeyboardInterrupt:
            if not how.follow:
                raise
        except Exception as error:
            raise explain(error, directory) from None


class _Shipping:
    """One call of the command."""

    def __init__(self, directory: str, objects: Objects, how: How, interruption: Interruption) -> None:
        self._directory = directory
        self._objects = objects
        self._how = how
        self._interruption = interruption
        self._disk: Disk = SystemDisk()
        self._clock = SystemClock()
        self._patience = Patience(interruption.check, self._say, None if how.follow else ONCE_S)
        self._troubled = ""
        self._told_s = 0.0
        self._telling = threading.Lock()
        self._worst_ms = 0  # of the loss window, since the last line

    def run(self) -> None:
        """Ship once, or follow the directory until a signal or the broker's end."""
        how = self._how
        if how.beside_broker:
            os.nice(NICE)
            for number in (signal.SIGINT, signal.SIGTERM):  # it ends after the broker, whose last writes it ships
                signal.signal(number, signal.SIG_IGN)
            start_thread(self._end_with_standard_input, "until the broker ends")
        with self._held() as running, self._progress() as report:
            self._follower = Follower(
                self._disk,
                self._directory,
                self._objects,
                self._clock,
                Following(how.keep_ms, how.made_by),
                wait=self._patience,
                report=self._patience.noting(report),
                pause=self._pause,
            )
            self._begin()
            try:
                if how.follow:
                    self._follow()
                else:
                    self._follower.step(running=running)
            finally:
                self._end()
        if not how.follow:
            self._show_point(running)

    def _held(self) -> AbstractContextManager[bool]:
        """Return a context manager that keeps the directory open, and yields whether a broker runs on it. Without
        --follow it locks the directory if none runs.
        """
        if not self._how.follow:
            return locked_if_free(self._disk, self._directory)
        return _held(self._disk, self._directory)

    def _progress(self) -> AbstractContextManager[Callable[[int, int], None]]:
        """Return a context manager that yields a function for (done, total) bytes: it moves a progress bar for one
        backup, or prints lines about the first point.
        """
        if not self._how.follow:
            return copying(self._interruption, "shipped")
        return nullcontext(self._report_first_point)

    def _report_first_point(self, done: int, of: int) -> None:
        """Print, from time to time, how much of the first point is shipped. done, of: bytes."""
        self._interruption.check()
        if self._follower.loss_window_ms is None and time.monotonic() - self._told_s >= TOLD_AT_FIRST_S:
            self._told_s = time.monotonic()
            self._say(f"first point: {size_text(done)} of {size_text(of)} shipped")

    def _begin(self) -> None:
        """Claim the store's next epoch, after waiting to see whether another follower is at work, and print the
        warnings.
        """
        how = self._how
        mine = Claim(platform.node(), os.getpid(), os.path.abspath(self._directory), how.made_by, self._clock.now_ms())
        watched_s = max(WATCHED_S, WATCHED_INTERVALS * how.every_ms / 1000)
        epoch = self._follower.begin(mine, lambda: self._patience.wait(watched_s), take_over=how.take_over)
        for warning in self._follower.status.warnings:
            self._say(f"warning: {warning}")
        if how.follow:
            self._say(f"following {self._directory} into {self._objects.where}, epoch {epoch}")

    # ---- following ---------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        """Ship what is new, again and again until a signal. An error that may pass is printed once, and shipping is
        repeated.
        """
        patience = self._patience
        patience.tell = lambda: self._tell(False)
        while True:
            began_s = time.monotonic()
            try:
                took_point = self._follower.step()
            except (Fenced, NewerFormat):
                raise
            except (BackupRefused, ObjectsError, Damaged, OSError) as error:
                self._note_trouble(error)
                patience.wait(max(1.0, self._how.every_ms / 1000))
                continue
            patience.over()
            if self._troubled:
                self._troubled = ""
                self._say("it goes on")
            self._tell(took_point)
            every_s = self._how.every_ms / 1000
            every_s = min(every_s, BUSY_S) if self._follower.is_busy else every_s
            patience.wait(max(0.0, every_s - (time.monotonic() - began_s)))

    def _pause(self) -> None:
        """Wait between two attempts to ship a point (a checkpoint of the directory in the store); with --follow,
        report the state.
        """
        self._patience.wait(0.05)
        if self._how.follow:
            self._tell(False)

    def _note_trouble(self, error: Exception) -> None:
        """Print why shipping fails, once for each cause, and report it in the metrics."""
        failure = explain(error, self._directory)
        if self._troubled != failure.message:
            self._troubled = failure.message
            self._say(f"error: {failure.message}")
            self._say(f"hint: {failure.hint}; shipping is tried again meanwhile")
        self._tell(False)

    def _tell(self, took_point: bool) -> None:
        """Report the state as _tell_once() does, in one thread at a time. took_point: a new point is in the store."""
        with self._telling:  # the threads that ship also report, while they wait for the store
            self._tell_once(took_point)

    def _tell_once(self, took_point: bool) -> None:
        """Report the loss window and the counts: to the metrics file, or to the broker that started this process.
        Raises Failure if the metrics file cannot be written.
        """
        follower = self._follower
        status = follower.status
        now_ms, self._worst_ms = follower.loss_window_ms, max(self._worst_ms, status.worst_window_ms)
        told = Told(
            None if now_ms is None else max(now_ms, status.worst_window_ms),
            now_ms,
            status.points,
            status.objects,
            status.size_bytes,
            status.last_unit,
            self._troubled or self._patience.trouble,
        )
        status.worst_window_ms = 0
        if self._how.metrics_file is not None:
            try:
                write_metrics(self._how.metrics_file, prometheus_text(told, self._clock.now_ms()))
            except OSError as error:
                path = self._how.metrics_file
                raise Failure(f"{path}: {error.strerror}", "name a file in a folder of this user's") from None
        if self._how.beside_broker or self._how.as_json:
            show(told.line())
            flush()
            return
        if took_point or time.monotonic() - self._told_s >= TOLD_EVERY_S:
            self._told_s = time.monotonic()
            shipped = f"{count_text(status.objects, 'object')}, {size_text(status.size_bytes)} shipped"
            worst_s = max(self._worst_ms, told.loss_window_ms or 0) / 1000
            self._worst_ms = 0
            window = "no point yet" if told.loss_window_ms is None else f"loss window {worst_s:.1f} s at most"
            points = f"{count_text(status.kept_points, 'point')} kept"
            show(f"{window}; {points}; {shipped}; through unit {status.last_unit:,}")
            for warning in status.warnings if took_point else ():
                self._say(f"warning: {warning}")
            flush()

    # ---- the end -------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        """If a signal ended the shipping, ship what was not shipped yet. Then record in the store, for the next
        follower, that this one has ended. Takes ENDING_S at most, and raises no Failure.
        """
        patience = self._patience = Patience(lambda: None, lambda line: None, ENDING_S)
        follower = self._follower
        follower.wait_with(patience)
        try:
            if self._how.follow and self._interruption.wanted and follower.loss_window_ms is not None:
                follower.step()
                self._tell(False)
            follower.end()
        except (BackupRefused, ObjectsError, Fenced, Damaged, NewerFormat, OSError):
            pass  # without that record the next follower waits until it sees that this one does nothing

    def _end_with_standard_input(self) -> None:
        """Wait until the broker's process has ended, however it ends, and stop following: it has the other end of
        the pipe.
        """
        while os.read(0, 1024):
            pass
        self._interruption.wanted = True

    # ---- what is shown -------------------------------------------------------------------------------------------

    def _say(self, line: str) -> None:
        """Print a line to standard error."""
        show(line, err=True)

    def _show_point(self, running: bool) -> None:
        """Print what was shipped, as text or JSON. Raises Failure if files of the directory were damaged."""
        status = self._follower.status
        if self._how.as_json:
            show_json(
                {
                    "backup": self._objects.where,
                    "objects": status.objects,
                    "bytes": status.size_bytes,
                    "last_unit": status.last_unit,
                    "running": running,
                    "warnings": status.warnings,
                }
            )
        else:
            how = "beside a running broker" if running else "no broker ran"
            shipped = f"{count_text(status.objects, 'object')}, {size_text(status.size_bytes)} shipped"
            show(f"{self._objects.where}: {shipped}, through unit {status.last_unit:,}; {how}")
        for warning in status.warnings:
            show(f"warning: {warning}", err=True)
        if status.warnings:
            raise Failure(
                f"{self._directory} was damaged before: the backup has what could be read",
                f"fencepost log verify {self._directory} shows more; an older point may have what is missing",
                FAILED,
            )


@contextmanager
def _held(disk: Disk, directory: str) -> Iterator[bool]:
    """Keep one directory open within the block, even if another is moved to its path, and let a broker lock it.
    Yields True.
    """
    lock = disk.hold(directory)
    try:
        yield True
    finally:
        lock.release()


def explain(error: Exception, directory: str) -> Failure:
    """Return the failure to show for an error of shipping or fetching. Raises the error again if it is a bug."""
    if isinstance(error, Failure):
        return error
    if isinstance(error, StillFollowed):
        return Failure(str(error), error.hint, CONFLICT)
    if isinstance(error, Fenced):
        return Failure(str(error), error.hint, CONFLICT)
    if isinstance(error, Refused):
        return Failure(str(error), error.hint, DENIED)
    if isinstance(error, ObjectsError):
        return Failure(
            f"the store does not do what it is asked: {error}", "look at the URL, the endpoint and the network"
        )
    return failure_of(error, f"fencepost log verify {directory} shows more")
