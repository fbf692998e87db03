"""Bad histories that the checker must flag, by what it must call them. Each is as short as its anomaly allows.

Each function writes one history with the steps of story.py; its name says what happens in it. `@bad` names the
anomaly that the checker must find in it; without `@bad` the history is good.
"""

from collections.abc import Callable

from simulation.story import P, Q, Story, data, marker

Bad = Callable[[Story], object]
GOLDEN: list[tuple[str, Bad]] = []
TWO, NEXT = (2, 0), (1, 1)


def bad(name: str) -> Callable[[Bad], Bad]:
    """Decorate a history in which the checker has to find the anomaly of this name."""

    def keep(history: Bad) -> Bad:
        GOLDEN.append((name, history))
        return history

    return keep


@bad("inconsistent offset")
def two_acknowledgements_of_one_offset(s):
    s.send("x"), s.send("y", at=0, sequence=1)


@bad("inconsistent offset")
def acknowledged_one_value_and_read_another(s):
    s.send("x"), s.send("y", producer=TWO, ok=None), s.raw((0, "y"))


@bad("inconsistent offset")
def two_readers_see_two_values(s):
    s.send("x", ok=None), s.send("y", producer=TWO, ok=None), s.raw((0, "x")), s.raw((0, "y"))


@bad("inconsistent offset")
def the_same_offset_before_and_after_a_crash(s):
    s.send("x", ok=None), s.raw((0, "x")), s.restart(), s.send("y", producer=TWO, at=0)


@bad("duplicate")
def one_value_at_two_offsets(s):
    s.send("x"), s.raw((0, "x"), (1, "x"))


@bad("duplicate")
def acknowledged_here_and_read_there(s):
    s.send("x"), s.raw((4, "x"), start=4)


@bad("duplicate")
def the_log_holds_a_batch_twice(s):
    s.send("x", ok=None), s.dump(data(0, "x", plain=True), data(1, "x", plain=True))


@bad("duplicate")
def an_input_is_worked_on_by_two_transactions(s):
    source = ((P, 0),)
    s.begin("t"), s.send("o1", place=Q, txn="t", sources=source), s.commit("t")
    s.begin("u"), s.send("o2", place=Q, txn="u", at=2, sequence=1, sources=source), s.commit("u")
    s.read((0, "o1"), (2, "o2"), place=Q)


@bad("wrong duplicate answer")
def a_repeated_batch_is_told_another_offset(s):
    s.send("x"), s.send("x", at=7, again=True)


@bad("wrong duplicate answer")
def a_repeated_batch_after_a_crash_is_told_another_offset(s):
    s.send("x", at=3), s.restart(), s.send("x", at=0, again=True)


@bad("aborted read")
def a_refused_value_is_read(s):
    s.send("x", ok=False), s.raw((0, "x"))


@bad("aborted read")
def a_value_of_an_aborted_transaction_is_read(s):
    s.begin("t"), s.send("x", txn="t"), s.abort("t"), s.read((0, "x"))


@bad("aborted read")
def a_value_of_a_transaction_whose_commit_was_refused_is_read(s):
    s.begin("t"), s.send("x", txn="t"), s.commit("t", ok=False), s.read((0, "x"))


@bad("aborted read")
def a_value_of_a_transaction_that_its_client_left_is_read(s):
    s.begin("t"), s.send("x", txn="t"), s.read((0, "x"))


@bad("aborted read")
def a_value_is_read_before_anybody_asked_to_commit(s):
    s.begin("t"), s.send("x", txn="t"), s.read((0, "x")), s.commit("t")


@bad("aborted read")
def a_transaction_reads_its_own_write(s):
    s.begin("t"), s.send("x", txn="t"), s.read((0, "x"), client="w"), s.commit("t", ok=None)


@bad("aborted read")
def an_aborted_transaction_has_a_commit_marker(s):
    s.begin("t"), s.send("x", txn="t"), s.abort("t"), s.dump(data(0, "x"), marker(1, "commit"))


@bad("aborted read")
def aborted_data_comes_back_after_a_crash(s):
    s.begin("t"), s.send("x", txn="t"), s.abort("t"), s.read(upto=2), s.restart(), s.read((0, "x"))


@bad("lost write")
def an_acknowledged_value_is_passed_by(s):
    s.send("x"), s.send("y", at=1, sequence=1), s.raw((1, "y"))


@bad("lost write")
def an_acknowledged_value_is_gone_after_a_power_cut(s):
    s.send("x"), s.restart(), s.send("y", at=1, sequence=1), s.read((1, "y"))


@bad("lost write")
def a_committed_transaction_is_not_there(s):
    s.begin("t"), s.send("x", txn="t"), s.commit("t"), s.read(upto=2)


@bad("lost write")
def a_committed_transaction_has_an_abort_marker(s):
    s.begin("t"), s.send("x", txn="t"), s.commit("t"), s.dump(data(0, "x"), marker(1, "abort"))


@bad("lost write")
def the_log_ends_before_what_was_acknowledged(s):
    s.send("x"), s.dump()


@bad("torn transaction")
def one_write_of_a_committed_transaction_is_missing(s):
    s.begin("t"), s.send("x", txn="t"), s.send("y", place=Q, txn="t"), s.commit("t")
    s.read((0, "x")), s.read(upto=2, place=Q)


@bad("torn transaction")
def one_write_proves_the_other_committed(s):
    s.begin("t"), s.send("x", txn="t"), s.send("y", txn="t", at=1, sequence=1), s.commit("t", ok=None)
    s.read((0, "x"), upto=1), s.read(start=1, upto=3)


@bad("torn transaction")
def half_committed_half_aborted_in_the_log(s):
    s.begin("t"), s.send("x", txn="t"), s.send("y", place=Q, txn="t"), s.commit("t", ok=None)
    s.dump(data(0, "x"), marker(1, "commit")), s.dump(data(0, "y"), marker(1, "abort"), place=Q)


@bad("torn transaction")
def two_that_are_decided_together_end_in_two_ways(s):
    s.together("t", "u"), s.begin("t"), s.begin("u", TWO, tid="b"), s.send("x", txn="t")
    s.send("y", producer=TWO, place=Q, txn="u"), s.commit("t", ok=None), s.commit("u", ok=None, producer=TWO, tid="b")
    s.dump(data(0, "x"), marker(1, "commit")), s.dump(data(0, "y", producer=TWO), marker(1, "abort", TWO), place=Q)


@bad("offsets/outputs split")
def an_input_is_committed_without_its_output(s):
    s.send("i", producer=TWO), s.begin("t"), s.send("o", place=Q, txn="t", ok=None, sources=((P, 0),))
    s.offsets("t", 1), s.commit("t", ok=None), s.final((0, "i")), s.final(place=Q, upto=2), s.stands(1, "final")


@bad("offsets/outputs split")
def an_output_is_there_without_its_input_committed(s):
    s.send("i", producer=TWO), s.begin("t"), s.send("o", place=Q, txn="t", sources=((P, 0),))
    s.offsets("t", 1, ok=None), s.commit("t", ok=None)
    s.final((0, "i")), s.final((0, "o"), place=Q), s.stands(-1, "final")


@bad("offset of nothing")
def offsets_of_an_open_transaction_are_served(s):
    s.begin("t"), s.offsets("t", 5), s.stands(5), s.commit("t")


@bad("offset of nothing")
def offsets_of_an_aborted_transaction_are_served(s):
    s.begin("t"), s.offsets("t", 5), s.abort("t"), s.stands(5)


@bad("offset of nothing")
def an_offset_nobody_committed(s):
    s.plain(3), s.stands(4)


@bad("regression of committed offsets")
def an_answered_offset_commit_is_not_served(s):
    s.plain(3), s.stands(-1)


@bad("regression of committed offsets")
def a_committed_transaction_has_left_its_offsets_behind(s):
    s.plain(3), s.begin("t"), s.offsets("t", 9), s.commit("t"), s.stands(3)


@bad("regression of committed offsets")
def an_offset_that_was_served_is_gone_after_a_crash(s):
    s.plain(3), s.plain(9, ok=None), s.stands(9), s.restart(), s.stands(3)


@bad("cross-transaction bleed")
def a_record_comes_after_the_marker_of_its_transaction(s):
    s.begin("t"), s.send("x", txn="t"), s.send("y", txn="t", at=2, sequence=1), s.commit("t")
    s.dump(data(0, "x"), marker(1), data(2, "y", sequence=1), marker(3))


@bad("cross-transaction bleed")
def two_transactions_have_one_marker(s):
    s.begin("t"), s.send("x", txn="t"), s.abort("t", ok=None)
    s.begin("u"), s.send("y", txn="u", at=1, sequence=1), s.commit("u")
    s.dump(data(0, "x"), data(1, "y", sequence=1), marker(2))


@bad("cross-transaction bleed")
def a_marker_stands_in_a_topic_made_again(s):
    s.begin("t"), s.send("x", txn="t", place=Q), s.commit("t"), s.dump(marker(0))


@bad("hanging transaction")
def a_record_without_a_marker(s):
    s.begin("t"), s.send("x", txn="t"), s.dump(data(0, "x"))


@bad("hanging transaction")
def a_late_record_behind_the_marker(s):
    s.begin("t"), s.send("x", txn="t"), s.abort("t"), s.begin("u"), s.send("y", txn="u", at=2, sequence=1)
    s.dump(data(0, "x"), marker(1, "abort"), data(2, "y", sequence=1))


@bad("LSO stall")
def a_last_stable_offset_that_stands_for_longer_than_any_transaction(s):
    s.begin("t"), s.send("x", txn="t"), s.read(lso=0, hw=1), s.passes(2000), s.read(lso=0, hw=1)


@bad("LSO stall")
def a_last_stable_offset_that_stands_for_too_long_beside_what_the_store_fails(s):
    s.begin("t"), s.send("x", txn="t"), s.read(lso=0, hw=1), s.passes(400)
    s.store_fails(500), s.passes(300), s.store_fails(500), s.passes(400), s.read(lso=0, hw=1)


@bad("LSO stall")
def a_last_stable_offset_that_stands_after_writes_that_failed_at_the_same_time(s):
    s.begin("t"), s.send("x", txn="t"), s.read(lso=0, hw=1), s.store_fails(500)
    s.store_failed(s.now - 500, s.now), s.store_failed(s.now - 400, s.now), s.passes(1100), s.read(lso=0, hw=1)


@bad("LSO stall")
def a_last_stable_offset_that_stands_though_the_store_failed_before(s):
    s.begin("t"), s.send("x", txn="t"), s.store_fails(2000), s.read(lso=0, hw=1), s.passes(1100), s.read(lso=0, hw=1)


@bad("LSO stall")
def a_last_stable_offset_below_the_end_when_all_is_over(s):
    s.begin("t"), s.send("x", txn="t"), s.final(lso=0, hw=1)


@bad("late commit")
def a_read_after_the_answer_stops_before_the_transaction(s):
    s.begin("t"), s.send("x", txn="t"), s.commit("t"), s.read(lso=0, hw=2)


@bad("late commit")
def one_partition_is_late(s):
    s.begin("t"), s.send("x", txn="t"), s.send("y", place=Q, txn="t"), s.commit("t")
    s.read((0, "x"), upto=2), s.read(place=Q, lso=0, hw=1)


@bad("regression of high_watermark")
def the_high_watermark_goes_back(s):
    s.raw(hw=5, lso=5), s.raw(hw=4, lso=4)


@bad("regression of high_watermark")
def the_high_watermark_goes_back_over_a_crash(s):
    s.raw(hw=5, lso=3), s.restart(), s.raw(hw=4, lso=3)


@bad("regression of last_stable")
def the_last_stable_offset_goes_back(s):
    s.read(hw=5, lso=4), s.read(hw=5, lso=3)


@bad("regression of last_stable")
def the_last_stable_offset_goes_back_for_another_reader(s):
    s.read(hw=5, lso=4), s.raw(hw=9, lso=0)


@bad("regression of log_start")
def the_log_begins_earlier_again(s):
    s.raw(start=4, log_start=4, hw=5, lso=5), s.raw(start=4, log_start=2, hw=5, lso=5)


@bad("regression of log_start")
def what_was_deleted_is_back_after_a_crash(s):
    s.raw(start=4, log_start=4, hw=5, lso=5), s.restart(), s.raw(start=4, hw=5, lso=5)


@bad("phantom read")
def what_was_read_is_gone(s):
    s.send("x", ok=None), s.raw((0, "x")), s.raw(upto=1)


@bad("phantom read")
def what_was_read_is_not_in_the_log(s):
    s.send("x", ok=None), s.raw((0, "x")), s.dump()


@bad("phantom read")
def what_a_committed_reader_read_is_gone_after_a_crash(s):
    s.begin("t"), s.send("x", txn="t", ok=None), s.commit("t", ok=None)
    s.read((0, "x"), upto=2), s.restart(), s.read(upto=2)


@bad("sequence gap")
def a_batch_is_taken_before_the_one_it_follows(s):
    s.send("x", ok=False), s.send("y", sequence=1)


@bad("sequence gap")
def a_gap_stands_in_the_log(s):
    s.send("x"), s.send("y", at=1, sequence=2, ok=None)
    s.dump(data(0, "x", plain=True), data(1, "y", sequence=2, plain=True))


@bad("forgotten batch")
def one_of_the_last_five_is_out_of_order(s):
    s.send("x"), s.send("x", again=True, ok=False, error=45)


@bad("forgotten batch")
def after_a_restart_the_producer_is_not_known(s):
    s.send("x"), s.restart(), s.send("x", again=True, ok=False, error=59)


@bad("nonmonotonic send")
def the_later_batch_stands_earlier(s):
    s.send("x", at=1), s.send("y", at=0, sequence=1)


@bad("nonmonotonic send")
def the_later_batch_stands_earlier_in_a_transaction(s):
    s.begin("t"), s.send("x", "xx", at=5, txn="t"), s.send("y", at=2, sequence=2, txn="t")


@bad("nonmonotonic read")
def a_fetch_goes_back(s):
    s.send("x"), s.send("y", at=1, sequence=1), s.raw((1, "y"), (0, "x"), upto=2)


@bad("nonmonotonic read")
def a_fetch_begins_before_it_was_asked_to(s):
    s.send("x"), s.send("y", at=1, sequence=1), s.raw((0, "x"), (1, "y"), start=1)


@bad("read above the end")
def a_committed_read_above_the_last_stable_offset(s):
    s.begin("t"), s.send("x", txn="t"), s.commit("t", ok=None), s.read((0, "x"), lso=0, hw=2)


@bad("read above the end")
def a_read_above_what_is_durable(s):
    s.send("x", ok=None), s.raw((0, "x"), hw=0, lso=0)


@bad("unseen")
def an_acknowledged_value_behind_the_end(s):
    s.send("x"), s.final(upto=0, committed=False)


@bad("unseen")
def a_committed_value_behind_the_end(s):
    s.begin("t"), s.send("x", at=3, txn="t"), s.commit("t"), s.final(upto=3)


@bad("two owners")
def a_partition_is_assigned_twice(s):
    s.join(1, "m", P), s.join(1, "n", P)


@bad("two owners")
def one_of_several_partitions_is_assigned_twice(s):
    s.join(3, "m", P, Q), s.join(3, "n", Q)


@bad("read of nothing")
def a_value_that_nobody_sent(s):
    s.raw((0, "x"))


@bad("read of nothing")
def a_value_that_was_sent_later(s):
    s.raw((0, "x")), s.send("x", ok=None)


@bad("wrong place")
def a_value_in_another_topic(s):
    s.send("x"), s.raw((0, "x"), place=Q)


@bad("wrong place")
def a_value_in_another_topics_log(s):
    s.send("x", ok=None), s.dump(data(0, "x", plain=True), place=Q)


@bad("hole in the log")
def an_offset_is_missing(s):
    s.send("x", ok=None), s.send("y", sequence=1, ok=None)
    s.dump(data(0, "x", plain=True), data(2, "y", sequence=1, plain=True))


@bad("hole in the log")
def a_marker_was_removed(s):
    s.begin("t"), s.send("x", txn="t", ok=None), s.abort("t"), s.begin("u"), s.send("y", txn="u", sequence=1, ok=None)
    s.commit("u"), s.dump(data(0, "x"), marker(1, "abort"), data(3, "y", sequence=1), marker(4))


@bad("G1c")
def two_transactions_read_each_other(s):
    s.init(TWO, tid="b"), s.init(), s.begin("t"), s.begin("u", TWO, tid="b")
    s.send("x", txn="t", sources=((Q, 0),)), s.send("y", txn="u", producer=TWO, place=Q, sources=((P, 0),))


@bad("G1c")
def three_transactions_read_in_a_circle(s):
    r = ("r", 0)
    s.begin("t"), s.begin("u", TWO, tid="b"), s.begin("v", (3, 0), tid="c")
    s.send("x", txn="t", sources=((r, 0),)), s.send("y", txn="u", producer=TWO, place=Q, sources=((P, 0),))
    s.send("z", txn="v", producer=(3, 0), place=r, sources=((Q, 0),))
