"""Writes of whole blocks by O_DIRECT, which bypasses the page cache, from one buffer for each thread.

They have two uses. Large data that is seldom read back, where the system has no RWF_DONTCACHE, and for paced writes:
without the page cache no new pages are allocated, written back later, or taken from other data. The bytes at either end
that fill no block are written by the caller through the cache, so that no block is written in both ways; they are
durable only after a sync. And small writes that sync themselves, for which this module has the descriptor and the
buffer (writing.py, docs/decisions/0026). Source: Linux open(2), O_DIRECT: addresses, positions and sizes are multiples
of the device's block.
"""

import errno
import mmap
import os
import threading
from collections.abc import Sequence
from typing import TypeAlias

from ..gathering import Buffer, join_buffers

Views: TypeAlias = list[memoryview]

BLOCK_BYTES = 4096  # devices have blocks of 512 bytes or of this size
PIECE_BYTES = 512 << 10
"""What one call writes, so what the device has of a paced write at a time (docs/decisions/0028). Small writes fit in
one piece.
"""
_O_DIRECT: int = getattr(os, "O_DIRECT", 0)
_UNSUPPORTED = (errno.EINVAL, errno.EOPNOTSUPP)

_own = threading.local()


def split(buffers: Sequence[Buffer], position: int) -> tuple[Views, Views, Views] | None:
    """Split the buffers into (bytes before the first whole block of the file, whole blocks, the rest).

    position: in the file. None if there is no whole block, or the system has no O_DIRECT.
    """
    size = sum(map(len, buffers))
    head = -position % BLOCK_BYTES
    whole = (size - head) // BLOCK_BYTES * BLOCK_BYTES
    if not _O_DIRECT or whole <= 0:
        return None
    left = [memoryview(buffer) for buffer in reversed(join_buffers(buffers, size))]
    return _take(left, head), _take(left, whole), _take(left, size - head - whole)


def _take(left: Views, size: int) -> Views:
    """Remove the first `size` bytes from a stack of views, and return them. left: the stack; the first view is the
    last in the list.
    """
    taken: Views = []
    while size:
        view = left.pop()
        if len(view) > size:
            left.append(view[size:])
            view = view[:size]
        taken.append(view)
        size -= len(view)
    return taken


def open_again(fd: int) -> int:
    """Open the same file with O_DIRECT. Returns the new descriptor. Raises OSError, also if there is no /proc."""
    if not _O_DIRECT:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
    return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | _O_DIRECT)


def write(fd: int, buffers: Views, position: int) -> bool:
    """Write whole blocks. Returns False if this file system has no direct writes; some blocks may be written then.

    Raises OSError; then any part may be written.
    """
    try:
        direct = open_again(fd)
    except OSError:  # perhaps no descriptor is left; the caller's write through the page cache needs none
        return False
    try:
        return _write(direct, buffers[::-1], position)
    finally:
        os.close(direct)


def fill_piece(buffers: Sequence[Buffer], size_bytes: int) -> memoryview | None:
    """Copy the bytes into this thread's buffer, which is aligned to a page, and return that. None if no memory is
    left.

    The buffer is private memory: a forked child must not write into its parent's.
    """
    piece: memoryview | None = getattr(_own, "piece", None)
    if piece is None:
        try:
            piece = _own.piece = memoryview(mmap.mmap(-1, PIECE_BYTES, flags=mmap.MAP_PRIVATE))
        except OSError:
            return None
    filled = 0
    for buffer in buffers:
        piece[filled : filled + len(buffer)] = buffer
        filled += len(buffer)
    return piece[:size_bytes]


def _write(fd: int, left: Views, position: int) -> bool:
    """Write these views, a stack as in _take(), piece by piece. Returns False if direct writes are not possible; see
    write().
    """
    size = sum(map(len, left))
    while size:
        count = min(size, PIECE_BYTES)
        piece = fill_piece(_take(left, count), count)
        if piece is None:
            return False
        try:
            written = os.pwrite(fd, piece, position)
        except OSError as error:
            if error.errno in _UNSUPPORTED:
                return False
            raise
        if written != count:  # no space, or a signal: the caller's write through the page cache finds out which
            return False
        position += count
        size -= count
    return True
