"""The console as a child process of `fencepost serve`: how it leaves the CPU to the broker, and ends with it.

Why a process: the console's work (JSON, decompression, a hundred event streams) would otherwise run on the broker's
loop, or take the interpreter's lock from it in a thread, and delay produce requests. A process of lower priority does
neither, and the broker does not notice if it dies or runs out of memory.
"""

import asyncio
import os

from ...effects.threads import start_thread

NICE = 10


def give_way() -> None:
    """Lower this process's priority, so that the broker gets the CPU first."""
    try:
        os.nice(NICE)
    except OSError:
        pass


def end_with_standard_input(ended: asyncio.Event) -> None:
    """Set `ended` when standard input is closed. It is a pipe from the broker's process, so this happens however that
    process ends, also by kill -9.

    Raises CannotStartThread.
    """
    loop = asyncio.get_running_loop()

    def wait() -> None:
        """Wait until standard input ends, then set `ended`."""
        while os.read(0, 1024):
            pass
        try:
            loop.call_soon_threadsafe(ended.set)
        except RuntimeError:  # the loop is closed: the console has ended
            pass

    start_thread(wait, "until the broker ends")
