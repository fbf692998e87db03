"""Reads lines of standard input in a thread, in blocks, for an event loop.

The rule: the thread reads the descriptor, not sys.stdin, because it would hold the lock of sys.stdin while it waits,
and the interpreter needs that lock to exit: Ctrl-C would wait until the user presses Enter. At most AHEAD blocks are
read ahead.
"""

import asyncio
import os
import threading
from collections import deque
from collections.abc import AsyncIterator

from ...effects.threads import start_thread

BLOCK_BYTES = 1 << 16
AHEAD = 8


async def lines(fd: int = 0) -> AsyncIterator[list[bytes]]:
    """Yield lists of lines, without line ends, as they arrive. Raises OSError, CannotStartThread."""
    blocks, arrived, room = deque[bytes | OSError](), asyncio.Event(), threading.Semaphore(AHEAD)
    loop = asyncio.get_running_loop()

    def put(block: bytes | OSError) -> None:
        blocks.append(block)
        arrived.set()

    def read() -> None:
        """Read standard input block by block, in a thread, until its end or an error. A semaphore limits how many
        blocks are read ahead.
        """
        block: bytes | OSError = b"?"
        while block and not isinstance(block, OSError):
            room.acquire()
            try:
                block = os.read(fd, BLOCK_BYTES)
            except OSError as error:
                block = error
            try:
                loop.call_soon_threadsafe(put, block)
            except RuntimeError:  # the loop is closed
                return

    start_thread(read, "fencepost-stdin")
    rest = b""
    while True:
        while not blocks:
            arrived.clear()
            await arrived.wait()
        block = blocks.popleft()
        room.release()
        if isinstance(block, OSError):
            raise block
        if not block:
            break
        whole, newline, after = block.rpartition(b"\n")
        if newline:
            yield (rest + whole).split(b"\n")
            rest = after
        else:
            rest += block
    if rest:
        yield [rest]
