"""Keys go where Kafka's own clients put them."""

import confluent_kafka
import pytest
from fencepost.client.partitioner import murmur2, next_sticky, partition_of, placing_of

VECTORS = {  # of Kafka's UtilsTest
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", VECTORS)
def test_murmur2_gives_kafkas_hashes(key):
    assert murmur2(key) == VECTORS[key] & 0xFFFFFFFF


def test_partition_of_a_key_equals_librdkafkas_murmur2_partition():
    for size in range(40):
        key = bytes((7 * n + size) & 255 for n in range(size))
        for partitions in (1, 7, 12, 100):
            assert partition_of(key, partitions) == confluent_kafka.murmur2(key, partitions)


def test_next_sticky_chooses_another_partition_with_a_leader_if_there_is_one():
    assert {next_sticky(1, [0, 1, 2], chance) for chance in range(4)} == {0, 2}
    assert next_sticky(0, [0], 5) == 0
    assert next_sticky(-1, [4], 0) == 4


KEYS = [bytes((7 * n + size) & 255 for n in range(size)) for size in range(40)]


@pytest.mark.parametrize("name", ["murmur2", "consistent", "fnv1a"])
@pytest.mark.parametrize("ending", ["", "_random"])
def test_named_partitioners_choose_the_same_partitions_as_librdkafka(name, ending):
    place = placing_of(name + ending, lambda: 0) or (lambda key, count, available: partition_of(key, count))
    for key in KEYS[1:]:
        for count in (1, 7, 12, 100):
            assert place(key, count, range(count)) == getattr(confluent_kafka, name)(key, count)


def test_partitioners_not_named_random_place_null_keys_like_empty_ones():
    """Those with `random` in their names return None for a null key: the producer then chooses the partition. An empty
    key is placed at random by consistent_random, and by its hash by fnv1a_random.
    """
    for name in ("murmur2", "consistent", "fnv1a"):
        place = placing_of(name, lambda: 5)
        assert place(None, 12, range(12)) == place(b"", 12, range(12)) == getattr(confluent_kafka, name)(b"", 12)
        if name != "murmur2":
            assert placing_of(name + "_random", lambda: 5)(None, 12, range(12)) is None
    assert placing_of("consistent_random", lambda: 5)(b"", 12, range(12)) == 5
    assert placing_of("fnv1a_random", lambda: 5)(b"", 12, range(12)) == confluent_kafka.fnv1a(b"", 12)
    assert placing_of("random", lambda: 5)(b"key", 12, [1, 2, 3]) == 3
    assert placing_of("random", lambda: 5)(None, 12, [1, 2, 3]) is None
