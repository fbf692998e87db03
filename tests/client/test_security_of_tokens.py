"""OAUTHBEARER: what is sent, what a refusal shows, and what the settings may be."""

import asyncio
import time

import pytest
from client_world import run
from fencepost.client.config_names import settings_from
from fencepost.client.errors import AuthenticationError, InvalidConfigurationError
from fencepost.client.net.connections import Connections
from fencepost.client.net.opening import open_connection
from fencepost.client.net.versions import SPOKEN
from fencepost.client.security import Token
from fencepost.client.settings import AdminSettings, ProducerSettings, producer_settings
from fencepost.protocol.messages.security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from scripted_server import ScriptedServer

SASL = (SPOKEN[SaslHandshakeRequest], SPOKEN[SaslAuthenticateRequest])
BEARER = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}


async def provide():
    return "hush.hush.hush", 60_000


class Issuing:
    """A server that takes the tokens in `good`. said: what clients have said. by_challenge: it refuses as Kafka."""

    def __init__(self, net, *good, by_challenge=True):
        self.server = ScriptedServer(net, more=SASL)
        self.server.answers |= {SaslHandshakeRequest: self._handshake, SaslAuthenticateRequest: self._authenticate}
        self.good = good
        self.by_challenge = by_challenge
        self.text = []

    def _handshake(self, line, request, version, number):
        line.reply(SaslHandshakeRequest, version, number, SaslHandshakeResponse(mechanisms=["OAUTHBEARER"]))

    def _authenticate(self, line, request, version, number):
        text = bytes(request.auth_bytes)
        self.text.append(text)
        response = SaslAuthenticateResponse(auth_bytes=b"", error_message=None)
        if text == b"\x01" or not any(f"Bearer {token}\x01".encode() in text for token in self.good):
            if self.by_challenge and text != b"\x01":
                response = SaslAuthenticateResponse(auth_bytes=b'{"status":"invalid_token"}', error_message=None)
            else:
                response = SaslAuthenticateResponse(error_code=58, error_message="no: hush", auth_bytes=b"")
        line.reply(SaslAuthenticateRequest, version, number, response)


def opened(*good, by_challenge=True, **keywords):
    """Open a connection with a login by token. Returns what the client sent to the server for it."""

    async def main(world):
        issuing = Issuing(world.net, *good, by_challenge=by_challenge)
        await issuing.server.listen()
        settings = world.settings(**{**BEARER, "sasl_oauth_token_provider": provide, **keywords})
        try:
            (await open_connection(("127.0.0.1", 9092), settings, world.environment, None)).close()
        finally:
            issuing.server.close()
        return issuing.text

    return run(main)


def test_a_token_and_its_extensions_are_sent_in_the_format_of_rfc_7628():
    assert opened("hush.hush.hush") == [b"n,,\x01auth=Bearer hush.hush.hush\x01\x01"]
    extensions = {"logicalCluster": "lkc-1", "identityPoolId": "pool-2"}
    assert opened("hush.hush.hush", sasl_oauthbearer_extensions=extensions) == [
        b"n,,\x01auth=Bearer hush.hush.hush\x01logicalCluster=lkc-1\x01identityPoolId=pool-2\x01\x01"
    ]


@pytest.mark.parametrize("by_challenge", [True, False])
def test_the_error_for_a_refused_token_shows_no_part_of_it(by_challenge):
    with pytest.raises(AuthenticationError, match="does not accept the token") as caught:
        opened("another", by_challenge=by_challenge)
    assert "hush" not in str(caught.value) + repr(caught.value) + caught.value.hint
    assert "issuer" in caught.value.hint


def test_a_token_that_was_refused_is_not_used_again():
    tokens = [("first", 600_000), ("second", 600_000)]

    async def next_token():
        return tokens.pop(0)

    async def main(world):
        issuing = Issuing(world.net, "second")
        await issuing.server.listen()
        settings = world.settings(**BEARER, sasl_oauth_token_provider=next_token)
        connections = Connections(settings, world.environment, lambda node: ("127.0.0.1", 9092), lambda *_: None)
        with pytest.raises(AuthenticationError):
            await connections.node(1)
        for node in (1, 2, 3):
            assert await connections.node(node)
        assert tokens == []
        await connections.close()
        issuing.server.close()

    run(main)


def test_the_repr_of_settings_and_of_a_token_shows_nothing_of_the_token():
    settings = producer_settings("h", **BEARER, sasl_oauth_token_provider=lambda: "hush")
    shown = repr(settings) + repr(settings.security) + repr(Token("hush", 1))
    assert "hush" not in shown
    assert "provider" not in shown


@pytest.mark.parametrize(
    ("keywords", "what"),
    [
        (BEARER, "OAUTHBEARER needs a function"),
        ({**BEARER, "sasl_oauth_token_provider": "token"}, "OAUTHBEARER needs a function"),
        ({**BEARER, "sasl_oauthbearer_extensions": {"auth": "x"}}, "'auth' cannot be sent"),
        ({**BEARER, "sasl_oauthbearer_extensions": {"a-b": "x"}}, "'a-b' cannot be sent"),
        ({**BEARER, "sasl_oauthbearer_extensions": {"a": "x\x01auth=y"}}, "'a' cannot be sent"),
        (
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "PLAIN",
                "sasl_plain_username": "a",
                "sasl_plain_password": "b",
            },
            "a token is for OAUTHBEARER",
        ),
    ],
)
def test_contradictory_token_settings_are_refused_with_a_hint(keywords, what):
    given = {"sasl_oauth_token_provider": provide, **keywords} if len(keywords) > 2 else keywords
    with pytest.raises(InvalidConfigurationError, match=what) as caught:
        producer_settings("h", **given)
    assert caught.value.hint


def test_an_aiokafka_style_token_provider_object_is_accepted():
    class Provider:
        """As AbstractTokenProvider of aiokafka and kafka-python."""

        async def token(self):
            return "token"

    settings = producer_settings("h", **BEARER, sasl_oauth_token_provider=Provider())
    assert asyncio.run(settings.security.token_provider()) == "token"


def test_token_settings_by_other_clients_names_have_the_same_effect():
    asked = []

    def of_librdkafka(config):
        asked.append(config)
        return "token", 1_700_000_000.5

    config = {
        "bootstrap.servers": "h",
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": "OAUTHBEARER",
        "oauth_cb": of_librdkafka,
        "sasl.oauthbearer.config": "scope=all",
        "sasl.oauthbearer.extensions": "logicalCluster=lkc-1, identityPoolId=p",
    }
    security = settings_from(AdminSettings, config).security
    assert security.token_provider() == Token("token", 1_700_000_000_500)
    assert asked == ["scope=all"]
    assert security.extensions == {"logicalCluster": "lkc-1", "identityPoolId": "p"}
    jaas = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
    java = {
        "bootstrap.servers": "h",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": jaas,
        "sasl_oauth_token_provider": provide,
    }
    assert settings_from(ProducerSettings, java).security.token_provider is provide
    with pytest.raises(InvalidConfigurationError, match="NAME=VALUE"):
        settings_from(AdminSettings, {**config, "sasl.oauthbearer.extensions": "hush"})


def test_a_token_provider_in_a_config_may_be_named_as_module_colon_function():
    config = {
        "bootstrap.servers": "h",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauth.token.provider": "time:time",
    }
    assert settings_from(AdminSettings, config).security.token_provider is time.time
    for wrong in ("time", "time:", "time:no_such", "no.such.module:f", ":f", ""):
        with pytest.raises(InvalidConfigurationError, match="cannot be imported") as caught:
            settings_from(AdminSettings, {**config, "sasl.oauth.token.provider": wrong})
        assert caught.value.hint == "write package.module:function"
