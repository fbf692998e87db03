"""Logins that are damaged at each byte, cut short, dripped, or in crowds: nobody gets in, all others are served."""

import asyncio
import struct

import pytest
from broker_lives import slow
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.protocol.messages.cluster import MetadataRequest
from fencepost.protocol.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest
from login_client import add_users, asking, choose, log_in, plain
from scram_client import ScramClient
from simulated_broker import SimulatedBroker, _Line
from simulated_client import SimulatedClient

pytestmark = pytest.mark.slow

NO_TOPICS = MetadataRequest(topics=[])


@pytest.fixture
def broker():
    with SimulatedBroker(asking()) as broker:
        add_users(broker.broker)
        yield broker
        assert not broker.broker.metrics.failures


class Login:
    """An honest login, whose bytes go through `send`, frame by frame."""

    def __init__(self, broker, mechanism):
        self.client = SimulatedClient(broker)
        self.mechanism = mechanism
        self.broker = broker

    def run(self, send):
        """Log in as alice: `send(write, frame)` sends each frame, or what it makes of it. Returns early if `send`
        returns False, or if the broker refuses a message or closes the connection.
        """
        client = self.client
        scram = ScramClient("alice", "alice-pw")
        messages = [lambda _: plain("alice")] if self.mechanism == "PLAIN" else [lambda _: scram.first(), scram.final]
        request, version, answer = SaslHandshakeRequest(mechanism=self.mechanism), 1, b""
        while True:
            api, version, frame = client.encoded(request, version)
            client._sent.append((client._next_id, api, version))
            if not send(client.send_raw, frame):
                return
            try:
                response = client.receive()
            except (ConnectionError, AssertionError):  # AssertionError: a damaged correlation id
                return
            answer = getattr(response, "auth_bytes", b"")
            if response.error_code or not messages:
                return
            request, version = SaslAuthenticateRequest(auth_bytes=messages.pop(0)(bytes(answer))), 2

    def is_served(self):
        """Return whether the broker answers another request on this connection."""
        self.client.line.received.clear()
        self.client._sent.clear()
        try:
            return bool(self.client.ask(NO_TOPICS, 9).brokers)
        except ConnectionError:
            return False


def principals(broker):
    return {str(one.session.principal) for one in broker.broker.server.connections}


def bytes_of_login(broker, mechanism):
    sizes = []

    def send(write, frame):
        sizes.append(len(frame))
        write(frame)
        return True

    Login(broker, mechanism).run(send)
    return sum(sizes)


class Touched:
    """Sends frames, and calls touch() for the frame that has the byte at this position of the whole stream."""

    def __init__(self, position):
        self.left = position

    def __call__(self, write, frame):
        at, self.left = self.left, self.left - len(frame)
        if not 0 <= at < len(frame):
            write(frame)
            return True
        return self.touch(write, frame, at)


class Damaged(Touched):
    def touch(self, write, frame, at):
        write(frame[:at] + bytes([frame[at] ^ 0x21]) + frame[at + 1 :])
        return at >= 4 or frame[at] ^ 0x21 < frame[at]  # a frame that became longer is never answered


class Cut(Touched):
    def touch(self, write, frame, at):
        write(frame[:at])
        return False


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_login_with_any_byte_changed_authenticates_nobody_else(broker, mechanism):
    served = 0
    size = bytes_of_login(broker, mechanism)
    for position in range(size):
        login = Login(broker, mechanism)
        login.run(Damaged(position))
        assert principals(broker) <= {"User:alice", "User:ANONYMOUS"}
        if not login.client.line.closed and "User:alice" not in _of(broker, login):
            login.client.send_unanswered(NO_TOPICS, 9)
            assert login.client.closed(12), position  # at the login timeout at the latest
            assert b"127.0.0.1" not in login.client.line.received
        served += not login.client.line.closed
        login.client.close()
    assert 0 < served < size / 2, "a login with another client id or correlation id is as good"


def _of(broker, login):
    here = login.client.transport.get_extra_info("sockname")
    return {
        str(one.session.principal)
        for one in broker.broker.server.connections
        if one.transport is not None and one.transport.get_extra_info("peername") == here
    }


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_login_that_stops_at_any_byte_is_closed_at_the_login_timeout(mechanism):
    many = {"max_unauthenticated_connections": 2_000, "max_unauthenticated_connections_per_ip": 2_000}
    with SimulatedBroker(asking(**many)) as broker:
        add_users(broker.broker)
        logins = []
        for position in range(bytes_of_login(broker, mechanism)):
            logins.append(Login(broker, mechanism))
            logins[-1].run(Cut(position))
        assert not any(one.client.line.closed for one in logins)
        broker.wait(11)
        assert all(one.client.line.closed for one in logins)
        assert not broker.broker.metrics.failures


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_login_sent_byte_by_byte_succeeds_unless_it_exceeds_the_login_timeout(broker, mechanism):
    for pause_s, comes_in in ((0.001, True), (0.5, False)):

        def drip(write, frame, pause_s=pause_s):
            for at in range(len(frame)):
                write(frame[at : at + 1])
                broker.wait(pause_s)
            return True

        login = Login(broker, mechanism)
        login.run(drip)
        assert login.is_served() == comes_in
        login.client.close()


@pytest.mark.parametrize("count", [2**31 - 1, 10**9, 16_384, 0, -1])
def test_a_client_cannot_choose_how_often_a_password_is_hashed(broker, count):
    client = SimulatedClient(broker)
    choose(client, "SCRAM-SHA-256")
    scram = ScramClient("alice", "alice-pw")
    client.send(SaslAuthenticateRequest(auth_bytes=scram.first() + f",i={count}".encode()))
    assert b"i=4096" in bytes(client.receive().auth_bytes), "the iterations of the stored credential"


def test_many_logins_with_wrong_passwords_do_not_delay_a_valid_login():
    """Passwords of one address are checked in turns with those of others."""
    disk = SimulatedDisk(history=False)
    slow(disk, passwords=0.01)
    settings = asking(listeners=("SASL_PLAINTEXT://0.0.0.0:9092",))
    with SimulatedBroker(settings, disk=disk) as broker:
        broker.net.name = "10.0.0.1"
        add_users(broker.broker)
        crowd = []
        for _ in range(100):
            client = _from(broker, "10.0.0.9")
            choose(client, "PLAIN")
            client.send(SaslAuthenticateRequest(auth_bytes=plain("alice", "wrong")))
            crowd.append(client)
        honest = _from(broker, "10.0.0.2")
        before = broker.broker.metrics.failed_logins
        assert log_in(honest, mechanism="PLAIN").error_code == 0
        assert honest.ask(NO_TOPICS, 9).brokers
        assert broker.broker.metrics.failed_logins - before < 10, "the honest client does not wait for the 100 others"
        broker.wait(5)
        assert broker.broker.metrics.failed_logins == 100
        assert all(one.line.closed for one in crowd)
        assert not broker.broker.metrics.failures


def _from(broker, host):
    client = SimulatedClient.__new__(SimulatedClient)
    client.broker, client.client_id, client._next_id, client._sent = broker, "client", 0, []
    net = broker.net.host(host)
    client.transport, client.line = broker.loop.run_until_complete(net.connect(_Line, "10.0.0.1", 9092))
    return client


def test_passwords_of_clients_that_disconnected_are_not_checked():
    disk = SimulatedDisk(history=False)
    slow(disk, passwords=0.01)
    with SimulatedBroker(asking(), disk=disk) as broker:
        add_users(broker.broker)
        for _ in range(50):
            client = SimulatedClient(broker)
            choose(client, "PLAIN")
            client.send(SaslAuthenticateRequest(auth_bytes=plain("alice", "wrong")))
            client.transport.close()
        broker.wait(2)
        assert broker.broker.metrics.failed_logins < 10, "of 50, those that were checked before their client left"
        assert not broker.broker.server.connections
        assert not broker.broker.metrics.failures


def test_stopping_the_broker_does_not_wait_for_password_checks():
    disk = SimulatedDisk(history=False)
    slow(disk, passwords=5)
    broker = SimulatedBroker(asking(), disk=disk)
    add_users(broker.broker)
    for _ in range(10):
        client = SimulatedClient(broker)
        choose(client, "PLAIN")
        client.send(SaslAuthenticateRequest(auth_bytes=plain("alice")))
    broker.wait(0.1)
    before = broker.loop.time()
    broker.loop.run_until_complete(broker.broker.stop())
    assert broker.loop.time() - before < 20, "the ten checks take 50 s"
    broker.loop.close()
    assert not broker.broker.metrics.failures


@pytest.mark.parametrize("size", [2**31 - 1, 2**31, 2**32 - 1, 65_537])
def test_huge_frames_between_login_messages_allocate_no_memory(broker, size):
    for steps in range(3):
        client = SimulatedClient(broker)
        scram = ScramClient("alice", "alice-pw")
        if steps:
            choose(client, "SCRAM-SHA-256")
        if steps > 1:
            client.ask(SaslAuthenticateRequest(auth_bytes=scram.first()))
        client.send_raw(struct.pack(">I", size) + b"\0" * 1000)
        assert client.closed()
    assert broker.broker.server._memory._used == 0


def test_many_silent_connections_leave_room_for_clients_that_log_in(broker):
    async def come():
        for _ in range(500):
            await broker.net.connect(_Line, "127.0.0.1", 9092)
            await asyncio.sleep(0.001)

    honest = SimulatedClient(broker)
    assert log_in(honest).error_code == 0
    broker.loop.run_until_complete(come())
    assert honest.ask(NO_TOPICS, 9).brokers
    late = SimulatedClient(broker)
    assert log_in(late).error_code == 0
    most = broker.settings.max_unauthenticated_connections_per_ip
    assert len(broker.broker.server.connections) <= most + 2
    broker.wait(11)
    assert len(broker.broker.server.connections) == 2
