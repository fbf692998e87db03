"""Memory for runs is limited, and a share partition with few runs does not wait for those with many."""

import pytest
from fencepost.broker.share.memory import RUN_BYTES, RunMemory
from fencepost.broker.share.values import SharePartitionKey
from hypothesis import given
from hypothesis import strategies as st

MAX_BYTES = 100 * RUN_BYTES
TOPIC = bytes(16)


def key(group: str, partition: int = 0) -> SharePartitionKey:
    return SharePartitionKey(group, TOPIC, partition)


keys = st.builds(key, st.sampled_from("abc"), st.integers(0, 3))


@pytest.mark.slow
@given(st.lists(st.tuples(keys, st.integers(0, 300)), max_size=30))
def test_memory_of_runs_is_counted_over_all_share_partitions_and_divided_among_them(
    counts: list[tuple[SharePartitionKey, int]],
):
    """A run is consecutive records in the same state. Each share partition may always use its portion of the memory
    limit; all portions together are at most the limit.
    """
    memory, runs = RunMemory(), dict[SharePartitionKey, int]()
    for each, count in counts:
        memory.count(each, count)
        runs[each] = count
    assert memory.size_bytes == RUN_BYTES * sum(runs.values())
    having = [each for each, count in runs.items() if count]
    assert sum(memory.part_bytes(each, MAX_BYTES) for each in having) <= MAX_BYTES
    if having:
        fewest = min(having, key=lambda each: runs[each] * RUN_BYTES / max(1, memory.part_bytes(each, MAX_BYTES)))
        assert memory.has_room(fewest, MAX_BYTES) or runs[fewest] * RUN_BYTES > memory.part_bytes(fewest, MAX_BYTES)
    for each in runs:
        memory.count(each, 0)
    assert (memory.size_bytes, memory.part_bytes(key("a"), MAX_BYTES)) == (0, MAX_BYTES)


@given(st.lists(st.tuples(keys, st.integers(1, 300)), max_size=30))
def test_a_share_partition_without_runs_may_add_one_whatever_memory_others_use(
    counts: list[tuple[SharePartitionKey, int]],
):
    """A run is consecutive records in the same state."""
    memory = RunMemory()
    for each, count in counts:
        memory.count(each, count)
    assert memory.has_room(key("another"), MAX_BYTES)
    assert memory.has_room(key("a", 9), MAX_BYTES)


def test_above_the_memory_limit_a_share_partition_has_room_up_to_its_own_portion():
    """The limit is divided equally among the groups, and what a group has among its share partitions."""
    memory = RunMemory()
    memory.count(key("a", 0), 95)
    memory.count(key("b", 0), 1)
    assert memory.has_room(key("a"), MAX_BYTES), "together they are below the limit"
    memory.count(key("a", 1), 4)
    assert memory.part_bytes(key("a"), MAX_BYTES) == 25 * RUN_BYTES
    assert memory.part_bytes(key("b"), MAX_BYTES) == 50 * RUN_BYTES
    assert [memory.has_room(key(*each), MAX_BYTES) for each in (("a", 0), ("a", 1), ("b", 0))] == [False, True, True]
    assert [memory.has_room(key("b"), MAX_BYTES, more) for more in (49, 50)] == [True, False]
    assert memory.has_room(key("a"), MAX_BYTES, 1, 2), "below twice the limit"
