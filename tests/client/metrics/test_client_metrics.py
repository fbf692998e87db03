"""What clients count of themselves with `metrics=`: as a snapshot, and as a collector of prometheus_client."""

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest
from fencepost.client.metrics.counters import Durations, Living
from fencepost.client.snapshots import PartitionLag
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from served_broker import ServedBroker

import fencepost as fp


@pytest.fixture
def at() -> Iterator[str]:
    with ServedBroker(group_initial_rebalance_delay_ms=0) as broker:
        yield f"127.0.0.1:{broker.port}"


async def failing(transaction: fp.Transaction, *, is_sent: bool) -> None:
    async with transaction as tx:
        await (tx.send_and_wait if is_sent else tx.send)("orders", b"v")
        raise ZeroDivisionError


async def test_client_metrics_count_acknowledged_records_batches_and_bytes(at: str) -> None:
    metrics = fp.ClientMetrics()
    async with fp.Producer(at, metrics=metrics) as producer:
        for number in range(5):
            await producer.send("orders", b"%d" % number)
        await producer.flush()
        now = metrics.snapshot()
        assert now.sent_records == {"orders": 5}
        assert 1 <= now.sent_batches <= 5
        assert now.batch_durations.count == now.sent_batches
        assert now.sent_bytes > 0
        assert (now.in_flight, now.buffered_bytes, now.failed_records, now.retries) == (0, 0, {}, 0)
    assert metrics.snapshot().transactions == {}


async def test_transactions_are_counted_by_their_outcome(at: str) -> None:
    metrics = fp.ClientMetrics()
    async with fp.Producer(at, transactional_id="x", metrics=metrics) as producer:
        for _ in range(2):
            async with producer.transaction() as tx:
                await tx.send("orders", b"v")
        with pytest.raises(ZeroDivisionError):
            await failing(producer.transaction(), is_sent=True)
        async with producer.transaction():
            pass
    now = metrics.snapshot()
    assert now.transactions == {"committed": 3, "aborted": 1}
    assert now.transaction_durations.count == 4


async def test_unsent_records_of_an_aborted_transaction_count_as_failed_in_client_metrics(at: str) -> None:
    metrics = fp.ClientMetrics()
    async with fp.Producer(at, transactional_id="x", linger_ms=10_000, metrics=metrics) as producer:
        with pytest.raises(ZeroDivisionError):
            await failing(producer.transaction(), is_sent=False)
    assert metrics.snapshot().failed_records == {"AbortableTransactionError": 1}


async def test_a_consumer_counts_returned_records_and_its_lag(at: str) -> None:
    metrics = fp.ClientMetrics()
    async with fp.Producer(at, transactional_id="x") as producer, fp.Producer(at) as plain:
        for number in range(4):
            await plain.send_and_wait("orders", b"%d" % number)
        async with producer.transaction() as tx:
            await tx.send_and_wait("orders", b"open")
            config = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
            async with fp.Consumer(at, topics=["orders"], metrics=metrics, **config) as consumer:
                assert (await consumer.getone()).value == b"0"
                assert metrics.snapshot().received_records == {"orders": 1}
                found = await consumer.getmany(timeout_ms=5_000)
                assert sum(map(len, found.values())) == 3
                now = metrics.snapshot()
                assert now.received_records == {"orders": 4}
                assert now.lag == {fp.TopicPartition("orders", 0): PartitionLag(0, 1)}


async def test_an_interrupted_iteration_counts_only_returned_records(at: str) -> None:
    metrics = fp.ClientMetrics()
    async with fp.Producer(at) as plain:
        for number in range(5):
            await plain.send("orders", b"%d" % number)
    async with fp.Consumer(at, topics=["orders"], auto_offset_reset="earliest", metrics=metrics) as consumer:
        async for record in consumer:
            if record.value == b"2":
                break
        assert metrics.snapshot().received_records == {"orders": 3}
        consumer.state()
        assert metrics.snapshot().received_records == {"orders": 3}


async def test_prometheus_metrics_have_the_same_values_under_prometheus_names(at: str) -> None:
    metrics, registry = fp.ClientMetrics(), CollectorRegistry()
    registry.register(metrics.collector())
    async with fp.Producer(at, transactional_id="x", metrics=metrics) as producer, producer.transaction() as tx:
        await tx.send("orders", b"v")
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
    }
    assert found[("fencepost_client_sent_records_total", "orders")] == 1
    assert found[("fencepost_client_transactions_total", "committed")] == 1
    assert found[("fencepost_client_transaction_duration_seconds_count",)] == 1
    assert found[("fencepost_client_batch_duration_seconds_bucket", "+Inf")] == 1
    assert found[("fencepost_client_requests_in_flight",)] == 0
    assert found[("fencepost_client_undecided_decisions_total",)] == 0
    assert found[("fencepost_client_diverged_decisions_total",)] == 0


def test_blocking_clients_are_counted_in_client_metrics(at: str) -> None:
    metrics = fp.ClientMetrics()
    with fp.sync.Producer(at, metrics=metrics) as producer:
        producer.send_and_wait("orders", b"v")
    with fp.sync.Consumer(at, topics=["orders"], auto_offset_reset="earliest", metrics=metrics) as consumer:
        assert consumer.getone().value == b"v"
    now = metrics.snapshot()
    assert (now.sent_records, now.received_records) == ({"orders": 1}, {"orders": 1})


def test_clients_can_be_created_while_another_thread_reads_the_metrics() -> None:
    """While one thread iterates over the clients, another may add one."""

    class Client:
        pass

    living, clients = Living(), [Client(), Client(), Client()]
    living.add(clients[0])
    living.add(clients[1])
    asked = iter(living)
    assert next(asked) is clients[0]
    living.add(clients[2])
    assert list(asked) == [clients[1]]
    del clients[0], asked
    gc.collect()
    assert list(living) == clients


@given(st.lists(st.integers(min_value=-5, max_value=1 << 30)))
def test_a_bucket_of_client_metrics_counts_all_durations_up_to_its_bound(durations: list[int]) -> None:
    counted = Durations()
    for ms in durations:
        counted.add(ms)
    now = counted.snapshot()
    assert now.count == len(durations)
    for bound, count in now.buckets:
        assert count == sum(1 for ms in durations if ms <= bound)


@pytest.mark.slow
def test_nothing_of_prometheus_is_imported_by_clients_without_a_collector() -> None:
    program = (
        "import sys, fencepost as fp; fp.Producer, fp.Consumer; fp.ClientMetrics().snapshot();"
        "sys.exit('prometheus_client' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.slow
def test_clients_without_metrics_do_not_import_them() -> None:
    program = (
        "import sys, fencepost as fp; fp.Producer, fp.Consumer;"
        "sys.exit('fencepost.client.metrics.counters' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_collector_without_prometheus_client_names_the_extra_to_install() -> None:
    program = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "import fencepost as fp\n"
        "try: fp.ClientMetrics().collector()\n"
        "except fp.InvalidConfigurationError as error: print(error, '|', error.hint)"
    )
    ended = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    told = 'a collector needs prometheus-client, which is not installed | pip install "fencepost[metrics]"\n'
    assert (ended.stdout, ended.stderr) == (told, "")
