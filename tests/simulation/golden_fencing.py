"""Bad histories of producer ids, epochs and generations: given twice, still in use when old, fenced while alive.

Each function writes one history with the steps of story.py; its name says what happens in it. `@bad` names the
anomaly that the checker must find in it; without `@bad` the history is good.
"""

from simulation.golden import NEXT, TWO, bad
from simulation.story import ONE, P, data


@bad("zombie accepted")
def an_old_epoch_writes(s):
    s.init(), s.begin("t"), s.init(NEXT), s.send("x", txn="t")


@bad("zombie accepted")
def an_old_epoch_commits(s):
    s.init(), s.begin("t"), s.send("x", txn="t"), s.init(NEXT), s.commit("t")


@bad("zombie accepted")
def an_old_epoch_sends_offsets(s):
    s.init(), s.begin("t"), s.init(NEXT), s.offsets("t", 5)


@bad("zombie accepted")
def the_epoch_of_the_transaction_before_writes(s):
    s.init(), s.begin("t"), s.send("x", txn="t"), s.commit("t", next_producer=NEXT)
    s.begin("u"), s.send("y", txn="u", at=2, sequence=1)


@bad("zombie accepted")
def an_old_incarnation_takes_its_id_back(s):
    s.init(), s.init(NEXT, client="other"), s.init((1, 2), current=ONE)


@bad("zombie accepted")
def an_old_producer_id_writes(s):
    s.init((1, 32766)), s.begin("t", (1, 32766)), s.init(TWO), s.send("x", txn="t", producer=(1, 32766))


@bad("zombie accepted")
def an_old_epoch_stands_behind_a_newer_in_the_log(s):
    s.send("x", producer=NEXT), s.send("y", at=1)
    s.dump(data(0, "x", producer=NEXT, plain=True), data(1, "y", plain=True))


@bad("producer id reuse")
def an_id_is_given_to_two_producers(s):
    s.init(tid=None), s.init(tid=None)


@bad("producer id reuse")
def an_id_is_given_to_two_transactional_ids(s):
    s.init(), s.restart(), s.init((1, 5), tid="b")


@bad("epoch reuse")
def an_epoch_is_given_twice(s):
    s.init(), s.restart(), s.init()


@bad("epoch reuse")
def an_epoch_goes_back(s):
    s.init((1, 4)), s.restart(), s.init((1, 3))


@bad("early expiry")
def a_live_producer_is_fenced(s):
    s.init(), s.begin("t"), s.passes(900), s.send("x", txn="t", ok=False, error=47)


@bad("early expiry")
def a_live_transaction_is_ended_by_a_clock(s):
    s.init(), s.begin("t"), s.send("x", txn="t"), s.commit("t", ok=False, error=90)


@bad("decided twice")
def committed_and_then_aborted(s):
    s.begin("t"), s.send("x", txn="t"), s.commit("t"), s.abort("t")


@bad("decided twice")
def aborted_and_then_committed(s):
    s.begin("t"), s.send("x", txn="t"), s.abort("t"), s.commit("t")


@bad("stale generation")
def a_member_that_is_none_any_more_commits(s):
    s.join(1, "m", P), s.join(2, "n", P), s.plain(4, generation=1)


@bad("stale generation")
def a_transaction_of_an_old_generation_commits_offsets(s):
    s.join(1, "m", P), s.join(2, "n", P), s.begin("t"), s.offsets("t", 4, generation=1)
