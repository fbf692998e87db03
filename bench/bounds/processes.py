"""Loads in processes of their own, so that a measured client shares neither loop nor memory with the bench.

The parent starts a module of this package with `figures_of`; the module, run as a program, answers with
`print_figures`. Between them goes one line of JSON.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Coroutine
from types import ModuleType

from ..peers import peers

Figures = dict[str, float]
"""What a load measured, by the name of the figure: "rate" (units per second), "took_ms"."""

PATIENCE_S = 240
START_S = 120  # seconds that a process may need besides its load, on a busy machine
NOISE = 5  # lines of a failed load that are shown


def figures_of(load: ModuleType, *words: str) -> Figures:
    """Run a module of loads as a program with these arguments. Returns the figures that it prints.

    Raises: RuntimeError with its last output, if it fails. subprocess.TimeoutExpired, if it does not end.
    """
    command = [sys.executable, "-m", load.__name__, *words]
    patience_s = PATIENCE_S + START_S
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience_s, env=peers.environment())
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: " + " / ".join(done.stderr.splitlines()[-NOISE:]))
    found: Figures = json.loads(done.stdout)
    return found


def print_figures(load: Coroutine[object, object, Figures]) -> None:
    """Run the load on uvloop and print its figures as JSON. Raises: TimeoutError after PATIENCE_S."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(asyncio.wait_for(load, PATIENCE_S))))
