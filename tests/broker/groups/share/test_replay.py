"""After every request of a workload a power cut leaves the same groups and share partitions, with snapshots or without.

What a group begins, changes and ends is in one unit of the journal with its share partitions, so no cut leaves one
without the other.
"""

import pytest
from fencepost.protocol.messages.groups import DeleteGroupsRequest
from group_client import begin
from produce_requests import batch, create, produce
from share_group_requests import beat, delete_topic, grow, kept_of_share_groups
from simulated_broker import SimulatedBroker


def workload(broker):
    """Yield after each step in the lives of some groups, once its requests are answered."""
    ask = broker.ask
    yield ask(create("t", 2)), ask(create("u", 1)), ask(produce("t", batch(3)))
    yield beat(broker, "m-1", 0)
    yield beat(broker, "m-2", 0, topics=("t", "u"))
    yield beat(broker, "m-1", 3)
    yield beat(broker, "m-1", 0, "other", topics=("u",))
    yield ask(grow("t", 4))
    broker.wait(2)
    yield beat(broker, "m-1", 3)
    yield ask(delete_topic("u"))
    yield beat(broker, "m-2", -1)
    yield ask(create("u", 1))
    broker.wait(2)
    yield beat(broker, "m-1", 2, "other")
    yield beat(broker, "m-1", -1, "other")
    yield ask(DeleteGroupsRequest(groups_names=["other"]))
    broker.wait(50)  # the session of m-1 ends
    yield beat(broker, "m-3", 0)


@pytest.mark.slow
@pytest.mark.parametrize("snapshots", [(), (4, 9)], ids=["no snapshots", "snapshots"])
@pytest.mark.requirement("S-128")
def test_share_groups_and_their_partitions_survive_a_power_cut(snapshots):
    with begin() as broker:
        for number, _ in enumerate(workload(broker)):
            if number in snapshots:
                broker.loop.run_until_complete(broker.broker.coordinator_snapshots.take())
            expected = kept_of_share_groups(broker)
            with SimulatedBroker(broker.settings, disk=broker.disk.after_power_cut()) as again:
                assert kept_of_share_groups(again) == expected, number
        groups, share_partitions = expected
        assert {name: len(each) for name, each in groups.items()} == {"g": 6}
        assert {key[2] for key in share_partitions} == {0, 1, 2, 3}
