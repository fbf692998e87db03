"""Which batches are whole in what a fetch brought, wherever it was cut off or damaged."""

import pytest
from fencepost.client.records.whole_batches import WholeBatches
from fencepost.protocol.batches import LENGTH_ENDS_AT
from fencepost.protocol.records import Record, build
from hypothesis import given
from hypothesis import strategies as st

BATCHES = [build([Record(at, 5, None, bytes(at))], base_offset=at, leader_epoch=at) for at in (10, 11, 15)]
ENDS = [sum(map(len, BATCHES[:count])) for count in range(1, 4)]
EVERY = b"".join(BATCHES)


@given(st.integers(0, len(EVERY)))
def test_a_cut_off_batch_is_omitted_and_its_size_reported_once_its_length_is_read(cut):
    found = WholeBatches(8, [EVERY[:cut]], leader_epoch=3)
    whole = [each for each, end in zip(BATCHES, ENDS, strict=True) if end <= cut]
    assert [bytes(batch.buffer) for batch in found.batches] == whole
    assert (found.next_offset, found.next_epoch) == [(8, 3), (11, 10), (12, 11), (16, 15)][len(whole)]
    rest = cut - sum(map(len, whole))
    assert found.cut_off_bytes == (len(BATCHES[len(whole)]) if rest > LENGTH_ENDS_AT else 0)
    assert (found.size, found.damage, found.is_empty) == (cut, None, not whole)


@pytest.mark.parametrize("at", [8, 16], ids=["length", "magic"])
def test_whole_batches_before_a_damaged_one_are_returned(at):
    damaged = bytearray(EVERY)
    damaged[ENDS[0] + at] = 0xFF
    found = WholeBatches(10, [damaged])
    assert (len(found.batches), found.next_offset, found.is_empty) == (1, 11, False)
    assert found.damage is not None
    assert found.cut_off_bytes == 0


def test_a_batch_below_the_requested_offset_does_not_move_the_position():
    found = WholeBatches(12, [BATCHES[0]], leader_epoch=7)
    assert (len(found.batches), found.next_offset, found.next_epoch) == (1, 12, 7)


def test_batches_are_found_in_a_list_of_buffers_of_any_bytes_type():
    found = WholeBatches(10, [BATCHES[0], bytearray(BATCHES[1]), memoryview(BATCHES[2])])
    assert (len(found.batches), found.next_offset, found.size) == (3, 16, len(EVERY))
