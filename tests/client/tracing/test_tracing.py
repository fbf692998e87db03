"""What `tracing=` takes, what is imported for it, and tracers that fail."""

import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from collected_spans import CollectedSpans, id_of
from opentelemetry import trace

import fencepost as fp

TRACEPARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(scope="module")
def broker() -> Iterator[fp.Broker]:
    with fp.Broker(num_partitions=1, group_initial_rebalance_delay_ms=0) as running:
        yield running
        assert not running.failures


class FailingTracers:
    """A provider whose tracer fails in one of its methods."""

    def __init__(self, method: str) -> None:
        self.method = method
        self.calls = 0
        self._spans = CollectedSpans()

    def get_tracer(self, *names: Any, **more: Any) -> Any:
        return self

    def start_span(self, *arguments: Any, **more: Any) -> Any:
        if self.method == "start_span":
            return self._fail()
        span = self._spans.provider.get_tracer("inner").start_span(*arguments, **more)
        setattr(span, self.method, self._fail)
        return span

    def _fail(self, *arguments: Any, **more: Any) -> Any:
        self.calls += 1
        raise ZeroDivisionError


class FailingPropagator:
    fields = frozenset({"traceparent"})

    def __init__(self) -> None:
        self.calls = 0

    def inject(self, *arguments: Any) -> None:
        self.calls += 1
        raise ZeroDivisionError

    extract = inject


async def work_through(broker: fp.Broker, topic: str, tracing: Any) -> None:
    """Send plain records, commit and abort transactions, and read, process and commit records, all with tracing."""
    at = broker.bootstrap_servers
    async with fp.Producer(at, tracing=tracing) as plain:
        await plain.send_and_wait(topic, b"1", headers={"traceparent": TRACEPARENT})
        await plain.send_and_wait(topic, b"2")
    consumer = fp.Consumer(at, topics=[topic], group_id=topic, auto_offset_reset="earliest", tracing=tracing)
    async with fp.Producer(at, transactional_id=topic, tracing=tracing) as producer, consumer:
        async for batch in consumer.batches(max_records=2, max_wait_ms=5_000):
            with consumer.processing(batch):
                async with producer.transaction(batch) as tx:
                    await tx.send(topic, b"3")
            break
        with pytest.raises(KeyError):
            async with producer.transaction():
                raise KeyError
        async for record in consumer:
            with pytest.raises(KeyError), consumer.processing(record):
                raise KeyError
            assert record.value == b"3"
            break
        await consumer.commit()


@pytest.mark.slow
@pytest.mark.parametrize("record_spans", [True, False])
@pytest.mark.parametrize(
    "method", ["start_span", "get_span_context", "is_recording", "set_attribute", "set_status", "add_link", "end"]
)
async def test_a_failing_tracer_does_not_disturb_the_clients_and_is_logged_once(
    broker: fp.Broker, method: str, record_spans: bool, caplog: pytest.LogCaptureFixture
) -> None:
    tracers = FailingTracers(method)
    tracing = fp.Tracing(tracers, record_spans=record_spans)
    with caplog.at_level(logging.WARNING, "fencepost.client"):
        await work_through(broker, f"{method}-{record_spans}".lower(), tracing)
    assert tracers.calls
    assert [each.message for each in caplog.records] == [
        "tracing failed, and goes on failing silently: ZeroDivisionError()"
    ]
    assert trace.get_current_span() is trace.INVALID_SPAN


@pytest.mark.slow
@pytest.mark.parametrize("record_spans", [True, False])
async def test_a_failing_propagator_does_not_disturb_the_clients(broker: fp.Broker, record_spans: bool) -> None:
    propagator, spans = FailingPropagator(), CollectedSpans()
    tracing = fp.Tracing(spans.provider, propagator=propagator, record_spans=record_spans)
    topic = f"propagator-{record_spans}".lower()
    await work_through(broker, topic, tracing)
    assert propagator.calls
    assert spans.named(f"send {topic}"), "a span that was begun ends"


async def test_context_of_a_record_is_the_senders_span_or_empty_without_headers(broker: fp.Broker) -> None:
    spans = CollectedSpans()
    tracing = fp.Tracing(spans.provider)
    async with fp.Producer(broker.bootstrap_servers, tracing=tracing) as producer:
        await producer.send_and_wait("contexts", b"v")
    async with fp.Consumer(broker.bootstrap_servers, topics=["contexts"], auto_offset_reset="earliest") as consumer:
        record = await consumer.getone()
    found = trace.get_current_span(tracing.context_of(record)).get_span_context()
    assert found.span_id == id_of(spans.one("send contexts"))
    none = trace.get_current_span(tracing.context_of(record._replace(headers=()))).get_span_context()
    assert not none.is_valid


def test_clients_made_by_from_config_accept_the_tracing_argument(broker: fp.Broker) -> None:
    spans, config = CollectedSpans(), {"bootstrap.servers": broker.bootstrap_servers}
    with fp.sync.Producer.from_config(config, tracing=spans.provider) as producer:
        producer.send_and_wait("configured", b"v")
    with fp.sync.ProducerPool.from_config(config, prefix="c", tracing=spans.provider) as pool:
        pool.run_in_transaction(lambda tx: tx.send("configured", b"v"))
    reading = {**config, "auto.offset.reset": "earliest"}
    with fp.sync.Consumer.from_config(reading, topics=["configured"], tracing=spans.provider) as consumer:
        consumer.getmany(timeout_ms=5_000)
    assert {"send configured", "transaction", "poll configured"} == set(spans.names())


@pytest.mark.parametrize("make", [fp.Producer, fp.Consumer, lambda at, **more: fp.ProducerPool(at, prefix="p", **more)])
async def test_an_invalid_tracing_argument_is_a_type_error(make: Any) -> None:
    with pytest.raises(TypeError, match="tracing must be True, a TracerProvider or a Tracing, not str"):
        make("localhost:9092", tracing="yes")


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.slow
def test_clients_without_tracing_do_not_import_opentelemetry() -> None:
    program = (
        "import sys, asyncio, fencepost as fp\n"
        "async def main():\n"
        "    fp.Producer('h:1', tracing=None); fp.Producer('h:1', transactional_id='x', tracing=False)\n"
        "    fp.Consumer('h:1').processing([]); fp.ProducerPool('h:1', prefix='p')\n"
        "asyncio.run(main())\n"
        "print([name for name in sys.modules if 'opentelemetry' in name or 'tracing' in name])"
    )
    assert run(program) == "[]"


def test_accessing_fencepost_tracing_does_not_import_opentelemetry() -> None:
    program = "import sys, fencepost as fp; fp.Tracing; print('opentelemetry' in sys.modules)"
    assert run(program) == "False"


def test_tracing_without_opentelemetry_names_the_extra_to_install() -> None:
    program = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "import fencepost as fp\n"
        "try: fp.Tracing()\n"
        "except fp.InvalidConfigurationError as error: print(error, '|', error.hint)"
    )
    assert run(program) == 'tracing needs OpenTelemetry, which is not installed | pip install "fencepost[otel]"'
