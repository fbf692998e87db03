"""Lines of standard input for an event loop: a thread reads them, a block at a time.

The rule: the thread holds no lock that the end of the process needs (it reads the descriptor, not Python's stream), so
Ctrl-C does not wait until somebody presses Enter. It reads only a few blocks ahead.
"""

import asyncio
import os
import threading
from collections import deque
from collections.abc import AsyncIterator

BLOCK_BYTES = 1 << 16
AHEAD = 8


async def lines(fd: int = 0) -> AsyncIterator[list[bytes]]:
    """The lines without their ends, several at a time if they arrive fast. Raises OSError."""
    blocks, came, room = deque[bytes | OSError](), asyncio.Event(), threading.Semaphore(AHEAD)
    loop = asyncio.get_running_loop()

    def put(block: bytes | OSError) -> None:
        blocks.append(block)
        came.set()

    def read() -> None:
        block: bytes | OSError = b"?"
        while block and not isinstance(block, OSError):
            room.acquire()
            try:
                block = os.read(fd, BLOCK_BYTES)
            except OSError as error:
                block = error
            try:
                loop.call_soon_threadsafe(put, block)
            except RuntimeError:  # the loop is closed: nobody listens any more
                return

    threading.Thread(target=read, name="fencepost-stdin", daemon=True).start()
    rest = b""
    while True:
        while not blocks:
            came.clear()
            await came.wait()
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
