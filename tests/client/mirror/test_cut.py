"""The closed cut, compared with every transaction of a log."""

from fencepost.client.mirror.cut import Spans
from hypothesis import given
from hypothesis import strategies as st

RECORD, MARKER, PLAIN = "record", "marker", "plain"
LOGS = st.lists(st.tuples(st.sampled_from([RECORD, RECORD, MARKER, PLAIN]), st.integers(1, 3)), max_size=14)


def transactions_of(log: list[tuple[str, int]]) -> list[list[int]]:
    """Return the offsets of each transaction: its records, and its marker if there is one."""
    open_, done = dict[int, list[int]](), list[list[int]]()
    for offset, (kind, producer_id) in enumerate(log):
        if kind == RECORD:
            open_.setdefault(producer_id, []).append(offset)
        elif kind == MARKER and producer_id in open_:
            done.append([*open_.pop(producer_id), offset])
    return done + [[*offsets, 1 << 40] for offsets in open_.values()]


def feed(spans: Spans, log: list[tuple[str, int]]) -> None:
    for offset, (kind, producer_id) in enumerate(log):
        if kind == RECORD:
            spans.record(producer_id, offset)
        elif kind == MARKER:
            spans.marker(producer_id, offset)


@given(LOGS)
def test_spans_closed_returns_the_highest_offset_that_divides_no_transaction(log: list[tuple[str, int]]) -> None:
    spans = Spans()
    feed(spans, log)
    found = spans.closed(len(log))
    whole = transactions_of(log)
    closed = [cut for cut in range(len(log) + 1) if not any(each[0] < cut <= each[-1] for each in whole)]
    assert found == max(closed)


@given(LOGS, st.integers(0, 14))
def test_after_a_cut_a_transaction_that_began_before_it_counts_as_beginning_there(
    log: list[tuple[str, int]], at: int
) -> None:
    spans = Spans()
    feed(spans, log)
    spans.cut(min(at, len(log)))
    at = min(at, len(log))
    starts = [(max(whole[0], at), whole[-1]) for whole in transactions_of(log) if whole[-1] >= at]
    closed = [cut for cut in range(at, len(log) + 1) if not any(first < cut <= last for first, last in starts)]
    assert spans.closed(len(log)) == max(closed)


def test_if_transactions_always_overlap_spans_closed_returns_the_offset_of_the_first() -> None:
    spans = Spans()
    spans.record(1, 10)
    for offset in range(11, 99, 3):
        producer_id = 2 if offset % 2 else 1
        spans.record(producer_id, offset)
        spans.marker(3 - producer_id, offset + 1)
        spans.record(3 - producer_id, offset + 2)
    assert spans.closed(100) == 10
