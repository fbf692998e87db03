"""Unchanged clients with transactions while the owner of a store is killed and a standby takes over.

Each transaction has a number, and writes it into two partitions. What its commit says is believed: if it returns, both
records are there once; if it raises, both or none are.
"""

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path

import aiokafka.errors
import confluent_kafka
import kafka.errors
import pytest
from broker_process import BrokerProcess
from confluent_kafka.admin import AdminClient, NewTopic
from java_clients import JavaClients, JavaError, JavaProducer
from library_producers import LIBRARIES, Aio, Confluent, Hung, LibraryProducer, copy, within
from producer_process import KafkaPythonProcess
from store_brokers import numbers, until, wait_for_name

QUICK = ("-X", "store.heartbeat.ms=150", "-X", "store.puts.per.second=1000", "-X", "store.lease.ms=600")
IN_SUITE = "aiokafka"
PRODUCERS = LIBRARIES | {"kafka-python": KafkaPythonProcess}
NEVER_S = 120  # no call takes so long, on a slow machine either
HANGS_S = 15  # kafka-python forgets requests for which it makes a connection; then a successor goes on

Make = Callable[[str, str], LibraryProducer]


@pytest.fixture
def brokers(tmp_path: Path):
    """An owner and a standby on one store. The standby is ready once the owner is gone."""
    url = f"file://{tmp_path / 'store'}"
    owner = BrokerProcess(str(tmp_path / "first"), "--store", url, *QUICK)
    standby = BrokerProcess(str(tmp_path / "second"), "--store", url, "--standby", "-X", "node.id=2", *QUICK)
    owner.start()
    starting = threading.Thread(target=standby.start)
    starting.start()
    wait_for_name(standby, owner)
    try:
        yield owner, standby
    finally:
        owner.kill()
        starting.join()
        assert standby.stop() == 0


@pytest.fixture(
    params=[IN_SUITE, *(pytest.param(one, marks=pytest.mark.long) for one in [*PRODUCERS, "java"] if one != IN_SUITE)]
)
def make(request, tmp_path_factory):
    """A function that makes a transactional producer of one library, given bootstrap servers and a transactional id."""
    if request.param != "java":
        yield PRODUCERS[request.param]
        return
    with JavaClients(tmp_path_factory.mktemp("java")) as jvm:
        yield lambda bootstrap, transactional_id: JavaProducer(jvm, bootstrap, transactional_id)


def transact(producer: LibraryProducer, number: int) -> None:
    """Write a number into both partitions, in one transaction."""
    producer.begin()
    for partition in (0, 1):
        producer.send("t", b"%d" % number, partition)
    producer.commit()


class Load:
    """Transactions, one after the other, until it is ended. A producer that has failed gets a successor."""

    def __init__(self, make: Make, bootstrap: str) -> None:
        self.committed: list[int] = []
        self.unknown: list[int] = []  # the commit raised
        self.errors: list[BaseException] = []
        self._make = lambda: make(bootstrap, "load")
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        producer = None
        while not self._ends.is_set():
            try:
                if producer is None:
                    producer = self._make()
                    within(HANGS_S, producer.init)
                within(HANGS_S, transact, producer, number)
                self.committed.append(number)
            except Exception as error:
                self.errors.append(error)
                self.unknown.append(number)
                if producer is not None:
                    with contextlib.suppress(Exception):
                        within(HANGS_S, producer.close)
                producer = None
            number += 1
        if producer is not None:
            producer.close()

    def more(self, count: int) -> None:
        """Wait until more transactions are committed."""
        wanted = len(self.committed) + count
        until(lambda: len(self.committed) >= wanted, f"nothing is committed: {self.errors[-3:]}")

    def end(self) -> None:
        self._ends.set()
        self._thread.join()


def create_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("t", 2)])["t"].result(30)


def check_is_fenced(producer: LibraryProducer, error: Exception) -> None:
    """Assert that a producer of this library raises this error if another one has taken over its id."""
    match producer:
        case Aio():
            assert type(error) is aiokafka.errors.ProducerFenced
        case Confluent():
            assert isinstance(error, confluent_kafka.KafkaException)
            assert error.args[0].code() == confluent_kafka.KafkaError._FENCED
        case JavaProducer():
            assert isinstance(error, JavaError)
            assert "ProducerFencedException" in error.kinds
        case _:
            # It hangs if it has dropped its request together with the connection to the owner that was killed.
            assert isinstance(producer, KafkaPythonProcess)
            assert type(error) in (kafka.errors.ProducerFencedError, Hung)


@pytest.mark.slow
def test_transactions_are_whole_and_none_is_lost_when_the_owner_of_a_store_is_killed(brokers, make):
    """A producer that was fenced before the owner is killed cannot commit afterwards either. Its successor goes on."""
    owner, standby = brokers
    create_topic(owner.bootstrap)
    both = f"{owner.bootstrap},{standby.bootstrap}"
    fenced, successor = make(both, "fenced"), make(both, "fenced")
    fenced.init()
    fenced.begin()
    fenced.send("t", b"-1", 0)
    successor.init()
    transact(successor, 1_000_000)
    load = Load(make, both)
    try:
        load.more(20)
        owner.kill()
        load.more(20)
        with pytest.raises(Exception) as refused:  # each library has its own
            within(HANGS_S, fenced.commit)
        check_is_fenced(fenced, refused.value)
        try:
            within(HANGS_S, transact, successor, 1_000_001)
            load.committed.append(1_000_001)
        except Hung:
            # Only kafka-python may hang: it waits for the answer to a request that it has dropped.
            assert isinstance(successor, KafkaPythonProcess)
            load.unknown.append(1_000_001)
    finally:
        load.end()
        for one in (fenced, successor):
            with contextlib.suppress(Exception):
                within(HANGS_S, one.close)
    first, second = (numbers(standby, partition) for partition in (0, 1))
    assert sorted(first) == sorted(second)
    assert len(set(first)) == len(first)
    expected = {*load.committed, 1_000_000}
    assert expected <= set(first) <= expected | set(load.unknown)


@pytest.mark.slow
def test_a_producer_of_librdkafka_commits_offsets_to_the_next_owner(brokers):
    """It waits for the coordinator of the group that it had until the broker wakes it."""
    owner, standby = brokers
    create_topic(owner.bootstrap)
    producer = Confluent(f"{owner.bootstrap},{standby.bootstrap}", "copier", hangs_s=NEVER_S)
    producer.init()
    copy(producer, 1)
    owner.kill()
    transact(producer, 2)  # so that it knows the next owner, and none of its connections changes any more
    copy(producer, 3)
    assert numbers(standby) == [1, 2, 3]
