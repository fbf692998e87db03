"""A fuzz target: a function of untrusted bytes, and the limits of its cost.

The rule: a target returns, whatever the bytes. It catches the errors by which its function refuses bytes; any other
error fails it, and so does a result that a second decoder, or encoding and decoding again, does not confirm.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from crc32c import crc32c


class Target(NamedTuple):
    """seeds: valid inputs, made by code. at_most_bytes: of one input.

    lines, lines_per_byte: of Python that one input may cost; memory, memory_per_byte: bytes at the peak.
    """

    name: str
    look: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]
    at_most_bytes: int = 2048
    lines: int = 20_000
    lines_per_byte: int = 200
    memory: int = 400_000
    memory_per_byte: int = 400


class _Refused:
    def __repr__(self) -> str:
        return "refused"


REFUSED = _Refused()


def outcome(call: Callable[[], Any], *refusals: type[Exception]) -> Any:
    """Return what the call returns, or REFUSED if it raises one of these errors."""
    try:
        return call()
    except refusals:
        return REFUSED


def with_crc(data: bytearray, at: int, covered: slice, start: int = 0) -> bytearray:
    """Return the bytes with a big-endian CRC-32C of this part of them written at a position."""
    data[at : at + 4] = crc32c(bytes(data[covered]), start).to_bytes(4, "big")
    return data


def two(data: bytes) -> tuple[bytes, bytes]:
    """Split bytes into two strings: a length in two bytes, the first string, the rest."""
    size = int.from_bytes(data[:2], "big")
    return data[2 : 2 + size], data[2 + size :]


def joined(first: bytes, second: bytes) -> bytes:
    """Join two byte strings into one that `two` splits again."""
    return len(first).to_bytes(2, "big") + first + second


def several(data: bytes) -> list[bytes]:
    """Split bytes into strings, each with its length in two bytes before it."""
    found = []
    while data:
        first, data = two(data)
        found.append(first)
    return found


def all_joined(parts: Iterable[bytes]) -> bytes:
    """Join byte strings into one that `several` splits again."""
    return b"".join(joined(part, b"") for part in parts)
