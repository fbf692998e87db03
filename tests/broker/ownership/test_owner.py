"""A broker whose journal is in a store of objects: kills, stops that are no stops, and a store that is away."""

import pytest
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.ownership.owner import InStore
from fencepost.effects.objects import Refused, Unclear
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.objects import Faults, SimulatedObjects
from fencepost.protocol.batches import walk
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.ledger import DescribeLedgerRequest
from fencepost.protocol.messages.offsets import OffsetFetchRequest
from fencepost.storage.journal_source import StoreDamaged
from fencepost.storage.objects.errors import Fenced
from fencepost.storage.objects.looking import Looking
from fencepost.storage.shipping.names import PARTS, POINTS
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
    assert failed > 1  # it was tried again
    second = serve(objects)
    assert 6 <= second.loop.time() < 8  # store.lease.ms is 6,000
    second.stop()


def test_an_idle_owner_creates_an_empty_journal_round_about_every_two_seconds():
    objects = SimulatedObjects()
    first = serve(objects)
    first.wait(1)
    before = len(objects.content)
    first.wait(20)
    assert 8 <= len(objects.content) - before <= 11  # in 20 s
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
    assert len(created) / (60 * minutes) <= 0.6  # a second: an empty round every two seconds, and some checkpoints
    assert len([name for name in objects.content if name.startswith("0/journal/")]) < 60
    looked = Looking(objects.client(), no_pause).look()
    assert looked.rounds < 40
    owner.abandon()
    second = serve(objects)
    assert records(second) == shown
    second.stop()


def test_a_suspended_owner_that_was_replaced_halts_fenced_without_an_answer(caplog):
    objects = SimulatedObjects()
    first = serve(objects)
    first.ask(create("t"))
    first.ask(produce("t", batch(2)), 11)
    shown = records(first)
    second = serve(objects)  # no time passes for the first: its process was stopped
    with pytest.raises(ConnectionError):
        first.ask(produce("t", batch(2)), 11)
    assert isinstance(first.broker.halted, Fenced)
    (said,) = (record for record in caplog.records if record.levelname == "CRITICAL")
    assert said.getMessage().startswith("the broker is halted: epoch 1 was ended at round ")
    assert said.getMessage().endswith("start it again: it waits until that broker is gone")
    assert said.exc_info is None, "it is no bug"
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
    assert len(kept) < 200  # of more than 300 that were written
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
def test_a_store_that_refuses_only_checkpoints_is_logged_about_once_a_minute(caplog):
    """Rounds (writes of the journal) still succeed, so clients notice nothing, but a take-over has to read more and
    more rounds.
    """
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
    assert 2 <= len(said) <= 4  # in 200 s
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
    assert 3.5 < took_s < 5  # ten of the 50 rounds need not wait, the others take a tenth of a second each
    owner.stop()


def test_a_directory_with_its_journal_in_a_store_is_refused_without_that_store():
    objects = SimulatedObjects()
    owner = serve(objects)
    owner.stop()
    with pytest.raises(StoreDamaged, match="in a store of objects"):
        SimulatedBroker(SETTINGS, disk=owner.disk)


def plain_directory() -> SimulatedDisk:
    """Return the disk of a broker without a store."""
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
