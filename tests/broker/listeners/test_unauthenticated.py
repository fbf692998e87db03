"""Which client is cut off when too many have not logged in."""

import pytest
from fencepost.broker.listeners.unauthenticated import UnauthenticatedClients
from hypothesis import given
from hypothesis import strategies as st


def test_an_address_over_its_limit_of_unauthenticated_connections_loses_its_oldest():
    clients = UnauthenticatedClients()
    assert [clients.add(name, "h", 0, 10, 2) for name in "abc"] == [None, None, "a"]
    assert clients.add("d", "other", 0, 10, 2) is None
    assert len(clients) == 3


def test_above_the_total_limit_the_oldest_unauthenticated_connection_is_closed():
    clients = UnauthenticatedClients()
    for name in "abc":
        clients.add(name, name, 0, 3, 2)
    assert clients.add("d", "d", 0, 3, 2) == "a"
    assert "a" not in clients


def test_late_returns_clients_whose_login_deadline_has_passed_unless_removed():
    clients = UnauthenticatedClients()
    assert clients.next_deadline_ms() is None
    for at, name in enumerate("abc"):
        clients.add(name, "h", 100 + at, 10, 10)
    clients.remove("a")
    clients.remove("a")
    assert clients.next_deadline_ms() == 101
    assert clients.late(100) == []
    assert clients.late(101) == ["b"]
    assert clients.late(1000) == ["b", "c"]


@pytest.mark.slow
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.sampled_from("xyz")), max_size=60))
def test_unauthenticated_connections_never_exceed_their_limits(steps):
    clients, model = UnauthenticatedClients(), {}
    for number, (comes, which, host) in enumerate(steps):
        if comes:
            leaves = clients.add(number, host, number, 5, 2)
            own = [one for one, its in model.items() if its == host]
            expected = own[0] if len(own) >= 2 else next(iter(model)) if len(model) >= 5 else None
            assert leaves == expected
            model.pop(leaves, None)
            model[number] = host
        elif model:
            gone = list(model)[which % len(model)]
            clients.remove(gone)
            del model[gone]
        assert len(clients) == len(model) <= 5
        assert clients.late(10**9) == list(model)
