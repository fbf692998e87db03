"""How many small buffers become few writes: for the journal, segments, compaction and connections.

The rule for files: small buffers are joined, because a system call for each costs more than copying its bytes.
Measured, 1 MiB into the page cache: buffers of 4 KiB take 137 us joined and 162 us gathered by the call, of 8 KiB 139
and 136, of 16 KiB 139 and 123. Large data is written in slices that end where SLICE_BYTES divides the position: larger
writes ask the kernel for large folios (2.2 times slower on fresh files), and slices that cut blocks are not better.
Over existing bytes no folio is made, and every call may have to wait for the interpreter's lock, so those slices are
larger (with durability os, 1.16 times as many batches of 100 KB). Data of BULK_BYTES and more bypasses the page cache
if the caller allows it.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeAlias, TypeVar

Buffer: TypeAlias = bytes | bytearray | memoryview  # memoryviews of single bytes: len() is their size

SLICE_BYTES = 64 << 10
OVERWRITTEN_SLICE_BYTES = 1 << 20  # of a write over bytes that the file has already
BULK_BYTES = 256 << 10  # from here on, write_past_cache is the quicker way (docs/decisions/0013)
JOINED_BELOW_BYTES = 8 << 10  # a write's buffers are joined if they are smaller than this on average

_Sent = TypeVar("_Sent")


class _Written(Protocol):
    """The methods that a File needs, to be written to here."""

    def write(self, buffers: Sequence[Buffer], position: int) -> None:
        """Write all buffers, one after another, from `position` on."""
        ...

    def write_past_cache(self, buffers: Sequence[Buffer], position: int, *, paced: bool = False) -> None:
        """Like write(), without filling the page cache. paced: give the device one piece at a time, and wait for
        each.
        """
        ...


def write_gathered(
    file: _Written,
    buffers: Sequence[Buffer],
    position: int,
    size_bytes: int,
    *,
    past_cache: bool,
    paced: bool = False,
    slice_bytes: int = SLICE_BYTES,
) -> None:
    """Write these buffers one after another, in few calls. size_bytes: of all buffers together.

    past_cache: large data need not stay in the page cache. paced: see File.write_past_cache. slice_bytes: the maximum
    that one call writes through the cache. Raises OSError, like File.write; any part may be written then.
    """
    if past_cache and size_bytes >= BULK_BYTES:
        file.write_past_cache(buffers, position, paced=paced)
        return
    buffers = join_buffers(buffers, size_bytes)
    if size_bytes <= slice_bytes:
        file.write(buffers, position)
        return
    for part in slices(buffers, position, slice_bytes):
        file.write(part, position)
        position += slice_bytes - position % slice_bytes


def join_buffers(buffers: Sequence[Buffer], size_bytes: int) -> Sequence[Buffer]:
    """Return the same bytes (size_bytes of them), joined into one buffer if the buffers are small on average."""
    return [b"".join(buffers)] if size_bytes < JOINED_BELOW_BYTES * len(buffers) else buffers


def slices(buffers: Sequence[Buffer], position: int, slice_bytes: int) -> Iterator[list[Buffer]]:
    """Yield the same bytes in slices, cut where the position in the file is a multiple of slice_bytes."""
    part: list[Buffer] = []
    room = slice_bytes - position % slice_bytes
    for buffer in buffers:
        if len(buffer) < room:
            part.append(buffer)
            room -= len(buffer)
            continue
        view = memoryview(buffer)
        while len(view) >= room:
            part.append(view[:room])
            yield part
            view = view[room:]
            room, part = slice_bytes, []
        if view:
            part.append(view)
            room -= len(view)
    if part:
        yield part


def join_neighbours(out: Sequence[_Sent | Buffer], below_bytes: int) -> list[_Sent | Buffer]:
    """Join adjacent buffers smaller than below_bytes, for a socket. Larger ones, and items that are not buffers, stay
    as they are.

    A transport sends each piece by itself, and a large one must not be copied only to join it with a small one.
    """
    found: list[_Sent | Buffer] = []
    small: list[Buffer] = []
    for one in out:
        if isinstance(one, (bytes, bytearray, memoryview)) and len(one) < below_bytes:
            small.append(one)
            continue
        if small:
            found.append(b"".join(small))
            small.clear()
        found.append(one)
    if small:
        found.append(b"".join(small))
    return found
