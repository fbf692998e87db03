"""Every library logs in by every mechanism it has, over TLS and without; and hears it when it is refused."""

import time
from functools import partial

import pytest
from certificates import Authority, serving
from confluent_kafka import Producer
from library_logins import LIBRARIES, Refused, Way, java, java_settings
from login_client import add_users
from served_broker import ServedBroker
from signed_tokens import AUDIENCE, ISSUER, jwk, key_set, token

PASSWORDS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
LISTENERS = ("SASL_PLAINTEXT", "SASL_SSL", "SSL")
BY_TOKEN = ("confluent-kafka", "kafka-python", "aiokafka")


class World:
    """A broker with every listener, and the certificates that go with it."""

    def __init__(self, directory):
        self.authority = Authority(directory)
        self.stranger = Authority(directory, "stranger")
        keys = directory / "keys.json"
        keys.write_bytes(key_set(jwk("rsa-1")))
        self.broker = ServedBroker(
            listeners=tuple(f"{name}://127.0.0.1:0" for name in LISTENERS),
            sasl_enabled_mechanisms=(*PASSWORDS, "OAUTHBEARER"),
            sasl_oauthbearer_jwks_endpoint_url=keys.as_uri(),
            sasl_oauthbearer_expected_issuer=ISSUER,
            sasl_oauthbearer_expected_audience=(AUDIENCE,),
            ssl_client_auth="required",
            ssl_truststore_location=self.authority.file,
            group_initial_rebalance_delay_ms=0,
            **serving(self.authority.of_broker()),
        )

    def bootstrap(self, protocol):
        return f"127.0.0.1:{self.broker.broker.addresses[LISTENERS.index(protocol)][1]}"

    def way(self, protocol, mechanism="", **more):
        return Way(protocol, mechanism, authority=self.authority.file)._replace(**more)

    def users(self):
        """Return the users of all open connections."""
        return self.broker.inside(lambda inner: {str(one.session.principal) for one in inner.server.connections})


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    world = World(tmp_path_factory.mktemp("logins"))
    with world.broker:
        world.broker.inside(add_users)
        yield world


def signed():
    now = int(time.time())
    return token("rsa-1", {"iat": now - 1, "exp": now + 600, "sub": "carol"})


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("mechanism", PASSWORDS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_clients_of_each_library_produce_and_consume_with_a_password(world, name, library, mechanism, protocol):
    way = world.way(protocol, mechanism)
    assert LIBRARIES[library](world.bootstrap(protocol), way, name, b"value") == b"value"
    assert world.users() <= {"User:alice", "User:ANONYMOUS"}  # of connections still open, some without a login yet


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("library", BY_TOKEN)
def test_clients_of_each_library_produce_and_consume_with_an_oauth_token(world, name, library, protocol):
    way = world.way(protocol, "OAUTHBEARER", token=signed)
    assert LIBRARIES[library](world.bootstrap(protocol), way, name, b"value") == b"value"


@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
def test_clients_of_each_library_produce_and_consume_with_a_certificate(world, name, library):
    way = world.way("SSL", certificate=world.authority.of_client())
    assert LIBRARIES[library](world.bootstrap("SSL"), way, name, b"value") == b"value"


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("mechanism", PASSWORDS)
def test_a_java_client_sends_and_reads_by_a_password(world, java_or_skip, name, mechanism, protocol):
    way = world.way(protocol, mechanism)
    assert java(java_or_skip, world.bootstrap(protocol), way, name, b"value") == b"value"


@pytest.mark.slow
def test_a_java_client_sends_and_reads_by_a_certificate(world, java_or_skip, name):
    way = world.way("SSL", certificate=world.authority.of_client())
    assert java(java_or_skip, world.bootstrap("SSL"), way, name, b"value") == b"value"


@pytest.fixture
def java_or_skip(request):
    return request.getfixturevalue("java")


def mistakes():
    """Yield (mistake, library) for `parametrize`: each mistake with one library, the other pairs in long runs."""
    for number, wrong in enumerate(["password", "user", "authority", "certificate", "expired certificate"]):
        for place, library in enumerate([*LIBRARIES, "java"]):
            one = place == number % len(LIBRARIES)  # none by Java, which takes 20 s to give up
            yield pytest.param(wrong, library, id=f"{wrong}-{library}", marks=[] if one else pytest.mark.long)


@pytest.mark.slow
@pytest.mark.parametrize(("wrong", "library"), list(mistakes()))
def test_a_refused_login_raises_an_error_and_sends_no_records(world, request, name, library, wrong):
    ways = {
        "password": lambda: world.way("SASL_SSL", "SCRAM-SHA-256", password="wrong"),
        "user": lambda: world.way("SASL_SSL", "SCRAM-SHA-512", user="nobody"),
        "authority": lambda: world.way("SASL_SSL", "PLAIN", authority=world.stranger.file),
        "certificate": lambda: world.way("SSL", certificate=world.stranger.of_client("other")),
        "expired certificate": lambda: world.way("SSL", certificate=world.authority.of_client("expired", expired=True)),
    }
    way = ways[wrong]()
    bootstrap = world.bootstrap(way.protocol)
    attempt = LIBRARIES.get(library) or partial(java, request.getfixturevalue("java"))
    with pytest.raises(Refused):
        attempt(bootstrap, way, name, b"value")
    assert world.broker.inside(lambda inner: name not in inner.topics.by_name)


@pytest.mark.slow
@pytest.mark.parametrize("library", ["confluent-kafka", "java"])
def test_a_client_logs_in_again_before_its_session_expires_and_loses_no_record(request, name, library):
    settings = {"connections_max_reauth_ms": 2_000, "sasl_enabled_mechanisms": ("SCRAM-SHA-256",)}
    broker = ServedBroker(listeners=("SASL_PLAINTEXT://127.0.0.1:0",), **settings)
    with broker:
        broker.inside(add_users)
        bootstrap = f"127.0.0.1:{broker.port}"
        way = Way("SASL_PLAINTEXT", "SCRAM-SHA-256")
        send = sender(library, request, bootstrap, way, name)
        began, sent = time.monotonic(), 0

        def renewals():
            """Return the number of logins over connections that had one before."""
            return broker.inside(lambda inner: inner.metrics.logins - inner.metrics.accepted_connections)

        while renewals() < 2:
            send(f"{sent}")
            sent += 1
            time.sleep(0.05)
            assert time.monotonic() < began + 60
        send(None)
        assert broker.inside(lambda inner: inner.topics.by_name[name].partitions[0].log.end_offset) >= sent
        assert broker.broker.metrics.failed_logins == 0


def sender(library, request, bootstrap, way, topic):
    """Return a function that sends a value as a record and raises if it was not acknowledged; for None it ends the
    client.
    """
    if library == "java":
        settings = java_settings(way)
        producer = request.getfixturevalue("java").producer(bootstrap, f"{topic}-id", **settings)
        producer.do("init")

        def send(value):
            if value is None:
                producer.do("close")
                return
            producer.do("begin")
            producer.send(topic, value)
            producer.do("commit")

        return send
    settings = {"bootstrap.servers": bootstrap, "security.protocol": way.protocol, "sasl.mechanism": way.mechanism}
    client = Producer(settings | {"sasl.username": way.user, "sasl.password": way.password, "linger.ms": 0})

    def send_and_wait(value):
        if value is not None:
            client.produce(topic, value)
        assert client.flush(20) == 0

    return send_and_wait
