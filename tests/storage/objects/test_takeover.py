"""Take-overs of a journal in an object store: the next owner has what was released, and nobody else can write."""

import threading

import pytest
from fencepost.effects.objects import Objects
from fencepost.effects.objects.directory import DirectoryObjects
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.objects import Faults, SimulatedObjects, StoreCut
from fencepost.storage.journal_source import StoreDamaged
from fencepost.storage.objects import format as form
from fencepost.storage.objects.creating import create_seal
from fencepost.storage.objects.errors import Fenced, ObjectDamaged, Overtaken
from fencepost.storage.objects.fence import Place
from fencepost.storage.objects.looking import Looking
from owner_driver import GivenUp, Owning, pause, take
from store_driver import Driven
from store_dump import dump


@pytest.fixture(params=["simulated", "directory"])
def objects(request, tmp_path) -> Objects:
    return SimulatedObjects() if request.param == "simulated" else DirectoryObjects(str(tmp_path / "store"))


def begin(objects: Objects, disk: SimulatedDisk | None = None) -> Owning:
    owner = Owning(objects, disk)
    owner.create("t")
    owner.create("u")
    owner.round()
    return owner


def test_a_new_owner_with_an_empty_disk_has_all_records_its_predecessor_released(objects):
    owner = begin(objects)
    for number in range(5):
        owner.send("t", b"%d" % number)
        owner.send_joint(t=b"both", u=b"both")
    before = dump(owner.store)
    after = Owning(objects, node=2)
    assert after.epoch == 2
    assert dump(after.store) == before
    after.send("t", b"of the second")
    third = Owning(objects, node=3)
    assert third.values() == [*owner.values(), b"of the second"]


def test_an_owner_whose_epoch_was_ended_is_fenced_at_its_next_journal_round(objects):
    owner = begin(objects)
    owner.send("t", b"seen")
    after = Owning(objects, node=2)
    with pytest.raises(Fenced, match="epoch 1 was ended at round 3 by epoch 2"):
        owner.send("t", b"too late")
    assert owner.values() == after.values() == [b"seen"]


def test_a_restarted_owner_replays_only_journal_rounds_after_its_own_checkpoint():
    objects = SimulatedObjects()
    owner = begin(objects)
    owner.send("t", b"flushed")
    owner.flush()
    owner.checkpoint()
    owner.send("t", b"in a round only")
    owner.store.close()
    again = Owning(objects, owner.disk)
    assert again.values() == [b"flushed", b"in a round only"]
    assert again.report.units_replayed == 1
    again.send("t", b"more")
    again.flush()
    again.checkpoint()
    again.store.close()
    assert Owning(objects, owner.disk).values() == [b"flushed", b"in a round only", b"more"]
    assert Owning(objects, node=2).values() == [b"flushed", b"in a round only", b"more"]


def test_a_fenced_owner_can_take_over_again_in_its_directory_without_its_lost_round():
    objects = SimulatedObjects()
    owner = begin(objects)
    owner.send("t", b"first")
    second = Owning(objects, node=2)
    second.send("t", b"second")
    with pytest.raises(Fenced):
        owner.send("t", b"lost")
    owner.flush()
    owner.store.close()
    assert Owning(objects, owner.disk).values() == [b"first", b"second"]


def test_a_takeover_ignores_journal_rounds_stored_after_a_missing_round():
    objects = SimulatedObjects()
    owner = begin(objects)
    owner.send("t", b"released")
    writes = []
    for value in (b"never created", b"created", b"created, too"):
        owner.append(owner.log("t"), [value])
        writes.append(owner.store.take_round(sync=True))
    for write in writes[1:]:
        write.run()
    with pytest.raises(RuntimeError, match="cannot be released"):
        owner.store.round_finished(writes[1])
    after = Owning(objects, node=2)
    assert after.values() == [b"released"]
    with pytest.raises(Fenced):
        writes[0].run()
    after.send("t", b"of the second")
    assert Owning(objects, node=3).values() == [b"released", b"of the second"]


def test_taking_a_journal_round_beyond_the_window_of_unreleased_ones_raises():
    owner = begin(SimulatedObjects())
    writes = []
    for _ in range(4):
        owner.append(owner.log("t"), [b"x"])
        writes.append(owner.store.take_round(sync=True))
    for write in writes[1:]:
        write.run()
    owner.append(owner.log("t"), [b"x"])
    with pytest.raises(RuntimeError, match="window 4"):
        owner.store.take_round(sync=True)


def test_a_takeover_skips_epochs_in_which_no_journal_round_was_written():
    objects = SimulatedObjects()
    begin(objects).send("t", b"first")
    take(objects, node=2)
    take(objects, node=3)
    owner = Owning(objects, node=4)
    assert owner.epoch == 4
    assert owner.values() == [b"first"]


def test_a_takeover_overtaken_by_a_newer_one_raises_and_begins_no_epoch():
    objects = SimulatedObjects()
    begin(objects).send("t", b"first")

    def overtake(call: str, name: str) -> None:
        if call == "create" and name == form.place_name(Place(2, 0)):
            objects.before_each = lambda call, name: None
            Owning(objects.client(), node=3).send("t", b"of the third")

    objects.before_each = overtake
    with pytest.raises(Overtaken, match="epoch 2 was ended at round 0 by epoch 3"):
        Owning(objects, node=2)
    assert Owning(objects, node=4).values() == [b"first", b"of the third"]


def test_an_epoch_that_begins_while_a_takeover_ends_an_earlier_one_is_its_base():
    """The base of a takeover is the epoch whose rounds it continues. The second epoch's rounds arrive in the store
    only when the third owner has seen that the first epoch is ended.
    """
    objects = SimulatedObjects()
    begin(objects).send("t", b"first")
    Owning(objects.client(), node=2).send("t", b"of the second")
    prefix = form.epoch_prefix(2)
    late = {name: objects.content.pop(name) for name in list(objects.content) if name.startswith(prefix)}
    third = objects.client()
    first_name = form.place_name(Place(2, 0))

    def arrive(call: str, name: str) -> None:
        if (call, name) == ("create", first_name):
            objects.content.update(late)
            late.clear()

    third.before_each = arrive
    assert Owning(third, node=3).values() == [b"first", b"of the second"]
    claimed, sealed = (third.calls.index(("create", name)) for name in (form.claim_name(3), first_name))
    assert ("list", form.JOURNAL) in third.calls[claimed:sealed]
    assert not late
    assert Owning(objects.client(), node=4).values() == [b"first", b"of the second"]


def test_a_takeover_whose_rounds_a_newer_owner_deleted_raises_overtaken():
    objects = SimulatedObjects()
    begin(objects).send("t", b"first")
    second = objects.client()
    has_sealed = False

    def overtake(call: str, name: str) -> None:
        nonlocal has_sealed
        if call == "create" and name.startswith(form.epoch_prefix(1)):
            has_sealed = True
        if call == "read" and has_sealed and name == form.place_name(Place(1, 0)):
            second.before_each = lambda call, name: None
            newer = Owning(objects.client(), node=3)
            for value in (b"of the third", b"and another"):
                newer.send("t", value)
                newer.point()
            assert form.place_name(Place(1, 0)) not in objects.content

    second.before_each = overtake
    with pytest.raises(Overtaken):
        Owning(second, node=2)
    assert has_sealed
    assert Owning(objects.client(), node=4).values() == [b"first", b"of the third", b"and another"]


@pytest.mark.parametrize("disk", ["of its own", "empty"])
def test_after_a_takeover_the_stores_age_continues_from_that_of_the_last_round(disk):
    """Timeouts are measured by the age: if each takeover set it back, a timeout might never expire."""
    objects = SimulatedObjects()
    owner = begin(objects)
    owner.clock.advance(20_000)
    owner.point()
    for age_ms in (50_000, 80_000, 110_000):
        owner.clock.advance(30_000)
        owner.send("t", b"1")
        assert owner.store.age_ms() == age_ms
        owner.clock.advance(1)
        owner = Owning(objects, owner.disk.after_process_crash() if disk == "of its own" else None, node=age_ms)
        assert owner.store.age_ms() == age_ms


def test_an_owner_that_ended_its_epoch_cannot_write_and_the_next_has_all_its_records():
    """Ending raises while a round is open. The seal says that the owner handed the epoch over itself."""
    objects = SimulatedObjects()
    owner = begin(objects)
    owner.send("t", b"1")
    owner.append(owner.log("t"), [b"2"])
    with pytest.raises(RuntimeError, match="a round is open"):
        owner.store.journal.end()
    owner.round()
    create_seal(objects, owner.store.journal.end(), pause)
    owner.append(owner.log("t"), [b"never acknowledged"])
    with pytest.raises(RuntimeError, match="the epoch was ended"):
        owner.round()
    looked = Looking(objects, pause).look()
    assert (looked.sealed.by, looked.sealed.handed_over) == (owner.epoch, True)
    assert Owning(objects, node=2).values() == [b"1", b"2"]
    assert len([name for name in objects.content if name.startswith("0/journal/0000000001/")]) == looked.end + 1


# ---- points --------------------------------------------------------------------------------------------------


def test_a_takeover_with_an_empty_disk_uses_a_point_and_only_the_rounds_after_it(objects):
    owner = begin(objects)
    for number in range(20):
        owner.send("t", b"%d" % number)
    owner.point()
    owner.send_joint(t=b"behind", u=b"behind")
    before = dump(owner.store)
    after = Owning(objects, node=2)
    assert dump(after.store) == before
    assert after.report.units_replayed == 1


def test_unneeded_journal_rounds_points_and_parts_are_deleted_but_no_seals():
    objects = SimulatedObjects()
    for life in range(1, 4):
        owner = begin(objects) if life == 1 else Owning(objects, node=life)
        for number in range(40):
            owner.send("t", b"%d" % number)
            if number % 10 == 9:
                owner.point()
    kinds = {}
    for name in objects.content:
        place = form.read_place(name)
        if place is not None:
            head = form.read_header(place, objects.content[name])
            kinds.setdefault((place.epoch, type(head).__name__), []).append(place.number)
    assert {key: len(numbers) for key, numbers in kinds.items() if key[1] == "Seal"} == {(1, "Seal"): 1, (2, "Seal"): 1}
    assert (1, "RoundHeader") not in kinds
    assert (2, "RoundHeader") not in kinds
    assert kinds[3, "RoundHeader"] == list(range(33, 45))
    assert len([name for name in objects.content if name.startswith("0/points/")]) == 2
    assert Owning(objects, node=9).values() == owner.values()


def test_a_takeover_ignores_a_point_that_no_journal_round_names():
    objects = SimulatedObjects()
    owner = begin(objects)
    owner.send("t", b"1")
    owner.point()
    owner.send("t", b"2")
    owner.point(is_named=False)
    names = sorted(name for name in objects.content if name.startswith("0/points/"))
    objects.content[names[-1]] = b"whatever"
    assert Owning(objects, node=2).values() == [b"1", b"2"]


def test_a_directory_older_than_the_oldest_kept_round_is_refilled_from_a_point():
    objects = SimulatedObjects()
    first = begin(objects)
    first.send("t", b"first")
    first.store.close()
    second = Owning(objects, node=2)
    for number in range(30):
        second.send("t", b"%d" % number)
        if number % 10 == 9:
            second.point()
    again = Owning(objects, first.disk)
    assert again.values() == second.values()
    again.point()
    assert Owning(objects, node=3).values() == second.values()


def test_a_takeover_that_needs_a_damaged_part_of_a_point_raises_an_error_naming_it():
    objects = SimulatedObjects()
    owner = begin(objects)
    owner.send("t", b"1")
    owner.point()
    part = next(name for name in objects.content if name.startswith("0/parts/"))
    objects.rot(part)
    with pytest.raises(ObjectDamaged, match=part):
        Owning(objects, node=2)


def test_a_later_point_of_the_same_directory_ships_only_added_bytes():
    objects = SimulatedObjects()
    owner = begin(objects)
    owner.send("t", bytes(200_000))
    owner.point()
    owner.store.close()
    again = Owning(objects, owner.disk)
    before = sum(map(len, objects.content.values()))
    again.send("t", b"little")
    again.point()
    assert sum(map(len, objects.content.values())) - before < 5_000  # two rounds, and the objects of a point
    other = Owning(objects, node=2)
    before = sum(map(len, objects.content.values()))
    other.send("t", b"little")
    other.point()
    assert sum(map(len, objects.content.values())) - before < 5_000
    assert Owning(objects, node=3).values() == other.values()


def test_newest_with_all_units_returns_no_point_once_a_record_was_written_after_it():
    objects = SimulatedObjects()
    owner = begin(objects)
    owner.send("t", b"1")
    owner.point()
    owner.point()
    for _ in range(50):
        owner.round(sync=True)
    again = owner.collecting.newest_with_all_units(owner.store.journal)
    assert again.start == Place(owner.epoch, owner.store.journal.released_rounds)
    owner.name(again)
    assert len([name for name in objects.content if name.startswith("0/journal/")]) < 20
    assert Looking(objects, pause).look().rounds == 1
    owner.send("t", b"2")
    owner.flush()
    for _ in range(2):
        owner.checkpoint()  # the directory needs none of the rounds any more, but the point does
    assert owner.collecting.newest_with_all_units(owner.store.journal) is None
    assert Owning(objects, node=2).values() == [b"1", b"2"]


class ReadFourAtOnce(SimulatedObjects):
    """A store that answers reads of whole rounds only once four are asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.together = threading.Barrier(4, timeout=20)

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        if name.startswith("0/journal/") and length is None:
            self.together.wait()
        return super().read(name, start, length)


def test_a_takeover_reads_rounds_concurrently_and_applies_them_in_order():
    objects = ReadFourAtOnce()
    owner = begin(objects)
    for number in range(18):
        owner.send("t", b"%d" % number)
    assert owner.store.journal.released_rounds == 20
    assert Owning(objects, node=2).values() == [b"%d" % number for number in range(18)]


# ---- what is wrong with the store ----------------------------------------------------------------------------


def test_a_takeover_that_needs_a_lost_journal_round_raises_an_error_naming_it():
    objects = SimulatedObjects()
    owner = begin(objects)
    owner.send("t", b"1")
    name = form.place_name(Place(1, 1))
    del objects.content[name]
    with pytest.raises(ObjectDamaged, match=f"{name}: it is lost"):
        Owning(objects, node=2)
    assert form.place_name(Place(2, 0)) not in objects.content


@pytest.mark.parametrize("position", [0, 20, -1])
def test_a_takeover_that_needs_a_damaged_journal_round_raises_an_error_naming_it(position):
    objects = SimulatedObjects()
    owner = begin(objects)
    owner.send("t", b"1")
    name = form.place_name(Place(1, 2))
    objects.rot(name, position)
    with pytest.raises(ObjectDamaged, match=name):
        Owning(objects, node=2)


def test_a_takeover_of_a_store_that_answers_403_ends_when_the_caller_gives_up():
    objects = SimulatedObjects()
    objects.refuses = "403"
    with pytest.raises(GivenUp) as given_up:
        Owning(objects)
    assert "403" in str(given_up.value.__cause__)


# ---- directories ---------------------------------------------------------------------------------------------


def test_opening_a_directory_without_the_store_that_has_its_journal_raises_damaged():
    owner = begin(SimulatedObjects())
    owner.store.close()
    with pytest.raises(StoreDamaged, match="is in a store of objects") as refused:
        Driven(owner.disk)
    assert "start with that store" in refused.value.hint


def test_a_directory_whose_journal_is_in_one_store_is_refused_with_another_store():
    owner = begin(SimulatedObjects())
    owner.store.close()
    other = SimulatedObjects()
    other.content[form.IDENTITY_NAME] = form.pack_identity(b"another store...")
    take(other, node=2)
    begin(other)
    with pytest.raises(StoreDamaged, match="it is of another store") as refused:
        Owning(other, owner.disk)
    assert "it is filled from the store" in refused.value.hint


# ---- every step ----------------------------------------------------------------------------------------------


def work(owner: Owning, acked: list[bytes]) -> None:
    """Write 8 values and 3 points as an owner does. acked: gets each value that was released."""
    for number in range(8):
        value = b"%d of %d" % (number, owner.epoch)
        owner.send("t", value)
        acked.append(value)
        if number in (1, 3, 5):
            owner.point()


def calls_of_a_life() -> int:
    """Return how many calls to the store the work of one owner makes."""
    objects = SimulatedObjects()
    work(begin(objects), [])
    return len(objects.calls)


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
def test_the_next_owner_has_all_acknowledged_records_and_at_most_one_more(after):
    """The owner is cut off at each of its calls to the store in turn: before the call takes effect, or after it."""
    for call in range(calls_of_a_life()):
        objects, acked = SimulatedObjects(), []
        objects.cut_at(call, after=after)
        with pytest.raises(StoreCut):
            work(begin(objects), acked)
        found = Owning(objects.client(), node=2)
        topics = {log.topic for log in found.store.logs.values()}
        values = found.values() if "t" in topics else []
        assert values[: len(acked)] == acked, call
        assert len(values) <= len(acked) + 1, call


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
def test_after_a_takeover_dies_at_any_call_the_next_has_the_same_records(after):
    def first_life() -> tuple[SimulatedObjects, list[bytes]]:
        objects, acked = SimulatedObjects(), []
        work(begin(objects), acked)
        return objects, acked

    objects, _ = first_life()
    second = objects.client()
    Owning(second, node=2)
    for call in range(len(second.calls)):
        objects, acked = first_life()
        dying = objects.client()
        dying.cut_at(call, after=after)
        with pytest.raises(StoreCut):
            Owning(dying, node=2)
        third = Owning(objects.client(), node=3)
        assert third.values() == acked, call


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_under_random_store_errors_each_new_owner_has_released_records_exactly_once(seed):
    faults = Faults(before=0.1, after=0.1, late=0.1, conflicts=0.1, reads=0.2, lists=0.2)
    objects, acked = SimulatedObjects(seed, faults), []
    owners = []
    for node in range(1, 5):
        owner = Owning(objects.client(), node=node)
        if node == 1:
            owner.create("t")
            owner.round()
        assert owner.values() == acked, node
        work(owner, acked)
        owners.append(owner)
    for owner in owners[:-1]:
        with pytest.raises(Fenced):
            owner.send("t", b"of one that was taken over from")
    assert Owning(objects, node=9).values() == acked
