"""Metrics of a journal in a store of objects: whose epoch it is, and whether the store answers."""

from fencepost.broker.ownership.owner import InStore
from fencepost.effects.simulated.objects import SimulatedObjects
from fencepost.protocol.messages.monitoring import DescribeMetricsRequest
from simulated_broker import SimulatedBroker


def exported(world):
    answer = world.ask(DescribeMetricsRequest())
    found = {family.name: [each.value for each in family.samples] for family in answer.families}
    prefix = "fencepost_store_"
    return {name.removeprefix(prefix): values for name, values in found.items() if name.startswith(prefix)}


def test_a_broker_with_its_journal_on_disk_exports_no_object_store_metrics():
    with SimulatedBroker() as world:
        found = exported(world)
        assert set(found) == {"epoch", "troubled", "congested"}
        assert not any(found.values())


def test_object_store_metrics_show_the_epoch_and_whether_the_store_is_reachable():
    objects = SimulatedObjects()
    with SimulatedBroker(in_store=InStore(objects, lambda seconds: None)) as world:
        assert exported(world) == {"epoch": [1], "troubled": [0], "congested": [0]}
        objects.is_away = True
        world.wait(5)
        assert exported(world)["troubled"] == [1]
        objects.is_away = False
        world.wait(5)
        assert exported(world)["troubled"] == [0]
