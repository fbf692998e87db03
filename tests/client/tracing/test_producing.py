"""Spans of what producers send, collected from the SDK of OpenTelemetry."""

from collections.abc import Iterator

import pytest
from collected_spans import CollectedSpans, id_of, links_of, parent_of, status_of
from fencepost.testing.faults import Faults
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind

import fencepost as fp

TRACEPARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(scope="module")
def broker() -> Iterator[fp.Broker]:
    with fp.Broker(num_partitions=1) as running:
        yield running
        assert not running.failures


@pytest.fixture
def spans() -> CollectedSpans:
    return CollectedSpans()


async def headers_in(broker: fp.Broker, topic: str, count: int) -> list[dict[str, bytes | None]]:
    async with fp.Consumer(broker.bootstrap_servers, topics=[topic], auto_offset_reset="earliest") as consumer:
        return [dict((await consumer.getone()).headers) for _ in range(count)]


def traceparent(span: object) -> bytes:
    context = span.context  # type: ignore[attr-defined]
    return b"00-%032x-%016x-%02x" % (context.trace_id, context.span_id, context.trace_flags)


async def test_a_record_has_a_span_until_it_is_acknowledged_and_carries_its_context(
    broker: fp.Broker, spans: CollectedSpans
) -> None:
    async with fp.Producer(broker.bootstrap_servers, client_id="shop", tracing=spans.provider) as producer:
        with spans.current("request"):
            delivery = await producer.send("a", b"v", headers={"own": b"1"})
        assert spans.names() == ["request"]
        written = await delivery
    sent, request = spans.one("send a"), spans.one("request")
    assert sent.kind is SpanKind.PRODUCER
    assert parent_of(sent) == id_of(request)
    assert sent.attributes == {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.client.id": "shop",
        "messaging.destination.name": "a",
        "messaging.destination.partition.id": "0",
        "messaging.kafka.offset": written.offset,
        "server.address": "127.0.0.1",
        "server.port": broker.port,
    }
    assert status_of(sent) == "UNSET"
    assert await headers_in(broker, "a", 1) == [{"own": b"1", "traceparent": traceparent(sent)}]


async def test_a_traceparent_header_of_the_application_is_kept_and_linked(
    broker: fp.Broker, spans: CollectedSpans
) -> None:
    for topic, tracing in (
        ("own-1", fp.Tracing(spans.provider)),
        ("own-2", fp.Tracing(spans.provider, record_spans=False)),
    ):
        async with fp.Producer(broker.bootstrap_servers, tracing=tracing) as producer:
            await producer.send_and_wait(topic, b"v", headers={"traceparent": TRACEPARENT})
        assert links_of(spans.one(f"send {topic}")) == [0xB7AD6B7169203331]
        assert await headers_in(broker, topic, 1) == [{"traceparent": TRACEPARENT}]


async def test_a_baggage_header_of_the_application_is_not_overwritten_or_repeated(
    broker: fp.Broker, spans: CollectedSpans
) -> None:
    from opentelemetry import baggage, context

    token = context.attach(baggage.set_baggage("tenant", "7"))
    try:
        async with fp.Producer(broker.bootstrap_servers, tracing=spans.provider) as producer:
            await producer.send("baggage", b"v", headers=[("baggage", b"own=1")])
            await producer.send("baggage", b"v")
    finally:
        context.detach(token)
    first, second = await headers_in(broker, "baggage", 2)
    assert (first["baggage"], second["baggage"]) == (b"own=1", b"tenant=7")
    assert first["traceparent"] != second["traceparent"]


async def test_a_refused_record_has_the_brokers_error_in_its_span(broker: fp.Broker, spans: CollectedSpans) -> None:
    async with fp.Admin(broker.bootstrap_servers) as admin:
        await admin.create_topics([fp.NewTopic("small", configs={"max.message.bytes": "100"})])
    async with fp.Producer(broker.bootstrap_servers, tracing=spans.provider) as producer:
        with pytest.raises(fp.RecordTooLargeError):
            await producer.send_and_wait("small", b"v" * 200)
    sent = spans.one("send small")
    assert status_of(sent) == "ERROR"
    assert sent.attributes is not None
    assert sent.attributes["error.type"] == "MESSAGE_TOO_LARGE"
    assert sent.attributes["fencepost.maybe_written"] is False
    assert "messaging.kafka.offset" not in sent.attributes
    assert [event.name for event in sent.events] == ["exception"]


@pytest.mark.slow
@pytest.mark.parametrize("record_spans", [True, False])
async def test_the_span_of_an_unanswered_record_says_it_may_have_been_written(
    broker: fp.Broker, spans: CollectedSpans, record_spans: bool
) -> None:
    faults = Faults(broker)
    tracing = fp.Tracing(spans.provider, record_spans=record_spans)
    async with fp.Producer(broker.bootstrap_servers, delivery_timeout_ms=300, tracing=tracing) as producer:
        await producer.send_and_wait("silent", b"v")
        faults.blackhole("Produce", when="after_write")
        with pytest.raises(fp.DeliveryTimeoutError):
            await producer.send_and_wait("silent", b"v")
        faults.clear()
    first, second = spans.named("send silent")
    assert (status_of(first), status_of(second)) == ("UNSET", "ERROR")
    assert second.attributes is not None
    assert second.attributes["error.type"] == "REQUEST_TIMED_OUT"
    assert second.attributes["fencepost.maybe_written"] is True


async def test_the_spans_of_all_records_of_a_split_batch_are_ended(broker: fp.Broker, spans: CollectedSpans) -> None:
    async with fp.Admin(broker.bootstrap_servers) as admin:
        await admin.create_topics([fp.NewTopic("halves", configs={"max.message.bytes": "600"})])
    async with fp.Producer(broker.bootstrap_servers, linger_ms=10_000, tracing=spans.provider) as producer:
        for number in range(8):
            await producer.send("halves", b"%d" % number * 100)
        await producer.flush()
    offsets = [span.attributes["messaging.kafka.offset"] for span in spans.named("send halves") if span.attributes]
    assert sorted(offsets) == list(range(8))  # type: ignore[type-var]


async def test_with_record_spans_off_all_records_of_a_batch_carry_the_batch_span(
    broker: fp.Broker, spans: CollectedSpans
) -> None:
    tracing = fp.Tracing(spans.provider, record_spans=False)
    async with fp.Producer(broker.bootstrap_servers, linger_ms=10_000, tracing=tracing) as producer:
        for name in ("first", "second", "second", "third"):
            with spans.current(name):
                await producer.send("batched", b"v")
                await producer.send("batched", b"v")
        await producer.flush()
    sent = spans.one("send batched")
    assert parent_of(sent) == id_of(spans.one("first"))
    assert links_of(sent) == [id_of(span) for span in (*spans.named("second"), *spans.named("third"))]
    assert sent.attributes is not None
    assert sent.attributes["messaging.batch.message_count"] == 8
    assert await headers_in(broker, "batched", 8) == [{"traceparent": traceparent(sent)}] * 8


async def test_the_span_of_a_batch_that_was_sent_again_has_its_number_of_attempts(
    broker: fp.Broker, spans: CollectedSpans
) -> None:
    faults = Faults(broker)
    tracing = fp.Tracing(spans.provider, record_spans=False)
    async with fp.Producer(broker.bootstrap_servers, tracing=tracing) as producer:
        faults.error("Produce", "NOT_ENOUGH_REPLICAS").once()
        await producer.send_and_wait("again", b"v")
        faults.verify()
        faults.clear()
    sent = spans.one("send again")
    assert sent.attributes is not None
    assert (status_of(sent), sent.attributes["fencepost.batch.attempts"]) == ("UNSET", 2)


@pytest.mark.parametrize("record_spans", [True, False])
async def test_an_unsampled_record_has_a_traceparent_without_the_sampled_flag(
    broker: fp.Broker, record_spans: bool
) -> None:
    spans, topic = CollectedSpans(ALWAYS_OFF), f"unsampled-{record_spans}"
    tracing = fp.Tracing(spans.provider, record_spans=record_spans)
    async with fp.Producer(broker.bootstrap_servers, tracing=tracing) as producer:
        await producer.send_and_wait(topic, b"v")
    assert spans.names() == []
    (headers,) = await headers_in(broker, topic, 1)
    flags = int((headers["traceparent"] or b"").rpartition(b"-")[2], 16)
    assert not flags & 1


async def test_without_a_tracer_provider_no_headers_are_added(broker: fp.Broker) -> None:
    async with fp.Producer(broker.bootstrap_servers, tracing=True) as producer:
        await producer.send_and_wait("plain", b"v")
    assert await headers_in(broker, "plain", 1) == [{}]


@pytest.mark.parametrize("record_spans", [True, False])
async def test_added_trace_headers_count_as_buffered_bytes_until_they_are_sent(
    broker: fp.Broker, spans: CollectedSpans, record_spans: bool
) -> None:
    tracing = fp.Tracing(spans.provider, record_spans=record_spans)
    async with fp.Producer(broker.bootstrap_servers, linger_ms=10_000, tracing=tracing) as producer:
        await producer.send("memory", b"v")
        assert producer.state().buffered_bytes > 16 + len("traceparent") + len(TRACEPARENT)
        await producer.flush()
        assert producer.state().buffered_bytes == 0


@pytest.mark.parametrize("record_spans", [True, False])
async def test_a_record_without_room_for_traceparent_is_sent_without_that_header(
    broker: fp.Broker, spans: CollectedSpans, record_spans: bool
) -> None:
    tracing, topic = fp.Tracing(spans.provider, record_spans=record_spans), f"large-{record_spans}".lower()
    async with fp.Producer(broker.bootstrap_servers, tracing=tracing) as producer:
        # Below the limit by less than the record's own overhead and the header, by less than both, and by more.
        for smaller in (80, 80 + 60, 80 + 200):
            await producer.send_and_wait(topic, bytes((1 << 20) - smaller))
    assert [set(each) for each in await headers_in(broker, topic, 3)] == [set(), set(), {"traceparent"}]
    assert [status_of(each) for each in spans.named(f"send {topic}")] == ["UNSET"] * 3


def test_blocking_producers_continue_the_trace_of_their_caller(broker: fp.Broker, spans: CollectedSpans) -> None:
    with fp.sync.Producer(broker.bootstrap_servers, tracing=spans.provider) as producer, spans.current("request"):
        producer.send_and_wait("blocking", b"v")
    assert parent_of(spans.one("send blocking")) == id_of(spans.one("request"))
