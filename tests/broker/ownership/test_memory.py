"""The memory of a broker whose store does not answer: bounded, whatever clients send."""

from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.ownership.owner import InStore
from fencepost.effects.simulated.objects import SimulatedObjects
from fencepost.storage.objects.journal import BUSY_BYTES
from produce_requests import answers, batch, create, produce
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient

SETTINGS = BrokerSettings(offsets_topic_num_partitions=1, transaction_state_log_num_partitions=1)
SENT_EACH = 40
CLIENTS = 4
RECORD = b"v" * (900 << 10)


def test_a_broker_whose_store_is_away_takes_in_64_mb_and_acknowledges_them_later():
    """With that much waiting, clients are not read from, so it does not grow however much they send."""
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
