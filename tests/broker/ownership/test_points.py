"""The points (checkpoints in the store) of an owner: when they count, and what is deleted because of them."""

import pytest
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.ownership.owner import InStore
from fencepost.effects.objects import Unclear
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.objects import SimulatedObjects
from produce_requests import batch, create, produce
from simulated_broker import SimulatedBroker

SETTINGS = BrokerSettings(offsets_topic_num_partitions=1, transaction_state_log_num_partitions=1)


def serve(objects: SimulatedObjects, disk: SimulatedDisk | None = None) -> SimulatedBroker:
    return SimulatedBroker(SETTINGS, disk=disk, in_store=InStore(objects.client(), lambda seconds: None))


def names(objects: SimulatedObjects, folder: str) -> list[str]:
    """Return the names in the store below this folder."""
    return [name for name in objects.content if name.startswith(f"0/{folder}/")]


@pytest.mark.slow
@pytest.mark.parametrize("lives", [1, 3])
def test_an_owner_without_new_units_deletes_its_heartbeats_and_what_came_before(lives):
    """Heartbeats are empty rounds of the journal. The only point (checkpoint in the store) is that of the start."""
    objects = SimulatedObjects()
    for _ in range(lives - 1):
        owner = serve(objects)
        owner.ask(create("t"))
        owner.wait(70)
        owner.abandon()
    owner = serve(objects)
    owner.wait(600)
    assert len(names(objects, "journal")) < 60  # about 300 were written, one every two seconds
    assert len(names(objects, "points")) == 1
    owner.abandon()
    second = serve(objects)
    assert second.broker.store.journal.incarnation == lives + 1
    second.stop()


@pytest.mark.slow
def test_an_owner_deletes_its_older_rounds_though_one_of_forty_deletes_is_unclear():
    """If the deletion began anew after each unclear delete, it would never reach the end."""
    objects = SimulatedObjects()
    owner = serve(objects)
    owner.ask(create("t"))
    seen = owner.broker._in_store.objects

    def fail_at_times(call: str, name: str) -> None:
        if call == "delete" and sum(each == "delete" for each, _ in seen.calls) % 40 == 0:
            raise Unclear(name, "the server answered 503, SlowDown")

    seen.before_each = fail_at_times
    for _ in range(500):
        owner.ask(produce("t", batch(1)), 11)
        owner.wait(0.5)
    assert len(names(objects, "journal")) < 250  # of more than 500 that were written
    owner.stop()


@pytest.mark.slow
def test_nothing_is_deleted_for_a_point_before_a_round_that_names_it_is_durable():
    objects = SimulatedObjects()
    owner = serve(objects)
    owner.ask(create("t"))
    seen = owner.broker._in_store.objects

    def lose_rounds(call: str, name: str) -> None:
        if call == "create" and name.startswith("0/journal/") and len(names(objects, "points")) == 2:
            raise Unclear(name, "the deadline has passed")

    seen.before_each = lose_rounds
    owner.wait(31)
    while len(names(objects, "points")) < 2:
        owner.ask(produce("t", batch(1)), 11)
        owner.wait(0.5)
    before = set(objects.content)
    owner.wait(120)
    assert before <= set(objects.content)
    seen.before_each = lambda call, name: None
    owner.wait(60)
    assert not before <= set(objects.content)
    owner.stop()
