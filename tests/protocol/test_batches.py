"""The 61-byte header: read, checked, stamped."""

import struct

import pytest
from bad_batches import CASES
from fencepost.protocol.batches import (
    HEADER,
    HEADER_BYTES,
    CorruptBatch,
    check_produced,
    read,
    stamp_header,
    verify,
    walk,
    with_log_append_time,
)
from fencepost.protocol.errors import ErrorCode, KafkaError
from hypothesis import given
from hypothesis import strategies as st
from raw_batches import NOW_MS, batch, record


def view(*parts: bytes) -> memoryview:
    return memoryview(b"".join(parts))


def test_the_header_of_a_record_batch_has_61_bytes():
    assert HEADER_BYTES == HEADER.size == 61


@pytest.mark.requirement("S-17", "S-18")
def test_each_batch_header_field_is_decoded_from_its_own_position():
    sent = batch(
        records=3,
        base_offset=70,
        leader_epoch=4,
        attributes=0x34,
        base_timestamp=11,
        max_timestamp=12,
        producer_id=2**40,
        producer_epoch=3,
        base_sequence=9,
    )
    found = read(view(sent))
    assert (found.base_offset, found.last_offset, found.next_offset) == (70, 72, 73)
    assert (found.size, found.leader_epoch, found.magic) == (len(sent), 4, 2)
    assert (found.base_timestamp, found.max_timestamp) == (11, 12)
    assert (found.producer_id, found.producer_epoch, found.base_sequence, found.last_sequence) == (2**40, 3, 9, 11)
    assert (found.codec, found.is_transactional, found.is_control, found.is_log_append_time) == (4, True, True, False)
    assert (found.record_count, found.last_offset_delta, found.has_producer) == (3, 2, True)
    assert found.crc == struct.unpack_from(">I", sent, 17)[0]
    assert bytes(found.buffer) == sent
    assert "producer_id=1099511627776" in repr(found)


@pytest.mark.requirement("S-29")
@pytest.mark.parametrize(
    ("base", "delta", "last"), [(0, 0, 0), (0, 3, 3), (2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 1, 0), (2**31 - 2, 4, 2)]
)
def test_the_sequence_number_after_the_largest_int_is_zero(base, delta, last):
    found = read(view(batch(last_offset_delta=delta, producer_id=1, producer_epoch=0, base_sequence=base)))
    assert found.last_sequence == last


@pytest.mark.parametrize("base_offset", [70, 71])
def test_next_offset_of_a_batch_is_its_last_offset_plus_one(base_offset):
    found = read(view(batch(records=3, base_offset=base_offset)))
    assert (found.last_offset, found.next_offset) == (base_offset + 2, base_offset + 3)


@pytest.mark.parametrize("bit", range(15))
def test_each_batch_attribute_is_decoded_from_its_own_bits_alone(bit):
    found = read(view(batch(attributes=1 << bit)))
    reported = (found.is_log_append_time, found.is_transactional, found.is_control, found.delete_horizon_ms is not None)
    assert reported == (bit == 3, bit == 4, bit == 5, bit == 6)
    assert found.codec == (1 << bit if bit < 3 else 0)


def test_a_batch_without_a_base_sequence_has_no_last_sequence():
    assert read(view(batch(records=3))).last_sequence == -1


def test_the_base_timestamp_of_a_cleaned_batch_is_its_delete_horizon():
    assert read(view(batch(attributes=0x40, base_timestamp=77))).delete_horizon_ms == 77
    assert read(view(batch(base_timestamp=77))).delete_horizon_ms is None


def test_walk_yields_the_consecutive_batches_of_a_buffer_each_with_its_own_bytes():
    one, two, three = batch(), batch(records=5, base_offset=1), batch(base_offset=6)
    found = list(walk(view(b"xyz", one, two, three), 3))
    assert [bytes(each.buffer) for each in found] == [one, two, three]
    assert [each.base_offset for each in found] == [0, 1, 6]


def test_decoding_a_batch_header_copies_no_bytes():
    buffer = view(batch())
    assert read(buffer).buffer is buffer
    inside = view(batch(), batch())
    assert read(inside, len(inside) // 2).buffer.obj is inside.obj


@pytest.mark.parametrize(
    ("damaged", "reason"),
    [
        (b"", "0 bytes are too few"),
        (bytes(60), "60 bytes are too few"),
        (bytes(61), "magic is 0"),
        (batch(length=48), "size of 60 bytes"),
        (batch(length=-1), "size of 11 bytes"),
        (batch(length=2**31 - 1), "its length says"),
        (batch()[:-1], "70 bytes, 69 are there"),
        (batch(magic=1), "magic is 1"),
        (batch(base_offset=-1), "offset -1"),
        (batch(count=-1), "-1 records"),
        (batch(count=2), "2 records"),
    ],
)
def test_corrupt_batches_raise_an_error_with_their_position(damaged, reason):
    with pytest.raises(CorruptBatch, match=reason) as caught:
        list(walk(view(batch(), damaged or b"x"), 70)) if damaged else read(view(batch()), 70)
    assert caught.value.position == 70


def test_iterating_batches_raises_corrupt_batch_at_trailing_zero_bytes():
    batches = walk(view(batch(), bytes(3192)))
    assert next(batches).record_count == 1
    with pytest.raises(CorruptBatch):
        next(batches)


def test_a_batch_whose_records_were_all_compacted_away_is_valid():
    emptied = read(view(batch(b"", count=0, last_offset_delta=6)))
    verify(emptied)
    assert emptied.next_offset == 7


def test_each_flipped_bit_outside_base_offset_and_leader_epoch_raises_corrupt_batch():
    sent = batch(records=2, producer_id=1, producer_epoch=0, base_sequence=0)
    for bit in range(len(sent) * 8):
        damaged = bytearray(sent)
        damaged[bit // 8] ^= 1 << bit % 8
        if bit // 8 in range(8) or bit // 8 in range(12, 16):  # base offset, leader epoch
            continue
        with pytest.raises(CorruptBatch):
            verify(read(memoryview(damaged)))


@pytest.mark.slow
@given(st.binary(max_size=200), st.integers(0, 210))
def test_arbitrary_bytes_decode_as_a_batch_or_are_corrupt(content, position):
    try:
        found = read(memoryview(content), position)
        verify(found)
    except CorruptBatch:
        return
    assert found.size >= HEADER_BYTES


def test_stamping_offset_and_epoch_rewrites_16_bytes_and_keeps_the_crc_valid():
    found = check_produced(view(batch(records=3, leader_epoch=-1)))
    placed = read(view(stamp_header(found, 1234, 5), bytes(found.buffer[16:])))
    verify(placed)
    assert (placed.base_offset, placed.leader_epoch, placed.last_offset) == (1234, 5, 1236)
    assert len(stamp_header(found, 0)) == 16


def test_stamping_log_append_time_sets_attribute_bit_max_timestamp_and_crc():
    found = check_produced(view(batch(records=3)))
    found.base_offset = 50
    changed = with_log_append_time(found, NOW_MS + 5)
    verify(changed)
    assert (changed.is_log_append_time, changed.max_timestamp, changed.base_offset) == (True, NOW_MS + 5, 50)
    assert changed.buffer[61:] == found.buffer[61:]
    assert not found.is_log_append_time


@pytest.mark.parametrize(("size", "code"), [(25, ErrorCode.CORRUPT_MESSAGE), (26, ErrorCode.INVALID_RECORD)])
def test_a_batch_below_the_minimum_size_is_corrupt_whatever_its_magic(size, code):
    with pytest.raises(KafkaError) as caught:
        check_produced(view(batch(magic=0, length=size - 12)))
    assert caught.value.code == code


PRODUCER = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}


@pytest.mark.parametrize("attributes", [0, 1, 4, 0x10, 0x14])
def test_setting_and_clearing_log_append_time_changes_no_other_attribute(attributes):
    producer = PRODUCER if attributes & 0x10 else {}
    found = check_produced(view(batch(b"x" * 40, records=3, attributes=attributes, **producer)))
    changed = with_log_append_time(found, NOW_MS)
    assert changed.attributes == attributes | 8
    assert with_log_append_time(changed, NOW_MS).attributes == attributes | 8
    again = check_produced(memoryview(bytes(changed.buffer)))
    assert again.attributes == attributes


@pytest.mark.parametrize("attributes", [0, 8, 0x10, 0x30, 0x1C])
def test_the_base_timestamp_is_a_delete_horizon_only_if_its_attribute_bit_is_set(attributes):
    assert read(view(batch(attributes=attributes, base_timestamp=99))).delete_horizon_ms is None
    assert read(view(batch(attributes=attributes | 0x40, base_timestamp=99))).delete_horizon_ms == 99


@pytest.mark.parametrize(
    ("sequence", "epoch", "code"),
    [
        (-1, -1, ErrorCode.INVALID_RECORD),
        (-1, 0, ErrorCode.INVALID_RECORD),
        (0, -1, ErrorCode.INVALID_PRODUCER_EPOCH),
        (1, -1, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_a_negative_sequence_is_reported_before_a_negative_producer_epoch(sequence, epoch, code):
    with pytest.raises(KafkaError) as caught:
        check_produced(view(batch(producer_id=7, producer_epoch=epoch, base_sequence=sequence)))
    assert caught.value.code == code


@pytest.mark.parametrize("attributes", [0, 8, 0x10, 0x18])
def test_a_produced_batch_whose_bytes_are_too_few_for_its_record_count_is_refused(attributes):
    smallest = 7
    for size in (smallest * 3, smallest * 3 - 1):
        sent = view(batch(bytes(size), records=3, attributes=attributes, **PRODUCER))
        if size == smallest * 3:
            assert check_produced(sent).record_count == 3
        else:
            with pytest.raises(KafkaError, match="cannot fit"):
                check_produced(sent)


def test_a_produced_batch_marked_log_append_time_is_treated_as_create_time():
    accepted = check_produced(view(batch(attributes=8 | 1)))
    verify(accepted)
    assert not accepted.is_log_append_time
    assert accepted.codec == 1


@pytest.mark.requirement("S-24")
@pytest.mark.parametrize("name", CASES)
def test_each_invalid_batch_gets_the_error_code_of_kafka_or_of_a_listed_exception(name):
    case = CASES[name]
    expected = case.kafka if case.ours is None else case.ours
    if expected == ErrorCode.NONE:
        accepted = check_produced(memoryview(case.sent))
        assert accepted.record_count == accepted.last_offset_delta + 1
    else:
        with pytest.raises(KafkaError) as caught:
            check_produced(memoryview(case.sent))
        assert caught.value.code == expected
        assert caught.value.detail
    assert case.ours is None or case.why, "another answer than Kafka's needs a reason"


@given(st.binary(max_size=120))
def test_random_bytes_instead_of_a_produced_batch_raise_kafka_error(content):
    with pytest.raises(KafkaError) as caught:
        check_produced(memoryview(content))
    # Which of the two depends on the bytes at the places of the length, the magic number and the checksum.
    assert caught.value.code in (ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE)


@given(st.data())
def test_a_produced_batch_of_random_header_fields_is_accepted_or_raises_kafka_error(data):
    def integer(bits):
        edge = 2 ** (bits - 1)
        return data.draw(st.sampled_from([-edge, -2, -1, 0, 1, 2, edge - 1]))

    sent = batch(
        record() + record(1),
        count=integer(32),
        last_offset_delta=integer(32),
        base_offset=integer(64),
        magic=integer(8),
        attributes=integer(16),
        producer_id=integer(64),
        producer_epoch=integer(16),
        base_sequence=integer(32),
        base_timestamp=integer(64),
        max_timestamp=integer(64),
    )
    try:
        accepted = check_produced(memoryview(sent))
    except KafkaError:
        return
    assert accepted.record_count > 0
    assert accepted.base_offset == 0
    verify(accepted)
