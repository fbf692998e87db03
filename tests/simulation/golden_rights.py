"""Bad histories of users whose rights change, and good ones beside them.

Each function writes one history with the steps of story.py; its name says what happens in it. `@bad` names the
anomaly that the checker must find in it; without `@bad` the history is good.
"""

from simulation.golden import bad
from simulation.rights_rules import Attempt, Change, Found, Right, Settled, Told, may

MAY = Right("alice", "WRITE", "TOPIC", "t")


def change(s, is_given, ok=True):
    return s._op("warden", Change(MAY, is_given), ok)


def attempt(s, allowed, value="", ok=True):
    return s._op("alice", Attempt("produce", (MAY,), value), ok, allowed)


def found(s, *values):
    return s._op("warden", Found(), True, values)


def rights_come_and_go(s):
    """A good history: a request that is under way while a right changes may be allowed or refused."""
    attempt(s, False, "a"), change(s, True), attempt(s, True, "b")
    late = s.history.invoke("alice", Attempt("produce", (MAY,), "c"))
    change(s, False), late.ok(True)
    attempt(s, None, "d", ok=None), change(s, True), attempt(s, True, "e"), found(s, "b", "c", "d", "e")


def a_change_that_is_not_acknowledged(s):
    """A good history: as long as the change is not acknowledged, attempts may be allowed or refused."""
    change(s, True, ok=None), attempt(s, True, "a"), attempt(s, False, "b"), found(s, "a")


@bad("done without the right")
def a_user_writes_after_its_right_is_gone(s):
    change(s, True), change(s, False), attempt(s, True, "a")


@bad("done without the right")
def a_user_writes_that_never_had_the_right(s):
    attempt(s, True, "a")


@bad("done without the right")
def a_write_that_nobody_answered_is_there_without_the_right(s):
    change(s, True), change(s, False), attempt(s, None, "a", ok=None), found(s, "a")


@bad("refused and written")
def a_write_that_was_refused_is_there(s):
    attempt(s, False, "a"), change(s, True), found(s, "a")


@bad("refused and written")
def a_write_that_was_refused_is_there_beside_one_that_was_not(s):
    change(s, True), attempt(s, True, "a"), change(s, False), attempt(s, False, "b"), found(s, "a", "b")


@bad("refused with the right")
def a_user_is_refused_that_has_the_right(s):
    change(s, True), attempt(s, False, "a")


@bad("refused with the right")
def a_right_that_is_given_again_does_not_hold(s):
    change(s, True), change(s, False), change(s, True), attempt(s, False)


def give(s, *rights):
    for right in rights:
        s._op("warden", Change(right, True), True)


def told(s, *topics, user="alice"):
    return s._op(f"{user}'s member", Told(user), True, topics)


def settled(s, **topics):
    return s._op("the guarded group", Settled(), True, tuple(topics.items()))


def members_are_given_what_they_may_read(s):
    """A good history: t is given to a member that may read it; u, which none may read, to one that may know of it; v,
    of which no member may know, to none.
    """
    give(s, may("bob", "READ", "t"), may("alice", "WRITE", "t"), may("bob", "WRITE", "u"), may("carol", "READ", "v"))
    told(s, "t", user="bob"), told(s, "t"), told(s, user="carol")
    settled(s, alice=(), bob=("t", "u"))


@bad("told without the right")
def a_member_hears_of_a_topic_that_it_may_not_know_of(s):
    give(s, may("bob", "READ", "t")), told(s, "t")


@bad("told without the right")
def a_member_hears_of_a_topic_after_its_right_is_gone(s):
    change(s, True), told(s, "t"), change(s, False), told(s, "t")


@bad("read by the wrong member")
def a_topic_that_one_may_read_is_given_to_one_who_may_not(s):
    give(s, may("bob", "READ", "t"), MAY), settled(s, alice=("t",), bob=())


@bad("read by the wrong member")
def a_topic_that_one_may_read_is_read_by_nobody(s):
    give(s, may("bob", "READ", "t")), settled(s, alice=(), bob=())


@bad("read by the wrong member")
def a_topic_has_two_readers(s):
    give(s, may("bob", "READ", "t"), may("alice", "READ", "t")), settled(s, alice=("t",), bob=("t",))
