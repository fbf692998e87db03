"""Runs many syncs in parallel, after a hint to the system to begin writing, so that each sync has little left to
write.
"""

import functools
import sys
from collections.abc import Callable, Sequence

from ..threads import call_all

MANY_SYNCS = 64
SYNC_THREADS = 8


def run_syncs(syncs: Sequence[Callable[[], None]], write_back: Callable[[], None]) -> None:
    """Run all syncs; if they are many, in several threads and after write_back(), a hint to the system. Raises like
    call_all().
    """
    if len(syncs) < MANY_SYNCS:
        call_all(syncs, "sync", 1)
        return
    write_back()
    call_all(syncs, "sync", SYNC_THREADS)


@functools.cache
def syncfs() -> Callable[[int], int] | None:
    """Return the C function syncfs(2), which Python lacks; None if the system lacks it too."""
    import ctypes  # takes some milliseconds, so only a process with many files to sync imports it

    return getattr(ctypes.CDLL(None), "syncfs", None) if sys.platform == "linux" else None
