"""What the parts of `fencepost demo` have in common: a broker that can be killed, real text, progress output."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from ..output.writing import show

PARTITIONS = 4


class Broker:
    """`fencepost serve` as a process that can be killed and started again on the same data."""

    def __init__(self, directory: str, advertised_port: int) -> None:
        self._command = [sys.executable, "-P", "-m", "fencepost", "serve", "--listen", "127.0.0.1:0"]
        self._command += [
            "--data-dir",
            directory,
            "--advertise",
            f"127.0.0.1:{advertised_port}",
            "-X",
            f"num.partitions={PARTITIONS}",
        ]
        self._log = f"{directory}.log"
        self._process: subprocess.Popen[str] | None = None
        self.ready_s = 0.0
        self.kills = 0

    def start(self) -> int:
        """Start the broker, wait until it is ready, and return its port. Raises ClickException if it ends before."""
        began = time.monotonic()
        with open(self._log, "a") as log:
            self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("ready"):
                self.ready_s = time.monotonic() - began
                return int(line.split()[-1].rsplit(":", 1)[1])
        raise click.ClickException("the broker did not become ready\n" + Path(self._log).read_text())

    def kill(self) -> None:
        """Kill the broker with SIGKILL and wait for its end."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGKILL)
        self._reap(self._process)
        self.kills += 1

    def stop(self) -> None:
        """Stop the broker with SIGTERM, if it runs, and delete its log file."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._reap(self._process)
        if os.path.exists(self._log):
            os.unlink(self._log)

    def _reap(self, process: "subprocess.Popen[str]") -> None:
        """Wait for the end of a process, and close the pipe of its output."""
        process.wait(10)
        assert process.stdout is not None
        process.stdout.close()


def lines_of_text(count: int) -> list[str]:
    """Return `count` lines of the project's documents, or of its sources if it is installed without them."""
    root = Path(__file__).resolve().parents[2]
    files = sorted([*root.glob("*.md"), *root.glob("docs/**/*.md")]) or sorted(root.glob("**/*.py"))
    lines = [line for file in files for line in file.read_text(errors="replace").splitlines() if line.strip()]
    return (lines * (count // len(lines) + 1))[:count]


def say(line: str) -> None:
    show(f"  {line}")


def whole_lines(output: Iterable[str]) -> Iterator[str]:
    """Yield the lines that a process prints, stripped. A last line that a kill has cut off is left out."""
    for line in output:
        if line.endswith("\n"):
            yield line.strip()


def version(package: str) -> str:
    """Return the version of an installed package."""
    from importlib import metadata

    return metadata.version(package)


@contextlib.contextmanager
def progress(total: int) -> Iterator[Any]:
    """Show a progress bar on standard error during the block, if that is a terminal. Yields a function that is called
    with how much is done.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total)
        yield lambda done: bar.update(task, completed=done)
