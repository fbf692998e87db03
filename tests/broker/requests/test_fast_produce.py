"""The fast path of a Produce request: it is taken, and answers byte by byte as the general path would."""

import pytest
from crc32c import crc32c
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.produce import ProduceRequest
from produce_requests import EARLY_MS, answers, batch, code, create, idempotent, produce
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient

OK = ErrorCode.NONE


@pytest.fixture
def client(broker):
    broker.ask(create("t", 3))
    return SimulatedClient(broker)


SHAPES = [
    produce("t", batch()),
    produce("t", batch(3, value=b"y" * 40)),
    produce("t", batch(value=b"z" * 20_000)),
    produce("t", idempotent(0), partition=1),
    produce("t", idempotent(0), partition=1),  # a duplicate
    produce("t", idempotent(5), partition=1),
    produce("t", idempotent(1), partition=1, acks=1),
    produce("t", batch(), partition=2),
    produce("t", batch(), partition=9),
    produce("t", batch(), partition=-1),
    produce("none", batch()),
    produce("", batch()),
    produce("keys", batch()),
    produce("keys", batch(key=b"k")),
    produce("stamped", batch()),
    produce("t", batch(codec=4)),
    produce("t", batch(timestamp=EARLY_MS * 2)),
    produce("t", b""),
    produce("t", None),
    produce("t", b"\x00" * 61),
    produce("t", batch(), acks=7),
    produce("t", batch(), transactional_id="x"),
    produce("t", idempotent(0, transactional=True), transactional_id="x"),
    produce("t", idempotent(0, transactional=True)),
    produce("t", batch(), batch()),
    produce("t"),
    ProduceRequest(acks=-1, timeout_ms=0, topic_data=[]),
    ProduceRequest(acks=-1, timeout_ms=0, topic_data=[*produce("t", batch()).topic_data, *produce("keys").topic_data]),
]
TOPICS = {
    "t": {},
    "keys": {"cleanup_policy": "compact"},
    "stamped": {"message_timestamp_type": "LogAppendTime"},
}


def replies(version, shapes, client_ids, *, fast):
    """Send every shape once for each client id. Returns the raw replies, the bytes of each log, and its producers.

    fast: whether the broker has its fast paths.
    """
    with SimulatedBroker() as broker:
        for name, configs in TOPICS.items():
            broker.ask(create(name, 3, **configs))
        if not fast:
            broker.broker.server.serve.__self__.fast_paths.clear()
        got = []
        for client_id in client_ids:
            client = SimulatedClient(broker, client_id)
            for shape in shapes:
                client.send(shape, version)
                got.append(client.receive_frame())
        logs = broker.broker.store.logs.values()
        held = [log.read(0, 1 << 30, log.end_offset, at_least_one=True).buffers for log in logs if log.log_id]
        return got, [b"".join(buffers) for buffers in held], [list(log.producers.describe()) for log in logs]


@pytest.mark.slow
@pytest.mark.parametrize("version", range(3, 12))
def test_the_fast_path_of_produce_answers_like_the_general_path(version):
    clients = ("a", "", "a-rather-long-client-id-" * 8)
    assert replies(version, SHAPES, clients, fast=True) == replies(version, SHAPES, clients, fast=False)


def headers_with_a_byte_changed(sound):
    """Yield the batch with one bit flipped, twice for each byte of its header; also with a CRC that is right for the
    change, where the CRC covers the byte.
    """
    for position in range(61):
        for change in (0x01, 0x80):
            lying = bytearray(sound)
            lying[position] ^= change
            yield bytes(lying)
            if position >= 21:
                lying[17:21] = crc32c(bytes(lying[21:])).to_bytes(4, "big")
                yield bytes(lying)


@pytest.mark.slow
@pytest.mark.parametrize("version", [7, 11])
def test_produce_with_any_header_byte_changed_is_answered_alike_on_both_paths(version):
    shapes = []
    for sound in (batch(3), idempotent(3), batch(codec=1)):
        shapes += [produce("t", idempotent(0)), produce("t", idempotent(1, 2)), produce("t", sound)]
        shapes += [produce("t", changed) for changed in headers_with_a_byte_changed(sound)]
    assert replies(version, shapes, ("a",), fast=True) == replies(version, shapes, ("a",), fast=False)


def test_ordinary_produce_requests_take_the_fast_path(client):
    client.ask(produce("t", idempotent(0), partition=1))  # a producer's first batch is for the general path
    metrics = client.broker.broker.metrics
    dispatcher = client.broker.broker.server.serve.__self__
    dispatcher._serve_generally = lambda connection, frame: pytest.fail("not taken")
    for version in range(7, 12):
        own = SimulatedClient(client.broker)
        own.ask(produce("t", batch()), version)
        own.ask(produce("t", idempotent(version - 6), partition=1), version)
    assert metrics.requests[0] == 11


def test_a_client_may_change_the_version_of_produce_between_requests(client):
    for version in (7, 8, 7, 9, 11, 3, 7):
        assert code(client.ask(produce("t", batch()), version)) == OK


@pytest.mark.slow
@pytest.mark.parametrize("version", [7, 9, 11])
def test_a_produce_request_with_false_lengths_closes_its_connection(broker, version):
    broker.ask(create("t"))
    good = SimulatedClient(broker)
    good.ask(produce("t", batch()), version)
    _, _, frame = good.encoded(produce("t", batch()), version)
    for cut in range(9, len(frame) - 4):
        body = frame[4:-cut] if cut < len(frame) - 12 else frame[4:12]
        liar = SimulatedClient(broker)
        liar.ask(produce("t", batch()), version)  # its parsed head (the route) serves the next request
        liar.send_raw(len(body).to_bytes(4, "big") + body)
        assert liar.closed(0.1)
    assert answers(good.ask(produce("t", batch()), version))[0][0] == OK
