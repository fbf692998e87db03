"""`fencepost serve` with logins, TLS and an authorizer; and what it refuses to leave open."""

import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from typing import Any

import pytest
from certificates import Authority
from click.testing import CliRunner
from eventually import wait_until
from fencepost.broker.config.configuration import broker_settings
from fencepost.cli import main
from fencepost.cli.output.failures import Failure
from fencepost.cli.serve.protection import check_protection, protection_lines, protection_settings
from fencepost.protocol.messages.cluster import MetadataRequest
from login_client import choose
from wire_client import WireClient

OPEN = "whoever reaches it from another machine may do everything"


def settings(*listen: str, **texts: str) -> Any:
    named = {name.replace("_", "."): text for name, text in texts.items()}
    return broker_settings({"listeners": ",".join(listen)} | named, {}, {})[0]


@pytest.mark.parametrize(
    ("listen", "texts", "reason"),
    [
        (("127.0.0.1:1", "[::1]:1", "localhost:1", "127.9.9.9:1"), {}, ""),
        (("0.0.0.0:1",), {}, OPEN),
        ((":1",), {}, OPEN),
        (("[::]:1",), {}, OPEN),
        (("127.0.0.1:1", "10.0.0.7:1"), {}, f"PLAINTEXT at 10.0.0.7:1: {OPEN}"),
        (("broker.example:1",), {}, OPEN),
        (("0.0.0.0:1",), {"allow_insecure_listeners": "true"}, ""),
        (("0.0.0.0:1",), {"security_protocol": "SASL_PLAINTEXT"}, ""),
        (
            ("0.0.0.0:1",),
            {"security_protocol": "SASL_PLAINTEXT", "sasl_enabled_mechanisms": "SCRAM-SHA-512,PLAIN"},
            "secrets of PLAIN cross the network unencrypted",
        ),
        (
            ("0.0.0.0:1",),
            {
                "security_protocol": "SASL_SSL",
                "sasl_enabled_mechanisms": "PLAIN",
                "ssl_keystore_location": "k",
            },
            "",
        ),
        (("0.0.0.0:1",), {"security_protocol": "SSL", "ssl_keystore_location": "k"}, OPEN),
        (
            ("0.0.0.0:1",),
            {
                "security_protocol": "SSL",
                "ssl_keystore_location": "k",
                "ssl_client_auth": "required",
                "ssl_truststore_location": "t",
            },
            "",
        ),
        (
            ("0.0.0.0:1",),
            {
                "security_protocol": "SSL",
                "ssl_keystore_location": "k",
                "ssl_client_auth": "requested",
                "ssl_truststore_location": "t",
            },
            OPEN,
        ),
        (("SASL_PLAINTEXT://0.0.0.0:1", "PLAINTEXT://0.0.0.0:2"), {}, f"PLAINTEXT at 0.0.0.0:2: {OPEN}"),
        (("SASL_PLAINTEXT://0.0.0.0:1", "PLAINTEXT://127.0.0.1:2"), {}, ""),
    ],
)
def test_serving_other_machines_without_logins_is_refused_with_a_hint(
    listen: Any, texts: dict[str, str], reason: str
) -> None:
    if not reason:
        check_protection(settings(*listen, **texts))
        return
    with pytest.raises(Failure) as refused:
        check_protection(settings(*listen, **texts))
    assert reason in str(refused.value)
    assert "--insecure" in refused.value.hint


def flags(**given: Any) -> dict[str, str]:
    every: dict[str, Any] = dict.fromkeys(("sasl", "tls_cert", "tls_key", "tls_client_ca"))
    return protection_settings(**(every | {"super_users": (), "insecure": False} | given))


def test_the_security_flags_of_serve_set_the_broker_settings_they_stand_for() -> None:
    assert flags() == {}
    found = flags(sasl="SCRAM-SHA-256", tls_cert="c", tls_key="k", super_users=("admin", "User:CN=a,O=b"))
    assert found == {
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "ssl.keystore.location": "c",
        "ssl.key.location": "k",
        "security.protocol": "SASL_SSL",
        "super.users": "User:admin;User:CN=a,O=b",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    }
    assert protection_lines(broker_settings(found, {}, {})[0]) == ["SASL_SSL (SASL_SSL): SCRAM-SHA-256"]
    found = flags(tls_cert="c", tls_client_ca="a")
    assert (found["security.protocol"], found["ssl.client.auth"]) == ("SSL", "required")
    assert protection_lines(broker_settings(found, {}, {})[0]) == ["SSL (SSL): client certificates required"]
    assert flags(sasl="PLAIN")["security.protocol"] == "SASL_PLAINTEXT"
    assert flags(insecure=True) == {"allow.insecure.listeners": "true"}


@pytest.mark.parametrize(
    ("arguments", "reason", "hint"),
    [
        (["--tls-key", "k"], "--tls-cert is missing", "--tls-cert FILE"),
        (["--tls-client-ca", "k"], "--tls-cert is missing", "--tls-cert FILE"),
        (["--tls-cert", ""], "--tls-cert is empty", "leave it out"),
        (["--super-user", "a;b"], "'a;b' is no name of a user", "--super-user admin"),
        (["--super-user", " "], "is no name of a user", "--super-user admin"),
        (["--sasl", "GSSAPI"], "the mechanism GSSAPI", "some of PLAIN"),
        (["--listen", "0.0.0.0:0"], OPEN, "say --insecure"),
        (["--tls-cert", "/none"], "/none: no such file or directory", "are PEM files"),
        (
            ["--tls-cert", "/none", "-X", "ssl.cipher.suites=HIGH"],
            "'HIGH' is no cipher suite",
            "openssl ciphers -s -stdname",
        ),
        (["--sasl", "OAUTHBEARER"], "nothing to verify tokens with", "set sasl.oauthbearer.jwks.endpoint.url"),
        (["--listen", "INSIDE://127.0.0.1:0"], "no security protocol is defined", "add INSIDE:PLAINTEXT"),
    ],
)
def test_serve_with_unusable_security_settings_exits_with_a_cause_and_a_hint(
    arguments: list[str], reason: str, hint: str
) -> None:
    result = CliRunner().invoke(main, ["serve", "--ephemeral", *arguments])
    assert result.exit_code == (1 if "/none" in arguments else 2)  # a file that cannot be read is not wrong usage
    cause, advice = result.stderr.strip().splitlines()[-2:]
    assert reason in cause
    assert hint in advice


@pytest.mark.slow
def test_serve_offers_logins_and_tls_and_reloads_certificates(tmp_path: Any) -> None:
    """A request before the login closes its connection; SIGHUP makes the broker read the changed certificates."""
    authority = Authority(tmp_path)
    certificate, key = authority.of_broker()
    arguments = ["--sasl", "SCRAM-SHA-256", "--tls-cert", certificate, "--tls-key", key, "--super-user", "admin"]
    arguments += ["--listen", "127.0.0.1:0", "--listen", "PLAINTEXT://127.0.0.1:0", "--ephemeral"]
    command = [sys.executable, "-m", "fencepost", "serve", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as serve:
        try:
            assert serve.stdout is not None
            expected = []
            for line in serve.stdout:
                expected.append(line.strip())
                if line.startswith("ready"):
                    break
            assert "listener   SASL_SSL (SASL_SSL): SCRAM-SHA-256" in expected
            with_login, plain = (int(each.rpartition(":")[2]) for each in expected[-1].split()[1:])
            context = authority.trusting()
            with WireClient("127.0.0.1", with_login, tls=context) as client:
                assert choose(client, "SCRAM-SHA-256").mechanisms == ["SCRAM-SHA-256"]
            for port, tls in ((with_login, context), (plain, None)):
                with WireClient("127.0.0.1", port, tls=tls) as client:
                    if tls is None:
                        assert client.call(MetadataRequest(topics=[]), 9).brokers[0].port == port
                    else:
                        client.send(MetadataRequest(topics=[]), 9)
                        assert client.is_closed()
            before = _serial(context, with_login)
            for new, old in zip(authority.of_broker("next"), (certificate, key), strict=True):
                shutil.copy(new, old + ".new")
                os.replace(old + ".new", old)
            serve.send_signal(signal.SIGHUP)
            wait_until(lambda: _serial(context, with_login) != before)
            serve.send_signal(signal.SIGTERM)
            assert serve.wait(30) == 0
        finally:
            serve.kill()


def _serial(context: ssl.SSLContext, port: int) -> object:
    plain = socket.create_connection(("127.0.0.1", port))
    with context.wrap_socket(plain, server_hostname="127.0.0.1") as tls:
        return (tls.getpeercert() or {})["serialNumber"]
