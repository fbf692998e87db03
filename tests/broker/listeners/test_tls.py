"""Listeners with TLS on real sockets: who is let in under which name, what is cut, and how certificates change."""

import asyncio
import contextlib
import os
import shutil
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from certificates import Authority, serving
from eventually import wait_until
from fencepost.broker import broker as broker_module
from fencepost.broker.config.options import InvalidOption
from fencepost.broker.config.settings import Source
from fencepost.effects.net import SystemNet
from fencepost.effects.tls import BadTlsFiles
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.cluster import ApiVersionsRequest, MetadataRequest
from login_client import add_users, log_in
from produce_requests import batch, bytes_of, create, fetch, fetched, produce
from served_broker import ServedBroker
from wire_client import Closed, WireClient

SUBJECT = "User:CN=alice,OU=unit,O=org"
NO_TOPICS = MetadataRequest(topics=[])


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def stranger(authority):
    return Authority(authority.directory, "stranger")


@pytest.fixture(scope="module")
def broker(authority):
    listeners = ("SSL://127.0.0.1:0", "SASL_SSL://127.0.0.1:0", "PLAINTEXT://127.0.0.1:0")
    client_auth = {"ssl_client_auth": "required", "ssl_truststore_location": authority.file}
    with ServedBroker(listeners=listeners, **serving(authority.of_broker(), **client_auth)) as broker:
        broker.inside(add_users)
        yield broker


def port(broker, number=0):
    return broker.broker.addresses[number][1]


def connect(broker, context, number=0, **more):
    return WireClient("127.0.0.1", port(broker, number), tls=context, **more)


def principals(broker):
    return broker.inside(lambda inner: {str(one.session.principal) for one in inner.server.connections})


def is_served(client):
    return client.call(NO_TOPICS, 9).brokers[0].port


# ---- which clients are let in ------------------------------------------------------------------------------------


def test_the_principal_is_the_subject_of_the_client_certificate(broker, authority):
    with connect(broker, authority.trusting(authority.of_client())) as client:
        assert is_served(client) == port(broker)
        assert principals(broker) == {SUBJECT}


def test_on_sasl_ssl_the_login_gives_the_principal_not_the_certificate(broker, authority):
    with connect(broker, authority.trusting(), 1) as client:
        client.send(NO_TOPICS, 9)
        assert client.is_closed()
    with connect(broker, authority.trusting(), 1) as client:
        assert log_in(client).error_code == 0
        assert is_served(client) == port(broker, 1)
        assert principals(broker) == {"User:alice"}


@pytest.mark.parametrize("shown", ["nothing", "of another authority", "an expired one"])
def test_a_client_without_a_trusted_certificate_is_not_served(broker, authority, stranger, shown):
    certificate = {
        "nothing": lambda: None,
        "of another authority": lambda: stranger.of_client("stranger-client"),
        "an expired one": lambda: authority.of_client("expired", expired=True),
    }[shown]()
    before = broker.inside(lambda inner: inner.metrics.failed_handshakes)
    # TLS 1.3 tells a client after its handshake: it reads the alert, the end of the connection, or its reset.
    with pytest.raises((OSError, Closed)), connect(broker, authority.trusting(certificate)) as client:
        client.call(NO_TOPICS, 9)
    wait_until(lambda: broker.inside(lambda inner: inner.metrics.failed_handshakes) == before + 1)
    assert not broker.inside(lambda inner: inner.server.handshakes)


def test_with_ssl_client_auth_requested_a_client_without_certificate_is_anonymous(authority):
    settings = {"ssl_client_auth": "requested", "ssl_truststore_location": authority.file}
    with ServedBroker(listeners=("SSL://127.0.0.1:0",), **serving(authority.of_broker(), **settings)) as broker:
        with connect(broker, authority.trusting()) as client:
            assert is_served(client)
            assert principals(broker) == {"User:ANONYMOUS"}
        with connect(broker, authority.trusting(authority.of_client())) as client:
            assert is_served(client)
            assert SUBJECT in principals(broker)


def test_a_tls_client_that_connected_before_the_broker_listened_is_served(authority, monkeypatch):
    """As at a broker that takes over from an owner which hands its journal over."""
    net = SystemNet()
    asyncio.run(net.reserve("127.0.0.1", 0))
    [[[reserved]]] = net._reserved.values()
    number = reserved.getsockname()[1]
    monkeypatch.setattr(broker_module, "SystemNet", lambda: net)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(WireClient, "127.0.0.1", number, tls=authority.trusting())
        served = ServedBroker(listeners=("SSL://127.0.0.1:0",), **serving(authority.of_broker()))
        with served as broker, waiting.result(30) as client:
            assert is_served(client) == port(broker) == number


@pytest.mark.slow
def test_max_connections_per_principal_applies_to_a_certificates_subject(authority):
    settings = {"ssl_client_auth": "required", "ssl_truststore_location": authority.file}
    limited = serving(authority.of_broker(), **settings) | {"max_connections_per_principal": 1}
    with ServedBroker(listeners=("SSL://127.0.0.1:0",), **limited) as broker:
        own = authority.trusting(authority.of_client())
        with connect(broker, own) as client:
            assert is_served(client)

            def ask_on_another() -> None:
                with connect(broker, own) as second:
                    second.call(NO_TOPICS, 9)

            # In a thread of its own: OpenSSL's queue of errors is the thread's, and CPython 3.14 with OpenSSL 3.6 takes
            # what the broken connection left there for an error of the next one that is read from.
            with ThreadPoolExecutor(1) as thread, pytest.raises((OSError, Closed)):
                thread.submit(ask_on_another).result()
            assert is_served(client)
            assert broker.inside(lambda inner: inner.metrics.refused_connections) == 1


@pytest.mark.slow
def test_mapping_rules_turn_a_certificate_subject_into_a_user_name_or_refuse_it(authority):
    settings = {
        "ssl_client_auth": "required",
        "ssl_truststore_location": authority.file,
        "ssl_principal_mapping_rules": "RULE:^CN=(al[a-z]*),.*$/$1/U",
    }
    with ServedBroker(listeners=("SSL://127.0.0.1:0",), **serving(authority.of_broker(), **settings)) as broker:
        with connect(broker, authority.trusting(authority.of_client())) as client:
            assert is_served(client)
            assert principals(broker) == {"User:ALICE"}
        bob = authority.trusting(authority.of_client("bob", user="bob"))
        with connect(broker, bob) as client, contextlib.suppress(OSError):  # it may be closed already
            client.send(NO_TOPICS, 9)
            assert client.is_closed()


def test_a_client_rejects_an_untrusted_or_expired_broker_certificate(broker, authority, stranger):
    with pytest.raises(ssl.SSLCertVerificationError):
        connect(broker, stranger.trusting(), 1)
    expired = serving(authority.of_broker("expired-broker", expired=True))
    broker_of = ServedBroker(listeners=("SSL://127.0.0.1:0",), **expired)
    with broker_of as other, pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        connect(other, authority.trusting())


# ---- the protocol ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_tls_versions_below_1_2_are_refused(broker, authority, version):
    context = authority.trusting()
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = version
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises(OSError):
        connect(broker, context, 1)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_1_2_and_1_3_are_served_without_compression(broker, authority, version):
    context = authority.trusting()
    context.minimum_version = context.maximum_version = version
    with connect(broker, context, 1) as client:
        assert client.socket.compression() is None
        assert log_in(client).error_code == 0


@pytest.mark.slow
def test_only_the_configured_tls_versions_are_served(authority):
    settings = serving(authority.of_broker(), ssl_enabled_protocols=("TLSv1.3",))
    context = authority.trusting()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with ServedBroker(listeners=("SSL://127.0.0.1:0",), **settings) as broker, pytest.raises(OSError):
        connect(broker, context)


def test_only_the_configured_cipher_suites_are_accepted(authority):
    suites = ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256")
    settings = serving(authority.of_broker(), ssl_cipher_suites=suites)
    with ServedBroker(listeners=("SSL://127.0.0.1:0",), **settings) as broker:
        with connect(broker, authority.trusting()) as client:
            assert is_served(client)
            assert (client.socket.cipher()[0][-17:], client.socket.version()) == ("AES128-GCM-SHA256", "TLSv1.2")
        other = authority.trusting()
        other.maximum_version = ssl.TLSVersion.TLSv1_2
        other.set_ciphers("ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-AES256-GCM-SHA384")
        with pytest.raises(OSError):
            connect(broker, other)


def test_a_plaintext_client_on_a_tls_port_is_disconnected_and_others_are_served(broker, authority):
    with WireClient("127.0.0.1", port(broker, 1)) as plain:
        plain.send(ApiVersionsRequest(), 0)
        with contextlib.suppress(Closed):
            assert plain.receive_frame()[:1] == b"\x15", "an alert of TLS at most"
    with connect(broker, authority.trusting(), 1) as client:
        assert log_in(client).error_code == 0


@pytest.mark.slow
def test_large_answers_over_tls_arrive_complete_and_encrypted(broker, authority):
    """They are copied: sendfile would send them unencrypted."""
    values = [os.urandom(900_000) for _ in range(8)]
    with connect(broker, authority.trusting(authority.of_client())) as client:
        client.call(create("large"))
        for value in values:
            client.call(produce("large", batch(value=value)))
        uncopied = broker.inside(lambda inner: inner.metrics.bytes_uncopied)
        for offset, value in enumerate(values):
            assert value in bytes_of(fetched(client.call(fetch("large", offset, partition_max_bytes=3 << 20), 12)))
        assert broker.inside(lambda inner: inner.metrics.bytes_uncopied) == uncopied


# ---- certificates that change ------------------------------------------------------------------------------------


def serial(context, at):
    with (
        socket.create_connection(("127.0.0.1", at)) as one,
        context.wrap_socket(one, server_hostname="127.0.0.1") as tls,
    ):
        return tls.getpeercert()["serialNumber"]


def replaced(old, new):
    for one, other in zip(old, new, strict=True):
        shutil.copy(other, one + ".new")
        os.replace(one + ".new", one)


@pytest.fixture
def changing(authority, monkeypatch):
    monkeypatch.setattr("fencepost.broker.listeners.certificates.LOOK_S", 0.02)
    files = authority.of_broker("changing")
    with ServedBroker(listeners=("SSL://127.0.0.1:0",), **serving(files)) as broker:
        yield broker, files


def test_new_connections_get_a_changed_certificate_and_old_ones_continue(changing, authority):
    broker, files = changing
    context = authority.trusting()
    before = serial(context, broker.port)
    with connect(broker, context) as client:
        assert is_served(client)
        replaced(files, authority.of_broker("next"))
        wait_until(lambda: serial(context, broker.port) != before)
        assert is_served(client)


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["another key", "no certificate", "gone", "expired"])
def test_an_unusable_new_certificate_leaves_the_old_one_in_use(changing, authority, broken, caplog):
    broker, files = changing
    context = authority.trusting()
    before = serial(context, broker.port)
    other = authority.of_broker("other", expired=broken == "expired")
    if broken == "another key":
        shutil.copy(other[1], files[1])
    elif broken == "no certificate":
        with open(files[0], "w") as file:
            file.write("nothing")
    elif broken == "gone":
        os.remove(files[0])
    else:
        replaced(files, other)
    wait_until(lambda: "a new certificate cannot be used, the old one stays" in caplog.text)
    assert serial(context, broker.port) == before
    replaced(files, authority.of_broker("mended"))
    wait_until(lambda: serial(context, broker.port) != before)


def test_reload_certificates_loads_the_changed_certificate_files(authority):
    files = authority.of_broker("asked")
    context = authority.trusting()
    with ServedBroker(listeners=("SSL://127.0.0.1:0",), **serving(files)) as broker:
        before = serial(context, broker.port)
        replaced(files, authority.of_broker("next"))
        broker.inside(lambda inner: inner.listeners.reload_certificates())
        wait_until(lambda: serial(context, broker.port) != before)


@pytest.mark.slow
def test_no_connection_is_dropped_while_certificates_change_under_load(changing, authority):
    broker, files = changing
    context = authority.trusting()
    lost, calls, serials, done = [], [], set(), threading.Event()

    def load():
        try:
            with connect(broker, context) as client:
                while not done.is_set():
                    is_served(client)
                    calls.append(1)
        except Exception as error:
            lost.append(error)

    def come_and_go():
        while not done.is_set():
            try:
                serials.add(serial(context, broker.port))
            except Exception as error:
                lost.append(error)

    threads = [threading.Thread(target=work) for work in (load, load, come_and_go)]
    for thread in threads:
        thread.start()
    try:
        for number in range(8):
            known = len(serials)
            replaced(files, authority.of_broker(f"round-{number % 2}"))
            wait_until(lambda known=known: len(serials) > known or lost)
        wait_until(lambda: len(calls) > 100 or lost)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert not lost
    assert len(serials) >= 8
    assert len(calls) > 100


# ---- settings that are refused at the start ----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda one, other: serving((one[0], other[1])), "is not that of the certificate"),
        (lambda one, other: serving((one[1], one[1])), "no certificate in PEM"),
        (lambda one, other: serving((one[0], one[0])), "no certificate in PEM"),
        (lambda one, other: {"ssl_keystore_location": one[0]}, "no certificate with a key in PEM"),
        (lambda one, other: serving((one[0] + "x", one[1])), "no such file"),
        (
            lambda one, other: serving(one, ssl_client_auth="required", ssl_truststore_location=one[1]),
            "no certificate in PEM",
        ),
    ],
)
def test_unusable_certificate_files_are_refused_with_the_reason(authority, change, reason):
    one, other = authority.of_broker("one"), authority.of_broker("other-one")
    with pytest.raises(BadTlsFiles, match=reason), ServedBroker(listeners=("SSL://127.0.0.1:0",), **change(one, other)):
        pass


@pytest.mark.slow
def test_an_encrypted_key_needs_its_password_and_nobody_is_prompted(authority):
    from cryptography.hazmat.primitives import serialization as form

    certificate, key = authority.of_broker("encrypted")
    with open(key, "rb") as file:
        loaded = form.load_pem_private_key(file.read(), None)
    with open(key, "wb") as file:
        how = form.BestAvailableEncryption(b"secret")
        file.write(loaded.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, how))
    for password in ("", "wrong"):
        settings = serving((certificate, key), ssl_key_password=password)
        with pytest.raises(BadTlsFiles, match=r"ssl\.key\.password does not decrypt it"):
            ServedBroker(listeners=("SSL://127.0.0.1:0",), **settings).__enter__()
    settings = serving((certificate, key), ssl_key_password="secret")
    with ServedBroker(listeners=("SSL://127.0.0.1:0",), **settings) as broker:
        assert "secret" not in repr(broker.settings)
        with connect(broker, authority.trusting()) as client:
            assert is_served(client)


@pytest.mark.slow
def test_malformed_certificate_mapping_rules_are_refused(authority):
    settings = serving(authority.of_broker(), ssl_principal_mapping_rules="RULE:(/")
    with pytest.raises(InvalidOption, match="RULE:pattern/replacement"):
        ServedBroker(listeners=("SSL://127.0.0.1:0",), **settings).__enter__()


@pytest.mark.slow
def test_the_password_of_a_tls_key_is_never_shown():
    from fencepost.protocol.messages.configs import DescribeConfigsRequest

    with ServedBroker(ssl_key_password="open sesame") as broker, broker.connect() as client:
        resource = DescribeConfigsRequest.Resource(resource_type=4, resource_name="1", configuration_keys=None)
        described = client.call(DescribeConfigsRequest(resources=[resource], include_synonyms=True))
        assert "sesame" not in repr(described)
        (found,) = [one for one in described.results[0].configs if one.name == "ssl.key.password"]
        assert (found.value, found.is_sensitive, found.config_type) == (None, True, 9)
        assert described.results[0].error_code == ErrorCode.NONE


# ---- handshakes that do not end ----------------------------------------------------------------------------------


def hello(context):
    """Return the first bytes of an honest handshake."""
    out = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out, server_hostname="127.0.0.1").do_handshake()
    return out.read()


@pytest.mark.slow
def test_tls_handshakes_that_stall_are_closed_after_the_login_timeout(authority):
    given = hello(authority.trusting())
    settings = serving(authority.of_broker(), connection_login_timeout_ms=300)
    with ServedBroker(listeners=("SSL://127.0.0.1:0",), **settings) as broker:
        halves = []
        for length in (0, 1, 5, 100, len(given) - 1, len(given)):
            halves.append(socket.create_connection(("127.0.0.1", broker.port), timeout=10))
            halves[-1].sendall(given[:length])
        wait_until(lambda: not broker.inside(lambda inner: inner.server.handshakes))
        for half in halves:
            with contextlib.suppress(ConnectionError):
                while half.recv(65536):
                    pass
            half.close()
        assert broker.inside(lambda inner: inner.metrics.failed_handshakes) == len(halves)
        patient = {"connection.login.timeout.ms": "60000"}
        now = broker.settings.with_layer(Source.DYNAMIC_BROKER, patient)
        broker.inside(lambda inner: setattr(inner.live_settings, "now", now))
        with connect(broker, authority.trusting()) as client:
            assert is_served(client)
        wait_until(lambda: not broker.inside(lambda inner: inner.server.connections))
        assert not broker.inside(lambda inner: inner.server._by_host)


def test_many_stalled_tls_handshakes_do_not_block_other_clients(authority):
    settings = serving(authority.of_broker(), max_unauthenticated_connections_per_ip=10)
    with ServedBroker(listeners=("SSL://127.0.0.1:0",), **settings) as broker:
        crowd = [socket.create_connection(("127.0.0.1", broker.port)) for _ in range(50)]
        with connect(broker, authority.trusting()) as client:
            assert is_served(client)
            wait_until(lambda: len(broker.inside(lambda inner: inner.server.handshakes)) <= 10)
        for one in crowd:
            one.close()


def test_connections_in_a_tls_handshake_count_towards_max_connections(authority):
    settings = serving(authority.of_broker(), max_connections=3)
    with ServedBroker(listeners=("SSL://127.0.0.1:0",), **settings) as broker:
        crowd = [socket.create_connection(("127.0.0.1", broker.port)) for _ in range(3)]
        wait_until(lambda: len(broker.inside(lambda inner: inner.server.handshakes)) == 3)
        with pytest.raises(OSError):
            connect(broker, authority.trusting())
        crowd.pop().close()
        wait_until(lambda: len(broker.inside(lambda inner: inner.server.handshakes)) == 2)
        with connect(broker, authority.trusting()) as client:
            assert is_served(client)
        for one in crowd:
            one.close()


@pytest.mark.slow
def test_the_broker_stops_during_tls_handshakes(authority):
    with ServedBroker(listeners=("SSL://127.0.0.1:0",), **serving(authority.of_broker())) as broker:
        half = socket.create_connection(("127.0.0.1", broker.port), timeout=10)
        wait_until(lambda: broker.inside(lambda inner: inner.server.handshakes))
    with contextlib.suppress(ConnectionError):  # the connection is closed or reset
        assert half.recv(1) == b""
    half.close()
