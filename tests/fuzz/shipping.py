"""Fuzz targets: objects of a backup that follows, with a right checksum and any payload."""

from collections.abc import Callable, Iterator
from typing import Any

from fencepost.storage import checkpoints
from fencepost.storage.checkpoints import Damaged, NewerFormat
from fencepost.storage.shipping import point as objects
from fencepost.storage.shipping.names import Place, part
from fuzz.target import REFUSED, Target, outcome

NAME = "0/points/0000000001-0000000001"
PLACE = objects.JournalPlace(1, 2, 4096, 3, 4)


def _looking(kind: str, unpack: Callable[[bytes, str], Any], pack: Callable[[Any], bytes]) -> Callable[[bytes], None]:
    """Return a look at a payload of this kind: what is accepted is written as it was read."""

    def look(data: bytes) -> None:
        found = outcome(lambda: unpack(checkpoints.pack_file(kind, objects.VERSION, data), NAME), Damaged, NewerFormat)
        if found is not REFUSED:
            assert unpack(pack(found), NAME) == found

    return look


def _payloads(kind: str, *contents: bytes) -> Callable[[], Iterator[bytes]]:
    return lambda: (checkpoints.unpack_file(content, NAME, kind, objects.VERSION) for content in contents)


_FILES = {
    "logs/t-0.1/0.log": objects.ShippedFile(9, (objects.Extent(part(Place(1, 1)), 0, 9, 2**32 - 1),)),
    "journal/1.journal": objects.ShippedFile(8192, ()),
}
_POINT = objects.Point("0.1", 1_000, True, 3, b"content", 50, PLACE, ["a warning"], _FILES)
_ROUNDS = objects.Rounds(1_000, 51, PLACE, [objects.Piece("1.journal", 8192, 4096, b"round")])

TARGETS = [
    Target(
        "shipped-points",
        _looking(objects.POINT, objects.unpack_point, objects.pack_point),
        _payloads(objects.POINT, objects.pack_point(_POINT)),
    ),
    Target(
        "shipped-rounds",
        _looking(objects.ROUNDS, objects.unpack_rounds, objects.pack_rounds),
        _payloads(objects.ROUNDS, objects.pack_rounds(_ROUNDS)),
    ),
    Target(
        "claims",
        _looking(objects.CLAIM, objects.unpack_claim, objects.pack_claim),
        _payloads(objects.CLAIM, objects.pack_claim(objects.Claim("host", 1, "/data", "0.1", 5))),
    ),
    Target(
        "seals",
        _looking(objects.SEAL, objects.unpack_seal, objects.pack_seal),
        _payloads(objects.SEAL, objects.pack_seal(objects.Seal(2, "host"))),
    ),
]
