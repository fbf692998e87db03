"""Runs a load in a process of its own, so that the CPU time of the client can be measured separately.

The parent sends the name of a function and its settings. The child reports the beginning and the end of its window, at
which the parent reads the broker's CPU time, and then its result. All messages are lines of JSON. The child ends when
its parent ends; the parent kills a child that takes too long.
"""

import contextlib
import gc
import json
import os
import pkgutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Protocol

from ..peers.names import BROKERS
from ..peers.peers import Peer, environment
from .window import Books, Latencies, Sample

PATIENCE_S = 120  # time beyond the window: for the start, the warm-up and the last answers
LAST_LINES = 5  # of the output of a child that failed


class LoadFailed(Exception):
    """Raised if a load in a child process failed or did not end in time."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a load did within its window. bytes: the size of the payload. busy_elsewhere: how much of a processor a
    child process of the load used, 1.0 for all of it.
    """

    units: int
    bytes: int
    latencies: Latencies = field(default_factory=Latencies)
    busy_elsewhere: float = 0.0


@dataclass(frozen=True, slots=True)
class Report:
    """An Outcome as the child sends it, with the window's seconds and the client's share of one processor (explained
    at Window). latencies: as Latencies.encode() returns them.
    """

    units: int
    bytes: int
    seconds: float
    client_share: float
    latencies: str


def histogram(microseconds: Iterable[float]) -> Latencies:
    """Return a histogram of these latencies in µs. Equal values are counted first, which is many times as fast."""
    latencies = Latencies()
    for value, count in Counter(map(round, microseconds)).items():
        latencies.record_us(value, count)
    return latencies


def run(load: str, settings: Mapping[str, Any], books: Books, patience_s: float = PATIENCE_S) -> Sample:
    """Run `load` ("module:function") with the settings in a child process, and return the window as a Sample. books:
    reads the clock and the broker's CPU time and memory when the window begins and ends.

    Raises: LoadFailed, also if nothing was done or patience_s have passed.
    """
    with Child(load, settings, patience_s) as child:
        child.expect("begin")
        books.begin()
        child.expect("end")
        books.end()
        report = child.report()
    if not report.units:
        raise LoadFailed(f"{load}: nothing was done in {report.seconds:.1f} s")
    busy_ns = int(1e9 * report.client_share * report.seconds)
    return books.sample(report.units, report.bytes, Latencies.decode(report.latencies), report.seconds, busy_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class InChild:
    """The base class of scenarios whose client is a Python program in a child process."""

    warm_seconds: float = 0.5
    peers: frozenset[str] | None = BROKERS
    unit: ClassVar[str] = "record"
    client_threads: ClassVar[int] = 1


class Timed(Protocol):
    """The arguments of a load that is measured for `seconds`, after warm_seconds without measuring."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def seconds(self) -> float:
        """How long the load is measured, in seconds."""
        ...

    @property
    def warm_seconds(self) -> float:
        """How long the load runs before it is measured, in seconds."""
        ...


def window(load: "Callable[[dict[str, Any], Window], Outcome]", timed: Timed, peer: Peer) -> Sample:
    """Run a load on a peer once, and return what was measured. load: a function of this package, run in a child
    process. timed: its arguments. Raises: LoadFailed.
    """
    patience_s = timed.seconds + timed.warm_seconds + PATIENCE_S
    return run(f"{load.__module__}:{load.__name__}", asdict(timed), Books(peer), patience_s)


class Child:
    """The parent's side of a child process that runs a load. Leaving the `with` block kills the child."""

    def __init__(self, load: str, settings: Mapping[str, Any], patience_s: float = PATIENCE_S) -> None:
        self._name = load
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by __exit__)
        self._patience_s = patience_s
        self._late = False
        command = [sys.executable, "-m", "fencepost.bench.loads.child"]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment(),
            start_new_session=True,  # Ctrl-C reaches only the parent, which then ends this process
        )
        self._timer = threading.Timer(patience_s, self._give_up)
        self._timer.daemon = True
        self._timer.start()
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # expect() raises the reason
            self._process.stdin.write(json.dumps({"load": load, "settings": dict(settings)}) + "\n")
            self._process.stdin.flush()

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._timer.cancel()
        self._process.kill()
        self._process.wait()
        self._timer.join()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def expect(self, word: str) -> dict[str, Any]:
        """Wait for the message `word` of the child and return its fields. Raises: LoadFailed if the child sends
        another message or an error, or ends.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise LoadFailed(f"{self._name}: {self._why()}")
        message: dict[str, Any] = json.loads(line)
        if "error" in message:
            raise LoadFailed(f"{self._name}: {message['error']}")
        if message["word"] != word:
            raise LoadFailed(f"{self._name}: sent {message['word']!r}, expected {word!r}")
        return message

    def report(self) -> Report:
        """Return the child's report. Raises: LoadFailed."""
        message = self.expect("outcome")
        return Report(**message["report"])

    def _give_up(self) -> None:
        """Kill the child process because it took too long."""
        self._late = True
        self._process.kill()

    def _why(self) -> str:
        """Return why the child ended, with its last lines of output."""
        if self._late:
            return f"not done after {self._patience_s:g} s"
        code = self._process.wait()
        self._errors.seek(0)
        last = self._errors.read().decode(errors="replace").splitlines()[-LAST_LINES:]
        return f"ended with code {code} and no result" + "".join(f" / {line.strip()}" for line in last)


class Window:
    """The child's side of one measurement (window): tells the parent when the window begins and ends, and measures the
    client's own CPU time in between.

    The client's share is how much of one processor its busiest part used. A part is something that cannot use two
    processors: all threads of Python together, which share one lock, or one thread of the library. A share of 1.0 means
    that this part was the limit, and that a second processor would not have helped.
    """

    def __init__(self) -> None:
        self._began = 0.0
        self._before: dict[int, int] = {}
        self.seconds = 0.0
        self.client_share = 0.0

    def begin(self, **along: Any) -> None:
        """Begin the window now, and tell the parent. along: further fields of the message."""
        self._before = _run_times()
        self._began = time.perf_counter()
        say("begin", **along)

    def end(self) -> None:
        """End the window now, tell the parent, and compute the client's share."""
        self.seconds = time.perf_counter() - self._began
        say("end")
        spent = {thread: ns - self._before.get(thread, 0) for thread, ns in _run_times().items()}
        ours = {thread.native_id for thread in threading.enumerate()}
        python = sum(ns for thread, ns in spent.items() if thread in ours)
        busiest = max((ns for thread, ns in spent.items() if thread not in ours), default=0)
        self.client_share = max(python, busiest) / 1e9 / self.seconds


def _run_times() -> dict[int, int]:
    """Return how many nanoseconds each thread of this process has run, from /proc."""
    found = {}
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it ended
            found[int(task.name)] = int((task / "schedstat").read_text().split()[0])
    return found


def say(word: str, **along: Any) -> None:
    """Send one message to the parent process, as a line of JSON. along: its fields."""
    print(json.dumps({"word": word, **along}), flush=True)


def main() -> None:
    """Read from standard input which load to run, run it, and report the result."""
    line = b""
    while not line.endswith(b"\n"):
        if not (piece := os.read(0, 1 << 16)):
            return
        line += piece
    threading.Thread(target=_end_with_parent, daemon=True).start()
    order = json.loads(line)
    gc.disable()  # its pauses would delay the client at random moments
    code = 0
    try:
        load: Callable[[dict[str, Any], Window], Outcome] = pkgutil.resolve_name(order["load"])
        window = Window()
        outcome = load(order["settings"], window)
        share = max(window.client_share, outcome.busy_elsewhere)
        encoded = outcome.latencies.encode()
        say("outcome", report=asdict(Report(outcome.units, outcome.bytes, window.seconds, share, encoded)))
    except Exception as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)
        code = 1
    os._exit(code)  # does not wait for threads of the client library that still run


def _end_with_parent() -> None:
    """End this process when its standard input ends, which means that the parent has ended."""
    while os.read(0, 1 << 10):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
