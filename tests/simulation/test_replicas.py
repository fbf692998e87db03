"""What a simulated follower shows is an earlier state of its leader. A fetch of what it lacks it answers as a follower
of Apache Kafka does.
"""

import random

import pytest
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.fetch import FetchRequest, FetchResponse
from fencepost.protocol.primitives import ZERO_UUID
from fencepost.protocol.records import Record, build
from simulation.replicas import FOLLOWER, Copy, Part, Session, State, hear, name_follower, parts_of, show

Aborted = Part.AbortedTransaction
KEY = ("t", 0)


def request(epoch=-1, **offsets):
    """Return a Fetch request. epoch: of the session. offsets: p3=7 asks for partition 3 from offset 7 on."""
    asked = [
        FetchRequest.Topic.Partition(partition=int(n[1:]), fetch_offset=at, partition_max_bytes=9)
        for n, at in offsets.items()
    ]
    return FetchRequest(
        max_wait_ms=9, min_bytes=1, session_epoch=epoch, topics=[FetchRequest.Topic(topic="t", partitions=asked)]
    )


def wanted(offset, last_fetched_epoch=-1):
    """Return the part of a Fetch request for partition 0, from this offset on."""
    return FetchRequest.Topic.Partition(
        partition=0, fetch_offset=offset, last_fetched_epoch=last_fetched_epoch, partition_max_bytes=9
    )


def part(start, end, high_watermark, last_stable):
    """Return the leader's answer for partition 0: a record at each offset from `start` to below `end`, each in an
    aborted transaction of its own.
    """
    batches = [build([Record(at, 5, None, b"v")], base_offset=at) for at in range(start, end)]
    aborted = [Aborted(producer_id=at, first_offset=at) for at in range(start, end)]
    return Part(
        partition_index=0,
        high_watermark=high_watermark,
        last_stable_offset=last_stable,
        log_start_offset=0,
        aborted_transactions=aborted,
        records=[memoryview(b"".join(batches))],
    )


def response(*parts):
    return FetchResponse(responses=[FetchResponse.Topic(topic="t", topic_id=ZERO_UUID, partitions=list(parts))])


def size(batches):
    return sum(map(len, batches))


@pytest.mark.parametrize(("committed", "below"), [(False, 6), (True, 4)])
def test_a_simulated_follower_answers_no_records_above_its_own_high_watermark(committed, below):
    answer = part(2, 9, 9, 8)
    assert show(answer, Copy(0, State(6, 4)), wanted(2), committed=committed) == "withheld"
    assert (answer.high_watermark, answer.last_stable_offset) == (6, 4)
    assert size(answer.records) == size(part(2, below, 9, 8).records)
    assert [one.first_offset for one in answer.aborted_transactions] == list(range(2, below))


def test_a_simulated_replica_has_the_high_watermark_of_its_previous_fetch():
    copy = Copy(0, State(3, 3))
    copy.hear(State(8, 7))
    assert (copy.end, copy.shown) == (3, State(3, 3))
    copy.catch_up()
    assert (copy.end, copy.shown) == (8, State(3, 3))
    copy.catch_up()
    assert (copy.end, copy.shown) == (8, State(8, 7))


def test_a_leader_answer_with_a_lower_high_watermark_does_not_move_a_follower_back():
    copies = {}
    for high_watermark in (8, 5):
        hear(copies, response(part(0, 1, high_watermark, 3)))
    assert copies[KEY].leader == State(8, 3)


def test_a_simulated_follower_that_loses_records_goes_back_to_an_earlier_state():
    copy, before = Copy(0, State(3, 3)), {State(0, 0)}
    for state in (State(5, 4), State(9, 4)):
        before.add(State(copy.end, copy.leader.last_stable))
        copy.hear(state)
        copy.catch_up()
    for seed in range(20):
        copy.lose(random.Random(seed))
        assert copy.shown in before
        assert copy.end == copy.shown.high_watermark


@pytest.mark.parametrize(
    ("end", "epoch", "code", "diverging"),
    [
        (4, -1, ErrorCode.OFFSET_OUT_OF_RANGE, None),
        (4, 0, 0, 4),
        (0, 0, ErrorCode.OFFSET_OUT_OF_RANGE, None),  # it knows of no epoch
    ],
)
def test_a_fetch_beyond_a_simulated_followers_end_gets_an_error_or_diverging_epoch(end, epoch, code, diverging):
    answer = part(5, 9, 9, 9)
    assert show(answer, Copy(0, State(end, end)), wanted(5, epoch), committed=False) == "behind"
    assert (answer.error_code, answer.records) == (code, [])
    assert (answer.diverging_epoch and answer.diverging_epoch.end_offset) == diverging


def test_a_fetch_at_the_followers_end_is_empty_without_an_error():
    answer = part(4, 9, 9, 9)
    show(answer, Copy(0, State(4, 4)), wanted(4), committed=False)
    assert (answer.error_code, answer.records, answer.diverging_epoch) == (0, [], None)


def test_name_follower_replaces_records_by_the_followers_id_as_preferred_replica():
    answer = response(part(0, 3, 9, 9))
    name_follower(answer, {KEY: Copy(0, State(9, 9)), ("t", 1): Copy(0, State(7, 6))})
    assert [one.preferred_read_replica for one in parts_of(answer).values()] == [FOLLOWER, FOLLOWER]
    assert [one.records for one in parts_of(answer).values()] == [[], []]
    assert parts_of(answer)["t", 1].high_watermark == 7


def test_a_fetch_session_keeps_partitions_until_they_are_forgotten_or_it_is_renewed():
    session = Session()
    session.asked(request(0, p0=5, p1=6))
    more = request(1, p1=9)
    assert {key[1]: each.fetch_offset for key, each in session.asked(more).items()} == {0: 5, 1: 9}
    less = request(2)
    less.forgotten_topics_data = [FetchRequest.ForgottenTopic(topic="t", partitions=[0])]
    assert {key[1]: each.fetch_offset for key, each in session.asked(less).items()} == {1: 9}
    assert {key[1] for key in session.asked(request(0, p3=1))} == {3}
