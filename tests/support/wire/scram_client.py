"""The client's side of SCRAM, written from RFC 5802 and not from the broker's code. Each part of its messages can be
changed.
"""

import hashlib
import hmac
from base64 import b64decode, b64encode
from functools import lru_cache

from fencepost.broker.security.credentials import (
    Mechanism,
    ScramUsers,
    credential_from,
    credential_set,
    salted_password,
    secret_set,
)


@lru_cache(maxsize=64)
def salted(digest: str, password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)


class ScramClient:
    """The client's side of SCRAM, as an honest client speaks it; digest: "sha256" or "sha512"."""

    def __init__(
        self,
        name: str,
        password: str,
        digest: str = "sha256",
        nonce: str = "fyko+d2lbbFgONRv9qkxdawL",
        gs2: str = "n,,",
    ) -> None:
        self.gs2 = gs2
        self.bare = f"n={name.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
        self._password = password
        self._digest = digest
        self._server_signature = b""

    def first(self) -> bytes:
        return (self.gs2 + self.bare).encode()

    def final(self, server_first: bytes, gs2: str | None = None) -> bytes:
        """Return the second message, which answers the server's first. gs2: the GS2 header to repeat in it, if it is to
        be another one than in first().
        """
        attributes = dict(part.split("=", 1) for part in server_first.decode().split(","))
        key = salted(self._digest, self._password, b64decode(attributes["s"]), int(attributes["i"]))
        binding = b64encode((self.gs2 if gs2 is None else gs2).encode()).decode()
        unproved = f"c={binding},r={attributes['r']}"
        message = f"{self.bare},{server_first.decode()},{unproved}".encode()
        client_key = hmac.digest(key, b"Client Key", self._digest)
        signature = hmac.digest(hashlib.new(self._digest, client_key).digest(), message, self._digest)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = hmac.digest(key, b"Server Key", self._digest)
        self._server_signature = b"v=" + b64encode(hmac.digest(server_key, message, self._digest))
        return f"{unproved},p={b64encode(proof).decode()}".encode()

    def trusts(self, server_final: bytes) -> bool:
        """Return whether the server's last message proves that it knows the password's verifier."""
        return hmac.compare_digest(server_final, self._server_signature)


SALT = b"0123456789abcdef"


def users_with(passwords: dict[str, str], iterations: int = 4096, salt: bytes = SALT) -> ScramUsers:
    """Return a broker's table of these users, each with both mechanisms."""
    users = ScramUsers()
    users.apply(*secret_set(b"s" * 32))
    for name, password in passwords.items():
        for mechanism in Mechanism:
            made = credential_from(
                mechanism, salted_password(mechanism, password.encode(), salt, iterations), salt, iterations
            )
            users.apply(*credential_set(name, made))
    return users
