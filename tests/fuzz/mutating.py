"""Random changes to bytes, from a seed: one to four changes of kinds that often break parsers."""

from collections.abc import Sequence
from random import Random

INTERESTING = [
    *(bytes([byte]) for byte in (0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF)),
    *(number.to_bytes(size, "big", signed=True) for size in (2, 4, 8) for number in (-2, -1, 0, 1)),
    *((2 ** (8 * size - 1) - 1).to_bytes(size, "big") for size in (2, 4, 8)),
    *((2 ** (8 * size - 1)).to_bytes(size, "big") for size in (2, 4, 8)),
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x80\x80\x80\x80\x80\x80",
]


def mutated(random: Random, corpus: Sequence[bytes], at_most_bytes: int) -> bytes:
    """Return a changed copy of one input of the corpus."""
    data = bytearray(random.choice(corpus))
    for _ in range(random.choice((1, 1, 1, 2, 3, 4))):
        at = random.randrange(len(data) + 1)
        match random.randrange(8):
            case 0 if data:
                data[at % len(data)] ^= 1 << random.randrange(8)
            case 1 if data:
                data[at % len(data)] = random.randrange(256)
            case 2:
                piece = random.choice(INTERESTING)
                data[at : at + len(piece)] = piece
            case 3:
                data[at:at] = random.choice(INTERESTING)
            case 4:
                del data[at : at + random.choice((1, 2, 4, 8, 50))]
            case 5:
                del data[at:]
            case 6:
                start = random.randrange(len(data) + 1)
                data[at:at] = data[start : start + random.choice((1, 2, 4, 8, 50))]
            case _:
                other = random.choice(corpus)
                start = random.randrange(len(other) + 1)
                data[at:] = other[start:]
    return bytes(data[:at_most_bytes])
