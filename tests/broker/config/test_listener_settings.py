"""Listeners: their addresses, names, protocols, and what is set for one of them."""

from typing import Any

import pytest
from fencepost.broker.config.listener_settings import address
from fencepost.broker.config.options import InvalidOption
from fencepost.broker.config.settings import BrokerSettings, Source


def listeners(*addresses: str, advertised: str = "", **settings: Any) -> Any:
    texts = {"listeners": ",".join(addresses), "advertised.listeners": advertised}
    texts |= {name.replace("__", "-").replace("_", ".").replace("-", "_"): text for name, text in settings.items()}
    return BrokerSettings.of(
        {Source.STATIC_BROKER: {name: text for name, text in texts.items() if text}}
    ).served_listeners


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("127.0.0.1:9092", ("127.0.0.1", 9092)),
        ("[::1]:0", ("::1", 0)),
        ("PLAINTEXT://host.example:1", ("host.example", 1)),
        (":9092", ("", 9092)),
        ("[fe80::1%eth0]:9", ("fe80::1%eth0", 9)),
    ],
)
def test_a_listener_address_is_parsed_as_host_and_port_with_ipv6_in_brackets(
    text: str, parsed: tuple[str, int]
) -> None:
    assert address(text) == parsed


@pytest.mark.parametrize(
    "text",
    ["::1:9092", "host", "host:", "host:x", "host:65536", "", "[::1]", "a:1:2", "two words:1", "host\t:1", "h\0:1"],
)
def test_an_invalid_listener_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="HOST:PORT"):
        address(text)


def test_the_prefix_of_a_listener_address_is_its_name_and_gives_its_protocol() -> None:
    found = listeners("a:1", "SASL_PLAINTEXT://b:2", "inside://[::1]:3", listener_security_protocol_map=MAP)
    assert [(one.name, one.host, one.port, one.protocol) for one in found] == [
        ("PLAINTEXT", "a", 1, "PLAINTEXT"),
        ("SASL_PLAINTEXT", "b", 2, "SASL_PLAINTEXT"),
        ("INSIDE", "::1", 3, "SASL_PLAINTEXT"),
    ]
    assert [one.asks_for_login for one in found] == [False, True, True]


MAP = "PLAINTEXT:PLAINTEXT,Inside:sasl_plaintext,SASL_PLAINTEXT:SASL_PLAINTEXT"


def test_unnamed_listener_addresses_use_the_configured_security_protocol() -> None:
    assert [one.name for one in listeners("a:1", "a:2")] == ["PLAINTEXT", "PLAINTEXT"]
    found = listeners("a:1", "PLAINTEXT://a:2", "a:3", security_protocol="SASL_PLAINTEXT")
    assert [one.protocol for one in found] == ["SASL_PLAINTEXT", "PLAINTEXT", "SASL_PLAINTEXT"]


def test_a_setting_with_a_listener_prefix_does_not_apply_to_other_listeners() -> None:
    own = {"listener.name.inside.sasl.enabled.mechanisms": "PLAIN"}
    inside, other = BrokerSettings.of(
        {
            Source.STATIC_BROKER: own
            | {
                "listeners": "INSIDE://a:1,SASL_PLAINTEXT://a:2",
                "listener.security.protocol.map": MAP,
                "connections.max.reauth.ms": "7000",
            }
        }
    ).served_listeners
    assert inside.options.sasl_enabled_mechanisms == ("PLAIN",)
    assert other.options.sasl_enabled_mechanisms == ("SCRAM-SHA-256", "SCRAM-SHA-512")
    assert inside.options.connections_max_reauth_ms == other.options.connections_max_reauth_ms == 7000


@pytest.mark.parametrize(
    ("advertised", "reported"),
    [
        ("", [None, None]),
        ("SASL_PLAINTEXT://x:12,PLAINTEXT://y:11", [("y", 11), ("x", 12)]),
        ("SASL_PLAINTEXT://x:12", [None, ("x", 12)]),
        ("y:11,x:12", [("y", 11), ("x", 12)]),
        ("y:11", [("y", 11), ("y", 11)]),
    ],
)
def test_advertised_listeners_give_each_listener_its_address(
    advertised: str, reported: list[tuple[str, int] | None]
) -> None:
    found = listeners("a:1", "SASL_PLAINTEXT://a:2", advertised=advertised)
    assert [one.advertised for one in found] == reported


@pytest.mark.parametrize(
    ("texts", "reason", "hint"),
    [
        ({"listeners": "INSIDE://a:1"}, "no security protocol is defined for listener INSIDE", "add INSIDE:PLAINTEXT"),
        (
            {"listeners": "PLAINTEXT://a:1", "advertised.listeners": "SASL_PLAINTEXT://b:1"},
            "names SASL_PLAINTEXT, which is no listener",
            "",
        ),
        (
            {"listeners": "PLAINTEXT://a:1,b:2", "advertised.listeners": "PLAINTEXT://b:1,c:2"},
            "names some listeners and not others",
            "",
        ),
        ({"listener.security.protocol.map": "A:TLS"}, "'A:TLS' is not NAME:PROTOCOL", ""),
        ({"listener.name.other.sasl.enabled.mechanisms": "PLAIN"}, "for a listener that there is not", "PLAINTEXT"),
        ({"listener.name.plaintext.num.partitions": "1"}, "cannot be set for one listener", "docs/settings.md"),
        (
            {"listener.name.plaintext.sasl.enabled.mechanism": "PLAIN"},
            "cannot be set for one listener",
            "did you mean listener.name.plaintext.sasl.enabled.mechanisms?",
        ),
        (
            {"listeners": "SASL_PLAINTEXT://a:1", "sasl.enabled.mechanisms": "GSSAPI"},
            "listener SASL_PLAINTEXT has the mechanism GSSAPI",
            "some of PLAIN",
        ),
        ({"listeners": "SASL_PLAINTEXT://a:1", "sasl.enabled.mechanisms": ""}, "has no mechanism to log in by", "some"),
        ({"listeners": "SSL://a:1"}, "listener SSL speaks TLS and has no certificate", "--tls-cert FILE"),
        (
            {"listeners": "SSL://a:1", "ssl.keystore.location": "k", "ssl.client.auth": "required"},
            "asks for client certificates and trusts nobody",
            "--tls-client-ca FILE",
        ),
    ],
)
def test_contradictory_listener_settings_are_refused_with_a_hint(texts: dict[str, str], reason: str, hint: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        BrokerSettings.of({Source.STATIC_BROKER: texts})
    assert reason in str(refused.value)
    assert hint in refused.value.hint


def test_ssl_client_auth_applies_to_sasl_ssl_only_with_the_listener_prefix() -> None:
    texts = {"listeners": "SSL://a:1,SASL_SSL://a:2", "ssl.keystore.location": "k", "ssl.truststore.location": "t"}
    texts["ssl.client.auth"] = "required"
    own = {"listener.name.sasl_ssl.ssl.client.auth": "requested"}
    for more, expected in (({}, ["required", "none"]), (own, ["required", "requested"])):
        found = BrokerSettings.of({Source.STATIC_BROKER: texts | more}).served_listeners
        assert [one.options.ssl_client_auth for one in found] == expected
        assert all(one.asks_who_connects for one in found)


def test_alternative_names_of_tls_files_are_accepted_per_listener() -> None:
    texts = {"listeners": "SSL://a:1", "listener.name.ssl.ssl.certificate.location": "k"}
    (found,) = BrokerSettings.of({Source.STATIC_BROKER: texts}).served_listeners
    assert found.options.ssl_keystore_location == "k"


def test_unsupported_sasl_mechanisms_are_accepted_if_no_listener_uses_sasl() -> None:
    assert listeners("a:1", sasl_enabled_mechanisms="GSSAPI")


def test_a_listeners_own_setting_survives_a_change_of_other_settings() -> None:
    own = {"listener.name.sasl_plaintext.connections.max.reauth.ms": "7"}
    made = BrokerSettings(listeners=("SASL_PLAINTEXT://a:1",), listener_overrides=own)
    read = BrokerSettings.of({Source.STATIC_BROKER: {"listeners": "SASL_PLAINTEXT://a:1", **own}})
    for settings in (made, read):
        changed = settings.with_layer(Source.DYNAMIC_BROKER, {"max.connections": "20"})
        assert changed.served_listeners[0].options.connections_max_reauth_ms == 7
