"""Splits a stream of bytes into frames: a length of four bytes, then that many bytes.

The rule: a length is judged before anything is kept for it, chunks are never glued one to another but joined once, and
what is kept of a chunk holds on to no more than four times its own size: it is a view where it is a quarter of its
chunk or more, and else a copy. Two large requests often come in one chunk, with the beginning of a third.
"""

from struct import Struct

from .errors import MalformedFrame
from .primitives import Readable

LARGEST_FRAME_BYTES = 104_857_600
"""Kafka's default of socket.request.max.bytes."""

_LENGTH = Struct(">i").unpack_from
PREFIX_BYTES = 4
_COPIED_BYTES = 4096  # frames up to here are bytes, larger ones views
_VIEWED_SHARE = 4  # a part is kept as a view if it is at least a quarter (1/4) of its chunk
_MAX_PIECES = 1024


class Framer:
    """Splits the bytes of one direction of a connection into frames. After it raised, the connection must be closed.

    held_bytes: how many bytes of an incomplete frame it has. wanted_bytes: that frame's whole size with its prefix; 0
    if that is not known, or there is none. completed: how many frames came in more than one piece.
    """

    __slots__ = ("_joined", "_pieces", "completed", "held_bytes", "max_bytes", "wanted_bytes")

    def __init__(self, max_bytes: int = LARGEST_FRAME_BYTES) -> None:
        self.max_bytes = max_bytes
        self.held_bytes = 0
        self.wanted_bytes = 0
        self.completed = 0
        self._pieces: list[Readable] = []  # of the frame that is not whole yet, its prefix included
        self._joined = 0  # pieces that were joined from many small ones

    def feed(self, chunk: bytes) -> list[Readable]:
        """Take the next bytes. Returns the frames that are complete now, without their length prefixes.

        Raises MalformedFrame for a length that is not above 0, or above the limit.
        """
        frames: list[Readable] = []
        position = 0
        if self.held_bytes:
            missing = (self.wanted_bytes or PREFIX_BYTES) - self.held_bytes
            if len(chunk) < missing:
                self._hold(chunk)
                return frames
            chunk, position = self._complete(chunk, missing, frames)
        end = len(chunk)
        while end - position >= PREFIX_BYTES:
            (length,) = _LENGTH(chunk, position)
            if not 0 < length <= self.max_bytes:
                raise MalformedFrame(f"the frame's length is {length}, 1 to {self.max_bytes} are allowed")
            start = position + PREFIX_BYTES
            after = start + length
            if after > end:
                self.wanted_bytes = PREFIX_BYTES + length
                break
            frames.append(chunk[start:after] if length <= _COPIED_BYTES else memoryview(_kept(chunk, start, after)))
            position = after
        if position < end:
            self._hold(_kept(chunk, position, end))
        return frames

    def is_one_small_frame(self, chunk: bytes) -> bool:
        """Return whether the chunk is exactly one small frame and no other is incomplete: then feed() need not be
        called.
        """
        size = len(chunk) - PREFIX_BYTES
        return (
            0 < size <= _COPIED_BYTES and size <= self.max_bytes and not self.held_bytes and _LENGTH(chunk)[0] == size
        )

    def _complete(self, chunk: bytes, missing: int, frames: list[Readable]) -> tuple[bytes, int]:
        """Complete the frame, or its length prefix, that earlier chunks began; add a complete frame to `frames`.

        missing: how many bytes it lacks. Returns the bytes to continue with, and the position in them.
        """
        pieces, wanted = self._pieces, self.wanted_bytes
        self._pieces, self.held_bytes, self.wanted_bytes, self._joined = [], 0, 0, 0
        if not wanted:
            return b"".join((*pieces, chunk)), 0
        self.completed += 1
        whole = b"".join((*pieces, memoryview(chunk)[:missing]))
        frames.append(whole[PREFIX_BYTES:] if wanted <= _COPIED_BYTES else memoryview(whole)[PREFIX_BYTES:])
        return chunk, missing

    def _hold(self, chunk: Readable) -> None:
        """Keep the bytes of an incomplete frame. Many small pieces are joined."""
        self._pieces.append(chunk)
        self.held_bytes += len(chunk)
        if len(self._pieces) - self._joined > _MAX_PIECES:  # someone sends byte by byte: an object each is too much
            self._pieces[self._joined :] = [b"".join(self._pieces[self._joined :])]
            self._joined += 1


def _kept(chunk: bytes, start: int, end: int) -> Readable:
    """Return a part of the chunk: a view if it is a large share of the chunk, else a copy, so that the chunk can be
    freed.
    """
    if (end - start) * _VIEWED_SHARE < len(chunk):
        return chunk[start:end]
    return memoryview(chunk)[start:end]
