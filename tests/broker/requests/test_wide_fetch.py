"""A fetch of so many partitions that it takes turns with other requests: what the tests of Fetch itself do not meet."""

import gc

import pytest
from fencepost.broker.handlers import fetch as fetches
from fencepost.broker.net import turns
from fencepost.broker.requests import running_fetch, wide_fetch
from fencepost.protocol.messages.fetch import FetchRequest
from produce_requests import answers, batch, bytes_of, create, fetch, produce
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient

PARTITIONS = 40
NAMED = 12  # the newest version of Fetch that names topics


@pytest.fixture
def broker(monkeypatch):
    """A broker that looks at two partitions of a wide fetch in a slice, and works a slice in a turn of the loop."""
    monkeypatch.setattr(fetches, "MANY_PARTITIONS", 4)
    monkeypatch.setattr(wide_fetch, "PARTITIONS_A_STEP", 2)
    monkeypatch.setattr(turns, "SLICE_UNITS", 2)
    with SimulatedBroker() as broker:
        broker.ask(create("t", PARTITIONS))
        yield broker


def everything(**more):
    made = FetchRequest.Topic
    parts = [made.Partition(partition=n, fetch_offset=0, partition_max_bytes=1 << 20) for n in range(PARTITIONS)]
    return fetch(topics=[made(topic="t", partitions=parts)], **more)


def found(response):
    """Return the partitions from which the answer has records."""
    return [part.partition_index for topic in response.responses for part in topic.partitions if bytes_of(part)]


@pytest.mark.slow
@pytest.mark.parametrize("partition", [0, 1, 20, 39])
@pytest.mark.parametrize("turn", range(0, 30, 3))
def test_a_wide_fetch_returns_records_appended_while_it_reads(broker, partition, turn):
    reader, writer = SimulatedClient(broker, "reader"), SimulatedClient(broker, "writer")
    reader.send(everything(max_wait_ms=60_000), NAMED)
    for _ in range(turn):
        broker.wait(0)
    assert answers(writer.ask(produce("t", batch(), partition=partition), 9))[0][0] == 0
    began_ms = broker.broker.clock.monotonic_ms()
    assert found(reader.receive()) == [partition]
    assert broker.broker.clock.monotonic_ms() - began_ms < 1_000


def test_other_clients_are_served_while_a_wide_fetch_is_read(broker):
    reader, other = SimulatedClient(broker, "reader"), SimulatedClient(broker, "other")
    reader.send(everything(), NAMED)
    other.send(fetch("t", 0), NAMED)
    other.receive()
    assert len(broker.broker.turns) == 1
    assert found(reader.receive()) == []


@pytest.mark.parametrize(("few", "many"), [(2, 4), (PARTITIONS - 1, PARTITIONS)])
def test_a_second_fetch_of_many_partitions_on_a_connection_ends_the_firsts_wait(broker, monkeypatch, few, many):
    monkeypatch.setattr(fetches, "FEW_PARTITIONS", few)
    monkeypatch.setattr(running_fetch, "FEW_PARTITIONS", few)
    monkeypatch.setattr(fetches, "MANY_PARTITIONS", many)
    reader = SimulatedClient(broker)
    for _ in range(3):
        reader.send(everything(max_wait_ms=60_000), NAMED)
    began_ms = broker.broker.clock.monotonic_ms()
    assert [found(reader.receive()) for _ in range(2)] == [[], []]
    assert broker.broker.clock.monotonic_ms() - began_ms < 1_000
    assert (len(broker.broker.waiting), len(broker.broker.waiting_places)) == (1, 1)
    assert found(reader.receive()) == []
    assert broker.broker.clock.monotonic_ms() - began_ms >= 60_000
    assert (len(broker.broker.waiting), len(broker.broker.waiting_places)) == (0, 0)


def test_an_answered_fetch_of_many_partitions_leaves_no_waiter_in_memory(broker, monkeypatch):
    monkeypatch.setattr(fetches, "FEW_PARTITIONS", PARTITIONS - 1)
    monkeypatch.setattr(running_fetch, "FEW_PARTITIONS", PARTITIONS - 1)
    monkeypatch.setattr(fetches, "MANY_PARTITIONS", PARTITIONS)
    reader = SimulatedClient(broker)
    reader.send(everything(max_wait_ms=60_000), NAMED)
    assert reader.quiet(1)
    broker.ask(produce("t", batch(), partition=3), 9)
    assert found(reader.receive()) == [3]
    assert (len(broker.broker.waiting), len(broker.broker.waiting_places)) == (0, 0)


@pytest.mark.slow
def test_an_answered_wide_fetch_is_freed_without_a_collection_of_cycles(broker):
    """A served broker freezes what is alive when the garbage collector runs, so cycles would stay in memory."""
    reader = SimulatedClient(broker)
    gc.collect()
    gc.disable()
    try:
        assert found(reader.ask(everything(), NAMED)) == []
        reader.send(everything(max_wait_ms=60_000), NAMED)
        assert reader.quiet(1)
        broker.ask(produce("t", batch(), partition=3), 9)
        assert found(reader.receive()) == [3]
        assert found(reader.ask(everything(max_wait_ms=60_000), NAMED)) == [3]  # is answered at once
        broker.wait(30)  # until the record is flushed
        log = broker.broker.topics.by_name["t"].partitions[3].log
        for state in log.segments:
            broker.broker.store.open_files.indexes.drop(f"{log.directory}/{state.stem}")
        assert found(reader.ask(everything(), NAMED)) == [3]  # is read from disk
        assert not [each for each in gc.get_objects() if isinstance(each, wide_fetch.WideFetch)]
    finally:
        gc.enable()


@pytest.mark.slow
@pytest.mark.parametrize("many", [4, PARTITIONS])
@pytest.mark.parametrize("turns_before", range(0, 30, 3))
def test_a_wide_fetch_leaves_no_state_when_its_client_disconnects(broker, monkeypatch, turns_before, many):
    monkeypatch.setattr(fetches, "FEW_PARTITIONS", many - 1)
    monkeypatch.setattr(running_fetch, "FEW_PARTITIONS", many - 1)
    monkeypatch.setattr(fetches, "MANY_PARTITIONS", many)
    reader = SimulatedClient(broker)
    reader.send(everything(max_wait_ms=60_000), NAMED)
    for _ in range(turns_before):
        broker.wait(0)
    reader.close()
    broker.wait(1)
    assert (len(broker.broker.waiting), len(broker.broker.waiting_places), len(broker.broker.turns)) == (0, 0, 0)


def test_an_exception_in_a_fetch_woken_by_a_produce_does_not_fail_the_produce(broker, monkeypatch):
    reader, writer = SimulatedClient(broker), SimulatedClient(broker)
    reader.send(everything(max_wait_ms=60_000), NAMED)
    assert reader.quiet(1)

    def fail(self, parts):
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(running_fetch.RunningFetch, "read_some", fail)
    assert answers(writer.ask(produce("t", batch()), 9)) == [(0, 0)]
    assert reader.receive().error_code == -1
    assert len(broker.broker.waiting) == 0
    broker.broker.metrics.failures.clear()
