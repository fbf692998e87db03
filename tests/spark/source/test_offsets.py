"""Offsets of a query: each record is read once, whatever Spark repeats, and loss is reported only if there is some."""

import json
from itertools import pairwise

import pytest
from fencepost.client.errors import InvalidConfigurationError
from fencepost.client.values import TopicPartition
from fencepost.spark.source.offsets import (
    Limits,
    Log,
    Position,
    Range,
    Seen,
    begins_of,
    from_json,
    id_text,
    initial,
    limit,
    new_records,
    plan_batch,
    ranges,
    split,
    to_json,
    up_to,
)
from hypothesis import given
from hypothesis import strategies as st

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
partitions = st.builds(TopicPartition, st.sampled_from(["t", "u", "_fp"]), st.integers(0, 12))
offsets = st.dictionaries(partitions, st.integers(0, 2**62), max_size=6)
ids = st.dictionaries(st.sampled_from(["t", "u"]), st.text("abc", min_size=1, max_size=3))


def seen(ids=None, **logs):
    """Return the state of some topics. logs: t0=(start, last stable offset) is partition t-0; a third number is its
    high watermark, if that differs.
    """
    found = {
        TopicPartition(key[0], int(key[1:])): Log(*each, *([each[1]] * (3 - len(each)))) for key, each in logs.items()
    }
    return Seen(found, ids or {})


def through_spark(position):
    """Return the position after a way through the JSON text in which Spark keeps it."""
    return from_json(json.loads(json.dumps(to_json(position))))


# ---- JSON ----------------------------------------------------------------------------------------------------------


@given(st.builds(Position, offsets, ids, offsets, st.booleans()))
def test_a_source_position_read_back_from_json_is_equal_and_has_the_same_json(position):
    text = json.dumps(to_json(position))
    again = from_json(json.loads(text))
    assert again == position
    assert json.dumps(to_json(again)) == text


@given(offsets)
def test_offsets_json_does_not_depend_on_the_order_of_partitions(found):
    turned = Position(dict(reversed(found.items())))
    assert json.dumps(to_json(turned)) == json.dumps(to_json(Position(found)))


def test_from_json_reads_the_offsets_json_of_sparks_own_kafka_source():
    assert from_json({"t": {"1": 5, "0": 4}}) == Position({T0: 4, T1: 5})


@pytest.mark.parametrize("wrong", [{"t": 5}, {"t": {"x": 5}}, {"t": {"0": None}}, {"@fencepost": 3}])
def test_reading_malformed_offsets_json_raises_invalid_configuration_error(wrong):
    with pytest.raises(InvalidConfigurationError):
        from_json(wrong)


def test_offsets_json_of_a_newer_format_raises_invalid_configuration_error():
    with pytest.raises(InvalidConfigurationError, match="newer"):
        from_json({"@fencepost": {"v": 2}, "t": {"0": 1}})


def test_topic_ids_are_written_as_kafkas_tools_print_them():
    assert id_text(bytes(16)) == ""
    assert id_text(bytes(range(16))) == "AAECAwQFBgcICQoLDA0ODw"


# ---- planning ------------------------------------------------------------------------------------------------------


def test_after_a_restart_the_first_batch_reads_the_range_that_was_planned_before():
    end, lost = plan_batch(initial({T0: 7}, {"t": "a"}), seen({"t": "a"}, t0=(0, 9)))
    assert (end.offsets, end.starts, end.is_initial, lost) == ({T0: 9}, {T0: 7}, False, [])
    later = initial({T0: 30}, {"t": "a"})  # Spark asks again after a restart, and the log has grown
    found, lost = ranges(through_spark(later), through_spark(end), seen({"t": "a"}, t0=(0, 30)))
    assert (found, lost) == ([Range("t", 0, 7, 9, "a")], [])


def test_only_the_end_offset_of_a_streams_first_batch_contains_its_starting_offsets():
    first, _ = plan_batch(initial({T0: 7}, {}), seen(t0=(0, 7)))
    assert first.starts == {T0: 7}
    same, _ = plan_batch(first, seen(t0=(0, 7)))
    assert same is first, "without new records the position stays the same"
    second, _ = plan_batch(first, seen(t0=(0, 8)))
    assert (second.offsets, second.starts) == ({T0: 8}, {})


def test_a_batch_planned_when_the_log_ends_below_its_start_is_empty():
    start = Position({T0: 7})
    assert plan_batch(start, seen(t0=(0, 5, 9))) == (start, [])


def test_the_end_offset_records_that_an_added_partition_is_read_from_its_start():
    end, lost = plan_batch(Position({T0: 5}), seen(t0=(0, 5), t1=(0, 3)))
    assert (end.offsets, end.starts, lost) == ({T0: 5, T1: 3}, {T1: 0}, [])
    assert ranges(Position({T0: 5}), end, seen(t0=(0, 5), t1=(0, 9)))[0] == [Range("t", 1, 0, 3)]


def test_deleted_first_records_are_loss_in_an_added_partition_not_in_a_new_topic():
    assert "added" in begins_of(Position({T0: 5}), seen(t0=(0, 5), t1=(2, 3)))[1][0]
    assert begins_of(Position({T0: 5}), seen(t0=(0, 5), u0=(2, 3))) == ({T0: 5, U0: 2}, [])


def test_a_recreated_topic_is_loss_even_if_it_has_grown_past_the_old_offset():
    start = Position({T0: 5}, {"t": "old"})
    end, lost = plan_batch(start, seen({"t": "new"}, t0=(0, 9)))
    assert "created again" in lost[0]
    assert (end.offsets, end.starts, end.ids) == ({T0: 9}, {T0: 0}, {"t": "new"}), "what is read where loss is allowed"
    nothing_read, lost = plan_batch(Position({T0: 0}, {"t": "old"}), seen({"t": "new"}, t0=(0, 0)))
    assert nothing_read.ids == {"t": "new"}
    assert "created again" in lost[0]


def test_a_batch_planned_before_its_topic_was_recreated_reads_no_new_record():
    end = Position({T0: 9}, {"t": "old"})
    found, lost = ranges(Position({T0: 5}, {"t": "old"}), end, seen({"t": "new"}, t0=(0, 20)))
    assert found == []
    assert "created again" in lost[0]


def test_a_batch_that_ends_in_a_recreated_topic_reports_loss_and_reads_from_0():
    """Spark 4.1 plans like this after a restart: the end offset is known, but was computed without the query's
    position.
    """
    start = Position({T0: 50}, {"t": "old"})
    for end in (7, 50, 60):
        found, lost = ranges(start, Position({T0: end}, {"t": "new"}), seen({"t": "new"}, t0=(0, end)))
        assert found == [Range("t", 0, 0, end, "new")]
        assert len(lost) == 1
        assert "created again" in lost[0]


def test_a_position_above_the_high_watermark_is_data_loss_and_one_above_the_lso_not():
    found, lost = ranges(Position({T0: 50}), Position({T0: 7}), seen(t0=(0, 7)))
    assert not found
    assert len(lost) == 1
    assert "ends at offset 7" in lost[0]
    assert ranges(Position({T0: 9}), Position({T0: 7}), seen(t0=(0, 7, 9))) == ([], [])


def test_if_old_or_new_topic_id_is_unknown_a_topic_is_the_same_by_its_name():
    assert plan_batch(Position({T0: 5}), seen({"t": "new"}, t0=(0, 9)))[1] == []
    end, _ = plan_batch(Position({T0: 5}, {"t": "a"}), seen(t0=(0, 9)))
    assert end.ids == {"t": "a"}, "an id that is known is not forgotten"


def test_loss_is_reported_if_the_log_starts_later_or_ends_before_the_position():
    _, lost = begins_of(Position({T0: 5}), seen(t0=(8, 9)))
    assert "from offset 5 to 7 were deleted" in lost[0]
    begins, lost = begins_of(Position({T0: 15}, {"t": "a"}), seen({"t": "a"}, t0=(0, 9)))
    assert ("ends at offset 9" in lost[0], begins) == (True, {T0: 9})
    begins, lost = begins_of(Position({T0: 15}), seen(t0=(2, 9)))
    assert ("ends at offset 9" in lost[0], begins) == (True, {T0: 2})
    assert begins_of(Position({T0: 8}), seen(t0=(8, 8)))[1] == []
    assert "t-0 does not exist any more" in begins_of(Position({T0: 15}), seen())[1][0]


def test_the_remaining_records_of_a_partly_deleted_range_are_read():
    found, lost = ranges(Position({T0: 5}), Position({T0: 10}), seen(t0=(7, 20)))
    assert (found, len(lost)) == ([Range("t", 0, 7, 10)], 1)
    found, lost = ranges(Position({T0: 5}), Position({T0: 10}), seen(t0=(0, 8)))
    assert (found, len(lost)) == ([Range("t", 0, 5, 8)], 1)
    assert ranges(Position({T0: 10}), Position({T0: 10}), seen()) == ([], [])


def test_an_available_now_run_plans_no_offsets_or_partitions_beyond_its_target():
    target = {T0: 5}
    end, _ = plan_batch(Position({T0: 3}), up_to(seen(t0=(0, 9), t1=(0, 4)), target))
    assert end.offsets == {T0: 5}
    assert plan_batch(end, up_to(seen(t0=(0, 99), t1=(0, 4)), target))[0] is end
    assert new_records(end, up_to(seen(t0=(0, 99)), target)) == 0


sizes = st.dictionaries(partitions, st.integers(0, 10**7), max_size=8)


@given(sizes, st.none() | st.integers(1, 10**6), st.none() | st.integers(1, 10**9), st.floats(0.5, 5000))
def test_a_limited_batch_exceeds_its_limit_by_at_most_one_record_per_partition(sizes, most, most_bytes, weight):
    begins = {tp: tp.partition * 1000 for tp in sizes}
    latest = {tp: begins[tp] + size for tp, size in sizes.items()}
    density = dict.fromkeys(sizes, weight)
    ends = limit(begins, latest, Limits(most, most_bytes), density)
    taken = {tp: ends[tp] - begins[tp] for tp in sizes}
    assert all(0 <= taken[tp] <= size and (taken[tp] > 0) == (size > 0) for tp, size in sizes.items())
    if most is not None:
        assert sum(taken.values()) <= most + len(sizes)
    if most_bytes is not None:
        assert sum(taken.values()) * weight <= most_bytes * 1.0001 + weight * len(sizes)
    if most is None and most_bytes is None:
        assert ends == latest


whole_ranges = st.lists(
    st.tuples(partitions, st.integers(0, 10**6), st.integers(1, 10**6)), max_size=6, unique_by=lambda each: each[0]
).map(lambda each: [Range(tp.topic, tp.partition, at, at + size) for tp, at, size in each])


@given(
    whole_ranges,
    st.none() | st.integers(1, 50),
    st.none() | st.integers(20_000, 10**6),
    st.none() | st.integers(10**6, 10**9),
)
def test_splits_of_random_ranges_cover_each_offset_once_within_their_limits(whole, least, most, most_bytes):
    density = {each.topic_partition: 100.0 for each in whole}
    found = split(whole, min_partitions=least, max_records=most, max_bytes=most_bytes, density=density)
    assert found == sorted(found, key=lambda each: (-each.size, each))
    for each in whole:
        mine = sorted(one for one in found if one.topic_partition == each.topic_partition)
        assert (mine[0].start, mine[-1].end) == (each.start, each.end)
        assert all(before.end == after.start for before, after in pairwise(mine))
        assert all(0 < one.size <= (most or each.size) for one in mine)
        assert all(one.size * 100 <= (most_bytes or 10**9) + 100 for one in mine)
    if least is None and most is None and most_bytes is None:
        assert len(found) == len(whole)


def test_min_partitions_splits_ranges_in_proportion_to_their_size():
    found = split([Range("t", 0, 0, 900), Range("t", 1, 0, 100)], min_partitions=10)
    assert [each.partition for each in found].count(0) == 9
    assert split([Range("t", 0, 0, 2)], min_partitions=10) == [Range("t", 0, 0, 1), Range("t", 0, 1, 2)]


# ---- a query whose driver is killed --------------------------------------------------------------------------------


# "die before": Spark is killed before it plans a batch; "die planned": after it has stored the batch's end; "die done":
# after the batch has run, before Spark has stored that. The numbers choose a partition and how many records it gets.
steps = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "add", "batch", "batch", "die before", "die planned", "die done"]),
        st.integers(0, 3),
        st.integers(1, 40),
    ),
    max_size=40,
)


@given(steps, st.sampled_from(["earliest", "latest"]), st.none() | st.integers(1, 30))
def test_each_record_is_read_by_exactly_one_batch_however_often_spark_restarts(steps, begin, most):
    logs = {T0: 10}
    kept, done = [], 0  # the end offsets that Spark has stored, and how many batches are done
    read = {}  # batch → what it read when it ran last
    first = None

    def now():
        return Seen({tp: Log(0, end, end) for tp, end in logs.items()}, {"t": "a"})

    def begun():
        return through_spark(initial({tp: 0 if begin == "earliest" else end for tp, end in logs.items()}, {"t": "a"}))

    opening = begun()
    for what, which, count in steps:
        if what == "write":
            tp = sorted(logs)[which % len(logs)]
            logs[tp] += count
        elif what == "add":
            logs[TopicPartition("t", len(logs))] = count
        elif what == "die before":
            opening = begun() if len(kept) == 0 or (len(kept) == 1 and done == 0) else opening
        else:
            start = kept[-1] if done == len(kept) and kept else (kept[-2] if len(kept) > 1 else opening)
            if done == len(kept):
                end = through_spark(plan_batch(start, now(), Limits(most))[0])
                if kept and to_json(end) == to_json(start):
                    continue
                first = first or end.starts
                kept.append(end)
            if what == "die planned":
                if done == 0:
                    opening = begun()  # Spark asks again, and gets the present end of the log
                continue
            found, lost = ranges(start, kept[-1], now())
            assert not lost
            again = read.setdefault(len(kept), found)
            assert again == found, "a batch that runs again reads the same"
            if what != "die done":
                done += 1
            elif done == 0:
                opening = begun()
    offsets = [(r.topic, r.partition, o) for each in read.values() for r in each for o in range(r.start, r.end)]
    assert len(offsets) == len(set(offsets)), "nothing twice"
    if kept and done == len(kept):
        begins = dict.fromkeys(kept[-1].offsets, 0) | dict(first)
        wanted = {(*tp, o) for tp, end in kept[-1].offsets.items() for o in range(begins[tp], end)}
        assert set(offsets) == wanted, "nothing left out"
