"""Bytes of the journal, taken from docs/formats.md and not from the code that writes them.

A unit is an entry of the journal; a round is the units of one write.
"""

import struct

import pytest
from crc32c import crc32c
from fencepost.storage.journal import format as form
from fencepost.storage.journal.format import FileHeader, Part, RoundHeader
from hypothesis import given
from hypothesis import strategies as st

FILE = FileHeader(7, 12, 1 << 20, True, b"saltsalt", 9, 100, 1000)
ROUND = RoundHeader(7, 103, 1010, 102, 2, 98, False)


def test_a_journal_file_header_has_the_documented_bytes():
    block = form.pack_file_header(FILE)
    assert len(block) == 4096
    assert block[:8] == b"FENCEJNL"
    assert struct.unpack_from(">IIIIQQ8sQQQ", block, 8) == (
        *(crc32c(block[12:]), 1, 1, 7, 12, 1 << 20, b"saltsalt"),
        *(9, 100, 1000),
    )
    assert not any(block[72:])
    assert form.read_file_header(block) == FILE


def test_a_round_header_has_the_documented_bytes_and_is_valid_only_at_its_position():
    packed = form.pack_round_header(ROUND, FILE.seed, 8192)
    assert len(packed) == 48
    assert packed[:4] == b"FPRN"
    assert struct.unpack_from(">HHIQQQII", packed, 8) == (1, 0, 7, 103, 1010, 102, 2, 98)
    covered = struct.pack(">IQ8sQ", 7, 12, b"saltsalt", 8192) + packed[8:]
    assert struct.unpack_from(">I", packed, 4) == (crc32c(covered),)
    assert form.read_round_header(packed, FILE.seed, 8192) == ROUND
    assert form.read_round_header(packed, FILE.seed, 4096) is None
    for other in (FILE._replace(sequence=13), FILE._replace(incarnation=8), FILE._replace(salt=b"saltsalT")):
        assert form.read_round_header(packed, other.seed, 8192) is None


@pytest.mark.parametrize(("first", "units", "last"), [(1, 1, 1), (1, 2, 2), (3, 3, 5), (7, 0, 6), (1000, 100, 1099)])
def test_last_unit_of_a_round_header_is_its_first_unit_plus_its_unit_count_minus_1(first, units, last):
    assert ROUND._replace(first_unit=first, units=units).last_unit == last


def test_journal_part_kinds_and_sizes_have_the_documented_values():
    assert (form.APPEND, form.LOG_START, form.CREATE, form.DROP) == (1, 2, 3, 4)
    assert (form.BATCH_UNIT_BYTES, form.PREFIX_BYTES, form.LEAST_UNIT_BYTES) == (45, 8, 45)
    assert len(form.pack_batch_unit(1, 2, 1, 1, 3, 4, 16, bytes(16))) == form.BATCH_UNIT_CHECKED_BYTES
    assert [form.blocks(size) for size in (0, 1, 4095, 4096, 4097, 8192)] == [0, 4096, 4096, 4096, 8192, 8192]
    assert ROUND.last_unit == 1011


@pytest.mark.parametrize("version", [0, 2])
def test_a_journal_file_header_of_another_format_raises_unknown_format(version):
    block = bytearray(form.pack_file_header(FILE))
    struct.pack_into(">I", block, 12, version)
    struct.pack_into(">I", block, 8, crc32c(bytes(block[12:])))
    with pytest.raises(form.UnknownFormat, match=f"format {version}"):
        form.read_file_header(bytes(block))


def test_the_round_that_ends_a_journal_file_has_flag_1_set_in_its_header():
    last = ROUND._replace(units=0, length=0, ends_file=True)
    packed = form.pack_round_header(last, FILE.seed, 8192)
    assert packed[10:12] == b"\0\1"
    assert form.read_round_header(packed, FILE.seed, 8192) == last


def test_a_journal_unit_has_the_documented_bytes():
    framed = b"".join(form.frame_unit(7, 1010, [Part(1, 3, -1, (b"ab", b"c")), Part(4, 2**64 - 1, 0, ())]))
    body = struct.pack(">IQI", 7, 1010, 2) + struct.pack(">BQqI", 1, 3, -1, 3) + b"abc"
    body += struct.pack(">BQqI", 4, 2**64 - 1, 0, 0)
    assert framed == struct.pack(">II", len(body), crc32c(body)) + body


@pytest.mark.parametrize("size", [0, 1, 47])
def test_a_truncated_journal_round_header_decodes_as_none(size):
    assert form.read_round_header(bytes(size), 0, 4096) is None


@pytest.mark.parametrize("size", [0, 8, 4095])
def test_a_journal_file_header_that_is_too_short_is_malformed(size):
    with pytest.raises(form.Malformed, match="bytes"):
        form.read_file_header(form.pack_file_header(FILE)[:size])


def test_zero_bytes_are_refused_as_a_journal_unit():
    """A length of 0 with a checksum of 0 over no bytes would be valid if no least length were checked."""
    assert "impossible length" in form.first_fault(memoryview(bytes(100)), ROUND)
    assert form.highest_number(memoryview(bytes(100)), 0) == 0


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"first_unit": 9}, "unit 9 is another"),
        ({"first_unit": 11}, "unit 11 is another"),
        ({"incarnation": 6}, "unit 10 is another"),
        ({"incarnation": 8}, "unit 10 is another"),
        ({"units": 3}, "unit 12 is missing"),
        ({"units": 1}, "bytes follow the last unit"),
    ],
    ids=str,
)
def test_first_fault_names_each_way_journal_units_can_differ_from_their_round_header(changed, fault):
    body = memoryview(b"".join(b"".join(form.frame_unit(7, number, [Part(3, 1, 0, ())])) for number in (10, 11)))
    header = RoundHeader(7, 5, 10, 4, 2, len(body), False)
    assert form.first_fault(body, header) == ""
    assert fault in form.first_fault(body, header._replace(**changed))
    assert form.highest_number(body, 7) == 11
    assert form.highest_number(body, 8) == 0


PARTS = st.lists(
    st.builds(
        Part,
        st.integers(1, 4),
        st.integers(0, 2**64 - 1),
        st.integers(-(2**63), 2**63 - 1),
        st.lists(st.binary(max_size=40), max_size=3),
    ),
    min_size=1,
    max_size=5,
)


def flat(parts):
    return [(part.kind, part.log_id, part.offset, b"".join(part.data)) for part in parts]


@pytest.mark.slow
@given(st.lists(PARTS, min_size=1, max_size=5), st.integers(0, 6))
def test_journal_units_read_back_as_they_were_written(units, above):
    body = b"".join(b"".join(form.frame_unit(7, number, parts)) for number, parts in enumerate(units, 1))
    header = RoundHeader(7, 1, 1, 0, len(units), len(body), False)
    assert len(body) == sum(map(form.unit_bytes, units))
    assert form.first_fault(memoryview(body), header) == ""
    assert form.highest_number(memoryview(body + b"torn"), 7) == len(units)
    found = list(form.read_units(memoryview(body), header, "path", 48, above))
    assert [(unit.number, flat(unit.parts)) for unit in found] == [
        (number, flat(parts)) for number, parts in enumerate(units, 1) if number > above
    ]
    for unit in found:
        assert struct.unpack_from(">IQ", body, unit.position - 48 + 8) == (7, unit.number)
    assert [(number, *part, bytes(data)) for number, *part, data in form.read_parts(memoryview(body), above)] == [
        (number, *part) for number, parts in enumerate(units, 1) if number > above for part in flat(parts)
    ]


@given(st.binary(max_size=300), st.integers(0, 3), st.integers(0, 2**32 - 1))
def test_arbitrary_journal_bytes_raise_only_the_documented_errors(found, units, length):
    header = RoundHeader(7, 1, 1, 0, units, length, False)
    assert isinstance(form.first_fault(memoryview(found), header), str)
    form.highest_number(memoryview(found), 7)
    form.read_round_header(found, 0, 4096)
    with pytest.raises(form.Malformed):
        form.read_file_header(found)


@given(
    st.lists(st.tuples(st.integers(0, 2**63), st.integers(0, 2**62), st.binary(max_size=5000)), min_size=1, max_size=5)
)
def test_frame_batches_gives_the_same_journal_bytes_as_frame_unit(placed):
    head = b"sixteen bytes .."
    parts = [Part(form.APPEND, log_id, offset, (head, rest)) for log_id, offset, rest in placed]
    batches = [(log_id, offset, head, rest) for log_id, offset, rest in placed]
    framed = b"".join(form.frame_batches(7, 9, batches))
    assert framed == b"".join(form.frame_unit(7, 9, parts))
    assert len(framed) == form.unit_bytes(parts)


@pytest.mark.parametrize("count", [0, form.MAX_PARTS + 1])
def test_a_journal_unit_with_no_batch_or_too_many_is_refused(count):
    with pytest.raises(form.UnitRefused):
        form.frame_batches(7, 9, [(1, 0, b"sixteen bytes ..", b"")] * count)


@pytest.mark.parametrize("count", [1, 3, 300])
@pytest.mark.parametrize("size", [0, 100, form.COPIED_BELOW_BYTES, 3 * form.COPIED_BELOW_BYTES])
def test_a_journal_unit_has_the_same_bytes_whether_its_buffers_are_joined_or_not(monkeypatch, count, size):
    batches = [(number, number, b"sixteen bytes ..", bytes([number % 256]) * size) for number in range(count)]
    parts = [form.Part(form.APPEND, log_id, offset, (head, rest)) for log_id, offset, head, rest in batches]
    written = b"".join(form.frame_batches(3, 4, batches))
    assert written == b"".join(form.frame_unit(3, 4, parts))
    monkeypatch.setattr(form, "MAX_COPIED_BYTES", 0)
    assert b"".join(form.frame_batches(3, 4, batches)) == written
    monkeypatch.setattr(form, "MAX_COPIED_BYTES", 1 << 30)
    monkeypatch.setattr(form, "COPIED_BELOW_BYTES", 1 << 30)
    assert [b"".join(form.frame_batches(3, 4, batches))] == form.frame_batches(3, 4, batches) == [written]


def test_small_parts_of_a_journal_unit_are_joined_and_large_ones_not_copied():
    small = [(number, 0, b"sixteen bytes ..", bytes(62)) for number in range(200)]
    assert len(form.frame_batches(3, 4, small)) == 1
    large = bytes(100_000)
    assert form.frame_batches(3, 4, [(1, 0, b"sixteen bytes ..", large)])[-1] is large
