"""Names and bytes of the objects of an epoch: claims, rounds and seals. Pure.

The rule: nothing is used before its checksum was compared, and no length before it was compared with the bytes that
exist. A checksum covers the epoch and the number, so a copy under another name is never accepted as the original. A
round and a seal have the same name, because the fence relies on it that only one of them can be created. The order of
names is the order of numbers. A folder has few names, so that a store in a directory lists each in one call. Integers
are big-endian; checksums are CRC-32C. docs/formats.md describes every byte.
"""

import re
import struct
from typing import Any, NamedTuple

import msgpack
from crc32c import crc32c

from ..journal import format as units
from ..journal.format import Buffer, Malformed
from ..shipping.names import JOURNAL_IDENTITY, JOURNAL_OWNERS
from .fence import NOWHERE, Header, Place

FORMAT = 1
WINDOW = 4  # how many rounds of an epoch may be begun and not released; the same in all brokers of a store
# 0 is the number of the store, of which there is one.
CLAIMS, JOURNAL, WAITING, ADOPTING = (
    JOURNAL_OWNERS,
    "0/journal/",
    "0/standbys/",
    "0/adopting/",
)
MAX_EPOCHS = 1 << 32
MAX_ROUNDS = 10**14  # of an epoch
LARGEST_ROUND_BYTES = 256 << 20  # more than the largest unit has; a header with a greater length is refused

_HEADER = struct.Struct(">4sIHBBI8sQQQQIIIQIQIQIQ")
_CHECKED = 8
_MAGIC = b"FPOR"
_ROUND, _SEAL = 1, 2
_HANDED_OVER = 1
_IN_FOLDER = 100
_NAME = re.compile(r"0/journal/(\d{10})/(\d{12})/(\d{2})")
_CLAIM_NAME = re.compile(r"0/owners/(\d{10})")

_CLAIM = struct.Struct(">4sIHII")  # magic, crc, format, epoch, length
_CLAIM_MAGIC = b"FPOC"
LARGEST_CLAIM_BYTES = 64 << 10

_WAITING_MAGIC = b"FPOW"

_IDENTITY = struct.Struct(">4sIH16s")
_IDENTITY_MAGIC = b"FPOS"
IDENTITY_NAME = JOURNAL_IDENTITY

HEADER_BYTES = _HEADER.size
ONLY_NEWER = "which only a newer fencepost can read"
NO_POINT = (0, 0)


class NewerObject(Exception):
    """Raised for an undamaged object of a format that this version does not know."""

    def __init__(self, version: int) -> None:
        super().__init__(f"it has format {version}, {ONLY_NEWER}")
        self.version = version


class RoundHeader(NamedTuple):
    """The header that comes before a round's units.

    salt: random bytes that the owner has drawn for its epoch. released: all rounds of the epoch below this number were
    released when this one began. round: its number over all epochs. first_unit, units: number of the first unit, and
    how many there are. length, body_crc: of the units' bytes. point: (epoch, number) of the newest durable checkpoint,
    NO_POINT if there is none. says: what the fence needs. age_ms: the store's age.
    """

    place: Place
    salt: bytes
    released: int
    round: int
    first_unit: int
    units: int
    length: int
    body_crc: int
    age_ms: int
    point: tuple[int, int] = NO_POINT
    says: Header = Header()

    @property
    def last_unit(self) -> int:
        """The number of the round's last unit; first_unit − 1 if it has none."""
        return self.first_unit + self.units - 1


class Seal(NamedTuple):
    """The object that ends an epoch. by: the epoch of the broker that made it. handed_over: the owner made it itself,
    when it stopped.
    """

    place: Place
    salt: bytes
    by: int
    handed_over: bool


class Claim(NamedTuple):
    """Who has claimed an epoch. addresses: (listener, host, port) of its listeners."""

    epoch: int
    node: int
    addresses: tuple[tuple[str, str, int], ...]
    salt: bytes


class Waiting(NamedTuple):
    """The object in which a broker that waits to own the journal announces itself to the owner. addresses: as in Claim.
    salt: of this start.

    It is written again every `every_ms` milliseconds, with `puts` one higher.
    """

    node: int
    addresses: tuple[tuple[str, str, int], ...]
    salt: bytes
    puts: int
    every_ms: int


# ---- names ---------------------------------------------------------------------------------------------------


def epoch_prefix(epoch: int) -> str:
    """Return the prefix of the names of an epoch's rounds."""
    return f"{JOURNAL}{epoch:010}/"


def place_name(place: Place) -> str:
    """Return the name of the round, or seal, at this place."""
    folder, rest = divmod(place.number, _IN_FOLDER)
    return f"{epoch_prefix(place.epoch)}{folder:012}/{rest:02}"


def read_place(name: str) -> Place | None:
    """Return the place (epoch, number) that this name of a round or seal has; None for any other name."""
    found = _NAME.fullmatch(name) if name.isascii() else None
    if found is None or int(found[1]) >= MAX_EPOCHS or found[1] == "0" * 10:
        return None
    return Place(int(found[1]), int(found[2]) * _IN_FOLDER + int(found[3]))


def claim_name(epoch: int) -> str:
    """Return the name of the claim of an epoch."""
    return f"{CLAIMS}{epoch:010}"


def read_claim_name(name: str) -> int | None:
    """Return the epoch in the name of a claim; None for any other name."""
    found = _CLAIM_NAME.fullmatch(name) if name.isascii() else None
    return int(found[1]) if found and 0 < int(found[1]) < MAX_EPOCHS else None


def adopting_name(epoch: int) -> str:
    """Return the name of the object which says that the broker of this epoch puts its data directory into the store."""
    return f"{ADOPTING}{epoch:010}"


def waiting_name(node: int) -> str:
    """Return the name of the object of a waiting broker. It is the only object that is written again and again."""
    return f"{WAITING}{node:010}"


# ---- rounds and seals ----------------------------------------------------------------------------------------


def pack_round(header: RoundHeader) -> bytes:
    """Encode a round's header; its units follow."""
    says = header.says
    return _pack(
        (_ROUND, 0, header.place.epoch, header.salt, header.place.number, header.released),
        (
            header.round,
            header.first_unit,
            header.units,
            header.length,
            header.body_crc,
            header.age_ms,
            *header.point,
            *says.start,
        ),
        (says.base, says.base_end),
    )


def pack_seal(seal: Seal) -> bytes:
    """Encode a seal (the mark that an epoch of the journal has ended) as the content of one object in the store."""
    flags = _HANDED_OVER if seal.handed_over else 0
    head = (_SEAL, flags, seal.place.epoch, seal.salt, seal.place.number, 0)
    return _pack(head, (0, 0, 0, 0, 0, 0, 0, 0, 0, 0), (seal.by, 0))


def _pack(*fields: tuple[int | bytes, ...]) -> bytes:
    """Encode header fields, given in groups, with their checksum."""
    checked = _HEADER.pack(_MAGIC, 0, FORMAT, *(field for some in fields for field in some))[_CHECKED:]
    return _MAGIC + crc32c(checked).to_bytes(4, "big") + checked


def read_header(place: Place, content: Buffer) -> RoundHeader | Seal:
    """Decode the header of an object that has a round's name: it is a round or a seal. Raises Malformed,
    NewerObject.
    """
    if len(content) < HEADER_BYTES:
        raise Malformed(f"it has {len(content)} bytes, its header alone takes {HEADER_BYTES}")
    magic, crc, version, kind, flags, epoch, salt, number, *rest = _HEADER.unpack_from(content)
    if magic != _MAGIC:
        raise Malformed("it begins neither as a round nor as a seal")
    if crc32c(memoryview(content)[_CHECKED:HEADER_BYTES]) != crc:
        raise Malformed("its header fails its checksum")
    if version != FORMAT:
        raise NewerObject(version)
    if epoch != place.epoch or number != place.number:
        raise Malformed(f"it is round {number} of epoch {epoch}")
    released, round_, first_unit, count, length, body_crc, age_ms, *point, start_epoch, start, base, base_end = rest
    if kind == _SEAL:
        return Seal(place, salt, base, bool(flags & _HANDED_OVER))
    if kind != _ROUND:
        raise Malformed(f"it is of kind {kind}")
    if released > number:
        raise Malformed(f"it says that {released} rounds before it were released")
    if length > LARGEST_ROUND_BYTES or count * units.LEAST_UNIT_BYTES > length:
        raise Malformed(f"it announces {count} units in {length} bytes")
    says = Header(Place(start_epoch, start) if start_epoch else NOWHERE, base, base_end)
    numbers = released, round_, first_unit, count, length, body_crc, age_ms
    return RoundHeader(place, salt, *numbers, (point[0], point[1]), says)


def read_round(place: Place, content: Buffer) -> tuple[RoundHeader, memoryview]:
    """Decode a whole round into header and units, and check both. Raises Malformed, NewerObject."""
    header = read_header(place, content)
    if isinstance(header, Seal):
        raise Malformed("it is a seal")
    body = memoryview(content)[HEADER_BYTES:]
    if len(body) != header.length:
        raise Malformed(f"it has {len(body)} bytes of units and announces {header.length}")
    if crc32c(body) != header.body_crc:
        raise Malformed("its units fail their checksum")
    if fault := units.first_fault(body, journal_header(header)):
        raise Malformed(fault)
    return header, body


def journal_header(header: RoundHeader) -> units.RoundHeader:
    """Return the header that this round would have in a journal on disk, for functions that read units."""
    count, first = header.units, header.first_unit
    return units.RoundHeader(header.place.epoch, header.round, first, header.round - 1, count, header.length, False)


# ---- the store itself ----------------------------------------------------------------------------------------


def pack_identity(identity: bytes) -> bytes:
    """Encode the object that identifies the store: the version of the format, and 16 random bytes."""
    checked = _IDENTITY.pack(_IDENTITY_MAGIC, 0, FORMAT, identity)[_CHECKED:]
    return _IDENTITY_MAGIC + crc32c(checked).to_bytes(4, "big") + checked


def read_identity(content: Buffer) -> bytes:
    """Return the 16 random bytes of the object that identifies the store. Raises: Malformed, NewerObject."""
    if len(content) != _IDENTITY.size:
        raise Malformed(f"it has {len(content)} bytes, not {_IDENTITY.size}")
    magic, crc, version, identity = _IDENTITY.unpack(content)
    if magic != _IDENTITY_MAGIC:
        raise Malformed("it does not begin as it should")
    if crc32c(memoryview(content)[_CHECKED:]) != crc:
        raise Malformed("it fails its checksum")
    if version != FORMAT:
        raise NewerObject(version)
    return bytes(identity)


# ---- claims, and brokers that wait ---------------------------------------------------------------------------


def pack_claim(claim: Claim) -> bytes:
    """Encode a claim (which broker has taken an epoch) as the content of one object in the store."""
    return _pack_node(_CLAIM_MAGIC, claim.epoch, [claim.node, claim.addresses, claim.salt])


def read_claim(epoch: int, content: Buffer) -> Claim:
    """Decode a claim. Raises: Malformed, NewerObject."""
    node, addresses, salt = _read_node(_CLAIM_MAGIC, epoch, content, (int, tuple, bytes))
    return Claim(epoch, node, addresses, salt)


def pack_waiting(waiting: Waiting) -> bytes:
    """Encode the announcement of a waiting broker as the content of one object in the store."""
    return _pack_node(_WAITING_MAGIC, 0, list(waiting))


def read_waiting(content: Buffer) -> Waiting:
    """Decode the announcement of a waiting broker. Raises: Malformed, NewerObject."""
    return Waiting(*_read_node(_WAITING_MAGIC, 0, content, (int, tuple, bytes, int, int)))


def _pack_node(magic: bytes, epoch: int, fields: list[Any]) -> bytes:
    """Encode a claim or an announcement, with its checksum."""
    payload = msgpack.packb(fields)
    checked: bytes = _CLAIM.pack(magic, 0, FORMAT, epoch, len(payload))[_CHECKED:] + payload
    return magic + crc32c(checked).to_bytes(4, "big") + checked


def _read_node(magic: bytes, epoch: int, content: Buffer, kinds: tuple[type, ...]) -> list[Any]:
    """Decode the fields of a claim, or of the announcement of a waiting broker. The second field has the addresses.
    Raises: Malformed, NewerObject.
    """
    if not _CLAIM.size <= len(content) <= LARGEST_CLAIM_BYTES:
        raise Malformed(f"a claim of {len(content)} bytes")
    begins, crc, version, found, length = _CLAIM.unpack_from(content)
    if begins != magic:
        raise Malformed("it does not begin as a claim")
    if crc32c(memoryview(content)[_CHECKED:]) != crc:
        raise Malformed("it fails its checksum")
    if version != FORMAT:
        raise NewerObject(version)
    if found != epoch or length != len(content) - _CLAIM.size:
        raise Malformed(f"it is the claim of epoch {found}, with {length} bytes")
    try:
        fields = list(msgpack.unpackb(memoryview(content)[_CLAIM.size :], raw=False))
        fields[1] = tuple((str(listener), str(host), int(port)) for listener, host, port in fields[1])
    except (ValueError, TypeError, LookupError, msgpack.UnpackException) as error:
        raise Malformed(f"its contents do not parse: {error}") from error
    if len(fields) != len(kinds) or not all(map(isinstance, fields, kinds)):
        raise Malformed("its contents are of the wrong types")
    return fields
