"""When a round waits for one more look at the sockets: never for nobody, never twice, and not where it is of no use."""

import itertools

import pytest
from fencepost.broker.second_look import PAUSE_ROUNDS, SecondLook
from hypothesis import given
from hypothesis import strategies as st


@pytest.fixture
def look():
    return SecondLook()


def begin(look, here, late=""):
    """Begin a round of the connections `here`. If it takes a second look, that finds those of `late`, too. Returns
    whether it took one.
    """
    looked = look.is_wanted(set(here))
    look.round_begins({*here, *late} if looked else set(here))
    return looked


def test_the_first_journal_round_waits_for_no_second_look(look):
    """The second look: before it syncs a small round, the loop reads its sockets once more, for clients that the last
    round answered.
    """
    assert not begin(look, "ab")


@pytest.mark.parametrize(
    ("last", "here", "expected"),
    [
        ("a", "a", False),  # one client has nobody to wait for
        ("ab", "ab", False),
        ("ab", "abc", False),
        ("ab", "a", True),
        ("a", "b", True),
        ("", "a", False),
        ("a", "", True),  # units that no connection waits for
    ],
)
def test_a_second_look_is_wanted_if_clients_that_the_last_round_answered_are_missing(look, last, here, expected):
    begin(look, last)
    assert begin(look, here) is expected


def test_a_journal_round_takes_at_most_one_second_look(look):
    begin(look, "abc")
    assert look.is_wanted(set("a"))
    assert not look.is_wanted(set("b"))


def test_clients_that_a_second_look_finds_share_the_journal_round(look):
    begin(look, "ab")
    assert begin(look, "a", late="b")
    assert not begin(look, "ab")
    assert begin(look, "a", late="b")


def test_a_second_look_merges_two_groups_of_clients_into_shared_journal_rounds(look):
    """Without it, each group would send while the round of the other is synced, and they would alternate for ever."""
    begin(look, "ab")
    assert begin(look, "cd", late="ab")
    assert not begin(look, "abcd")


@pytest.mark.parametrize("late", ["", "x"])  # x is not missing: it was not in the last round
def test_after_a_second_look_that_found_none_it_was_for_the_next_rounds_take_none(look, late):
    """After PAUSE_ROUNDS rounds without one, a round takes a second look again."""
    begin(look, "ab")
    assert begin(look, "c", late=late)
    looked = [begin(look, here) for here in itertools.islice(itertools.cycle("ab"), PAUSE_ROUNDS + 1)]
    assert looked == [False] * PAUSE_ROUNDS + [True]


def test_after_a_second_look_that_found_a_client_the_next_journal_round_looks_too(look):
    begin(look, "abc")
    for _ in range(3):
        assert begin(look, "a", late="b")
        assert begin(look, "c", late="ab")


def test_a_second_look_does_not_wait_for_clients_of_the_round_before_the_last(look):
    """The second look: before it syncs a small round, the loop reads its sockets once more, for clients that the last
    round answered.
    """
    begin(look, "ab")
    look.round_begins(set("c"))
    assert not begin(look, "c")


@pytest.mark.parametrize("when", ["before the look", "during it"])
def test_no_second_look_is_taken_for_a_closed_connection(look, when):
    begin(look, "a")
    if when == "before the look":
        look.forget("a")
        assert not begin(look, "b")
    else:
        assert look.is_wanted(set("b"))
        look.forget("a")
        assert not look._last
        assert not look._missing


@pytest.mark.slow
@given(st.lists(st.tuples(st.frozensets(st.sampled_from("abcd")), st.frozensets(st.sampled_from("abcd")))))
def test_a_second_look_remembers_only_connections_of_the_last_journal_round(rounds):
    """The second look: before it syncs a small round, the loop reads its sockets once more, for clients that the last
    round answered.
    """
    look = SecondLook()
    for here, late in rounds:
        looked = begin(look, here, late)
        assert look._last == (here | late if looked else here)
        assert not look._missing


@pytest.mark.slow
@given(st.lists(st.frozensets(st.sampled_from("abcd")), min_size=3 * PAUSE_ROUNDS, max_size=4 * PAUSE_ROUNDS))
def test_fruitless_second_looks_are_at_most_one_in_pause_rounds_plus_1_rounds(rounds):
    look = SecondLook()
    looks = sum(begin(look, here) for here in rounds)
    assert looks <= len(rounds) // (PAUSE_ROUNDS + 1) + 1
