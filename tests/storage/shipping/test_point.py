"""The bytes of points, rounds, claims and seals: they read back as they were written, and others are damage.

A point is a checkpoint in the store; rounds are the writes of the journal after it. A claim names the follower that has
an epoch; a seal marks that no further object of an epoch follows.
"""

import dataclasses

import msgpack
import pytest
from fencepost.storage import checkpoints
from fencepost.storage.shipping import point as points
from fencepost.storage.shipping.names import Place, claim, claimed_epoch, part, place_in, place_of_rounds, rounds
from fencepost.storage.shipping.point import Claim, Extent, JournalPlace, Piece, Point, Rounds, Seal, ShippedFile

PLACE = JournalPlace(3, 7, 8192, 5, 99)
FILES = {
    "logs/a-0.1/00000000000000000000.0.log": ShippedFile(
        30, (Extent(part(Place(1, 2)), 5, 10, 77), Extent(part(Place(1, 1)), 0, 20, 88))
    ),
    "logs/a-0.1/empty": ShippedFile(0, ()),
    "journal/00000000000000000007.journal": ShippedFile(1 << 20, (Extent(part(Place(1, 3)), 0, 8192, 1),)),
}
POINT = Point("1.2", 1_795_000_000_000, True, 12, b"checkpoint", 98, PLACE, ["one warning"], FILES)
PIECES = [
    Piece("00000000000000000007.journal", 1 << 20, 8192, b"x" * 4096),
    Piece(
        "00000000000000000007.journal",
        1 << 20,
        12288,
        b"",
        (Extent("0/pieces/1", 0, 5, 6), Extent("0/pieces/2", 0, 7, 8)),
    ),
]
ROUNDS = Rounds(1_795_000_000_001, 99, PLACE, PIECES)


def test_a_backup_point_unpacks_to_what_was_packed():
    assert points.unpack_point(points.pack_point(POINT), "name") == POINT


def test_backup_journal_rounds_claims_and_seals_unpack_to_what_was_packed():
    assert points.unpack_rounds(points.pack_rounds(ROUNDS), "name") == ROUNDS
    mine, seal = Claim("host", 1, "/data", "1.2", 5), Seal(4, "host")
    assert points.unpack_claim(points.pack_claim(mine), "name") == mine
    assert points.unpack_seal(points.pack_seal(seal), "name") == seal


def test_is_seal_is_true_for_a_packed_seal_and_false_for_points_and_rounds():
    assert points.is_seal(points.pack_seal(Seal(1, "host")))
    assert not any(map(points.is_seal, (points.pack_point(POINT), points.pack_rounds(ROUNDS), b"", b"x" * 100)))


def test_a_backup_point_returns_the_names_of_its_parts_and_the_sum_of_its_sizes():
    assert POINT.parts() == {part(Place(1, number)) for number in (1, 2, 3)}
    assert POINT.size_bytes == 30 + (1 << 20)


@pytest.mark.parametrize("pack", [lambda: points.pack_point(POINT), lambda: points.pack_rounds(ROUNDS)])
def test_a_changed_byte_in_a_point_or_rounds_object_raises_damaged_with_its_name(pack):
    content = pack()
    read = points.unpack_point if checkpoints.kind_of(content) == "point" else points.unpack_rounds
    for position in range(0, len(content), 7):
        changed = bytearray(content)
        changed[position] ^= 4
        with pytest.raises(checkpoints.Damaged, match=r"^name: "):
            read(bytes(changed), "name")
    for length in range(0, len(content), 13):
        with pytest.raises(checkpoints.Damaged):
            read(content[:length], "name")


def packed(kind, value):
    return checkpoints.pack_file(kind, points.VERSION, msgpack.packb(value))


def point_with(**changed):
    fields = dataclasses.asdict(POINT) | {"objects": ["o"], "files": []} | changed
    return packed("point", fields)


@pytest.mark.parametrize(
    "content",
    [
        packed("point", []),
        packed("point", 5),
        packed("point", {"made_by": "x"}),
        point_with(files=[["/etc/passwd", 1, []]]),
        point_with(files=[["a/../../b", 1, []]]),
        point_with(files=[["a", 1, [[0, 0, 2, 0]]]]),
        point_with(files=[["a", 1, [[1, 0, 1, 0]]]]),
        point_with(files=[["a", -1, []]]),
        point_with(files=[["a", 1, [[0, 0, 1]]]]),
        point_with(files=[[b"a", 1, []]]),
        point_with(content="text"),
        point_with(goes_on=[1, 2]),
        point_with(more=1),
        point_with(taken_ms="now"),
        point_with(warnings=[5]),
    ],
)
def test_a_backup_point_that_does_not_parse_is_damage(content):
    with pytest.raises(checkpoints.Damaged, match="do not parse"):
        points.unpack_point(content, "name")


@pytest.mark.parametrize(
    "row",
    [
        [1, 2, [1, 2, 3, 4, 5]],
        [1, 2, [1, 2, 3, 4, 5], [["a/b", 9, 0, b"", []]]],
        [1, 2, [1, 2, 3, 4, 5], [["a", 9, 8, b"xx", []]]],
        [1, 2, [1, 2, 3, 4, 5], [["a", 9, 0, "text", []]]],
        [1, -2, [1, 2, 3, 4, 5], []],
        [1, 2, [1, 2, 3, 4, 5], [["a", 9, 8, b"", [["o", 0, 2, 0]]]]],
        [1, 2, [1, 2, 3, 4, 5], [["a", 9, 8, b"", [["o", 0, 2]]]]],
    ],
)
def test_backup_journal_rounds_that_do_not_parse_are_damage(row):
    with pytest.raises(checkpoints.Damaged, match="do not parse"):
        points.unpack_rounds(packed("rounds", row), "name")


def test_an_object_of_a_newer_version_raises_newer_format():
    with pytest.raises(checkpoints.NewerFormat):
        points.unpack_point(checkpoints.pack_file("point", points.VERSION + 1, b""), "name")


def test_backup_object_names_sort_by_epoch_and_number_and_parse_back():
    places = [Place(1, 9), Place(1, 10), Place(2, 1), Place(10, 1)]
    assert sorted(map(part, places)) == [part(place) for place in places]
    assert [place_in("0/parts/", part(place)) for place in places] == places
    assert place_of_rounds(rounds(Place(2, 3), 4)) == (Place(2, 3), 4)
    assert claimed_epoch(claim(7)) == 7


@pytest.mark.parametrize("name", ["0/parts/1-2", "0/parts/x", "0/points/0000000001-0000000002", "", "0/parts/"])
def test_names_of_other_objects_are_not_parsed_as_epoch_and_number(name):
    assert place_in("0/parts/", name) is None
    assert place_of_rounds(name) is None
    assert claimed_epoch(name) is None
