"""Producers of librdkafka that add a group to a transaction and then send no offsets: one connection is closed."""

import pytest
from fencepost.broker.transactions.awaited_offsets import WAIT_MS
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.cluster import ApiVersionsRequest
from fencepost.protocol.messages.groups import FindCoordinatorRequest
from produce_requests import create
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient
from txn_client import Txn

PYTHON = ("confluent-kafka-python", "2.16.1-rdkafka-2.16.0")
PLAIN = ("librdkafka", "2.16.0")
JAVA = ("apache-kafka-java", "3.9.0")
SHORTLY_S, LONG_S = WAIT_MS / 1000 - 0.5, WAIT_MS / 1000 + 0.5


def producer(broker: SimulatedBroker, software: tuple[str, str] = PYTHON, name: str = "x") -> Txn:
    """Return a transactional producer with its id. Its client has named this software in ApiVersions."""
    client = SimulatedClient(broker)
    client.ask(ApiVersionsRequest(client_software_name=software[0], client_software_version=software[1]), 3)
    txn = Txn(broker, name, client=client)
    assert txn.init() == 0
    return txn


@pytest.fixture
def broker():
    with SimulatedBroker() as simulated:
        simulated.ask(create("t"))
        yield simulated


@pytest.mark.parametrize("software", [PYTHON, PLAIN], ids=["Python", "C"])
def test_the_connection_is_closed_if_no_offsets_follow_add_offsets_to_txn(broker, software, caplog):
    caplog.set_level("INFO", "fencepost.broker")
    waits = producer(broker, software)
    waits.write("t", b"a")
    assert waits.add_offsets() == 0
    broker.wait(SHORTLY_S)
    assert waits.client.quiet(0.1)
    assert waits.client.closed(1)
    assert "may wait for a coordinator that is gone" in caplog.text


def test_after_the_broker_closed_the_connection_the_transaction_goes_on_over_another(broker):
    waits = producer(broker)
    waits.add_offsets()
    assert waits.client.closed(LONG_S)
    waits.client = SimulatedClient(broker)
    assert waits.send_offset("t", 7) == 0
    assert waits.commit() == 0


def test_a_connection_that_was_closed_for_a_transaction_is_not_closed_again(broker):
    waits = producer(broker)
    waits.add_offsets()
    assert waits.client.closed(LONG_S)
    again = waits.client = SimulatedClient(broker)
    assert waits.add("t", 0) == [0]
    assert not again.closed(LONG_S)


def find(txn: Txn, client: SimulatedClient, software: tuple[str, str] = PYTHON) -> SimulatedClient:
    """Ask for the coordinator of a transaction over another connection of its producer."""
    client.ask(ApiVersionsRequest(client_software_name=software[0], client_software_version=software[1]), 3)
    assert client.ask(FindCoordinatorRequest(key_type=1, key=txn.name), 2).error_code == 0
    return client


def test_the_connection_that_asks_for_the_coordinator_is_closed_after_a_restart():
    before = SimulatedBroker()
    before.ask(create("t"))
    waits = producer(before)
    waits.add_offsets()
    with before.after_power_cut() as after:
        assert find(waits, SimulatedClient(after)).closed(LONG_S)


def test_asking_for_the_coordinator_closes_nothing_once_the_offsets_are_there(broker):
    sends = producer(broker)
    sends.add_offsets()
    assert sends.send_offset("t", 7) == 0
    assert not find(sends, SimulatedClient(broker)).closed(LONG_S)


def test_asking_for_the_coordinator_closes_nothing_if_no_group_was_added(broker):
    other = producer(broker)
    other.write("t", b"a")
    assert not find(other, SimulatedClient(broker)).closed(LONG_S)


def test_asking_for_the_coordinator_closes_no_connection_of_another_library(broker):
    waits = producer(broker, JAVA)
    waits.add_offsets()
    assert not find(waits, SimulatedClient(broker), JAVA).closed(LONG_S)


def test_connections_of_other_libraries_stay_open(broker):
    waits = producer(broker, JAVA)
    waits.add_offsets()
    assert not waits.client.closed(LONG_S)


@pytest.mark.parametrize("commit", [True, False], ids=["committed", "aborted"])
def test_a_producer_that_ends_its_transaction_without_offsets_keeps_its_connection(broker, commit):
    ends = producer(broker)
    ends.add_offsets()
    assert ends.end(commit) == 0
    ends.write("t", b"b")  # of the next one
    assert not ends.client.closed(LONG_S)


def test_a_producer_that_has_sent_its_offsets_keeps_its_connection(broker):
    sends = producer(broker)
    sends.add_offsets()
    assert sends.send_offset("t", 7) == 0
    assert not sends.client.closed(LONG_S)


def test_a_producer_whose_offsets_were_refused_keeps_its_connection(broker):
    sends = producer(broker)
    sends.add_offsets()
    assert sends.send_offset("absent", 7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not sends.client.closed(LONG_S)


def test_a_producer_whose_add_offsets_to_txn_was_refused_keeps_its_connection(broker):
    late = producer(broker)
    late.epoch -= 1
    assert late.add_offsets() == ErrorCode.PRODUCER_FENCED
    assert not late.client.closed(LONG_S)


def test_the_wait_for_offsets_is_timed_from_each_transactions_own_add_offsets(broker):
    first, second = (producer(broker, name=name) for name in ("x", "y"))
    first.add_offsets()
    broker.wait(SHORTLY_S)
    second.add_offsets()
    assert first.client.closed(1)
    assert second.client.quiet(SHORTLY_S - 0.7)
    assert second.client.closed(1.5)
