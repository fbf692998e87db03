"""Targets: what a client can send before it has logged in, and the contents of tokens and key sets.

The rule: no bytes but the honest ones log anybody in, and nothing but LoginFailed comes of the others.
"""

import json
from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import jwt
import scram_client
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fencepost.broker.security.credentials import Mechanism, ScramUsers
from fencepost.broker.security.login import Login, LoginRules, Phase, Times
from fencepost.broker.security.oauth import BadKeySet, KeySet, TokenRules, TokenVerifier, read_key_set
from fencepost.broker.security.principals import parse_super_users
from fencepost.broker.security.sasl import (
    BearerExchange,
    Challenge,
    Exchange,
    LoginFailed,
    PasswordCheck,
    PlainExchange,
    ScramExchange,
    Success,
    TokenRefused,
)
from fencepost.protocol.compile import decoder, encoder
from fencepost.protocol.errors import MalformedFrame
from fencepost.protocol.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest
from fuzz.target import REFUSED, Target, all_joined, outcome, several
from scram_client import ScramClient
from signed_tokens import AUDIENCE, CLAIMS, ISSUER, NOW_S

NOW_MS = NOW_S * 1000
NONCE = b"the-server-part-of-a-nonce"
MECHANISMS = "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))  # the same in every run: tokens of a corpus stay valid


@cache
def users() -> ScramUsers:
    return scram_client.users_with({"alice": "secret", "b,b=b": "other"})


# ---- PLAIN and SCRAM ---------------------------------------------------------------------------------------------


def look_at_plain(data: bytes) -> None:
    """PLAIN: the password is checked only for a message of three parts, and for the user in it."""
    found = outcome(lambda: PlainExchange(users()).receive(data, NOW_MS), LoginFailed)
    if found is not REFUSED:
        assert isinstance(found, PasswordCheck)
        identity, name, password = data.split(b"\0")
        assert identity in (b"", name)
        assert found.success.identity.name.encode() == name
        assert found.password == password


def look_at_scram(data: bytes) -> None:
    """SCRAM: the messages of one exchange. Only the proof that is computed from the password is accepted."""
    mechanism = list(Mechanism)[len(data) % 2]
    exchange = ScramExchange(users(), mechanism, NONCE)
    expected = _ScramWords(mechanism)
    for message in several(data)[:4]:
        found = outcome(partial(exchange.receive, message, NOW_MS), LoginFailed)
        if found is REFUSED:
            return
        if isinstance(found, Success):
            assert message in expected.finals, "a login without the password succeeded"
            return
        assert isinstance(found, Challenge)
        expected.challenged(message, found.message)


class _ScramWords:
    """Computes the answers of clients who know the password."""

    def __init__(self, mechanism: Mechanism) -> None:
        self._digest = mechanism.digest
        self.finals: set[bytes] = set()

    def challenged(self, first: bytes, challenge: bytes) -> None:
        for name, password in (("alice", "secret"), ("b,b=b", "other")):
            for gs2 in ("n,,", "y,,", f"n,a={name},"):
                client = ScramClient(name, password, self._digest, gs2=gs2)
                if client.first() == first:
                    self.finals.add(client.final(challenge))


def scram_dialogs() -> Iterator[bytes]:
    for mechanism in Mechanism:
        client = ScramClient("alice", "secret", mechanism.digest)
        exchange = ScramExchange(users(), mechanism, NONCE)
        challenge = exchange.receive(client.first(), NOW_MS)
        assert isinstance(challenge, Challenge)
        dialog = all_joined([client.first(), client.final(challenge.message)])
        yield dialog if len(dialog) % 2 == mechanism - 1 else dialog + b"\0"
    yield all_joined([b"n,a=b=2Cb=3Db,n=b=2Cb=3Db,r=abc,x=y"])


# ---- tokens ------------------------------------------------------------------------------------------------------


@cache
def keys() -> KeySet:
    return read_key_set(next(iter(key_sets())))


def verifier() -> TokenVerifier:
    made = TokenVerifier(TokenRules(ISSUER, (AUDIENCE,)))
    made.keys = keys()
    return made


@cache
def honest_token(**claims: Any) -> str:
    return jwt.PyJWS().encode(json.dumps(CLAIMS | claims).encode(), KEY, "EdDSA", {"kid": "one"})


def look_at_tokens(data: bytes) -> None:
    token = data.decode("latin-1")
    found = outcome(lambda: verifier().verify(token, NOW_MS), TokenRefused)
    # base64 can encode one signature or payload in several ways; the signed bytes are the same.
    assert found is REFUSED or token.split(".")[:2] in _honest_heads(), "a token was believed that nobody signed"


@cache
def _honest_heads() -> list[list[str]]:
    return [token.decode().split(".")[:2] for token in _tokens()]


@cache
def _tokens() -> list[bytes]:
    claims: list[dict[str, Any]] = [{}, {"aud": [AUDIENCE, "other"]}, {"exp": 1}, {"sub": 5}, {"nbf": 1e30}]
    return [honest_token().encode()] + [
        jwt.PyJWS().encode(json.dumps(CLAIMS | more).encode(), KEY, "EdDSA", {"kid": "one"}).encode() for more in claims
    ]


def look_at_bearer(data: bytes) -> None:
    refused: list[str] = []
    exchange = BearerExchange(verifier().verify, refused.append)
    for message in several(data)[:3]:
        found = outcome(partial(exchange.receive, message, NOW_MS), LoginFailed)
        if found is REFUSED:
            return
        if isinstance(found, Success):
            assert any(".".join(head).encode() in message for head in _honest_heads())
            assert found.identity.name == "alice"
            return
    assert not any("alice" in text for text in refused)


def _bearers() -> Iterator[bytes]:
    for token in _tokens():
        yield all_joined([b"n,,\x01auth=Bearer " + token + b"\x01\x01", b"\x01"])
    yield all_joined([b"n,a=alice,\x01host=h\x01port=1\x01auth=bearer " + _tokens()[0] + b"\x01\x01"])


def look_at_key_sets(data: bytes) -> None:
    """Key sets that an attacker may have put in the place of ours."""
    found = outcome(lambda: read_key_set(data), BadKeySet)
    if found is not REFUSED:
        assert all(key.algorithms for key in found.values())
        made = TokenVerifier(TokenRules(ISSUER, (AUDIENCE,)))
        made.keys = found
        outcome(lambda: made.verify(honest_token(), NOW_MS), TokenRefused)


def key_sets() -> Iterator[bytes]:
    one = json.loads(jwt.algorithms.OKPAlgorithm.to_jwk(KEY.public_key())) | {"kid": "one"}
    one.pop("key_ops", None)
    yield json.dumps({"keys": [one]}).encode()
    rsa = {"kty": "RSA", "n": "s" * 342, "e": "AQAB", "alg": "RS256", "use": "sig", "key_ops": ["verify"]}
    curve = {"kty": "EC", "crv": "P-256", "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU"}
    curve["y"] = "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"
    yield json.dumps({"keys": [one, rsa | {"kid": "r"}, curve | {"kid": "c"}]}).encode()
    yield json.dumps({"keys": [rsa]}).encode()


# ---- the requests of a login -------------------------------------------------------------------------------------


class _ByName:
    """Starts exchanges, and computes the messages that a client with the password would send in them."""

    def begin(self, mechanism: str) -> Exchange:
        if mechanism == "PLAIN":
            return PlainExchange(users())
        if mechanism == "OAUTHBEARER":
            return BearerExchange(verifier().verify, lambda _: None)
        return ScramExchange(users(), Mechanism(1 if mechanism.endswith("256") else 2), NONCE)


def look_at_logins(data: bytes) -> None:
    """Bodies of requests, each after a byte for kind, version and time: any order, before and after the login."""
    login = Login(LoginRules(MECHANISMS, _ByName().begin, 5_000))
    now = Times(NOW_MS, 0)
    for part in several(data)[:12]:
        choice, body = part[0] if part else 0, part[1:]
        now = Times(now.wall_ms + 100 * (choice >> 4), now.monotonic_ms + 100 * (choice >> 4))
        cls, version = _LOGIN_REQUESTS[choice % len(_LOGIN_REQUESTS)]
        request = outcome(lambda cls=cls, version=version, body=body: decoder(cls, version)(body, 0)[0], MalformedFrame)
        if request is REFUSED:
            continue
        was, name = login.phase, login.name
        if cls is SaslHandshakeRequest:
            reply: Any = login.handshake(request, version, now)
        else:
            reply = login.authenticate(request, now)
            if isinstance(reply, PasswordCheck):
                is_right = reply.password == b"secret" and reply.success.identity.name == "alice"
                reply = login.conclude(is_right, now)
        b"".join(encoder(type(reply.response), version)(reply.response))
        assert reply.ends == (login.phase is Phase.FAILED)
        assert not (was is Phase.UNKNOWN and login.phase is Phase.KNOWN), "known without an exchange"
        assert name is None or login.name == name, "somebody became somebody else"
        assert login.name in (None, "alice", "b,b=b")
        if reply.ends:
            return


_LOGIN_REQUESTS = [(SaslHandshakeRequest, n) for n in range(2)] + [(SaslAuthenticateRequest, n) for n in range(3)]


def logins() -> Iterator[bytes]:
    def handshake(mechanism: str, time: int = 0) -> bytes:
        request = SaslHandshakeRequest(mechanism=mechanism)
        return bytes([1 + (time << 4)]) + b"".join(encoder(SaslHandshakeRequest, 1)(request))

    def words(message: bytes) -> bytes:
        # The choice of version 2 is the fifth, of time 0.
        return b"\4" + b"".join(encoder(SaslAuthenticateRequest, 2)(SaslAuthenticateRequest(auth_bytes=message)))

    plain = words(b"\0alice\0secret")
    yield all_joined([handshake("PLAIN"), plain])
    yield all_joined([handshake("PLAIN"), plain, handshake("PLAIN", 15), plain, plain])
    yield all_joined([handshake("PLAIN"), words(b"\0alice\0wrong")])
    yield all_joined([handshake("OAUTHBEARER"), *map(words, several(next(_bearers())))])
    for mechanism, dialog in zip(MECHANISMS[1:3], scram_dialogs(), strict=False):
        yield all_joined([handshake(mechanism), *map(words, several(dialog)[:2])])


def look_at_super_users(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    found = outcome(lambda: parse_super_users(text), ValueError)
    if found is not REFUSED:
        assert parse_super_users(";".join(map(str, found))) == found


TARGETS = [
    Target("sasl-plain", look_at_plain, lambda: [b"\0alice\0secret", b"alice\0alice\0x", b"bob\0alice\0x"]),
    Target("sasl-scram", look_at_scram, scram_dialogs),
    Target("sasl-bearer", look_at_bearer, _bearers),
    Target("logins", look_at_logins, logins),
    Target("tokens", look_at_tokens, _tokens),
    Target("key-sets", look_at_key_sets, key_sets),
    Target("super-users", look_at_super_users, lambda: [b"User:alice;User:CN=a,O=b", b"User:*"]),
]
