"""States written by layout are the bytes that the ordinary way writes."""

import pytest
from fencepost.broker.transactions import records
from fencepost.broker.transactions.state_batch import state_batch
from fencepost.broker.transactions.states.transaction import TWO_PHASE_TIMEOUT_MS, Prepared, Status, Transaction
from fencepost.protocol.batches import read, verify
from fencepost.protocol.records import keyed_batch
from hypothesis import given, settings
from hypothesis import strategies as st
from long_runs import share_of

pytestmark = pytest.mark.slow

int64 = st.integers(-(2**63), 2**63 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int16 = st.integers(-(2**15), 2**15 - 1)
mostly_none = st.one_of(st.just(-1), int64)
partitions = st.dictionaries(
    st.tuples(st.sampled_from(["t", "ü", "x" * 249, ""]), st.integers(0, 2**31 - 1)),
    st.integers(0, 2**63 - 1),
    max_size=10,
)
transactions = st.builds(
    Transaction,
    st.sampled_from(["", "x", "x" * 200, "\x7f" * 9000]),
    int64,
    int16,
    int32 | st.just(TWO_PHASE_TIMEOUT_MS),
    st.sampled_from(list(Status)),
    partitions,
    int64,
    int64,
    int64,
    int64,
    int16,
    mostly_none,
    mostly_none,
    st.one_of(st.just(-1), int16),
    st.integers(0, 2),
    st.booleans(),
    st.one_of(st.none(), st.builds(Prepared, st.text(max_size=5), int64, int64, int64)),
    mostly_none,
)


@settings(max_examples=share_of(400))
@given(st.lists(transactions, max_size=3), int64, st.booleans())
def test_state_batch_writes_the_same_bytes_as_the_slower_keyed_batch(states, now_ms, gone):
    key = records.key(states[0].transactional_id if states else "k")
    contents = [(key, records.value(state)) for state in states]
    if gone or not states:
        contents.append((key, None))
    batch = state_batch(key, states, now_ms, gone=gone or not states)
    assert bytes(batch.buffer) == bytes(keyed_batch(contents, now_ms).buffer)
    verify(read(batch.buffer))


def test_state_batch_writes_the_bytes_of_keyed_batch_for_several_ids_of_one_length():
    for name in ("abc", "xyz", "\xff\xff", "\x00\x00\x00"):
        state = Transaction(name, 7, 1, 60_000, Status.ONGOING, {("t", 1): 9}, 5, 6, 7, 8)
        key = records.key(name)
        assert bytes(state_batch(key, [state], 1).buffer) == bytes(keyed_batch([(key, records.value(state))], 1).buffer)
