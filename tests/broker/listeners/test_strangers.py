"""Who has to go when too many do not log in."""

from fencepost.broker.listeners.strangers import Strangers
from hypothesis import given
from hypothesis import strategies as st


def test_one_more_of_an_address_ends_the_oldest_of_it():
    strangers = Strangers()
    assert [strangers.add(name, "h", 0, 10, 2) for name in "abc"] == [None, None, "a"]
    assert strangers.add("d", "other", 0, 10, 2) is None
    assert len(strangers) == 3


def test_one_more_of_all_ends_the_oldest_of_all():
    strangers = Strangers()
    for name in "abc":
        strangers.add(name, name, 0, 3, 2)
    assert strangers.add("d", "d", 0, 3, 2) == "a"
    assert "a" not in strangers


def test_who_is_late_comes_first_and_who_left_does_not_count():
    strangers = Strangers()
    assert strangers.next_deadline_ms() is None
    for at, name in enumerate("abc"):
        strangers.add(name, "h", 100 + at, 10, 10)
    strangers.remove("a")
    strangers.remove("a")
    assert strangers.next_deadline_ms() == 101
    assert strangers.late(100) == []
    assert strangers.late(101) == ["b"]
    assert strangers.late(1000) == ["b", "c"]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.sampled_from("xyz")), max_size=60))
def test_there_are_never_more_than_may_be(steps):
    strangers, model = Strangers(), {}
    for number, (comes, which, host) in enumerate(steps):
        if comes:
            leaves = strangers.add(number, host, number, 5, 2)
            own = [one for one, its in model.items() if its == host]
            expected = own[0] if len(own) >= 2 else next(iter(model)) if len(model) >= 5 else None
            assert leaves == expected
            model.pop(leaves, None)
            model[number] = host
        elif model:
            gone = list(model)[which % len(model)]
            strangers.remove(gone)
            del model[gone]
        assert len(strangers) == len(model) <= 5
        assert strangers.late(10**9) == list(model)
