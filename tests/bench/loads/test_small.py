"""Small requests and batches against a real broker: what the load counts is in the log, whichever program sends it."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from fencepost.bench import topics
from fencepost.bench.loads import closed_loop as load
from fencepost.bench.loads import small as small_load
from fencepost.bench.loads.child import LoadFailed
from fencepost.bench.loads.small import Produce
from fencepost.bench.peers import peers
from fencepost.bench.peers.names import BROKERS
from fencepost.bench.peers.peers import Peer
from fencepost.bench.wire import Wire
from fencepost.protocol.messages.offsets import ListOffsetsRequest
from fencepost.protocol.messages.produce import ProduceResponse
from this_machine import has_compiler

COMPILED = pytest.mark.skipif(
    not has_compiler(), reason="NO C COMPILER HERE: the load of small requests IS NOT TESTED as it is measured"
)


@pytest.fixture(scope="module")
def broker() -> Iterator[Peer]:
    with peers.fencepost("fsync") as peer:
        yield peer


@pytest.fixture
def topic(broker) -> Iterator[str]:
    with topics.topic(broker.host, broker.port, None, 4) as name:
        yield name


def written(broker: Peer, topic: str) -> list[int]:
    """Return the end offset of each of the topic's four partitions."""
    parts = [ListOffsetsRequest.Topic.Partition(partition_index=number, timestamp=-1) for number in range(4)]
    wire = Wire(broker.host, broker.port)
    found = wire.call(ListOffsetsRequest(topics=[ListOffsetsRequest.Topic(name=topic, partitions=parts)]), 1)
    wire.close()
    return [part.offset for part in found.topics[0].partitions]


@COMPILED
def test_a_small_load_counts_exactly_the_requests_found_in_the_log(broker, topic):
    sample = Produce("small", 16, 5).load(broker, topic, 0.3)
    ends = written(broker, topic)
    assert sum(ends) == sample.units == sample.latencies.count > 0
    assert all(ends)
    assert sample.bytes == 100 * sample.units
    assert sample.cpu_ns > 0
    assert sample.rss_bytes > 0
    assert sample.client_share > 0


@COMPILED
def test_a_load_with_100_kb_batches_counts_their_bytes(broker, topic):
    sample = Produce("batch", 4, 2, 1000, 100).load(broker, topic, 0.3)
    assert sum(written(broker, topic)) == 100 * sample.units
    assert sample.bytes == 100_000 * sample.units


@COMPILED
def test_an_error_code_of_the_broker_is_shown_by_its_name(broker):
    with pytest.raises(LoadFailed, match="UNKNOWN_TOPIC_OR_PARTITION"):
        Produce("small", 4, 1).load(broker, "nosuch", 0.3)


@COMPILED
def test_a_small_load_on_a_broker_that_has_ended_raises_load_failed():
    with peers.fencepost("os") as gone:
        pass
    with pytest.raises(LoadFailed, match="could not be made"):
        Produce("small", 4, 1).load(gone, "bench", 0.3)


def test_without_a_c_compiler_a_python_program_sends_the_same_requests(broker, topic, monkeypatch):
    monkeypatch.setattr(load, "program", lambda: None)
    sample = Produce("small", 16, 5).load(broker, topic, 0.3)
    assert sum(written(broker, topic)) > sample.units > 0  # the log also has the requests of the warm-up
    assert sample.latencies.count == sample.units
    assert sample.bytes == 100 * sample.units
    assert sample.client_share > 0


def test_only_the_topic_of_small_loads_is_left_after_a_small_and_a_batch_load(broker):
    scenarios = {scenario.name: scenario for scenario in small_load.table()}
    small, batch = scenarios["small 16x5"], scenarios["batch 100 KB"]
    before = topics.names(broker.host, broker.port)
    small.prepare(broker)
    batch.prepare(broker)
    assert topics.names(broker.host, broker.port) - before == {"bench"}
    assert small.window(broker, 0.1).units > 0
    assert batch.window(broker, 0.1).units > 0
    assert topics.names(broker.host, broker.port) - before == {"bench"}


def test_a_full_run_contains_the_small_loads_of_the_table():
    full = {scenario.name: scenario for scenario in small_load.full()}
    table = {scenario.name: scenario for scenario in small_load.table()}
    assert len(full) == len(small_load.full()) == 10
    assert list(table) == ["small 1x1", "small 16x1 over 16", "small 64x1", "small 16x5", "batch 100 KB"]
    for name, scenario in table.items():
        assert replace(scenario, peers=None) == replace(full[name], peers=None)


def test_every_small_load_of_the_table_runs_on_every_broker():
    for scenario in small_load.table():
        assert scenario.peers is None or scenario.peers >= BROKERS  # None: it runs on every peer


def test_the_position_of_the_error_code_is_found_by_encoding_an_answer():
    def answer(code: int) -> ProduceResponse:
        part = ProduceResponse.Topic.Partition(index=0, error_code=code, base_offset=0)
        return ProduceResponse(responses=[ProduceResponse.Topic(name="bench", partition_responses=[part])])

    # Version 7: correlation id, count of topics, name, count of partitions, index, error code.
    assert load.error_place(0, 7, answer) == 4 + 4 + 2 + len("bench") + 4 + 4
