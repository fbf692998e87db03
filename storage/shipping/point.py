"""Bytes of the objects that are not parts: points, rounds, claims and seals. Pure.

The rule: each object has a checksum over all of its bytes, and names its own kind (storage/checkpoints.py). Each extent
has the checksum of its bytes, so a reader of a part trusts only bytes that a point has named. docs/formats.md describes
every byte.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, TypeVar

import msgpack

from .. import checkpoints

POINT, ROUNDS, CLAIM, SEAL = "point", "rounds", "claim", "seal"
VERSION = 1

T = TypeVar("T")


class Extent(NamedTuple):
    """Where bytes of a file are: in which object, at which position. crc: CRC-32C of these bytes."""

    object: str
    position: int
    length: int
    crc: int


class ShippedFile(NamedTuple):
    """A file in a store: its extents one after the other, followed by zeros up to its size."""

    size_bytes: int
    extents: tuple[Extent, ...]

    @property
    def shipped_bytes(self) -> int:
        """How many bytes of the file are in the store. The rest of the file is zeros."""
        return sum(extent.length for extent in self.extents)


class JournalPlace(NamedTuple):
    """Where a journal continues: start, file, byte in the file, round and unit.

    round: 0 if no round was read yet, so that any may come.
    """

    incarnation: int
    sequence: int
    position: int
    round: int
    unit: int


@dataclass(slots=True)
class Point:
    """The content of a point (checkpoint in a store).

    taken_ms: wall time at the follower, before the journal was read. running: a broker was serving from the directory.
    checkpoint, content: number and bytes of the checkpoint. last_unit: the newest unit in the point. goes_on: where
    the rounds after it begin. warnings: what was damaged or missing in the directory already. files: by path.
    """

    made_by: str
    taken_ms: int
    running: bool
    checkpoint: int
    content: bytes
    last_unit: int
    goes_on: JournalPlace
    warnings: list[str] = field(default_factory=list)
    files: Mapping[str, ShippedFile] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """The size of all files of the checkpoint."""
        return sum(file.size_bytes for file in self.files.values())

    def parts(self) -> set[str]:
        """Return the names of all parts that the point needs."""
        return {extent.object for file in self.files.values() for extent in file.extents}


class Piece(NamedTuple):
    """Bytes of a file of the journal. size_bytes: of the whole file, which has zeros after its last round.

    extents: where the bytes are, one after the other, if they are not in `data`.
    """

    file: str
    size_bytes: int
    position: int
    data: bytes
    extents: tuple[Extent, ...] = ()

    @property
    def length(self) -> int:
        """How many bytes of the journal the piece has, in itself and in extents."""
        return len(self.data) + sum(extent.length for extent in self.extents)


@dataclass(slots=True)
class Rounds:
    """Rounds that the journal got since the point, or since the Rounds before.

    taken_ms: as in Point. last_unit: the newest unit in them. goes_on: where the next rounds begin.
    """

    taken_ms: int
    last_unit: int
    goes_on: JournalPlace
    pieces: list[Piece]


@dataclass(slots=True)
class Claim:
    """The process that follows, in a form for people. claimed_ms: by the clock of its machine."""

    host: str
    process: int
    directory: str
    made_by: str
    claimed_ms: int


@dataclass(slots=True)
class Seal:
    """Marks that no further object of this epoch follows. by: the epoch of the follower that created the seal; the
    same epoch if a follower ended its own.
    """

    by: int
    host: str


# ---- points ------------------------------------------------------------------------------------------------------


def pack_point(point: Point) -> bytes:
    """Encode a point as the content of its object."""
    fields: dict[str, Any] = asdict(point)
    objects = sorted(point.parts())
    number = {name: place for place, name in enumerate(objects)}
    fields["objects"] = objects
    fields["files"] = [
        [path, file.size_bytes, [[number[each.object], *each[1:]] for each in file.extents]]
        for path, file in sorted(point.files.items())
    ]
    return checkpoints.pack_file(POINT, VERSION, msgpack.packb(fields))


def unpack_point(content: bytes, name: str) -> Point:
    """Decode the object of a point. name: of the object, for errors. Raises checkpoints.Damaged, NewerFormat."""

    def parse(payload: bytes) -> Point:
        """Decode the point. Raises ValueError and others for bad content."""
        fields = dict(msgpack.unpackb(payload))
        objects, rows = fields.pop("objects"), fields.pop("files")
        fields["goes_on"] = _place(fields["goes_on"])
        fields["files"] = {
            _text(path): ShippedFile(_whole(size), tuple(_extent(objects, row) for row in extents))
            for path, size, extents in rows
        }
        point = Point(**fields)
        if any(path.startswith("/") or ".." in path.split("/") for path in point.files):
            raise ValueError("it names a file outside of the directory")
        if any(file.shipped_bytes > file.size_bytes for file in point.files.values()):
            raise ValueError("a file has more bytes than its size")
        _check(point.content, bytes), _text(point.made_by), _check(point.running, bool)
        for number in (point.taken_ms, point.checkpoint, point.last_unit):
            _whole(number)
        point.warnings = [_text(warning) for warning in _check(point.warnings, list)]
        return point

    return _parsed(content, name, POINT, parse)


def _extent(objects: list[str], row: list[int]) -> Extent:
    """Decode an extent whose object is named by its number in `objects`. Raises TypeError or ValueError."""
    number, position, length, crc = map(_whole, row)
    return Extent(_text(objects[number]), position, length, crc)


def _named_extent(row: list[Any]) -> Extent:
    """Decode an extent that has the name of its object. Raises TypeError or ValueError."""
    name, position, length, crc = row
    return Extent(_text(name), _whole(position), _whole(length), _whole(crc))


# ---- rounds --------------------------------------------------------------------------------------------------------


def pack_rounds(rounds: Rounds) -> bytes:
    """Encode the object with rounds after a point."""
    pieces = [[*piece[:-1], [list(extent) for extent in piece.extents]] for piece in rounds.pieces]
    row = [rounds.taken_ms, rounds.last_unit, list(rounds.goes_on), pieces]
    return checkpoints.pack_file(ROUNDS, VERSION, msgpack.packb(row))


def unpack_rounds(content: bytes, name: str) -> Rounds:
    """Decode an object with rounds. name: of the object, for errors. Raises checkpoints.Damaged, NewerFormat."""

    def parse(payload: bytes) -> Rounds:
        """Decode the rounds. Raises ValueError and others for bad content."""
        taken_ms, last_unit, goes_on, rows = msgpack.unpackb(payload)
        pieces = [
            Piece(_text(file), _whole(size), _whole(at), _check(data, bytes), tuple(map(_named_extent, extents)))
            for file, size, at, data, extents in rows
        ]
        if any("/" in piece.file or piece.position + piece.length > piece.size_bytes for piece in pieces):
            raise ValueError("a piece is not inside of its file")
        return Rounds(_whole(taken_ms), _whole(last_unit), _place(goes_on), pieces)

    return _parsed(content, name, ROUNDS, parse)


# ---- claims and seals ----------------------------------------------------------------------------------------------


def pack_claim(claim: Claim) -> bytes:
    """Encode the object by which a follower claims an epoch."""
    return checkpoints.pack_file(CLAIM, VERSION, msgpack.packb(asdict(claim)))


def unpack_claim(content: bytes, name: str) -> Claim:
    """Decode a claim of an epoch. name: of the object, for errors. Raises checkpoints.Damaged, NewerFormat."""

    def parse(payload: bytes) -> Claim:
        """Decode a claim's fields, and check their types."""
        claim = Claim(**dict(msgpack.unpackb(payload)))
        _text(claim.host), _text(claim.directory), _text(claim.made_by), _whole(claim.process), _whole(claim.claimed_ms)
        return claim

    return _parsed(content, name, CLAIM, parse)


def pack_seal(seal: Seal) -> bytes:
    """Encode the object that ends an epoch."""
    return checkpoints.pack_file(SEAL, VERSION, msgpack.packb(asdict(seal)))


def unpack_seal(content: bytes, name: str) -> Seal:
    """Decode a seal. name: of the object, for errors. Raises checkpoints.Damaged, NewerFormat."""

    def parse(payload: bytes) -> Seal:
        """Decode a seal's fields, and check their types."""
        seal = Seal(**dict(msgpack.unpackb(payload)))
        _whole(seal.by), _text(seal.host)
        return seal

    return _parsed(content, name, SEAL, parse)


def is_seal(content: bytes) -> bool:
    """Return whether this is a seal, by its first bytes. Nothing else of it is checked."""
    return checkpoints.kind_of(content) == SEAL


# ---- both ways -----------------------------------------------------------------------------------------------------


def _parsed(content: bytes, name: str, kind: str, parse: Callable[[bytes], T]) -> T:
    """Check the object's kind and checksum, and parse its content. Raises checkpoints.Damaged, NewerFormat."""
    payload = checkpoints.unpack_file(content, name, kind, VERSION)
    try:
        return parse(payload)
    except (ValueError, TypeError, KeyError, IndexError, msgpack.UnpackException) as error:
        raise checkpoints.Damaged(name, f"its contents do not parse: {error}") from error


def _place(row: Any) -> JournalPlace:
    """Decode a place in the journal. Raises TypeError or ValueError."""
    return JournalPlace(*map(_whole, row))


def _whole(value: Any) -> int:
    """Return the value if it is an int of 0 or more; else raise ValueError."""
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is no number of its kind")
    return value


def _text(value: Any) -> str:
    """Return the value if it is a string; else raise TypeError."""
    return _check(value, str)


def _check(value: Any, kind: type[T]) -> T:
    """Return the value if it is of exactly this type; else raise TypeError."""
    if type(value) is not kind:
        raise TypeError(f"{value!r:.50} is no {kind.__name__}")
    return value
