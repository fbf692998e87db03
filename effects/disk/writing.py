"""Writes of many buffers to a descriptor, through the page cache, or bypassing it for large data that is seldom read
back.

The rule: everything is written, or an error raised after which any part may be. There are two ways to bypass the cache.
With the flag RWF_DONTCACHE the kernel copies the bytes without the interpreter's lock, hands all of them to the device
at once and drops the pages. If it does not know the flag (docs/decisions/0023), and for paced writes, which give the
device a piece at a time (docs/decisions/0028), O_DIRECT writes whole blocks from a buffer of ours (direct.py), and the
bytes at either end that fill no block are written through the cache. Source: Linux `pwritev2(2)`.
"""

import errno
import os
import re
import sys
from collections.abc import Sequence

from ..gathering import Buffer, join_buffers
from . import direct

IOV_MAX = os.sysconf("SC_IOV_MAX")
RWF_DONTCACHE = 0x80  # Python has no name for it
RWF_DSYNC: int = getattr(os, "RWF_DSYNC", 0)
_UNKNOWN = (errno.EOPNOTSUPP, errno.EINVAL)  # raised if the kernel or the file system does not know a flag


def _is_linux_from(major: int, minor: int) -> bool:
    """Return whether the kernel is a Linux of this version or a later one."""
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return sys.platform == "linux" and release is not None and (int(release[1]), int(release[2])) >= (major, minor)


# The flag exists since 6.14. Acknowledged bytes depend on it, so the kernels in which it was new are left out. Tested
# on 6.18.
HAS_DONTCACHE = _is_linux_from(6, 16)


def write(fd: int, buffers: Sequence[Buffer], position: int, flags: int = 0) -> None:
    """Write all buffers one after another, at `position`. flags: of pwritev2(2). Raises OSError."""
    # One system call in the common case.
    if len(buffers) > IOV_MAX or os.pwritev(fd, buffers, position, flags) != sum(map(len, buffers)):
        _write_in_pieces(fd, buffers, position, flags)


def write_past_cache(fd: int, buffers: Sequence[Buffer], position: int, *, paced: bool = False) -> None:
    """Like write(), but without filling the page cache if the system can. paced: give the device one piece at a time.

    Raises OSError.
    """
    buffers = join_buffers(buffers, sum(map(len, buffers)))
    ways = (_write_direct, _write_uncached) if paced else (_write_uncached, _write_direct)
    if not any(way(fd, buffers, position) for way in ways):
        write(fd, buffers, position)


def write_synced(fd: int, buffers: Sequence[Buffer], position: int) -> bool:
    """Write, and return True when the bytes are on the device. False if the system cannot do that. Raises OSError."""
    return bool(RWF_DSYNC) and _write_flagged(fd, buffers, position, RWF_DSYNC)


def write_blocks_synced(direct_fd: int, buffers: Sequence[Buffer], position: int, size_bytes: int) -> bool:
    """Like write_synced(), but bypass the page cache, and write over whole blocks that the file already has.

    direct_fd: a descriptor from direct.open_again(). Returns False if the system cannot do that; any part may be
    written then. Raises OSError.
    """
    if not RWF_DSYNC or size_bytes > direct.PIECE_BYTES or (position | size_bytes) % direct.BLOCK_BYTES:
        return False
    piece = direct.fill_piece(join_buffers(buffers, size_bytes), size_bytes)
    return piece is not None and _write_flagged(direct_fd, [piece], position, RWF_DSYNC)


def _write_in_pieces(fd: int, buffers: Sequence[Buffer], position: int, flags: int) -> None:
    """Write in several calls. If one call has written a part before, its bytes are written again; that is harmless."""
    left = [memoryview(buffer) for buffer in buffers if len(buffer)]
    left.reverse()
    while left:
        written = os.pwritev(fd, left[: -IOV_MAX - 1 : -1], position, flags)
        if written == 0:
            raise OSError(errno.EIO, "the device takes no bytes")
        position += written
        while left and written >= len(left[-1]):
            written -= len(left.pop())
        if written:
            left[-1] = left[-1][written:]


def _write_flagged(fd: int, buffers: Sequence[Buffer], position: int, flag: int) -> bool:
    """Write with this flag of pwritev2(2). Returns False if the system or this file system does not know it."""
    try:
        write(fd, buffers, position, flag)
    except NotImplementedError:  # a Python built where there was no pwritev2
        return False
    except OSError as error:
        if error.errno not in _UNKNOWN:
            raise
        return False
    return True


def _write_uncached(fd: int, buffers: Sequence[Buffer], position: int) -> bool:
    """Write with RWF_DONTCACHE. Returns False if the system or this file system does not know it."""
    return HAS_DONTCACHE and _write_flagged(fd, buffers, position, RWF_DONTCACHE)


def _write_direct(fd: int, buffers: Sequence[Buffer], position: int) -> bool:
    """Write with O_DIRECT. Returns False if there is no whole block or the system cannot do that; any part may be
    written then.
    """
    parts = direct.split(buffers, position)
    if parts is None:
        return False
    before, blocks, after = parts
    begin = position + sum(map(len, before))
    if not direct.write(fd, blocks, begin):
        return False
    write(fd, before, position)
    write(fd, after, begin + sum(map(len, blocks)))
    return True
