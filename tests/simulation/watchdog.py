"""Ends a seed in which virtual time stands still: a step that never ends, or steps that call each other for ever.

Time is that of this process's processor, so a busy machine ends nothing. The error names the seed and who was running,
with its stack. It is a KeyboardInterrupt, since asyncio, and code that retries, keep other errors to themselves.
"""

import asyncio
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from fencepost.effects.simulated.loop import SimulatedLoop
from simulation.processes import running_process

STUCK_S = 60.0  # of the processor; the longest step that is right takes well below a second
DEPTH = 25  # frames that are shown, the innermost
SOON_S, MAX_LOOKS = 0.001, 200


class Stuck(KeyboardInterrupt):
    """Virtual time stands still."""


@contextmanager
def watched(seed: int, loop: SimulatedLoop, stuck_s: float = STUCK_S) -> Iterator[None]:
    """Within the block, raise Stuck if virtual time stands still for stuck_s of processor time. Outside of the main
    thread nothing is watched.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    last: float | None = None
    looks = 0  # at the loop between two steps, one after the other

    def look(number: int, frame: FrameType | None) -> None:
        nonlocal last, looks
        now = loop.time()
        if now != last:
            last, looks = now, 0
            signal.setitimer(signal.ITIMER_VIRTUAL, stuck_s / 2)
        elif _running_task(loop) is None and looks < MAX_LOOKS:
            looks += 1
            signal.setitimer(signal.ITIMER_VIRTUAL, SOON_S)  # the loop chooses the next step: see who runs it
        else:  # the timer stays off: no second error while this one is on its way
            raise Stuck(_text(seed, loop, frame))

    before = signal.signal(signal.SIGVTALRM, look)
    signal.setitimer(signal.ITIMER_VIRTUAL, stuck_s / 2)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)


def _running_task(loop: SimulatedLoop) -> "asyncio.Task[object] | None":
    found: asyncio.Task[object] | None = asyncio.tasks._current_tasks.get(loop)  # type: ignore[attr-defined]
    return found


def _text(seed: int, loop: SimulatedLoop, frame: FrameType | None) -> str:
    process, task = running_process(), _running_task(loop)
    who = process.name if process is not None else "a client without a process"
    if task is not None:
        who += f", {task.get_name()} {task.get_coro()!r}"
    stack = "".join(traceback.format_stack(frame)[-DEPTH:])
    text = f"seed {seed} is stuck at {loop.time():.3f} s, in {who}\n{stack}"
    print(text, file=sys.stderr, flush=True)
    return text
