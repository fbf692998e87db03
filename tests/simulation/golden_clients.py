"""More bad histories that the checker must flag: of consumers that poll, of groups that work, of answers that lie.

Each function writes one history with the steps of story.py; its name says what happens in it. `@bad` names the
anomaly that the checker must find in it; without `@bad` the history is good.
"""

from simulation.golden import TWO, bad
from simulation.story import P, Q, data, marker


def written(s, *values):
    """Send these values, each in a batch of its own, acknowledged at the offsets from 0 on."""
    for number, value in enumerate(values):
        s.send(value, at=number, sequence=number, producer=TWO)


@bad("poll skip")
def a_poll_passes_over_a_record_of_a_transaction_that_is_committed(s):
    s.begin("t"), s.send("x", txn="t"), s.poll(upto=2), s.commit("t"), s.final((0, "x"), upto=2)


@bad("poll skip")
def the_next_poll_begins_behind_a_record(s):
    written(s, "x", "y", "z"), s.poll((0, "x")), s.poll((2, "z"), start=2), s.final((0, "x"), (1, "y"), (2, "z"))


@bad("poll skip")
def a_poll_leaves_out_a_record_within(s):
    written(s, "x", "y", "z"), s.poll((0, "x"), (2, "z")), s.final((0, "x"), (1, "y"), (2, "z"))


@bad("nonmonotonic poll")
def the_next_poll_goes_back(s):
    written(s, "x", "y"), s.poll((0, "x"), (1, "y")), s.poll((1, "y"), start=1), s.final((0, "x"), (1, "y"))


@bad("nonmonotonic poll")
def what_is_committed_is_polled_again(s):
    written(s, "x"), s.poll((0, "x"), txn="t"), s.begin("t"), s.commit("t"), s.poll((0, "x")), s.final((0, "x"))


@bad("no rewind")
def after_an_abort_the_consumer_goes_on(s):
    written(s, "x", "y"), s.poll((0, "x"), txn="t"), s.begin("t"), s.abort("t")
    s.poll((1, "y"), start=1), s.final((0, "x"), (1, "y"))


@bad("no rewind")
def after_an_abort_only_the_last_of_several_polls_comes_again(s):
    written(s, "x", "y"), s.poll((0, "x"), txn="t"), s.poll((1, "y"), start=1, txn="t"), s.begin("t"), s.abort("t")
    s.poll((1, "y"), start=1), s.final((0, "x"), (1, "y"))


@bad("poll skip")
def between_two_polls_for_one_transaction_a_record_is_left_out(s):
    written(s, "x", "y", "z"), s.poll((0, "x"), txn="t"), s.poll((2, "z"), start=2, txn="t"), s.begin("t"), s.abort("t")
    s.final((0, "x"), (1, "y"), (2, "z"))


@bad("no rewind")
def after_a_commit_that_was_refused_the_consumer_goes_on(s):
    written(s, "x", "y"), s.poll((0, "x"), txn="t"), s.begin("t"), s.commit("t", ok=False, error=22)
    s.poll((1, "y"), start=1), s.final((0, "x"), (1, "y"))


@bad("precommitted read")
def a_transaction_reads_its_own_write_before_it_commits(s):
    s.begin("t"), s.send("x", txn="t"), s.read((0, "x"), client="w"), s.commit("t")


@bad("precommitted read")
def a_client_that_leaves_its_transaction_reads_its_own_write(s):
    s.begin("t"), s.send("x", txn="t", ok=None), s.read((0, "x"), client="w")


@bad("false duplicate")
def new_data_is_answered_with_the_offset_of_old(s):
    s.send("x"), s.send("y", at=0, sequence=1)


@bad("false duplicate")
def new_data_of_a_new_epoch_is_taken_for_what_the_old_one_sent(s):
    s.send("x", at=3), s.restart(), s.send("y", at=3, producer=(1, 1))


@bad("spurious offset")
def another_value_is_read_at_the_offset_of_an_answer(s):
    s.send("x", ok=None), s.send("y", producer=TWO), s.raw((0, "x"))


@bad("spurious offset")
def another_value_stands_in_the_log_at_the_offset_of_an_answer(s):
    s.send("x", ok=None), s.send("y", producer=TWO), s.dump(data(0, "x", plain=True))


@bad("skipped by its group")
def a_group_stands_behind_what_none_of_its_members_did(s):
    written(s, "x", "y"), s.poll((0, "x"), group="g"), s.plain(2), s.stands(2, "final"), s.final((0, "x"), (1, "y"))


@bad("skipped by its group")
def what_was_polled_last_is_committed_before_it_is_done(s):
    written(s, "x", "y"), s.poll((1, "y"), start=1, group="g"), s.plain(2)
    s.stands(2, "final"), s.final((0, "x"), (1, "y"))


@bad("wrong listed offset")
def the_end_is_listed_before_what_was_fetched(s):
    written(s, "x", "y"), s.read((0, "x"), (1, "y")), s.listed(-1, 1)


@bad("wrong listed offset")
def the_last_stable_offset_is_listed_as_the_high_watermark(s):
    s.begin("t"), s.send("x", txn="t"), s.listed(-1, 1), s.read(lso=0, hw=1), s.abort("t")


@bad("wrong listed offset")
def the_beginning_is_listed_behind_where_it_is(s):
    written(s, "x"), s.listed(-2, 1), s.raw((0, "x"))


@bad("wrong listed offset")
def an_offset_after_the_first_of_its_time(s):
    s.send("x"), s.send("y", at=1, sequence=1), s.listed(10, 1)
    s.dump(data(0, "x", plain=True, timestamp=10), data(1, "y", sequence=1, plain=True, timestamp=20))


@bad("stuck client")
def a_producer_is_never_done(s):
    s.send("x", ok=None), s.finish("produce", ok=None)


@bad("stuck client")
def a_consumer_never_comes_to_the_end(s):
    s.send("x"), s.read(lso=0, hw=1), s.finish("read to the end", ok=None)


@bad("aborted read")
def a_consumer_gives_what_is_aborted(s):
    s.begin("t"), s.send("x", txn="t"), s.abort("t"), s.poll((0, "x"), upto=2)


@bad("torn transaction")
def a_consumer_passes_over_half_of_a_transaction(s):
    s.begin("t"), s.send("x", txn="t"), s.send("y", txn="t", at=1, sequence=1), s.commit("t", ok=None)
    s.poll((0, "x")), s.read((1, "y"), start=1), s.poll(start=0, upto=2)


@bad("torn transaction")
def a_transaction_is_committed_though_a_write_has_failed(s):
    s.begin("t"), s.send("x", txn="t"), s.send("y", txn="t", ok=False, error=7), s.commit("t")


@bad("zombie accepted")
def an_old_producer_of_a_member_commits_its_batch(s):
    s.init(), s.begin("t"), s.offsets("t", 1), s.init((1, 1), client="other"), s.commit("t")


@bad("stale generation")
def a_batch_of_an_old_generation_is_committed_as_it(s):
    s.join(3, "m", P), s.poll(upto=1, txn="t"), s.join(4, "n", P, Q), s.begin("t"), s.offsets("t", 1, generation=3)


@bad("offsets/outputs split")
def a_retried_commit_leaves_its_output_behind(s):
    s.send("i", producer=TWO), s.begin("t"), s.send("o", place=Q, txn="t", sources=((P, 0),)), s.offsets("t", 1)
    s.commit("t"), s.dump(data(0, "o"), marker(1, "abort"), place=Q)
    s.final((0, "i")), s.final(place=Q, upto=2), s.stands(1, "final")


@bad("read while paused")
def records_of_a_paused_partition_are_given(s):
    written(s, "x", "y"), s.poll((0, "x")), s.pauses(), s.poll((1, "y"), start=1), s.final((0, "x"), (1, "y"))


@bad("read while paused")
def another_partition_that_goes_on_does_not_make_up_for_it(s):
    written(s, "x"), s.pauses(), s.pauses(Q), s.pauses(Q, again=True), s.poll((0, "x")), s.final((0, "x"))


@bad("batch in two transactions")
def a_second_producer_is_given_the_batch_of_an_open_transaction(s):
    s.begin("t"), s.claimed("t", begun=True), s.abort("t")


@bad("batch in two transactions")
def a_second_producer_is_given_a_batch_that_is_committed(s):
    s.begin("t"), s.commit("t"), s.claimed("t", begun=True)


@bad("expelled while polled")
def a_member_leaves_although_it_was_polled_in_time(s):
    s.left_behind(1_400)


@bad("expelled while polled")
def a_member_leaves_while_it_is_polled(s):
    s.left_behind(0)
