"""Frames out of a stream of chunks: a length of four bytes, then that many bytes.

The rule: a length is judged before anything is kept for it, chunks are never glued one to another but joined once, and
what is handed out holds on to no more than about twice its own size: a frame is a view of its chunk where it fills most
of it, and else a copy.
"""

from struct import Struct

from .errors import MalformedFrame
from .primitives import Readable

LARGEST_FRAME_BYTES = 104_857_600
"""Kafka's default of socket.request.max.bytes."""

_LENGTH = Struct(">i").unpack_from
_PREFIX_BYTES = 4
_ALWAYS_COPIED_BYTES = 4096
_PIECES_AT_MOST = 1024


class Framer:
    """One direction of one connection. After it raised, the connection is of no use."""

    __slots__ = ("_held", "_joined", "_needed", "_pieces", "max_bytes")

    def __init__(self, max_bytes: int = LARGEST_FRAME_BYTES) -> None:
        self.max_bytes = max_bytes
        self._pieces: list[bytes] = []  # of the frame that is not whole yet, its prefix included
        self._held = 0
        self._needed = 0  # bytes of that frame with its prefix; 0 while the prefix is not whole
        self._joined = 0  # pieces that were joined from many small ones

    @property
    def held_bytes(self) -> int:
        """How much of an unfinished frame is kept."""
        return self._held

    @property
    def wanted_bytes(self) -> int:
        """The whole size of the unfinished frame, its prefix included; 0 while that is not known, or there is none."""
        return self._needed

    def feed(self, chunk: bytes) -> list[Readable]:
        """The frames that are whole now, without their length prefixes.

        Raises MalformedFrame for a length that is not above zero or above the limit.
        """
        if not self._held:
            return self._split(chunk, 0, [])
        missing = (self._needed or _PREFIX_BYTES) - self._held
        if len(chunk) < missing:
            self._hold(chunk)
            return []
        pieces, needed = self._pieces, self._needed
        self._pieces, self._held, self._needed, self._joined = [], 0, 0, 0
        if not needed:
            return self._split(b"".join((*pieces, chunk)), 0, [])
        whole = b"".join((*pieces, memoryview(chunk)[:missing]))
        return self._split(chunk, missing, [_frame(whole, 0, needed)])

    def _split(self, chunk: bytes, position: int, frames: list[Readable]) -> list[Readable]:
        """Adds the frames that are whole in `chunk` from `position` on, and keeps what is left."""
        end = len(chunk)
        needed = 0
        while end - position >= _PREFIX_BYTES:
            (length,) = _LENGTH(chunk, position)
            if not 0 < length <= self.max_bytes:
                raise MalformedFrame(f"a frame of {length} bytes")
            after = position + _PREFIX_BYTES + length
            if after > end:
                needed = _PREFIX_BYTES + length
                break
            frames.append(_frame(chunk, position, after))
            position = after
        if position < end:
            self._needed = needed
            self._hold(chunk[position:])
        return frames

    def _hold(self, chunk: bytes) -> None:
        self._pieces.append(chunk)
        self._held += len(chunk)
        if len(self._pieces) - self._joined > _PIECES_AT_MOST:  # someone sends byte by byte: an object each is too much
            self._pieces[self._joined :] = [b"".join(self._pieces[self._joined :])]
            self._joined += 1


def _frame(chunk: bytes, start: int, end: int) -> Readable:
    """The frame whose prefix begins at `start`: a view where it is most of the chunk, else a copy."""
    start += _PREFIX_BYTES
    size = end - start
    if size <= _ALWAYS_COPIED_BYTES or size * 2 < len(chunk):
        return chunk[start:end]
    return memoryview(chunk)[start:end]
