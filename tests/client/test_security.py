"""TLS and SASL, against a server of our own with scramp's other side and certificates made for the test."""

import asyncio
import ssl

import pytest
import trustme
from client_world import run
from fencepost.client.errors import AuthenticationError, BrokerUnreachableError, ClientError
from fencepost.client.net.environment import SYSTEM
from fencepost.client.net.opening import open_connection
from fencepost.client.net.versions import SPOKEN
from fencepost.client.settings import producer_settings
from fencepost.protocol.apis import encode_response
from fencepost.protocol.messages.security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from long_runs import share_of
from scramp import ScramException, ScramMechanism
from scripted_server import Line, ScriptedServer

SASL = (SPOKEN[SaslHandshakeRequest], SPOKEN[SaslAuthenticateRequest])
PASSWORD = "hush-hush"
SALT = "c2FsdCBvZiAxNiBieXRlcyE="  # shorter ones are refused for that alone


def _handshake(mechanism):
    def answer(line, request, version, number):
        code = 0 if request.mechanism == mechanism else 33
        response = SaslHandshakeResponse(error_code=code, mechanisms=[mechanism])
        line.reply(SaslHandshakeRequest, version, number, response)

    return answer


def _reply(line, version, number, message=b"", code=0):
    response = SaslAuthenticateResponse(
        error_code=code, auth_bytes=message, error_message="no: hush-hush" if code else None
    )
    line.reply(SaslAuthenticateRequest, version, number, response)


def _plain(username):
    def answer(line, request, version, number):
        right = bytes(request.auth_bytes) == f"\0{username}\0{PASSWORD}".encode()
        _reply(line, version, number, code=0 if right else 58)

    return answer


def _scram(mechanism, username):
    scram = ScramMechanism(mechanism)
    known = {username: scram.make_auth_info(PASSWORD, iteration_count=4096)}

    def answer(line, request, version, number):
        text = bytes(request.auth_bytes).decode()
        try:
            if line.state is None:
                line.state = scram.make_server(known.__getitem__)
                line.state.set_client_first(text)
                _reply(line, version, number, line.state.get_server_first().encode())
            else:
                line.state.set_client_final(text)
                _reply(line, version, number, line.state.get_server_final().encode())
        except (ScramException, KeyError):
            _reply(line, version, number, code=58)

    return answer


def _with_sasl(mechanism, username, password=PASSWORD, *, asks=None, answer=None):
    async def main(world):
        server = ScriptedServer(world.net, more=SASL)
        await server.listen()
        server.answers[SaslHandshakeRequest] = _handshake(mechanism)
        known = _plain(username) if mechanism == "PLAIN" else _scram(mechanism, username)
        server.answers[SaslAuthenticateRequest] = answer or known
        settings = world.settings(
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=asks or mechanism,
            sasl_plain_username=username,
            sasl_plain_password=password,
        )
        try:
            return await open_connection(("127.0.0.1", 9092), settings, world.environment, None)
        finally:
            server.close()

    return run(main)


@pytest.mark.parametrize("username", ["alice", "a=b,c", "jörg"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_users_with_commas_equals_signs_or_umlauts_in_their_names_can_log_in(mechanism, username):
    """SCRAM escapes "=" and "," in user names. (aiokafka did not.)"""
    assert _with_sasl(mechanism, username)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_wrong_password_is_an_authentication_error_that_shows_no_secret(mechanism):
    with pytest.raises(AuthenticationError) as caught:
        _with_sasl(mechanism, "alice", "hush-wrong")
    assert "hush" not in str(caught.value) + repr(caught.value) + caught.value.hint


def test_a_mechanism_that_is_not_offered_is_named_with_those_that_are():
    with pytest.raises(AuthenticationError, match="does not offer PLAIN") as caught:
        _with_sasl("SCRAM-SHA-512", "alice", asks="PLAIN")
    assert "SCRAM-SHA-512" in caught.value.hint


def test_a_scram_server_with_a_wrong_signature_is_refused():
    def liar(line, request, version, number):
        if line.state is None:
            line.state = True
            nonce = bytes(request.auth_bytes).decode().rpartition("r=")[2]
            _reply(line, version, number, f"r={nonce}more,s={SALT},i=4096".encode())
        else:
            _reply(line, version, number, b"v=bm90IGl0")

    with pytest.raises(AuthenticationError, match="is not valid") as caught:
        _with_sasl("SCRAM-SHA-256", "alice", answer=liar)
    assert "signature" in str(caught.value.__context__)


@pytest.mark.parametrize("iterations", [0, -1, 1_000_001, 10_000_000, 2**31 - 1, 2**64])
def test_a_scram_iteration_count_that_is_too_high_or_0_is_refused_without_hashing(iterations, monkeypatch):
    done = []

    def greedy(line, request, version, number):
        monkeypatch.setattr("hashlib.pbkdf2_hmac", lambda *arguments: done.append(arguments) or bytes(32))
        nonce = bytes(request.auth_bytes).decode().rpartition("r=")[2]
        _reply(line, version, number, f"r={nonce}more,s={SALT},i={iterations}".encode())

    with pytest.raises(AuthenticationError, match="is not valid"):
        _with_sasl("SCRAM-SHA-256", "alice", answer=greedy)
    assert not done


class Touched:
    """The answers to a login, on whose way something happens to the byte at one place."""

    def __init__(self, fault: str, place: int) -> None:
        self.hit_message = False  # the byte belonged to a message of the mechanism
        self.sent = 0
        self._fault, self._place = fault, place

    def reply(self, line, request_class, version, number, response) -> None:
        api = line.server.by_request[request_class]
        data = b"".join(encode_response(api, version, number, response))
        if request_class not in (SaslHandshakeRequest, SaslAuthenticateRequest):
            line.transport.write(data)
            return
        at, self.sent = self._place - self.sent, self.sent + len(data)
        if not 0 <= at < len(data):
            line.transport.write(data)
            return
        message = bytes(getattr(response, "auth_bytes", b""))
        begin = data.index(message)
        self.hit_message = begin <= at < begin + len(message)
        if self._fault in ("changed", "inverted"):
            mask = 0xFF if self._fault == "inverted" else 1 << at % 8
            line.transport.write(data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :])
            return
        line.transport.write(data[:at])
        if self._fault == "cut":
            line.transport.close()
        else:
            asyncio.get_running_loop().call_later(1, line.transport.write, data[at:])


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("fault", ["changed", "inverted", "cut", "late"])
def test_any_changed_or_missing_byte_in_a_scram_servers_answers_fails_the_login(fault, monkeypatch):
    """A changed byte outside of the SCRAM messages may have no effect. A byte that comes late has none."""
    for place in range(0, 200, 4 - share_of(3)):
        touched = Touched(fault, place)
        monkeypatch.setattr(Line, "reply", lambda line, *rest, touched=touched: touched.reply(line, *rest))
        try:
            _with_sasl("SCRAM-SHA-256", "alice")
        except ClientError:
            assert fault != "late", place
        else:
            assert fault != "cut", place
            assert fault == "late" or not touched.hit_message, place
        assert place < touched.sent, "no byte was sent at this place"


def _connect_by_tls(trusted: bool = True, name: str = "127.0.0.1", **keywords):
    """Connect to a server with a certificate for `name`, of an authority that the client trusts or does not. Then check
    that a client without TLS cannot connect to it.
    """
    authority, stranger = trustme.CA(), trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(name).configure_cert(context)

    async def main():
        server = ScriptedServer(SYSTEM.net)
        port = await server.listen(0, tls=context)
        with (authority if trusted else stranger).cert_pem.tempfile() as ca_file:
            settings = producer_settings(
                f"127.0.0.1:{port}", security_protocol="SSL", ssl_cafile=ca_file, connect_timeout_ms=5_000, **keywords
            )
            tls = settings.security.tls_context()
        try:
            connection = await open_connection(("127.0.0.1", port), settings, SYSTEM, tls)
            connection.close()
            with pytest.raises(BrokerUnreachableError):
                await open_connection(("127.0.0.1", port), producer_settings("a", connect_timeout_ms=500), SYSTEM, None)
        finally:
            server.close()
            await asyncio.sleep(0.05)

    asyncio.run(main())


def test_a_client_connects_by_tls_if_the_certificate_is_trusted_but_not_without_tls():
    _connect_by_tls()


def test_a_server_certificate_of_an_unknown_authority_is_refused_with_a_hint():
    with pytest.raises(AuthenticationError) as caught:
        _connect_by_tls(trusted=False)
    assert "ssl_cafile" in caught.value.hint


def test_a_certificate_of_another_host_is_refused_unless_host_checks_are_off():
    with pytest.raises(AuthenticationError):
        _connect_by_tls(name="elsewhere.example")
    _connect_by_tls(name="elsewhere.example", ssl_check_hostname=False)
