"""The transaction that blocks a stream is logged after some seconds, once a minute, and only while nothing advances."""

from fencepost.client.admin.values import Blocker, OpenTransaction, ProducerState, TransactionDescription
from fencepost.client.values import TopicPartition
from fencepost.spark.source.blocked_reads import EVERY_MS, WAITED_MS, BlockedPartitions, describe
from fencepost.spark.source.offsets import Log, Seen
from hypothesis import given
from hypothesis import strategies as st

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def seen(end, high_watermark):
    return Seen({T0: Log(0, end, high_watermark), T1: Log(0, 5, 5)})


def test_a_blocked_partition_is_logged_after_some_seconds_and_then_each_minute():
    held = BlockedPartitions()
    assert held.due(seen(3, 9), 0) == []
    assert held.due(seen(3, 9), WAITED_MS - 1) == []
    assert held.due(seen(3, 9), WAITED_MS) == [T0]
    assert held.due(seen(3, 12), WAITED_MS + EVERY_MS - 1) == []
    assert held.due(seen(3, 12), WAITED_MS + EVERY_MS) == [T0]


@given(st.lists(st.integers(0, 20_000), max_size=30))
def test_a_partition_that_advances_or_is_at_its_end_is_never_logged(steps):
    held, now_ms = BlockedPartitions(), 0
    for number, step in enumerate(steps):
        now_ms += step
        assert held.due(seen(number, number + 5), now_ms) == []
        assert held.due(seen(number, number), now_ms) == []


def blocker(description):
    producer = ProducerState(7, 0, 5, 90_000, 0, 3)
    return Blocker(OpenTransaction(T0, producer), 3, 9, description)


def test_the_warning_about_a_blocked_partition_names_transaction_and_age():
    known = TransactionDescription("job-1", "Ongoing", 7, 0, 60_000, 100_000, 1, (T0,))
    assert describe(blocker(known), 142_000) == (
        "t-0 is blocked at offset 3, below its end at 9, by transaction 'job-1', open for 42 s"
    )
    assert "producer id 7 that no coordinator knows, last written to 52 s ago" in describe(blocker(None), 142_000)
