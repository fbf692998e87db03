"""Workers of a share group in three languages, as processes: each says a line for every record that it has worked on.

`did VALUE COUNT` comes before the record is accepted; `refused …` where an acknowledgement was not taken. They work
until they are killed.
"""

import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import pytest
from copiers import GO_PROGRAM
from java_clients import OPTIONS, jars_or_skip

HERE = Path(__file__).resolve().parent
JAVA_SOURCE = HERE.parents[1] / "interop" / "java" / "ShareWorker.java"
KINDS = ["librdkafka", "java", "franz-go"]
LOCK_S = 30.0


def program(kind: str, folder: Path) -> list[str]:
    """Return the command that starts such a worker; its arguments are still to be added. folder: to compile into."""
    if kind == "java":
        jars = jars_or_skip()
        if not folder.exists():
            folder.mkdir()
            subprocess.run(["javac", "-cp", jars, "-d", str(folder), str(JAVA_SOURCE)], check=True)
        return ["java", *OPTIONS, "-cp", f"{folder}:{jars}", "ShareWorker"]
    if kind == "franz-go":
        if not GO_PROGRAM.exists():
            pytest.skip("NO FRANZ-GO: `make go-clients` builds its worker where Go is installed")
        return [str(GO_PROGRAM), "share"]
    return [sys.executable, str(HERE / "share_worker.py")]


class Done(NamedTuple):
    """Reports that a record was worked on. count: its delivery count; by: the process."""

    at: float
    by: int
    count: int


class Worker:
    """A worker's process, and its successors."""

    def __init__(self, crew: "Crew", command: list[str]) -> None:
        self._crew = crew
        self._command = command
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
        )
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()

    def _read(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                if line.endswith("\n"):  # else it was killed within the line
                    self._crew.hear(line.split(), process.pid)

    def kill(self) -> None:
        self._crew.deaths.setdefault(self._process.pid, time.monotonic())
        self._process.kill()
        self._process.wait()
        self._reader.join()


class Crew:
    """Several workers of one group, and what they reported."""

    def __init__(self, bootstrap: str, topic: str, group: str, folder: Path) -> None:
        self._arguments = [bootstrap, topic, group]
        self._folder = folder
        self._heard = threading.Condition()
        self.workers: list[Worker] = []
        self.begun = 0
        self._times: dict[str, list[Done]] = {}  # by value: each time that it was worked on
        self.deaths: dict[int, float] = {}  # by process
        self.broker_deaths: list[float] = []
        self.complaints: list[str] = []

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for worker in self.workers:
            worker.kill()

    def hire(self, kind: str) -> Worker:
        """Start one more worker."""
        worker = Worker(self, [*program(kind, self._folder), *self._arguments])
        self.workers.append(worker)
        return worker

    @property
    def done(self) -> dict[str, list[int]]:
        """Return by value the delivery count of each time that the record was worked on."""
        return {value: [each.count for each in times] for value, times in self._times.items()}

    def unexplained(self) -> list[tuple[str, Done, Done]]:
        """Return the records that were worked on twice although the first worker still had them.

        A record is taken from its worker when that worker's process or the broker ends, or the lock times out.
        """
        return [
            (value, first, then)
            for value, times in self._times.items()
            for first, then in pairwise(times)
            if self.deaths.get(first.by, then.at) >= then.at
            and not any(first.at - LOCK_S < death < then.at for death in self.broker_deaths)
            and then.at - first.at < LOCK_S
        ]

    def hear(self, words: list[str], by: int) -> None:
        with self._heard:
            if words[0] == "did":
                self._times.setdefault(words[1], []).append(Done(time.monotonic(), by, int(words[2])))
            elif words[0] == "begun":
                self.begun += 1
            else:
                self.complaints.append(" ".join(words))
            self._heard.notify_all()

    def wait_until(self, count: int, within_s: float) -> None:
        """Wait until this many different records were worked on."""
        self._wait(lambda: len(self._times) >= count, within_s)

    def wait_for_begin(self, within_s: float = 60) -> None:
        """Wait until all workers have begun."""
        self._wait(lambda: self.begun >= len(self.workers), within_s)

    def _wait(self, is_over, within_s: float) -> None:
        with self._heard:
            until = time.monotonic() + within_s
            while not is_over():
                if not self._heard.wait(until - time.monotonic()):
                    raise AssertionError(f"{len(self._times)} records after {within_s} s; {self.complaints[-5:]}")
