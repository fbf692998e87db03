"""Verifies tokens (JWT) of an identity provider: which user they name, and until when they are valid. Pure.

The rules: a token is valid only with a signature by a key of the key set, which is chosen by its id, and in an
algorithm for this type of key; so never with `none` or a shared secret. It must contain the expected issuer and
audience, an expiry time in the future, and a principal. No error text quotes the token. Keys that could also sign, and
weak keys, are left out of the set.

Sources: RFC 7515, RFC 7517, RFC 7519, RFC 8725; CVE-2026-33557.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .credentials import LONGEST_NAME
from .sasl import Identity, TokenRefused

MAX_KEYS = 100
LEAST_RSA_BITS = 2048
LONGEST_HEADER = 8 << 10  # in Base64; it is parsed before the signature is checked
_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_ALGORITHMS: dict[tuple[str, str | None], tuple[str, ...]] = {  # by type of key, and by its curve if it has one
    ("RSA", None): _RSA,
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
}
_SECRET_PARTS = ("d", "k", "p", "q")  # fields that only private or symmetric keys have


class BadKeySet(Exception):
    """Raised if the fetched content is not a key set, or has no usable key."""


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What a token must contain. claim: the name of the claim that contains the user's name. skew_s: the difference of
    clocks that is tolerated.
    """

    issuer: str
    audiences: tuple[str, ...]
    claim: str = "sub"
    skew_s: int = 30


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A public key, and the names of the algorithms that may be used with it."""

    algorithms: tuple[str, ...]
    key: Any = field(repr=False)


KeySet = Mapping[str | None, VerificationKey]
"""Keys by id. The id is None for a key without one, which must then be the only key."""


def read_key_set(text: bytes) -> KeySet:
    """Parse a key set (JWKS) and return its usable keys by key id. Raises BadKeySet; ImportError if PyJWT is not
    installed.
    """
    try:
        entries = json.loads(text)["keys"]
    except (ValueError, KeyError, TypeError, RecursionError):
        entries = None
    if not isinstance(entries, list) or len(entries) > MAX_KEYS:
        raise BadKeySet(f"it is not a JSON object whose field 'keys' is a list of at most {MAX_KEYS} keys")
    keys: dict[str | None, VerificationKey] = {}
    for entry in entries:
        key = _key_of(entry) if isinstance(entry, dict) else None
        if key is not None:
            name = entry.get("kid")
            if name in keys:
                raise BadKeySet("two keys have the same id, or none")
            keys[name] = key
    if not keys:
        raise BadKeySet("it holds no key that can verify tokens")
    if None in keys and len(keys) > 1:
        raise BadKeySet("several keys, and one of them has no id")
    return keys


def _key_of(entry: Mapping[str, Any]) -> VerificationKey | None:
    """Return the key of an entry; None for another type or purpose, a weak key, and a private or symmetric key."""
    from jwt import PyJWK
    from jwt.exceptions import PyJWTError

    kind = str(entry.get("kty"))
    algorithms = _ALGORITHMS.get((kind, None if kind == "RSA" else str(entry.get("crv"))), ())
    if "alg" in entry:
        algorithms = tuple(each for each in algorithms if each == entry["alg"])
    purposes = entry.get("key_ops", ["verify"])
    signs = entry.get("use", "sig") == "sig" and isinstance(purposes, list) and "verify" in purposes
    is_named = isinstance(entry.get("kid"), str | None)
    if not algorithms or not signs or not is_named or any(part in entry for part in _SECRET_PARTS):
        return None
    try:
        key = PyJWK(dict(entry), algorithms[0]).key
    except (PyJWTError, ValueError, TypeError, KeyError):
        return None
    if kind == "RSA" and key.key_size < LEAST_RSA_BITS:
        return None
    return VerificationKey(algorithms, key)


class TokenVerifier:
    """Verifies tokens. keys: the current keys by key id; empty until a key set has been fetched."""

    def __init__(self, rules: TokenRules, on_unknown_key: Callable[[], object] = lambda: None) -> None:
        """on_unknown_key: called when a token names a key that is not in the set. Raises ImportError if PyJWT is not
        installed.
        """
        from jwt import PyJWS

        self.keys: KeySet = {}
        self._rules = rules
        self.on_unknown_key = on_unknown_key
        self._jws = PyJWS(algorithms=[each for group in _ALGORITHMS.values() for each in group])

    def verify(self, token: str, now_ms: int) -> Identity:
        """Verify a token. Returns the user it names. Raises TokenRefused, whose text quotes nothing of the token."""
        try:
            claims = json.loads(self._signed_payload(token))
        except TokenRefused:
            raise
        except Exception as error:  # the libraries raise errors of many types; all mean an invalid token
            raise TokenRefused(f"it does not verify ({type(error).__name__})") from None
        if not isinstance(claims, dict):
            raise TokenRefused("it holds no claims")
        return self._judge(claims, now_ms / 1000)

    def _signed_payload(self, token: str) -> bytes:
        """Check the token's signature, and return its payload. Raises TokenRefused and PyJWT's errors."""
        if token.find(".") > LONGEST_HEADER:
            raise TokenRefused(f"its header has more than {LONGEST_HEADER} bytes")
        header = self._jws.get_unverified_header(token)
        if "crit" in header or "b64" in header:
            raise TokenRefused("it has critical extensions")
        key = self._key_for(header.get("kid"))
        if header.get("alg") not in key.algorithms:
            raise TokenRefused("its algorithm is none of its key's")
        payload: bytes = self._jws.decode_complete(token, key.key, algorithms=list(key.algorithms))["payload"]
        return payload

    def _key_for(self, name: object) -> VerificationKey:
        """Return the key that a token names. A token without a key id may be verified by the only key, if there is just
        one.

        Raises TokenRefused, after calling on_unknown_key().
        """
        if name is None and len(self.keys) == 1:
            return next(iter(self.keys.values()))
        found = self.keys.get(name) if isinstance(name, str) else None
        if found is None:
            self.on_unknown_key()
            raise TokenRefused("it names no key that is known")
        return found

    def _judge(self, claims: dict[str, Any], now_s: float) -> Identity:
        """Check issuer, audience and times of the claims, and return the user. Raises TokenRefused."""
        rules = self._rules
        if claims.get("iss") != rules.issuer:
            raise TokenRefused("it has another issuer")
        meant_for = claims.get("aud")
        audiences = meant_for if isinstance(meant_for, list) else [meant_for]
        if not any(isinstance(each, str) and each in rules.audiences for each in audiences):
            raise TokenRefused("it is meant for another audience")
        end_s = _seconds(claims, "exp")
        if end_s is None:
            raise TokenRefused("it has no end")
        if now_s >= end_s + rules.skew_s:
            raise TokenRefused("it has expired")
        for begin in ("nbf", "iat"):
            begin_s = _seconds(claims, begin)
            if begin_s is not None and begin_s > now_s + rules.skew_s:
                raise TokenRefused("it is not valid yet")
        name = claims.get(rules.claim)
        if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= LONGEST_NAME:
            raise TokenRefused("it does not name a valid user")
        return Identity(name, int((end_s + rules.skew_s) * 1000))


_LATEST_S = 1e11  # about three thousand years


def _seconds(claims: dict[str, Any], name: str) -> float | None:
    """Return a time claim, in seconds since 1970; None if it is absent. Raises TokenRefused."""
    value = claims.get(name)
    if name not in claims:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LATEST_S:  # NaN too
        raise TokenRefused(f"its {name} is not a time")
    return float(value)
