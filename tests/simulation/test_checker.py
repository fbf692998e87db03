"""The checker itself: every bad history is named, no good one is."""

import random
from collections import Counter

import pytest
import simulation.golden_fencing  # noqa: F401  it adds to GOLDEN, and has nothing else
from long_runs import share_of
from simulation import (
    golden_cleanups,
    golden_clients,
    golden_connections,
    golden_groups,
    golden_limits,
    golden_mirrors,
    golden_named,
    golden_rights,
    golden_shares,
    golden_trims,
)
from simulation.checker import check
from simulation.golden import GOLDEN
from simulation.good_histories import good_history
from simulation.history import Outlived
from simulation.story import Story

SEEDS = share_of(1000)


@pytest.mark.parametrize(("name", "tell"), GOLDEN, ids=lambda value: getattr(value, "__name__", None))
def test_the_checker_reports_the_named_anomaly_for_each_bad_history(name, tell):
    story = Story()
    tell(story)
    assert name in story.anomalies


def test_each_class_of_anomaly_has_at_least_two_bad_histories():
    counts = Counter(name for name, _ in GOLDEN)
    assert [name for name, count in counts.items() if count < 2] == []
    assert len(GOLDEN) >= 60


OUT = ("out", 0)
GOOD_SDK = {
    "after an abort it begins again": lambda s: (
        s.poll((0, "x"), txn="t"), s.begin("t"), s.abort("t"), s.poll((0, "x"), (1, "y"))
    ),
    "after an abort all polls of its transaction come again": lambda s: (
        s.poll((0, "x"), txn="t"), s.poll((1, "y"), start=1, txn="t"), s.begin("t"), s.abort("t"), s.poll((0, "x"))
    ),
    "after a commit it goes on": lambda s: (
        s.poll((0, "x"), txn="t"), s.begin("t"), s.commit("t"), s.poll((1, "y"), start=1)
    ),
    "after an unknown outcome it goes on": lambda s: (
        s.poll((0, "x"), txn="t"), s.begin("t"), s.commit("t", ok=None), s.poll((1, "y"), start=1)
    ),
    "after an unknown outcome it begins again": lambda s: (
        s.poll((0, "x"), txn="t"), s.begin("t"), s.commit("t", ok=None), s.poll((0, "x"))
    ),
    "what an earlier transaction committed does not come again with a later one": lambda s: (
        s.poll((0, "x"), txn="t"), s.begin("t"), s.send("out", txn="t", place=OUT), s.commit("t", ok=None),
        s.poll((0, "x"), txn="u"), s.begin("u"), s.abort("u"), s.poll((1, "y"), start=1),
        s.final((0, "out"), place=OUT),
    ),
    "a group has done what it commits": lambda s: (s.poll((0, "x"), group="g"), s.plain(1), s.stands(1, "final")),
    "the end is where fetches say it is": lambda s: (s.listed(-1, 2), s.listed(-2, 0), s.listed(-1, 2, False)),
    "what is resumed is given again": lambda s: (s.pauses(), s.pauses(again=True), s.poll((0, "x"))),
    "another consumer has not paused": lambda s: (s.pauses(client="other"), s.poll((0, "x"))),
    "a second producer is refused": lambda s: (s.begin("t"), s.claimed("t", begun=False), s.abort("t")),
    "a member that is not polled leaves": lambda s: s.left_behind(1_500),
    "a client gave up and said so": lambda s: s.finish("read to the end", ok=False),
}  # fmt: skip


@pytest.mark.parametrize("what", GOOD_SDK)
def test_the_checker_accepts_a_correct_consumers_history(what):
    story = Story()
    golden_clients.written(story, "x", "y")
    story.read((0, "x"), (1, "y")), GOOD_SDK[what](story)
    story.final((0, "x"), (1, "y")), story.finish("all")
    assert story.anomalies == set()


@pytest.mark.parametrize(
    "tell", [golden_connections.in_order, golden_connections.it_deletes_and_asks_where_its_log_begins]
)
def test_the_checker_accepts_a_client_that_sees_its_own_earlier_requests(tell):
    story = Story()
    tell(story)
    assert story.anomalies == set()


@pytest.mark.parametrize("tell", [golden_trims.deleted_and_read_on, golden_trims.deleted_to_its_end])
def test_the_checker_accepts_missing_records_below_a_delete_records_offset(tell):
    story = Story()
    tell(story)
    assert story.anomalies == set()


@pytest.mark.parametrize("tell", golden_named.GOOD)
def test_the_checker_accepts_correct_named_producers(tell):
    story = Story()
    tell(story)
    assert story.anomalies == set()


@pytest.mark.parametrize("tell", golden_mirrors.GOOD)
def test_the_checker_accepts_a_correct_mirror(tell):
    story = Story()
    tell(story)
    assert story.anomalies == set()


@pytest.mark.parametrize("tell", golden_limits.GOOD)
def test_the_checker_accepts_requests_refused_because_of_a_broker_limit(tell):
    story = Story()
    tell(story)
    assert story.anomalies == set()


@pytest.mark.parametrize("tell", golden_groups.GOOD)
def test_the_checker_accepts_correct_group_members(tell):
    story = Story()
    tell(story)
    assert story.anomalies == set()


@pytest.mark.parametrize("tell", golden_cleanups.GOOD)
def test_the_checker_accepts_the_loss_of_records_deleted_by_retention_or_compaction(tell):
    story = Story()
    tell(story)
    assert story.anomalies == set()


@pytest.mark.parametrize("tell", golden_shares.GOOD)
def test_the_checker_accepts_a_correct_share_groups_history(tell):
    story = Story()
    tell(story)
    assert story.anomalies == set()


def test_the_checker_accepts_a_rewind_that_skips_offsets_without_records():
    story = Story()
    story.send("x", at=1), story.begin("t"), story.poll((1, "x"), txn="t"), story.abort("t")
    story.poll((1, "x"), start=1), story.final((1, "x"))
    assert story.anomalies == set()


def test_the_checker_accepts_stale_reads_only_while_the_broker_taken_over_from_lives():
    story = Story()
    story.begin("t"), story.send("x", txn="t")
    before = story.history.invoke("broker", Outlived())
    story.commit("t"), story.read(lso=0, hw=1)
    before.ok()
    assert story.anomalies == set()
    story.read(lso=0, hw=1)
    assert story.anomalies == {"late commit"}


def test_the_checker_accepts_an_lso_that_does_not_advance_while_no_broker_runs():
    story = Story()
    story.begin("t"), story.send("x", txn="t"), story.read(lso=0, hw=1), story.passes(2000)
    read = story.read(lso=0, hw=1)
    story.restart(), story.beside(read)
    story.commit("t"), story.read((0, "x"), upto=2)
    assert story.anomalies == set()


def test_the_checker_accepts_an_lso_stall_only_while_the_store_fails():
    story = Story()
    story.begin("t"), story.send("x", txn="t"), story.read(lso=0, hw=1), story.passes(900)
    story.store_fails(2000), story.passes(50), story.read(lso=0, hw=1)
    assert story.anomalies == set()
    story.passes(100), story.read(lso=0, hw=1)
    assert story.anomalies == {"LSO stall"}


@pytest.mark.sampled
def test_the_checker_accepts_hundreds_of_random_correct_histories():
    for seed in range(SEEDS):
        history = good_history(random.Random(seed))
        assert check(history) == [], f"seed {seed}"


def test_the_checker_accepts_a_visible_transaction_with_an_unknown_outcome():
    story = Story()
    story.begin("t"), story.send("x", txn="t", ok=None), story.commit("t", ok=None)
    story.read((0, "x"), upto=2)
    assert story.anomalies == set()


def test_histories_of_one_seed_have_equal_digests_and_of_two_seeds_different_ones():
    assert good_history(random.Random(5)).digest() == good_history(random.Random(5)).digest()
    assert good_history(random.Random(5)).digest() != good_history(random.Random(6)).digest()


@pytest.mark.parametrize(
    "tell",
    [
        golden_rights.rights_come_and_go,
        golden_rights.a_change_that_is_not_acknowledged,
        golden_rights.members_are_given_what_they_may_read,
    ],
)
def test_the_checker_accepts_histories_whose_requests_all_agree_with_the_acls(tell):
    story = Story()
    tell(story)
    assert story.anomalies == set()
