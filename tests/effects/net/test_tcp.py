import asyncio
import errno
import os
import select
import socket
import struct
import threading
from collections import deque

import pytest
from fencepost.effects import forks
from fencepost.effects.net import SystemNet, Writable, has_left, send_now
from fencepost.effects.net import tcp as net_module
from loops import LOOPS
from this_machine import congestion_controls, has_ipv6


@pytest.fixture(params=LOOPS)
def run(request):
    def run(main):
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            return runner.run(asyncio.wait_for(main(), 10))

    return run


class Echo(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(data)


class Once(asyncio.Protocol):
    def __init__(self):
        self.answer = asyncio.get_running_loop().create_future()

    def data_received(self, data):
        self.answer.set_result(data)


async def ask(net, host, port):
    transport, protocol = await net.connect(Once, host, port)
    transport.write(b"hello")
    answer = await protocol.answer
    transport.close()
    return answer


def test_a_client_that_connects_to_a_reserved_port_is_answered_after_listen(run):
    async def main():
        net = SystemNet()
        await net.reserve("127.0.0.1", 0)
        [[[one]]] = net._reserved.values()
        port = one.getsockname()[1]
        transport, protocol = await net.connect(Once, "127.0.0.1", port)
        transport.write(b"hello")
        listener = await net.listen(Echo, "127.0.0.1", 0)
        assert listener.addresses == [("127.0.0.1", port)]
        assert await protocol.answer == b"hello"
        transport.close()
        net.release()  # has no effect: the port is listened on
        assert await ask(net, "127.0.0.1", port) == b"hello"
        listener.close()
        await listener.wait_closed()

    run(main)


def test_two_listeners_on_ports_of_the_systems_choice_get_the_two_reserved_ones(run):
    async def main():
        net = SystemNet()
        for _ in range(2):
            await net.reserve("127.0.0.1", 0)
        reserved = {one.getsockname() for [one] in net._reserved["127.0.0.1", 0]}
        listeners = [await net.listen(Echo, "127.0.0.1", 0) for _ in range(2)]
        assert {address for each in listeners for address in each.addresses} == reserved
        for each in listeners:
            each.close()
            await each.wait_closed()

    run(main)


def test_a_client_that_waits_at_a_reserved_port_is_disconnected_when_it_is_released(run):
    async def main():
        net, ended = SystemNet(), asyncio.Event()

        class Waiting(asyncio.Protocol):
            def connection_lost(self, reason):
                ended.set()

        await net.reserve("127.0.0.1", 0)
        [[[one]]] = net._reserved.values()
        port, number = one.getsockname()[1], one.fileno()
        assert number in forks._kept_from_children
        await net.connect(Waiting, "127.0.0.1", port)
        net.release()
        assert one.fileno() == -1
        assert number not in forks._kept_from_children  # else children would lose the next file with this number
        await ended.wait()
        with pytest.raises(OSError):
            await net.connect(Waiting, "127.0.0.1", port)

    run(main)


def test_a_port_that_is_taken_cannot_be_reserved_and_nothing_stays_open(run):
    async def main():
        net = SystemNet()
        listener = await net.listen(Echo, "127.0.0.1", 0)
        [(host, port)] = listener.addresses
        with pytest.raises(OSError) as refused:
            await net.reserve(host, port)
        assert refused.value.errno == errno.EADDRINUSE
        assert not net._reserved
        listener.close()
        await listener.wait_closed()

    run(main)


def test_a_reserved_socket_that_cannot_be_listened_on_is_closed_in_children_too(run, monkeypatch):
    """Its number may soon be that of another file, which children must keep."""

    def fail(sockets, factory):
        raise OSError(errno.EMFILE, "no descriptor is left")

    monkeypatch.setattr(net_module, "TlsAcceptor", fail)

    async def main():
        net, before = SystemNet(), set(forks._kept_from_children)
        await net.reserve("127.0.0.1", 0)
        assert forks._kept_from_children != before
        with pytest.raises(OSError):
            await net.listen(None, "127.0.0.1", 0)  # no function, so it is taken for what admits clients with TLS
        assert forks._kept_from_children == before

    run(main)


class Deaf(asyncio.Protocol):
    """Reads nothing from the first moment on."""

    made: asyncio.Future[asyncio.Transport]

    def connection_made(self, transport):
        transport.pause_reading()
        self.made.set_result(transport)


@pytest.mark.skipif(not hasattr(select, "POLLRDHUP"), reason="only Linux tells of an end behind unread bytes")
@pytest.mark.parametrize("reset", [False, True])
def test_has_left_is_true_once_the_peer_of_an_unread_connection_has_closed_it(run, reset):
    async def main():
        Deaf.made = asyncio.get_running_loop().create_future()
        listener = await SystemNet().listen(Deaf, "127.0.0.1", 0)
        client = socket.create_connection(listener.addresses[0])
        client.sendall(b"asked and not waited for")
        transport = await Deaf.made
        assert not has_left(transport)
        if reset:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        while not has_left(transport):  # noqa: ASYNC110 (nothing would set an event)
            await asyncio.sleep(0.001)
        transport.abort()
        listener.close()
        while not transport.is_closing():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        await asyncio.sleep(0)
        assert has_left(transport)

    run(main)


def test_a_listener_reports_its_port_and_accepts_connections_there(run):
    async def main():
        net = SystemNet()
        listener = await net.listen(Echo, "127.0.0.1", 0)
        [(host, port)] = listener.addresses
        assert host == "127.0.0.1"
        assert port > 0
        assert await ask(net, host, port) == b"hello"
        listener.close()

    run(main)


@pytest.mark.skipif(len(congestion_controls()) < 2, reason="this system leaves no choice of congestion control")
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0"])
def test_only_a_listener_on_loopback_sets_an_unpaced_congestion_control(run, monkeypatch, host):
    def control(one):
        return one.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")

    with socket.socket() as fresh:
        systems_own = control(fresh)
    (chosen, *_) = (name.encode() for name in sorted(congestion_controls()) if name.encode() != systems_own)
    monkeypatch.setattr(net_module, "UNPACED", chosen)
    taken = []

    class Taken(asyncio.Protocol):
        def connection_made(self, transport):
            taken.append(control(transport.get_extra_info("socket")))
            transport.close()

    async def main():
        listener = await SystemNet().listen(Taken, host, 0)
        for _, port in set(listener.addresses):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            await reader.read()
            writer.close()
        listener.close()

    run(main)
    assert set(taken) == {systems_own if host == "0.0.0.0" else chosen}


def test_listen_works_where_the_congestion_control_cannot_be_set(run, monkeypatch):
    monkeypatch.setattr(net_module, "UNPACED", b"none of this name")

    async def main():
        listener = await SystemNet().listen(Echo, "127.0.0.1", 0)
        assert await ask(SystemNet(), *listener.addresses[0]) == b"hello"
        listener.close()

    run(main)


def test_a_closed_listener_frees_its_port_and_its_open_connections_continue(run):
    async def main():
        net = SystemNet()
        listener = await net.listen(Echo, "127.0.0.1", 0)
        [(host, port)] = listener.addresses
        transport, protocol = await net.connect(Once, host, port)
        await asyncio.sleep(0.01)
        listener.close()
        listener.close()
        await listener.wait_closed()
        with pytest.raises(OSError):
            await net.connect(Once, host, port)
        transport.write(b"still here")
        assert await protocol.answer == b"still here"
        again = await net.listen(Echo, host, port)
        assert again.addresses == [(host, port)]
        again.close()
        transport.close()

    run(main)


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 on this machine")
@pytest.mark.parametrize("name", ["localhost", "::"])
def test_a_listener_serves_ipv4_and_ipv6_at_one_port(run, name):
    async def main():
        net = SystemNet()
        listener = await net.listen(Echo, name, 0)
        [port] = {port for _, port in listener.addresses}
        for host in ("127.0.0.1", "::1"):
            assert await ask(net, host, port) == b"hello"
        listener.close()

    run(main)


def test_an_address_family_missing_on_the_machine_is_skipped():
    places = [(socket.AF_INET6, ("2001:db8::1", 0, 0, 0)), (socket.AF_INET, ("127.0.0.1", 0))]
    [bound] = net_module.bind(places, dual_stack=False)
    assert bound.family == socket.AF_INET
    bound.close()
    with pytest.raises(OSError):
        net_module.bind(places[:1], dual_stack=False)


def test_bind_tries_another_port_if_the_chosen_one_is_taken_in_one_address_family(monkeypatch):
    # whether each bind fails: IPv4, IPv6 (its port is taken), then both at another port
    real, failures = net_module._bind, iter([False, True, False, False])

    def taken_once(family, address, dual_stack):
        if next(failures):
            raise OSError(errno.EADDRINUSE, "taken")
        return real(socket.AF_INET, ("127.0.0.1", 0), dual_stack)

    monkeypatch.setattr(net_module, "_bind", taken_once)
    bound = net_module.bind([(2, ("127.0.0.1", 0)), (10, ("::1", 0, 0, 0))], dual_stack=False)
    assert len(bound) == 2
    net_module.close(bound)


def test_listening_on_a_used_port_raises(run):
    async def main():
        net = SystemNet()
        listener = await net.listen(Echo, "127.0.0.1", 0)
        with pytest.raises(OSError) as raised:
            await net.listen(Echo, *listener.addresses[0])
        assert raised.value.errno == errno.EADDRINUSE
        listener.close()

    run(main)


# ---- past the transport --------------------------------------------------------------------------------------


class Taken:
    """Bytes that are not in memory, of which a socket gets so many a call."""

    def __init__(self, content: bytes, most: int = 1 << 20, error: OSError | None = None) -> None:
        self.content, self.most, self.error, self.released = content, most, error, False

    def __len__(self) -> int:
        return len(self.content)

    def send(self, socket_fd: int, begin: int) -> int:
        if self.error is not None:
            raise self.error
        return os.write(socket_fd, self.content[begin : begin + self.most])

    def release(self) -> None:
        self.released = True


def test_send_now_sends_buffers_and_file_parts_in_order():
    here, there = socket.socketpair()
    with here, there:
        part = Taken(b"part")
        left = deque([b"head", part, memoryview(b"tail")])
        assert send_now(here.fileno(), left, 0) == (0, 4, True)
        assert not left
        assert part.released
        assert there.recv(100) == b"headparttail"


def test_send_now_keeps_the_bytes_that_a_full_socket_does_not_accept():
    here, there = socket.socketpair()
    with here, there:
        here.setblocking(False)
        part = Taken(b"0123456789", most=4)
        left = deque([part, b"tail"])
        # the answer: where to continue in the first item, how many bytes did not come from memory, try again
        assert send_now(here.fileno(), left, 0) == (4, 4, True)
        assert (len(left), part.released) == (2, False)
        assert send_now(here.fileno(), deque([bytes(1 << 24)]), 0)[2]  # fills the socket
        assert send_now(here.fileno(), left, 4) == (4, 0, True), "the socket is full"


@pytest.mark.parametrize("one", [Taken(b"gone", error=OSError(errno.EIO, "error")), Taken(b"short", most=0)])
def test_send_now_sends_nothing_and_returns_false_for_a_file_part_it_cannot_read(one):
    here, there = socket.socketpair()
    with here, there:
        left = deque([b"head", one])
        assert send_now(here.fileno(), left, 0) == (0, 0, False)
        assert list(left) == [one]


def test_send_now_raises_connection_error_on_a_closed_socket():
    here, there = socket.socketpair()
    there.close()
    with here, pytest.raises(ConnectionError):
        send_now(here.fileno(), deque([b"head"]), 0)


async def test_waiting_for_more_sockets_than_the_limit_to_become_writable_raises_os_error(monkeypatch):
    monkeypatch.setattr(Writable, "room", threading.Semaphore(1))
    here, there = socket.socketpair()
    with here, there:
        descriptors = len(os.listdir("/dev/fd"))
        for _ in range(2):
            first = Writable(here.fileno(), lambda: None)
            with pytest.raises(OSError, match="enough"):
                Writable(here.fileno(), lambda: None)
            first.close()
            first.close()  # a second close frees no second place
        with pytest.raises(OSError, match="descriptor"):
            Writable(-1, lambda: None)
        Writable(here.fileno(), lambda: None).close()
        assert len(os.listdir("/dev/fd")) == descriptors


@pytest.mark.parametrize("size", [-1, 50_000])
async def test_accepted_sockets_have_the_requested_send_buffer_size(size):
    net = SystemNet()
    listener = await net.listen(Echo, "127.0.0.1", 0, size)
    own = await net.listen(Echo, "127.0.0.1", 0)
    found = []
    for one in (listener, own):
        made = one._sockets[0].getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        found.append(made)
        one.close()
        await one.wait_closed()
    assert (found[0] == found[1]) == (size < 0)
    assert size < 0 or size <= found[0] <= 2 * size  # Linux doubles the size that is asked for
