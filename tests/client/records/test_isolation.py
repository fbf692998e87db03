"""Which batches a reader sees, against a model that knows every transaction's outcome."""

import pytest
from fencepost.client.records.isolation import AbortedFilter
from fencepost.protocol.batches import read
from fencepost.protocol.records import Marker, Record, build, control_marker
from hypothesis import given
from hypothesis import strategies as st

T = 1_700_000_000_000


def data(offset, producer_id, count=1, *, transactional=True):
    made = [Record(offset + n, T, None, b"v") for n in range(count)]
    return build(
        made,
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=transactional,
    )


def marker(offset, producer_id, kind):
    written = bytearray(control_marker(kind, producer_id, 0, 0, T))
    written[:8] = offset.to_bytes(8, "big")
    return bytes(written)


def seen(batches, aborted):
    isolation = AbortedFilter(aborted)
    found = []
    for each in batches:
        batch = read(memoryview(each))
        if not isolation.hides(batch):
            found.append(batch.base_offset)
    return found


steps = st.lists(
    st.tuples(
        st.integers(0, 3), st.sampled_from(["write", "write", "plain", "commit", "abort", "bare"]), st.integers(1, 3)
    ),
    max_size=40,
)


def log_of(drawn):
    """Return the batches of a log; the base offsets of those that are committed or not in a transaction; and of each
    aborted transaction the producer id, the first offset and the offset of the marker.
    """
    batches, visible, aborted = [], [], []
    open_since: dict[int, int] = {}
    written: dict[int, list[int]] = {}
    offset = 0
    drawn = [*drawn, *((producer_id, "commit", 1) for producer_id in range(4))]  # below the last stable offset
    for producer_id, what, count in drawn:
        if what == "write":
            open_since.setdefault(producer_id, offset)
            written.setdefault(producer_id, []).append(offset)
            batches.append(data(offset, producer_id, count))
            offset += count
        elif what == "plain":
            visible.append(offset)
            batches.append(data(offset, 100 + producer_id, count, transactional=False))
            offset += count
        elif what == "bare":  # a transaction that wrote nothing here: a marker alone
            if producer_id not in open_since:
                batches.append(marker(offset, producer_id, Marker.ABORT if count > 1 else Marker.COMMIT))
                offset += 1
        elif producer_id in open_since:
            first, kind = open_since.pop(producer_id), Marker.ABORT if what == "abort" else Marker.COMMIT
            batches.append(marker(offset, producer_id, kind))
            if kind is Marker.ABORT:
                aborted.append((producer_id, first, offset))
                written.pop(producer_id)
            else:
                visible += written.pop(producer_id)
            offset += 1
    return batches, sorted(visible), aborted


@pytest.mark.requirement("S-100", "S-101", "S-102", "S-103", "S-104", "S-107")
@given(steps, st.integers(0, 40), st.randoms(use_true_random=False))
def test_from_any_fetch_offset_only_committed_records_are_seen(drawn, start, random):
    batches, visible, aborted = log_of(drawn)
    part = [each for each in batches if read(memoryview(each)).last_offset >= start]
    begins = read(memoryview(part[0])).base_offset if part else start
    listed = [(producer_id, first) for producer_id, first, ended in aborted if ended >= begins]
    random.shuffle(listed)
    assert seen(part, listed) == [offset for offset in visible if offset >= begins]


@pytest.mark.requirement("S-106")
@given(steps)
def test_read_uncommitted_sees_all_but_the_markers(drawn):
    batches, _, _ = log_of(drawn)
    parsed = [read(memoryview(each)) for each in batches]
    assert seen(batches, ()) == [batch.base_offset for batch in parsed if not batch.is_control]


def test_librdkafka_1_7_an_aborted_transaction_without_records_hides_nothing():
    """Before librdkafka 1.7, such a transaction made a consumer drop what its producer committed afterwards."""
    batches = [marker(0, 7, Marker.ABORT), data(1, 7), marker(2, 7, Marker.COMMIT)]
    assert seen(batches, [(7, 0)]) == [1]
    assert seen(batches, []) == [1]


def test_a_plain_batch_of_a_producer_with_an_aborted_transaction_is_returned():
    assert seen([data(0, 7), data(1, 7, transactional=False), marker(2, 7, Marker.ABORT)], [(7, 0)]) == [1]


def test_an_aborted_transaction_hides_no_batch_below_its_first_offset():
    batches = [data(0, 7), marker(1, 7, Marker.COMMIT), data(2, 7), marker(3, 7, Marker.ABORT)]
    assert seen(batches, [(7, 2)]) == [0]
