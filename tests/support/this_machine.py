"""What this machine has, for the tests that cannot do without it: asked of the system, never of the code under test."""

import ctypes
import errno
import mmap
import os
import shutil
import socket
import sys
from pathlib import Path

_CACHESTAT = 451


def has_ipv6() -> bool:
    """Return whether this machine has an IPv6 address that can be listened on; Python knows the family in any case."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def congestion_controls() -> set[str]:
    """Return the TCP congestion controls that any process may choose; none if the system does not tell."""
    try:
        return set(Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control").read_text().split())
    except OSError:
        return set()


def has_compiler() -> bool:
    """Return whether there is a C compiler."""
    return any(shutil.which(name) for name in ("cc", "gcc"))


def has_cachestat() -> bool:
    """Return whether the system call cachestat(2) works: Linux since 6.5, unless a sandbox forbids it."""
    if sys.platform != "linux":
        return False
    ctypes.CDLL(None, use_errno=True).syscall(_CACHESTAT, -1, None, None, 0)
    return ctypes.get_errno() == errno.EBADF


def goes_past_cache(directory: Path) -> bool:
    """Return whether O_DIRECT leaves nothing in the page cache there. A tmpfs refuses it, or accepts it and keeps
    everything in memory.
    """
    path = directory / "past-cache"
    try:
        fd = os.open(path, os.O_CREAT | os.O_WRONLY | getattr(os, "O_DIRECT", 0))
        try:
            with mmap.mmap(-1, mmap.PAGESIZE) as page:  # which lies where a device wants it
                os.pwrite(fd, page, 0)
        finally:
            os.close(fd)
        return bytes_in_memory(str(path)) == 0
    except OSError:
        return False
    finally:
        path.unlink(missing_ok=True)


def bytes_in_memory(path: str) -> int:
    """Return how many bytes of a file are in the page cache.

    A read that does not wait tells less: it starts reading the bytes, and they may arrive soon enough.
    """
    with open(path, "r+b") as opened, mmap.mmap(opened.fileno(), 0) as mapped:
        first = ctypes.c_char.from_buffer(mapped)
        resident = (ctypes.c_ubyte * -(-len(mapped) // mmap.PAGESIZE))()
        failed = ctypes.CDLL(None).mincore(ctypes.byref(first), ctypes.c_size_t(len(mapped)), resident)
        del first
    assert not failed
    return sum(page & 1 for page in resident) * mmap.PAGESIZE
