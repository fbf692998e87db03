"""A producer's encoder writes the same bytes as the general one, which other clients have confirmed."""

import pytest
from fencepost.protocol.batches import check_produced
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.protocol.producing import compress_records, frame_batch, payload
from fencepost.protocol.records import Record, build, records
from hypothesis import given
from hypothesis import strategies as st

BYTES = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(tuple)
RECORDS = st.lists(st.tuples(BYTES, BYTES, st.integers(0, 2**50), HEADERS), min_size=1, max_size=20)


def both(rows, **more):
    keys, values, timestamps, headers = zip(*rows, strict=True)
    with_some = {index: own for index, own in enumerate(headers) if own}
    written = frame_batch(
        payload(keys, values, timestamps, with_some), len(rows), timestamps[0], max(timestamps), **more
    )
    contents = [Record(n, row[2], row[0], row[1], row[3]) for n, row in enumerate(rows)]
    return written, build(contents, **more)


@pytest.mark.slow
@given(RECORDS)
def test_the_fast_produce_encoder_writes_the_same_bytes_as_the_general_encoder(rows):
    written, expected = both(rows)
    assert written == expected
    check_produced(memoryview(written))


@pytest.mark.slow
@given(RECORDS)
def test_the_fast_produce_encoder_writes_the_same_bytes_without_headers(rows):
    written, expected = both([(*row[:3], ()) for row in rows], producer_id=9, producer_epoch=3, base_sequence=7)
    assert written == expected


@pytest.mark.parametrize("size", [0, 63, 64, 8191, 8192, 16383, 16384, 1 << 20])
def test_the_fast_produce_encoder_is_right_for_lengths_of_every_varint_width(size):
    written, expected = both([(bytes(size), bytes(size), 5, ()), (None, bytes(size), 4, ())], transactional=True)
    assert written == expected


@pytest.mark.slow
def test_the_fast_produce_encoder_is_right_for_the_varint_of_every_record_index():
    written, expected = both([(None, b"v", 1_000 + n // 9, ()) for n in range(20_000)])
    assert written == expected


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_produced_batch_decodes_to_its_records_with_every_codec(codec):
    one = compress_records(codec, payload([None, b"k"], [b"v" * 500, None], [5, 6], {}))
    batch = check_produced(memoryview(frame_batch(one, 2, 5, 6, codec=codec)))
    assert [(r.key, r.value, r.timestamp) for r in records(batch)] == [(None, b"v" * 500, 5), (b"k", None, 6)]


@pytest.mark.parametrize("headers", [{}, {0: (("h", b"v"),)}])
def test_the_fast_produce_encoder_refuses_timestamps_whose_delta_exceeds_64_bits(headers):
    with pytest.raises(KafkaError) as refused:
        payload([None, None], [b"", b""], [-(2**63), 2**63 - 1], headers)
    assert refused.value.code == ErrorCode.INVALID_RECORD
