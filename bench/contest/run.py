"""`make bench`: measures fencepost, Apache Kafka and librdkafka's mock under the same loads in one run, and writes the
results into bench/results/.

All brokers run during the whole contest, and one is measured at a time. `make bench` measures the rows of the table of
aims and takes 15 minutes at most: time that is not needed to warm up the JVMs makes the windows longer. `make
bench-full` runs every load without a limit of time. The bounds, which need no other broker, come last, on servers of
their own.
"""

import contextlib
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from .. import result_file
from ..bounds import bounds, sizes
from ..loads import (
    consume as consume_load,
)
from ..loads import (
    latency as latency_load,
)
from ..loads import (
    modes as modes_load,
)
from ..loads import (
    produce as produce_load,
)
from ..loads import (
    share as share_load,
)
from ..loads import (
    small as small_load,
)
from ..loads import (
    txn as txn_load,
)
from ..measured import Measured
from ..peers import apache, peers
from ..peers.facts import facts
from ..peers.names import JVMS, NAMES
from . import aims, growth, report
from .contest import Scenario, Step, Warmth, contest, kind

MODULES = (small_load, produce_load, consume_load, latency_load, share_load, txn_load, modes_load)
TABLE_S = 15 * 60.0
OUTSIDE_S = 60.0  # of TABLE_S, for the measurements after the contest

Outside = Callable[[growth.Progress], Iterator[Measured]]

AROUND_S = 1.5  # spent around each window on average: half a second, 3 to 4 if a topic is deleted
PREPARE_S = 0.5
WARM_LEAST_S = 20.0  # three windows, and AROUND_S for each
WARM_MOSTLY_S = 25.0
SHORTEST_S = 2.0
TIDYING_S = 60.0  # the JVMs take a while to end
INTERRUPTED = 130  # the exit code, as of a command that Ctrl-C ended


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured: the number of rounds, the seconds of one measurement (window), and the longest warm-up of
    a JVM for one kind of load.
    """

    rounds: int
    seconds: float
    warm_most_s: float = 60.0
    warm_window_s: float = 5.0


TABLE = Effort(rounds=3, seconds=4.0)
FULL = Effort(rounds=5, seconds=5.0)
QUICK = Effort(rounds=1, seconds=0.5, warm_most_s=1.5, warm_window_s=0.5)


@dataclass(frozen=True, slots=True)
class Ahead:
    """The work that is left in a run. windows: the number of measurements of full length; openings: the number of
    measurements to start, warm-ups included; warmings: the number of JVM warm-ups; preparations: how often a load is
    prepared on a peer.
    """

    windows: float
    openings: int
    warmings: int
    preparations: int

    def around_s(self) -> float:
        """Return the seconds that are needed besides measurements and warm-ups."""
        return self.openings * AROUND_S + self.preparations * PREPARE_S

    def seconds(self, effort: Effort) -> float:
        """Estimate how many seconds all of this work takes."""
        warming = min(effort.warm_most_s, WARM_MOSTLY_S)
        return self.around_s() + self.windows * effort.seconds + self.warmings * warming


def ahead(
    scenarios: Sequence[Scenario], names: Sequence[str], rounds: int, warmed: frozenset[tuple[str, str]]
) -> Ahead:
    """Count the work of these scenarios. names: the names of the peers. warmed: the pairs of kind and JVM that are
    warm already.
    """
    pairs = [(scenario, name) for scenario in scenarios for name in names if name in (scenario.peers or names)]
    warmings = {(kind(scenario), name) for scenario, name in pairs if name in JVMS} - warmed
    briefly = len(pairs) - len(warmings)  # warmed by a third of a window
    openings = len(pairs) * rounds + briefly
    return Ahead(len(pairs) * rounds + briefly / 3, openings, len(warmings), len(pairs))


def fit_effort(effort: Effort, left_s: float, to_come: Ahead) -> Effort:
    """Return the effort that fits into the time left. Neither measurements nor warm-ups become shorter than their
    minimum. to_come: the work that is left.

    Measurements get the time that warm-ups of a usual length leave. The limit of a warm-up is longer, because few need
    it: the time that is left if everything else is of minimum length, divided among one warm-up of each JVM. If one
    does need it, later measurements are shorter.
    """
    left = left_s - to_come.around_s()
    seconds = (left - to_come.warmings * WARM_MOSTLY_S) / max(1.0, to_come.windows)
    others = max(0, to_come.warmings - len(JVMS))
    spare = (left - to_come.windows * SHORTEST_S - others * WARM_LEAST_S) / len(JVMS)
    return replace(
        effort,
        seconds=min(effort.seconds, max(SHORTEST_S, seconds)),
        warm_most_s=min(effort.warm_most_s, max(WARM_LEAST_S, spare)),
    )


class ProgressLines:
    """Prints progress to standard error: the load, the peer, the round, the time left, and failures."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._ends = 0.0
        self._scenario = ""
        self.failures: list[str] = []
        self.interrupted = False

    def expect(self, seconds: float) -> None:
        """Set how many seconds the rest of the run takes, for the time left that is shown."""
        self._ends = time.monotonic() + seconds

    def step(self, step: Step) -> None:
        """Show one step of a contest."""
        line = f"{step.scenario} · {step.peer} · {step.doing}"
        if step.failed:
            self.failed(line)
        elif self._live:
            left = max(0.0, self._ends - time.monotonic())
            click.echo(f"\r\033[K{line} · about {left / 60:.0f} min left", err=True, nl=False)
        elif self._scenario != step.scenario:
            self._scenario = step.scenario
            left = max(0.0, self._ends - time.monotonic())
            self.say(f"{step.scenario} · about {left / 60:.0f} min left")

    def failed(self, line: str) -> None:
        """Print a failure now and again at the end of the run."""
        self.failures.append(line)
        self.say(f"FAILED {line}")

    def say(self, line: str) -> None:
        """Print a line that later progress does not overwrite."""
        start = "\r\033[K" if self._live else ""
        click.echo(f"{start}{time.strftime('%H:%M:%S')} {line}", err=True)


def scenarios(full: bool, only: Sequence[str]) -> list[Scenario]:
    """Return the scenarios of the short table, or all if `full`, whose names contain one of the texts in `only`."""
    found: list[Scenario] = []
    for module in MODULES:
        found += module.full() if full else module.table()
    return [scenario for scenario in found if is_selected(scenario.name, only)]


def is_selected(name: str, only: Sequence[str]) -> bool:
    """Return whether the name contains one of these texts; True if there are none."""
    return not only or any(part in name for part in only)


def run(
    playing: Sequence[Scenario], names: Sequence[str], effort: Effort, limit_s: float | None, progress: ProgressLines
) -> Iterator[Measured]:
    """Start the peers, run each scenario against all that started, and yield the findings. limit_s: for everything,
    the start of the peers included; None: no limit.
    """
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        up = []
        for name in names:
            progress.say(f"starting {name}")
            try:
                peer = stack.enter_context(peers.start(name))
            except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
                progress.failed(f"{name} could not be started: {error}")
            else:
                up += [] if peer is None else [peer]
        warmth = Warmth()
        for number, scenario in enumerate(playing):
            left = ahead(playing[number:], [peer.name for peer in up], effort.rounds, frozenset(warmth.steady))
            now = effort
            if limit_s is not None:
                now = fit_effort(effort, began + limit_s - time.monotonic(), left)
            progress.expect(left.seconds(now))
            warmth.most_s, warmth.window_s = now.warm_most_s, now.warm_window_s
            for finding in contest([scenario], up, now.rounds, now.seconds, progress.step, warmth):
                yield finding.as_measured()


def outside(
    wanted: Sequence[str], names: Sequence[str], full: bool, quick: bool, rounds: int | None, seconds: float | None
) -> Outside:
    """Return the function that measures what needs servers of its own: start, recovery, growth and bounds. rounds,
    seconds: None for the defaults.
    """
    size, bound = (growth.QUICK, sizes.QUICK) if quick else (growth.FULL, sizes.FULL)
    size = replace(size, rounds=rounds or size.rounds)
    bound = replace(bound, rounds=rounds or bound.rounds, seconds=seconds or bound.seconds)

    def measure(progress: growth.Progress) -> Iterator[Measured]:
        """Make the selected measurements, on servers of their own."""
        yield from growth.outside(wanted, names, full, size, progress)
        yield from bounds.outside(wanted, names, bound, progress.say, progress.failed)

    return measure


def measured(
    playing: Sequence[Scenario],
    names: Sequence[str],
    effort: Effort,
    limit_s: float | None,
    outside: Outside | None,
    progress: ProgressLines,
) -> list[Measured]:
    """Run the contest, then the measurements that need servers of their own, and return all results. If the run is
    interrupted, return the results so far.
    """
    found: list[Measured] = []
    try:
        if playing:
            for finding in run(playing, names, effort, limit_s, progress):
                found.append(finding)
        if outside is not None:
            for each in outside(progress):
                found.append(each)
    except KeyboardInterrupt:
        progress.interrupted = True
        progress.say("interrupted: what there is so far")
    return found


def outcome(found: Sequence[Measured], machine: Mapping[str, Any], results: Path) -> Path:
    """Judge the findings, write them into `results` and print the table. machine: facts about it. Returns the path of
    the JSON.
    """
    path = report.write(found, aims.judge(found), machine, results)
    click.echo(report.table(result_file.read(path)))
    return path


def check_writable(directory: Path) -> None:
    """Raise ClickException if results cannot be written into the directory. Called first, since measuring takes
    minutes.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=directory).close()
    except OSError as error:
        raise click.ClickException(f"no results can be written into {directory}: {error.strerror}") from None


def play(
    playing: Sequence[Scenario],
    names: Sequence[str],
    effort: Effort,
    limit_s: float | None,
    outside: Outside | None,
    progress: ProgressLines,
    data_dir: str | None,
) -> tuple[list[Measured], dict[str, Any]]:
    """Measure everything, with the servers' files in a temporary directory. Returns the results and facts about the
    machine. Raises: ClickException.
    """
    try:
        with peers.bench_root(data_dir) as root:
            found = measured(playing, names, effort, limit_s, outside, progress)
            versions = {"Kafka": apache.VERSION} if any(each.peer in JVMS for each in found) else {}
            return found, facts(root, versions)
    except (peers.NoFiles, OSError) as error:
        raise click.ClickException(str(error)) from None


def _number(_ctx: click.Context, _option: click.Parameter, seconds: float | None) -> float | None:
    """Refuse NaN, which click's range check accepts."""
    if seconds is not None and math.isnan(seconds):
        raise click.BadParameter(f"{seconds} is not a number")
    return seconds


@click.command()
@click.option("--full", is_flag=True, help="Every scenario, in more rounds, however long it takes.")
@click.option("--quick", is_flag=True, help="One short round each: whether it runs, not what it measures.")
@click.option("--only", multiple=True, metavar="TEXT", help="Only loads with this in their name; may be repeated.")
@click.option("--peer", "names", multiple=True, type=click.Choice(NAMES), help="These servers only.")
@click.option("--rounds", type=click.IntRange(1, 1000), default=None, help="Of every load, on every server.")
@click.option("--seconds", type=click.FloatRange(0.1, 3600), callback=_number, default=None, help="Of a window.")
@click.option("--data-dir", type=click.Path(file_okay=False), default=None, help="On a disk; without it, in ./build.")
@click.option("--results", type=click.Path(file_okay=False, path_type=Path), default=Path("bench/results"))
@click.option("--list", "listing", is_flag=True, help="Name the loads and end.")
def main(
    full: bool,
    quick: bool,
    only: tuple[str, ...],
    names: tuple[str, ...],
    rounds: int | None,
    seconds: float | None,
    data_dir: str | None,
    results: Path,
    listing: bool,
) -> None:
    """Measure fencepost and its peers, and write bench/results/<time>.json with a table."""
    playing = scenarios(full, only)
    beside = [name for name in (*growth.measurable(full), *(bounds.BOUNDS if full else ())) if is_selected(name, only)]
    if not playing and not beside:
        raise click.UsageError(f"no load has {' or '.join(only)} in its name: --list names them, --full --list all")
    if listing:
        click.echo("\n".join([*(scenario.name for scenario in playing), *beside]))
        return
    effort = QUICK if quick else FULL if full else TABLE
    effort = replace(effort, rounds=rounds or effort.rounds, seconds=seconds or effort.seconds)
    whole = not (full or quick or rounds or seconds)  # a run with options of its own has no time limit
    limit = TABLE_S - (OUTSIDE_S if beside else 0) if whole else None
    check_writable(results)
    tidy_when_interrupted()
    progress = ProgressLines()
    began = time.monotonic()
    servers = names or NAMES
    later = outside(beside, servers, full, quick, rounds, seconds) if beside else None
    found, machine = play(playing, servers, effort, limit, later, progress, data_dir)
    if found:
        kind_of_run = "a quick run" if quick else "a full run" if full else "a run of the table"
        machine["run"] = kind_of_run + (", interrupted" if progress.interrupted else "")
        path = outcome(found, machine, results)
    for line in progress.failures:
        click.echo(f"failed: {line}", err=True)
    if found:
        click.echo(f"{path}, {(time.monotonic() - began) / 60:.1f} minutes", err=True)
    if progress.interrupted:
        raise SystemExit(INTERRUPTED)
    if not found:
        raise click.ClickException("nothing was measured")


def tidy_when_interrupted() -> None:
    """Let SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt once, so that the run ends; further signals within
    TIDYING_S do not interrupt its clean-up.
    """
    last = -TIDYING_S

    def interrupted(number: int, frame: Any) -> None:
        """Raise KeyboardInterrupt, unless another signal did so within TIDYING_S; then only print a line."""
        nonlocal last
        before, last = last, time.monotonic()
        if last - before >= TIDYING_S:
            raise KeyboardInterrupt
        last = before
        with contextlib.suppress(OSError):
            os.write(2, b"\nstopping the servers, a few seconds more\n")

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupted)


if __name__ == "__main__":
    main()
