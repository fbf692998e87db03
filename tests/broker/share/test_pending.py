"""PendingAcknowledgements after random events, compared with a recount."""

from typing import Any

from fencepost.broker.share.pending import RANGE_BYTES, UPDATE_BYTES, PendingAcknowledgements
from fencepost.broker.share.values import SharePartitionKey
from hypothesis import given
from hypothesis import strategies as st

KEYS = [SharePartitionKey(group, b"t" * 16, index) for group in ("g", "gé" * 9) for index in range(2)]
TRANSACTIONS = [(home, producer_id) for home in range(2) for producer_id in (7, 8)]

added = st.tuples(st.sampled_from(TRANSACTIONS), st.sampled_from(KEYS), st.integers(0, 5))
events = st.lists(added | st.sampled_from(TRANSACTIONS) | st.sampled_from(KEYS), max_size=40)


@given(events)
def test_counted_bytes_of_pending_acknowledgements_equal_a_recount_after_any_events(events: list[Any]) -> None:
    pending = PendingAcknowledgements()
    known: dict[Any, int] = {}
    for event in events:
        if isinstance(event, SharePartitionKey):
            pending.forget(event)
            known = {place: count for place, count in known.items() if place[1] != event}
        elif len(event) == 3:
            before = pending.bytes_of(event[0][1])
            more = pending.more_bytes(*event)
            pending.add(*event)
            assert pending.bytes_of(event[0][1]) == before + more
            known[event[:2]] = known.get(event[:2], 0) + event[2]
        else:
            assert sorted(pending.end(event)) == sorted(key for transaction, key in known if transaction == event)
            known = {place: count for place, count in known.items() if place[0] != event}
        for producer_id in (7, 8):
            assert pending.bytes_of(producer_id) == sum(
                RANGE_BYTES * count + UPDATE_BYTES + len(key.group.encode())
                for (transaction, key), count in known.items()
                if transaction[1] == producer_id
            )
        for transaction in TRANSACTIONS:
            assert sorted(pending.keys_of(transaction)) == sorted(key for one, key in known if one == transaction)
