"""Topics that grow, shrink because they were made again, or lose leaders, while a producer writes to them."""

import pytest
from fencepost.client.partitioner import partition_of
from fencepost.effects.simulated.loop import SimulatedLoop
from scripted_cluster import ScriptedCluster

IDS = [bytes(range(16)), bytes(range(1, 17))]
NO_ID = bytes(16)


@pytest.fixture
def world():
    loop = SimulatedLoop()
    yield lambda **more: ScriptedCluster(loop, **more)
    loop.close()


def partitions_of_keys(cluster):
    """Append records with 20 different keys. Returns the partition of each."""
    keys = [b"%d" % number for number in range(20)]
    placed = cluster.inside(lambda: [cluster.append(None, key=key) for key in keys])
    return [batch.partition.index for batch, _ in placed]


@pytest.mark.parametrize("ids", [IDS, [NO_ID, NO_ID]], ids=["with topic ids", "without"])
def test_keys_are_hashed_over_the_fewer_partitions_of_a_recreated_topic(world, ids):
    cluster = world(leaders=(1,) * 8, topic_id=ids[0])
    cluster.lead((1,) * 8, ids[0])
    cluster.lead((1, 1), ids[1])
    assert partitions_of_keys(cluster) == [partition_of(b"%d" % number, 2) for number in range(20)]


def test_metadata_with_fewer_partitions_of_the_same_topic_id_is_ignored(world):
    cluster = world(leaders=(1,) * 8, topic_id=IDS[0])
    cluster.lead((1,) * 8, IDS[0])
    cluster.lead((1,) * 4, IDS[0])
    assert partitions_of_keys(cluster) == [partition_of(b"%d" % number, 8) for number in range(20)]


@pytest.mark.parametrize("leaders", [(1, 1), (None, None, 1, 1, None, None, None, None)], ids=["gone", "no leader"])
def test_keyless_records_leave_a_partition_that_was_removed_or_has_no_leader(world, leaders):
    for partition in range(8):
        cluster = world(leaders=(1,) * 8, topic_id=IDS[0])
        cluster.topic.sticky = cluster.topic.partitions[partition]
        cluster.lead(leaders, IDS[1])
        batch, _ = cluster.inside(cluster.append, None)
        assert batch.partition.index < len(leaders)
        assert leaders[batch.partition.index] == 1
