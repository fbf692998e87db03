"""Names and bytes of rounds, seals and claims, and what is damaged in them.

An epoch is the time of one owner of the journal; a round is the object that the owner creates with each write. A
claim is the object with which a broker takes an epoch, a seal the one that ends an epoch.
"""

import struct

import pytest
from crc32c import crc32c
from fencepost.storage.journal.format import APPEND, Malformed, Part, frame_unit
from fencepost.storage.objects import format as form
from fencepost.storage.objects.fence import NOWHERE, Header, Place
from fencepost.storage.objects.format import Claim, RoundHeader, Seal
from hypothesis import given
from hypothesis import strategies as st

SALT = b"saltsalt"
U32, U64 = st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 64) - 1)
PLACES = st.builds(Place, st.integers(1, (1 << 32) - 1), st.integers(0, form.MAX_ROUNDS - 1))
SALTS = st.binary(min_size=8, max_size=8)
SAYS = st.builds(Header, st.one_of(st.just(NOWHERE), PLACES), U32, U64)


def a_round(count: int = 2) -> bytes:
    place = Place(3, 7)
    framed = [frame_unit(place.epoch, 10 + each, [Part(APPEND, 1, each, (bytes(20),))]) for each in range(count)]
    body = b"".join(buffer for unit in framed for buffer in unit)
    says = Header(Place(2, 5), 2, 9)
    return form.pack_round(RoundHeader(place, SALT, 5, 40, 10, count, len(body), crc32c(body), 5, (2, 1), says)) + body


def test_object_names_of_journal_rounds_sort_by_epoch_and_number():
    places = [Place(epoch, number) for epoch in (1, 2, 10) for number in (0, 1, 9, 10, 99, 100, 101, 12345)]
    names = [form.place_name(place) for place in places]
    assert names == sorted(names)
    assert names[0] == "0/journal/0000000001/000000000000/00"
    assert form.claim_name(12) == "0/owners/0000000012"


@given(PLACES)
def test_the_name_of_a_journal_round_or_claim_is_parsed_back_to_epoch_and_number(place):
    assert form.read_place(form.place_name(place)) == place
    assert form.place_name(place).startswith(form.epoch_prefix(place.epoch))
    assert form.read_claim_name(form.claim_name(place.epoch)) == place.epoch


@pytest.mark.parametrize(
    "name",
    [
        *("0/journal/0000000000/000000000000/00", "0/journal/4294967296/000000000000/00", "0/journal/1/0/0"),
        *("0/journal/0000000001/000000000000/00/", "x/0/journal/0000000001/000000000000/00", "0/journal/", ""),
        *("0/journal/000000000\u0661/000000000000/00", "0/owners/0000000001"),
    ],
)
def test_malformed_out_of_range_or_other_names_are_not_parsed_as_journal_rounds(name):
    assert form.read_place(name) is None


@pytest.mark.parametrize(
    "name", ["0/owners/0000000000", "0/owners/1", "0/owners/4294967296", "0/owners/00000000\u06611"]
)
def test_malformed_or_out_of_range_claim_names_are_not_parsed(name):
    assert form.read_claim_name(name) is None


@given(PLACES, SALTS, U64, U64, U32, U64, st.tuples(U32, U64), SAYS)
def test_a_round_object_header_reads_back_as_it_was_written(place, salt, number, first_unit, crc, age_ms, point, says):
    header = RoundHeader(place, salt, place.number // 2, number, first_unit, 3, 1000, crc, age_ms, point, says)
    packed = form.pack_round(header)
    assert len(packed) == form.HEADER_BYTES
    assert form.read_header(place, packed + b"more") == header


@given(PLACES, SALTS, U32, st.booleans())
def test_a_seal_object_reads_back_as_it_was_written(place, salt, by, handed_over):
    seal = Seal(place, salt, by, handed_over)
    assert form.read_header(place, form.pack_seal(seal)) == seal


def test_a_round_object_has_the_documented_bytes():
    content = a_round()
    assert len(content) == form.HEADER_BYTES + 2 * 65
    fields = struct.unpack_from(">4sIHBBI8sQQQQIIIQIQIQIQ", content)
    assert fields[0] == b"FPOR"
    assert fields[1] == crc32c(content[8 : form.HEADER_BYTES])
    body_crc = crc32c(content[form.HEADER_BYTES :])
    assert fields[2:8] == (1, 1, 0, 3, SALT, 7)
    assert fields[8:] == (5, 40, 10, 2, 130, body_crc, 5, 2, 1, 2, 5, 2, 9)
    header, body = form.read_round(Place(3, 7), content)
    assert (header.place, header.last_unit, len(body)) == (Place(3, 7), 11, 130)
    assert header.says == Header(Place(2, 5), 2, 9)


@pytest.mark.parametrize("at", range(0, len(a_round()), 5))
def test_reading_a_journal_round_with_one_wrong_byte_raises_malformed(at):
    content = bytearray(a_round())
    content[at] ^= 4
    with pytest.raises(Malformed):
        form.read_round(Place(3, 7), bytes(content))


@pytest.mark.parametrize("size", [0, 7, form.HEADER_BYTES - 1, form.HEADER_BYTES, len(a_round()) - 1])
def test_reading_a_truncated_journal_round_raises_malformed(size):
    with pytest.raises(Malformed):
        form.read_round(Place(3, 7), a_round()[:size])


@pytest.mark.parametrize("place", [Place(3, 8), Place(4, 7)])
def test_reading_a_journal_round_under_another_name_raises_malformed(place):
    with pytest.raises(Malformed, match="it is round 7 of epoch 3"):
        form.read_header(place, a_round())


def test_bytes_after_a_journal_round_make_it_malformed():
    with pytest.raises(Malformed, match="131 bytes of units"):
        form.read_round(Place(3, 7), a_round() + b"\0")


def test_journal_units_of_another_epoch_make_a_round_malformed():
    body = b"".join(frame_unit(2, 10, [Part(APPEND, 1, 0, (b"",))]))
    header = RoundHeader(Place(3, 7), SALT, 5, 40, 10, 1, len(body), crc32c(body), 5)
    with pytest.raises(Malformed, match="of start 2"):
        form.read_round(Place(3, 7), form.pack_round(header) + body)


@pytest.mark.parametrize(("count", "length"), [(1, 0), (3, 100), (0, form.LARGEST_ROUND_BYTES + 1)])
def test_a_round_header_with_impossible_count_or_length_raises_malformed(count, length):
    header = RoundHeader(Place(3, 7), SALT, 5, 40, 10, count, length, 0, 5)
    with pytest.raises(Malformed, match="announces"):
        form.read_header(Place(3, 7), form.pack_round(header))


def test_a_header_that_claims_its_own_journal_round_was_released_is_malformed():
    header = RoundHeader(Place(3, 7), SALT, 8, 40, 10, 0, 0, 0, 5)
    with pytest.raises(Malformed, match="8 rounds before it"):
        form.read_header(Place(3, 7), form.pack_round(header))


def test_reading_a_seal_as_a_journal_round_raises_malformed():
    with pytest.raises(Malformed, match="it is a seal"):
        form.read_round(Place(3, 7), form.pack_seal(Seal(Place(3, 7), SALT, 4, False)))


def test_an_object_of_a_newer_format_raises_newer_object():
    content = bytearray(a_round())
    struct.pack_into(">H", content, 8, 2)
    struct.pack_into(">I", content, 4, crc32c(bytes(content[8 : form.HEADER_BYTES])))
    with pytest.raises(form.NewerObject, match="format 2"):
        form.read_header(Place(3, 7), bytes(content))


@given(st.integers(1, 9), U32, st.lists(st.tuples(st.text(), st.text(), st.integers(0, 65535)), max_size=3), SALTS)
def test_a_claim_object_reads_back_unless_it_is_damaged_or_of_another_epoch(epoch, node, addresses, salt):
    claim = Claim(epoch, node, tuple(addresses), salt)
    packed = form.pack_claim(claim)
    assert form.read_claim(epoch, packed) == claim
    for broken in (packed[:-1], packed + b"\0", b"", packed[:-1] + bytes([packed[-1] ^ 1])):
        with pytest.raises(Malformed):
            form.read_claim(epoch, broken)
    with pytest.raises(Malformed):
        form.read_claim(epoch + 1, packed)


@given(st.tuples(st.text(), st.text(), st.integers(0, 65535)), SALTS, U32, U32)
def test_the_object_of_a_waiting_broker_reads_back_unless_damaged_or_of_another_kind(address, salt, count, every_ms):
    waiting = form.Waiting(7, (address,), salt, count, every_ms)
    packed = form.pack_waiting(waiting)
    assert form.read_waiting(packed) == waiting
    for broken in (packed[:-1], packed + b"\0", b"", packed[:-1] + bytes([packed[-1] ^ 1])):
        with pytest.raises(Malformed):
            form.read_waiting(broken)
    with pytest.raises(Malformed):
        form.read_claim(0, packed)


@pytest.mark.parametrize("payload", [b"\x01", b"\x93\x01\x01\x01", b"\x93\xa1a\x90\xc4\x00", b"\xc1", b""])
def test_an_object_that_is_not_a_claim_raises_malformed(payload):
    checked = struct.pack(">HII", 1, 5, len(payload)) + payload
    with pytest.raises(Malformed):
        form.read_claim(5, b"FPOC" + crc32c(checked).to_bytes(4, "big") + checked)
