"""Histories at limits: of producers and ids that are forgotten, and of clients that are refused or hold on for ever.

Each function writes one history with the steps of story.py; its name says what happens in it. `@bad` names the
anomaly that the checker must find in it; without `@bad` the history is good.
"""

from fencepost.protocol.errors import ErrorCode
from simulation.golden import NEXT, bad
from simulation.story import P, Q, data, marker

LATER = (5, 0)  # of an id that was given anew
INVALID_TIMESTAMP = ErrorCode.INVALID_TIMESTAMP


def written_again_when_forgotten(s):
    """A good history: a retry is written again, because its producer was forgotten in between."""
    s.send("x"), s.forgotten(), s.send("x", at=1, again=True)
    s.dump(data(0, "x", plain=True), data(1, "x", plain=True))


def a_gap_of_a_forgotten_producer(s):
    """A good history: after it was forgotten, any sequence of it is accepted; then a retry of what it sent before is
    out of order.
    """
    s.send("x"), s.send("y", sequence=1, ok=False), s.forgotten(), s.send("z", at=1, sequence=2)
    s.send("x", again=True, ok=False, error=45)
    s.dump(data(0, "x", plain=True), data(1, "z", sequence=2, plain=True))


def the_batch_after_one_that_was_refused_for_good(s):
    """A good history: no client sends a batch again whose timestamp is not allowed. So the broker does not wait for it,
    and the next one is the first that it knows of this producer.
    """
    s.send("x", ok=False, error=INVALID_TIMESTAMP), s.send("y", sequence=1)
    s.dump(data(0, "y", sequence=1, plain=True))


def an_id_is_forgotten_between_two_transactions(s):
    """A good history: the next transaction of the old producer is refused; its client begins again under another
    producer id.
    """
    s.init(), s.begin("t"), s.send("x", txn="t"), s.commit("t"), s.forgotten_id()
    s.begin("u"), s.send("y", txn="u", sequence=1, ok=False, error=49), s.init(LATER), s.begin("v", LATER)


def refused_until_others_are_done(s):
    """A good history: clients are refused until those that hold the places have timed out, and no longer."""
    needs = s.needs("to write"), s.needs("to join")
    s.passes(9_000), s.healed(), s.passes(900)
    needs[0].ok(3), needs[1].ok(20), s.held()


def an_operator_is_late_and_the_producer_forgotten(s):
    """A good history: an operator's late marker, with an older epoch than the producer's last, ends no transaction."""
    s.begin("t"), s.send("x", txn="t"), s.abort("t", next_producer=NEXT), s.forgotten()
    s.dump(data(0, "x"), marker(1, "abort", NEXT), marker(2, "abort"))


def begun_again_in_the_middle_after_a_restart(s):
    """A good history: a restart forgets that a batch was refused, and no other batch of the producer was known."""
    s.begin("t"), s.send("x", txn="t", ok=False, error=44), s.abort("t"), s.restart()
    s.begin("u"), s.send("y", txn="u", sequence=1), s.commit("u"), s.dump(data(0, "y", sequence=1), marker(1))


def two_at_once_begin_in_the_middle_after_a_restart(s):
    """A good history: the second is sent before the first is answered, so it does not show that the producer was
    known.
    """
    s.begin("t"), s.send("x", txn="t", ok=False, error=44), s.abort("t"), s.restart(), s.begin("u")
    first, second = s.send("y", txn="u", sequence=1, ok=None), s.send("z", txn="u", sequence=2, ok=None)
    first.ok(0), second.ok(1), s.commit("u"), s.dump(data(0, "y", sequence=1), data(1, "z", sequence=2), marker(2))


def a_group_is_forgotten(s):
    """A good history: generations of the group begin again."""
    s.join(1, "m", P), s.join(2, "n", P), s.group_forgotten(), s.join(1, "o", P), s.plain(4, generation=1)


GOOD = [
    a_group_is_forgotten,
    an_operator_is_late_and_the_producer_forgotten,
    begun_again_in_the_middle_after_a_restart,
    two_at_once_begin_in_the_middle_after_a_restart,
    written_again_when_forgotten,
    a_gap_of_a_forgotten_producer,
    the_batch_after_one_that_was_refused_for_good,
    an_id_is_forgotten_between_two_transactions,
    refused_until_others_are_done,
]


@bad("refused for good")
def a_client_is_never_served(s):
    s.needs("to write"), s.healed()


@bad("refused for good")
def a_client_is_served_long_after_all_is_well(s):
    need = s.needs("to write")
    s.healed(), s.passes(20_000), need.ok(99)


@bad("refused for good")
def a_client_that_came_when_all_was_well_waits_too_long(s):
    s.healed(), s.passes(500)
    need = s.needs("to write")
    s.passes(20_000), need.ok(99)


@bad("held for good")
def a_transaction_of_nobody_is_open(s):
    s.healed(), s.held("gone1")


@bad("held for good")
def a_group_of_nobody_has_a_member(s):
    s.healed(), s.held("gone1-0", "gone2-0")


@bad("forgotten wrongly")
def a_producer_in_a_transaction_is_forgotten(s):
    s.begin("t"), s.send("x", txn="t"), s.forgotten(wrong="its transaction is open")


@bad("forgotten wrongly")
def an_id_is_forgotten_that_others_do_not_need(s):
    s.init(), s.forgotten_id(wrong="nobody needs its place")


@bad("forgotten batch")
def a_producer_is_not_known_though_another_was_forgotten(s):
    s.send("x"), s.forgotten(producer_id=7), s.forgotten(place=Q), s.send("x", again=True, ok=False, error=59)


@bad("forgotten batch")
def it_was_forgotten_before_it_wrote(s):
    s.forgotten(), s.send("x"), s.send("x", again=True, ok=False, error=45)


@bad("sequence gap")
def a_gap_of_a_producer_that_is_forgotten_later(s):
    s.send("x"), s.send("z", at=1, sequence=2), s.forgotten()


@bad("sequence gap")
def a_gap_after_a_batch_refused_for_good_of_a_producer_that_was_known(s):
    s.send("w"), s.send("x", sequence=1, ok=False, error=INVALID_TIMESTAMP), s.send("y", at=1, sequence=2)


@bad("sequence gap")
def a_gap_over_a_restart_of_a_producer_that_was_known(s):
    s.send("w"), s.send("x", sequence=1, ok=False, error=44), s.restart(), s.send("y", at=1, sequence=2)


@bad("zombie accepted")
def a_marker_of_an_epoch_that_has_passed(s):
    s.begin("t"), s.send("x", txn="t"), s.abort("t", next_producer=NEXT)
    s.dump(data(0, "x"), marker(1, "abort", NEXT), marker(2, "abort"))


@bad("duplicate")
def a_batch_is_written_twice_though_another_place_forgot_its_producer(s):
    s.send("x"), s.forgotten(place=Q), s.dump(data(0, "x", plain=True), data(1, "x", plain=True))


@bad("duplicate")
def a_batch_of_a_transaction_is_written_twice(s):
    """A producer is not forgotten while its transaction is open, so that is no excuse."""
    s.begin("t"), s.send("x", txn="t"), s.forgotten(), s.commit("t")
    s.read((0, "x"), (1, "x"))


@bad("early expiry")
def an_id_is_unknown_in_its_transaction(s):
    s.init(), s.begin("t"), s.send("x", txn="t"), s.forgotten_id(), s.commit("t", ok=False, error=49)


@bad("early expiry")
def an_id_is_unknown_that_was_forgotten_before_it_was_given(s):
    s.forgotten_id(), s.init(), s.begin("t"), s.send("x", txn="t", ok=False, error=49)


@bad("zombie accepted")
def an_old_producer_takes_an_id_back_that_is_not_forgotten(s):
    s.init(), s.init(NEXT, client="other"), s.forgotten_id(tid="b"), s.init((1, 2), current=(1, 0), tid="a")


@bad("zombie accepted")
def an_old_producer_writes_since_another_has_the_id_that_was_forgotten(s):
    s.init(), s.begin("t"), s.forgotten_id(), s.init(LATER, client="other"), s.send("x", txn="t", place=P)


@bad("two owners")
def a_partition_has_two_owners_since_the_group_was_forgotten(s):
    s.group_forgotten(), s.join(1, "m", P), s.join(1, "n", P)
