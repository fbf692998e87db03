"""Logins by OAUTHBEARER: keys from a file or a web server, changes of them, and settings that a start refuses."""

import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from eventually import wait_until
from fencepost.broker.config.options import InvalidOption
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.listeners.tokens import TokenSource
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.cluster import MetadataRequest
from login_client import bearer, choose, say
from served_broker import ServedBroker
from signed_tokens import AUDIENCE, ISSUER, jwk, key_set, token

LISTENERS = ("SASL_PLAINTEXT://127.0.0.1:0",)


def oauth(url, **more):
    return {
        "listeners": LISTENERS,
        "sasl_enabled_mechanisms": ("OAUTHBEARER",),
        "sasl_oauthbearer_jwks_endpoint_url": url,
        "sasl_oauthbearer_expected_issuer": ISSUER,
        "sasl_oauthbearer_expected_audience": (AUDIENCE,),
    } | more


def signed(key="rsa-1", lifetime_s=600, **claims):
    now = int(time.time())
    return token(key, {"iat": now - 1, "exp": now + lifetime_s} | claims)


@pytest.fixture
def keys(tmp_path):
    file = tmp_path / "keys.json"
    file.write_bytes(key_set(jwk("rsa-1")))
    return file


def logs_in(broker, text):
    """Log in with this token. Return the error code of the last answer; 0 if the client is served then."""
    with broker.connect() as client:
        choose(client, "OAUTHBEARER")
        response = say(client, bearer(text))
        if response.error_code == 0 and not response.auth_bytes:
            assert client.call(MetadataRequest(topics=[]), 9).brokers
            return 0
        return say(client, b"\x01").error_code


@pytest.mark.slow
def test_a_token_determines_the_user_and_when_the_session_ends(keys):
    with ServedBroker(**oauth(keys.as_uri())) as broker, broker.connect() as client:
        choose(client, "OAUTHBEARER")
        response = say(client, bearer(signed(sub="carol", lifetime_s=100)))
        assert response.error_code == 0
        assert 0 < response.session_lifetime_ms <= 130_000  # the token's 100 s and a clock skew of 30 s
        assert broker.inside(lambda inner: [str(one.session.principal) for one in inner.server.connections]) == [
            "User:carol"
        ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "refused",
    [
        lambda: signed(iss="other"),
        lambda: signed(aud="other"),
        lambda: signed(lifetime_s=-1000),
        lambda: signed("rsa-2"),
        lambda: signed()[:-4] + "AAAA",
    ],
)
def test_an_invalid_token_gets_sasl_authentication_failed(keys, refused):
    with ServedBroker(**oauth(keys.as_uri())) as broker:
        assert logs_in(broker, refused()) == ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.mark.slow
def test_the_user_can_be_read_from_a_configured_token_claim(keys):
    with ServedBroker(**oauth(keys.as_uri(), sasl_oauthbearer_sub_claim_name="client_id")) as broker:
        assert logs_in(broker, signed()) == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert logs_in(broker, signed(client_id="x")) == 0


@pytest.mark.slow
def test_token_keys_are_fetched_from_the_configured_url_and_refreshed(monkeypatch):
    monkeypatch.setattr("fencepost.broker.security.jwks.SOONEST_MS", 10)
    published = [key_set(jwk("rsa-1"))]

    class Keys(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(published[0])

        def log_message(self, *_):
            return

    with HTTPServer(("127.0.0.1", 0), Keys) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            with ServedBroker(**oauth(f"http://127.0.0.1:{server.server_port}/jwks")) as broker:
                wait_until(lambda: logs_in(broker, signed()) == 0)
                published[0] = key_set(jwk("rsa-2"))
                wait_until(lambda: logs_in(broker, signed("rsa-2")) == 0)
                assert logs_in(broker, signed()) == ErrorCode.SASL_AUTHENTICATION_FAILED
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.slow
def test_the_broker_starts_although_the_jwks_url_does_not_answer():
    with ServedBroker(**oauth("http://127.0.0.1:1/jwks")) as broker:
        assert logs_in(broker, signed()) == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_the_broker_stops_although_the_jwks_url_has_not_answered():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with ServedBroker(**oauth(f"http://127.0.0.1:{silent.getsockname()[1]}/jwks")):
            asked, _ = silent.accept()
        with asked:
            asked.settimeout(0)
            assert asked.recv(10_000).startswith(b"GET /jwks")
            with pytest.raises(BlockingIOError):  # if the fetch had ended, this would return b""
                asked.recv(1)


@pytest.mark.parametrize(
    ("change", "reason", "hint"),
    [
        (
            {"sasl_oauthbearer_jwks_endpoint_url": ""},
            "offers OAUTHBEARER and has nothing to verify tokens with",
            "set sasl.oauthbearer.jwks.endpoint.url",
        ),
        ({"sasl_oauthbearer_expected_issuer": ""}, "nothing to verify", "set sasl.oauthbearer.expected.issuer"),
        ({"sasl_oauthbearer_expected_audience": ()}, "nothing to verify", "set sasl.oauthbearer.expected.audience"),
        ({"sasl_oauthbearer_jwks_endpoint_url": "ftp://x/y"}, "is no URL", "file:///PATH"),
        ({"sasl_oauthbearer_jwks_endpoint_url": "file:///none"}, "No such file", "file:///PATH"),
    ],
)
def test_incomplete_oauthbearer_settings_are_refused_with_a_hint(keys, change, reason, hint):
    (listener,) = BrokerSettings(**(oauth(keys.as_uri()) | change)).served_listeners
    with pytest.raises(InvalidOption) as refused:
        TokenSource(listener)
    assert reason in str(refused.value)
    assert hint in refused.value.hint


def test_a_jwks_file_without_keys_refuses_the_start(keys):
    keys.write_bytes(key_set())
    (listener,) = BrokerSettings(**oauth(keys.as_uri())).served_listeners
    with pytest.raises(InvalidOption, match="no key"):
        TokenSource(listener)


def test_oauthbearer_without_the_token_library_refuses_the_start(keys, monkeypatch):
    monkeypatch.setitem(sys.modules, "jwt", None)
    (listener,) = BrokerSettings(**oauth(keys.as_uri())).served_listeners
    with pytest.raises(InvalidOption, match="needs PyJWT") as refused:
        TokenSource(listener)
    assert "fencepost[oauth]" in refused.value.hint
