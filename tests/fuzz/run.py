"""Fuzz for a given time: `python tests/fuzz/run.py --minutes 60 [TARGET…]`, by atheris if it can be imported.

Each target has its share of the time, over what earlier runs have found in build/fuzz/corpus. Then every input of the
corpus is measured: lines of Python and memory. An input that fails is printed as a line for tests/fuzz/found.txt.
"""

import argparse
import hashlib
import importlib.util
import logging
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from random import Random
from typing import NamedTuple

if __name__ == "__main__":
    TESTS = Path(__file__).resolve().parent.parent
    sys.path[:0] = [str(TESTS), *map(str, (TESTS / "support").glob("**/"))]

from fuzz.found import FOUND
from fuzz.live import attack, check_nothing_is_left, no_errors_logged, work_honestly
from fuzz.live import target as brokers
from fuzz.loop import Failed, Watch, grow, measure
from fuzz.table import TARGETS
from fuzz.target import Target

HERE = Path(__file__).resolve().parent
PLACE = HERE.parent.parent / "build" / "fuzz"
LONGEST_S = 20  # libFuzzer's limit for one input
LARGEST_MB = 2048
MEASURED = 200
LIVE = "live"  # random requests against whole brokers
REQUESTS = 2_000  # to each broker


class Result(NamedTuple):
    """coverage: in the units of the tool. failures: the inputs that failed."""

    executions: int
    coverage: int
    corpus: int
    failures: list[bytes]


def write_inputs(directory: Path, inputs: Iterable[bytes]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for data in inputs:
        (directory / hashlib.sha256(data).hexdigest()[:20]).write_bytes(data)


def read_inputs(directory: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(directory.iterdir())] if directory.exists() else []


def by_atheris(target: Target, seconds: int) -> Result:
    corpus, seeds, failing = (PLACE / part / target.name for part in ("corpus", "seeds", "failing"))
    for each in (corpus, failing):
        each.mkdir(parents=True, exist_ok=True)
    write_inputs(seeds, [*target.seeds(), *FOUND.get(target.name, ())])
    before = set(read_inputs(failing))
    command = [sys.executable, str(HERE / "under_atheris.py"), target.name, str(corpus), str(seeds)]
    command += [f"-max_total_time={seconds}", f"-max_len={target.at_most_bytes}", f"-artifact_prefix={failing}/"]
    command += [
        f"-timeout={LONGEST_S}",
        f"-rss_limit_mb={LARGEST_MB}",
        "-print_final_stats=1",
        f"-report_slow_units={LONGEST_S}",
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    (PLACE / f"{target.name}.log").write_text(done.stdout)
    executed = re.findall(r"number_of_executed_units: (\d+)", done.stdout) or re.findall(r"^#(\d+)", done.stdout, re.M)
    covered = re.findall(r"cov: (\d+)", done.stdout)
    failures = [data for data in read_inputs(failing) if data not in before]
    if done.returncode and not failures:
        raise RuntimeError(f"atheris ended with {done.returncode}: see {PLACE / target.name}.log")
    return Result(int([0, *executed][-1]), int([0, *covered][-1]), len(read_inputs(corpus)), failures)


def by_own_loop(target: Target, seconds: int) -> Result:
    corpus = PLACE / "corpus" / target.name
    inputs = [*target.seeds(), *FOUND.get(target.name, ()), *read_inputs(corpus)]
    ends_at = time.monotonic() + seconds
    executions = 0

    def goes_on(so_far: int) -> bool:
        nonlocal executions
        executions = so_far
        return time.monotonic() < ends_at

    try:
        kept, executions, watch = grow(target, inputs, Random(time.time_ns()), goes_on)
    except Failed as failure:
        return Result(executions, 0, len(inputs), [failure.data])
    write_inputs(corpus, kept)
    return Result(executions, len(watch.steps), len(kept), [])


def too_costly(target: Target) -> list[bytes]:
    """Return the inputs of the corpus, or of a sample of MEASURED, that exceed the limits of lines or memory."""
    found, watch = [], Watch()
    corpus = read_inputs(PLACE / "corpus" / target.name)
    for data in Random(len(corpus)).sample(corpus, min(len(corpus), MEASURED)):
        try:
            measure(target, data, watch)
        except Failed as failure:
            print(str(failure).partition("\n")[2])
            found.append(failure.data)
    return found


def live(seconds: int) -> bool:
    """Attack brokers, alternately with and without an authorizer. Returns whether all checks held."""
    logging.getLogger("fencepost").addHandler(logging.NullHandler())  # the warnings about bad requests are expected
    first, ends_at = time.time_ns() % 1_000_000, time.monotonic() + seconds
    came: Counter[str] = Counter()
    for seed in count(first):
        try:
            with no_errors_logged(), brokers(is_guarded=seed % 2 == 1) as broker:
                came += attack(broker, seed, REQUESTS)
                check_nothing_is_left(broker)
                work_honestly(broker, seed)
        except (Exception, AssertionError) as error:
            print(f"  {LIVE} seed {seed}: {type(error).__name__}: {error}")
            return False
        if time.monotonic() >= ends_at:
            break
    print(f"{LIVE:<20} {came['requests']:>12,} requests, {came['answers']:,} answers", flush=True)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--own-loop", action="store_true", help="even if atheris can be imported")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"all: {', '.join([*TARGETS, LIVE])}")
    given = parser.parse_args()
    names = given.targets or [*TARGETS, LIVE]
    targets = [TARGETS[name] for name in names if name != LIVE]
    has_atheris = importlib.util.find_spec("atheris") is not None and not given.own_loop
    seconds = max(1, int(given.minutes * 60 / len(names)))
    print(f"{len(names)} targets, {seconds} s each, by {'atheris' if has_atheris else 'the loop of our own'}")
    print(f"{'target':<20} {'executions':>12} {'coverage':>9} {'corpus':>7} {'failing':>8}", flush=True)
    failing = 0
    for target in targets:
        result = (by_atheris if has_atheris else by_own_loop)(target, seconds)
        failures = [*result.failures, *too_costly(target)]
        row = f"{target.name:<20} {result.executions:>12,} {result.coverage:>9,} {result.corpus:>7,}"
        print(f"{row} {len(failures):>8}", flush=True)
        for data in failures:
            print(f"  {target.name} {data.hex()}", flush=True)
        failing += len(failures)
    held = LIVE not in names or live(seconds)
    return 0 if held and not failing else 1


if __name__ == "__main__":
    sys.exit(main())
