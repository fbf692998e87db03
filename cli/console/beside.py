"""The console as a child process of `fencepost serve`: how it gives way to the broker, and ends with it.

Why a process: the console's work (JSON, decompression, a hundred event streams) would otherwise run on the broker's
loop, or take the interpreter's lock from it in a thread, and delay produce requests. A process of lower priority does
neither, and when it dies or runs out of memory the broker does not notice.
"""

import asyncio
import os

from ...effects.threads import start_thread

NICE = 10


def give_way() -> None:
    """Lower this process's priority, so that the scheduler prefers the broker."""
    try:
        os.nice(NICE)
    except OSError:
        pass


def end_with_standard_input(ended: asyncio.Event) -> None:
    """Set `ended` when standard input, the pipe from the broker's process, is closed: also by its kill -9.

    Raises: CannotStartThread.
    """
    loop = asyncio.get_running_loop()

    def wait() -> None:
        """Wait until standard input ends, which it does with the broker's process, then end the console."""
        while os.read(0, 1024):
            pass
        try:
            loop.call_soon_threadsafe(ended.set)
        except RuntimeError:  # it ends already
            pass

    start_thread(wait, "until the broker ends")
