"""At most once, at least once, exactly once, with unchanged clients: what decides is the order of two commits."""

import pytest
from aiokafka import AIOKafkaProducer
from chaos_proxy import PRODUCE, REPLY, ChaosProxy
from confluent_kafka import Consumer, Producer, TopicPartition
from fencepost.protocol.messages.transactions import DescribeTransactionsRequest
from kafka import KafkaProducer
from old_client import connected

COUNT = 12
TIMEOUT_S = 20


def filled(bootstrap, topic):
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(COUNT):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(TIMEOUT_S) == 0


def taken(bootstrap, topic, *, isolation="read_committed"):
    """Read the topic to its end, and return the numbers."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "-", "isolation.level": isolation}
    consumer = Consumer(settings | {"enable.partition.eof": True, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while True:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        if message.error():
            consumer.close()
            return found
        found.append(int(message.value()))


def member(bootstrap, group, topic):
    """Return a consumer that goes on at the committed offset, and commits by hand."""
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
    consumer = Consumer(settings | {"auto.offset.reset": "earliest", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0)])
    return consumer


class Crash(Exception):
    """The copier is gone, between the two things it had to do for one record."""


class Copier:
    """Copies record by record: the output and the committed offset, in this order or that, or in one transaction."""

    def __init__(self, bootstrap, name, order, **settings):
        self.bootstrap, self.name, self.order = bootstrap, name, order
        self.transactional = "transactional.id" in settings
        self.settings = {"bootstrap.servers": bootstrap} | settings
        filled(bootstrap, f"{name}-in")

    def run(self, crash_at):
        """Copy until a crash at record `crash_at`, let a successor copy the rest, and return the numbers in the
        output.
        """
        with pytest.raises(Crash):
            self.live(crash_at)
        self.live(None)
        return taken(self.bootstrap, f"{self.name}-out")

    def live(self, crash_at):
        self.producer = Producer(self.settings)
        if self.transactional:  # which ends what the one before left open
            self.producer.init_transactions(TIMEOUT_S)
        self.consumer = member(self.bootstrap, self.name, f"{self.name}-in")
        try:
            number = -1
            while number < COUNT - 1:
                message = self.consumer.poll(TIMEOUT_S)
                assert message is not None
                assert message.error() is None
                number = int(message.value())
                self.copy(message, number == crash_at)
        finally:
            self.consumer.close()  # which commits nothing

    def copy(self, message, crash):
        if self.transactional:
            self.producer.begin_transaction()
        first, second = self.order
        getattr(self, first)(message)
        if crash:
            raise Crash
        getattr(self, second)(message)
        if self.transactional:
            self.producer.commit_transaction(TIMEOUT_S)

    def output(self, message):
        self.producer.produce(f"{self.name}-out", message.value(), partition=0)
        assert self.producer.flush(TIMEOUT_S) == 0

    def offset(self, message):
        offsets = [TopicPartition(f"{self.name}-in", 0, message.offset() + 1)]
        if self.transactional:
            self.producer.send_offsets_to_transaction(offsets, self.consumer.consumer_group_metadata(), TIMEOUT_S)
        else:
            self.consumer.commit(offsets=offsets, asynchronous=False)


@pytest.mark.requirement("S-02", "S-12")
def test_writing_output_before_the_offset_gives_at_least_once(broker, name):
    copier = Copier(broker.bootstrap, name, ("output", "offset"), acks="all")
    assert copier.run(crash_at=5) == [*range(6), *range(5, COUNT)]


@pytest.mark.requirement("S-01", "S-12")
def test_committing_the_offset_before_the_output_gives_at_most_once(broker, name):
    copier = Copier(broker.bootstrap, name, ("offset", "output"), acks=0, retries=0)
    assert copier.run(crash_at=5) == [number for number in range(COUNT) if number != 5]


@pytest.mark.requirement("S-03", "S-12", "S-89", "S-118")
@pytest.mark.parametrize("order", [("output", "offset"), ("offset", "output")])
def test_output_and_offset_in_one_transaction_give_exactly_once(broker, name, order):
    copier = Copier(broker.bootstrap, name, order, **{"transactional.id": name})
    assert copier.run(crash_at=5) == list(range(COUNT))


@pytest.mark.requirement("S-02", "S-08")
def test_without_idempotence_a_lost_acknowledgement_makes_the_retry_repeat_records(broker, name):
    with ChaosProxy(broker.bootstrap) as proxy:
        settings = {"bootstrap.servers": proxy.bootstrap, "acks": "all", "retries": 10, "linger.ms": 0}
        producer = Producer(settings | {"retry.backoff.ms": 50, "max.in.flight": 1})
        for number in range(COUNT):
            if number in (3, 7):
                proxy.cut(PRODUCE, side=REPLY)
            producer.produce(name, b"%d" % number, partition=0)
            assert producer.flush(TIMEOUT_S) == 0
    found = taken(broker.bootstrap, name)
    assert sorted(set(found)) == list(range(COUNT))
    assert len(found) == COUNT + 2
    assert found == sorted(found)


# ---- the clients' settings, as the broker hears of them --------------------------------------------------------------


def timeout_of(broker, transactional_id):
    with connected(broker.bootstrap) as client:
        asked = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        (reported,) = client.call(asked, 0).transaction_states
    assert reported.error_code == 0
    return reported.transaction_timeout_ms


@pytest.mark.requirement("S-55", "S-117")
async def test_each_clients_default_transaction_timeout_reaches_the_broker(broker, name):
    Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"{name}-c"}).init_transactions(TIMEOUT_S)
    settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": f"{name}-t", "transaction.timeout.ms": 7000}
    Producer(settings).init_transactions(TIMEOUT_S)
    aio = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=f"{name}-a")
    await aio.start()
    await aio.stop()
    python = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=f"{name}-p")
    python.init_transactions()
    python.close()
    assert [timeout_of(broker, f"{name}-{who}") for who in "ctap"] == [60_000, 7_000, 60_000, 60_000]


@pytest.mark.requirement("S-117", "S-106")
def test_aborted_records_are_returned_only_with_read_uncommitted(broker, name):
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name})
    producer.init_transactions(TIMEOUT_S)
    ends = producer.commit_transaction, producer.abort_transaction, producer.commit_transaction
    for number, end in enumerate(ends):
        producer.begin_transaction()
        producer.produce(name, b"%d" % number, partition=0)
        producer.flush(TIMEOUT_S)
        end(TIMEOUT_S)
    assert taken(broker.bootstrap, name) == [0, 2]
    assert taken(broker.bootstrap, name, isolation="read_uncommitted") == [0, 1, 2]
