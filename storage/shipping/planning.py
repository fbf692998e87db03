"""Which bytes of a checkpoint's files must be shipped, and in which objects. Pure.

The rules: bytes below a size that a checkpoint named never change, so what was shipped of a file remains valid, and
only added bytes are read. Large ranges become objects of their own, cut to PART_BYTES; small ranges of many files share
one object, so the number of objects does not grow with the number of partitions. If a file consists of many small
extents, it is shipped again from the first of them on: otherwise a restore would need thousands of small requests.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from .point import Extent, ShippedFile

PART_BYTES = 16 << 20  # of an object, at most
LARGE_BYTES = 4 << 20  # a range of this size or more gets an object of its own
MAX_SMALL_EXTENTS = 32  # of one file

NOTHING = ShippedFile(0, ())


class Range(NamedTuple):
    """Bytes of a file that must be shipped."""

    path: str
    position: int
    length: int


class Plan(NamedTuple):
    """How a checkpoint's files get into the store. kept: for each file, what the store already has. parts: the ranges
    in each new object.
    """

    kept: dict[str, ShippedFile]
    parts: list[list[Range]]

    @property
    def bytes_to_ship(self) -> int:
        """How many bytes of files are to be copied to the store."""
        return sum(each.length for part in self.parts for each in part)


def plan(wanted: Mapping[str, int], shipped: Mapping[str, ShippedFile]) -> Plan:
    """Return which files a point takes over from the store, and which byte ranges must be shipped, grouped into parts.

    wanted: how many bytes of each file. shipped: what the store has of each file.
    """
    kept: dict[str, ShippedFile] = {}
    ranges: list[Range] = []
    for path, size_bytes in wanted.items():
        extents = _extents_to_keep(shipped.get(path, NOTHING).extents, size_bytes)
        begin = sum(extent.length for extent in extents)
        kept[path] = ShippedFile(begin, extents)
        if begin < size_bytes:
            ranges.append(Range(path, begin, size_bytes - begin))
    return Plan(kept, list(_parts(ranges)))


def _extents_to_keep(extents: tuple[Extent, ...], size_bytes: int) -> tuple[Extent, ...]:
    """Return the extents that lie within the first size_bytes of the file. If too many of them are small, those from
    the first small one on are left out, so that they are shipped again as one.
    """
    kept: list[Extent] = []
    end = 0
    for extent in extents:
        end += extent.length
        if end > size_bytes:
            break
        kept.append(extent)
    small = [place for place, extent in enumerate(kept) if extent.length < LARGE_BYTES]
    return tuple(kept[: small[0]] if len(small) > MAX_SMALL_EXTENTS else kept)


def _parts(ranges: Iterable[Range]) -> Iterable[list[Range]]:
    """Group the ranges into parts of about PART_BYTES, and yield these; large ranges are split."""
    together: list[Range] = []
    size_bytes = 0
    for path, position, length in ranges:
        while length >= LARGE_BYTES:
            piece = min(length, PART_BYTES)
            yield [Range(path, position, piece)]
            position, length = position + piece, length - piece
        if not length:
            continue
        if size_bytes + length > PART_BYTES:
            yield together
            together, size_bytes = [], 0
        together.append(Range(path, position, length))
        size_bytes += length
    if together:
        yield together


def joined(kept: ShippedFile, added: Iterable[Extent]) -> ShippedFile:
    """Return the file with these extents appended."""
    extents = (*kept.extents, *added)
    return ShippedFile(sum(extent.length for extent in extents), extents)
