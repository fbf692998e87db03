"""Bad histories of one connection over which requests are sent without waiting for answers.

Each function writes one history with the steps of story.py; its name says what happens in it. `@bad` names the
anomaly that the checker must find in it; without `@bad` the history is good.
"""

from simulation.golden import TWO, bad
from simulation.story import P


def in_order(s):
    """A good history: each read sees what was sent before it, and an open transaction hides the commit of
    another one.
    """
    s.pipelined(
        s.listed(-1, 0, committed=False), s.send("w", at=0), s.listed(-1, 1, committed=False), s.raw((0, "w"), hw=1)
    )
    s.begin("t"), s.send("x", txn="t", at=1, sequence=1)
    s.begin("u", producer=TWO, tid="b"), s.send("y", txn="u", at=2, producer=TWO)
    s.pipelined(s.commit("u", producer=TWO, tid="b"), s.listed(-1, 1), s.listed(-1, 4, committed=False))
    s.pipelined(s.commit("t"), s.read((1, "x"), (2, "y"), start=1, hw=5, lso=5), s.listed(-1, 5))


def it_deletes_and_asks_where_its_log_begins(s):
    """A good history: to delete records below the log's beginning once more is no error."""
    s.send("x", "y")
    s.pipelined(s.listed(-2, 0), s.trim(1), s.listed(-2, 1), s.raw((1, "y"), start=1, log_start=1), s.trim(1))


@bad("own write unseen")
def a_log_begins_where_it_did_before_it_was_trimmed(s):
    s.send("x", "y"), s.raw((0, "x"), (1, "y")), s.pipelined(s.trim(1), s.listed(-2, 0))


@bad("own write unseen")
def a_fetch_tells_the_beginning_from_before_it_was_trimmed(s):
    s.send("x", "y"), s.pipelined(s.trim(1), s.raw((1, "y"), start=1, log_start=0))


@bad("own write unseen")
def the_end_is_listed_without_what_was_just_produced(s):
    s.pipelined(s.send("x", at=0), s.listed(-1, 0, committed=False))


@bad("own write unseen")
def a_fetch_has_the_high_watermark_from_before_its_own_write(s):
    s.pipelined(s.send("x", at=0), s.raw(hw=0))


@bad("own write unseen")
def a_log_begins_earlier_than_was_just_listed(s):
    s.send("x", "y", "z")
    s.pipelined(s.listed(-2, 2), s.raw((2, "z"), start=2, log_start=0))


@bad("own write unseen")
def a_commit_is_not_seen_by_the_read_behind_it(s):
    s.begin("t"), s.send("x", txn="t", at=0)
    s.pipelined(s.commit("t"), s.listed(-1, 0))


@bad("own write unseen")
def the_last_stable_offset_stands_before_a_commit_of_the_same_connection(s):
    s.begin("t"), s.send("x", txn="t", at=0)
    s.pipelined(s.commit("t"), s.read(hw=2, lso=0))


@bad("write seen before its time")
def the_end_is_listed_with_what_is_produced_behind(s):
    s.pipelined(s.listed(-1, 1, committed=False), s.send("x", at=0))


@bad("write seen before its time")
def a_fetch_shows_what_is_produced_behind(s):
    s.pipelined(s.send("w", at=0), s.raw((0, "w"), (1, "x")), s.send("x", at=1, sequence=1, producer=TWO, place=P))
