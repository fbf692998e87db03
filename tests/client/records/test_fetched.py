"""What one fetch brought: positions come from batches, nothing is skipped in silence, what was not given goes back."""

import traceback

import pytest
from fencepost.client.errors import CorruptRecordError, RecordTooLargeError
from fencepost.client.records.fetched import Fetched
from fencepost.client.serialization import deserializer_of
from fencepost.client.values import TopicPartition
from fencepost.protocol.records import Marker, Record, build, control_marker

TP = TopicPartition("t", 0)


def written(first, *values, last_offset_delta=None, **more):
    made = [Record(first + n, 5, None, value) for n, value in enumerate(values)]
    return build(made, base_offset=first, last_offset_delta=last_offset_delta, leader_epoch=3, **more)


def abort(offset, producer_id=7):
    marker = bytearray(control_marker(Marker.ABORT, producer_id, 0, 0, 5))
    marker[:8] = offset.to_bytes(8, "big")
    return bytes(marker)


def opened(*batches, offset=0, aborted=(), **more):
    return Fetched(TP, offset, -1, [b"".join(batches)], aborted, **more)


def values(found):
    return [record.value for record in found]


def test_fetched_run_returns_records_of_one_batch_at_most_and_advances_the_position():
    fetched = opened(written(0, b"a", b"b", b"c"), written(3, b"d"))
    assert (fetched.position, fetched.next_offset, fetched.at_most) == (0, 4, 4)
    assert values(fetched.run(2)) == [b"a", b"b"]
    assert (fetched.position, fetched.leader_epoch) == (2, 3)
    assert values(fetched.run(5)) == [b"c"]
    assert fetched.position == 3
    assert not fetched.is_done
    assert values(fetched.run(5)) == [b"d"]
    assert fetched.is_done
    assert fetched.run(5) == []


def test_fetched_give_back_n_makes_the_last_n_records_be_returned_again():
    fetched = opened(written(0, b"a", b"b", b"c"))
    fetched.run(3)
    fetched.give_back(2)
    assert fetched.position == 1
    fetched.give_back(1)
    assert fetched.position == 0
    assert values(fetched.run(9)) == [b"a", b"b", b"c"]


@pytest.mark.requirement("S-104")
def test_records_below_the_requested_offset_are_not_returned():
    fetched = opened(written(0, b"a", b"b", b"c"), offset=2)
    assert values(fetched.run(9)) == [b"c"]
    assert fetched.position == 3


@pytest.mark.requirement("S-105")
def test_a_batch_whose_last_records_were_compacted_away_is_read_to_its_end():
    fetched = opened(written(0, b"a", last_offset_delta=9), build([], base_offset=10, last_offset_delta=4))
    assert fetched.next_offset == 15
    assert values(fetched.run(9)) == [b"a"]
    assert fetched.position == 10
    assert fetched.run(9) == []
    assert (fetched.position, fetched.is_done) == (15, True)


def test_markers_and_aborted_batches_that_are_skipped_advance_the_position():
    aborted = written(0, b"x", transactional=True, producer_id=7, producer_epoch=0, base_sequence=0)
    fetched = opened(aborted, abort(1), written(2, b"a"), abort(3), aborted=[(7, 0)])
    assert values(fetched.run(9)) == [b"a"]
    assert fetched.position == 3
    fetched.skip_hidden()
    assert (fetched.position, fetched.is_done) == (4, True)


def test_a_batch_cut_off_at_the_end_is_omitted_and_its_offset_is_fetched_next():
    whole = written(0, b"a")
    for cut in range(1, len(whole)):
        fetched = opened(whole, written(1, b"b")[:cut])
        assert (fetched.next_offset, values(fetched.run(9)), fetched.is_done) == (1, [b"a"], True)


def test_a_fetch_with_only_a_part_of_one_batch_raises_record_too_large():
    fetched = opened(written(0, b"a" * 100)[:90])
    with pytest.raises(RecordTooLargeError):
        fetched.run(1)


@pytest.mark.requirement("S-105")
def test_a_damaged_batch_is_raised_when_it_is_reached_and_at_every_later_read():
    damaged = bytearray(written(1, b"bbbb"))
    damaged[-3] ^= 1
    fetched = opened(written(0, b"a"), bytes(damaged), written(2, b"c"))
    assert values(fetched.run(9)) == [b"a"]
    fetched.skip_hidden()
    for _ in range(2):
        with pytest.raises(CorruptRecordError, match="offset 1"):
            fetched.run(9)
        assert (fetched.position, fetched.is_done) == (1, False)


def test_a_batch_with_a_wrong_magic_byte_is_raised_after_the_valid_batches():
    damaged = bytearray(written(1, b"b"))
    damaged[16] = 9  # magic
    fetched = opened(written(0, b"a"), bytes(damaged))
    assert fetched.is_failed
    assert values(fetched.run(9)) == [b"a"]
    with pytest.raises(CorruptRecordError, match="magic"):
        fetched.run(9)


def test_a_damage_error_raised_again_has_the_traceback_of_the_last_call_only():
    """One exception object is kept and raised again: its traceback must not grow with each call."""
    damaged = bytearray(written(0, b"a"))
    damaged[16] = 9
    fetched = opened(bytes(damaged))
    frames = []
    for _ in range(3):
        with pytest.raises(CorruptRecordError) as caught:
            fetched.run(5)
        frames.append(len(list(traceback.walk_tb(caught.value.__traceback__))))
    assert frames == frames[:1] * 3


def test_a_record_that_does_not_deserialize_is_raised_after_those_before_it():
    fetched = opened(written(0, b"1", None, b"x", b"3"), value=deserializer_of(int, "value"))
    assert values(fetched.run(9)) == [1, None]
    with pytest.raises(CorruptRecordError, match="offset 2: the value") as caught:
        fetched.run(9)
    assert (caught.value.partition, caught.value.offset) == (TP, 2)
    assert fetched.position == 2


def test_a_batch_that_decompresses_to_more_than_the_limit_names_the_setting():
    fetched = opened(written(0, b"a"), written(1, bytes(5_000), codec=4), limit=4_000)
    assert values(fetched.run(5)) == [b"a"]
    with pytest.raises(RecordTooLargeError, match="t-0: at offset 1: ") as caught:
        fetched.run(5)
    assert "max_decompressed_bytes" in caught.value.hint
    assert values(opened(written(0, bytes(5_000), codec=4), limit=6_000).run(5)) == [bytes(5_000)]
