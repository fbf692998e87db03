"""Bad histories of a mirror, and good ones beside them.

Each function writes one history with the steps of story.py; its name says what happens in it. `@bad` names the
anomaly that the checker must find in it; without `@bad` the history is good.
"""

from simulation.golden import bad
from simulation.mirror_rules import (
    SOURCE,
    TARGET,
    Copy,
    CutOver,
    GroupAt,
    Log,
    MapOf,
    Moved,
    PositionOf,
    Stands,
    Stopped,
    Whole,
)
from simulation.story import P

G = "group-a"


def copy(offset, value, txn="", **more):
    known = {"key": None, "headers": (), "timestamp_ms": 7} | more
    return Copy(offset, value=value.encode(), txn=txn, **known)


def here(s, *copies, start=0, end=None):
    """Note that the source's log has these records. Unless `end` says otherwise, it ends after one marker that
    follows them.
    """
    return s._op("look", Log(SOURCE, P), True, Stands(start, _end(copies) if end is None else end, copies))


def there(s, *copies, end=None):
    return s._op("look", Log(TARGET, P), True, Stands(0, _end(copies) if end is None else end, copies))


def _end(copies):
    return copies[-1].offset + 2 if copies else 0


def mapped(s, *entries):
    """Note that the offset map has these entries, each of (first offset, end, runs)."""
    s._op("look", MapOf(P), True, tuple(entries))


def stands(s, offset):
    s._op("look", PositionOf(P), True, offset)


def moves(s, source, target, *, end=6, said=None, ok=True):
    """Note that a cutover moves a group from an offset of the source to one of the target. said: the offset of the
    source that the cutover reports, if that is another one.
    """
    s._op("cutover", CutOver(), ok, Moved(((P, end),), ((G, P, source if said is None else said),)))
    s._op("look", GroupAt(SOURCE, G, P), True, source)
    s._op("look", GroupAt(TARGET, G, P), True, target)


def both(s):
    """Source and target have x and y, in one transaction, then an aborted record, then z: at 0, 1, 4 on the source, at
    0, 1, 3 on the target.
    """
    here(s, copy(0, "x", "t"), copy(1, "y", "t"), copy(4, "z", "u"))
    there(s, copy(0, "x", "a"), copy(1, "y", "a"), copy(3, "z", "b"))


EXACT = (0, 6, ((0, 0, 2), (4, 3, 1)))


def a_mirror_is_exact(s):
    """A good history, of a whole mirror with its map, position and groups."""
    s._op("scenario", Whole(), True), both(s), mapped(s, EXACT), stands(s, 6), moves(s, 2, 3)


def a_map_of_several_entries_with_a_gap_between_them(s):
    """A good history: the source has no record in the gap."""
    both(s), mapped(s, (0, 2, ((0, 0, 2),)), (3, 6, ((4, 3, 1),)))


def a_group_at_the_end_goes_to_the_end(s):
    """A good history: the group goes from the source's end to the target's end."""
    both(s), moves(s, 6, 5)


def a_source_that_was_trimmed(s):
    """A good history: the record that is gone had been mirrored, the map has forgotten it, and a group stands
    below it.
    """
    here(s, copy(0, "x"), copy(1, "y")), here(s, copy(1, "y"), copy(2, "z"), start=1, end=3)
    there(s, copy(0, "x"), copy(1, "y"), copy(2, "z"), end=4)
    mapped(s, (1, 3, ((1, 1, 2),))), moves(s, 0, 1, end=3)


def a_transaction_that_waited_too_long_is_divided(s):
    """A good history: it is not said (Whole) that transactions may not be divided."""
    here(s, copy(0, "x", "t"), copy(1, "y", "t")), there(s, copy(0, "x", "a"), copy(2, "y", "b"))


def a_transaction_is_mirrored_with_another(s):
    """A good history: two transactions of the source may be one of the target."""
    s._op("scenario", Whole(), True)
    here(s, copy(0, "x", "t"), copy(2, "y", "u")), there(s, copy(0, "x", "a"), copy(1, "y", "a"))


def a_cutover_that_failed_has_moved_nobody(s):
    """A good history: nothing is expected of a cutover that failed."""
    both(s), moves(s, 2, -1, ok=False)


GOOD = [
    a_mirror_is_exact,
    a_map_of_several_entries_with_a_gap_between_them,
    a_group_at_the_end_goes_to_the_end,
    a_source_that_was_trimmed,
    a_transaction_that_waited_too_long_is_divided,
    a_transaction_is_mirrored_with_another,
    a_cutover_that_failed_has_moved_nobody,
]


@bad("mirrored twice")
def a_record_is_mirrored_by_two_tasks(s):
    here(s, copy(0, "x")), there(s, copy(0, "x", "a"), copy(2, "x", "b"))


@bad("mirrored twice")
def a_cycle_is_repeated_with_more(s):
    here(s, copy(0, "x"), copy(1, "y")), there(s, copy(0, "x", "a"), copy(2, "x", "b"), copy(3, "y", "b"))


@bad("lost by the mirror")
def a_record_is_left_out(s):
    here(s, copy(0, "x"), copy(1, "y"), copy(2, "z")), there(s, copy(0, "x"), copy(2, "z"))


@bad("lost by the mirror")
def a_record_that_was_trimmed_had_not_been_mirrored(s):
    here(s, copy(0, "x"), copy(1, "y")), here(s, copy(1, "y"), start=1), there(s, copy(0, "y"))


@bad("mirrored from nowhere")
def an_aborted_record_is_mirrored(s):
    here(s, copy(0, "x")), there(s, copy(0, "x"), copy(1, "aborted"))


@bad("mirrored from nowhere")
def a_record_has_another_time(s):
    here(s, copy(0, "x")), there(s, copy(0, "x", timestamp_ms=8))


@bad("mirrored from nowhere")
def a_record_has_lost_a_header(s):
    here(s, copy(0, "x", headers=(("a", b"1"), ("a", None)))), there(s, copy(0, "x", headers=(("a", b"1"),)))


@bad("mirrored from nowhere")
def no_key_has_become_an_empty_one(s):
    here(s, copy(0, "x")), there(s, copy(0, "x", key=b""))


@bad("mirrored out of order")
def a_record_overtakes_another(s):
    here(s, copy(0, "x"), copy(1, "y")), there(s, copy(0, "y"), copy(1, "x"))


@bad("mirrored out of order")
def a_later_transaction_is_mirrored_first(s):
    here(s, copy(0, "x", "t"), copy(2, "y", "u")), there(s, copy(0, "y", "a"), copy(2, "x", "b"))


@bad("torn by the mirror")
def a_transaction_is_mirrored_in_two(s):
    s._op("scenario", Whole(), True), a_transaction_that_waited_too_long_is_divided(s)


@bad("torn by the mirror")
def one_of_two_overlapping_transactions_is_mirrored_in_two(s):
    s._op("scenario", Whole(), True)
    here(s, copy(0, "x", "t"), copy(1, "y", "u"), copy(2, "z", "t"))
    there(s, copy(0, "x", "a"), copy(1, "y", "a"), copy(3, "z", "b"))


@bad("wrong map")
def the_map_is_one_off(s):
    both(s), mapped(s, (0, 6, ((0, 0, 2), (4, 4, 1))))


@bad("wrong map")
def the_map_has_a_record_that_was_aborted(s):
    both(s), mapped(s, (0, 6, ((0, 0, 3), (4, 3, 1))))


@bad("wrong map")
def two_entries_of_the_map_overlap(s):
    both(s), mapped(s, EXACT, (1, 2, ((1, 1, 1),)))


@bad("missing in the map")
def the_map_lacks_the_last_record(s):
    both(s), mapped(s, (0, 2, ((0, 0, 2),)))


@bad("missing in the map")
def an_entry_that_is_still_needed_was_removed(s):
    both(s), mapped(s, (4, 6, ((4, 3, 1),)))


@bad("mirror left behind")
def the_position_is_not_at_the_end(s):
    both(s), stands(s, 4)


@bad("mirror left behind")
def there_is_no_position(s):
    both(s), stands(s, -1)


@bad("mirror stopped for nothing")
def a_topic_is_said_to_be_gone(s):
    s._op("task", Stopped("p", "it was deleted on the source"), True)


@bad("mirror stopped for nothing")
def a_target_is_said_to_refuse_a_record(s):
    both(s), s._op("task", Stopped("p", "the target does not take a record at offset 1"), True)


@bad("group moved wrongly")
def a_group_repeats_a_record(s):
    both(s), moves(s, 2, 1)


@bad("group moved wrongly")
def a_group_skips_a_record(s):
    both(s), moves(s, 1, 3)


@bad("group moved wrongly")
def a_group_has_gone_on_at_the_source(s):
    both(s), moves(s, 4, 3, said=1)


@bad("group moved wrongly")
def a_group_is_not_moved(s):
    both(s), moves(s, 1, -1)


@bad("written behind a cutover")
def a_record_is_written_after_the_cutover(s):
    both(s), moves(s, 0, 0, end=4)


@bad("written behind a cutover")
def a_transaction_that_was_open_is_committed_after_the_cutover(s):
    both(s), moves(s, 1, 1, end=2)


@bad("group left behind")
def a_cutover_overlooks_a_group(s):
    both(s), moves(s, 0, 0), s._op("look", GroupAt(SOURCE, "group-b", P), True, 1)


@bad("group left behind")
def a_cutover_overlooks_all_groups(s):
    both(s), s._op("cutover", CutOver(), True, Moved(((P, 6),), ())), s._op("look", GroupAt(SOURCE, G, P), True, 1)
