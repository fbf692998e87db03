"""Keys of an issuer of tokens, the set that it publishes, and tokens that it, or a forger, has signed."""

import base64
import json
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

ISSUER, AUDIENCE, NOW_S = "https://issuer.example", "fencepost", 1_700_000_000
CLAIMS = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "iat": NOW_S - 10, "exp": NOW_S + 600}


@cache
def private_key(name: str) -> Any:
    """Return the private key of this name, always the same one. The name begins with the kind of key: rsa, p256, p384,
    ed25519. An RSA key with "weak" in its name has 1024 bits.
    """
    if name.startswith("rsa"):
        return rsa.generate_private_key(65537, 1024 if "weak" in name else 2048)
    if name.startswith("p256"):
        return ec.generate_private_key(ec.SECP256R1())
    if name.startswith("p384"):
        return ec.generate_private_key(ec.SECP384R1())
    return ed25519.Ed25519PrivateKey.generate()


ALGORITHM = {"rsa": "RS256", "p256": "ES256", "p384": "ES384", "ed25519": "EdDSA"}


def algorithm_of(name: str) -> str:
    return ALGORITHM[name.split("-")[0]]


def jwk(name: str, **more: Any) -> dict[str, Any]:
    """Return the public key as it is published. A value of None leaves a field out."""
    maker = jwt.algorithms.get_default_algorithms()[algorithm_of(name)]
    made = json.loads(maker.to_jwk(private_key(name).public_key()))
    made.pop("key_ops", None)
    return _without_none(made | {"kid": name} | more)


def _without_none(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}


def key_set(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": keys}).encode()


def token(name: str, claims: dict[str, Any] | None = None, algorithm: str | None = None, **headers: Any) -> str:
    """Return a token signed by this key. claims, headers: replace those of CLAIMS and the header, or are added; a value
    of None leaves one out.
    """
    payload = json.dumps(_without_none(CLAIMS | (claims or {}))).encode()
    headers = _without_none({"kid": name} | headers)
    return jwt.PyJWS().encode(payload, private_key(name), algorithm or algorithm_of(name), headers)


def encoded(part: Any) -> str:
    """Return a part of a token in base64, as a token has it: of bytes as they are, of anything else as JSON."""
    data = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def forged(header: Any, claims: Any = CLAIMS, signature: bytes = b"") -> str:
    """Return a token of these parts, without a check whether they are valid."""
    return f"{encoded(header)}.{encoded(claims)}.{encoded(signature)}"
