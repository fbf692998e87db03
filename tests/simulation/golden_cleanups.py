"""Histories of logs that lose records by themselves: retention and compaction, right and wrong.

Each function writes one history with the steps of story.py; its name says what happens in it. `@bad` names the
anomaly that the checker must find in it; without `@bad` the history is good.
"""

from simulation.golden import TWO, bad
from simulation.history import EMPTIED
from simulation.story import data, marker

AGE = {"retention_ms": 1_000}
SIZE = {"retention_bytes": 150}  # two batches of one short record are 144 bytes
KEYS = {"tombstones_ms": 1_000}


def old_records_go(s):
    """A good history: only old records are removed, from the beginning of the log."""
    s.cleaned_by(**AGE), s.send("x"), s.raw((0, "x")), s.passes(600), s.send("y", at=1, sequence=1)
    s.passes(400), s.raw((1, "y"), start=1, log_start=1), s.dump(data(1, "y", sequence=1, plain=True))


def an_old_log_is_empty(s):
    s.cleaned_by(**AGE), s.send("x"), s.passes(1_000), s.raw(start=1, log_start=1, hw=1), s.dump()


def the_answer_to_a_retry_makes_nothing_younger(s):
    s.cleaned_by(**AGE), s.send("x"), s.passes(900), s.send("x", again=True), s.passes(100)
    s.raw(start=1, log_start=1)


def a_large_log_is_shortened(s):
    s.cleaned_by(**SIZE), s.send("x"), s.send("y", at=1, sequence=1), s.send("z", at=2, sequence=2)
    s.send("w" * 10, at=3, sequence=3), s.raw((2, "z"), (3, "w" * 10), start=2, log_start=2)
    s.dump(data(2, "z", sequence=2, plain=True), data(3, "w" * 10, sequence=3, plain=True))


def older_values_go(s):
    """A good history: of two keys older values are removed; one key is deleted in the end, and its tombstone is removed
    as well.
    """
    s.cleaned_by(**KEYS), s.send("a=1", "b=1", "a=2"), s.raw((0, "a=1"), (1, "b=1"), (2, "a=2"))
    s.send("b=!2", at=3, sequence=3), s.read((2, "a=2"), (3, "b=!2"), upto=4), s.passes(1_000)
    (
        s.raw((2, "a=2"), upto=4),
        s.dump(data(0, "a=2", plain=True)._replace(offsets=(2,), last=2)),
        s.final((2, "a=2"), upto=4),
    )


def aborted_values_go(s):
    """A good history: an aborted value is removed, and does not replace the older one of its key."""
    s.cleaned_by(**KEYS), s.send("a=1"), s.begin("t", producer=TWO), s.send("a=2", at=1, txn="t", producer=TWO)
    s.raw((0, "a=1"), (1, "a=2"), hw=2, lso=1), s.abort("t", producer=TWO), s.raw((0, "a=1"), upto=3)
    s.dump(data(0, "a=1", plain=True), marker(2, "abort", producer=TWO))


def committed_values_replace(s):
    """A good history: a batch of which compaction has left only the sequence has no records."""
    s.cleaned_by(**KEYS), s.begin("t"), s.send("a=1", txn="t"), s.commit("t"), s.read((0, "a=1"), upto=2)
    s.begin("u"), s.send("a=2", at=2, sequence=1, txn="u"), s.commit("u"), s.read((2, "a=2"), upto=4)
    s.dump(data(0)._replace(last=0), data(2, "a=2", sequence=1), marker(3))


def an_empty_marker_keeps_an_epoch(s):
    s.cleaned_by(**KEYS), s.begin("t"), s.send("a=1", txn="t"), s.abort("t"), s.send("a=2", at=2, producer=TWO)
    s.raw((2, "a=2")), s.dump(marker(1, EMPTIED), data(2, "a=2", producer=TWO, plain=True))


def a_value_is_replaced_by_its_own_repetition(s):
    """A good history: its producer was forgotten, so a retry is written again; an older value written so replaces a
    newer one as well.
    """
    s.cleaned_by(**KEYS), s.send("a=1", "a=2"), s.raw((0, "a=1"), (1, "a=2")), s.forgotten()
    s.raw((2, "a=1"), (3, "a=2"), upto=4)


def a_repetition_makes_a_log_too_large(s):
    """A good history: its producer was forgotten, so a retry is written again: the batch is there twice, and the first
    may be removed.
    """
    s.cleaned_by(**SIZE), s.send("x" * 100), s.forgotten(), s.raw((1, "x" * 100), start=1, log_start=1)


GOOD = [
    a_repetition_makes_a_log_too_large,
    a_value_is_replaced_by_its_own_repetition,
    an_empty_marker_keeps_an_epoch,
    old_records_go,
    an_old_log_is_empty,
    the_answer_to_a_retry_makes_nothing_younger,
    a_large_log_is_shortened,
    older_values_go,
    aborted_values_go,
    committed_values_replace,
]


# ---- retention -----------------------------------------------------------------------------------------------


@bad("log begins too late")
def young_records_go_by_age(s):
    s.cleaned_by(**AGE), s.send("x"), s.passes(900), s.raw(start=1, log_start=1)


@bad("log begins too late")
def a_young_record_goes_with_an_old_one(s):
    s.cleaned_by(**AGE), s.send("x"), s.passes(900), s.send("y", at=1, sequence=1), s.passes(200)
    s.raw(start=2, log_start=2)


@bad("log begins too late")
def more_goes_than_is_too_much(s):
    s.cleaned_by(**SIZE), s.send("x"), s.send("y", at=1, sequence=1), s.raw((1, "y"), start=1, log_start=1)


@bad("log begins too late")
def too_little_is_left_in_the_end(s):
    """The batch without an answer could have made the log large enough, but the dump shows that it was not written."""
    s.cleaned_by(**SIZE), s.send("x"), s.send("y", at=1, sequence=1), s.send("z" * 200, at=2, ok=None, producer=TWO)
    s.dump(data(1, "y", sequence=1, plain=True))


@bad("log begins too late")
def more_goes_than_was_repeated(s):
    s.cleaned_by(**SIZE), s.forgotten(), s.send("x" * 100), s.raw(start=1, log_start=1, hw=1)


@bad("lost write")
def a_record_is_gone_from_the_middle(s):
    s.cleaned_by(**AGE), s.send("x", "y", "z"), s.passes(2_000), s.raw((0, "x"), (2, "z"))


@bad("hole in the log")
def the_middle_of_an_old_log_is_gone(s):
    s.cleaned_by(**AGE), s.send("x"), s.send("y", at=1, sequence=1), s.send("z", at=2, sequence=2), s.passes(2_000)
    s.dump(data(0, "x", plain=True), data(2, "z", sequence=2, plain=True))


# ---- compaction ----------------------------------------------------------------------------------------------


@bad("log begins too late")
def a_compacted_log_loses_its_beginning(s):
    s.cleaned_by(**KEYS), s.send("a=1", "a=2"), s.raw((1, "a=2"), start=1, log_start=1)


@bad("lost write")
def the_newest_value_of_a_key_is_gone(s):
    s.cleaned_by(**KEYS), s.send("a=1", "b=1", "a=2"), s.raw((0, "a=1"), (1, "b=1"), upto=3)


@bad("lost write")
def a_value_is_replaced_by_an_aborted_one(s):
    s.cleaned_by(**KEYS), s.send("a=1"), s.begin("t", producer=TWO), s.send("a=2", at=1, txn="t", producer=TWO)
    s.abort("t", producer=TWO), s.read(upto=3)


@bad("lost write")
def a_value_is_replaced_by_one_that_is_not_decided(s):
    """Compaction went above the last stable offset."""
    s.cleaned_by(**KEYS), s.send("a=1"), s.begin("t", producer=TWO), s.send("a=2", at=1, txn="t", producer=TWO)
    s.raw((1, "a=2"), hw=2, lso=1), s.commit("t", producer=TWO)


@bad("lost write")
def a_tombstone_goes_too_soon(s):
    s.cleaned_by(**KEYS), s.send("a=1", "a=!2"), s.passes(900), s.raw(upto=2)


@bad("hanging transaction")
def a_marker_is_emptied_before_its_data_is_gone(s):
    s.cleaned_by(**KEYS), s.begin("t"), s.send("a=1", txn="t"), s.commit("t")
    s.dump(data(0, "a=1"), marker(1, EMPTIED))


@bad("resurrected")
def a_tombstone_goes_before_what_it_deletes(s):
    s.cleaned_by(**KEYS), s.send("a=1", "a=!2"), s.passes(2_000), s.dump(data(0, "a=1", plain=True)._replace(last=1))


@bad("resurrected")
def a_committed_tombstone_goes_before_what_it_deletes(s):
    s.cleaned_by(**KEYS), s.send("a=1"), s.begin("t", producer=TWO), s.send("a=!2", at=1, txn="t", producer=TWO)
    s.commit("t", producer=TWO), s.passes(2_000), s.dump(data(0, "a=1", plain=True), marker(2, producer=TWO))


@bad("inconsistent offset")
def compaction_moves_a_record(s):
    s.cleaned_by(**KEYS), s.send("a=1", "a=2", "b=1"), s.raw((1, "b=1"), upto=3)


@bad("aborted read")
def an_aborted_record_is_shown_when_its_marker_is_gone(s):
    s.cleaned_by(**KEYS), s.begin("t"), s.send("a=1", txn="t"), s.abort("t"), s.read((0, "a=1"), upto=2)


@bad("nonmonotonic read")
def a_compacted_batch_stands_twice(s):
    s.cleaned_by(**KEYS), s.send("a=1", "b=1"), s.raw((0, "a=1"), (1, "b=1"), (0, "a=1"), (1, "b=1"), hw=2)
