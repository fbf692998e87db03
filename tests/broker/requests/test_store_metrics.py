"""Metrics of a journal in a store of objects: whose epoch it is, and whether the store answers."""

from fencepost.broker.ownership.owner import InStore
from fencepost.effects.simulated.objects import SimulatedObjects
from fencepost.protocol.messages.monitoring import DescribeMetricsRequest
from fencepost.storage.objects.format import WAITING
from simulated_broker import SimulatedBroker

STATES = ("epoch", "troubled", "congested", "unanswered_seconds")


def exported(world):
    answer = world.ask(DescribeMetricsRequest())
    found = {family.name: [each.value for each in family.samples] for family in answer.families}
    prefix = "fencepost_store_"
    return {name.removeprefix(prefix): values for name, values in found.items() if name.startswith(prefix)}


def ended(world):
    """Return how many calls to the store have ended, by (call, kind of object, how)."""
    families = world.ask(DescribeMetricsRequest()).families
    calls = next(family for family in families if family.name == "fencepost_store_calls_total")
    return {tuple(each.labels): each.value for each in calls.samples}


def test_a_broker_with_its_journal_on_disk_exports_no_object_store_metrics():
    with SimulatedBroker() as world:
        found = exported(world)
        assert set(found) == {*STATES, "calls_total", "call_duration_seconds"}
        assert not any(found.values())


def test_object_store_metrics_show_the_epoch_and_whether_the_store_is_reachable():
    objects = SimulatedObjects()
    with SimulatedBroker(in_store=InStore(objects, lambda seconds: None)) as world:
        found = exported(world)
        assert {name: found[name] for name in STATES} == {
            "epoch": [1],
            "troubled": [0],
            "congested": [0],
            "unanswered_seconds": [0],
        }
        assert sum(found["calls_total"]) >= 1
        objects.is_away = True
        world.wait(5)
        found = exported(world)
        assert found["troubled"] == [1]
        assert found["unanswered_seconds"][0] > 0
        objects.is_away = False
        world.wait(5)
        found = exported(world)
        assert found["troubled"] == found["unanswered_seconds"] == [0]


def test_object_store_metrics_count_what_an_owner_asks_about_brokers_that_wait():
    """The owner lists their objects each 12 s, and each listing costs as much as a PUT."""
    objects = SimulatedObjects()
    with SimulatedBroker(in_store=InStore(objects, lambda seconds: None)) as world:
        world.wait(30)
        listings = [name for call, name in objects.calls if (call, name) == ("list", WAITING)]
        assert len(listings) >= 3
        assert ended(world)["list", "standby", "done"] == len(listings)
