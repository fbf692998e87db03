"""Outbox relays in every order of steps, in three ways; and relays with bugs, the usual ones first, which have to be
found that way.
"""

import pytest
from fencepost.client.sql.outbox.relaying import Way
from outbox_model import Answer, Model, Step, Variant, Violated, look_at_all

H, N, F = Way.HOLD, Way.NAMES, Way.OFFSETS
OK, NO = Answer.OK, Answer.NO


@pytest.mark.slow
@pytest.mark.parametrize("way", Way)
def test_the_outbox_model_sends_each_row_once_and_in_order_per_key_in_any_step_order(way: Way):
    states, steps = look_at_all(Model(Variant(way), "aa"))
    print(way, states, steps)
    assert states > 1_000


@pytest.mark.long
@pytest.mark.parametrize("way", Way)
@pytest.mark.parametrize("keys", ["aab", "aaa"])
def test_the_outbox_model_sends_rows_of_three_writers_once_and_in_order_per_key(way: Way, keys: str):
    """keys: the key of each writer's row."""
    states, steps = look_at_all(Model(Variant(way), keys))
    print(way, keys, states, steps)
    assert states > 10_000


UNNUMBERED = {
    (F, Step.PLACE, OK): Step.READ,
    (F, Step.READ, NO): Step.READ,
    (F, Step.FORGET, OK): Step.READ,
    (N, Step.START, OK): Step.READ,
    (N, Step.READ, NO): Step.READ,
    (N, Step.FORGET, OK): Step.READ,
}
BUGS = {
    "the largest id is remembered": (Variant(F, cells=UNNUMBERED, naive="largest id"), "ab"),
    "the id is the sequence, behind xmin": (Variant(N, cells=UNNUMBERED, naive="id behind xmin"), "ab"),
    "by transaction id and id, behind xmin": (Variant(F, cells=UNNUMBERED, naive="xid and id"), "aa"),
    "two relays number at once": (Variant(N, frozenset({"numbers without a lock"})), "aa"),
    "nobody is fenced": (Variant(F, frozenset({"fences nobody"})), "aa"),
    "the place is read before the relay before is fenced": (
        Variant(F, cells={(F, Step.PLACE, OK): Step.FORGET, (F, Step.START, OK): Step.NUMBER}),
        "aa",
    ),
    "the place is committed after the records": (Variant(F, frozenset({"place apart"})), "aa"),
    "rows are numbered before there is a place": (
        Variant(F, cells={(F, Step.PLACE, NO): Step.NUMBER}),
        "aa",
    ),
    "rows are forgotten before they are sent": (Variant(N, frozenset({"forgets first"})), "aa"),
    "rows are deleted in a transaction of their own": (Variant(H, frozenset({"deletes first"})), "aa"),
    "rows are sent in the order in which they were deleted": (Variant(H, frozenset({"in any order"})), "aa"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BUGS)
def test_the_outbox_model_finds_each_bug_planted_in_a_relay(name: str):
    variant, keys = BUGS[name]
    with pytest.raises(Violated):
        look_at_all(Model(variant, keys, rollbacks=0))
