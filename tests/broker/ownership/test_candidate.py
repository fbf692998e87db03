"""A broker that wants the journal in a store: which stores it refuses, for how long it waits, and when it does not."""

import pytest
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.ownership import candidate
from fencepost.broker.ownership.owner import InStore
from fencepost.effects.objects import Content, Exists
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.objects import SimulatedObjects
from fencepost.protocol.batches import walk
from fencepost.protocol.errors import ErrorCode
from fencepost.storage import store_checkpoint
from fencepost.storage.journal_source import StoreDamaged
from fencepost.storage.objects import format as form
from fencepost.storage.objects.errors import Overtaken
from fencepost.storage.objects.fence import Place
from fencepost.storage.objects.format import Claim
from fencepost.storage.objects.looking import Looking
from fencepost.storage.objects.points import fetch_point
from fencepost.storage.objects.takeover import Takeover
from fencepost.storage.recovery import make_directory, open_store
from fencepost.storage.store_mark import Mark, write_mark
from produce_requests import answers, batch, bytes_of, create, fetch, fetched, produce
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient

OK = ErrorCode.NONE
SETTINGS = BrokerSettings(offsets_topic_num_partitions=1, transaction_state_log_num_partitions=1)


def serve(objects: SimulatedObjects, disk: SimulatedDisk | None = None) -> SimulatedBroker:
    """Return a broker on a store, as another client of it. It has an empty disk if none is given."""
    return SimulatedBroker(SETTINGS, disk=disk, in_store=InStore(objects.client(), lambda seconds: None))


def no_pause(error: Exception, attempts: int) -> None:
    """Wait for nothing."""


def records(broker: SimulatedBroker) -> bytes:
    return bytes_of(fetched(SimulatedClient(broker).ask(fetch("t"), 11)))


def test_a_new_owner_waits_one_lease_after_the_last_journal_round_of_a_dead_owner():
    objects = SimulatedObjects()
    first = serve(objects)
    first.wait(1)
    first.abandon()
    second = serve(objects)
    assert 6 <= second.loop.time() < 8  # store.lease.ms is 6,000
    second.stop()


def test_a_broker_that_is_overtaken_again_waits_twice_as_long_each_time(monkeypatch):
    """Otherwise two brokers that need longer than a lease for a take-over would end each other's epochs for ever."""
    objects = SimulatedObjects()
    first = serve(objects)
    first.wait(1)
    first.abandon()
    attempts: list[object] = []

    def overtaken_three_times(*given):
        attempts.append(given)
        if len(attempts) <= 3:
            raise Overtaken("epoch 2 was ended by epoch 3")
        return open_store(*given)

    monkeypatch.setattr(candidate, "open_store", overtaken_three_times)
    second = serve(objects)
    assert len(attempts) == 4
    assert 6 * (1 + 2 + 4 + 8) <= second.loop.time() < 6 * 16
    second.stop()


def test_the_last_owner_restarts_in_its_own_directory_without_waiting():
    objects = SimulatedObjects()
    first = serve(objects)
    first.ask(create("t"))
    first.ask(produce("t", batch(2)), 11)
    shown = records(first)
    first.stop()
    again = serve(objects, first.disk)
    assert again.loop.time() < 1  # it has not waited for a lease, 6 s
    assert records(again) == shown
    again.stop()


def test_a_former_owner_whose_newest_checkpoint_is_damaged_restarts_without_waiting():
    """The directory has a second checkpoint, and the journal is in the store."""
    objects = SimulatedObjects()
    first = serve(objects)
    first.ask(create("t"))
    first.ask(produce("t", batch(2)), 11)
    shown = records(first)
    first.stop()
    newest = max(store_checkpoint.numbers(first.disk, SETTINGS.log_dir))
    file = first.disk.open(f"{SETTINGS.log_dir}/checkpoint-{newest}")
    file.write([b"rotten"], 20)
    file.close()
    again = serve(objects, first.disk)
    assert again.loop.time() < 1  # it has not waited for a lease, 6 s
    assert records(again) == shown
    again.stop()


def test_after_an_orderly_stop_a_broker_with_an_empty_disk_takes_over_at_once():
    objects = SimulatedObjects()
    first = serve(objects)
    first.ask(create("t"))
    first.ask(produce("t", batch(2)), 11)
    shown = records(first)
    first.stop()
    second = serve(objects)
    assert second.loop.time() < 1  # it has not waited for a lease, 6 s
    assert records(second) == shown
    assert answers(second.ask(produce("t", batch(1)), 11)) == [(OK, 2)]
    second.stop()


def test_a_former_owner_waits_a_lease_if_another_has_claimed_the_next_epoch():
    objects = SimulatedObjects()
    first = serve(objects)
    first.stop()
    objects.content[form.claim_name(2)] = form.pack_claim(Claim(2, 2, (), b"12345678"))
    again = serve(objects, first.disk)
    assert 6 <= again.loop.time() < 8  # store.lease.ms is 6,000
    again.stop()


def test_a_former_owner_waits_a_lease_if_another_node_ended_its_epoch():
    objects = SimulatedObjects()
    first = serve(objects)
    first.wait(1)
    Takeover(objects.client(), no_pause, Claim(1, 0, (), b"12345678"), for_others=True).end()
    first.abandon()
    again = serve(objects, first.disk.after_process_crash())
    assert 6 <= again.loop.time() < 8  # store.lease.ms is 6,000
    again.stop()


def test_a_former_owner_waits_a_lease_if_late_rounds_are_stored_after_the_seal():
    """A seal is the object that ends an owner's epoch; journal rounds of that epoch may still arrive after it."""
    objects = SimulatedObjects()
    first = serve(objects)
    first.wait(5)
    Takeover(objects.client(), no_pause, Claim(1, 0, (), b"12345678"), for_others=True).end()
    first.abandon()
    seal = max(filter(None, map(form.read_place, objects.content)))
    before = Place(seal.epoch, seal.number - 1)
    late = form.read_header(before, objects.content[form.place_name(before)])
    late = late._replace(place=Place(seal.epoch, seal.number + 2), round=late.round + 3)
    assert not late.units
    objects.content[form.place_name(late.place)] = form.pack_round(late)
    again = serve(objects, first.disk.after_process_crash())
    assert 6 <= again.loop.time() < 8  # store.lease.ms is 6,000
    again.stop()


def test_a_broker_on_a_directory_fetched_from_the_store_waits_a_lease():
    objects = SimulatedObjects()
    first = serve(objects)
    first.ask(create("t"))
    first.ask(produce("t", batch(2)), 11)
    first.wait(60)
    disk, directory = SimulatedDisk(), SETTINGS.log_dir
    looking = Looking(objects.client(), no_pause)
    point = looking.point(looking.look())
    make_directory(disk, directory)
    write_mark(disk, directory, Mark(form.read_identity(objects.content[form.IDENTITY_NAME])))
    fetch_point(objects.client(), disk, directory, point, no_pause)
    second = serve(objects, disk)
    assert 6 <= second.loop.time() < 8  # store.lease.ms is 6,000
    assert len(list(walk(memoryview(records(second))))) == 1
    first.abandon()
    second.stop()


def test_a_broker_waits_a_lease_while_another_is_putting_its_directory_in_the_store():
    objects = SimulatedObjects()
    objects.content["0/owners/0000000001"] = b"of one that is at work, or was"
    second = serve(objects)
    assert 6 <= second.loop.time() < 8  # store.lease.ms is 6,000
    second.stop()


class BothWin(SimulatedObjects):
    """A store that ignores the condition of a create, at times."""

    def create(self, name: str, content: Content) -> None:
        if len(self.calls) % 3 == 0:
            self.content.pop(name, None)
        super().create(name, content)


def test_a_store_that_lets_two_clients_create_one_name_is_refused():
    with pytest.raises(StoreDamaged, match=r"of 4 creates of one name \d succeeded"):
        SimulatedBroker(SETTINGS, in_store=InStore(BothWin(), lambda seconds: None))


def test_a_store_whose_addresses_each_let_a_create_of_one_name_succeed_is_refused():
    """The addresses behave like two gateways that do not know of each other."""
    one, other = SimulatedObjects(), SimulatedObjects()
    in_store = InStore(one, lambda seconds: None, among=[one, other])
    with pytest.raises(StoreDamaged, match="of 4 creates of one name 2 succeeded"):
        SimulatedBroker(SETTINGS, in_store=in_store)
    assert not [name for name in one.content if name.startswith(form.CLAIMS)]


class EverythingExists(SimulatedObjects):
    """A store that says of every name that it is there."""

    def create(self, name: str, content: Content) -> None:
        self.calls.append(("create", name))
        raise Exists(name, "412")


def test_a_store_that_answers_exists_to_every_create_is_refused():
    objects = EverythingExists()
    with pytest.raises(StoreDamaged, match="of 50 new names it said each time that they exist"):
        SimulatedBroker(SETTINGS, in_store=InStore(objects, lambda seconds: None))
    assert not objects.content


def test_a_store_that_holds_a_backup_is_refused_for_a_journal():
    objects = SimulatedObjects()
    objects.content["0/claims/0000000001"] = b"of a follower"
    with pytest.raises(StoreDamaged, match="it holds a backup"):
        serve(objects)
    assert list(objects.content) == ["0/claims/0000000001"]


def test_an_empty_disk_waits_until_another_directory_is_put_into_the_store(caplog):
    """It waits longer than a lease, and until the other has finished: an object in the store says which node it is."""
    objects = SimulatedObjects()
    claim = Claim(1, 7, (), b"12345678")
    objects.content[form.claim_name(1)] = objects.content[form.adopting_name(1)] = form.pack_claim(claim)
    seen = objects.client()
    looks = 0

    def finish_at_the_fourth_look(call: str, name: str) -> None:
        nonlocal looks
        looks += (call, name) == ("list", form.ADOPTING)
        if looks == 4:
            del objects.content[form.adopting_name(1)]
            looks += 1

    seen.before_each = finish_at_the_fourth_look
    second = SimulatedBroker(SETTINGS, in_store=InStore(seen, lambda seconds: None))
    assert second.loop.time() >= 3 * 6
    assert "node 7 has begun to put its data directory there; waiting for it" in caplog.text
    second.stop()
