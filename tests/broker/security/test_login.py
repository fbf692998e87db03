"""A connection's login: what may come when, how it ends, and how a session is renewed."""

import pytest
from fencepost.broker.security.credentials import Mechanism
from fencepost.broker.security.login import (
    LEAST_BETWEEN_MS,
    MAX_REQUESTS,
    Login,
    LoginRules,
    Phase,
    Reply,
    Times,
)
from fencepost.broker.security.sasl import (
    SCRAM,
    BearerExchange,
    Identity,
    PasswordCheck,
    PlainExchange,
    ScramExchange,
    fresh_nonce,
)
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest
from hypothesis import given
from hypothesis import strategies as st
from scram_client import ScramClient, users_with

USERS = users_with({"alice": "alice-pw", "bob": "bob-pw"})
ALL = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
START = Times(wall_ms=1_700_000_000_000, monotonic_ms=5_000)
FAILED = ErrorCode.SASL_AUTHENTICATION_FAILED
INVALID = "Authentication failed during {} due to invalid credentials with SASL mechanism {}"


def begin(mechanism):
    if mechanism in SCRAM:
        return ScramExchange(USERS, SCRAM[mechanism], fresh_nonce(b"n" * 24))
    if mechanism == "PLAIN":
        return PlainExchange(USERS)
    return BearerExchange(lambda token, now_ms: Identity(token.split(".")[0], now_ms + int(token.split(".")[1])), print)


class Line:
    """A connection's login, with a clock that wait() moves."""

    def __init__(self, mechanisms=ALL, max_reauth_ms=0):
        self.login = Login(LoginRules(mechanisms, begin, max_reauth_ms))
        self.now = START

    def wait(self, ms):
        self.now = Times(self.now.wall_ms + ms, self.now.monotonic_ms + ms)

    def choose(self, mechanism, version=1):
        return self.login.handshake(SaslHandshakeRequest(mechanism=mechanism), version, self.now)

    def say(self, message):
        outcome = self.login.authenticate(SaslAuthenticateRequest(auth_bytes=message), self.now)
        if isinstance(outcome, PasswordCheck):
            outcome = self.login.conclude(outcome.run(), self.now)
        assert isinstance(outcome, Reply)
        return outcome

    def log_in(self, name="alice", password="alice-pw", mechanism="SCRAM-SHA-256"):
        """Log in, and return the broker's last reply."""
        reply = self.choose(mechanism)
        if reply.response.error_code:
            return reply
        if mechanism == "PLAIN":
            return self.say(f"\0{name}\0{password}".encode())
        client = ScramClient(name, password, SCRAM[mechanism].digest)
        reply = self.say(client.first())
        return reply if reply.response.error_code else self.say(client.final(reply.response.auth_bytes))

    def token(self, name, lifetime_ms):
        self.choose("OAUTHBEARER")
        return self.say(f"n,,\x01auth=Bearer {name}.{lifetime_ms}\x01\x01".encode())


def code(reply):
    return reply.response.error_code, reply.ends


OK, ENDS, ILLEGAL_AND_ENDS, ILLEGAL = (0, False), (FAILED, True), (34, True), (34, False)


# ---- one login ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_the_right_password_logs_the_user_in_without_expiry(mechanism):
    line = Line()
    assert line.login.name is None
    assert code(line.log_in(mechanism=mechanism)) == OK
    assert (line.login.name, line.login.phase, line.login.mechanism) == ("alice", Phase.KNOWN, mechanism)
    assert line.login.expires_ms is None
    assert not line.login.is_expired(2**62)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password_is_refused_and_ends_the_connection(mechanism):
    for name in ("alice", "nobody"):
        line = Line()
        reply = line.log_in(name, "wrong", mechanism)
        assert code(reply) == ENDS
        refusal = "Authentication failed: Invalid username or password"
        wanted = refusal if mechanism == "PLAIN" else INVALID.format("authentication", mechanism)
        assert (reply.response.error_message, reply.response.auth_bytes) == (wanted, b"")
        assert (line.login.name, line.login.phase) == (None, Phase.FAILED)
        assert code(line.log_in(mechanism=mechanism)) == ILLEGAL_AND_ENDS
        assert line.login.name is None


def test_a_handshake_lists_the_listeners_mechanisms_in_their_order():
    line = Line(("SCRAM-SHA-512", "PLAIN"))
    reply = line.choose("PLAIN")
    assert (reply.response.mechanisms, reply.ends) == (["SCRAM-SHA-512", "PLAIN"], False)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "plain", "GSSAPI", "", "PLAIN "])
def test_a_mechanism_that_is_not_offered_ends_the_login(mechanism):
    line = Line(("PLAIN", "SCRAM-SHA-512"))
    reply = line.choose(mechanism)
    assert code(reply) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, True)
    assert reply.response.mechanisms == ["PLAIN", "SCRAM-SHA-512"]
    assert code(line.choose("PLAIN")) == ILLEGAL_AND_ENDS


def test_a_handshake_v0_gets_unsupported_sasl_mechanism_and_ends_the_login():
    """After a handshake of version 0, SASL messages would follow that are not in Kafka requests."""
    line = Line()
    assert code(line.choose("PLAIN", version=0)) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, True)
    assert line.login.phase is Phase.FAILED


def test_a_message_without_a_handshake_and_a_second_handshake_end_the_login():
    line = Line()
    assert code(line.say(b"\0alice\0alice-pw")) == ILLEGAL_AND_ENDS
    line = Line()
    line.choose("PLAIN")
    assert code(line.choose("PLAIN")) == ILLEGAL_AND_ENDS
    assert code(line.say(b"\0alice\0alice-pw")) == ILLEGAL_AND_ENDS
    assert line.login.name is None


def test_a_message_during_a_password_check_ends_the_login():
    line = Line()
    line.choose("PLAIN")
    check = line.login.authenticate(SaslAuthenticateRequest(auth_bytes=b"\0alice\0alice-pw"), line.now)
    assert isinstance(check, PasswordCheck)
    assert code(line.say(b"\0alice\0alice-pw")) == ILLEGAL_AND_ENDS
    assert line.login.name is None


def test_a_second_login_gets_illegal_sasl_state_if_sessions_do_not_expire():
    line = Line()
    line.log_in()
    assert code(line.choose("SCRAM-SHA-256")) == ILLEGAL
    reply = line.say(b"x")
    assert code(reply) == ILLEGAL
    assert reply.response.error_message == "SaslAuthenticate request received after successful authentication"
    assert (line.login.name, line.login.phase) == ("alice", Phase.KNOWN)


def test_admits_another_returns_false_after_the_limit_of_requests_before_a_login():
    login = Line().login
    assert [login.admits_another() for _ in range(MAX_REQUESTS + 2)] == [True] * MAX_REQUESTS + [False] * 2


# ---- sessions that end (KIP-368) ---------------------------------------------------------------------------------


def test_a_login_session_ends_after_max_reauth_ms_and_can_be_renewed():
    line = Line(max_reauth_ms=20_000)
    assert line.log_in().response.session_lifetime_ms == 20_000
    line.wait(19_999)
    assert not line.login.is_expired(line.now.monotonic_ms)
    line.wait(1)
    assert line.login.is_expired(line.now.monotonic_ms)
    assert line.log_in().response.session_lifetime_ms == 20_000
    assert not line.login.is_expired(line.now.monotonic_ms)


def test_a_login_session_ends_with_its_token_if_that_is_sooner():
    assert Line().token("alice", 7_000).response.session_lifetime_ms == 7_000
    assert Line(max_reauth_ms=20_000).token("alice", 7_000).response.session_lifetime_ms == 7_000
    assert Line(max_reauth_ms=5_000).token("alice", 7_000).response.session_lifetime_ms == 5_000
    line = Line()
    line.token("alice", 7_000)
    line.wait(7_000)
    assert line.login.is_expired(line.now.monotonic_ms)
    assert code(Line().token("alice", 0)) == ENDS


def test_setting_the_wall_clock_back_does_not_prolong_a_login_session():
    line = Line(max_reauth_ms=20_000)
    line.log_in()
    line.now = Times(0, line.now.monotonic_ms + 20_000)
    assert line.login.is_expired(line.now.monotonic_ms)


def test_renewing_a_session_as_another_user_ends_the_connection():
    line = Line(max_reauth_ms=20_000)
    line.log_in()
    reply = line.log_in("bob", "bob-pw")
    assert code(reply) == ENDS
    refusal = "Cannot change principals during re-authentication from User.alice: User.bob"
    assert reply.response.error_message == refusal
    assert line.login.phase is Phase.FAILED
    assert line.login.name == "alice"


def test_renewing_a_login_by_another_mechanism_gets_unsupported_sasl_mechanism():
    line = Line(max_reauth_ms=20_000)
    line.log_in()
    reply = line.choose("PLAIN")
    assert code(reply) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, True)
    assert reply.response.mechanisms == ["SCRAM-SHA-256"]


def test_a_login_renewal_that_fails_ends_the_connection():
    line = Line(max_reauth_ms=20_000)
    line.log_in()
    reply = line.log_in(password="wrong")
    assert code(reply) == ENDS
    assert reply.response.error_message == INVALID.format("re-authentication", "SCRAM-SHA-256")


def test_a_login_session_can_be_renewed_at_once_and_then_at_most_once_a_second():
    line = Line(max_reauth_ms=20_000)
    line.log_in()
    assert code(line.log_in()) == OK
    assert code(line.choose("SCRAM-SHA-256")) == ILLEGAL
    line.wait(LEAST_BETWEEN_MS - 1)
    assert code(line.choose("SCRAM-SHA-256")) == ILLEGAL
    line.wait(1)
    assert code(line.log_in()) == OK


# ---- any order ---------------------------------------------------------------------------------------------------

CLIENT = ScramClient("alice", "alice-pw")
FINAL = CLIENT.final(ScramExchange(USERS, Mechanism.SHA_256, fresh_nonce(b"n" * 24)).receive(CLIENT.first(), 0).message)
STEPS = {
    "choose SCRAM": lambda line: line.choose("SCRAM-SHA-256"),
    "choose PLAIN": lambda line: line.choose("PLAIN"),
    "choose nothing": lambda line: line.choose("NONE"),
    "first": lambda line: line.say(CLIENT.first()),
    "final": lambda line: line.say(FINAL),
    "right": lambda line: line.say(b"\0alice\0alice-pw"),
    "wrong": lambda line: line.say(b"\0alice\0wrong"),
    "other": lambda line: line.say(b"\0bob\0bob-pw"),
    "wait": lambda line: line.wait(700),
}
LOGINS = {
    ("choose SCRAM", "first", "final"): "alice",
    ("choose PLAIN", "right"): "alice",
    ("choose PLAIN", "other"): "bob",
}


@given(st.lists(st.sampled_from(sorted(STEPS)), max_size=12), st.sampled_from([0, 1_000]))
def test_in_any_message_order_only_a_complete_login_succeeds(steps, max_reauth_ms):
    line = Line(max_reauth_ms=max_reauth_ms)
    done: list[str] = []
    for step in steps:
        was_over = line.login.phase is Phase.FAILED
        reply = STEPS[step](line)
        if reply is None:
            continue
        done.append(step)
        assert not was_over or reply.ends
        assert reply.ends == (line.login.phase is Phase.FAILED)
    first = [name for login, name in LOGINS.items() if tuple(done[: len(login)]) == login]
    assert line.login.name == (first[0] if first else None)
