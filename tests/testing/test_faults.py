"""Faults that are injected into a running broker. The client sends single requests and never retries."""

import time

import pytest
from fencepost.broker.embedded.broker import Broker
from fencepost.protocol.messages.cluster import MetadataRequest
from fencepost.protocol.messages.transactions import InitProducerIdRequest
from fencepost.testing.faults import Faults
from produce_requests import answers, batch, create, fetch, idempotent, list_offsets, produce
from wire_client import Closed, WireClient

NOT_COORDINATOR = 16


@pytest.fixture(scope="module")
def broker():
    with Broker() as running:
        yield running
        assert not running.failures


@pytest.fixture
def faults(broker):
    faults = Faults(broker)
    yield faults
    faults.clear()


@pytest.fixture
def client(broker):
    with WireClient(broker.host, broker.port) as connected:
        yield connected


@pytest.fixture
def topic(client, request):
    name = f"t{abs(hash(request.node.name))}"
    client.call(create(name))
    return name


def now():
    return int(time.time() * 1000)


def end_of(broker, topic):
    with WireClient(broker.host, broker.port) as client:
        return client.call(list_offsets(topic, -1)).topics[0].partitions[0].offset


def init(client):
    return client.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)).error_code


def test_an_injected_error_is_answered_to_one_request_and_later_ones_are_served(faults, client):
    fault = faults.error("InitProducerId", "NOT_COORDINATOR").once()
    assert [init(client) for _ in range(3)] == [NOT_COORDINATOR, 0, 0]
    assert fault.fired == 1
    assert fault.calls == 3


@pytest.mark.parametrize(
    ("ask", "struck"),
    [
        (lambda fault: fault.times(2), [1, 2]),
        (lambda fault: fault.on_call(3), [3]),
        (lambda fault: fault.every_time(), [1, 2, 3, 4]),
        (lambda fault: fault, [1, 2, 3, 4]),
    ],
    ids=["times", "on_call", "every_time", "nothing said"],
)
def test_an_injected_fault_affects_only_the_chosen_calls_of_its_api(faults, client, ask, struck):
    ask(faults.error("InitProducerId", NOT_COORDINATOR))
    assert [number for number in range(1, 5) if init(client)] == struck
    faults.verify()


def test_faults_with_a_probability_are_the_same_for_the_same_seed(faults, client):
    def run(seed):
        faults.clear()
        faults.seed(seed).error("InitProducerId", NOT_COORDINATOR).with_probability(0.5)
        return [init(client) for _ in range(30)]

    first = run(1)
    assert run(1) == first
    assert run(2) != first
    assert 0 < sum(map(bool, first)) < 30


def test_an_injected_produce_error_writes_nothing_unless_it_is_after_write(faults, client, broker, topic):
    faults.error("Produce", "NOT_LEADER_OR_FOLLOWER").once()
    assert answers(client.call(produce(topic, batch(timestamp=now()))))[0][0] == 6
    assert end_of(broker, topic) == 0
    faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", when="after_write").once()
    assert answers(client.call(produce(topic, batch(timestamp=now()))))[0][0] == 6
    assert end_of(broker, topic) == 1


@pytest.mark.parametrize(("when", "written"), [("before_write", 0), ("after_write", 1)])
@pytest.mark.parametrize("acks", [-1, 0])
def test_a_disconnect_fault_cuts_the_connection_before_or_after_the_write(
    faults, client, broker, topic, when, written, acks
):
    faults.disconnect("Produce", when=when).once()
    if acks:
        client.send(produce(topic, batch(timestamp=now())))
    else:
        client.send_unanswered(produce(topic, batch(timestamp=now()), acks=0))
    assert client.is_closed()
    assert end_of(broker, topic) == written


def test_requests_before_the_one_that_cuts_the_connection_are_still_answered(faults, client, topic):
    faults.disconnect("Produce").on_call(2)
    client.send(produce(topic, batch(timestamp=now())))
    client.send(produce(topic, batch(timestamp=now())))
    assert answers(client.receive())[0] == (0, 0)
    with pytest.raises(Closed):
        client.receive()


def test_a_delayed_request_delays_later_ones_until_the_clock_is_advanced(faults, client, broker, topic):
    faults.delay("Produce", 3600).once()
    client.send(produce(topic, batch(timestamp=now())))
    client.send(MetadataRequest(topics=[]))
    assert client.nothing_comes()
    assert end_of(broker, topic) == 0
    broker.advance(3600)
    assert answers(client.receive())[0] == (0, 0)
    assert client.receive().brokers


def test_a_delay_after_the_write_delays_only_the_answer(faults, client, broker, topic):
    faults.delay("Produce", 3600, when="after_write").once()
    client.send(produce(topic, batch(timestamp=now())))
    assert client.nothing_comes()
    assert end_of(broker, topic) == 1
    broker.advance(3600)
    assert answers(client.receive())[0] == (0, 0)


def test_a_delayed_request_is_processed_even_if_its_client_has_disconnected(faults, client, broker, topic):
    faults.delay("Produce", 3600).once()
    client.send(produce(topic, batch(timestamp=now())))
    assert client.nothing_comes()
    client.close()
    broker.advance(3600)
    assert end_of(broker, topic) == 1


@pytest.mark.parametrize(("when", "written"), [("before_write", 0), ("after_write", 1)])
def test_a_blackhole_keeps_the_connection_and_answers_nothing(faults, client, broker, topic, when, written):
    faults.blackhole(client_id="wire", when=when).where(lambda request: hasattr(request, "topic_data"))
    client.send(produce(topic, batch(timestamp=now())))
    client.send(MetadataRequest(topics=[]))  # matches no fault, but comes after the Produce request
    assert client.nothing_comes()
    assert end_of(broker, topic) == written


def test_a_blackhole_with_a_client_id_affects_that_client_only(faults, client, broker):
    faults.blackhole(client_id="worker-1")
    with WireClient(broker.host, broker.port, client_id="worker-1") as worker:
        worker.send(MetadataRequest(topics=[]))
        assert init(client) == 0
        assert worker.nothing_comes()


def test_a_duplicated_request_of_a_plain_producer_writes_twice_and_is_answered_once(faults, client, broker, topic):
    faults.duplicate("Produce").once()
    assert answers(client.call(produce(topic, batch(timestamp=now())))) == [(0, 0)]
    assert end_of(broker, topic) == 2
    assert client.call(MetadataRequest(topics=[])).brokers


def test_a_duplicated_request_of_an_idempotent_producer_writes_once(faults, client, broker, topic):
    faults.duplicate("Produce").once()
    assert answers(client.call(produce(topic, idempotent(0, timestamp=now())))) == [(0, 0)]
    assert end_of(broker, topic) == 1


def test_after_write_faults_also_apply_to_a_fetch_that_waited_for_max_wait_ms(faults, client, broker, topic):
    faults.error("Fetch", "UNKNOWN_TOPIC_OR_PARTITION", when="after_write").once()
    client.send(fetch(topic, 0, max_wait_ms=10_000_000), 11)
    assert client.nothing_comes()
    broker.advance(10_001)
    assert client.receive().error_code == 3
    faults.disconnect("Fetch", when="after_write").once()
    client.send(fetch(topic, 0, max_wait_ms=10_000_000), 11)
    assert client.nothing_comes()
    broker.advance(10_001)
    assert client.is_closed()


def test_faults_stay_active_over_a_broker_restart(faults, broker):
    faults.error("InitProducerId", NOT_COORDINATOR).once()
    broker.kill()
    broker.restart()
    with WireClient(broker.host, broker.port) as client:
        assert init(client) == NOT_COORDINATOR


def test_removing_the_last_fault_restores_the_servers_plain_serve_function(faults, broker):
    def serving(inner):
        return inner.server.serve

    plain = broker.inside(serving)
    fault = faults.error("Produce", "NOT_COORDINATOR")
    assert broker.inside(serving) != plain
    faults.remove(fault)
    assert broker.inside(serving) == plain


def test_faults_verify_raises_and_names_each_fault_that_did_not_happen(faults, client):
    faults.error("EndTxn", "COORDINATOR_NOT_AVAILABLE").once()
    faults.error("InitProducerId", NOT_COORDINATOR).times(2)
    init(client)
    with pytest.raises(
        AssertionError, match=r"error\('EndTxn', COORDINATOR_NOT_AVAILABLE\): 0 calls, fired 0.*fired 1"
    ):
        faults.verify()


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda faults: faults.error("EndTx", 16), "did you mean EndTxn"),
        (lambda faults: faults.error("EndTxn", "NOT_COORDINATR"), "did you mean NOT_COORDINATOR"),
        (lambda faults: faults.disconnect("EndTxn", when="later"), "not 'later'"),
    ],
)
def test_a_fault_with_a_misspelt_api_or_option_raises_an_error(faults, wrong, text):
    with pytest.raises(ValueError, match=text):
        wrong(faults)
