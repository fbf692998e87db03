"""Bad histories of share groups, and good ones beside them.

Each function writes one history with the steps of story.py; its name says what happens in it. `@bad` names the
anomaly that the checker must find in it; without `@bad` the history is good.
"""

from simulation.golden import bad
from simulation.share_consumer_rules import Committed, Returned, Said
from simulation.share_rules import (
    ACCEPT,
    GAP,
    INVALID_RECORD_STATE,
    REJECT,
    RELEASE,
    RENEW,
    Acknowledge,
    Acquire,
    Drained,
    Queue,
    Reset,
    SessionEnd,
)
from simulation.story import P, Q

G, LOCK_MS = "g", 1_000


def queue(s, *values, deliveries=5, window=100):
    s._op("keeper", Queue(G, P, LOCK_MS, deliveries, window), True)
    for offset, value in enumerate(values):
        s.send(value, at=offset, sequence=offset)


def take(s, *given, member="m", ok=True):
    """Note that a member is given records: each (offset, value), or (offset, value, delivery count)."""
    result = tuple((*each, 1)[:3] for each in given)
    return s._op(member, Acquire(G, P, member), ok, result)


def say(s, kind=ACCEPT, offset=0, member="m", txn=None, ok=True, error=INVALID_RECORD_STATE):
    return s._op(member, Acknowledge(G, P, member, ((offset, offset, kind),), txn), ok, None, error)


def ends(s, member="m", since=None):
    return s._op(member, SessionEnd(G, member, since or s.history.moment()), True)


def reset(s, offset, ok=True):
    return s._op("resetter", Reset(G, P, offset), ok)


def drained(s, *given):
    op = s.history.invoke("final", Drained(G, P))
    take(s, *given, member="drainer"), op.ok()


def gives(s, *given):
    """Note that a consumer of the SDK returned these records to its application."""
    s._op("m", Returned(G, "m"), True, tuple((P, *each, 1)[:4] for each in given))


def told(s, kind=ACCEPT, offset=0, txn=None, ok=True):
    """Note that the application tells its consumer how to acknowledge a record."""
    s._op("m", Said(G, P, "m", offset, kind, txn), ok)


def commits(s, ok=True):
    s._op("m", Committed(G, "m"), ok)


def acknowledging_a_pending_record_again_is_refused(s):
    """A good history: a record's acknowledgement is pending in a transaction, and another one is refused, outside and
    inside of that transaction. After the commit one more succeeds, and the checker accepts that.
    """
    queue(s, "x"), take(s, (0, "x")), s.begin("t"), s.send("y", place=Q, txn="t"), say(s, txn="t")
    say(s, ok=False), say(s, txn="t", ok=False), s.commit("t"), say(s), drained(s)


def in_transaction(s, commit):
    """Note that a record is acknowledged in a transaction that also writes and is committed or aborted."""
    queue(s, "x"), take(s, (0, "x")), s.begin("t"), s.send("y", place=Q, txn="t"), say(s, txn="t")
    s.commit("t") if commit else s.abort("t")


def locks_end_in_each_way(s):
    """A good history: locks end by a release, the end of a session, a restart, and time; in the end the record is
    accepted.
    """
    queue(s, "x", deliveries=9), take(s, (0, "x")), say(s, RELEASE), take(s, (0, "x", 2), member="n"), ends(s, "n")
    take(s, (0, "x", 3)), s.restart()
    s.now += 5_000
    take(s, (0, "x", 3), member="n")
    s.now += LOCK_MS
    take(s, (0, "x", 4)), say(s), say(s, ok=False), drained(s)


def a_session_may_have_ended(s):
    """A good history: the connection was lost at a time that nobody knows."""
    queue(s, "x")
    since = s.history.moment()
    take(s, (0, "x")), take(s, (0, "x", 2), member="n"), ends(s, since=since), ends(s, "n")
    drained(s, (0, "x", 3))


def archived_by_the_limit(s):
    """A good history: a record is archived at its delivery limit, also if the answer with one of the deliveries was
    lost.
    """
    queue(s, "x", deliveries=2), take(s, (0, "x")), take(s, ok=None, member="n"), drained(s)


def a_transaction_that_aborts_gives_back(s):
    """A good history: the record is delivered again."""
    in_transaction(s, commit=False), take(s, (0, "x", 2)), say(s), drained(s)


def a_transaction_that_commits_is_final(s):
    """A good history: the record is not delivered again."""
    in_transaction(s, commit=True), drained(s)


def a_reset_makes_all_available_again(s):
    """A good history: accepted and locked records are delivered again, and their delivery counts begin again."""
    queue(s, *"xy"), take(s, (0, "x"), (1, "y")), say(s), reset(s, 0), say(s, offset=1, ok=False)
    take(s, (0, "x"), (1, "y"), member="n"), say(s, member="n"), reset(s, 1, ok=None).info()
    take(s, (1, "y")), say(s, offset=1), drained(s)


def a_consumer_of_the_sdk_says_what_it_was_told(s):
    """A good history: it sends the last acknowledgement of each record. Where the commit fails, or the consumer refused
    the acknowledgement, none has to be sent.
    """
    queue(s, *"xyz"), take(s, (0, "x"), (1, "y"), (2, "z")), gives(s, (0, "x"), (1, "y"), (2, "z"))
    told(s), told(s, REJECT), say(s, REJECT), commits(s)
    told(s, offset=1), commits(s, ok=False), told(s, offset=2, ok=False), say(s, RELEASE, offset=2), commits(s)
    s.now += LOCK_MS
    take(s, (1, "y", 2), (2, "z", 2)), gives(s, (1, "y", 2), (2, "z", 2)), s.begin("t"), told(s, offset=1, txn="t")
    say(s, offset=1, txn="t"), s.commit("t"), ends(s), drained(s, (2, "z", 3))


def what_is_reset_is_worked_on_again(s):
    """A good history: the record has two outputs."""
    queue(s, "x"), take(s, (0, "x")), s.send("y", place=Q, sources=((P, 0),)), say(s), reset(s, 0)
    take(s, (0, "x")), s.send("z", place=Q, at=1, sequence=1, sources=((P, 0),)), say(s)
    s.final((0, "y"), (1, "z"), place=Q), drained(s)


GOOD = [
    acknowledging_a_pending_record_again_is_refused,
    what_is_reset_is_worked_on_again,
    a_reset_makes_all_available_again,
    a_consumer_of_the_sdk_says_what_it_was_told,
    locks_end_in_each_way,
    a_session_may_have_ended,
    archived_by_the_limit,
    a_transaction_that_aborts_gives_back,
    a_transaction_that_commits_is_final,
]


@bad("doubled")
def an_accepted_record_is_delivered_again(s):
    queue(s, "x"), take(s, (0, "x")), say(s)
    s.now += LOCK_MS
    take(s, (0, "x", 2))


@bad("poached")
def a_pending_record_is_acknowledged_outside_of_its_transaction(s):
    queue(s, "x"), take(s, (0, "x")), s.begin("t"), s.send("y", place=Q, txn="t"), say(s, txn="t"), say(s, RELEASE)
    s.abort("t")


@bad("poached")
def a_pending_record_is_acknowledged_again_in_its_transaction(s):
    queue(s, "x"), take(s, (0, "x")), s.begin("t"), s.send("y", place=Q, txn="t"), say(s, txn="t"), say(s, txn="t")
    s.abort("t")


@bad("doubled")
def a_record_that_a_transaction_acknowledged_is_delivered_again(s):
    in_transaction(s, commit=True), take(s, (0, "x", 2), member="n")


@bad("doubled")
def two_transactions_acknowledge_one_record(s):
    in_transaction(s, commit=True), s.begin("u"), say(s, txn="u"), s.commit("u")


@bad("lost")
def a_record_is_never_delivered(s):
    queue(s, "x"), drained(s)


@bad("lost")
def a_released_record_is_never_delivered_again(s):
    queue(s, "x"), take(s, (0, "x")), say(s, RELEASE), drained(s)


@bad("lost")
def a_record_whose_acknowledgement_was_refused_is_never_delivered_again(s):
    queue(s, "x"), take(s, (0, "x")), s.restart(), say(s, ok=False), drained(s)


@bad("pending for ever")
def what_an_aborted_transaction_acknowledged_is_never_delivered_again(s):
    in_transaction(s, commit=False), drained(s)


@bad("pending for ever")
def nobody_ends_a_transaction_and_its_records_stay_pending(s):
    queue(s, "x"), take(s, (0, "x")), s.begin("t"), s.send("y", place=Q, txn="t"), say(s, txn="t", ok=None), drained(s)


@bad("early")
def a_lock_ends_before_its_time(s):
    queue(s, "x"), take(s, (0, "x"))
    s.now += LOCK_MS - 1
    take(s, (0, "x", 2))


@bad("early")
def a_lock_that_was_renewed_ends_before_its_time(s):
    queue(s, "x"), take(s, (0, "x"))
    s.now += LOCK_MS - 1
    say(s, RENEW)
    s.now += LOCK_MS - 1
    take(s, (0, "x", 2))


@bad("poached")
def two_members_have_a_record(s):
    queue(s, "x"), take(s, (0, "x")), take(s, (0, "x", 2), member="n")


@bad("poached")
def a_record_is_delivered_while_it_is_pending(s):
    queue(s, "x"), take(s, (0, "x")), s.begin("t"), s.send("y", place=Q, txn="t"), say(s, txn="t"), s.restart()
    take(s, (0, "x", 2), member="n"), s.abort("t")


@bad("poached")
def somebody_releases_what_another_has(s):
    queue(s, "x"), take(s, (0, "x")), say(s, RELEASE, member="n"), take(s, (0, "x", 2))


@bad("poached")
def the_owner_is_refused(s):
    queue(s, "x"), take(s, (0, "x")), say(s, ok=False)


@bad("aborted shown")
def a_record_of_an_aborted_transaction_is_delivered(s):
    queue(s), s.begin("t"), s.send("x", txn="t"), s.abort("t"), take(s, (0, "x"))


@bad("aborted shown")
def a_record_of_an_open_transaction_is_delivered(s):
    queue(s), s.begin("t"), s.send("x", txn="t"), take(s, (0, "x")), s.commit("t")


@bad("over the window")
def more_is_delivered_than_the_window_holds(s):
    queue(s, "x", *"abcd", window=2), take(s, (0, "x")), take(s, (4, "d"), member="n")
    s.now += LOCK_MS
    take(s, (0, "x", 2))


@bad("over the window")
def a_released_record_stays_behind_the_window(s):
    queue(s, "x", *"abcd", window=2), take(s, (0, "x")), say(s, RELEASE), take(s, (4, "d")), take(s, (0, "x", 2))


@bad("count fell")
def a_release_takes_a_delivery_back(s):
    queue(s, "x"), take(s, (0, "x")), say(s, RELEASE), take(s, (0, "x"))


@bad("count fell")
def a_restart_forgets_deliveries_that_were_logged(s):
    queue(s, "x"), take(s, (0, "x", 2)), s.restart()
    s.now += 5_000
    take(s, (0, "x", 1))


@bad("returned wrongly")
def a_record_is_returned_twice(s):
    queue(s, "x"), take(s, (0, "x")), gives(s, (0, "x")), gives(s, (0, "x"))


@bad("returned wrongly")
def a_record_is_returned_that_another_has(s):
    queue(s, "x"), take(s, (0, "x"), member="n"), gives(s, (0, "x"))


@bad("returned wrongly")
def a_record_is_returned_after_its_lock(s):
    queue(s, "x"), take(s, (0, "x"))
    s.now += LOCK_MS + 1
    gives(s, (0, "x"))


@bad("said by nobody")
def a_record_is_accepted_of_which_nothing_was_said(s):
    queue(s, "x"), take(s, (0, "x")), gives(s, (0, "x")), say(s)


@bad("said by nobody")
def a_record_is_taken_for_a_gap(s):
    queue(s, "x"), take(s, (0, "x")), gives(s), say(s, GAP)


@bad("said by nobody")
def the_first_word_is_sent_and_not_the_last(s):
    queue(s, "x"), take(s, (0, "x")), gives(s, (0, "x")), told(s), told(s, RENEW), say(s)


@bad("said by nobody")
def what_was_said_of_an_earlier_delivery_is_said_of_a_later_one(s):
    queue(s, "x"), take(s, (0, "x")), gives(s, (0, "x")), told(s)
    s.now += LOCK_MS
    take(s, (0, "x", 2)), gives(s, (0, "x", 2)), say(s)


@bad("doubled")
def what_is_done_below_a_reset_comes_again(s):
    queue(s, *"xy"), take(s, (0, "x"), (1, "y")), say(s), say(s, offset=1), reset(s, 1), take(s, (0, "x", 2))


@bad("duplicate")
def what_is_below_a_reset_is_worked_on_again(s):
    s.send("x"), s.send("x2", at=1, sequence=1), s.send("y", place=Q, sources=((P, 0),)), reset(s, 1)
    s.send("z", place=Q, at=1, sequence=1, sources=((P, 0),)), s.final((0, "y"), (1, "z"), place=Q)


@bad("doubled")
def what_is_done_comes_again_after_a_reset_that_was_refused(s):
    queue(s, "x"), take(s, (0, "x")), say(s), reset(s, 0, ok=False), take(s, (0, "x", 2))


@bad("poached")
def what_is_given_since_a_reset_is_given_to_another(s):
    queue(s, "x"), take(s, (0, "x")), reset(s, 0), take(s, (0, "x"), member="n"), take(s, (0, "x", 2), member="o")


@bad("said by nobody")
def what_a_transaction_acknowledges_is_acknowledged_without_it(s):
    queue(s, "x"), take(s, (0, "x")), gives(s, (0, "x")), s.begin("t"), told(s, txn="t"), say(s)


@bad("lost acknowledgement")
def a_commit_returns_before_anything_is_sent(s):
    queue(s, "x"), take(s, (0, "x")), gives(s, (0, "x")), told(s), commits(s)


@bad("lost acknowledgement")
def a_commit_hides_that_an_acknowledgement_was_refused(s):
    queue(s, "x"), take(s, (0, "x")), gives(s, (0, "x")), told(s), s.restart(), say(s, ok=False), commits(s)


@bad("torn transaction")
def a_transaction_is_committed_without_an_acknowledgement(s):
    queue(s, "x"), take(s, (0, "x")), gives(s, (0, "x")), s.begin("t"), s.send("y", place=Q, txn="t")
    told(s, txn="t"), s.commit("t")


@bad("torn transaction")
def a_transaction_is_committed_although_nobody_knows_whether_it_acknowledged(s):
    queue(s, "x"), take(s, (0, "x")), gives(s, (0, "x")), s.begin("t"), s.send("y", place=Q, txn="t")
    told(s, txn="t"), say(s, txn="t", ok=None).info(), s.commit("t")
