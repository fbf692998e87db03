"""Bad histories of share groups, and good ones beside them."""

from simulation.golden import bad
from simulation.share_rules import (
    ACCEPT,
    INVALID_RECORD_STATE,
    RELEASE,
    RENEW,
    Acknowledge,
    Acquire,
    Drained,
    Queue,
    SessionEnd,
)
from simulation.story import P, Q

G, LOCK_MS = "g", 1_000


def queue(s, *values, deliveries=5, window=100):
    s._op("keeper", Queue(G, P, LOCK_MS, deliveries, window), True)
    for offset, value in enumerate(values):
        s.send(value, at=offset, sequence=offset)


def take(s, *given, member="m", ok=True):
    """given: (offset, value), or with how often."""
    result = tuple((*each, 1)[:3] for each in given)
    return s._op(member, Acquire(G, P, member), ok, result)


def say(s, kind=ACCEPT, offset=0, member="m", txn=None, ok=True, error=INVALID_RECORD_STATE):
    return s._op(member, Acknowledge(G, P, member, ((offset, offset, kind),), txn), ok, None, error)


def ends(s, member="m", since=None):
    return s._op(member, SessionEnd(G, member, since or s.history.moment()), True)


def drained(s, *given):
    op = s.history.invoke("final", Drained(G, P))
    take(s, *given, member="drainer"), op.ok()


def in_transaction(s, commit):
    """A record is acknowledged in a transaction that writes, and is decided."""
    queue(s, "x"), take(s, (0, "x")), s.begin("t"), s.send("y", place=Q, txn="t"), say(s, txn="t")
    s.commit("t") if commit else s.abort("t")


def locks_end_in_each_way(s):
    """A good one: released, by the end of a session, by a restart, by time; in the end accepted."""
    queue(s, "x", deliveries=9), take(s, (0, "x")), say(s, RELEASE), take(s, (0, "x", 2), member="n"), ends(s, "n")
    take(s, (0, "x", 3)), s.restart()
    s.now += 5_000
    take(s, (0, "x", 3), member="n")
    s.now += LOCK_MS
    take(s, (0, "x", 4)), say(s), say(s, ok=False), drained(s)


def a_session_may_have_ended(s):
    """A good one: the connection was lost at a time that nobody knows."""
    queue(s, "x")
    since = s.history.moment()
    take(s, (0, "x")), take(s, (0, "x", 2), member="n"), ends(s, since=since), ends(s, "n")
    drained(s, (0, "x", 3))


def archived_by_the_limit(s):
    """A good one, also where nobody answered one of the deliveries."""
    queue(s, "x", deliveries=2), take(s, (0, "x")), take(s, ok=None, member="n"), drained(s)


def a_transaction_that_aborts_gives_back(s):
    """A good one."""
    in_transaction(s, commit=False), take(s, (0, "x", 2)), say(s), drained(s)


def a_transaction_that_commits_is_final(s):
    """A good one."""
    in_transaction(s, commit=True), drained(s)


GOOD = [
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
