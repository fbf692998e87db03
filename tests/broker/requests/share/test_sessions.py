"""Share sessions: epochs, who ends them, and how many there may be."""

import pytest
from fencepost.broker.requests.share import sessions as share_sessions
from fencepost.broker.requests.share.sessions import HIGHEST_EPOCH, ShareSessions
from fencepost.protocol.errors import ErrorCode, KafkaError

A, B, C = (b"a" * 16, 0), (b"a" * 16, 1), (b"b" * 16, 0)


class Waits:
    def __init__(self, session):
        self.session = session
        self.ended = False
        session.waiting[self] = None

    def end_wait(self):
        assert not self.session.is_open
        self.ended = True


def opened(sessions, member="m", places=(A,), connection="c", most=10, group="g"):
    return sessions.open(group, member, places, connection, most)


def refused(code):
    return pytest.raises(KafkaError, check=lambda error: error.code is code)


def test_each_request_of_a_share_session_increments_its_epoch_and_others_are_refused():
    sessions = ShareSessions()
    session = opened(sessions)
    for epoch in (1, 2, 3):
        assert sessions.go_on("g", "m", epoch) is session
    for wrong in (0, 2, 3, 5, -1):
        with refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH):
            sessions.go_on("g", "m", wrong, [B], [A])
    assert (list(session.places), session.epoch) == ([A], 4)
    session.epoch = HIGHEST_EPOCH
    sessions.go_on("g", "m", HIGHEST_EPOCH)
    assert session.epoch == 1


def test_a_share_session_is_not_found_under_another_group_or_member():
    sessions = ShareSessions()
    opened(sessions)
    for group, member in (("g", "n"), ("h", "m")):
        with refused(ErrorCode.SHARE_SESSION_NOT_FOUND):
            sessions.go_on(group, member, 1)
        with refused(ErrorCode.SHARE_SESSION_NOT_FOUND):
            sessions.find(group, member)


def test_a_share_session_adds_forgets_and_counts_partitions():
    sessions = ShareSessions()
    session = opened(sessions, places=[A, B, A])
    assert (list(session.places), sessions.partitions) == ([A, B], 2)
    sessions.go_on("g", "m", 1, [C, A], [B, C])
    assert (list(session.places), sessions.partitions) == ([A], 1)
    sessions.leave_out(session, [A, B])
    assert (list(session.places), sessions.partitions) == ([], 0)
    opened(sessions, "n", [A, B])
    sessions.end(session)
    sessions.leave_out(session, [A])
    assert (sessions.partitions, len(sessions)) == (2, 1)


def test_reopening_a_share_session_replaces_the_old_one():
    sessions = ShareSessions()
    before = opened(sessions, places=[A, B])
    waits = Waits(before)
    after = opened(sessions, places=[C], connection="d")
    assert (before.is_open, after.is_open, waits.ended) == (False, True, True)
    assert (list(sessions), sessions.partitions) == ([after], 1)


def test_kafka_19950_19015_closing_an_old_connection_keeps_the_new_share_session():
    sessions = ShareSessions()
    opened(sessions, connection="old")
    session = opened(sessions, connection="new")
    assert sessions.of_connection("old") == []
    assert sessions.of_connection("new") == [session]
    sessions.end(session)
    assert sessions.of_connection("new") == []
    sessions.end(session)  # ending it twice changes nothing
    assert len(sessions) == 0


def test_a_connection_may_have_several_share_sessions():
    sessions = ShareSessions()
    found = [opened(sessions, member) for member in "abc"]
    sessions.end(found[1])
    assert sessions.of_connection("c") == [found[0], found[2]]


def test_share_sessions_are_limited_and_a_member_may_replace_its_own_at_the_limit():
    sessions = ShareSessions()
    opened(sessions, "a", most=2)
    opened(sessions, "b", most=2)
    with refused(ErrorCode.SHARE_SESSION_LIMIT_REACHED):
        opened(sessions, "c", most=2)
    assert opened(sessions, "b", most=2).is_open
    with refused(ErrorCode.SHARE_SESSION_LIMIT_REACHED):
        opened(sessions, "b", most=1)
    assert sessions.get("g", "b") is None


def test_too_many_partitions_in_one_or_all_share_sessions_get_limit_reached(monkeypatch):
    monkeypatch.setattr(share_sessions, "MAX_OF_A_SESSION", 2)
    monkeypatch.setattr(share_sessions, "MAX_OF_ALL", 3)
    sessions = ShareSessions()
    session = opened(sessions, places=[A, B])
    with refused(ErrorCode.SHARE_SESSION_LIMIT_REACHED):
        sessions.go_on("g", "m", 1, [C])
    assert (session.epoch, sessions.partitions) == (1, 2)
    sessions.go_on("g", "m", 1, [A, B])
    opened(sessions, "n", [C])
    with refused(ErrorCode.SHARE_SESSION_LIMIT_REACHED):
        opened(sessions, "o", [A])
    with refused(ErrorCode.SHARE_SESSION_LIMIT_REACHED):
        sessions.go_on("g", "n", 1, [A])
    assert sessions.partitions == 3
