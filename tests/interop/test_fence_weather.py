"""The three libraries and the Java client over a bad network: no error in an application, nothing lost, twice or torn.

Where connections are only cut, or only slow, the fence never has to close one: no library sends a request of a class
over an older connection than one before it. Where requests arrive late on connections that were given up, it closes
those.
"""

import os
import random
import time

import pytest
from chaos_proxy import API_VERSIONS, FIND_COORDINATOR, INIT_PRODUCER_ID, REPLY, REQUEST, TRANSACTIONAL, ChaosProxy
from java_clients import JavaProducer
from library_producers import LIBRARIES, Hung
from old_client import Looker
from served_broker import ServedBroker

TRANSACTIONS = int(os.environ.get("TRANSACTIONS", "16"))
SLOWER = {"confluent-kafka": 3}  # librdkafka waits for a second, or for ever, when it loses a group's coordinator
SEED = int(os.environ.get("SEED", "4"))
SETTLE_S = 10
# Two faults of libraries, at any broker: kafka-python 3.0.12 forgets the request for which it is making a connection
# if that fails, and waits for ever; aiokafka 0.14 gives up if a connection dies over which it asks for a coordinator.
CUT_OFF = [api for api in range(70) if api not in (API_VERSIONS, FIND_COORDINATOR)]


@pytest.fixture(scope="module")
def served():
    with ServedBroker() as broker:
        yield broker


def calm(proxy):
    """Disturb nothing."""


def cuts(proxy):
    """Cut connections, before a request has reached the broker or before its reply has come back."""
    proxy.cut(*CUT_OFF, side=REQUEST, times=None, share=0.04)
    proxy.cut(*CUT_OFF, side=REPLY, times=None, share=0.04)


def delays(proxy):
    """Delay frames of each connection by itself, so that requests of two connections can overtake each other."""
    proxy.delay(side=REQUEST, up_to_s=0.02, share=0.4)
    proxy.delay(side=REPLY, up_to_s=0.02, share=0.4)


def storm(proxy):
    """Do all that, and let requests of transactions arrive after the client has repeated them on a newer connection.

    InitProducerId is left out: nothing fences a late one of the Java client, which would fence the client itself.
    """
    cuts(proxy)
    delays(proxy)
    proxy.late(*TRANSACTIONAL - {INIT_PRODUCER_ID}, times=None, share=0.08, after_s=0.3)


class Application:
    """Writes transactions of a seed, and knows what must be read."""

    def __init__(self, made, name, seed):
        """made: makes a producer, always with the same transactional id."""
        self.made = made
        self.name = name
        self.rng = random.Random(seed)
        self.expected = {0: [], 1: []}
        self.offset = -1
        self.successors = 0

    def start(self):
        self.producer = self.made()
        self.producer.init()

    def run(self, count):
        for number in range(count):
            try:
                self.transaction(number)
            except Hung:  # the library's own fault; what was open is aborted by the successor
                self.successors += 1
                self.start()

    def transaction(self, number):
        self.producer.begin()
        written = []
        for _ in range(self.rng.randrange(4)):
            partition, value = self.rng.randrange(2), b"%d-%d" % (number, len(written))
            self.producer.send(self.name, value, partition)
            written.append((partition, value))
        with_offset = self.rng.random() < 0.4
        if with_offset:
            self.producer.send_offset(f"group-{self.name}", self.name, number)
        if self.rng.random() < 0.25:
            self.producer.abort()
            return
        self.producer.commit()
        for partition, value in written:
            self.expected[partition].append(value)
        self.offset = number if with_offset else self.offset


@pytest.fixture
def producer_of(request):
    """A function that makes a producer of a library, or of Kafka's Java client."""

    def made(library, bootstrap, transactional_id):
        if library == "java":
            return JavaProducer(request.getfixturevalue("java"), bootstrap, transactional_id)
        return LIBRARIES[library](bootstrap, transactional_id)

    return made


@pytest.mark.parametrize(
    "weather",
    [
        pytest.param(each, id=each.__name__, marks=[] if each is storm else pytest.mark.long)
        for each in (calm, cuts, delays, storm)
    ],
)
@pytest.mark.parametrize("library", [*LIBRARIES, "java"])
def test_with_cut_and_delayed_connections_readers_get_exactly_committed_records(
    served, library, weather, name, producer_of
):
    bootstrap = os.environ.get("KAFKA", f"127.0.0.1:{served.port}")
    before = served.inside(lambda broker: broker.metrics.fenced_connections)
    with Looker(bootstrap) as look, ChaosProxy(bootstrap, seed=SEED) as proxy:
        look.topic(name, 2)
        application = Application(lambda: producer_of(library, proxy.bootstrap, f"id-{name}"), name, SEED)
        application.start()
        try:
            weather(proxy)
            application.run(TRANSACTIONS // SLOWER.get(library, 1))
        finally:
            proxy.clear()
            application.producer.close()
        for partition, expected in application.expected.items():
            settle(look, name, partition)
            assert look.committed(name, partition) == expected
        assert look.offset(f"group-{name}", name) == application.offset
    closed = served.inside(lambda broker: broker.metrics.fenced_connections) - before
    assert closed == 0 or weather is storm, "only requests that arrive late make the fence close a connection"
    firsts = {link.requests[0][0] for link in proxy.links if link.requests}
    assert firsts == {API_VERSIONS}, "a connection is known to the broker before anything of weight comes over it"
    # librdkafka may wait for ever for a coordinator that it lost (SLOWER above): then a successor goes on.
    assert application.successors == 0 or library == "confluent-kafka"


def settle(look, name, partition):
    """Wait until no transaction is open in the partition."""
    until = time.monotonic() + SETTLE_S
    while len(set(look.ends(name, partition))) > 1:
        assert time.monotonic() < until, "a transaction stays open"
        time.sleep(0.01)
