"""What a worker was to read for a client that has left is not read, and each client has a turn of its own."""

import pytest
from produce_requests import EARLY_MS, answers, batch, create, fetch, fetched, list_offsets, produce
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient
from slow_workers import SlowWorkers

PARTITIONS = 3
REQUESTS = {
    "ListOffsets": lambda partition: (list_offsets("t", EARLY_MS, partition=partition), 10),
    "Fetch": lambda partition: (fetch("t", partition=partition, partition_max_bytes=100_000), 12),
}


@pytest.fixture
def cold():
    """A broker after a restart. Its records are not in memory, and it reads from disk only when the test runs a job."""
    with SimulatedBroker() as broker:
        broker.ask(create("t", PARTITIONS))
        for partition in range(PARTITIONS):
            assert answers(broker.ask(produce("t", batch(), partition=partition))) == [(0, 0)]
        with broker.again() as successor:
            successor.broker.disk.is_cold = lambda path: path.endswith(".log")
            successor.broker.read_executor = SlowWorkers()
            yield successor


def asked(broker, request, client):
    """Have the client send a request of this name for each partition, one after another, and the broker handle them."""
    for partition in range(PARTITIONS):
        client.send(*REQUESTS[request](partition))
    broker.wait(0.1)


@pytest.mark.slow
@pytest.mark.parametrize("request_name", REQUESTS)
def test_queued_reads_of_a_disconnected_client_are_dropped(cold, request_name):
    """The reads of another client are answered."""
    workers, client, other = cold.broker.read_executor, SimulatedClient(cold), SimulatedClient(cold)
    asked(cold, request_name, client)
    asked(cold, request_name, other)
    assert len(workers.waiting) == 2 * PARTITIONS
    assert len(set(workers.owners)) == 2
    workers.run_one()
    client.close()
    while workers.waiting:
        workers.run_one()
    assert workers.dropped == PARTITIONS - 1
    for _ in range(PARTITIONS):
        found = other.receive()
        part = fetched(found) if request_name == "Fetch" else found.topics[0].partitions[0]
        assert part.error_code == 0
    assert not cold.broker.metrics.failures
    assert not cold.broker.metrics.errors
