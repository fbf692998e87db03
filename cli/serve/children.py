"""A child process that belongs to the broker: it is started with the broker, started again when it ends, and ended with
it.

The rule: the broker needs nothing from it and never waits for it, so it may die, hang or run out of memory. It ends
with the broker, however that ends, because its standard input is a pipe from the broker's process.
"""

import asyncio
import contextlib
import errno
import os
import time
from collections.abc import Callable, Sequence

from ...effects.threads import MORE_THREADS
from ..arguments.login import CONFIG_VARIABLE, PASSWORD_VARIABLE, USER_VARIABLE
from ..output.failures import REFUSED_BY_SYSTEM
from ..output.writing import show

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
LONGEST_LINE = 1 << 20


async def run_child(who: str, command: Sequence[str], on_line: Callable[[bytes], None] | None = None) -> None:
    """Run a child until cancelled. If it ends, start it again, each time after a longer pause.

    Cancelled, it waits for the child to end; cancelled again, it kills it. on_line: called with each line that the
    child prints; None: they go to standard output.
    """
    pause_s = FIRST_PAUSE_S
    while True:
        began_s = time.monotonic()
        ended = await _run_once(command, on_line)
        if time.monotonic() - began_s > LONGEST_PAUSE_S:
            pause_s = FIRST_PAUSE_S
        with contextlib.suppress(OSError):  # nobody reads standard error
            show(f"warning: {who} {ended}; again in {pause_s:.0f} s", err=True)
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


async def _run_once(command: Sequence[str], on_line: Callable[[bytes], None] | None) -> str:
    """Run the child until it ends. Returns how it ended, in words."""
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=None if on_line is None else pipe, env=_environment(), limit=LONGEST_LINE
        )
    except OSError as error:  # no descriptor, memory or process is left for it, which may change
        more = f" ({MORE_THREADS})" if error.errno == errno.EAGAIN else ""
        return f"cannot be started: {(error.strerror or str(error)).lower()}{more}"
    try:
        if on_line is not None and process.stdout is not None:
            async for line in process.stdout:
                on_line(line)
        code = await process.wait()
    finally:
        await _end(process)
    return f"has ended with exit code {code}" + (f" ({MORE_THREADS})" if code == REFUSED_BY_SYSTEM else "")


def _environment() -> dict[str, str]:
    """Return the environment for a child, without the login of other commands: the console's is in
    --http-client-config.
    """
    others = (USER_VARIABLE, PASSWORD_VARIABLE, CONFIG_VARIABLE)
    return {name: text for name, text in os.environ.items() if name not in others}


async def _end(process: asyncio.subprocess.Process) -> None:
    """Close the child's standard input, which ends it, and wait for that. If this is cancelled before the child has
    ended, kill it.
    """
    if process.stdin is not None:
        process.stdin.close()
    try:
        if process.stdout is not None:
            await process.stdout.read()
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def end_child(running: "asyncio.Task[None]", within_s: float) -> None:
    """Cancel a run_child() task, if it is not being cancelled already, and wait for its end. Kills a child that has not
    ended after within_s.
    """
    if not running.cancelling():  # a second time would kill it at once
        running.cancel()
    await asyncio.wait([running], timeout=within_s)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
