"""How an unsynced write may be found after a power cut, if it is neither complete nor absent.

Each tear turns one write into the operations that reached the device. A negative length counts from the end. Source:
sectors of 512 bytes are written whole, in any order; ext4 was seen to leave NULs up to the next multiple of 4,096
bytes.
"""

import itertools
import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from .operations import Extend, Operation, Write

SECTOR_BYTES = 512


class Tear(Protocol):
    def pieces(self, write: Write) -> Iterable[Operation]:
        """Return the operations that reach the device instead of this whole write."""
        ...


def _first_bytes(write: Write, length: int) -> bytes:
    return write.data[:length]


@dataclass(frozen=True, slots=True)
class Prefix(Tear):
    """Only the first `length` bytes arrived."""

    length: int

    def pieces(self, write: Write) -> Iterable[Operation]:
        return [replace(write, data=_first_bytes(write, self.length))]


@dataclass(frozen=True, slots=True)
class NulTail(Tear):
    """The first `length` bytes arrived; the rest is NUL bytes."""

    length: int

    def pieces(self, write: Write) -> Iterable[Operation]:
        return [replace(write, data=_first_bytes(write, self.length).ljust(len(write.data), b"\0"))]


@dataclass(frozen=True, slots=True)
class GarbageTail(Tear):
    """The first `length` bytes arrived; the rest is other data, random by `seed`."""

    length: int
    seed: int = 0

    def pieces(self, write: Write) -> Iterable[Operation]:
        """Return a write of the first bytes, followed by random ones."""
        kept = _first_bytes(write, self.length)
        garbage = random.Random(f"{self.seed} {write.index}").randbytes(len(write.data) - len(kept))
        return [replace(write, data=kept + garbage)]


@dataclass(frozen=True, slots=True)
class Sectors(Tear):
    """Some sectors reached the device: the ones whose bit in `mask` is set. extended: the file has its full length
    even so.
    """

    mask: int
    extended: bool = False

    def pieces(self, write: Write) -> Iterable[Operation]:
        """Return a write for each sector that arrived, and an Extend if the file has its full length."""
        chosen: list[Operation] = [
            replace(write, position=position, data=data)
            for number, (position, data) in enumerate(sectors(write))
            if self.mask >> number & 1
        ]
        if self.extended:
            chosen.append(Extend(write.index, write.path, write.inode, write.position + len(write.data)))
        return chosen


@dataclass(frozen=True, slots=True)
class OnlyLength(Tear):
    """No byte arrived, but the file is longer: up to the next multiple of `multiple`, at most to the end of the
    write.
    """

    multiple: int = 1  # 1: to the end of the write

    def pieces(self, write: Write) -> Iterable[Operation]:
        """Return the operation that extends the file by NUL bytes."""
        end = write.position + len(write.data)
        length = end if self.multiple == 1 else min(end, (write.position // self.multiple + 1) * self.multiple)
        return [Extend(write.index, write.path, write.inode, length)]


def sectors(write: Write) -> list[tuple[int, bytes]]:
    """Split the write at the device's sector boundaries. Returns (position, bytes) of each piece."""
    end = write.position + len(write.data)
    first = write.position - write.position % SECTOR_BYTES
    cuts = [write.position, *range(first + SECTOR_BYTES, end, SECTOR_BYTES), end]
    return [(low, write.data[low - write.position : high - write.position]) for low, high in itertools.pairwise(cuts)]
