"""When a member heartbeats, and when it has been silent too long."""

from fencepost.client.group.heartbeat_times import HeartbeatTimes


def times():
    return HeartbeatTimes(interval_ms=3_000, session_timeout_ms=10_000, max_poll_interval_ms=60_000, now_ms=0)


def test_heartbeats_are_sent_at_the_interval_and_sooner_after_a_lost_answer():
    p = times()
    p.joined(1_000)
    assert p.due_ms == 4_000
    p.sent(4_000)
    assert p.due_ms == 7_000
    p.failed(5_000, 100)
    assert p.due_ms == 5_100


def test_a_session_of_10_seconds_is_over_10_seconds_after_the_last_answer():
    p = times()
    p.heard(1_000)
    assert not p.session_is_over(10_999)
    assert p.session_is_over(11_000)


def test_max_poll_interval_counts_only_the_time_between_polls():
    p = times()
    p.poll_begins(1_000)
    assert p.poll_until_ms is None
    assert not p.poll_is_late(1_000_000)
    p.poll_ends(1_000_000)
    assert not p.poll_is_late(1_059_999)
    assert p.poll_is_late(1_060_000)
    p.polled(1_060_000)
    assert not p.poll_is_late(1_100_000)
