import gc
import weakref

import pytest
from fencepost.broker.net.waiting import Parked, Waiter, Waiting


class Looks:
    """A waiter whose check returns `done`. `seen` has, for each check, whether it was made at the deadline."""

    def __init__(self, logs, deadline_ms=1000, *, done=True):
        self.seen = []
        self.done = done
        self.waiter = Waiter(logs, deadline_ms, self.look)

    def look(self, at_deadline):
        self.seen.append(at_deadline)
        return self.done


def parked(waiting, *args, **kwargs):
    looks = Looks(*args, **kwargs)
    waiting.park(looks.waiter)
    return looks


def test_a_waiting_request_is_checked_once_even_if_several_of_its_logs_moved():
    waiting = Waiting()
    looks = parked(waiting, ["a", "b"])
    waiting.wake(["a", "b", "c"])
    assert looks.seen == [False]
    assert len(waiting) == 0


def test_a_waiting_request_whose_condition_is_not_met_continues_to_wait():
    waiting = Waiting()
    looks = parked(waiting, ["a"], done=False)
    waiting.wake(["a"])
    waiting.wake(["a"])
    assert looks.seen == [False, False]
    assert len(waiting) == 1


def test_waking_a_log_without_waiters_checks_no_waiter():
    waiting = Waiting()
    looks = parked(waiting, ["a"])
    waiting.wake(["b"])
    assert looks.seen == []


def test_waiters_are_woken_in_the_order_in_which_they_parked():
    waiting, order = Waiting(), []
    for name in "xyz":
        waiting.park(Waiter(["a"], 10, lambda _, name=name: order.append(name) or True))
    waiting.wake(["a"])
    assert order == ["x", "y", "z"]


def test_the_deadline_ends_a_wait_even_if_its_condition_is_not_met():
    waiting = Waiting()
    looks = parked(waiting, ["a"], deadline_ms=50, done=False)
    waiting.expire(49)
    assert looks.seen == []
    waiting.expire(50)
    assert looks.seen == [True]
    waiting.wake(["a"])
    assert looks.seen == [True]


def test_the_next_deadline_ignores_answered_waiters():
    waiting = Waiting()
    parked(waiting, ["a"], deadline_ms=10)
    parked(waiting, ["b"], deadline_ms=20)
    assert waiting.next_deadline_ms() == 10
    waiting.wake(["a"])
    assert waiting.next_deadline_ms() == 20
    waiting.wake(["b"])
    assert waiting.next_deadline_ms() is None


def test_removing_a_waiting_request_twice_or_during_a_wake_has_no_further_effect():
    waiting = Waiting()
    second = Looks(["a"])

    def look(_):
        waiting.leave(second.waiter)
        return True

    waiting.park(Waiter(["a"], 10, look))
    waiting.park(second.waiter)
    waiting.wake(["a"])
    waiting.leave(second.waiter)
    assert second.seen == []
    assert len(waiting) == 0


def test_answered_waiters_are_freed_before_their_deadlines():
    waiting = Waiting()
    for _ in range(10_000):
        parked(waiting, ["a"], deadline_ms=2**31)
        waiting.wake(["a"])
    assert len(waiting._deadlines) <= 1100, "1024 that have ended may stay"
    assert waiting._by_log == {}


def test_an_answer_given_before_a_callback_was_set_is_delivered_to_it():
    answers, parked = [], Parked()
    parked.answer("yes")
    parked.then(answers.append)
    assert answers == ["yes"]


def test_only_the_first_answer_of_a_parked_reply_counts():
    answers, parked = [], Parked()
    parked.then(answers.append)
    parked.answer("first")
    parked.answer("second")
    assert answers == ["first"]


def test_the_answer_of_a_cancelled_parked_reply_is_dropped():
    answers, cancelled, parked = [], [], Parked()
    parked.then(answers.append)
    parked.on_cancel = lambda: cancelled.append(True)
    parked.cancel()
    parked.cancel()
    parked.answer("late")
    assert answers == []
    assert cancelled == [True]


@pytest.mark.parametrize("end", [lambda parked: parked.answer("here"), lambda parked: parked.cancel()])
def test_an_answered_parked_reply_is_freed_without_the_garbage_collector(end):
    """A reply and its callbacks refer to each other; answering or cancelling it breaks that cycle."""
    parked = Parked()
    parked.then(lambda _: parked.cancelled)
    parked.on_cancel = lambda: parked.answer(None)
    gone = weakref.ref(parked.on_cancel)
    gc.disable()
    try:
        end(parked)
        assert gone() is None
    finally:
        gc.enable()
