"""A network that changes, cuts or holds up one byte of a login or of a TLS handshake, at each of the first positions.

Whatever it does, nobody is let in who did not prove who it is, nothing is left behind, and the next client is served.
A byte that only comes late changes nothing.
"""

import contextlib
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from itertools import chain

import pytest
from certificates import Authority, serving
from eventually import wait_until
from fencepost.broker.security.sasl import SCRAM
from fencepost.protocol.apis import APIS, decode_response, encode_request
from fencepost.protocol.errors import KafkaError, MalformedFrame
from fencepost.protocol.messages.cluster import MetadataRequest
from fencepost.protocol.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest
from login_client import add_users, asking, log_in, plain
from scram_client import ScramClient
from served_broker import ServedBroker
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient
from wire_client import WireClient

pytestmark = pytest.mark.slow

POSITIONS = 200
HANDSHAKE, AUTHENTICATE = APIS[17], APIS[36]
FAULTS = ("changed", "inverted", "cut", "late")


class Cut(Exception):
    """Raised when the network has cut the connection."""


class Login:
    """A login of alice over a network that applies a fault to the byte at one position."""

    def __init__(self, broker: SimulatedBroker, mechanism: str, fault: str, at: int) -> None:
        self.client = SimulatedClient(broker)
        self.hit_message = False  # the byte belonged to a message of the mechanism
        self.sent = 0
        self._broker, self._mechanism, self._fault, self._at = broker, mechanism, fault, at

    def run(self) -> None:
        """Log in as alice. Returns when the login has succeeded or failed, or the network has cut the connection."""
        with contextlib.suppress(Cut, ConnectionError, KafkaError, MalformedFrame):
            self._ask(HANDSHAKE, 1, SaslHandshakeRequest(mechanism=self._mechanism), self._mechanism.encode())
            if self._mechanism == "PLAIN":
                self._say(plain("alice"))
            else:
                scram = ScramClient("alice", "alice-pw", SCRAM[self._mechanism].digest)
                challenge = self._say(scram.first())
                with contextlib.suppress(KeyError, ValueError):  # the answer to a damaged message is no challenge
                    self._say(scram.final(challenge))

    def _say(self, message: bytes) -> bytes:
        answer = self._ask(AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=message), message)
        return bytes(answer.auth_bytes)

    def _ask(self, api, version, request, message: bytes):
        self._send(b"".join(encode_request(api, version, 5, "client", request)), message)
        return decode_response(api, version, self.client.receive_frame())[1]

    def _send(self, frame: bytes, message: bytes) -> None:
        at, self.sent = self._at - self.sent, self.sent + len(frame)
        if not 0 <= at < len(frame):
            self.client.send_raw(frame)
            return
        begin = frame.index(message)
        self.hit_message = begin <= at < begin + len(message)
        if self._fault in ("changed", "inverted"):
            mask = 0xFF if self._fault == "inverted" else 1 << at % 8
            self.client.send_raw(frame[:at] + bytes([frame[at] ^ mask]) + frame[at + 1 :])
            return
        self.client.send_raw(frame[:at])
        if self._fault == "cut":
            raise Cut
        self._broker.wait(1)
        self.client.send_raw(frame[at:])


def known(broker: SimulatedBroker) -> bool:
    return "User:alice" in [str(one.session.principal) for one in broker.broker.server.connections]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_cut_or_changed_login_message_fails_and_a_late_one_succeeds(mechanism: str, fault: str) -> None:
    """For each of many byte positions: the byte is changed, the stream ends there, or the rest comes late. A late
    login succeeds. A cut one fails, and one with a changed byte in a message of SASL. A byte changed elsewhere in the
    request may do either.
    """
    with SimulatedBroker(asking()) as broker:
        add_users(broker.broker)
        for at in range(POSITIONS):
            login = Login(broker, mechanism, fault, at)
            login.run()
            was_hit = at < login.sent
            if fault == "late" or not was_hit:
                assert known(broker), at
            elif fault == "cut" or login.hit_message:
                assert not known(broker), at
            login.client.close()
            assert not broker.broker.server.connections
        honest = SimulatedClient(broker)
        assert log_in(honest, mechanism=mechanism).error_code == 0
        assert known(broker)
        assert not broker.broker.metrics.failures


# ---- TLS ---------------------------------------------------------------------------------------------------------


class Handshake:
    """A client's side of TLS, whose bytes can be changed on their way."""

    def __init__(self, port: int, context: ssl.SSLContext, touch: Callable[[bytes, int], Iterator[bytes]]) -> None:
        """touch: takes bytes and their position in the whole stream, and yields the pieces to send instead."""
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname="127.0.0.1")
        self._touch = touch
        self.sent = 0

    def is_served(self) -> bool:
        """Make the handshake, then send a request. Return whether it is answered."""
        request = b"".join(encode_request(APIS[3], 9, 7, "client", MetadataRequest(topics=[])))
        try:
            self._until_done(self._tls.do_handshake)
            self._until_done(lambda: self._tls.write(request))
            return bool(self._until_done(lambda: self._tls.read(1 << 16))[4:8] == b"\0\0\0\7")
        except (ssl.SSLError, ConnectionError, Cut):
            return False
        finally:
            self._socket.close()

    def _until_done(self, step: Callable[[], bytes]) -> bytes:
        while True:
            try:
                done = step()
                self._send()
                return done
            except ssl.SSLWantReadError:
                self._send()
                received = self._socket.recv(1 << 16)
                if not received:
                    raise Cut from None
                self._in.write(received)

    def _send(self) -> None:
        data = self._out.read()
        begin, self.sent = self.sent, self.sent + len(data)
        for piece in self._touch(data, begin):
            self._socket.sendall(piece)


def touching(fault: str, place: int) -> Callable[[bytes, int], Iterator[bytes]]:
    def touch(data: bytes, begin: int) -> Iterator[bytes]:
        at = place - begin
        if not 0 <= at < len(data):
            yield data
        elif fault in ("changed", "inverted"):
            yield data[:at] + bytes([data[at] ^ (0xFF if fault == "inverted" else 1 << at % 8)]) + data[at + 1 :]
        else:
            yield data[:at]
            if fault == "cut":
                raise Cut
            time.sleep(0.001)
            yield data[at:]

    return touch


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(("version", "step"), [(ssl.TLSVersion.TLSv1_2, 5), (ssl.TLSVersion.TLSv1_3, 1)])
def test_a_tls_handshake_with_any_byte_damaged_does_not_block_other_clients(tmp_path, version, step, fault) -> None:
    """A cut handshake fails, a late one succeeds; one with a changed byte may do either."""
    authority = Authority(tmp_path)
    context = authority.trusting()
    context.minimum_version = context.maximum_version = version
    settings = serving(authority.of_broker(), connection_login_timeout_ms=500)
    with ServedBroker(listeners=("SSL://127.0.0.1:0",), **settings) as broker:
        whole = Handshake(broker.port, context, lambda data, begin: iter([data]))
        assert whole.is_served()
        # Damage bytes at the beginning, and 100 more after the ClientHello, which usually has 517 bytes.
        hello = 517 if whole.sent > 517 + POSITIONS else whole.sent // 2
        for place in chain(range(0, POSITIONS, step), range(hello, min(hello + 100, whole.sent), 2 * step)):
            shaken = Handshake(broker.port, context, touching(fault, place))
            served = shaken.is_served()
            if place < shaken.sent and fault in ("cut", "late"):
                assert served == (fault == "late"), place
        wait_until(lambda: not broker.inside(lambda inner: inner.server.handshakes))
        wait_until(lambda: not broker.inside(lambda inner: inner.server.connections))
        with WireClient("127.0.0.1", broker.port, tls=authority.trusting()) as honest:
            assert honest.call(MetadataRequest(topics=[]), 9).brokers
