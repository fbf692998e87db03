"""The simplest durable writer, for comparison: one file for each partition; each request is written and synced before
the next.
"""

import os
import tempfile
import time


def requests_per_second(frame: bytes, files: int, seconds: float) -> float:
    """Write `frame` to `files` files in turn, with fdatasync after each write, for `seconds`. Returns writes per
    second.
    """
    with tempfile.TemporaryDirectory(prefix="fencepost-bench-") as directory:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        fds = [os.open(os.path.join(directory, str(i)), flags, 0o600) for i in range(files)]
        done, began = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - began) < seconds:
            fd = fds[done % files]
            os.write(fd, frame)
            os.fdatasync(fd)
            done += 1
        for fd in fds:
            os.close(fd)
    return done / elapsed
