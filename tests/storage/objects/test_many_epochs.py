"""A store with many epochs: a take-over, a look and a deletion read the objects of several epochs in parallel.

An epoch is the time of one owner of the journal; a round is the object that the owner creates with each write. A
seal is the object that ends an epoch; a point is a checkpoint in the store.
"""

from collections.abc import Callable, Iterable

import pytest
from fencepost.effects.simulated.objects import SimulatedObjects
from fencepost.storage.objects import epochs as reading
from fencepost.storage.objects import format as form
from fencepost.storage.objects.looking import JournalVerifying, Looking
from fencepost.storage.shipping import planning
from owner_driver import Owning, pause, take

EPOCHS = 60
FEW = 30  # the most trips to the store, or listings, that are allowed


class Trips:
    """Counts trips to a store: calls that are made in parallel are one."""

    def __init__(self, objects: SimulatedObjects, monkeypatch: pytest.MonkeyPatch) -> None:
        self._objects = objects
        self._saved = 0
        monkeypatch.setattr(reading, "call_all", self._one_by_one)

    def _one_by_one(self, calls: Iterable[Callable[[], object]], name: str, threads: int) -> None:
        calls = list(calls)
        for call in calls:
            call()
        self._saved += len(calls) - -(-len(calls) // threads)

    def of(self, work: Callable[[], object]) -> int:
        """Return how many trips some work takes."""
        before, self._saved = len(self._objects.calls), 0
        work()
        return len(self._objects.calls) - before - self._saved


def test_a_takeover_after_many_failed_ones_takes_few_trips_and_lists_few_epochs(monkeypatch):
    """Each failed one has claimed an epoch and ended all before it. So does a broker that is started again and again
    while an object that it needs is lost.
    """
    objects = SimulatedObjects()
    owner = Owning(objects)
    owner.create("t")
    owner.send("t", b"1")
    for _ in range(EPOCHS):
        take(objects, node=2)
    trips, before = Trips(objects, monkeypatch), len(objects.calls)
    after: list[Owning] = []
    assert trips.of(lambda: after.append(Owning(objects, node=3))) < FEW
    assert len([name for call, name in objects.calls[before:] if call == "list"]) < FEW
    assert after[0].epoch == EPOCHS + 2
    assert after[0].values() == [b"1"]


def test_verify_and_the_first_collection_read_the_seals_of_many_epochs_in_few_trips(monkeypatch):
    monkeypatch.setattr(planning, "MAX_SMALL_EXTENTS", 2)  # so a point has few parts, which are read in a row
    objects = SimulatedObjects()
    owner = Owning(objects)
    owner.create("t")
    for node in range(2, EPOCHS):
        owner.send("t", b"%d" % node)
        owner.point()
        owner.point()
        owner = Owning(objects, node=node)
    trips, looking = Trips(objects, monkeypatch), Looking(objects, pause)
    looked = looking.look()
    assert len(looking.seals(looked)) == EPOCHS - 2
    assert trips.of(lambda: looking.seals(looked)) < FEW
    assert trips.of(JournalVerifying(looking).run) < FEW
    owner.send("t", b"1")
    owner.point()
    assert trips.of(owner.point) < 2 * FEW
    assert len([name for name in objects.content if name.startswith(form.JOURNAL)]) < EPOCHS + FEW


def test_the_rounds_before_a_point_are_deleted_in_few_trips(monkeypatch):
    """Deleted one after the other, they would grow ever more if the owner wrote faster, and no newer point be made."""
    objects = SimulatedObjects()
    owner = Owning(objects)
    owner.create("t")
    owner.point()
    for number in range(200):
        owner.send("t", b"%d" % number)
    owner.point()
    owner.send("t", b"last")
    before = len(objects.content)
    assert Trips(objects, monkeypatch).of(owner.point) < FEW
    assert len(objects.content) < before - 180
    assert len(Owning(objects, node=2).values()) == 201
