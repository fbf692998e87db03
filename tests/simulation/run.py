"""Simulations by seed: `python tests/simulation/run.py --seeds 100`, or one again with `--seed N`.

A run is traffic under faults, then healing, then a look at everything. Each failing seed is printed with the command
that replays it, exactly.
"""

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    TESTS = Path(__file__).resolve().parent.parent
    sys.path[:0] = [str(TESTS), str(TESTS / "support")]

from fencepost.effects.simulated.loop import SimulatedLoop
from simulation.checker import check
from simulation.history import History
from simulation.scenario import play
from simulation.world import Quiet, World

SECONDS = 30.0  # of traffic, virtual


@dataclass
class Result:
    """What became of a seed."""

    seed: int
    history: History
    anomalies: list[Any]
    failures: list[str]
    lives: int
    struck: dict[str, int]
    virtual_s: float
    broken: str = ""

    @property
    def good(self) -> bool:
        return not (self.anomalies or self.failures or self.broken)

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: {self.lives} lives, {len(self.history.ops)} operations, {self.virtual_s:.0f} s"]
        lines += [f"  {anomaly}" for anomaly in self.anomalies[:5]] + [f"  {text}" for text in self.failures[:5]]
        if self.broken:
            lines.append(f"  {self.broken}")
        return "\n".join(lines)


def simulate(seed: int, seconds: float = SECONDS, prepare: Callable[[Any], None] = lambda broker: None) -> Result:
    """One seed, from an empty disk to the verdict."""
    loop = SimulatedLoop(seed)
    asyncio.set_event_loop(None)
    world = World(seed, loop, prepare)
    broken, struck = "", {}
    with Quiet():
        try:
            struck = loop.run_until_complete(play(world, seconds))
        except Exception as error:
            broken = f"{type(error).__name__}: {error}"
            if os.environ.get("SIM_TRACEBACK"):
                raise
        finally:
            world.end()
            _close(loop)
    anomalies = check(world.history)
    with Quiet():
        world.bury()
    return Result(seed, world.history, anomalies, world.failures, world.lives, struck, loop.time(), broken)


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
    parser.add_argument("--seed", type=int)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--history", action="store_true", help="print every operation")
    options = parser.parse_args()
    if options.seed is not None:
        result = simulate(options.seed, options.seconds)
        if options.history:
            print("\n".join(repr(op)[:300] for op in result.history.ops))
        print(result, result.history.digest(), result.struck, sep="\n")
        return 0 if result.good else 1
    return _many(range(options.first, options.first + options.seeds), options.seconds, options.workers)


def _many(seeds: range, seconds: float, workers: int) -> int:
    bad, began, virtual, ops = 0, time.monotonic(), 0.0, 0
    with ProcessPoolExecutor(workers) as pool:
        for number, (seed, result) in enumerate(pool.map(_summary, [(seed, seconds) for seed in seeds]), 1):
            good, text, virtual_s, count = result
            virtual += virtual_s
            ops += count
            if not good:
                bad += 1
                print(f"{text}\n  again: make sim SEED={seed} SECONDS={seconds:g}", flush=True)
            if number % 10 == 0 or number == len(seeds):
                rate = f"{virtual / 3600:.2f} simulated hours, {ops} operations"
                spent = time.monotonic() - began
                print(f"{number} of {len(seeds)} seeds in {spent:.0f} s, {bad} bad; {rate}", flush=True)
    return 1 if bad else 0


def _summary(work: tuple[int, float]) -> tuple[int, tuple[bool, str, float, int]]:
    seed, seconds = work
    result = simulate(seed, seconds)
    return seed, (result.good, str(result), result.virtual_s, len(result.history.ops))


if __name__ == "__main__":
    sys.exit(main())
