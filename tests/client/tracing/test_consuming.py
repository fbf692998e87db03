"""Spans of consumers: of polls, of the work on records, and of commits."""

from collections.abc import Iterator

import pytest
from collected_spans import CollectedSpans, id_of, links_of, parent_of, status_of
from fencepost.client.tracing.headers import LONGEST_BYTES, MAX_LINKS
from fencepost.testing.faults import Faults
from opentelemetry import trace
from opentelemetry.trace import SpanKind

import fencepost as fp

A = (b"00-0af7651916cd43dd8448eb211c80319c-00000000000000aa-01", 0xAA)
B = (b"00-0af7651916cd43dd8448eb211c80319c-00000000000000bb-01", 0xBB)


@pytest.fixture(scope="module")
def broker() -> Iterator[fp.Broker]:
    with fp.Broker(num_partitions=1, group_initial_rebalance_delay_ms=0) as running:
        yield running
        assert not running.failures


@pytest.fixture
def spans() -> CollectedSpans:
    return CollectedSpans()


def record(value: bytes | None = b"v", offset: int = 0, **headers: bytes | None) -> fp.Record:
    return fp.Record("t", 0, offset, 0, 0, None, value, tuple(headers.items()))


def reader(broker: fp.Broker, topic: str, spans: CollectedSpans, group: str | None = None) -> fp.Consumer:
    at = broker.bootstrap_servers
    return fp.Consumer(at, topics=[topic], group_id=group, auto_offset_reset="earliest", tracing=spans.provider)


async def test_processing_a_record_continues_the_trace_in_which_it_was_sent(
    broker: fp.Broker, spans: CollectedSpans
) -> None:
    """The span of the poll has no parent, only a link to the span of the send."""
    async with fp.Producer(broker.bootstrap_servers, tracing=spans.provider) as producer:
        with spans.current("request"):
            await producer.send_and_wait("a", b"v")
    async with reader(broker, "a", spans, "g") as consumer:
        found = await consumer.getone()
        with consumer.processing(found) as span:
            assert trace.get_current_span() is span
            with spans.current("work"):
                pass
    sent, processed = spans.one("send a"), spans.one("process a")
    assert (parent_of(processed), links_of(processed)) == (id_of(sent), [id_of(sent)])
    assert processed.context.trace_id == spans.one("request").context.trace_id
    assert parent_of(spans.one("work")) == id_of(processed)
    assert processed.kind is SpanKind.CONSUMER
    assert processed.attributes == {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.client.id": "fencepost",
        "messaging.consumer.group.name": "g",
        "messaging.destination.name": "a",
        "messaging.destination.partition.id": "0",
        "messaging.kafka.offset": 0,
    }
    polled = spans.one("poll a")
    assert (polled.kind, links_of(polled), parent_of(polled)) == (SpanKind.CLIENT, [id_of(sent)], None)
    assert polled.attributes is not None
    assert polled.attributes["messaging.operation.type"] == "receive"
    assert polled.attributes["messaging.batch.message_count"] == 1
    assert (polled.start_time or 0) <= (polled.end_time or 0)


async def test_processing_inside_a_span_is_its_child_and_links_the_senders_span(
    broker: fp.Broker, spans: CollectedSpans
) -> None:
    consumer = reader(broker, "a", spans)
    with spans.current("loop"), consumer.processing(record(None, traceparent=A[0])):
        pass
    processed = spans.one("process t")
    assert (parent_of(processed), links_of(processed)) == (id_of(spans.one("loop")), [A[1]])
    assert processed.attributes is not None
    assert processed.attributes["messaging.kafka.message.tombstone"] is True
    assert trace.get_current_span() is trace.INVALID_SPAN


async def test_an_exception_while_processing_is_recorded_in_the_span_and_raised(
    broker: fp.Broker, spans: CollectedSpans
) -> None:
    consumer = reader(broker, "a", spans)
    with pytest.raises(ZeroDivisionError), consumer.processing([record(), record(offset=1)]):
        raise ZeroDivisionError
    processed = spans.one("process t")
    assert processed.attributes is not None
    assert (status_of(processed), processed.attributes["error.type"]) == ("ERROR", "ZeroDivisionError")
    assert processed.attributes["messaging.batch.message_count"] == 2
    assert trace.get_current_span() is trace.INVALID_SPAN


async def test_an_exception_whose_str_fails_is_still_recorded_in_the_span(
    broker: fp.Broker, spans: CollectedSpans
) -> None:
    class WithoutText(Exception):
        def __str__(self) -> str:
            raise ZeroDivisionError

    with pytest.raises(WithoutText), reader(broker, "a", spans).processing(record()):
        raise WithoutText
    processed = spans.one("process t")
    assert status_of(processed) == "ERROR"
    assert (processed.attributes or {})["error.type"].endswith("WithoutText")  # type: ignore[union-attr]


@pytest.mark.parametrize("tracing", [True, None])
async def test_processing_refuses_an_iterator_without_consuming_it(broker: fp.Broker, tracing: bool | None) -> None:
    consumer, records = fp.Consumer(broker.bootstrap_servers, topics=["a"], tracing=tracing), iter([record()])
    with pytest.raises(TypeError, match="not list_iterator"):
        consumer.processing(records)  # type: ignore[arg-type]
    assert len(list(records)) == 1


async def test_a_span_of_records_of_several_topics_has_no_topic_name(broker: fp.Broker, spans: CollectedSpans) -> None:
    consumer = reader(broker, "a", spans)
    with consumer.processing([record(), record()._replace(topic="u")]):
        pass
    assert "messaging.destination.name" not in (spans.one("process").attributes or {})


async def test_a_processing_span_links_each_senders_span_once_and_at_most_max_links(
    broker: fp.Broker, spans: CollectedSpans
) -> None:
    consumer = reader(broker, "a", spans)
    many = [record(traceparent=A[0][:-6] + b"%03x" % number + b"-01") for number in range(1, 2 * MAX_LINKS)]
    with consumer.processing([record(traceparent=A[0]), record(traceparent=B[0]), record(traceparent=A[0]), record()]):
        pass
    with consumer.processing(many):
        pass
    few, all_links = spans.named("process t")
    assert links_of(few) == [A[1], B[1]]
    assert len(links_of(all_links)) == MAX_LINKS


@pytest.mark.parametrize(
    ("headers", "linked"),
    [
        ((("traceparent", A[0]), ("traceparent", B[0])), [B[1]]),  # the last counts
        ((("traceparent", b"00-nonsense"),), []),
        ((("traceparent", b"\xff\xfe"),), []),
        ((("traceparent", None),), []),
        ((("traceparent", A[0] + b" " * LONGEST_BYTES),), []),
        ((("traceparent", A[0]), ("tracestate", b"a=" + b"x" * (1 << 20))), [A[1]]),
        ((("traceparent", A[0]), ("baggage", b"," * (1 << 20))), [A[1]]),
        ((("Traceparent", A[0]),), []),
    ],
)
async def test_a_span_is_linked_only_if_the_records_headers_have_a_valid_traceparent(
    broker: fp.Broker, spans: CollectedSpans, headers, linked
) -> None:
    consumer = reader(broker, "a", spans)
    with consumer.processing(record()._replace(headers=headers)):
        pass
    assert links_of(spans.one("process t")) == linked


async def test_a_poll_spans_message_count_is_of_the_records_returned_to_the_caller(
    broker: fp.Broker, spans: CollectedSpans
) -> None:
    async with fp.Producer(broker.bootstrap_servers, linger_ms=10_000) as producer:
        for number in range(5):
            await producer.send("five", b"%d" % number)
    async with reader(broker, "five", spans) as consumer:
        async for found in consumer:
            if found.value == b"1":
                break
        assert spans.names() == []
        assert (await consumer.getmany(timeout_ms=5_000)) != {}
        assert (await consumer.getmany()) == {}
    counts = [span.attributes["messaging.batch.message_count"] for span in spans.named("poll five") if span.attributes]
    assert counts == [2, 3]


async def test_each_commit_has_a_span_and_a_failed_one_has_status_error(
    broker: fp.Broker, spans: CollectedSpans
) -> None:
    async with fp.Producer(broker.bootstrap_servers) as producer:
        await producer.send_and_wait("c", b"v")
    faults = Faults(broker)
    async with reader(broker, "c", spans, "committing") as consumer:
        await consumer.getone()
        await consumer.commit()
        faults.error("OffsetCommit", "GROUP_AUTHORIZATION_FAILED").once()
        with pytest.raises(fp.AuthorizationError):
            await consumer.commit()
        faults.clear()
    done, failed = spans.named("commit c")
    assert (done.kind, status_of(done), status_of(failed)) == (SpanKind.CLIENT, "UNSET", "ERROR")
    assert done.attributes is not None
    assert failed.attributes is not None
    assert done.attributes["messaging.operation.type"] == "settle"
    assert done.attributes["messaging.consumer.group.name"] == "committing"
    assert failed.attributes["error.type"] == "GROUP_AUTHORIZATION_FAILED"


async def test_automatic_commits_have_spans_too(broker: fp.Broker, spans: CollectedSpans) -> None:
    at = broker.bootstrap_servers
    async with fp.Producer(at) as producer:
        await producer.send_and_wait("auto", b"v")
    settings = {"group_id": "auto", "auto_offset_reset": "earliest", "enable_auto_commit": True}
    async with fp.Consumer(at, topics=["auto"], tracing=spans.provider, **settings) as consumer:
        await consumer.getone()
    assert len(spans.named("commit auto")) == 1


def test_blocking_consumers_make_the_span_current_in_the_callers_thread(
    broker: fp.Broker, spans: CollectedSpans
) -> None:
    with fp.sync.Producer(broker.bootstrap_servers, tracing=spans.provider) as producer:
        producer.send_and_wait("blocking", b"v")
        settings = {"auto_offset_reset": "earliest", "tracing": spans.provider}
        with fp.sync.Consumer(broker.bootstrap_servers, topics=["blocking"], **settings) as consumer:
            found = consumer.getone()
            with consumer.processing(found) as span:
                assert trace.get_current_span() is span
                producer.send_and_wait("answers", b"v")
    processed = spans.one("process blocking")
    assert parent_of(processed) == id_of(spans.one("send blocking"))
    assert parent_of(spans.one("send answers")) == id_of(processed)


async def test_without_tracing_processing_yields_none_and_runs_the_block(broker: fp.Broker) -> None:
    consumer = fp.Consumer(broker.bootstrap_servers)
    with consumer.processing(record()) as span:
        assert span is None
