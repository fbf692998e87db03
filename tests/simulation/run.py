"""Simulations by seed: `python tests/simulation/run.py --seeds 100`, or one again with `--seed N`.

A run is traffic under faults, then healing, then a look at everything. Each failing seed is printed with the command
that replays it, exactly.
"""

import argparse
import asyncio
import gc
import multiprocessing
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    TESTS = Path(__file__).resolve().parent.parent
    sys.path[:0] = [str(TESTS), *map(str, (TESTS / "support").glob("**/"))]

from fencepost.effects.simulated.loop import SimulatedLoop
from simulation.checker import check
from simulation.history import History
from simulation.limits import forgetting_is_told, met
from simulation.machines import StoredWorld
from simulation.measured_loop import MeasuredLoop
from simulation.mirror_scenario import play_mirror
from simulation.mirrored_world import MirroredWorld
from simulation.scenario import play
from simulation.watchdog import Stuck, watched
from simulation.world import Quiet, World

MEASURED_EVERY = 8  # in each such seed, what the steps of brokers take is counted
SECONDS = 30.0  # of traffic, virtual


@dataclass
class Result:
    """The result of one seed."""

    seed: int
    history: History
    anomalies: list[Any]
    failures: list[str]
    lives: int
    struck: dict[str, int]
    virtual_s: float
    broken: str = ""
    errors: Counter[int] = field(default_factory=Counter)  # that brokers answered with, by code

    @property
    def good(self) -> bool:
        return not (self.anomalies or self.failures or self.broken)

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: {self.lives} lives, {len(self.history.ops)} operations, {self.virtual_s:.0f} s"]
        lines += [f"  {anomaly}" for anomaly in self.anomalies[:5]] + [f"  {text}" for text in self.failures[:5]]
        if self.broken:
            lines.append(f"  {self.broken}")
        return "\n".join(lines)


def simulate(
    seed: int,
    seconds: float = SECONDS,
    prepare: Callable[[Any], None] = lambda broker: None,
    *,
    in_store: bool = False,
    only_queues: bool = False,
    mirror: bool = False,
) -> Result:
    """Run one seed, from an empty disk to the verdict. in_store: with brokers whose journal is in a store of objects.
    only_queues: with the clients of a share group and nobody else. mirror: two brokers, and a mirror between them.
    """
    with _garbage_stays():
        return _simulate(seed, seconds, prepare, in_store=in_store, only_queues=only_queues, mirror=mirror)


@contextmanager
def _garbage_stays() -> Iterator[None]:
    """Within the block, collect no garbage; at its end, collect all: walking a world that is alive took a sixth of the
    time.
    """
    gc.disable()
    try:
        yield
    finally:
        with warnings.catch_warnings(), Quiet():
            warnings.simplefilter("ignore", RuntimeWarning)  # of coroutines that nobody will ever await
            gc.collect()
        gc.enable()


def _simulate(
    seed: int,
    seconds: float,
    prepare: Callable[[Any], None],
    *,
    in_store: bool = False,
    only_queues: bool = False,
    mirror: bool = False,
) -> Result:
    loop = SimulatedLoop(seed) if seed % MEASURED_EVERY else MeasuredLoop(seed)
    asyncio.set_event_loop(None)
    world: World
    if mirror:
        world = MirroredWorld(seed, loop, prepare)
    else:
        world = StoredWorld(seed, loop, prepare) if in_store else World(seed, loop, prepare)
    world.only_queues = only_queues
    if isinstance(loop, MeasuredLoop):
        loop.on_excess = world.failures.append
    broken, struck, is_stuck = "", {}, False
    with Quiet(), world.schedule.in_force(), world.in_force(), forgetting_is_told(world):
        try:
            with watched(seed, loop):
                playing = play_mirror(world, seconds) if isinstance(world, MirroredWorld) else play(world, seconds)
                struck = loop.run_until_complete(playing)
        except Stuck as error:
            broken, is_stuck = str(error), True
        except Exception as error:
            broken = f"{type(error).__name__}: {error}"
            if os.environ.get("SIM_TRACEBACK"):
                raise
        finally:
            world.end()
            if is_stuck:
                loop.close()  # what does not end would not end now either
            else:
                _close(loop)
    anomalies = check(world.history)
    with Quiet():
        world.bury()
    return Result(
        seed, world.history, anomalies, world.failures, world.lives, struck, loop.time(), broken, world.errors
    )


def _close(loop: SimulatedLoop) -> None:
    left = [task for task in asyncio.all_tasks(loop) if getattr(task, "_log_destroy_pending", True)]
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left, timeout=1))
    loop.close()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--every", type=int, default=1, help="from one seed to the next")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--in-store", action="store_true", help="brokers whose journal is in a store of objects")
    parser.add_argument("--queues", action="store_true", help="the clients of a share group alone, in any seed")
    parser.add_argument("--mirror", action="store_true", help="two brokers, and a mirror between them")
    parser.add_argument("--history", action="store_true", help="print every operation")
    options = parser.parse_args()
    kind = {"in_store": options.in_store, "only_queues": options.queues, "mirror": options.mirror}
    if options.seed is not None:
        result = simulate(options.seed, options.seconds, **kind)
        if options.history:
            print("\n".join(repr(op)[:300] for op in result.history.ops))
        print(result, result.history.digest(), result.struck, met(result.history, result.errors), sep="\n")
        return 0 if result.good else 1
    seeds = range(options.first, options.first + options.seeds * options.every, options.every)
    return _many(seeds, options.seconds, options.workers, kind)


def _many(seeds: range, seconds: float, workers: int, kind: dict[str, bool]) -> int:
    """Simulate each seed in a process of its own, forked from this one: nothing is imported, compiled or collected
    twice. Returns the exit code.

    kind: what simulate() takes by name.
    """
    total = Total(len(seeds))
    # What is compiled when it is first asked for is there before forks are made.
    _simulate(0, 0.5, lambda broker: None, **kind)
    gc.freeze()
    work = [(seed, seconds, kind) for seed in seeds]
    with multiprocessing.get_context("fork").Pool(workers, maxtasksperchild=1) as pool:
        for good, text, virtual_s, ops, processor_s, limits in pool.imap(_summary, work):
            total.add(good, virtual_s, ops, processor_s)
            total.limits.update(limits)
            if not good:
                print(text, flush=True)
            if total.done % 10 == 0 or total.done == len(seeds):
                print(total, flush=True)
    print("seeds with", ", ".join(f"{name}: {count}" for name, count in total.limits.items()))
    return 1 if total.bad else 0


@dataclass
class Total:
    """What all seeds so far have cost, and how many were bad."""

    seeds: int
    done: int = 0
    bad: int = 0
    ops: int = 0
    virtual_s: float = 0.0
    processor_s: float = 0.0
    limits: Counter[str] = field(default_factory=Counter)  # in how many seeds each was met
    began: float = field(default_factory=time.monotonic)

    def add(self, good: bool, virtual_s: float, ops: int, processor_s: float) -> None:
        self.done += 1
        self.bad += not good
        self.virtual_s += virtual_s
        self.ops += ops
        self.processor_s += processor_s

    def __str__(self) -> str:
        spent = time.monotonic() - self.began
        rate = f"{self.ops / spent:.0f} a second, {self.ops / self.processor_s:.0f} a second of one processor"
        seeds = f"{self.done} of {self.seeds} seeds in {spent:.0f} s, {self.bad} bad"
        return f"{seeds}; {self.virtual_s / 3600:.2f} simulated hours, {self.ops} operations: {rate}"


def _summary(work: tuple[int, float, dict[str, bool]]) -> tuple[bool, str, float, int, float, list[str]]:
    """Simulate one seed for `_many`. The process ends afterwards, so no garbage is collected."""
    seed, seconds, kind = work
    gc.disable()
    result = _simulate(seed, seconds, lambda broker: None, **kind)
    flags = (("IN_STORE", "in_store"), ("QUEUES", "only_queues"), ("MIRROR", "mirror"))
    how = "".join(f" {flag}=1" for flag, name in flags if kind[name])
    text = f"{result}\n  again: make sim SEED={seed} SECONDS={seconds:g}{how}"
    limits = met(result.history, result.errors)
    return result.good, text, result.virtual_s, len(result.history.ops), time.process_time(), limits


if __name__ == "__main__":
    sys.exit(main())
