"""Histories of members whose broker assigns (KIP-848), bad and good: partitions, epochs, and whose offsets count."""

from simulation.golden import bad
from simulation.story import P, Q

UNKNOWN, FENCED = 25, 110


def _two_members(s):
    """m has P since epoch 1, n has Q since epoch 2; m has got to that, too."""
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


def members_share(s):
    _two_members(s), s.plain(4, 2, member="m"), s.plain(4, 2, place=Q, member="n")


def an_older_epoch_in_which_it_had_the_partition(s):
    """KIP-1251: m has P since epoch 1."""
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
    """One was not answered: the group knows it, and has gone on."""
    s.beats("m", 0, gets=(1, (P,))), s.beats("m", 1, P), s.beats("m", 1, P, error=FENCED)


def a_late_commit_of_the_same_member(s):
    _two_members(s), s.plain(4, 2, member="m", ok=None), s.plain(9, 2, member="m"), s.stands(4)


def a_group_begins_anew(s):
    _two_members(s), s.group_forgotten()
    s.beats("o", 0, gets=(1, (P,))), s.beats("o", 1, P, gets=(1, None)), s.plain(4, 1, member="o")


def the_accepted_epoch_is_newer_than_the_first(s):
    """A partition came back to its member while it asked again."""
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
    a_group_begins_anew,
    the_accepted_epoch_is_newer_than_the_first,
]
