"""Histories of members whose broker assigns (KIP-848), bad and good: partitions, epochs, and whose offsets count.

Each function writes one history with the steps of story.py; its name says what happens in it. `@bad` names the
anomaly that the checker must find in it; without `@bad` the history is good.
"""

from simulation.golden import bad
from simulation.story import P, Q

UNKNOWN, FENCED = 25, 110


def _two_members(s):
    """m has P since epoch 1, n has Q since epoch 2; both are at epoch 2."""
    s.beats("m", 0, gets=(1, (P, Q)))
    s.beats("m", 1, P, Q, gets=(1, None))
    s.beats("n", 0, gets=(2, ()))
    s.beats("m", 1, P, Q, gets=(1, (P,)))
    s.beats("m", 1, P, gets=(2, (P,)))
    s.beats("n", 2, gets=(2, (Q,)))
    s.beats("n", 2, Q, gets=(2, None))


@bad("two owners")
def a_partition_is_two_members_in_one_epoch(s):
    s.beats("m", 0, gets=(1, (P,))), s.beats("m", 1, P, gets=(2, None)), s.beats("m", 2, gets=(2, (P,)))
    s.beats("n", 0, gets=(2, (P,)))


@bad("two owners")
def a_partition_is_given_before_it_is_given_up(s):
    s.beats("m", 0, gets=(1, (P,))), s.beats("m", 1, P, gets=(1, None))
    s.beats("n", 0, gets=(2, (P,))), s.beats("m", 1, P, gets=(1, ())), s.beats("m", 1, gets=(2, ()))


@bad("two owners")
def a_partition_is_given_while_another_member_takes_it(s):
    s.beats("m", 0, gets=(1, (P,))), s.beats("n", 0, gets=(2, (P,))), s.beats("m", 1, P, gets=(1, None))


@bad("two owners")
def what_the_newer_answer_to_a_join_gives_is_given_to_another(s):
    """The member sent its join twice, and the older answer arrived last."""
    s.beside(s.beats("m", 0, gets=(4, (P, Q))), s.beats("m", 0, gets=(2, (Q,))))
    s.beats("n", 0, gets=(5, (P,))), s.beats("m", 4, P, Q, gets=(4, None))


@bad("two owners")
def what_the_newer_answer_to_a_join_gives_is_given_to_another_after_the_older_one(s):
    s.beside(*reversed((s.beats("m", 0, gets=(2, (Q,))), s.beats("m", 0, gets=(4, (P, Q))))))
    s.beats("n", 0, gets=(5, (P,))), s.beats("m", 4, P, Q, gets=(4, None))


@bad("two owners")
def what_both_answers_to_a_join_give_is_given_to_another(s):
    s.beside(s.beats("m", 0, gets=(4, (P,))), s.beats("m", 0, gets=(2, (P, Q))))
    s.beats("n", 0, gets=(5, (P,))), s.beats("m", 4, P, gets=(4, None))


@bad("two owners")
def what_a_join_gives_twice_in_one_epoch_is_given_to_another(s):
    s.beside(s.beats("m", 0, gets=(4, (P,))), s.beats("m", 0, gets=(4, (P,))))
    s.beats("n", 0, gets=(5, (P,))), s.beats("m", 4, P, gets=(4, None))


@bad("two owners")
def two_members_have_a_partition_in_the_epoch_of_a_join_that_was_sent_twice(s):
    s.beside(s.beats("m", 0, gets=(4, (P,))), s.beats("m", 0, gets=(2, (P, Q)))), s.beats("n", 0, gets=(4, (P,)))


@bad("stale epoch")
def a_member_commits_what_another_one_has_since_a_later_epoch(s):
    _two_members(s), s.plain(4, 1, place=Q, member="m")


@bad("stale epoch")
def a_commit_is_accepted_with_an_epoch_of_before_it_was_given_away(s):
    _two_members(s), s.plain(4, 0, place=Q, member="m", newest=1)


@bad("stale epoch")
def a_transaction_commits_what_another_member_has(s):
    _two_members(s), s.begin("t"), s.offsets("t", 4, generation=1, place=Q, member="m")


@bad("stale epoch")
def a_partition_that_came_back_is_committed_as_of_before(s):
    s.beats("m", 0, gets=(1, (P,))), s.beats("m", 1, P, gets=(1, ())), s.beats("m", 1, gets=(2, ()))
    s.beats("m", 2, gets=(3, (P,))), s.plain(4, 1, member="m")


@bad("stale epoch")
def a_member_that_was_removed_commits(s):
    _two_members(s), s.passes(5_000), s.beats("m", 2, error=UNKNOWN), s.plain(4, 2, member="m")


@bad("stale epoch")
def a_transaction_of_a_member_that_was_removed_sends_offsets(s):
    _two_members(s), s.passes(5_000), s.beats("m", 2, error=UNKNOWN)
    s.begin("t"), s.offsets("t", 4, generation=2, member="m")


@bad("stale epoch")
def a_member_that_has_left_commits(s):
    _two_members(s), s.beats("m", -1, gets=(-1, None), reports=False), s.plain(4, 2, member="m")


@bad("epoch of nobody")
def a_member_commits_with_an_epoch_that_it_never_had(s):
    _two_members(s), s.plain(4, 3, member="m")


@bad("epoch of nobody")
def a_transaction_has_an_epoch_that_its_member_never_had(s):
    _two_members(s), s.begin("t"), s.offsets("t", 4, generation=7, member="m")


@bad("epoch goes back")
def a_members_epoch_is_an_older_one_after_a_restart(s):
    _two_members(s), s.restart(), s.beats("m", 2, P, gets=(1, (P,)))


@bad("epoch goes back")
def a_members_epoch_goes_back(s):
    s.beats("m", 0, gets=(4, (P,))), s.beats("m", 4, P, gets=(3, None))


@bad("epoch goes back")
def the_epoch_of_the_newer_of_two_answers_goes_back(s):
    s.beside(s.beats("m", 0, gets=(4, (P,))), s.beats("m", 0, gets=(2, (P,)))), s.beats("m", 4, P, gets=(3, None))


@bad("fenced for nothing")
def the_epoch_of_the_newer_of_two_answers_is_refused(s):
    s.beside(s.beats("m", 0, gets=(4, (P,))), s.beats("m", 0, gets=(2, (P,)))), s.beats("m", 4, P, error=FENCED)


@bad("fenced for nothing")
def a_members_epoch_is_lost_at_a_restart(s):
    _two_members(s), s.restart(), s.beats("m", 2, P, error=FENCED)


@bad("fenced for nothing")
def an_answer_shows_an_epoch_that_was_not_kept(s):
    s.beats("m", 0, gets=(1, (P,))), s.restart(), s.beats("m", 1, P, error=FENCED)


@bad("forgotten member")
def a_member_is_lost_at_a_restart(s):
    _two_members(s), s.restart(), s.passes(500), s.beats("m", 2, reports=False, error=UNKNOWN)


@bad("forgotten member")
def a_member_that_sent_a_heartbeat_twice_is_removed_within_its_session(s):
    _two_members(s), s.beside(s.beats("m", 2, P, gets=(2, (P,))), s.beats("m", 2, P, gets=(2, None)))
    s.passes(500), s.beats("m", 2, P, error=UNKNOWN)


@bad("forgotten member")
def a_member_that_sends_a_heartbeat_twice_is_lost_at_a_restart(s):
    _two_members(s), s.restart(), s.passes(500)
    s.beside(s.beats("m", 2, P, error=UNKNOWN), s.beats("m", 2, P, error=UNKNOWN))


@bad("forgotten member")
def a_member_that_leaves_later_was_removed_within_its_session(s):
    _two_members(s), s.passes(500), s.beats("m", 2, P, error=UNKNOWN), s.beats("m", -1, error=UNKNOWN, reports=False)


@bad("fenced for nothing")
def both_heartbeats_of_two_are_refused(s):
    _two_members(s), s.restart()
    s.beside(s.beats("m", 2, P, error=FENCED), s.beats("m", 2, P, error=FENCED))


@bad("forgotten member")
def a_member_is_removed_within_its_session(s):
    _two_members(s), s.passes(2_000), s.beats("n", 2, Q, error=UNKNOWN)


@bad("regression of committed offsets")
def a_late_commit_of_the_former_owner_sets_a_partition_back(s):
    _two_members(s)
    s.plain(3, 1, place=Q, member="m").late = True
    s.plain(9, 2, place=Q, member="n"), s.stands(3, place=Q)


@bad("regression of committed offsets")
def a_commit_of_the_former_owner_that_was_not_answered_sets_it_back(s):
    _two_members(s), s.plain(3, 1, place=Q, member="m", ok=None)
    s.plain(9, 2, place=Q, member="n"), s.stands(9, place=Q), s.stands(3, place=Q)


def _set_back_from_9_to_3(s):
    """The committed offset goes from 9 to 3, by a late commit of the same member."""
    s.plain(3, 1, member="m", ok=None), s.plain(9, 1, member="m"), s.stands(9), s.stands(3)


@bad("regression of committed offsets")
def a_commit_after_a_late_one_is_not_served(s):
    _set_back_from_9_to_3(s), s.plain(7, 2, member="n"), s.restart(), s.stands(3)


@bad("regression of committed offsets")
def a_commit_after_a_late_one_is_gone_after_a_crash(s):
    _set_back_from_9_to_3(s), s.plain(7, 2, member="n"), s.stands(7), s.restart(), s.stands(3)


@bad("regression of committed offsets")
def the_newest_of_two_commits_after_a_late_one_is_gone(s):
    _set_back_from_9_to_3(s), s.plain(7, 2, member="n"), s.plain(8, 2, member="n"), s.restart(), s.stands(7)


@bad("regression of committed offsets")
def offsets_of_a_transaction_after_a_late_commit_are_gone(s):
    (
        _set_back_from_9_to_3(s),
        s.begin("t"),
        s.offsets("t", 7, generation=2, member="n"),
        s.commit("t"),
        s.restart(),
        s.stands(3),
    )


@bad("regression of committed offsets")
def a_late_commit_is_gone_after_a_crash(s):
    s.plain(1, 1, member="m"), _set_back_from_9_to_3(s), s.restart(), s.stands(1)


@bad("regression of committed offsets")
def a_commit_of_before_a_late_one_comes_back(s):
    """7 was committed before the late commit and not after it, so no member can have gone on to it."""
    s.plain(7, 1, member="m"), _set_back_from_9_to_3(s), s.restart(), s.stands(7)


@bad("regression of committed offsets")
def a_group_stands_too_low_before_a_late_commit_arrives(s):
    s.plain(7, 1, member="m"), s.plain(3, 1, member="m", ok=None), s.plain(9, 1, member="m"), s.stands(7), s.stands(3)


@bad("regression of committed offsets")
def the_late_commit_was_sent_after_the_read(s):
    s.plain(3, 1, member="m"), s.plain(9, 1, member="m"), s.stands(3), s.plain(3, 1, member="m", ok=None)


@bad("regression of committed offsets")
def a_late_commit_excuses_nothing_of_another_member(s):
    """A late commit of m explains that commits of m are undone, not that the 9 of n is."""
    s.plain(9, 1, member="n"), s.plain(3, 2, member="m", ok=None), s.stands(3), s.plain(7, 3, member="o"), s.stands(7)


def members_share(s):
    _two_members(s), s.plain(4, 2, member="m"), s.plain(4, 2, place=Q, member="n")


def an_older_epoch_in_which_it_had_the_partition(s):
    """A good history: KIP-1251: m has P since epoch 1, so it may commit with epoch 1."""
    _two_members(s), s.plain(4, 1, member="m"), s.begin("t"), s.offsets("t", 5, generation=1, member="m")


def a_session_is_over_and_another_member_has_it(s):
    s.beats("m", 0, gets=(1, (P,))), s.beats("m", 1, P, gets=(1, None)), s.passes(5_000)
    s.beats("n", 0, gets=(2, (P,))), s.beats("m", 1, P, error=UNKNOWN)


def a_member_did_not_give_up_in_time(s):
    s.beats("m", 0, gets=(1, (P,))), s.beats("m", 1, P, gets=(1, ())), s.passes(2_000)
    s.beats("m", 1, P, error=UNKNOWN), s.beats("n", 0, gets=(3, (P,)))


def a_static_member_is_followed_in_its_epoch(s):
    s.beats("m", 0, gets=(1, (P,))), s.beats("m", -2, gets=(-2, None), reports=False), s.beats("m2", 0, gets=(1, (P,)))


def a_late_heartbeat_went_ahead(s):
    """A good history: a heartbeat was not answered: the group took it, and gave the member a newer epoch."""
    s.beats("m", 0, gets=(1, (P,))), s.beats("m", 1, P), s.beats("m", 1, P, error=FENCED)


def a_late_commit_of_the_same_member(s):
    _two_members(s), s.plain(4, 2, member="m", ok=None), s.plain(9, 2, member="m"), s.stands(4)


def another_member_goes_on_after_a_late_commit(s):
    _set_back_from_9_to_3(s), s.plain(7, 2, member="n"), s.stands(7), s.restart(), s.stands(7)


def another_member_goes_on_without_an_answer_after_a_late_commit(s):
    _set_back_from_9_to_3(s), s.plain(7, 2, member="n", ok=None), s.stands(7)


def a_transaction_goes_on_after_a_late_commit(s):
    _set_back_from_9_to_3(s), s.begin("t"), s.offsets("t", 7, generation=2, member="n"), s.commit("t"), s.stands(7)


def many_go_on_after_a_late_commit(s):
    _set_back_from_9_to_3(s), s.plain(5, 2, member="n"), s.stands(5), s.plain(7, 3, member="o"), s.stands(7)
    s.plain(10, 4, member="m"), s.stands(10)


def somebody_goes_on_while_the_late_commit_is_read(s):
    """A good history: the read of 7 is answered before the read of 3, which overlaps it."""
    s.plain(3, 1, member="m", ok=None), s.plain(9, 1, member="m"), s.stands(9), s.stands(3)
    seven, three, commit = s.stands(7), s.stands(3), s.plain(7, 2, member="n")
    s.beside(commit, seven, three)


def somebody_goes_on_beside_the_only_read_of_the_late_commit(s):
    s.plain(3, 1, member="m", ok=None), s.plain(9, 1, member="m"), s.stands(9)
    seven, three, commit = s.stands(7), s.stands(3), s.plain(7, 2, member="n")
    s.beside(commit, seven, three)


def the_older_answer_to_a_join_that_was_sent_twice_comes_last(s):
    """A good history: the group handled one of the two joins in epoch 2, in which m has P and Q, and the other one in
    epoch 4, in which m has Q alone. The answer of epoch 2 comes last.
    """
    s.beside(s.beats("m", 0, gets=(4, (Q,))), s.beats("m", 0, gets=(2, (P, Q))))
    s.beats("n", 0, gets=(4, (P,))), s.beats("m", 4, Q, gets=(4, None))


def the_older_answer_to_a_join_that_was_sent_twice_comes_first(s):
    newer, older = s.beats("m", 0, gets=(4, (Q,))), s.beats("m", 0, gets=(2, (P, Q)))
    s.beside(older, newer)
    s.beats("n", 0, gets=(4, (P,))), s.beats("m", 4, Q, gets=(4, None))


def two_answers_of_one_epoch_to_a_join_that_was_sent_twice(s):
    """A good history: both answers have the same epoch, so it is unknown which is the newer one."""
    s.beside(s.beats("m", 0, gets=(4, (Q,))), s.beats("m", 0, gets=(4, (P, Q))))
    s.beats("n", 0, gets=(5, (P,))), s.beats("m", 4, Q, gets=(5, None))


def a_heartbeat_that_was_sent_twice_and_an_order_to_give_up(s):
    """A good history: the group took the second heartbeat first. The answer to the first one orders m to give up Q; it
    does not, and is removed.
    """
    s.beats("m", 0, gets=(1, (P, Q))), s.beats("n", 0, gets=(2, ()))
    s.beside(s.beats("m", 1, P, Q, gets=(1, (P,))), s.beats("m", 1, P, Q, gets=(1, (P, Q))))
    s.passes(1_500), s.beats("m", 1, P, Q, gets=(1, None)), s.passes(1_500), s.beats("m", 1, P, Q, error=UNKNOWN)


def a_heartbeat_is_overtaken_by_the_end_of_its_member(s):
    """A good history: the group took the leave first, so the heartbeat is of an unknown member."""
    _two_members(s), s.passes(500)
    beat, leave = s.beats("m", 2, reports=False, error=UNKNOWN), s.beats("m", -1, gets=(-1, None), reports=False)
    s.beside(leave, beat)


def a_heartbeat_is_overtaken_by_another_that_gets_an_epoch(s):
    s.beats("m", 0, gets=(1, (P,))), s.beats("n", 0, gets=(2, ()))
    s.beside(s.beats("m", 1, reports=False, error=FENCED), s.beats("m", 1, reports=False, gets=(2, None)))


def a_group_begins_anew(s):
    _two_members(s), s.group_forgotten()
    s.beats("o", 0, gets=(1, (P,))), s.beats("o", 1, P, gets=(1, None)), s.plain(4, 1, member="o")


def the_accepted_epoch_is_newer_than_the_first(s):
    """A good history: while m retried its commit, it got the partition again, in epoch 3: the commit was accepted with
    that.
    """
    s.beats("m", 0, gets=(1, (P,))), s.beats("m", 1, P, gets=(1, ())), s.beats("m", 1, gets=(2, ()))
    s.beats("m", 2, gets=(3, (P,))), s.plain(4, 1, member="m", newest=3)


GOOD = [
    members_share,
    an_older_epoch_in_which_it_had_the_partition,
    a_session_is_over_and_another_member_has_it,
    a_member_did_not_give_up_in_time,
    a_static_member_is_followed_in_its_epoch,
    a_late_heartbeat_went_ahead,
    a_late_commit_of_the_same_member,
    another_member_goes_on_after_a_late_commit,
    another_member_goes_on_without_an_answer_after_a_late_commit,
    a_transaction_goes_on_after_a_late_commit,
    many_go_on_after_a_late_commit,
    somebody_goes_on_while_the_late_commit_is_read,
    somebody_goes_on_beside_the_only_read_of_the_late_commit,
    the_older_answer_to_a_join_that_was_sent_twice_comes_last,
    the_older_answer_to_a_join_that_was_sent_twice_comes_first,
    two_answers_of_one_epoch_to_a_join_that_was_sent_twice,
    a_heartbeat_that_was_sent_twice_and_an_order_to_give_up,
    a_heartbeat_is_overtaken_by_the_end_of_its_member,
    a_heartbeat_is_overtaken_by_another_that_gets_an_epoch,
    a_group_begins_anew,
    the_accepted_epoch_is_newer_than_the_first,
]
