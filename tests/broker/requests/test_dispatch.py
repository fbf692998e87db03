"""What becomes of requests that handlers cannot serve, and of handlers that fail."""

import struct

import pytest
from fencepost.broker.net.unserved_apis import UNSERVED
from fencepost.broker.net.waiting import Parked
from fencepost.broker.requests import dispatch
from fencepost.broker.requests.dispatch import load_handlers
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.protocol.messages.cluster import ApiVersionsRequest, MetadataRequest
from fencepost.protocol.messages.offsets import ListOffsetsRequest
from fencepost.protocol.messages.topics import CreateTopicsRequest
from produce_requests import create, list_offsets
from simulated_client import SimulatedClient


@pytest.fixture
def answering(monkeypatch, broker):
    """Put a function in the place of a handler."""

    def put(request, answer, *, waits=True):
        handler = dispatch.Handler(dispatch.APIS[dispatch.schema_of(request).api], answer, waits)
        monkeypatch.setitem(dispatch.HANDLERS, handler.api.key, handler)

    return put


def fails_with(error):
    def answer(broker, call, request):
        raise error

    return answer


def offsets_code(client):
    return client.ask(list_offsets("t", -1)).topics[0].partitions[0].error_code


def test_a_kafka_error_raised_by_a_handler_becomes_the_error_of_the_response(broker, answering):
    answering(ListOffsetsRequest, fails_with(KafkaError(ErrorCode.POLICY_VIOLATION)))
    assert offsets_code(SimulatedClient(broker)) == ErrorCode.POLICY_VIOLATION
    assert not broker.broker.metrics.failures
    assert broker.broker.metrics.errors == {ErrorCode.POLICY_VIOLATION: 1}


def test_an_unexpected_exception_is_logged_and_answered_with_unknown_server_error(broker, answering, caplog):
    answering(ListOffsetsRequest, fails_with(ZeroDivisionError("oops")))
    client = SimulatedClient(broker)
    assert offsets_code(client) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "oops" in caplog.text
    assert len(broker.broker.metrics.failures) == 1
    assert client.ask(MetadataRequest(topics=[]), 1).brokers
    broker.broker.metrics.failures.clear()


def test_a_response_that_cannot_be_encoded_is_counted_as_a_bug(broker, answering):
    answering(ListOffsetsRequest, lambda *_: "no response at all")
    assert offsets_code(SimulatedClient(broker)) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert broker.broker.metrics.failures
    broker.broker.metrics.failures.clear()


def test_a_connection_is_closed_if_no_error_answer_can_be_encoded(broker, answering, monkeypatch):
    """Without a reply in its place, a client would take the next one for it, or wait for ever."""
    answering(ListOffsetsRequest, lambda *_: "no response at all")
    monkeypatch.setattr(dispatch, "refusal", lambda *_: "no refusal either")
    client = SimulatedClient(broker)
    client.send(list_offsets("t", -1))
    assert not client.quiet()
    with pytest.raises(ConnectionError):
        client.receive()
    broker.broker.metrics.failures.clear()


def test_a_waiting_request_ended_by_a_kafka_error_is_answered_with_its_code(broker, answering):
    parked = Parked()
    answering(ListOffsetsRequest, lambda *_: parked)
    client = SimulatedClient(broker)
    client.send(list_offsets("t", -1))
    assert client.quiet()
    parked.answer(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
    assert client.receive().topics[0].partitions[0].error_code == ErrorCode.REQUEST_TIMED_OUT


def test_a_parked_reply_is_cancelled_when_its_client_disconnects(broker, answering):
    parked = Parked()
    answering(ListOffsetsRequest, lambda *_: parked)
    client = SimulatedClient(broker)
    client.send(list_offsets("t", -1))
    assert client.quiet()
    client.close()
    assert parked.cancelled


def parks_again(parked):
    yield 1
    return parked


def test_a_waiting_request_may_be_answered_in_steps_and_then_wait_a_second_time(broker, answering):
    first, second = Parked(), Parked()
    answering(ListOffsetsRequest, lambda *_: first)
    client = SimulatedClient(broker)
    client.send(list_offsets("t", -1))
    assert client.quiet()
    first.answer(parks_again(second))
    assert client.quiet()
    second.answer(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
    assert client.receive().topics[0].partitions[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert client.ask(MetadataRequest(topics=[]), 1).brokers


def test_a_request_parked_twice_is_cancelled_when_its_client_disconnects(broker, answering):
    first, second = Parked(), Parked()
    answering(ListOffsetsRequest, lambda *_: first)
    client = SimulatedClient(broker)
    client.send(list_offsets("t", -1))
    assert client.quiet()
    first.answer(parks_again(second))
    assert client.quiet()
    client.close()
    assert second.cancelled


@pytest.mark.parametrize("is_late", [False, True])
def test_a_request_answered_with_none_gets_no_reply_and_later_requests_are_answered(broker, answering, is_late):
    parked = Parked()
    if not is_late:
        parked.answer(None)
    answering(ListOffsetsRequest, lambda *_: parked)
    client = SimulatedClient(broker)
    client.send_unanswered(list_offsets("t", -1))
    assert client.quiet()
    if is_late:
        parked.answer(None)
    assert client.ask(MetadataRequest(topics=[]), 1).brokers


def test_replies_wait_until_the_journal_is_synced_except_api_versions_and_metadata(broker):
    client, other = SimulatedClient(broker), SimulatedClient(broker)
    executor, held = broker.broker.rounds._executor, []
    submit, executor.submit = executor.submit, lambda job, done: held.append((job, done))
    client.send(create("t"))
    broker.wait(0.1)
    other.send(create("t"))  # it exists: this error tells of a topic that is not durable yet
    assert client.quiet()
    assert other.quiet()
    third = SimulatedClient(broker)
    assert third.ask(ApiVersionsRequest(), 0).error_code == 0
    assert third.ask(MetadataRequest(topics=[]), 1).brokers
    executor.submit = submit
    submit(*held[0])
    assert client.receive().topics[0].error_code == 0
    assert other.receive().topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_broker_halted_by_a_disk_error_closes_connections_without_an_answer(broker):
    client = SimulatedClient(broker)
    client.ask(MetadataRequest(topics=[]), 1)
    broker.broker.rounds.halt(OSError("gone"))
    client.send(CreateTopicsRequest(topics=[CreateTopicsRequest.Topic(name="t")]))
    assert client.closed()


def test_a_handler_gets_the_client_and_user_of_its_request(broker, answering):
    calls = []

    def answer(broker, call, request):
        calls.append(call)
        raise KafkaError(ErrorCode.POLICY_VIOLATION)

    answering(ListOffsetsRequest, answer)
    SimulatedClient(broker, "me").ask(list_offsets("t", -1), 3)
    (call,) = calls
    assert (call.version, call.client_id, call.correlation_id) == (3, "me", 1)
    assert call.client_host
    assert call.listener_address[1] == 9092


@pytest.mark.parametrize(
    ("key", "version", "says"),
    [
        (38, 2, "CreateDelegationToken (API 38 v2) is not served"),
        (9999, 0, "an API that Kafka does not know (API 9999 v0) is not served"),
        (1, 3, "Fetch (API 1) v3 is not served: 4 to 18 are"),
    ],
)
def test_an_unsupported_api_or_version_closes_the_connection_and_is_logged(broker, caplog, key, version, says):
    client = SimulatedClient(broker)
    frame = struct.pack(">hhih", key, version, 7, 5) + b"probe"
    client.send_raw(struct.pack(">i", len(frame)) + frame)
    assert client.closed()
    assert f"('probe'): {says}" in caplog.text
    assert broker.broker.metrics.closed_unsupported == 1


def test_no_api_with_a_handler_is_in_the_list_of_unserved_apis():
    assert not UNSERVED.keys() & load_handlers().keys()
