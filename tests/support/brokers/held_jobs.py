"""Stops one job of a broker's executors for as long as a test likes: before it begins, before a file operation, or
after it is done but before that is reported. All other work continues.

A job that is stopped before a file operation runs in a thread of its own. This thread and the simulation's thread run
alternately, never at the same time.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from fencepost.effects.simulated.disk import SimulatedDisk, SimulatedFile
from simulated_broker import SimulatedBroker

EXECUTORS = ("read_executor", "_segments_executor", "_journal_executor")
BEFORE, AFTER = "before", "after"
Moment = str | int  # an int: before that file operation of the job, from 0 on
OF_DISK = ("open", "unlink", "rename", "exists", "remove_tree")
OF_FILE = ("read", "write", "truncate")


class HeldJob:
    """Stops the first job of this kind that a broker's executors are given."""

    def __init__(self, broker: SimulatedBroker, kind: str, moment: Moment) -> None:
        """kind: the beginning of the job's name, such as "ColdRead.run"."""
        self.broker = broker
        self.kind = kind
        self.moment = moment
        self.is_held = False
        self.names: set[str] = set()  # of all jobs that were seen
        self._go = threading.Event()
        self._handed_over = threading.Event()
        self._thread: threading.Thread | None = None
        self._operations = 0
        self._result: Any = None
        self._finish: Callable[[], None] = lambda: None
        self._taken = False
        for name in EXECUTORS:
            self._watch(getattr(broker.broker, name))

    def _watch(self, executor: Any) -> None:
        submit = executor.submit

        def submitted(job: Any, done: Any, **how: Any) -> None:
            name = _name_of(job)
            self.names.add(name)
            if self._taken or not name.startswith(self.kind):
                submit(job, done, **how)
                return
            self._taken = True
            if self.moment == BEFORE:
                self.is_held = True
                self._finish = lambda: submit(job, done, **how)
            elif self.moment == AFTER:
                self.is_held = True
                self._result = _result_of(job)
                self._finish = lambda: done(self._result)
            else:
                self._finish = lambda: done(self._result)
                self._begin(job)
                if not self.is_held:  # it has fewer operations
                    submit(lambda: None, lambda _: done(self._result), **how)

        executor.submit = submitted

    def _begin(self, job: Any) -> None:
        def run() -> None:
            self._result = _result_of(job)
            self._handed_over.set()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        assert self._handed_over.wait(20), "it waits for what another thread has"

    def before_operation(self) -> None:
        """Called before each file operation of the job; stops there if that is the moment."""
        if threading.current_thread() is self._thread:
            self._operations += 1
            if self._operations == int(self.moment) + 1:
                self.is_held = True
                self._handed_over.set()
                self._go.wait()

    def release(self) -> None:
        """Let the job continue, and report its result."""
        if not self.is_held:
            return
        self.is_held = False
        if self._thread is not None:
            self._handed_over.clear()
            self._go.set()
            assert self._handed_over.wait(20)
            self._thread.join()
        self.broker.loop.call_soon(self._finish)

    def give_up(self) -> None:
        """End the test's wait as if the process was killed: the job's thread stays stopped."""
        self.is_held = False


def _name_of(job: Any) -> str:
    owner = getattr(job, "__self__", None)
    return str(job.__qualname__) if owner is None else f"{type(owner).__name__}.{job.__name__}"


def _result_of(job: Any) -> Any:
    try:
        return job()
    except BaseException as error:  # as an executor does
        return error


@contextmanager
def held(broker: SimulatedBroker, kind: str, moment: Moment) -> Iterator[HeldJob]:
    """Stop the next job of this kind at this moment, during the block."""
    job = HeldJob(broker, kind, moment)

    def watched(real: Any) -> Any:
        def call(*arguments: Any, **more: Any) -> Any:
            job.before_operation()
            return real(*arguments, **more)

        return call

    of_disk = {name: watched(getattr(SimulatedDisk, name)) for name in OF_DISK}
    of_file = {name: watched(getattr(SimulatedFile, name)) for name in OF_FILE}
    with mock.patch.multiple(SimulatedDisk, **of_disk), mock.patch.multiple(SimulatedFile, **of_file):
        yield job
