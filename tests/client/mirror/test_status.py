"""The status of a mirror from two looks."""

import pytest
from fencepost.client.mirror.status import Look, topics_of
from fencepost.client.values import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def look(positions, ends, stopped=None):
    return Look(positions, dict.fromkeys(ends, 0), ends, stopped or {}, {})


@pytest.mark.parametrize(
    ("before", "after", "ends", "state", "lag", "rate", "left"),
    [
        ({A0: 0}, {A0: 10}, {A0: 10}, "copied", 0, 5.0, 0.0),
        ({A0: 0}, {A0: 10}, {A0: 20}, "copying", 10, 5.0, 2.0),
        ({A0: 10}, {A0: 10}, {A0: 20}, "waiting", 10, 0.0, None),
        ({A0: 10}, {A0: 10}, {A0: 20, A1: 5}, "waiting", 15, 0.0, None),
        ({}, {A0: 10}, {A0: 20}, "waiting", 10, 0.0, None),  # nobody knows since when
    ],
)
def test_a_mirrored_topics_state_and_time_left_follow_from_its_lag_and_rate(
    before, after, ends, state, lag, rate, left
):
    (found,) = topics_of(look(before, ends), look(after, ends), 2)
    assert (found.state, found.lag, found.rate, found.left_s) == (state, lag, rate, left)


def test_the_status_of_a_stopped_mirror_has_its_reason_though_its_topic_is_gone():
    (a, b) = topics_of(look({A0: 1, B0: 1}, {A0: 1}), look({A0: 1, B0: 1}, {A0: 1}, {B0: "it is gone"}), 1)
    assert (a.state, b.state) == ("copied", "stopped")
    assert b.stopped == {0: "it is gone"}
