"""What a connection may do before its login, how the login ends, and what a session is after that."""

import struct

import pytest
from fencepost.broker.broker import Broker
from fencepost.broker.net.request_limits import SMALL_BYTES
from fencepost.broker.security.credentials import Mechanism, credential_from, credential_set, salted_password
from fencepost.broker.security.login import MAX_REQUESTS
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.cluster import ApiVersionsRequest, MetadataRequest
from fencepost.protocol.messages.security import SaslAuthenticateRequest
from login_client import add_users, asking, choose, log_in, plain, say
from produce_requests import answers, batch, create, idempotent, produce
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient

FAILED, ILLEGAL = ErrorCode.SASL_AUTHENTICATION_FAILED, ErrorCode.ILLEGAL_SASL_STATE
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
NO_TOPICS = MetadataRequest(topics=[])


@pytest.fixture
def broker():
    with SimulatedBroker(asking()) as broker:
        add_users(broker.broker)
        yield broker
        assert not broker.broker.metrics.failures


@pytest.fixture
def client(broker):
    return SimulatedClient(broker)


def principals(broker):
    return [str(one.session.principal) for one in broker.broker.server.connections]


# ---- before the login --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_", [NO_TOPICS, create("t"), produce("t", batch())], ids=lambda one: type(one).__name__
)
def test_a_request_before_the_login_closes_the_connection(broker, client, request_):
    client.send(request_)
    assert client.closed()
    assert client.line.received == b""
    assert not broker.broker.topics.by_name


def test_client_texts_cannot_inject_log_lines_or_terminal_escapes(broker, caplog):
    client = SimulatedClient(broker, "x\n2026-01-01 CRITICAL forged \x1b[2J")
    client.ask(ApiVersionsRequest())
    client.send(NO_TOPICS)
    assert client.closed()
    (line,) = [record.getMessage() for record in caplog.records if "before the login" in record.getMessage()]
    assert line.isprintable()
    assert "forged" in line


@pytest.mark.slow
@pytest.mark.parametrize("key", [0, 1, 3, 22, 24, 25, 26, 256, 0x1100, 0x1211, 20_000])
def test_a_fast_path_request_before_the_login_closes_the_connection(client, key):
    """The fast path of a request is found by the lower byte of its API key, so some keys here are of no API."""
    client.send_raw(struct.pack(">ihhih", 14, key, 9, 1, 0) + b"\0" * 4)
    assert client.closed()
    assert client.line.received == b""


def test_api_versions_is_answered_before_the_login(client):
    assert client.ask(ApiVersionsRequest()).api_keys
    assert client.ask(ApiVersionsRequest(), 0).api_keys
    assert log_in(client).error_code == 0
    assert client.ask(NO_TOPICS).brokers


def test_too_many_requests_before_the_login_close_the_connection(client):
    for _ in range(MAX_REQUESTS):
        client.ask(ApiVersionsRequest())
    client.send(ApiVersionsRequest())
    assert client.closed()


def test_requests_above_sasl_server_max_receive_size_are_accepted_only_after_a_login(broker, client):
    limit = broker.settings.sasl_server_max_receive_size
    client.send_raw(struct.pack(">i", limit + 1))
    assert client.closed()
    other = SimulatedClient(broker)
    assert log_in(other).error_code == 0
    other.ask(create("t"))
    assert answers(other.ask(produce("t", batch(value=b"v" * (limit + 1))), 7)) == [(0, 0)]


@pytest.mark.slow
@pytest.mark.parametrize("length", [2**31 - 1, 2**31, 2**32 - 1, 100 << 20, 0])
def test_a_frame_of_0_or_over_100_mb_before_the_login_closes_the_connection(client, length):
    choose(client, "PLAIN")
    client.send_raw(struct.pack(">I", length) + b"\0\x24\0\2")
    assert client.closed()


def test_a_connection_without_a_login_in_time_is_closed_and_others_stay(broker, client):
    silent, slow = SimulatedClient(broker), SimulatedClient(broker)
    choose(slow, "PLAIN")
    assert log_in(client).error_code == 0
    broker.wait(9)
    assert not silent.line.closed
    broker.wait(2)
    assert silent.line.closed
    assert slow.line.closed
    assert client.ask(NO_TOPICS).brokers
    assert broker.broker.metrics.closed_unauthenticated == 2


def test_many_clients_that_never_log_in_do_not_block_others():
    with SimulatedBroker(asking(max_unauthenticated_connections_per_ip=5)) as broker:
        add_users(broker.broker)
        crowd = [SimulatedClient(broker) for _ in range(20)]
        honest = SimulatedClient(broker)
        assert log_in(honest).error_code == 0
        crowd += [SimulatedClient(broker) for _ in range(20)]
        broker.wait(0.1)
        assert sum(not one.line.closed for one in crowd) == 5
        assert honest.ask(NO_TOPICS).brokers
        assert principals(broker).count("User:alice") == 1


def test_api_versions_after_a_sasl_handshake_closes_the_connection_unanswered(client):
    client.ask(ApiVersionsRequest())
    choose(client, "PLAIN")
    client.send(ApiVersionsRequest())
    assert client.closed()
    assert client.line.received == b""


# ---- the login ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_client_with_the_right_password_is_served_as_that_user(broker, client, mechanism):
    assert log_in(client, "bob", mechanism=mechanism).error_code == 0
    assert principals(broker) == ["User:bob"]
    assert client.ask(create("t")).topics[0].error_code == 0
    assert answers(client.ask(produce("t", idempotent(0)), 7)) == [(0, 0)]


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_unknown_users_and_wrong_passwords_get_the_same_answer_at_the_same_time(broker, mechanism):
    answered = {}
    for name in ("alice", "nobody"):
        client = SimulatedClient(broker)
        before = broker.loop.time()
        answered[name] = (log_in(client, name, "wrong", mechanism), round(broker.loop.time() - before, 2))
        assert client.closed()
    assert answered["alice"] == answered["nobody"]
    response, took_s = answered["alice"]
    assert response.error_code == FAILED
    assert took_s >= 0.1
    assert broker.broker.metrics.failed_logins == 2


@pytest.mark.slow
def test_no_request_is_served_while_a_login_fails_or_afterwards(client):
    choose(client, "PLAIN")
    client.send_together(SaslAuthenticateRequest(auth_bytes=plain("alice", "no")), (NO_TOPICS, 9))
    assert client.receive().error_code == FAILED
    assert client.closed()
    assert client.line.received == b""


@pytest.mark.slow
@pytest.mark.parametrize("is_right", [True, False])
def test_requests_behind_a_long_password_wait_until_it_is_checked(broker, client, is_right):
    """A large frame is read in steps, by other code than a small one."""
    password = "x" * 2 * SMALL_BYTES
    salted = salted_password(Mechanism.SHA_256, password.encode(), b"salt", 4096)
    credential = credential_from(Mechanism.SHA_256, salted, b"salt", 4096)
    broker.broker.security_log.commit([credential_set("carl", credential)])
    choose(client, "PLAIN")
    message = plain("carl", password if is_right else password + "x")
    client.send_together(SaslAuthenticateRequest(auth_bytes=message), (NO_TOPICS, 9), ApiVersionsRequest())
    if is_right:
        assert client.receive().error_code == 0
        assert client.receive().brokers
        assert client.receive().api_keys
    else:
        assert client.quiet(0.05)
        assert client.receive().error_code == FAILED
        assert client.closed()
        assert client.line.received == b""


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_requests_sent_behind_the_last_login_message_wait_for_the_login(client, mechanism):
    if mechanism == "PLAIN":
        choose(client, "PLAIN")
        client.send_together(SaslAuthenticateRequest(auth_bytes=plain("alice")), (NO_TOPICS, 9), (NO_TOPICS, 9))
    else:
        from scram_client import ScramClient

        choose(client, mechanism)
        scram = ScramClient("alice", "alice-pw")
        final = scram.final(say(client, scram.first()).auth_bytes)
        client.send_together(SaslAuthenticateRequest(auth_bytes=final), (NO_TOPICS, 9), (NO_TOPICS, 9))
    assert client.receive().error_code == 0
    assert client.receive().brokers
    assert client.receive().brokers


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mechanism", "version", "code"),
    [("GSSAPI", 1, 33), ("PLAIN", 0, 33), ("scram-sha-256", 1, 33), ("OAUTHBEARER", 1, 33)],
)
def test_a_mechanism_not_offered_is_answered_with_those_offered_and_a_disconnect(client, mechanism, version, code):
    response = choose(client, mechanism, version)
    assert (response.error_code, tuple(response.mechanisms)) == (code, MECHANISMS)
    assert client.closed()


def test_sasl_authenticate_without_a_handshake_gets_illegal_sasl_state(client):
    assert say(client, plain("alice")).error_code == ILLEGAL
    assert client.closed()


def test_a_client_that_disconnects_during_its_login_leaves_no_state(broker, client):
    for _ in range(3):
        one = SimulatedClient(broker)
        choose(one, "PLAIN")
        one.send(SaslAuthenticateRequest(auth_bytes=plain("alice", "no")))
        one.close()
    broker.wait(1)
    assert principals(broker) == ["User:ANONYMOUS"]
    assert log_in(client).error_code == 0


def test_a_listener_without_login_works_beside_one_with_login():
    listeners = ("SASL_PLAINTEXT://127.0.0.1:9093", "127.0.0.1:9092")
    with SimulatedBroker(asking(listeners=listeners)) as broker:
        client = SimulatedClient(broker)
        assert client.ask(NO_TOPICS).brokers
        response = choose(client, "PLAIN")
        assert (response.error_code, response.mechanisms) == (ILLEGAL, [])
        assert say(client, plain("alice")).error_code == ILLEGAL
        assert principals(broker) == ["User:ANONYMOUS"]
        (connection,) = broker.broker.server.connections
        assert connection._owner is broker.broker.server, "an ordinary connection, of no Authenticator"


def test_after_a_login_that_never_expires_requests_bypass_the_authenticator(broker, client):
    (connection,) = broker.broker.server.connections
    assert connection._owner is broker.broker.listeners.authenticator
    log_in(client)
    assert connection._owner is broker.broker.server


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_max_connections_per_principal_applies_to_each_user_separately(caplog, mechanism):
    """A session renewal does not count as another connection."""
    settings = asking(max_connections_per_principal=2, connections_max_reauth_ms=10_000)
    with SimulatedBroker(settings) as broker:
        add_users(broker.broker)
        first, second, third, other = (SimulatedClient(broker) for _ in range(4))
        for client in (first, second):
            assert log_in(client, mechanism=mechanism).error_code == 0
        third.ask(ApiVersionsRequest())
        with pytest.raises(ConnectionError):  # the connection is closed instead of the last answer
            log_in(third, mechanism=mechanism)
        assert third.line.closed
        assert broker.broker.metrics.refused_connections == 1
        assert "'alice' has 2 connections already (max.connections.per.principal)" in caplog.text
        assert log_in(other, "bob", mechanism=mechanism).error_code == 0
        assert log_in(first, mechanism=mechanism).error_code == 0  # a renewal does not count as a connection
        first.close()
        broker.wait(1)
        again = SimulatedClient(broker)
        assert log_in(again, mechanism=mechanism).error_code == 0
        assert sorted(principals(broker)) == ["User:alice", "User:alice", "User:bob"]


# ---- sessions that end -------------------------------------------------------------------------------------------


@pytest.fixture
def ending():
    with SimulatedBroker(asking(connections_max_reauth_ms=10_000)) as broker:
        add_users(broker.broker)
        yield broker
        assert not broker.broker.metrics.failures


def test_a_connection_with_an_expired_session_is_closed_at_its_next_request(ending):
    client = SimulatedClient(ending)
    assert log_in(client).session_lifetime_ms == 10_000
    ending.wait(9)
    assert client.ask(NO_TOPICS).brokers
    ending.wait(2)
    assert not client.line.closed
    client.send(NO_TOPICS)
    assert client.closed()
    assert client.line.received == b""
    assert ending.broker.metrics.closed_expired == 1


@pytest.mark.slow
@pytest.mark.parametrize("waits_s", [5, 15])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_login_session_can_be_renewed_before_and_after_its_expiry(ending, waits_s, mechanism):
    client = SimulatedClient(ending)
    log_in(client, mechanism=mechanism)
    for _ in range(3):
        ending.wait(waits_s)
        assert log_in(client, mechanism=mechanism).session_lifetime_ms == 10_000
        assert client.ask(NO_TOPICS).brokers
    assert principals(ending) == ["User:alice"]


def test_renewing_a_login_as_another_user_is_refused_and_closes_the_connection(ending):
    client = SimulatedClient(ending)
    log_in(client)
    response = log_in(client, "bob")
    assert response.error_code == FAILED
    assert "Cannot change principals" in response.error_message
    assert client.closed()


def test_no_request_is_served_during_a_session_renewal(ending):
    client = SimulatedClient(ending)
    log_in(client)
    choose(client, "SCRAM-SHA-256")
    client.send(NO_TOPICS)
    assert client.closed()
    assert client.line.received == b""


@pytest.mark.parametrize("waits_s", [0, 15])
def test_api_versions_is_not_answered_during_a_session_renewal(ending, waits_s):
    """Otherwise a client whose session has expired could ask for ever. Kafka refuses it there as well."""
    client = SimulatedClient(ending)
    log_in(client)
    choose(client, "SCRAM-SHA-256")
    ending.wait(waits_s)
    client.send(ApiVersionsRequest())
    assert client.closed()
    assert client.line.received == b""


def test_an_unfinished_session_renewal_ends_with_the_idle_timeout():
    with SimulatedBroker(asking(connections_max_reauth_ms=10_000, connections_max_idle_ms=20_000)) as broker:
        add_users(broker.broker)
        client = SimulatedClient(broker)
        log_in(client)
        broker.wait(9)
        choose(client, "SCRAM-SHA-256")
        broker.wait(19)
        assert not client.line.closed
        broker.wait(12)
        assert client.line.closed


@pytest.mark.parametrize("waits_s", [0, 15])
def test_a_login_renewal_may_take_longer_than_the_session_lasted(ending, waits_s):
    from scram_client import ScramClient

    client = SimulatedClient(ending)
    log_in(client)
    scram = ScramClient("alice", "alice-pw")
    choose(client, "SCRAM-SHA-256")
    first = say(client, scram.first())
    ending.wait(waits_s)
    assert say(client, scram.final(first.auth_bytes)).session_lifetime_ms == 10_000
    assert client.ask(NO_TOPICS).brokers


def test_a_user_that_is_removed_cannot_renew_its_session(ending):
    from fencepost.broker.security.credentials import Mechanism, credential_removed

    client = SimulatedClient(ending)
    log_in(client)
    ending.broker.security_log.commit([credential_removed("alice", mechanism) for mechanism in Mechanism])
    assert client.ask(NO_TOPICS).brokers
    assert log_in(client).error_code == FAILED
    assert client.closed()


# ---- across restarts ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_decoy_credentials_of_unknown_users_stay_the_same_after_a_restart(broker):
    def salt_of_nobody(each: Broker) -> bytes:
        assert each.security_log.state.users.secret
        return each.security_log.state.users.any_or_decoy("nobody").salt

    broker.wait(0.1)  # until the users are on disk
    before = salt_of_nobody(broker.broker)
    with broker.after_power_cut() as again:
        assert salt_of_nobody(again.broker) == before
