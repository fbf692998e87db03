"""Finds out whether bytes of a file are in the page cache, by cachestat(2), which Python lacks.

The rule: True is an observation, not a promise, because pages may be dropped at any time; False also if the system
cannot tell. Source: Linux since 6.5. The call has one number on x86, ARM, POWER, RISC-V and s390.
"""

import functools
import mmap
import sys
from collections.abc import Callable

_CACHESTAT = 451
_BAD_DESCRIPTOR = -1


def holds(fd: int, size: int, position: int) -> bool:
    """Return whether the page cache holds all these bytes. Takes 1 µs, and 2 more for a MiB of small pages."""
    cached_pages = _cachestat()
    if cached_pages is None or size <= 0:
        return False
    pages = (position + size - 1) // mmap.PAGESIZE - position // mmap.PAGESIZE + 1
    return cached_pages(fd, size, position) >= pages


@functools.cache
def _cachestat() -> Callable[[int, int, int], int] | None:
    """Return cachestat: (descriptor, size, position) → pages, -1 for an error; None if it is missing or forbidden."""
    if sys.platform != "linux":
        return None
    import ctypes  # only a broker that reads from segments needs it
    import errno

    call = ctypes.CDLL(None, use_errno=True).syscall
    extent, counts = ctypes.c_uint64 * 2, ctypes.c_uint64 * 5  # offset, length; cached, dirty, writeback, evicted, …
    byref = ctypes.byref
    number, no_flags = ctypes.c_long(_CACHESTAT), ctypes.c_uint(0)

    def cached_pages(fd: int, size: int, position: int) -> int:
        """Return how many pages of these bytes are cached; -1 for an error."""
        found = counts()
        failed = call(number, ctypes.c_uint(fd & 0xFFFFFFFF), byref(extent(position, size)), byref(found), no_flags)
        return -1 if failed else found[0]

    cached_pages(_BAD_DESCRIPTOR, 1, 0)
    return cached_pages if ctypes.get_errno() == errno.EBADF else None
