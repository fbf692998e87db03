"""Answers to Fetch whose records go from the page cache to the socket, over real sockets and files.

Each file counts as cached: a loaded machine takes pages back at any moment. What the page cache really holds is the
matter of tests/effects/disk/test_page_cache.py, and tests/interop reads uncopied records with a real client.
"""

import contextlib
import random
import socket
import ssl
import struct

import pytest
from eventually import wait_until
from fencepost.broker.metrics import Metrics
from fencepost.broker.net import sending
from fencepost.effects.disk import page_cache
from fencepost.protocol.batches import walk
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.cluster import ApiVersionsRequest
from fencepost.storage.log.file_parts import FilePart
from loops import LOOPS
from produce_requests import batch, bytes_of, create, fetch, fetched, produce
from served_broker import ServedBroker
from small_parts import uses
from wire_client import Closed

FETCH = 1
NAMED = 12  # the newest version that names topics
BATCHES, VALUE_BYTES = 40, 100_000
NARROW_BYTES = 16 << 10  # a receive buffer
AHEAD = 10  # requests


@pytest.fixture(scope="module", params=LOOPS)
def served(request):
    """A broker with 4 MB in one partition, in a segment whose checksums were checked in a first read."""
    served = ServedBroker()
    served.loop.close()
    served.loop = LOOPS[request.param]()
    with served:
        client = served.connect()
        client.call(create("t"))
        for number in range(BATCHES):
            client.call(produce("t", batch(2, value=b"%06d" % number + b"v" * VALUE_BYTES)), 9)
        save(served)
        read_whole(client)
        served.close_clients()
        yield served
        served.close_clients()


@pytest.fixture(autouse=True)
def cached(monkeypatch):
    monkeypatch.setattr(page_cache, "holds", lambda fd, size, position: True)


def log_of(broker):
    return broker.topics.by_name["t"].partitions[0].log


def save(served):
    """Wait until all records are in a segment file that a checkpoint includes."""

    def step(broker):
        broker.housekeeping.hurry()
        log = log_of(broker)
        return log.checkpointed_offset == log.end_offset

    wait_until(lambda: served.inside(step))


def read_whole(client, version=NAMED):
    found, offset = b"", 0
    while offset < 2 * BATCHES:
        found += bytes_of(fetched(client.call(large(offset), version)))
        offset = list(walk(memoryview(found)))[-1].next_offset
    return found


def large(offset=0, **more):
    return fetch("t", offset, partition_max_bytes=3 << 20, **more)


def content(served):
    def read(broker):
        log = log_of(broker)
        with broker.store.open_files.use(f"{log.directory}/{log.segments[0].stem}.log") as file:
            return file.read(file.size(), 0)

    return served.inside(read)


def uncopied(served):
    return served.inside(lambda broker: broker.metrics.bytes_uncopied)


def settled(served):
    """Wait until no answer uses an open file any more."""
    wait_until(lambda: served.inside(lambda broker: uses(broker.store.open_files)) == 0)


def connect_narrow(served):
    """Connect a client whose socket buffers little beyond what the client has read."""
    client = served.connect()
    client.close()
    client.socket = socket.socket()
    # Set before connect(), because otherwise the kernel lets the buffer grow.
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, NARROW_BYTES)
    client.socket.settimeout(10)
    client.socket.connect(("127.0.0.1", served.port))
    return client


def half_sent(served):
    """Wait until an answer is sent in part because its client does not read. Return its connection."""
    wait_until(lambda: served.inside(standing_in))
    return served.inside(standing_in)[0]


def standing_in(broker):
    """Return the connections whose answer is sent in part because the client does not read."""
    return [one for one in broker.server.connections if isinstance(one.transport, sending.Overflow)]


def has_looked(served):
    """Wait until the broker has read from its sockets what was sent before, as far as it is going to read it."""
    with served.connect() as other:
        for _ in range(2):
            other.call(ApiVersionsRequest(), 0)


def frame_of_first(client, request):
    """Send a client's first request. Return the whole frame of the answer."""
    client.send(request, NAMED)
    body = client.receive_frame()
    return struct.pack(">i", len(body)) + body


@pytest.mark.slow
@pytest.mark.parametrize("version", range(4, 18))
def test_a_fetch_of_over_2_mib_from_a_segment_is_sent_by_sendfile_unchanged(served, version):
    before = uncopied(served)
    client = served.connect()
    if version <= NAMED:
        assert read_whole(client, version) == content(served)
    else:
        topic_id = served.inside(lambda broker: broker.topics.by_name["t"].id)
        part = fetched(client.call(fetch(topic_id=topic_id, partition_max_bytes=3 << 20), version))
        assert len(bytes_of(part)) > 2 << 20
        assert content(served).startswith(bytes_of(part))
    assert uncopied(served) - before > 2 << 20
    settled(served)


@pytest.mark.slow
def test_connections_get_the_configured_send_buffer_size(served):
    served.connect().call(large(), NAMED)

    def sizes(broker):
        sockets = [one.transport.get_extra_info("socket") for one in broker.server.connections]
        return [one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) for one in sockets]

    wanted = served.broker.settings.socket_send_buffer_bytes
    # Linux reports twice the size that was set.
    assert all(wanted <= size <= 2 * wanted for size in served.inside(sizes))


@pytest.mark.slow
def test_pipelined_requests_around_a_large_answer_are_answered_in_order(served):
    client = served.connect()
    for offset in (0, 2 * BATCHES, 0, 2 * BATCHES):
        client.send(large(offset), NAMED)
    sizes = [len(bytes_of(fetched(client.receive()))) for _ in range(4)]
    assert sizes[1] == sizes[3] == 0
    assert sizes[0] == sizes[2] > 2 << 20


@pytest.mark.slow
def test_a_client_that_reads_slowly_gets_every_byte(served):
    before = uncopied(served)
    client = connect_narrow(served)
    client.send(large(), NAMED)
    client.send(large(2 * BATCHES), NAMED)
    half_sent(served)
    assert served.inside(lambda broker: uses(broker.store.open_files)) == 1
    received = bytearray()
    while len(received) < 2 << 20:
        received += client.socket.recv(30_000)
    client._received = bytes(received)
    assert content(served).startswith(bytes_of(fetched(client.receive())))
    assert bytes_of(fetched(client.receive())) == b""
    assert uncopied(served) - before > 2 << 20
    settled(served)


@pytest.mark.slow
def test_the_next_fetch_is_not_handled_until_the_client_reads_the_first_answer(served):
    """Otherwise a client that never reads could occupy any amount of memory and descriptors."""

    def taken(broker):
        return broker.metrics.requests[FETCH]

    client = connect_narrow(served)
    client.send(large(), NAMED)
    connection = half_sent(served)
    before = served.inside(taken)
    for _ in range(AHEAD):
        client.send(large(), NAMED)
    has_looked(served)
    assert served.inside(taken) == before
    assert not connection._framer.held_bytes
    assert not connection._backlog
    assert served.inside(lambda broker: uses(broker.store.open_files)) == 1
    assert not connection.slots
    frames = [client.receive_frame() for _ in range(1 + AHEAD)]
    assert all(len(frame) > 2 << 20 and frame[4:] == frames[0][4:] for frame in frames)
    settled(served)


@pytest.mark.parametrize("reset", [True, False])
def test_a_client_that_disconnects_during_sendfile_leaves_nothing_open(served, reset):
    before = list(served.broker.server.connections)  # one of an earlier client may be about to go
    client = served.connect()
    client.send(large(), NAMED)
    client.send(large(), NAMED)
    assert client.socket.recv(100)
    (ours,) = [one for one in list(served.broker.server.connections) if one not in before]
    if reset:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    settled(served)
    wait_until(lambda: ours not in served.broker.server.connections)


def test_a_connection_the_broker_closes_leaves_no_open_files(served):
    client = connect_narrow(served)
    client.send(large(), NAMED)
    half_sent(served)
    served.inside(lambda broker: [one.abort() for one in broker.server.connections])
    settled(served)
    with pytest.raises((Closed, ConnectionError)):  # the client reads to the end, or is told of the reset before
        client.receive()


def test_hang_up_closes_a_connection_only_after_the_answer_being_sent_is_complete(served):
    client = connect_narrow(served)
    client.send(large(), NAMED)
    half_sent(served)
    served.inside(lambda broker: [one.hang_up() for one in broker.server.connections])
    assert len(bytes_of(fetched(client.receive()))) > 2 << 20
    with pytest.raises(Closed):
        client.receive_frame()
    settled(served)


def test_answers_are_copied_when_no_descriptor_is_left_for_sendfile(served, monkeypatch):
    def none_left(fd, call):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(sending, "Writable", none_left)
    client = served.connect()
    assert read_whole(client) == content(served)
    settled(served)


@pytest.mark.slow
def test_without_free_descriptors_answers_are_read_at_most_one_window_ahead(served, monkeypatch):
    def none_left(fd, call):
        raise OSError(24, "Too many open files")

    read = []

    def noted(part, begin, size):
        read.append(size)
        return real(part, begin, size)

    real = FilePart.read
    monkeypatch.setattr(FilePart, "read", noted)
    monkeypatch.setattr(sending, "Writable", none_left)
    clients = [connect_narrow(served) for _ in range(20)]
    for client in clients:
        client.send(large(), NAMED)
    wait_until(lambda: served.inside(lambda broker: len(standing_in(broker)) == len(clients)))
    assert sum(read) <= len(clients) * sending.WINDOW_BYTES
    for client in clients:
        assert content(served).startswith(bytes_of(fetched(client.receive())))
    settled(served)


def test_file_parts_are_copied_where_sendfile_does_not_work(served, monkeypatch):
    before = uncopied(served)

    def refused(*_):
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr("os.sendfile", refused)
    client = served.connect()
    assert read_whole(client) == content(served)
    assert uncopied(served) == before
    settled(served)


@pytest.mark.slow
def test_a_truncated_file_closes_the_connection_and_takes_the_log_offline():
    with ServedBroker() as served:
        client = served.connect()
        client.call(create("t"))
        chance = random.Random(1)
        for _ in range(20):
            client.call(produce("t", batch(value=chance.randbytes(VALUE_BYTES))), 9)
        save(served)
        size_bytes = len(bytes_of(fetched(client.call(large(), NAMED))))
        whole = frame_of_first(served.connect(), large())
        client = connect_narrow(served)
        client.send(large(), NAMED)
        half_sent(served)

        def cut(broker):
            log = log_of(broker)
            with broker.store.open_files.use(f"{log.directory}/{log.segments[0].stem}.log") as file:
                file.truncate(size_bytes - 4096)

        served.inside(cut)
        received = bytearray()
        with contextlib.suppress(ConnectionError):
            while len(received) < len(whole) and (got := client.socket.recv(100_000)):
                received += got
        assert size_bytes // 2 < len(received) < len(whole)
        assert whole.startswith(received)
        settled(served)
        part = fetched(served.connect().call(large(), NAMED))
        assert part.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "the file ends early" in served.inside(lambda broker: log_of(broker).offline)
        served.close_clients()


# ---- other transports --------------------------------------------------------------------------------------


class Part(FilePart):
    """A part of a file that claims to hold these bytes."""

    def __init__(self, content):
        self.content, self.released, self._opened = content, 0, None

    def __len__(self):
        return len(self.content)

    def read(self, begin=0, size=None):
        return self.content[begin : begin + size]

    def release(self):
        self.released += 1


class Wire:
    """A transport whose get_extra_info() returns only what is given here."""

    def __init__(self, **extra):
        self.extra = extra
        self.written = []
        self.held, self.takes = 0, extra.get("takes")

    def get_extra_info(self, name):
        return self.extra.get(name)

    def get_write_buffer_size(self):
        return self.extra.get("waiting", 0)

    def is_closing(self):
        return self.extra.get("closing", False)

    def writelines(self, buffers):
        self.written += [bytes(one) for one in buffers]
        if self.takes is not None:
            self.held += sum(map(len, buffers))
            if self.held >= self.takes:
                self.sender.pause_writing()


class Sender:
    def __init__(self, transport):
        self.transport = transport
        self.writing_paused = False
        transport.sender = self

    def pause_writing(self):
        self.writing_paused = True
        if isinstance(self.transport, sending.Overflow):
            self.transport.paused()


@pytest.mark.parametrize("kind", ["no socket", "tls", "waiting"])
def test_file_parts_are_copied_in_order_through_transports_without_sendfile(kind):
    here, there = socket.socketpair()
    with here, there:
        there.setblocking(False)
        extra = {
            "no socket": {},
            "tls": {"socket": here, "sslcontext": ssl.create_default_context()},
            "waiting": {"socket": here, "waiting": 1},
        }[kind]
        wire, metrics = Wire(**extra), Metrics()
        parts = [Part(b"first part"), Part(b"second part")]
        sender = Sender(wire)
        sending.send(sender, [b"head", parts[0], b"be", memoryview(b"tween"), parts[1], b"tail"], metrics)
        assert wire.written == [b"head", b"first part", b"between", b"second part", b"tail"]
        assert [part.released for part in parts] == [1, 1]
        assert sender.transport is wire
        assert metrics.bytes_uncopied == 0
        with pytest.raises(BlockingIOError):
            there.recv(1)


def test_nothing_is_read_or_written_for_a_transport_that_is_closing():
    wire = Wire(closing=True)
    part = Part(b"part")
    sending.send(Sender(wire), [b"head", part], Metrics())
    assert (wire.written, part.released) == ([], 1)


def test_a_file_that_is_copied_is_read_one_window_at_a_time_as_the_transport_sends():
    wire = Wire(takes=sending.WINDOW_BYTES)
    content = [random.Random(seed).randbytes(3 * sending.WINDOW_BYTES + seed) for seed in range(2)]
    parts = [Part(each) for each in content]
    sender = Sender(wire)
    sending.send(sender, [b"head", parts[0], b"between", parts[1]], Metrics())
    whole = b"".join((b"head", content[0], b"between", content[1]))
    windows = 1
    while (standing := sender.transport) is not wire:
        written = b"".join(wire.written)
        assert written == whole[: windows * sending.WINDOW_BYTES]
        assert standing.get_write_buffer_size() == len(whole) - len(written)
        wire.held, windows = 0, windows + 1
        standing.resumed()
    assert b"".join(wire.written) == whole
    assert windows == 7
    assert [part.released for part in parts] == [1, 1]


def test_writes_and_a_close_wait_for_an_unsent_file_part():
    wire = Wire(takes=1)
    wire.close = lambda: wire.written.append("closed")
    sender = Sender(wire)
    sending.send(sender, [b"head", Part(bytes(sending.WINDOW_BYTES))], Metrics())
    standing = sender.transport
    standing.write(b"more")
    standing.close()
    assert b"more" not in wire.written
    assert not standing.resumed()
    assert wire.written[-3:] == [bytes(4), b"more", "closed"]
    assert sender.transport is wire


def test_an_answer_without_file_parts_is_written_unchanged():
    wire = Wire()
    sending.send(Sender(wire), [b"a", memoryview(b"b")], Metrics())
    assert wire.written == [b"a", b"b"]
