"""Runs the whole suite, as a program: `suite.py AT_ONCE PYTEST… ::: PYTEST…`.

Each folder of tests/ is a part, and so are the folders in APART, and the files beside the folders. A part has a process
of its own, which collects nothing of the others; AT_ONCE of them run at a time, the longest first. The second command
is one more part, which runs beside them from the start. When a part has ended, a line says so, after its whole output
if it failed. The exit code is 1 if a part failed.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import IO

from side_by_side import BETWEEN

TESTS = Path(__file__).resolve().parent.parent
APART = ("client/sql",)  # parts of their own within a folder that would take longer than all others
LONGEST = ("sql", "client", "interop", "broker", "files", "cli", "crash")  # minutes each: whatever is not named follows
NOTHING_SELECTED = 5  # pytest's exit code where all tests of a part are marked as something else
LOOK_S = 0.2
TOLD_EVERY_S = 60.0


@dataclass
class Part:
    """A part of the suite. whole: what its process had written when that was last read."""

    name: str
    command: Sequence[str]
    process: "subprocess.Popen[bytes] | None" = None
    output: IO[bytes] | None = None
    began_s: float = 0.0
    whole: str = ""

    def begin(self) -> None:
        self.began_s = time.monotonic()
        self.output = tempfile.TemporaryFile()  # noqa: SIM115, until close()
        self.process = subprocess.Popen(self.command, stdout=self.output, stderr=subprocess.STDOUT)

    @property
    def has_ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    @property
    def has_failed(self) -> bool:
        return self.process is None or self.process.returncode not in (0, NOTHING_SELECTED)

    def text(self) -> str:
        """Return what the process has written so far."""
        if self.output is not None:
            self.whole = os.pread(self.output.fileno(), 1 << 30, 0).decode(errors="replace")
        return self.whole

    def close(self) -> None:
        """Keep what the process has written, and close its output."""
        self.text()
        if self.output is not None:
            self.output.close()
            self.output = None

    def progress(self) -> str:
        """Return the part's name, and the percentage that pytest wrote last."""
        found = re.findall(r"\[ *(\d+%)\]", self.text())
        return f"{self.name} {found[-1] if found else '0%'}"


def parts(tests: Path = TESTS) -> list[tuple[str, list[str]]]:
    """Return name and paths of each part, the longest parts first."""
    apart = [tests / each for each in APART if (tests / each).is_dir()]
    found = {each.name: [str(each)] for each in apart} | {"files": sorted(map(str, tests.glob("test_*.py")))}
    for folder in (each for each in sorted(tests.iterdir()) if each.is_dir() and _has_tests(each)):
        is_split = any(each.parent == folder for each in apart)
        inner = [each for each in folder.iterdir() if each not in apart and _has_tests(each)]
        found[folder.name] = sorted(map(str, inner)) if is_split else [str(folder)]
    places = {name: place for place, name in enumerate(LONGEST)}
    return sorted(((name, paths) for name, paths in found.items() if paths), key=lambda one: places.get(one[0], 99))


def _has_tests(path: Path) -> bool:
    """Return whether this is a file of tests, or a folder with one."""
    return any(path.rglob("test_*.py")) if path.is_dir() else path.match("test_*.py")


def run(at_once: int, queue: list[Part], beside: list[Part]) -> int:
    """Run the parts to their ends, also those that are left when one fails, and return the exit code for them all."""
    running, ended = list[Part](), list[Part]()
    of, told_s = len(queue) + len(beside), time.monotonic()
    for part in beside:
        part.begin()
    running += beside
    while queue or running:
        while queue and sum(each not in beside for each in running) < at_once:
            running.append(queue.pop(0))
            running[-1].begin()
        for part in [each for each in running if each.has_ended]:
            running.remove(part)
            part.close()
            ended.append(part)
            _say_ended(part, f"{len(ended)} of {of}")
        if time.monotonic() - told_s > TOLD_EVERY_S and running:
            told_s = time.monotonic()
            _say("… " + ", ".join(each.progress() for each in running))
        try:
            time.sleep(LOOK_S if running else 0)
        except KeyboardInterrupt:  # which all processes got, too, and end of
            ended += queue
            queue = []
    failed = [each for each in ended if each.has_failed]
    for part in failed:
        lines = [line for line in part.text().splitlines() if line.startswith(("FAILED", "ERROR"))]
        _say("\n".join([f"failed: {part.name}", *lines]))
    return int(bool(failed))


def _say_ended(part: Part, which: str) -> None:
    """Say that a part has ended, with the last line that it wrote, and its reasons for skipping; whole if it failed."""
    lines = part.text().splitlines()
    if part.has_failed:
        _say("\n".join(lines))
    skipped = [line for line in lines if line.startswith("SKIPPED")]
    seconds = time.monotonic() - part.began_s
    _say("\n".join([*skipped, f"{which}, {part.name}: {lines[-1] if lines else 'nothing'} ({seconds:.0f} s)"]))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(words: Sequence[str]) -> int:
    """Run what the command line says."""
    at_once, *rest = words
    commands = [list(part) for is_end, part in groupby(rest, BETWEEN.__eq__) if not is_end]
    of_each, *beside = commands
    queue = [Part(name, [*of_each, *paths]) for name, paths in parts()]
    return run(int(at_once), queue, [Part("beside", command) for command in beside])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
