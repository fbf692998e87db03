"""Keys go where Kafka's own clients put them."""

import confluent_kafka
import pytest
from fencepost.client.partitioner import murmur2, next_sticky, partition_of

VECTORS = {  # of Kafka's UtilsTest
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", VECTORS)
def test_murmur2_gives_what_kafka_gives(key):
    assert murmur2(key) == VECTORS[key] & 0xFFFFFFFF


def test_partitions_are_those_of_librdkafka():
    for size in range(40):
        key = bytes((7 * n + size) & 255 for n in range(size))
        for partitions in (1, 7, 12, 100):
            assert partition_of(key, partitions) == confluent_kafka.murmur2(key, partitions)


def test_records_without_a_key_move_on_to_another_partition_if_there_is_one():
    assert {next_sticky(1, [0, 1, 2], chance) for chance in range(4)} == {0, 2}
    assert next_sticky(0, [0], 5) == 0
    assert next_sticky(-1, [4], 0) == 4
