"""The memory of a broker with a store: bounded while the store does not answer, and freed after a take-over."""

from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.ownership import candidate
from fencepost.broker.ownership.owner import InStore
from fencepost.effects.objects import Objects
from fencepost.effects.simulated.objects import SimulatedObjects
from fencepost.storage.objects import format as form
from fencepost.storage.objects.journal import BUSY_BYTES
from fencepost.storage.objects.kept import KeptRounds
from produce_requests import answers, batch, create, produce
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient

SETTINGS = BrokerSettings(offsets_topic_num_partitions=1, transaction_state_log_num_partitions=1)
SENT_EACH = 40
CLIENTS = 4
RECORD = b"v" * (900 << 10)


def test_a_broker_whose_store_is_away_takes_in_64_mb_and_acknowledges_them_later():
    """While that much waits, the broker reads nothing from clients, so its memory stops growing, whatever they send."""
    objects = SimulatedObjects()
    owner = SimulatedBroker(SETTINGS, in_store=InStore(objects.client(), lambda seconds: None))
    seen, journal = owner.broker._in_store.objects, owner.broker.store.journal
    owner.ask(create("t"))
    seen.is_away = True
    before = journal.next_unit
    sending = [SimulatedClient(owner) for _ in range(CLIENTS)]
    for client in sending:
        for _ in range(SENT_EACH):
            client.send(produce("t", batch(1, value=RECORD)), 11)
    owner.wait(60)
    assert owner.broker.store.congested
    taken = (journal.next_unit - before) * len(RECORD)
    assert BUSY_BYTES // 2 < taken <= BUSY_BYTES + CLIENTS * (1 << 20)
    seen.is_away = False
    owner.wait(60)
    assert sorted(answers(client.receive())[0] for client in sending for _ in range(SENT_EACH)) == [
        (0, offset) for offset in range(len(sending) * SENT_EACH)
    ]
    assert not owner.broker.store.congested
    owner.stop()


def test_an_owner_keeps_no_rounds_in_memory_that_it_read_to_take_over(monkeypatch):
    made: list[KeptRounds] = []

    def noted(objects: Objects) -> KeptRounds:
        made.append(KeptRounds(objects))
        return made[-1]

    monkeypatch.setattr(candidate, "KeptRounds", noted)
    objects = SimulatedObjects()
    first = SimulatedBroker(SETTINGS, in_store=InStore(objects.client(), lambda seconds: None))
    first.ask(create("t"))
    first.ask(produce("t", batch(1)), 11)
    first.abandon()
    seen = objects.client()
    second = SimulatedBroker(SETTINGS, in_store=InStore(seen, lambda seconds: None, is_standby=True))
    read = {name for call, name in seen.calls if call == "read" and form.read_place(name)}
    assert len(read) >= 3  # journal rounds that the candidate has read
    assert not any(made[1].has(place) for name in read if (place := form.read_place(name)))
    assert made[1].is_full, "it keeps none from now on"
    second.stop()
