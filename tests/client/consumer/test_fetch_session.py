"""The client's fetch sessions against a broker's half: whatever happens, the broker answers for what is wanted."""

import pytest
from fencepost.client.consumer.fetch_session import FetchSession, Wanted
from fencepost.client.values import TopicPartition
from hypothesis import given
from hypothesis import strategies as st


class BrokerSessions:
    """The fetch sessions of a broker, as KIP-227 describes them."""

    def __init__(self):
        self.number, self.id, self.epoch, self.known = 0, 0, 0, {}

    def answer(self, ask):
        """Apply a request to the session. Returns (error, None without one; session id of the response)."""
        if ask.epoch == 0:
            self.number += 1
            self.id, self.epoch, self.known = self.number, 1, dict(ask.wanted)
            return None, self.id
        if ask.session_id != self.id:
            return "gone", 0
        if ask.epoch != self.epoch:
            return "epoch", 0
        self.epoch += 1
        for tp, _ in ask.forgotten:
            self.known.pop(tp, None)
        self.known.update(ask.wanted)
        return None, self.id


wanted = st.dictionaries(
    st.integers(0, 3).map(lambda n: TopicPartition("t", n)),
    st.builds(Wanted, st.integers(0, 3), st.just(0), st.just(-1), st.sampled_from([b"a" * 16, b"b" * 16])),
)
steps = st.lists(
    st.tuples(wanted, st.booleans(), st.sampled_from(["answer", "answer", "answer", "lost", "evicted", "none"]))
)


@pytest.mark.slow
@given(steps)
def test_after_any_answers_the_brokers_fetch_session_has_just_the_wanted_partitions(drawn):
    session, broker = FetchSession(), BrokerSessions()
    for partitions, by_id, what in drawn:
        if what == "evicted":
            broker.id = -1
        ask = session.ask(partitions, by_id=by_id)
        error, session_id = broker.answer(ask)
        if what == "lost":
            session.failed()
        elif error is not None:
            assert (error, broker.id) == ("gone", -1), "only an evicted session is refused"
            session.failed(forgotten=True)
        else:
            assert broker.known == partitions
            session.answered(0 if what == "none" else session_id)


def test_a_fetch_in_a_session_names_only_added_changed_and_removed_partitions():
    session = FetchSession()
    a, b = TopicPartition("t", 0), TopicPartition("t", 1)
    one, two = Wanted(0, 0, -1), Wanted(5, 0, -1)
    assert session.ask({a: one, b: one}, by_id=False) == (0, 0, {a: one, b: one}, [])
    session.answered(9)
    assert session.ask({a: one, b: two}, by_id=False) == (9, 1, {b: two}, [])
    session.answered(9)
    assert session.ask({a: one}, by_id=False) == (9, 2, {}, [(b, two.topic_id)])
    session.failed()
    assert session.ask({a: one}, by_id=False) == (9, 0, {a: one}, [])
