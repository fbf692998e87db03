"""Certificates as files and as PEM texts, and mutual TLS, against a server with certificates made for the test."""

import asyncio
import ssl
from collections import Counter

import pytest
import trustme
from fencepost.client.config_names import settings_from
from fencepost.client.errors import AuthenticationError, BrokerUnreachableError, InvalidConfigurationError
from fencepost.client.net.environment import SYSTEM
from fencepost.client.net.opening import open_connection
from fencepost.client.settings import AdminSettings, producer_settings
from fencepost.effects.tls import pem
from scripted_server import ScriptedServer


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture(scope="module")
def client(authority):
    return authority.issue_cert("alice@example.com", common_name="alice")


def texts(authority, client=None):
    """Return the keywords for TLS with PEM texts, with a client's certificate if one is given."""
    found = {"security_protocol": "SSL", "ssl_ca_pem": authority.cert_pem.bytes().decode()}
    if client is not None:
        found["ssl_certificate_pem"] = b"".join(each.bytes() for each in client.cert_chain_pems).decode()
        found["ssl_key_pem"] = client.private_key_pem.bytes().decode()
    return found


def subject_seen(authority, **keywords):
    """Connect to a server that demands a certificate. Returns the name in the certificate that it gets."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED

    async def main():
        server = ScriptedServer(SYSTEM.net)
        port = await server.listen(0, tls=context)
        settings = producer_settings(f"127.0.0.1:{port}", connect_timeout_ms=5_000, **keywords)
        try:
            connection = await open_connection(("127.0.0.1", port), settings, SYSTEM, settings.security.tls_context())
            shown = server.lines[0].transport.get_extra_info("ssl_object").getpeercert()
            connection.close()
        finally:
            server.close()
            await asyncio.sleep(0.05)
        return dict(pair for part in shown["subject"] for pair in part)["commonName"]

    return asyncio.run(main())


def test_a_client_authenticates_with_a_certificate_given_as_text(authority, client):
    assert subject_seen(authority, **texts(authority, client)) == "alice"
    whole = texts(authority, client)
    whole["ssl_certificate_pem"] = client.private_key_and_cert_chain_pem.bytes().decode()
    del whole["ssl_key_pem"]
    assert subject_seen(authority, **whole) == "alice"


def test_a_client_authenticates_with_a_certificate_from_files(authority, client, tmp_path):
    names = {"ssl_cafile": authority.cert_pem, "ssl_certfile": client.cert_chain_pems[0]}
    names["ssl_keyfile"] = client.private_key_pem
    for name, content in names.items():
        (tmp_path / name).write_bytes(content.bytes())
    files = {name: str(tmp_path / name) for name in names}
    assert subject_seen(authority, security_protocol="SSL", **files) == "alice"


def test_a_key_with_a_password_is_decrypted_and_nobody_is_asked_for_one(authority, client):
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
        load_pem_private_key,
    )

    key = load_pem_private_key(client.private_key_pem.bytes(), None)
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"hush-hush")).decode()
    given = {**texts(authority, client), "ssl_key_pem": locked}
    assert subject_seen(authority, **given, ssl_password="hush-hush") == "alice"
    for password in ("wrong-hush", None):
        settings = producer_settings("h", **given, ssl_password=password)
        with pytest.raises(InvalidConfigurationError, match="TLS cannot be set up") as caught:
            settings.security.tls_context()
        assert "hush" not in str(caught.value) + caught.value.hint


def test_a_client_without_a_trusted_certificate_is_refused(authority):
    stranger = trustme.CA()
    for keywords in (texts(authority), texts(authority, stranger.issue_cert("mallory@example.com"))):
        # TLS 1.3 tells a client after its handshake; what it has sent until then may reset the connection first.
        with pytest.raises((AuthenticationError, BrokerUnreachableError)) as caught:
            subject_seen(authority, **keywords)
        assert "set ssl_certfile and ssl_keyfile" in caught.value.hint


@pytest.mark.parametrize("in_memory", [True, False])
def test_no_file_with_the_private_key_is_left_after_loading_it(authority, client, monkeypatch, tmp_path, in_memory):
    monkeypatch.setattr(pem.tempfile, "tempdir", str(tmp_path))
    if not in_memory:
        monkeypatch.delattr(pem.os, "memfd_create")
    elif not hasattr(pem.os, "memfd_create"):
        pytest.skip("the system has no files in memory")
    modes = Counter()
    mkstemp = pem.tempfile.mkstemp

    def watched(*arguments, **keywords):
        fd, path = mkstemp(*arguments, **keywords)
        modes[pem.os.stat(path).st_mode & 0o777] += 1
        return fd, path

    monkeypatch.setattr(pem.tempfile, "mkstemp", watched)
    assert producer_settings("h", **texts(authority, client)).security.tls_context() is not None
    with pytest.raises(InvalidConfigurationError):
        producer_settings("h", **texts(authority, client) | {"ssl_key_pem": "-----BEGIN x"}).security.tls_context()
    assert modes == ({} if in_memory else {0o600: 2})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("keywords", "what"),
    [
        ({"ssl_ca_pem": "/etc/ca.pem"}, "ssl_ca_pem is not a text in PEM format"),
        ({"ssl_key_pem": "hush"}, "ssl_key_pem is not a text in PEM format"),
        ({"ssl_ca_pem": "-----BEGIN x", "ssl_cafile": "f"}, "ssl_cafile and ssl_ca_pem are both set"),
        ({"ssl_certificate_pem": "-----BEGIN x", "ssl_certfile": "f"}, "are both set"),
        ({"ssl_key_pem": "-----BEGIN x", "ssl_keyfile": "f"}, "are both set"),
        ({"ssl_key_pem": "-----BEGIN x"}, "but not ssl_certificate_pem"),
        ({"ssl_keyfile": "f", "ssl_certificate_pem": "-----BEGIN x"}, "but not ssl_certfile"),
    ],
)
def test_contradictory_or_non_pem_certificate_settings_are_refused_with_a_hint(keywords, what):
    with pytest.raises(InvalidConfigurationError, match=what) as caught:
        producer_settings("h", security_protocol="SSL", **keywords)
    assert caught.value.hint
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    "keywords",
    [
        {"ssl_cafile": "/none/there.pem"},
        {"ssl_certfile": "/none/there.pem"},
        {"ssl_ca_pem": "-----BEGIN CERTIFICATE-----\nhush\n-----END CERTIFICATE-----\n"},
        {"ssl_certificate_pem": "-----BEGIN CERTIFICATE-----\nhush\n-----END CERTIFICATE-----\n"},
    ],
)
def test_an_unreadable_certificate_file_is_an_error_with_a_hint(keywords):
    with pytest.raises(InvalidConfigurationError, match="TLS cannot be set up") as caught:
        producer_settings("h", security_protocol="SSL", **keywords).security.tls_context()
    assert "ssl_cafile" in caught.value.hint
    assert "hush" not in str(caught.value)


def test_certificate_settings_by_other_clients_names_have_the_same_effect(authority, client):
    wanted = producer_settings("h", **texts(authority, client)).security
    given = texts(authority, client)
    ca, certificate, key = given["ssl_ca_pem"], given["ssl_certificate_pem"], given["ssl_key_pem"]
    for config in (
        {"ssl.ca.pem": ca, "ssl.certificate.pem": certificate, "ssl.key.pem": key},
        {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": ca,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": certificate,
            "ssl.keystore.key": key,
        },
    ):
        config |= {"bootstrap.servers": "h", "security.protocol": "ssl"}
        assert settings_from(AdminSettings, config).security == wanted
    files = {"ssl.truststore.location": "ca", "ssl.keystore.location": "both", "security.protocol": "SSL"}
    security = settings_from(AdminSettings, {"bootstrap.servers": "h", **files}).security
    assert (security.ca_file, security.certificate_file) == ("ca", "both")
    with pytest.raises(InvalidConfigurationError, match="JKS"):
        settings_from(AdminSettings, {"bootstrap.servers": "h", "ssl.truststore.type": "JKS"})


def test_the_repr_of_settings_shows_no_private_key_or_key_password(authority, client):
    settings = producer_settings("h", **texts(authority, client), ssl_password="hush")
    shown = repr(settings)
    assert "BEGIN" not in shown
    assert "hush" not in shown
