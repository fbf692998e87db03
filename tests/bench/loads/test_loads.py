"""The loads through confluent-kafka, each run briefly against a broker: what they count is in the broker's log."""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace

import pytest
from eventually import wait_until
from fencepost.bench import librdkafka, topics
from fencepost.bench.contest.contest import Scenario
from fencepost.bench.loads import (
    child,
)
from fencepost.bench.loads import (
    consume as consume_load,
)
from fencepost.bench.loads import (
    latency as latency_load,
)
from fencepost.bench.loads import (
    modes as modes_load,
)
from fencepost.bench.loads import (
    produce as produce_load,
)
from fencepost.bench.loads import (
    share as share_load,
)
from fencepost.bench.loads import (
    txn as txn_load,
)
from fencepost.bench.loads.produce import log_ends
from fencepost.bench.loads.window import Latencies, Sample
from fencepost.bench.peers import peers
from fencepost.bench.peers.names import MOCK
from fencepost.bench.peers.peers import Peer
from long_runs import first_only

SECONDS = 0.5
WARM = 0.05


@pytest.fixture(scope="module")
def served() -> Iterator[Peer]:
    with peers.fencepost("os") as peer:
        yield peer


@pytest.fixture(scope="module")
def mock() -> Iterator[Peer]:
    with peers.mock() as peer:
        yield peer


def measured(scenario: Scenario, peer: Peer) -> Sample:
    scenario.prepare(peer)
    sample = scenario.window(peer, SECONDS)
    assert sample.units > 0
    assert sample.seconds > 0
    assert sample.cpu_ns > 0
    assert sample.rss_bytes > 0
    assert sample.client_share > 0
    return sample


def fetched(peer: Peer, topic: str, partitions: int) -> int:
    return sum(log_ends(peer, topic, partitions))


@pytest.mark.parametrize("codec", first_only(["zstd", "none"]))
def test_a_produce_load_runs_for_its_time_and_counts_acknowledged_records(served: Peer, codec: str) -> None:
    before = topics.names(served.host, served.port)
    sample = measured(produce_load.Produce(f"produce 1 KB {codec}", 1000, codec, warm_seconds=WARM), served)
    assert sample.bytes == 1000 * sample.units
    assert sample.latencies.count <= sample.units  # only the first record of each burst is timed
    assert topics.names(served.host, served.port) == before


def test_the_mock_cluster_accepts_produced_records(mock: Peer) -> None:
    measured(produce_load.Produce("produce 100 B", 100, warm_seconds=WARM), mock)


def test_acknowledged_records_that_are_not_in_the_log_are_a_failure(
    served: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce_load, "log_ends", lambda peer, topic, partitions: [0] * partitions)
    with pytest.raises(child.LoadFailed, match="were acknowledged, 0 are in the log"):
        produce_load.Produce("produce 1 KB", 1000, warm_seconds=WARM).window(served, SECONDS)


def test_records_that_the_broker_refuses_end_the_load_with_its_reason() -> None:
    with (
        peers.fencepost("os", None, "-X", "message.max.bytes=500") as peer,
        pytest.raises(child.LoadFailed, match="not acknowledged"),
    ):
        produce_load.Produce("produce 1 KB", 1000, warm_seconds=WARM).window(peer, SECONDS)


def test_values_have_the_configured_size_and_differ_within_a_batch() -> None:
    for size in produce_load.SIZES.values():
        values = produce_load.payloads(size)
        assert {len(value) for value in values} == {size}
        assert len(set(values)) == len(values) >= 100
        assert values == produce_load.payloads(size)


def test_a_consume_load_reads_the_topic_repeatedly_from_its_beginning(served: Peer) -> None:
    sample = measured(consume_load.Consume("consume 1 KB", 1000, 2000, warm_seconds=WARM), served)
    assert sample.units > 2000  # the number of records in the topic
    assert sample.bytes == 1000 * sample.units


def test_a_share_load_counts_no_more_records_than_there_are_and_times_the_first(served: Peer) -> None:
    records = 200_000
    sample = measured(share_load.ShareConsume(records=records, warm_seconds=WARM, settled_seconds=0), served)
    assert sample.units <= records
    assert sample.bytes == share_load.RECORD_BYTES * sample.units
    assert sample.latencies.count == 1


def read_once() -> None:
    librdkafka.consume("nowhere:1", "t", 1, lambda done: None)


def read_again_and_again() -> None:
    consume_load.Reader(consume_load.TimedConsume("nowhere:1", "t", 1, 1, SECONDS))


@pytest.mark.long
@pytest.mark.parametrize("read", [read_once, read_again_and_again])
def test_bench_consumers_pause_under_10_ms_when_their_queue_is_full(
    monkeypatch: pytest.MonkeyPatch, read: Callable[[], None]
) -> None:
    """librdkafka's default of fetch.queue.backoff.ms is 1 s: in a window of seconds, mostly that pause would be
    measured.
    """
    settings: dict[str, object] = {}

    class Created(Exception):
        pass

    def consumer(given: dict[str, object]) -> None:
        settings.update(given)
        raise Created

    monkeypatch.setattr("confluent_kafka.Consumer", consumer)
    with pytest.raises(Created):
        read()
    assert settings["fetch.queue.backoff.ms"] == librdkafka.QUEUE_FULL_MS < 10


def test_a_read_committed_load_skips_aborted_records_read_uncommitted_does_not(served: Peer) -> None:
    small = {"transactions": 101, "records": 5, "record_bytes": 100, "warm_seconds": WARM}
    # The first and the 101st transaction are aborted.
    for level, visible in (("read_committed", 99 * 5), ("read_uncommitted", 101 * 5)):
        scenario = consume_load.ConsumeTransactions(level, **small)
        measured(scenario, served)
        reader = consume_load.Reader(
            consume_load.TimedConsume(served.bootstrap, scenario.topic, 4, 10_000, SECONDS, level)
        )
        deadline = time.monotonic() + 30
        while reader.seen < visible and time.monotonic() < deadline:
            reader.take(100)
        reader.take(1)  # nothing more comes
        reader.close()
        assert reader.seen == visible


def test_a_reader_that_finds_no_records_raises_how_many_are_missing(
    served: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consume_load, "PATIENCE_S", 0)
    topics.create(served.host, served.port, "empty", 1)
    reader = consume_load.Reader(consume_load.TimedConsume(served.bootstrap, "empty", 1, 10, SECONDS))
    with pytest.raises(RuntimeError, match="10 of 10 were not read"):
        reader.take(10)
    reader.close()


@pytest.mark.long
def test_a_load_of_a_fixed_rate_sends_all_its_records_and_times_each_of_them(served: Peer) -> None:
    scenario = latency_load.EndToEnd(200, warm_seconds=WARM)
    sample = measured(scenario, served)
    assert sample.latencies.count == 100
    assert sample.units <= 100  # those that arrived within the window; all are timed
    again = scenario.window(served, SECONDS)
    assert again.latencies.count == 100
    assert fetched(served, scenario.topic, 1) == 2 * (1 + 10 + 100)  # each window: the first, 10 to warm up, 100 timed


@pytest.mark.long
def test_at_a_rate_that_the_broker_cannot_reach_each_record_still_has_a_latency(served: Peer) -> None:
    scenario = latency_load.EndToEnd(2_000_000, warm_seconds=0.001)
    scenario.prepare(served)
    pace = latency_load.Pace(served.bootstrap, scenario.topic, scenario.per_second, 0.05, 0, warm_seconds=0.001)
    with child.Child("fencepost.bench.loads.latency:receive", asdict(pace)) as running:
        running.expect("begin")
        running.expect("end")
        report = running.report()
    assert Latencies.decode(report.latencies).count == 100_000
    assert report.units < 100_000


@pytest.mark.parametrize(("producers", "partitions", "records"), [(1, 1, 1), (2, 4, 10)])
def test_transactions_are_counted_when_they_are_committed(
    served: Peer, producers: int, partitions: int, records: int
) -> None:
    scenario = txn_load.Transactions(producers, partitions, records, warm_seconds=WARM)
    sample = measured(scenario, served)
    assert sample.latencies.count == sample.units
    assert sample.bytes == 100 * records * sample.units
    # At least one marker for each transaction; those that warmed up are in the log, too.
    assert fetched(served, scenario.topic, partitions) >= sample.units * (records + 1)


def test_the_mock_cluster_accepts_transactions(mock: Peer) -> None:
    measured(txn_load.Transactions(1, warm_seconds=1), mock)  # a second, because its metadata shows a new topic late


def test_transactions_over_more_partitions_than_the_mock_has_are_not_run_on_it() -> None:
    all_of_them = [one for one in txn_load.full() if isinstance(one, txn_load.Transactions)]
    # Each topic of the mock has four partitions.
    assert {one.partitions for one in all_of_them if one.peers and MOCK in one.peers} == {1, 4}


@pytest.mark.long
def test_the_copy_load_counts_no_more_than_the_records_and_markers_it_wrote(served: Peer) -> None:
    scenario = txn_load.Copy(records=1000, batch=50, warm_seconds=WARM)
    sample = measured(scenario, served)
    assert sample.bytes == 100 * sample.units
    assert sample.latencies.count >= sample.units / 50  # of transactions, which have 50 records at most
    # At least one marker for each transaction; those that warmed up are in the log, too.
    assert fetched(served, txn_load.COPIES, 4) >= sample.units + sample.latencies.count


def test_committed_records_are_visible_when_the_commit_returns(served: Peer) -> None:
    sample = measured(txn_load.Visible(warm_seconds=WARM), served)
    assert sample.latencies.count == sample.units
    assert sample.latencies.percentile_ms(1) == 0.001  # the histogram's least value: the first look found each record


@pytest.mark.long
@pytest.mark.parametrize("mode", modes_load.full(), ids=lambda mode: mode.name)
def test_each_delivery_mode_counts_the_records_that_the_broker_has(served: Peer, mode: modes_load.Mode) -> None:
    sample = measured(replace(mode, warm_seconds=WARM), served)
    assert sample.latencies.count * mode.batch == sample.units
    assert sample.bytes == 100 * sample.units
    # Waits, because a load with at most once ends before all its records have arrived.
    wait_until(lambda: fetched(served, mode.topic, 1) >= sample.units)


def test_scenario_names_are_unique_and_a_full_run_contains_the_table() -> None:
    modules = (produce_load, consume_load, latency_load, txn_load, modes_load)
    table = [scenario.name for module in modules for scenario in module.table()]
    full = [scenario.name for module in modules for scenario in module.full()]
    assert len(set(full)) == len(full) == 15 + 4 + 2 + 20 + 6
    assert set(table) < set(full)
    assert table == [
        "produce 100 B",
        "produce 1 KB",
        "consume 1 KB",
        "end to end 2,000/s",
        "transactions 1p 4x1",
        "transactions 16p 4x1",
    ]
