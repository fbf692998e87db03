"""Limits of connections and event streams: by examples, and compared with a simple model under random events."""

import pytest
from fencepost.console.http.limits import ConnectionLimits, StreamLimits
from fencepost.console.http.problems import Problem
from hypothesis import given
from hypothesis import strategies as st


def test_the_longest_idle_connection_is_closed_first_and_never_one_in_a_request() -> None:
    limits: ConnectionLimits[int] = ConnectionLimits(most=3, most_of_address=3)
    for key, address in ((1, "10.0.0.1"), (2, "10.0.0.2"), (3, "10.0.0.3")):
        assert limits.admit(key, address) == []
    limits.begin(1)
    assert limits.admit(4, "10.0.0.4") == [2]
    limits.wait(1)
    limits.begin(4)
    assert limits.admit(5, "10.0.0.5") == [3]
    assert limits.admit(6, "10.0.0.6") == [1]
    limits.begin(5)
    limits.begin(6)
    assert limits.admit(7, "10.0.0.7") is None
    limits.remove(4)
    assert limits.admit(7, "10.0.0.7") == []
    assert limits.is_new(7)
    assert not limits.is_new(6)


def test_an_ip_address_at_its_connection_limit_replaces_only_its_own_connections() -> None:
    limits: ConnectionLimits[int] = ConnectionLimits(most=10, most_of_address=2)
    assert limits.admit(0, "10.0.0.9") == []
    for key in (1, 2):
        assert limits.admit(key, "2001:db8::1") == []
    assert limits.admit(3, "2001:db8::2") == [1]  # of the same 64 bits
    for key in (2, 3):
        limits.begin(key)
    assert limits.admit(4, "2001:db8::3") is None
    assert limits.admit(5, "10.0.0.9") == []
    assert len(limits) == 4


EVENTS = st.lists(
    st.tuples(st.sampled_from(["admit", "begin", "wait", "remove"]), st.integers(0, 9), st.integers(0, 2)), max_size=60
)


@given(EVENTS)
def test_random_connections_never_exceed_a_limit_or_close_one_in_a_request(events: list[tuple[str, int, int]]) -> None:
    limits: ConnectionLimits[int] = ConnectionLimits(most=5, most_of_address=3)
    addresses: dict[int, str] = {}
    waiting: list[int] = []
    for what, key, address in events:
        if what == "admit" and key not in addresses:
            closed = limits.admit(key, str(address))
            same = [each for each, other in addresses.items() if other == str(address)]
            full = len(same) >= 3 or len(addresses) >= 5
            may_go = [each for each in waiting if len(same) < 3 or each in same]
            assert closed == (may_go[:1] or None if full else [])
            if closed is not None:
                for each in closed:
                    addresses.pop(each)
                    waiting.remove(each)
                addresses[key] = str(address)
                waiting.append(key)
        elif what == "remove":
            limits.remove(key)
            if addresses.pop(key, None) is not None and key in waiting:
                waiting.remove(key)
        elif what == "begin":
            limits.begin(key)
            if key in waiting:
                waiting.remove(key)
        elif what == "wait" and key in addresses and key not in waiting:
            limits.wait(key)
            waiting.append(key)
        assert len(limits) == len(addresses) <= 5


def test_event_streams_are_limited_in_total_and_per_address() -> None:
    streams = StreamLimits(most=3, most_of_address=2)
    streams.add("10.0.0.1")
    streams.add("10.0.0.1")
    with pytest.raises(Problem, match="2 event streams of this address"):
        streams.add("10.0.0.1")
    streams.add("10.0.0.2")
    with pytest.raises(Problem, match="3 event streams are open"):
        streams.add("10.0.0.3")
    streams.remove("10.0.0.1")
    streams.add("10.0.0.3")
    for each in ("10.0.0.1", "10.0.0.2", "10.0.0.3"):
        streams.remove(each)
    assert len(streams) == 0
    assert not streams._counts
