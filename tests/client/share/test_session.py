"""A share session against a model of the broker's side: what is in it, and which epoch it expects."""

import pytest
from fencepost.client.share.membership import Place
from fencepost.client.share.session import Ask, ShareSession
from fencepost.protocol.messages.share_fetch import AcknowledgementBatch
from hypothesis import given, settings
from hypothesis import strategies as st
from long_runs import share_of

PLACES = [Place(topic * 16, number) for topic in (b"a", b"b") for number in (0, 1)]
ACK = AcknowledgementBatch(first_offset=1, last_offset=2, acknowledge_types=[1])


class Broker:
    """The session as the broker has it; None: it has none."""

    def __init__(self) -> None:
        self.expected: int | None = None
        self.partitions: set[Place] = set()
        self.acknowledged: list[Place] = []

    def serve(self, ask: Ask) -> bool:
        """Apply a request, if its epoch is the expected one. Returns whether it is. Asserts that the request names no
        partition without a reason.
        """
        if ask.epoch == 0:
            self.expected, self.partitions = 0, set()
            assert not any(one.acknowledgement_batches for topic in ask.topics for one in topic.partitions)
        if ask.epoch != self.expected:
            return False
        self.expected += 1
        for topic in ask.topics:
            for one in topic.partitions:
                place = Place(topic.topic_id, one.partition_index)
                assert place not in self.partitions or one.acknowledgement_batches, "named without a reason"
                self.partitions.add(place)
                self.acknowledged += [place] * bool(one.acknowledgement_batches)
        gone = {Place(topic.topic_id, number) for topic in ask.forgotten for number in topic.partitions}
        assert gone <= self.partitions
        self.partitions -= gone
        return True


Step = tuple[frozenset[Place], frozenset[Place], str]
STEPS = st.lists(
    st.tuples(
        st.frozensets(st.sampled_from(PLACES)),
        st.frozensets(st.sampled_from(PLACES)),
        st.sampled_from(["well", "well", "well", "answer lost", "request lost", "evicted"]),
    ),
    max_size=15,
)


@pytest.mark.slow
@settings(max_examples=share_of(150), deadline=None)
@given(STEPS)
def test_after_lost_requests_or_answers_the_broker_has_the_wanted_partitions(steps: list[Step]) -> None:
    session, broker = ShareSession(), Broker()
    for wanted, acked, fate in steps:
        if fate == "evicted":
            broker.expected = None
            continue
        acks = {place: [ACK] for place in acked & wanted} if session.is_open else {}
        stamp, before = session.stamp, len(broker.acknowledged)
        ask = session.ask(wanted, acks)
        is_right = fate != "request lost" and broker.serve(ask)
        if fate == "well" and is_right:
            session.answered()
            assert broker.partitions == wanted == session.partitions
            assert sorted(broker.acknowledged[before:]) == sorted(acks)
            assert session.stamp == stamp
        else:
            session.lost()
            assert (session.is_open, session.stamp) == (False, stamp + 1)


def test_a_share_acknowledge_raises_the_session_epoch_and_changes_no_partition() -> None:
    session = ShareSession()
    session.ask(PLACES[:2], {})
    session.answered()
    epoch, topics = session.acknowledge({PLACES[3]: [ACK]})
    assert (epoch, topics[0].topic_id, topics[0].partitions[0].partition_index) == (1, PLACES[3].topic_id, 1)
    session.answered()
    assert (session.epoch, session.partitions) == (2, frozenset(PLACES[:2]))
    assert session.forgets(PLACES[:1])
    assert not session.forgets(PLACES)


def test_the_share_session_epoch_continues_with_1_after_its_highest_value() -> None:
    session = ShareSession()
    session.epoch = 2**31 - 1
    session.ask([], {})
    session.answered()
    assert session.epoch == 1


def test_a_share_sessions_close_returns_a_last_request_or_none_without_a_session() -> None:
    session = ShareSession()
    assert session.close({}) is None
    session.ask(PLACES, {})
    session.answered()
    closing = session.close({PLACES[0]: [ACK]})
    assert closing is not None
    assert (closing[0], len(closing[1]), session.is_open) == (-1, 1, False)
