"""Each mechanism's messages: what is a login, and that nothing that differs from one in any part is."""

import base64

import pytest
from fencepost.broker.security.credentials import (
    Mechanism,
    ScramUsers,
    credential_from,
    credential_set,
    salted_password,
)
from fencepost.broker.security.sasl import (
    INVALID_TOKEN,
    LONGEST_BEARER_MESSAGE,
    LONGEST_SCRAM_MESSAGE,
    MECHANISMS,
    OTHER_IDENTITY,
    WRONG_PASSWORD,
    BearerExchange,
    Challenge,
    Identity,
    LoginFailed,
    PasswordCheck,
    PlainExchange,
    ScramExchange,
    Success,
    TokenRefused,
    fresh_nonce,
)
from hypothesis import example, given
from hypothesis import strategies as st
from scram_client import ScramClient, users_with

NONCE = fresh_nonce(bytes(range(24)))
PASSWORDS = {"alice": "alice-pw", "bob": "böb, =\x00", "ü,=2C": "x"}
USERS = users_with(PASSWORDS)


def scram(mechanism=Mechanism.SHA_256, users=USERS, nonce=NONCE):
    return ScramExchange(users, mechanism, nonce)


def logged_in(exchange, client, first=lambda said: said, final=lambda said: said):
    """Log in with SCRAM and return the identity. `first` and `final` change the client's messages on their way. Raises
    LoginFailed.
    """
    challenge = exchange.receive(first(client.first()), 0)
    assert isinstance(challenge, Challenge)
    success = exchange.receive(final(client.final(challenge.message)), 0)
    assert isinstance(success, Success)
    assert client.trusts(success.message)
    return success.identity


def fails(exchange, client, first=lambda said: said, final=lambda said: said):
    """Check that such a login fails (see logged_in()). Return what the client is told, which is mostly nothing."""
    with pytest.raises(LoginFailed) as failed:
        logged_in(exchange, client, first, final)
    return str(failed.value)


# ---- SCRAM: logins that succeed ----------------------------------------------------------------------------------


def test_a_scram_exchange_sends_the_messages_of_rfc_7677s_example():
    users = users_with({"user": "pencil"}, salt=base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="))
    exchange = scram(users=users, nonce=b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    assert exchange.receive(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO", 0) == Challenge(
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert exchange.receive(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        0,
    ) == Success(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", Identity("user"))


@pytest.mark.parametrize("mechanism", Mechanism)
def test_a_client_that_uses_the_scramp_library_logs_in(mechanism):
    from scramp import ScramClient as ScrampClient

    client = ScrampClient([mechanism.sasl_name], "alice", "alice-pw", c_nonce="abc")
    exchange = scram(mechanism)
    challenge = exchange.receive(client.get_client_first().encode(), 0)
    client.set_server_first(challenge.message.decode())
    success = exchange.receive(client.get_client_final().encode(), 0)
    client.set_server_final(success.message.decode())
    assert success.identity == Identity("alice")


@pytest.mark.parametrize("name", PASSWORDS)
@pytest.mark.parametrize("mechanism", Mechanism)
def test_every_user_logs_in_with_either_scram_mechanism_as_itself(name, mechanism):
    client = ScramClient(name, PASSWORDS[name], mechanism.digest)
    assert logged_in(scram(mechanism), client) == Identity(name)


@pytest.mark.parametrize("gs2", ["n,,", "y,,", "n,a=alice,", "y,a=alice,"])
def test_scram_accepts_no_channel_binding_and_the_users_own_authorization_identity(gs2):
    assert logged_in(scram(), ScramClient("alice", "alice-pw", gs2=gs2)) == Identity("alice")


def test_unknown_scram_extensions_are_ignored():
    client = ScramClient("alice", "alice-pw", nonce="abc,foo=true,x=1")
    exchange = scram()
    challenge = exchange.receive(client.first(), 0).message
    assert challenge.startswith(b"r=abc" + NONCE + b",s=")
    assert exchange.receive(client.final(challenge), 0).identity == Identity("alice")


def test_every_scram_exchange_has_a_new_server_nonce():
    firsts = {scram(nonce=fresh_nonce(bytes([n]) * 24)).receive(b"n,,n=alice,r=a", 0).message for n in range(5)}
    assert len(firsts) == 5


# ---- SCRAM: logins that fail -------------------------------------------------------------------------------------


def test_a_wrong_password_and_an_unknown_user_fail_at_the_same_step_alike():
    for name, password in (("alice", "wrong"), ("nobody", "wrong"), ("bob", "")):
        assert fails(scram(), ScramClient(name, password)) == ""
    real, decoy = (scram().receive(ScramClient(name, "").first(), 0).message for name in ("alice", "nobody"))
    assert real.split(b",")[::2] == decoy.split(b",")[::2], "all but the salt"
    assert decoy == scram().receive(ScramClient("nobody", "").first(), 0).message


def test_a_client_that_computes_with_sha_256_fails_in_a_scram_sha_512_login():
    assert fails(scram(Mechanism.SHA_512), ScramClient("alice", "alice-pw", "sha256")) == ""


@pytest.mark.parametrize("gs2", ["n,a=bob,", "y,a=nobody,", "n,a=Alice,", "n,a=alice ,"])
def test_scram_refuses_another_authorization_identity(gs2):
    assert fails(scram(), ScramClient("alice", "alice-pw", gs2=gs2)) == OTHER_IDENTITY


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n",
        b"n,,",
        b"n,,n=alice",
        b"n,,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=alice,r=",
        b"n,,r=abc,n=alice",
        b"n,n=alice,r=abc",
        b",,n=alice,r=abc",
        b"p=tls-unique,,n=alice,r=abc",
        b"N,,n=alice,r=abc",
        b"n,alice,n=alice,r=abc",
        b"n,a=,n=alice,r=abc",
        b"n,,m=must,n=alice,r=abc",
        b"n,,n=ali=ce,r=abc",
        b"n,,n=ali=2cce,r=abc",
        b"n,,n=alice=,r=abc",
        b"n,,n=ali\0ce,r=abc",
        b"n,,n=\xff\xfe,r=abc",
        b"n,,n=alice,r=a\0c",
        b"n,,n=alice,r=a c",
        b"n,,n=alice,r=\xc3\xbc",
        b"n,,n=alice,r=abc,",
        b"n,,n=alice,r=abc,foo",
        b"n,,n=alice,r=abc,foo=",
        b"n,,n=alice,r=abc,tokenauth=true",
        b"n,,n=alice,r=abc\n",
        b" n,,n=alice,r=abc",
        b"n,,n=alice,r=" + b"a" * LONGEST_SCRAM_MESSAGE,
    ],
)
def test_a_malformed_first_scram_message_ends_the_login(first):
    with pytest.raises(LoginFailed) as failed:
        scram().receive(first, 0)
    assert str(failed.value) == ""


CLIENT = ScramClient("alice", "alice-pw")


def part(name, value):
    """Return a change of the final message that gives the attribute `name` this value."""

    def change(said):
        parts = [each if each[:2] != name + b"=" else name + b"=" + value for each in said.split(b",")]
        assert parts != said.split(b",")
        return b",".join(parts)

    return change


@pytest.mark.parametrize(
    "final",
    [
        lambda said: b"",
        lambda said: said[:-1],
        lambda said: said + b"=",
        lambda said: said + b",",
        lambda said: said + b"\n",
        lambda said: b" " + said,
        lambda said: said + b"," + said.split(b",")[-1],
        lambda said: said.split(b",", 1)[1],
        lambda said: b",".join(sorted(said.split(b","))[::-1]),
        lambda said: said.replace(b",p=", b",x=1,p="),  # the proof is of what was said without it
        lambda said: said.rpartition(b",")[0],
        part(b"c", base64.b64encode(b"y,,")),
        part(b"c", base64.b64encode(b"n,a=alice,")),
        part(b"c", base64.b64encode(b"")),
        part(b"c", b""),
        part(b"c", b"biws="),
        part(b"r", b"fyko+d2lbbFgONRv9qkxdawL"),
        part(b"r", NONCE),
        part(b"r", b"x"),
        part(b"r", b""),
        part(b"r", b"fyko+d2lbbFgONRv9qkxdawL" + NONCE + b"x"),
        part(b"r", b"fyko+d2lbbFgONRv9qkxdawL" + NONCE[:-1]),
        part(b"p", b""),
        part(b"p", base64.b64encode(b"")),
        part(b"p", base64.b64encode(bytes(32))),
        part(b"p", base64.b64encode(bytes(64))),
        part(b"p", b"!" * 44),
    ],
)
def test_a_final_scram_message_with_any_field_changed_ends_the_login(final):
    assert fails(scram(), CLIENT, final=final) == ""


def test_cve_2024_56128_a_foreign_nonce_is_refused_even_with_a_valid_proof():
    """The proof matches the nonce that the client sends. A server that does not compare the nonce with its own accepts
    a replayed login.
    """
    exchange, other = scram(), scram(nonce=fresh_nonce(b"x" * 24))
    exchange.receive(CLIENT.first(), 0)
    with pytest.raises(LoginFailed):
        exchange.receive(CLIENT.final(other.receive(CLIENT.first(), 0).message), 0)


@pytest.mark.parametrize("claimed", ["y,,", "n,a=alice,", ""])
def test_a_channel_binding_not_announced_is_refused_even_with_a_valid_proof(claimed):
    exchange = scram()
    challenge = exchange.receive(CLIENT.first(), 0).message
    with pytest.raises(LoginFailed):
        exchange.receive(CLIENT.final(challenge, gs2=claimed), 0)


def test_a_recorded_final_scram_message_cannot_be_replayed():
    heard: list[bytes] = []
    logged_in(scram(), CLIENT, final=lambda said: heard.append(said) or said)
    assert fails(scram(nonce=fresh_nonce(b"x" * 24)), CLIENT, final=lambda said: heard[0]) == ""


CHANGES = [lambda byte, bit=bit: byte ^ 1 << bit for bit in range(8)] + [lambda byte: 0x2C, lambda byte: 0x3D]


def damaged(position, change):
    def make(said):
        assert change(said[position]) != said[position], "the message has to be another one"
        return said[:position] + bytes([change(said[position])]) + said[position + 1 :]

    return make


FIRST_BYTES, FINAL_BYTES = len(CLIENT.first()), len(CLIENT.final(scram().receive(CLIENT.first(), 0).message))


@pytest.mark.slow
@pytest.mark.parametrize("position", range(FIRST_BYTES))
def test_a_first_scram_message_with_any_bit_changed_ends_the_login(position):
    said = CLIENT.first()
    for change in CHANGES:
        if change(said[position]) != said[position]:
            fails(scram(), CLIENT, first=damaged(position, change))


@pytest.mark.slow
@pytest.mark.parametrize("position", range(FINAL_BYTES))
def test_a_final_scram_message_with_any_bit_changed_ends_the_login(position):
    for change in CHANGES:
        exchange = scram()
        said = CLIENT.final(exchange.receive(CLIENT.first(), 0).message)
        if change(said[position]) != said[position]:
            with pytest.raises(LoginFailed):
                exchange.receive(damaged(position, change)(said), 0)


@pytest.mark.parametrize("message", ["first", "final"])
def test_a_scram_message_truncated_at_any_byte_ends_the_login(message):
    for size in range(FIRST_BYTES if message == "first" else FINAL_BYTES):
        fails(scram(), CLIENT, **{message: lambda said, size=size: said[:size]})


@given(st.binary(max_size=200), st.binary(max_size=200))
@example(b"n,,n=alice,r=x", b"c=biws,r=x" + NONCE + b",p=" + base64.b64encode(bytes(32)))
def test_random_bytes_as_scram_messages_authenticate_nobody(first, final):
    def log_in():
        exchange = scram()
        exchange.receive(first, 0)
        exchange.receive(final, 0)

    with pytest.raises(LoginFailed):
        log_in()


@pytest.mark.slow
@given(st.text(min_size=1, max_size=30).filter(lambda text: "\0" not in text), st.text(max_size=20))
def test_users_with_any_name_and_password_log_in_as_themselves(name, password):
    users = users_with({name: password})
    assert logged_in(scram(users=users), ScramClient(name, password)) == Identity(name)
    fails(scram(users=users), ScramClient(name, password + "x"))


# ---- PLAIN -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("identity", [b"", b"alice"])
def test_a_plain_message_gives_the_user_and_a_password_check_to_run(identity):
    for password, is_right in ((b"alice-pw", True), (b"alice-p", False), (b"alice-pw ", False)):
        check = PlainExchange(USERS).receive(identity + b"\0alice\0" + password, 0)
        assert isinstance(check, PasswordCheck)
        assert check.run() is is_right
        assert check.success == Success(b"", Identity("alice"))
        assert repr(check) == "PasswordCheck()"


def test_plain_with_an_unknown_user_runs_a_password_check_that_fails():
    for name in (b"nobody", b"Alice", b"alice "):
        check = PlainExchange(USERS).receive(b"\0" + name + b"\0alice-pw", 0)
        assert isinstance(check, PasswordCheck)
        assert not check.run()
        assert check.credential.iterations == 4096


@pytest.mark.parametrize("mechanism", Mechanism)
def test_plain_with_an_unknown_user_takes_as_many_iterations_as_most_users(mechanism):
    users = ScramUsers()
    salted = salted_password(mechanism, b"pw", b"salt", 8192)
    users.apply(*credential_set("alice", credential_from(mechanism, salted, b"salt", 8192)))
    for name in (b"alice", b"nobody"):
        check = PlainExchange(users).receive(b"\0" + name + b"\0pw", 0)
        assert isinstance(check, PasswordCheck)
        assert (check.credential.mechanism, check.credential.iterations) == (mechanism, 8192)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"alice\0alice-pw", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0alice\0alice-pw\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0\0alice-pw", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"bob\0alice\0alice-pw", OTHER_IDENTITY),
        (b"Alice\0alice\0alice-pw", OTHER_IDENTITY),
        (b"\0alice\xff\0alice-pw", WRONG_PASSWORD),
    ],
)
def test_a_malformed_plain_message_gets_kafkas_error_text(message, expected):
    with pytest.raises(LoginFailed) as failed:
        PlainExchange(USERS).receive(message, 0)
    assert str(failed.value) == expected


# ---- OAUTHBEARER -------------------------------------------------------------------------------------------------

TOKEN = "aaa.bbb-_.ccc"


def bearer(reasons=None):
    def verify(token, now_ms):
        if token != TOKEN:
            raise TokenRefused("it does not verify")
        return Identity("alice", now_ms + 1000)

    return BearerExchange(verify, (reasons if reasons is not None else []).append)


@pytest.mark.parametrize(
    "message",
    [
        b"n,,\x01auth=Bearer %b\x01\x01",
        b"n,a=alice,\x01auth=Bearer %b\x01\x01",
        b"n,,\x01auth=bearer   %b \x01\x01",
        b"n,,\x01host=a\x01auth=BEARER %b\x01port=1\x01\x01",
        b"n,,\x01auth=Bearer %b\x01logicalCluster=lkc, 1 = x\x01\x01",
    ],
)
def test_a_verified_token_gives_the_user_and_its_expiry(message):
    assert bearer().receive(message % TOKEN.encode(), 5) == Success(b"", Identity("alice", 1005))


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        TOKEN.encode(),
        b"n,,\x01auth=Bearer aaa.bbb-_.ccc\x01",
        b"n,,auth=Bearer aaa.bbb-_.ccc\x01\x01",
        b"n,,\x01auth=Basic aaa.bbb-_.ccc\x01\x01",
        b"n,,\x01auth=Beareraaa.bbb-_.ccc\x01\x01",
        b"n,,\x01auth=\x01\x01",
        b"n,,\x01token=Bearer aaa.bbb-_.ccc\x01\x01",
        b"n,,\x01auth=Bearer aaa.bbb-_.ccc\x01auth=Bearer aaa.bbb-_.ccc\x01\x01",
        b"n,,\x01auth=Bearer aaa bbb\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
        b"p=tls-unique,,\x01auth=Bearer aaa.bbb-_.ccc\x01\x01",
        b"y,,\x01auth=Bearer aaa.bbb-_.ccc\x01\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer aaa.bbb-_.ccc\x01\x01x",
    ],
)
def test_a_malformed_oauth_message_ends_the_login(message):
    with pytest.raises(LoginFailed) as failed:
        bearer().receive(message, 0)
    assert str(failed.value) == ""


@pytest.mark.parametrize(
    "message",
    [
        b"n,,\x01auth=Bearer " + b"a" * LONGEST_BEARER_MESSAGE + b"\x01\x01",
        b"n,,\x01" + b"a=b\x01" * 30 + b"auth=Bearer " + TOKEN.encode() + b"\x01\x01",
    ],
)
def test_an_oauth_message_above_the_size_limit_is_refused(message):
    with pytest.raises(LoginFailed):
        bearer().receive(message, 0)


def test_a_token_that_fills_the_longest_accepted_message_is_verified():
    seen = []
    exchange = BearerExchange(lambda token, _: seen.append(token) or Identity("alice"), lambda _: None)
    exchange.receive(b"n,,\x01auth=Bearer " + b"a" * (LONGEST_BEARER_MESSAGE - 100) + b"\x01\x01", 0)
    assert len(seen[0]) == LONGEST_BEARER_MESSAGE - 100


def test_a_token_of_another_user_than_the_authorization_identity_is_refused():
    with pytest.raises(LoginFailed, match="different from username"):
        bearer().receive(b"n,a=bob,\x01auth=Bearer %b\x01\x01" % TOKEN.encode(), 0)


@pytest.mark.parametrize("more", [b"\x01", b"", b"n,,\x01auth=Bearer %b\x01\x01" % TOKEN.encode()])
def test_a_refused_token_gets_a_challenge_and_then_the_login_fails(more):
    reasons: list[str] = []
    exchange = bearer(reasons)
    assert exchange.receive(b"n,,\x01auth=Bearer zzz\x01\x01", 0) == Challenge(INVALID_TOKEN.encode())
    with pytest.raises(LoginFailed) as failed:
        exchange.receive(more, 0)
    assert str(failed.value) == INVALID_TOKEN
    assert reasons == ["it does not verify"]


@given(st.binary(max_size=100))
def test_random_bytes_are_refused_as_an_oauth_message(message):
    with pytest.raises(LoginFailed):
        bearer().receive(message, 0)


def test_the_mechanisms_are_those_of_kafka_without_kerberos():
    assert MECHANISMS == ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
