"""A broker whose journal is in a store of objects: kills, stops that are no stops, and a store that is away."""

import pytest
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.ownership import owner
from fencepost.broker.ownership.owner import InStore
from fencepost.effects.objects import Content, Exists, Refused, Unclear
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.objects import Faults, SimulatedObjects
from fencepost.protocol.batches import walk
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.ledger import DescribeLedgerRequest
from fencepost.protocol.messages.offsets import OffsetFetchRequest
from fencepost.storage.journal_source import StoreDamaged
from fencepost.storage.objects import format as form
from fencepost.storage.objects.errors import Fenced, Overtaken
from fencepost.storage.objects.fence import Place
from fencepost.storage.objects.format import Claim
from fencepost.storage.objects.looking import Looking
from fencepost.storage.objects.points import fetch_point
from fencepost.storage.objects.takeover import Takeover
from fencepost.storage.recovery import make_directory, open_store
from fencepost.storage.shipping.names import PARTS, POINTS
from fencepost.storage.store_mark import Mark, write_mark
from produce_requests import answers, batch, bytes_of, create, fetch, fetched, produce
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient

OK = ErrorCode.NONE
SETTINGS = BrokerSettings(offsets_topic_num_partitions=1, transaction_state_log_num_partitions=1)


def serve(objects: SimulatedObjects, disk: SimulatedDisk | None = None) -> SimulatedBroker:
    """A broker on a store, as another client of it; with an empty disk, if none is given."""
    return SimulatedBroker(SETTINGS, disk=disk, in_store=InStore(objects.client(), lambda seconds: None))


def no_pause(error: Exception, attempts: int) -> None:
    """Wait for nothing."""


def records(broker: SimulatedBroker) -> bytes:
    return bytes_of(fetched(SimulatedClient(broker).ask(fetch("t"), 11)))


def test_a_successor_with_an_empty_disk_has_all_records_its_predecessor_acknowledged():
    objects = SimulatedObjects()
    first = serve(objects)
    first.ask(create("t"))
    for number in range(3):
        assert answers(first.ask(produce("t", batch(2)), 11)) == [(OK, 2 * number)]
    shown = records(first)
    first.abandon()
    second = serve(objects)
    assert records(second) == shown
    assert answers(second.ask(produce("t", batch(1)), 11)) == [(OK, 6)]
    second.stop()


def test_a_new_owner_waits_one_lease_after_the_last_journal_round_of_a_dead_owner():
    objects = SimulatedObjects()
    first = serve(objects)
    first.wait(1)
    first.abandon()
    second = serve(objects)
    assert 6 <= second.loop.time() < 8
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

    monkeypatch.setattr(owner, "open_store", overtaken_three_times)
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
    assert again.loop.time() < 1
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
    assert second.loop.time() < 1
    assert records(second) == shown
    assert answers(second.ask(produce("t", batch(1)), 11)) == [(OK, 2)]
    second.stop()


def test_a_former_owner_waits_a_lease_if_another_has_claimed_the_next_epoch():
    objects = SimulatedObjects()
    first = serve(objects)
    first.stop()
    objects.content[form.claim_name(2)] = form.pack_claim(Claim(2, 2, (), b"12345678"))
    again = serve(objects, first.disk)
    assert 6 <= again.loop.time() < 8
    again.stop()


def test_an_orderly_stop_ends_although_the_store_answers_503_to_its_last_object():
    """The object (a seal) would hand the journal over. Without it, the next owner waits a lease."""
    objects = SimulatedObjects()
    first = serve(objects)
    first.ask(create("t"))
    seen = first.broker._in_store.objects
    failed = 0

    def fail_once_it_hands_over(call: str, name: str) -> None:
        nonlocal failed
        if call == "create" and first.broker._owner._journal._ended:
            failed += 1
            raise Unclear(name, "the server answered 503")

    seen.before_each = fail_once_it_hands_over
    first.stop()
    assert failed > 1
    second = serve(objects)
    assert 6 <= second.loop.time() < 8
    second.stop()


def test_a_former_owner_waits_a_lease_if_another_node_ended_its_epoch():
    objects = SimulatedObjects()
    first = serve(objects)
    first.wait(1)
    Takeover(objects.client(), no_pause, Claim(1, 0, (), b"12345678"), for_others=True).end()
    first.abandon()
    again = serve(objects, first.disk.after_process_crash())
    assert 6 <= again.loop.time() < 8
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
    assert 6 <= again.loop.time() < 8
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
    assert 6 <= second.loop.time() < 8
    assert len(list(walk(memoryview(records(second))))) == 1
    first.abandon()
    second.stop()


def test_an_idle_owner_creates_an_empty_journal_round_about_every_two_seconds():
    objects = SimulatedObjects()
    first = serve(objects)
    first.wait(1)
    before = len(objects.content)
    first.wait(20)
    assert 8 <= len(objects.content) - before <= 11
    first.stop()


@pytest.mark.slow
def test_an_owner_idle_for_25_minutes_leaves_fewer_than_40_rounds_to_a_takeover():
    objects = SimulatedObjects()
    owner = serve(objects)
    owner.ask(create("t"))
    owner.ask(produce("t", batch(2)), 11)
    shown = records(owner)
    seen = owner.broker._in_store.objects
    before = len(seen.calls)
    minutes = 25
    owner.wait(60 * minutes)
    created = [name for call, name in seen.calls[before:] if call == "create"]
    assert len(created) / (60 * minutes) <= 0.6
    assert len([name for name in objects.content if name.startswith("0/journal/")]) < 60
    looked = Looking(objects.client(), no_pause).look()
    assert looked.rounds < 40
    owner.abandon()
    second = serve(objects)
    assert records(second) == shown
    second.stop()


def test_a_suspended_owner_that_was_replaced_halts_fenced_without_an_answer():
    objects = SimulatedObjects()
    first = serve(objects)
    first.ask(create("t"))
    first.ask(produce("t", batch(2)), 11)
    shown = records(first)
    second = serve(objects)  # no time passes for the first: its process was stopped
    with pytest.raises(ConnectionError):
        first.ask(produce("t", batch(2)), 11)
    assert isinstance(first.broker.halted, Fenced)
    assert records(second) == shown
    first.abandon()
    second.stop()


OF_A_GROUP = OffsetFetchRequest(groups=[OffsetFetchRequest.Group(group_id="g", topics=None)])


@pytest.mark.parametrize("request_", [OF_A_GROUP, DescribeLedgerRequest(keys=None)], ids=["offsets", "ledger"])
def test_a_replaced_owner_closes_the_connection_instead_of_answering(request_):
    objects = SimulatedObjects()
    first = serve(objects)
    first.ask(create("t"))
    first.ask(request_)
    second = serve(objects)
    with pytest.raises(ConnectionError):
        first.ask(request_)
    first.abandon()
    second.ask(request_)
    second.stop()


@pytest.mark.slow
def test_a_serving_owner_keeps_2_or_3_points_and_deletes_journal_rounds_before_them():
    """A point is a checkpoint of the data directory in the store."""
    objects = SimulatedObjects()
    owner = serve(objects)
    owner.ask(create("t"))
    for _ in range(300):
        owner.ask(produce("t", batch(1)), 11)
        owner.wait(0.5)
    kept = [name for name in objects.content if name.startswith("0/journal/")]
    assert len(kept) < 200
    assert len([name for name in objects.content if name.startswith("0/points/")]) in (2, 3)
    shown = records(owner)
    owner.abandon()
    second = serve(objects)
    assert records(second) == shown
    second.stop()


def test_produce_is_answered_only_once_an_unreachable_store_is_back():
    objects = SimulatedObjects()
    owner = serve(objects)
    seen = owner.broker._in_store.objects
    owner.ask(create("t"))
    seen.is_away = True
    client = SimulatedClient(owner)
    client.send(produce("t", batch(2)), 11)
    owner.wait(30)
    assert not client.line.received
    seen.is_away = False
    assert answers(client.receive()) == [(OK, 0)]
    owner.stop()


def test_a_refusing_store_is_logged_once_and_its_recovery_is_logged_too(caplog):
    objects = SimulatedObjects()
    owner = serve(objects)
    seen = owner.broker._in_store.objects
    seen.refuses = "403"
    owner.wait(30)
    seen.refuses = ""
    owner.wait(5)
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert said == [
        "sim://bucket: 403; give it the rights; nothing is acknowledged until it answers",
        "sim://bucket answers again",
    ]
    owner.stop()


@pytest.mark.slow
def test_a_store_that_refuses_checkpoints_alone_is_logged_from_time_to_time(caplog):
    """Rounds are acknowledged, so nobody else would notice that a take-over has more and more of them to read."""
    objects = SimulatedObjects()
    owner = serve(objects)
    owner.ask(create("t"))

    def refuse_parts(call: str, name: str) -> None:
        if call == "create" and name.startswith(PARTS):
            raise Refused(name, "403", "give it the rights")

    owner.broker._in_store.objects.before_each = refuse_parts
    for _ in range(200):
        owner.ask(produce("t", batch(1)), 11)
        owner.wait(1)
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert 2 <= len(said) <= 4
    assert said[0].startswith("sim://bucket: a checkpoint is not complete: 0/parts/")
    assert said[0].endswith(": 403; the next one makes up for it")
    owner.stop()


def test_an_owner_that_may_not_create_parts_makes_a_point_once_it_may():
    """A point is a checkpoint of the data directory in the store; parts are what it consists of."""
    objects = SimulatedObjects()
    owner = serve(objects)
    owner.ask(create("t"))
    seen = owner.broker._in_store.objects

    def refuse_parts(call: str, name: str) -> None:
        if call == "create" and name.startswith(PARTS):
            raise Refused(name, "403", "give it the rights")

    seen.before_each = refuse_parts
    for _ in range(60):
        owner.ask(produce("t", batch(1)), 11)
        owner.wait(1)
    assert not [name for name in objects.content if name.startswith(POINTS)]
    seen.before_each = lambda call, name: None
    owner.wait(60)
    assert [name for name in objects.content if name.startswith(POINTS)]
    owner.stop()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_with_any_store_errors_acknowledged_records_are_kept_exactly_once(seed):
    objects = SimulatedObjects(seed, Faults(before=0.1, after=0.1, late=0.05, conflicts=0.1, reads=0.2, lists=0.2))
    sent = 0
    for life in range(3):
        broker = serve(objects)
        if life == 0:
            broker.ask(create("t"))
        for _ in range(5):
            assert answers(broker.ask(produce("t", batch(1)), 11)) == [(OK, sent)]
            sent += 1
        broker.abandon()
    last = serve(objects)
    assert len(list(walk(memoryview(records(last))))) == sent
    last.stop()


def test_an_owner_creates_at_most_ten_small_journal_rounds_a_second():
    objects = SimulatedObjects()
    owner = serve(objects)
    owner.ask(create("t"))
    owner.wait(5)
    before = len(objects.content)
    began_s = owner.loop.time()
    for _ in range(50):
        owner.ask(produce("t", batch(1)), 11)
    took_s = owner.loop.time() - began_s
    assert len(objects.content) - before <= 10 * took_s * 1.1 + 10
    assert 3.5 < took_s < 5
    owner.stop()


def test_a_directory_with_its_journal_in_a_store_is_refused_without_that_store():
    objects = SimulatedObjects()
    owner = serve(objects)
    owner.stop()
    with pytest.raises(StoreDamaged, match="in a store of objects"):
        SimulatedBroker(SETTINGS, disk=owner.disk)


def plain_directory() -> SimulatedDisk:
    """The disk of a broker without a store."""
    with SimulatedBroker(SETTINGS) as broker:
        broker.ask(create("t"))
        assert answers(broker.ask(produce("t", batch(2)), 11)) == [(OK, 0)]
        return broker.disk


def test_a_directory_with_a_local_journal_is_adopted_by_an_empty_store():
    objects = SimulatedObjects()
    owner = serve(objects, plain_directory())
    assert answers(owner.ask(produce("t", batch(1)), 11)) == [(OK, 2)]
    owner.abandon()
    second = serve(objects)
    assert [each.base_offset for each in walk(memoryview(records(second)))] == [0, 2]
    second.stop()


def test_a_directory_with_data_of_another_journal_is_refused_while_an_owner_serves():
    objects = SimulatedObjects()
    owner = serve(objects)
    with pytest.raises(StoreDamaged, match="other data"):
        serve(objects, plain_directory())
    owner.ask(create("t"))
    owner.stop()


def test_a_broker_waits_a_lease_while_another_is_putting_its_directory_in_the_store():
    objects = SimulatedObjects()
    objects.content["0/owners/0000000001"] = b"of one that is at work, or was"
    second = serve(objects)
    assert 6 <= second.loop.time() < 8
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
    """Longer than a lease: what is there says who has begun that, and nothing more comes."""
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
