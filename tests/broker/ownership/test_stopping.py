"""A broker on a store of objects that is stopped while it copies much: the rest would take longer than a stop may."""

import pytest
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.ownership import owner
from fencepost.broker.ownership.calls import StoppedWaiting
from fencepost.broker.ownership.owner import InStore
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.objects import SimulatedObjects
from fencepost.protocol.errors import ErrorCode
from fencepost.storage.objects.epochs import MANY
from fencepost.storage.shipping import planning
from fencepost.storage.shipping.names import PARTS
from fencepost.storage.shipping.shipper import THREADS
from produce_requests import answers, batch, create, produce
from simulated_broker import SimulatedBroker

OK = ErrorCode.NONE
SETTINGS = BrokerSettings(offsets_topic_num_partitions=1, transaction_state_log_num_partitions=1)


def serve(objects: SimulatedObjects, disk: SimulatedDisk | None = None) -> SimulatedBroker:
    return SimulatedBroker(SETTINGS, disk=disk, in_store=InStore(objects.client(), lambda seconds: None))


@pytest.fixture
def small_parts(monkeypatch):
    """A few thousand bytes are many parts of a checkpoint."""
    monkeypatch.setattr(planning, "LARGE_BYTES", 100)
    monkeypatch.setattr(planning, "PART_BYTES", 100)


@pytest.mark.usefixtures("small_parts")
def test_an_owner_that_is_stopped_does_not_ship_the_rest_of_a_checkpoint():
    objects = SimulatedObjects()
    owner = serve(objects)
    owner.ask(create("t"))
    for _ in range(20):
        owner.ask(produce("t", batch(20)), 11)
    seen = owner.broker._in_store.objects

    def stop(call: str, name: str) -> None:
        if call == "create" and name.startswith(PARTS):
            owner.broker._owner.stop()

    seen.before_each = stop
    owner.wait(60)
    parts = [name for name in objects.content if name.startswith(PARTS)]
    assert 1 <= len(parts) <= 3 * THREADS  # only calls that had begun before the stop are still made
    owner.stop()


def test_an_owner_that_is_stopped_does_not_delete_the_rest_of_its_older_rounds():
    objects = SimulatedObjects()
    owner = serve(objects)
    owner.ask(create("t"))
    for _ in range(200):
        owner.ask(produce("t", batch(1)), 11)
    seen = owner.broker._in_store.objects
    deleted: list[str] = []

    def stop(call: str, name: str) -> None:
        if call == "delete":
            deleted.append(name)
            owner.broker._owner.stop()

    seen.before_each = stop
    for _ in range(4):
        owner.ask(produce("t", batch(1)), 11)
        owner.wait(35)
    assert 1 <= len(deleted) <= 2 * MANY  # only calls that had begun before the stop are still made
    owner.stop()


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("call", ["create", "read"], ids=["puts a directory into the store", "fetches a point"])
def test_a_broker_that_is_stopped_while_it_takes_over_copies_no_further(call, monkeypatch):
    objects = SimulatedObjects()
    first = serve(objects) if call == "read" else SimulatedBroker(SETTINGS)
    first.ask(create("t"))
    for _ in range(20):
        first.ask(produce("t", batch(20)), 11)
    first.wait(60)
    first.stop()
    owners = []
    open_it = owner.StoreOwner.open

    def opening(self, *given):
        owners.append(self)
        return open_it(self, *given)

    monkeypatch.setattr(owner.StoreOwner, "open", opening)
    seen = objects.client()
    copied = []

    def stop(each: str, name: str) -> None:
        if each == call and name.startswith(PARTS):
            copied.append(name)
            owners[0].stop()

    seen.before_each = stop
    with pytest.raises(StoppedWaiting):
        SimulatedBroker(
            SETTINGS,
            disk=first.disk if call == "create" else None,
            in_store=InStore(seen, lambda seconds: None),
        )
    assert 1 <= len(copied) <= 20  # far from all parts: only calls that had begun before the stop are still made
    again = serve(objects, first.disk)
    assert answers(again.ask(produce("t", batch(1)), 11)) == [(OK, 400)]
    again.stop()
