"""The checker itself: every bad history is named, no good one is."""

import random
import time
from collections import Counter

import pytest
from simulation.checker import check
from simulation.golden import GOLDEN
from simulation.good_histories import good_history
from simulation.story import Story

SEEDS = 1000


@pytest.mark.parametrize(("name", "tell"), GOLDEN, ids=lambda value: getattr(value, "__name__", None))
def test_a_bad_history_is_flagged(name, tell):
    story = Story()
    tell(story)
    assert name in story.anomalies


def test_every_class_has_two_bad_histories_and_there_are_sixty():
    counts = Counter(name for name, _ in GOLDEN)
    assert [name for name, count in counts.items() if count < 2] == []
    assert len(GOLDEN) >= 60


def test_a_thousand_good_histories_raise_no_alarm():
    began = time.process_time()
    for seed in range(SEEDS):
        history = good_history(random.Random(seed))
        assert check(history) == [], f"seed {seed}"
    assert time.process_time() - began < 20


def test_what_is_unknown_is_not_taken_for_failed():
    story = Story()
    story.begin("t"), story.send("x", txn="t", ok=None), story.commit("t", ok=None)
    story.read((0, "x"), upto=2)
    assert story.anomalies == set()


def test_equal_histories_have_equal_digests():
    assert good_history(random.Random(5)).digest() == good_history(random.Random(5)).digest()
    assert good_history(random.Random(5)).digest() != good_history(random.Random(6)).digest()
