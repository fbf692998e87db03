"""Slots are handed on in order, and none is lost, whoever comes, gives back, leaves or is dismissed."""

from fencepost.client.producer.slots import Slots
from hypothesis import given
from hypothesis import strategies as st

STEPS = st.lists(st.tuples(st.sampled_from(["come", "give back", "leave", "dismiss"]), st.integers(0, 9)), max_size=60)


@given(size=st.integers(1, 4), steps=STEPS)
def test_no_caller_waits_while_a_pool_slot_is_free_and_no_two_have_the_same_slot(size, steps):
    """The lowest free slot is given; of those that wait, the longest waiter is next."""
    slots = Slots(size)
    held, queue = {}, []  # slot → who; who waits, in order
    for number, (what, which) in enumerate(steps):
        if what == "come":
            slot = slots.take()
            if slot is None:
                assert len(held) == size
                slots.wait(number)
                queue.append(number)
            else:
                assert slot == min(set(range(size)) - held.keys()), "the lowest that is free"
                held[slot] = number
        elif what == "give back" and held:
            slot = sorted(held)[which % len(held)]
            del held[slot]
            following = slots.give_back(slot)
            assert following == (queue[0] if queue else None), "whoever waits longest"
            if queue:
                held[slot] = queue.pop(0)
        elif what == "leave":
            who = queue.pop(which % len(queue)) if queue else -1
            slots.leave(who)
            slots.leave(who)
        elif what == "dismiss":
            assert slots.dismiss() == queue
            queue = []
        assert slots.taken == len(held)
        assert slots.waiting == len(queue)
        assert not queue or len(held) == size


def test_give_back_returns_the_longest_waiter_for_the_pool_slot_or_none():
    slots = Slots(1)
    assert slots.take() == 0
    slots.wait("a")
    slots.wait("b")
    assert slots.give_back(0) == "a"
    assert slots.give_back(0) == "b"
    assert slots.give_back(0) is None
    assert slots.take() == 0
