"""Measures with perf how long the event loop of a running broker waits for the interpreter's lock, and how long its
turns (from one poll to the next) are.

Run as `python -m fencepost.bench.peers.lock_waits PID` while the broker is under load, by a user who may trace. Only
the time that the broker's threads ran on a processor counts, not the time for which they waited for a processor, so
other load on the machine changes the results little. The length of a wait is the time that other threads, which had the
lock, ran meanwhile. The length of a turn is the time that the loop itself ran, plus its waits. Source: perf-record(1),
perf-script(1); CPython waits for its lock in a futex (ceval_gil).
"""

import re
import shutil
import subprocess
import tempfile
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import NamedTuple

import click

CALLS = ("futex", "epoll_wait", "epoll_pwait")
EVENTS = [f"syscalls:sys_{side}_{call}" for call in CALLS for side in ("enter", "exit")]
FUTEX_WAITS = (0, 9)  # FUTEX_WAIT and FUTEX_WAIT_BITSET, without FUTEX_PRIVATE_FLAG and FUTEX_CLOCK_REALTIME
FUTEX_COMMANDS = 127
STEPS_US = (250, 500, 1000, 2000, 3000, 4000)
TRACED_BYTES = "4M"  # of each processor's buffer

_LINE = re.compile(r"\s*\S.*?\s+(\d+)\s+(\d+\.\d+):\s+(\S+?):?\s+(.*)$")
_FUTEX_OPERATION = re.compile(r"\bop: 0x([0-9a-f]+)")


class Kind(Enum):
    """What an event says about its thread: that it runs, stops, waits for the lock, or polls, for example."""

    RUNS = "gets a processor"
    STOPS = "loses it"
    WAITS = "begins to wait in a futex"
    GOES_ON = "ends that"
    POLLS = "the loop has done its turn"
    WAKES = "the loop begins a turn"
    LOST = "the kernel could not keep events"


class Event(NamedTuple):
    """One event of the trace."""

    at_us: float
    thread: int
    kind: Kind


@dataclass(slots=True)
class Waits:
    """Times in µs. locked: for each wait of the loop in a futex, how long other threads ran meanwhile; own: for each
    turn of the loop, how long the loop itself ran; turns: `own` with the waits in that turn. lost: the trace has gaps,
    so these are too few.
    """

    seconds: float
    locked: list[float] = field(default_factory=list)
    own: list[float] = field(default_factory=list)
    turns: list[float] = field(default_factory=list)
    lost: bool = False


def read_events(lines: Iterable[str]) -> list[Event]:
    """Return the events, in order of time, in the output of `perf script -F comm,tid,time,event,trace
    --show-switch-events`.
    """
    found = [event for line in lines if (event := _read_event(line)) is not None]
    return sorted(found, key=lambda event: event.at_us)


def _read_event(line: str) -> Event | None:
    """Return the event in one line of the output; None if the line has none of interest."""
    matched = _LINE.match(line)
    if matched is None:
        return None
    thread, seconds, name, rest = matched.groups()
    kind = _kind(name, rest)
    return None if kind is None else Event(float(seconds) * 1e6, int(thread), kind)


def _kind(name: str, rest: str) -> Kind | None:
    """Return the kind of an event; None if it is of no interest. name: of the event as perf prints it. rest: its
    details.
    """
    if name == "PERF_RECORD_SWITCH":
        return Kind.RUNS if rest.startswith("IN") else Kind.STOPS
    if name == "PERF_RECORD_LOST":
        return Kind.LOST
    if name.endswith("sys_enter_futex"):
        operation = _FUTEX_OPERATION.search(rest)
        waits = operation is not None and int(operation[1], 16) & FUTEX_COMMANDS in FUTEX_WAITS
        return Kind.WAITS if waits else None
    if name.endswith("sys_exit_futex"):
        return Kind.GOES_ON
    if "epoll" in name:
        return Kind.POLLS if "enter" in name else Kind.WAKES
    return None


Interval = tuple[float, float]


def measure(events: Sequence[Event], loop: int) -> Waits:
    """Compute the waits from the events. loop: the id of the loop's thread, which is the process's id. Waits and
    turns that the trace does not contain from beginning to end are left out.
    """
    if not events:
        return Waits(0.0)
    found = Waits((events[-1].at_us - events[0].at_us) / 1e6)
    found.lost = any(event.kind is Kind.LOST for event in events)
    ran: dict[int, list[Interval]] = defaultdict(list)
    waited: list[Interval] = []
    turns: list[Interval] = []
    since: dict[tuple[int, Kind], float] = {}
    for at_us, thread, kind in events:
        if kind in (Kind.RUNS, Kind.WAITS, Kind.WAKES):
            since[thread, kind] = at_us
        elif kind is Kind.STOPS and (begin := since.pop((thread, Kind.RUNS), None)) is not None:
            ran[thread].append((begin, at_us))
        elif thread == loop and kind is Kind.GOES_ON and (begin := since.pop((thread, Kind.WAITS), None)) is not None:
            waited.append((begin, at_us))
        elif thread == loop and kind is Kind.POLLS and (begin := since.pop((thread, Kind.WAKES), None)) is not None:
            turns.append((begin, at_us))
    others = {thread: intervals for thread, intervals in ran.items() if thread != loop}
    found.locked = [_running_time(others, *wait) for wait in waited]
    begins = [begin for begin, _ in waited]
    for begin, end in turns:
        found.own.append(_running_time({loop: ran[loop]}, begin, end))
        waits = found.locked[bisect_left(begins, begin) : bisect_left(begins, end)]
        found.turns.append(found.own[-1] + sum(waits))
    return found


def _running_time(ran: Mapping[int, Sequence[Interval]], begin: float, end: float) -> float:
    """Return how long these threads ran together between `begin` and `end`. ran: the intervals of each thread, which
    do not overlap.
    """
    total = 0.0
    for intervals in ran.values():
        number = max(0, bisect_left(intervals, (begin,)) - 1)
        while number < len(intervals) and intervals[number][0] < end:
            total += max(0.0, min(end, intervals[number][1]) - max(begin, intervals[number][0]))
            number += 1
    return total


def show(waits: Waits, requests: int | None) -> list[str]:
    """Return lines for people: how many waits lasted how long, per 100,000 requests if their number is known."""
    each = 1e5 / requests if requests else 1.0
    lines = [
        f"{waits.seconds:.1f} s, {len(waits.turns)} turns of the loop" + (", 100,000 requests:" if requests else "")
    ]
    for name, values in (("lock held", waits.locked), ("turn, own", waits.own), ("turn, all", waits.turns)):
        longest = max(values, default=0.0)
        steps = "  ".join(f"≥{step / 1000:g} {each * sum(v >= step for v in values):.1f}" for step in STEPS_US)
        lines.append(f"{name}, ms: {steps}  longest {longest / 1000:.2f}")
    if waits.lost:
        lines.append("the trace has gaps: these are too few")
    return lines


@click.command()
@click.argument("pid", type=click.IntRange(1))
@click.option("--seconds", type=click.FloatRange(0.1, 600), default=5.0)
@click.option("--requests", type=click.IntRange(1), default=None, help="How many the load has in these seconds.")
def main(pid: int, seconds: float, requests: int | None) -> None:
    """Trace a broker that is under load, and print how long its loop waited for the interpreter's lock."""
    if shutil.which("perf") is None:
        raise click.ClickException("there is no perf (Debian: linux-perf)")
    with tempfile.TemporaryDirectory(prefix="fencepost-trace-") as directory:
        data = str(Path(directory) / "data")
        record = ["perf", "record", "-q", "-m", TRACED_BYTES, "-o", data, "--switch-events", "-e", ",".join(EVENTS)]
        done = subprocess.run(
            [*record, "-p", str(pid), "--", "sleep", str(seconds)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise click.ClickException(f"perf record failed: {done.stderr.strip()[-300:]}")
        script = ["perf", "script", "-i", data, "--show-switch-events", "--show-lost-events"]
        script += ["-F", "comm,tid,time,event,trace"]
        done = subprocess.run(script, capture_output=True, text=True, check=True)
    for line in show(measure(read_events(done.stdout.splitlines()), pid), requests):
        click.echo(line)


if __name__ == "__main__":
    main()
