"""Looking at a journal in an object store changes nothing, and finds what a take-over would find, and what is lost.

An epoch is the time of one owner of the journal; a round is the object that the owner creates with each write. A
point is a checkpoint in the store.
"""

import pytest
from fencepost.effects.simulated.objects import SimulatedObjects
from fencepost.storage.objects import format as form
from fencepost.storage.objects.errors import ObjectDamaged
from fencepost.storage.objects.fence import Place
from fencepost.storage.objects.looking import JournalVerifying, Looked, Looking
from fencepost.storage.shipping import names, planning
from owner_driver import Owning, pause, take


def begin(objects: SimulatedObjects, node: int = 1) -> Owning:
    owner = Owning(objects, node=node)
    owner.create("t")
    owner.round()
    return owner


def look(objects: SimulatedObjects) -> Looked:
    return Looking(objects, pause).look()


def verify(objects: SimulatedObjects) -> list[str]:
    return JournalVerifying(Looking(objects, pause)).run()


def write(owner: Owning) -> None:
    """Write rounds, a checkpoint in the store that a later one replaces, and rounds after that."""
    for number in range(12):
        owner.send("t", b"%d" % number)
    owner.point()
    owner.send("t", b"between")
    owner.point()
    for number in range(3):
        owner.send("t", b"behind %d" % number)


def test_look_returns_the_owners_epoch_last_round_and_point_and_writes_nothing():
    objects = SimulatedObjects()
    owner = begin(objects)
    write(owner)
    calls = len(objects.calls)
    looked = look(objects)
    assert (looked.epoch, looked.sealed, looked.end) == (1, None, owner.store.journal.released_rounds)
    assert looked.last.last_unit == owner.store.released_unit
    assert looked.point == (1, 2)
    assert looked.since_round == 1
    assert {call for call, _ in objects.calls[calls:]} == {"read", "list"}


def test_look_at_an_empty_store_returns_epoch_0_and_no_rounds():
    looked = look(SimulatedObjects())
    assert (looked.epoch, looked.last, looked.runs) == (0, None, [])


def test_look_at_a_store_whose_epoch_was_ended_names_the_node_that_ended_it():
    objects = SimulatedObjects()
    owner = begin(objects)
    owner.send("t", b"1")
    end = take(objects, node=2).base_end
    looked = look(objects)
    assert (looked.epoch, looked.end, looked.sealed.by) == (1, end, 2)
    after = Owning(objects, node=3)
    looked = look(objects)
    assert (looked.epoch, looked.sealed, looked.claims) == (3, None, [1, 2, 3])
    assert looked.since_round == looked.last.round == after.store.journal.next_round - 1
    assert {epoch: seal.by for epoch, seal in Looking(objects, pause).seals(looked).items()} == {1: 2, 2: 3}


def test_look_reports_no_round_as_lost_that_the_owner_created_after_the_listing():
    objects = SimulatedObjects()
    owner = begin(objects)
    seen = objects.client()
    listings = 0

    def write_on(call: str, name: str) -> None:
        nonlocal listings
        if call == "list" and name.startswith(form.JOURNAL):
            listings += 1
            for number in range(2 * form.WINDOW):
                owner.send("t", b"%d" % number)

    seen.before_each = write_on
    looked = look(seen)
    assert listings > 1
    assert 0 < looked.end < owner.store.journal.released_rounds
    assert verify(seen) == []


def test_look_ends_before_a_missing_journal_round_and_ignores_later_rounds():
    objects = SimulatedObjects()
    owner = begin(objects)
    owner.append(owner.log("t"), [b"never created"])
    owner.store.take_round(sync=True)
    owner.append(owner.log("t"), [b"created"])
    owner.store.take_round(sync=True).run()
    assert look(objects).end == owner.store.journal.released_rounds
    assert verify(objects) == []


def needed(objects: SimulatedObjects) -> list[str]:
    """Return the objects that a take-over reads, except the newest round: if that is lost, nothing shows that it was
    there.
    """
    looking = Looking(objects, pause)
    looked = looking.look()
    rounds = [form.place_name(Place(run.epoch, n)) for run in looked.runs for n in range(run.first, run.end)]
    point = looking.point(looked)
    assert point is not None
    return [*rounds[:-1], *sorted(point.parts()), names.point(names.Place(*looked.point))]


def test_verify_names_every_needed_object_that_is_lost_or_damaged():
    objects = SimulatedObjects()
    write(begin(objects))
    whole = dict(objects.content)
    assert verify(objects) == []
    every = needed(objects)
    assert len(every) > 5
    for name in every:
        del objects.content[name]
        found = verify(objects)
        assert found, f"{name} is lost"
        assert name in found[0]
        objects.content.update(whole)
    for name in [*every, *(name for name in whole if name.startswith(("0/owners/", "0/format")))]:
        objects.rot(name, len(whole[name]) // 2)
        found = verify(objects)
        assert found, f"{name} is rotten"
        assert found[0].startswith(name)
        objects.content.update(whole)
    assert verify(objects) == []


def test_verify_finds_no_damage_if_only_unneeded_points_and_parts_are_missing():
    objects = SimulatedObjects()
    write(begin(objects))
    for name in set(objects.content) - set(needed(objects)):
        if name.startswith(("0/points/", "0/parts/")):
            del objects.content[name]
    assert verify(objects) == []


@pytest.mark.parametrize("folder", [names.POINTS, names.PARTS])
def test_objects_that_an_owner_deletes_meanwhile_are_not_reported_as_damage(folder):
    objects = SimulatedObjects()
    owner = begin(objects)
    write(owner)
    seen = objects.client()
    moved = 0

    def go_on(call: str, name: str) -> None:
        nonlocal moved
        if call == "read" and name.startswith(folder) and moved < 3:
            moved += 1
            for number in range(24 if folder == names.POINTS else 40):
                owner.send("t", b"more")
                if number in (11, 23) or folder == names.PARTS:
                    owner.point()  # so often that the file is shipped anew, in one part

    seen.before_each = go_on
    assert verify(seen) == []
    assert moved == 3


def test_a_part_deleted_meanwhile_is_no_damage_if_the_newest_point_does_not_need_it(monkeypatch):
    """The rounds after the point that was looked at are still there: the newest of them are always kept."""
    monkeypatch.setattr(planning, "MAX_SMALL_EXTENTS", 2)  # so a file is soon shipped anew, and its parts are deleted
    objects = SimulatedObjects()
    owner = begin(objects)
    for _ in range(3):
        owner.send("t", b"before")
        owner.point()
    seen = objects.client()
    gone: set[str] = set()

    def go_on(call: str, name: str) -> None:
        if call == "read" and name.startswith(names.PARTS):
            seen.before_each = lambda call, name: None
            before = set(objects.content)
            for _ in range(3):
                owner.send("t", b"meanwhile")
                owner.point()
            gone.update(before - set(objects.content))

    first = look(objects)
    seen.before_each = go_on
    assert verify(seen) == []
    assert any(name.startswith(names.PARTS) for name in gone)
    assert not any(form.place_name(Place(run.epoch, run.first)) in gone for run in first.runs)


def test_looking_at_a_store_that_lost_a_needed_journal_round_raises_object_damaged():
    objects = SimulatedObjects()
    owner = begin(objects)
    for number in range(8):
        owner.send("t", b"%d" % number)
    del objects.content[form.place_name(Place(1, 7))]
    with pytest.raises(ObjectDamaged, match="it is lost"):
        Looking(objects, pause).repeated(lambda looked: None)
