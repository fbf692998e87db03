"""The server on real sockets: who is let in, in what order answers leave, and what one client cannot do to another."""

import contextlib
import os
import random
import socket
import struct
import threading

import pytest
from eventually import wait_until
from fencepost.broker.embedded.broker import Broker
from fencepost.broker.requests.dispatch import HANDLERS
from fencepost.protocol.apis import APIS
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.cluster import ApiVersionsRequest, MetadataRequest
from fencepost.protocol.messages.topics import CreateTopicsRequest
from kafka.protocol.broker_version_data import BrokerVersionData
from produce_requests import answers, batch, create, fetch, fetched, idempotent, list_offsets, produce
from served_broker import ServedBroker
from this_machine import has_ipv6
from wire_client import Closed, WireClient

OK = ErrorCode.NONE
NAMED = 12  # the newest version of Fetch that names topics


@pytest.fixture
def client(served):
    with served.connect() as client:
        yield client


@pytest.fixture
def topic(client, request):
    name = f"t{abs(hash(request.node.nodeid))}"
    client.call(create(name, 2))
    return name


# Order and pipelining.


def test_answers_come_in_the_order_of_the_requests(client, topic):
    for sequence in range(50):
        client.send(produce(topic, idempotent(sequence)), 7 + sequence % 5)
        client.send(MetadataRequest(topics=[]), 1 + sequence % 12)
    for sequence in range(50):
        assert answers(client.receive()) == [(OK, sequence)]
        assert client.receive().brokers


def test_responses_return_the_correlation_id_of_the_request(client):
    for correlation_id in (5, 5, -1, 2**31 - 1, -(2**31)):
        client.send_header(18, 0, correlation_id=correlation_id)
        assert struct.unpack_from(">i", client.receive_frame()) == (correlation_id,)


@pytest.mark.slow
def test_a_client_that_pipelines_without_reading_gets_every_answer_in_the_end(served, topic):
    with served.connect(timeout_s=60) as client:
        count = 20_000
        frame = client.encoded(produce(topic, batch()), 7)[0]
        sender = threading.Thread(target=lambda: client.send_raw(frame * count))
        sender.start()
        for offset in range(count):
            body = client.receive_frame()
            assert struct.unpack_from(">hq", body, len(body) - 4 - 8 - 8 - 10) == (0, offset)
        sender.join()


@pytest.mark.slow
def test_for_a_client_that_does_not_read_at_most_three_fetch_answers_are_prepared(served, client, topic):
    for _ in range(20):
        client.call(produce(topic, batch(value=os.urandom(1_000_000))))
    before = served.inside(lambda broker: broker.metrics.bytes_out)
    with served.connect(timeout_s=60) as greedy:
        for _ in range(200):
            greedy.send(fetch(topic, partition_max_bytes=50 << 20), NAMED)
        wait_until(lambda: served.inside(lambda broker: not all(c._reading for c in broker.server.connections)))
        # Once another client has got two answers, the broker has read as many of the 200 requests as it will for now.
        for _ in range(2):
            client.call(ApiVersionsRequest(), 0)
        kept = served.inside(lambda broker: max(len(c.slots) for c in broker.server.connections))
        assert kept <= 3
        written = served.inside(lambda broker: broker.metrics.bytes_out) - before
        assert written <= 3 * (4 << 20)  # an answer has at most 4 MiB of a partition; 800 MB were asked for
        assert client.call(list_offsets(topic, -1)).topics[0].partitions[0].offset == 20
        total = sum(len(buffer) for buffer in fetched(greedy.receive()).records)
        assert total > 1_000_000
        assert all(fetched(greedy.receive()).error_code == OK for _ in range(5))


# Who is let in.


def test_connections_beyond_the_limit_are_closed_and_open_ones_are_still_served():
    with ServedBroker(max_connections=3) as served:
        kept = [served.connect() for _ in range(3)]
        assert all(client.call(ApiVersionsRequest(), 0).error_code == OK for client in kept)
        assert served.connect().is_closed()
        kept.pop().close()
        wait_until(lambda: served.inside(lambda broker: len(broker.server.connections)) == 2)
        with served.connect() as another:
            assert another.call(ApiVersionsRequest(), 0).error_code == OK
        assert all(client.call(ApiVersionsRequest(), 0).error_code == OK for client in kept)
        assert served.broker.metrics.refused_connections == 1
        served.close_clients()


def test_connections_beyond_the_limit_of_an_address_are_closed():
    with ServedBroker(max_connections_per_ip=1) as served, served.connect() as first:
        assert first.call(ApiVersionsRequest(), 0).error_code == OK
        assert served.connect().is_closed()
        served.close_clients()


def test_an_idle_connection_is_closed_and_an_active_one_stays_open():
    with (
        Broker(connections_max_idle_ms=60_000) as broker,
        WireClient(broker.host, broker.port) as silent,
        WireClient(broker.host, broker.port) as talks,
    ):
        for _ in range(10):
            assert talks.call(ApiVersionsRequest(), 0).error_code == OK
            broker.advance(10)
        assert silent.is_closed()
        assert talks.call(ApiVersionsRequest(), 0).error_code == OK
        assert broker.inside(lambda inner: inner.metrics.closed_idle) == 1


@pytest.mark.slow
def test_localhost_is_served_over_ipv4_and_ipv6_at_one_port():
    with ServedBroker(listeners=("localhost:0",)) as served:
        families = {host for host, _ in served.broker.addresses}
        assert len({port for _, port in served.broker.addresses}) == 1
        assert "127.0.0.1" in families
        for host in families:
            with WireClient(host, served.port) as client:
                assert client.call(ApiVersionsRequest(), 0).error_code == OK


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 on this machine")
def test_the_broker_serves_clients_over_ipv6():
    with ServedBroker(listeners=("[::1]:0",)) as served, WireClient("::1", served.port) as client:
        brokers = client.call(MetadataRequest(topics=[]), 1).brokers
        assert brokers[0].host == "::1"


def test_a_port_in_use_is_refused_and_the_directory_is_free_again(served):
    with pytest.raises(OSError, match="in use"), ServedBroker(listeners=(f"127.0.0.1:{served.port}",)):
        pass


# Bytes that no client should send.


def closes(client):
    try:
        client.receive_frame()
    except Closed:
        return True
    return False


LIES = [
    b"\x00\x00\x00\x00",  # a frame of nothing
    struct.pack(">i", -1),
    struct.pack(">i", 104_857_601),
    struct.pack(">i", 2**31 - 1),
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(300),  # TLS
    struct.pack(">i", 2) + b"\x00\x00",  # no whole header
    struct.pack(">ihhih", 10, 3, 0, 7, 500),  # a client id longer than the frame
    struct.pack(">ihhih", 10, 3, 0, 7, -2),
    struct.pack(">ihhih", 14, 3, 1, 7, -1) + struct.pack(">i", 2**31 - 1),  # 2**31 topics
    struct.pack(">ihhih", 14, 3, 1, 7, -1) + struct.pack(">i", -5),
    struct.pack(">ihhih", 16, 3, 1, 7, 0) + struct.pack(">ih", 1, -1),  # a topic without a name
    struct.pack(">ihhih", 18, 3, 1, 7, 0) + struct.pack(">ihbb", 1, 2, 0xFF - 256, 0xFE - 256),  # no UTF-8
    struct.pack(">ihhihb", 16, 18, 3, 7, 0, 0) + b"\xff\xff\xff\xff\x7f",  # a varint of 34 bits
    struct.pack(">ihhihb", 12, 3, 12, 7, 0, 0) + b"\xff",
    struct.pack(">ihhih", 30, 0, 7, 7, 0) + b"\x7f" * 20,
    struct.pack(">ihhih", 40, 1, 11, 7, 0) + b"\x7f" * 30,
]


@pytest.mark.parametrize("lie", LIES, ids=range(len(LIES)))
def test_bytes_that_do_not_parse_close_their_connection_and_no_other(served, client, lie):
    with served.connect() as liar:
        liar.call(ApiVersionsRequest(), 0)
        liar.send_raw(lie)
        assert closes(liar)
    assert client.call(ApiVersionsRequest(), 0).error_code == OK


@pytest.mark.parametrize("key", [-1, 4, 5, 6, 7, 34, 99, 500, 32767])
def test_a_request_of_an_api_that_is_not_served_closes_its_connection(served, client, key):
    with served.connect() as liar:
        liar.send_header(key, 0)
        assert closes(liar)
    assert client.call(ApiVersionsRequest(), 0).error_code == OK


def test_a_version_that_is_not_served_closes_the_connection(served):
    for key in set(HANDLERS) - {18}:
        api = APIS[key]
        for version in (api.min - 1, api.max + 1, -1, 32767):
            with served.connect() as liar:
                liar.send_header(key, version, bytes(8))
                assert closes(liar), (api.name, version)


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
def test_an_unknown_version_of_api_versions_is_answered_in_version_0(client, version):
    tags = b"\x00" if version >= 3 else b""
    client.send_header(18, version, tags + b"\xff\xff\xff", correlation_id=77)
    body = client.receive_frame()
    api = APIS[18]
    assert body == struct.pack(">ihihhh", 77, ErrorCode.UNSUPPORTED_VERSION, 1, 18, api.min, api.max)
    assert client.call(ApiVersionsRequest(), 0).error_code == OK


def test_the_header_of_the_api_versions_response_has_no_tags(client):
    client.send(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
    body = client.receive_frame()
    assert struct.unpack_from(">ih", body)[1] == OK
    assert body[6] == len(client_apis(client)) + 1  # the compact length of the list comes right after the error


def client_apis(client):
    with WireClient(*client.socket.getpeername()[:2]) as other:
        return other.call(ApiVersionsRequest(), 0).api_keys


@pytest.mark.parametrize("name", ["", "-", "my client!", "x" * 300, "кафка"])
def test_a_client_may_use_any_client_id_and_software_name(client, name):
    asked = ApiVersionsRequest(client_software_name=name, client_software_version=name)
    assert client.call(asked, 3).error_code == OK


def test_kafka_python_recognises_our_api_versions_as_a_kafka_release(client):
    listed = client.call(ApiVersionsRequest(), 0).api_keys
    ranges = {each.api_key: (each.min_version, each.max_version) for each in listed}
    assert BrokerVersionData(api_versions=ranges).broker_version >= (4, 2)


def test_produce_is_listed_from_version_0_but_versions_0_to_2_close_the_connection(served, client):
    produce_versions = next(each for each in client.call(ApiVersionsRequest(), 0).api_keys if each.api_key == 0)
    assert produce_versions.min_version == 0
    for version in range(3):
        with served.connect() as old:
            old.send_header(0, version, struct.pack(">hii", -1, 1000, 0))
            assert closes(old)


def test_without_quotas_the_throttle_time_is_zero(client):
    assert client.call(ApiVersionsRequest(), 2).throttle_time_ms == 0
    assert client.call(fetch("none"), NAMED).throttle_time_ms == 0


def held_bytes(served):
    return served.inside(lambda broker: sum(c._framer.held_bytes for c in broker.server.connections))


def test_an_incomplete_frame_takes_memory_only_for_received_bytes(served):
    with served.connect() as slow:
        slow.send_raw(struct.pack(">i", 100 << 20) + b"x" * 1000)
        wait_until(lambda: held_bytes(served) >= 1004)
        assert held_bytes(served) == 1004


@pytest.mark.slow
def test_large_requests_on_many_connections_are_read_only_as_request_memory_allows():
    with ServedBroker(queued_max_request_bytes=4 << 20, socket_request_max_bytes=4 << 20) as served:
        body = bytes(3 << 20)
        liars = [served.connect() for _ in range(8)]
        for liar in liars:
            liar.socket.settimeout(0.3)
            with contextlib.suppress(TimeoutError):
                liar.send_raw(struct.pack(">i", len(body)) + body[:-1])  # never the last byte
        assert held_bytes(served) < 9 << 20  # the limit of 4 MiB and the rest of the oldest request, not 24 MiB
        with served.connect() as honest:
            honest.call(CreateTopicsRequest(topics=[CreateTopicsRequest.Topic(name="t")]))
            assert answers(honest.call(produce("t", batch()))) == [(OK, 0)]
            for liar in liars:
                liar.close()
            assert answers(honest.call(produce("t", batch(value=bytes(900_000))))) == [(OK, 1)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_random_or_damaged_requests_close_only_their_own_connection(served, client, topic, seed):
    """Random bytes, and valid requests cut or with flipped bits; the broker keeps running and no exception escapes."""
    rng = random.Random(seed)
    good = [
        client.encoded(request, version)[0]
        for request, version in (
            (produce(topic, batch(5)), rng.randrange(3, 12)),
            (fetch(topic), rng.randrange(4, 13)),
            (MetadataRequest(topics=[MetadataRequest.Topic(name=topic)]), rng.randrange(13)),
            (list_offsets(topic, -1), rng.randrange(1, 12)),
            (create("x/.."), rng.randrange(2, 8)),
        )
    ]
    for _ in range(30):
        with served.connect() as liar:
            liar.socket.settimeout(2)
            data = bytearray(rng.choice(good))
            kind = rng.randrange(4)
            if kind == 0:
                data = bytearray(rng.randbytes(rng.randrange(1, 200)))
            elif kind == 1:
                for _ in range(rng.randrange(1, 6)):
                    data[rng.randrange(4, len(data))] = rng.randrange(256)
            elif kind == 2:
                del data[rng.randrange(4, len(data)) :]
                data[:4] = struct.pack(">i", len(data) - 4)
            else:
                del data[rng.randrange(1, len(data)) :]
            liar.send_raw(bytes(data))
            if kind == 3:
                continue
            liar.socket.shutdown(socket.SHUT_WR)
            while True:
                try:
                    if not liar.socket.recv(65536):
                        break
                except ConnectionError:
                    break
    assert answers(client.call(produce(topic, batch())))[0][0] == OK
    assert not served.broker.metrics.failures


# Ending.


def test_a_stopping_broker_sends_its_finished_answers_and_closes_its_connections():
    with ServedBroker() as served:
        port = served.port
        client, waiting = served.connect(), served.connect()
        client.call(create("t", 2))
        waiting.send(fetch("t", partition=1, max_wait_ms=60_000), NAMED)
        for sequence in range(100):
            client.send(produce("t", idempotent(sequence)))
        assert answers(client.receive()) == [(OK, 0)]
    assert set(rest_of(client)) <= {OK}
    with pytest.raises(Closed):
        waiting.receive()
    with pytest.raises(OSError, match="refused"):
        WireClient("127.0.0.1", port)
    served.close_clients()


def rest_of(client):
    """Yield the error codes of the answers that still come, until the connection is closed."""
    with contextlib.suppress(Closed):
        while client._sent:
            yield answers(client.receive())[0][0]


def test_a_failed_sync_closes_every_connection_without_an_answer():
    with ServedBroker() as served, served.connect() as client, served.connect() as other:
        client.call(create("t"))
        client.call(produce("t", batch()))

        def break_disk(broker):
            executor = broker.rounds._executor
            executor.submit = lambda job, done: broker.rounds._loop.call_soon(done, OSError("the disk is gone"))

        served.inside(break_disk)
        client.send(produce("t", batch()))
        with pytest.raises(Closed):
            client.receive()
        assert other.is_closed()
        assert str(served.broker.halted) == "the disk is gone"
        assert served.connect().is_closed()
        served.close_clients()


def test_connections_are_numbered_in_the_order_in_which_they_were_accepted(served):
    numbers = []
    with contextlib.ExitStack() as open_ones:
        for _ in range(4):
            client = open_ones.enter_context(served.connect())
            client.call(ApiVersionsRequest(client_software_name="n", client_software_version="1"), 3)
            numbers.append(max(connection.number for connection in served.broker.server.connections))
    assert numbers == sorted(set(numbers))
