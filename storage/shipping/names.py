"""Names of the objects of a backup. Pure.

The rules: numbers are padded, so names in order are objects in the order in which they were created. A name is created
once and never used again. The first folder is the number of the store, of which there is one: 0.

0/claims/<epoch>                 who follows the directory; each follower has an epoch above all others
0/parts/<epoch>-<number>         bytes of files
0/points/<epoch>-<number>        a point, or the seal that ends the points of its epoch
0/rounds/<epoch>-<number>/<n>    rounds of the journal after that point, or the seal that ends them
0/pieces/<epoch>-<number>/<n>    bytes of these rounds, where they are many
"""

import re
from typing import NamedTuple

CLAIMS, PARTS, POINTS = "0/claims/", "0/parts/", "0/points/"
ROUNDS, PIECES = "0/rounds/", "0/pieces/"
PROBE = "0/probe"
JOURNAL_IDENTITY, JOURNAL_OWNERS = "0/format", "0/owners/"  # of a journal of brokers, which is not a backup
_DIGITS = 10
_NUMBER = rf"(\d{{{_DIGITS}}})"
_PLACE = re.compile(rf"{_NUMBER}-{_NUMBER}")
_BEHIND = re.compile(rf"(?:{ROUNDS}|{PIECES}){_NUMBER}-{_NUMBER}/{_NUMBER}")


class Place(NamedTuple):
    """The epoch of a follower, and a number that this follower has given."""

    epoch: int
    number: int

    def __str__(self) -> str:
        return f"{self.epoch:0{_DIGITS}}-{self.number:0{_DIGITS}}"


def claim(epoch: int) -> str:
    """Return the name of an epoch's claim."""
    return f"{CLAIMS}{epoch:0{_DIGITS}}"


def part(place: Place) -> str:
    """Return the name of the part (an object with bytes of files) at this place."""
    return f"{PARTS}{place}"


def point(place: Place) -> str:
    """Return the name of the point's object, or of the seal at its place."""
    return f"{POINTS}{place}"


def rounds_of(place: Place) -> str:
    """Return the prefix of the names of the rounds after a point."""
    return f"{ROUNDS}{place}/"


def rounds(place: Place, number: int) -> str:
    """Return the name of the object with this number among those with rounds after the point at `place`."""
    return f"{rounds_of(place)}{number:0{_DIGITS}}"


def pieces_of(place: Place) -> str:
    """Return the prefix of the names of the objects with bytes of the rounds after a point."""
    return f"{PIECES}{place}/"


def piece(place: Place, number: int) -> str:
    """Return the name of the object with this number among those with bytes of the rounds after the point at
    `place`.
    """
    return f"{pieces_of(place)}{number:0{_DIGITS}}"


def claimed_epoch(name: str) -> int | None:
    """Return the epoch in the name of a claim; None for any other name."""
    digits = name.removeprefix(CLAIMS)
    return int(digits) if name.startswith(CLAIMS) and re.fullmatch(_NUMBER, digits) else None


def place_in(folder: str, name: str) -> Place | None:
    """Return the place (epoch, number) in the name of a point or part; None for any other name."""
    found = _PLACE.fullmatch(name.removeprefix(folder)) if name.startswith(folder) else None
    return Place(int(found[1]), int(found[2])) if found else None


def place_of_rounds(name: str) -> tuple[Place, int] | None:
    """Return the place of the point, and the number, in the name of rounds or of an object with their bytes; None for
    any other name.
    """
    found = _BEHIND.fullmatch(name)
    return (Place(int(found[1]), int(found[2])), int(found[3])) if found else None
