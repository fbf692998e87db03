"""SCRAM credentials, which are stored instead of passwords, and the table of all users. Pure.

The rules: of a password only RFC 5802's StoredKey and ServerKey are stored, with which nobody can log in; no repr shows
them. A login as a user that does not exist gets a decoy (decoys.py), so that answers do not reveal which users exist.
The table changes only by applying a record.

Sources: RFC 5802, RFC 7677, KIP-554.
"""

import hashlib
import hmac
from collections import Counter
from collections.abc import Iterable
from enum import IntEnum
from typing import Any, NamedTuple

import msgpack

from ..packed_list import unpack_list
from .decoys import Alphabet, Kind, Kinds, kind_of

LEAST_ITERATIONS = 4096
MAX_ITERATIONS = 16_384  # Kafka's limit; the client does this work, except for a login by PLAIN
SECRET_BYTES = 32  # of the secret from which decoys are derived
LONGEST_NAME = 1_000  # characters of a user's name
LONGEST_SALT_BYTES = 1_024
LONGEST_SALTED_BYTES = 1_024  # of a salted password
RECORD_VERSION = 0
USUAL_KIND = Kind(LEAST_ITERATIONS, Alphabet.BYTES, 24)  # as the SDK and `fencepost user` make them
USER, SECRET = "scram user", "scram secret"  # kinds of records

Change = tuple[bytes, bytes | None]
"""A record to write: key and value; a value of None deletes the key."""


class Mechanism(IntEnum):
    """Kafka's two SCRAM mechanisms, with the codes of KIP-554."""

    SHA_256 = 1
    SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        return f"SCRAM-SHA-{self.bits}"

    @property
    def bits(self) -> int:
        return 256 if self is Mechanism.SHA_256 else 512

    @property
    def digest(self) -> str:
        """The name of the hash in hashlib."""
        return f"sha{self.bits}"


class ScramCredential(NamedTuple):
    """What the broker needs to check one user's password with one mechanism (RFC 5802)."""

    mechanism: Mechanism
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return f"ScramCredential({self.mechanism.sasl_name}, {self.iterations} iterations)"

    def proves(self, auth_message: bytes, proof: bytes) -> bool:
        """Return whether the client's proof was made with the password. auth_message: RFC 5802's AuthMessage."""
        digest = self.mechanism.digest
        signature = hmac.digest(self.stored_key, auth_message, digest)
        if len(proof) != len(signature):
            return False
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        return hmac.compare_digest(hashlib.new(digest, client_key).digest(), self.stored_key)

    def signature(self, auth_message: bytes) -> bytes:
        """Return the signature that proves to the client that the server has its credential."""
        return hmac.digest(self.server_key, auth_message, self.mechanism.digest)

    def is_made_from(self, password: bytes) -> bool:
        """Return whether this is the credential of the password. Takes milliseconds of CPU, with the GIL released."""
        salted = salted_password(self.mechanism, password, self.salt, self.iterations)
        return hmac.compare_digest(_keys(self.mechanism, salted)[0], self.stored_key)


def salted_password(mechanism: Mechanism, password: bytes, salt: bytes, iterations: int) -> bytes:
    """Return RFC 5802's SaltedPassword. password: UTF-8 without SASLprep, as in Kafka and its clients."""
    return hashlib.pbkdf2_hmac(mechanism.digest, password, salt, iterations)


def credential_from(mechanism: Mechanism, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """Return the credential to store for a SaltedPassword, which itself is as secret as the password."""
    stored_key, server_key = _keys(mechanism, salted)
    return ScramCredential(mechanism, salt, iterations, stored_key, server_key)


def _keys(mechanism: Mechanism, salted: bytes) -> tuple[bytes, bytes]:
    """Compute StoredKey and ServerKey (RFC 5802, section 3)."""
    client_key = hmac.digest(salted, b"Client Key", mechanism.digest)
    return hashlib.new(mechanism.digest, client_key).digest(), hmac.digest(salted, b"Server Key", mechanism.digest)


class DamagedUserRecord(Exception):
    """Raised for a record of the log that cannot be parsed."""


class NewerUserRecord(Exception):
    """Raised for a record that a later version of fencepost wrote."""


class ScramUsers:
    """All users, each with a credential for one mechanism or for both.

    secret: random bytes from which decoys (credentials for unknown users) are derived; empty until a record has set it.
    It stays the same after a restart, or a client could recognise a decoy by its change.
    """

    def __init__(self) -> None:
        self.secret = b""
        self._by_name: dict[str, dict[Mechanism, ScramCredential]] = {}
        self._kinds = {mechanism: Kinds(USUAL_KIND) for mechanism in Mechanism}
        self._checked_by: Counter[Mechanism] = Counter()  # how many users are checked by each mechanism

    def __repr__(self) -> str:
        return f"ScramUsers({len(self._by_name)} users)"

    @property
    def names(self) -> Iterable[str]:
        return self._by_name.keys()

    @property
    def count(self) -> int:
        return len(self._by_name)

    def has(self, name: str) -> bool:
        return name in self._by_name

    def of(self, name: str) -> Iterable[ScramCredential]:
        """Return the credentials of one user; none if there is no such user."""
        return self._by_name.get(name, {}).values()

    def find(self, name: str, mechanism: Mechanism) -> ScramCredential | None:
        """Return the user's credential for the mechanism; None if there is none."""
        return self._by_name.get(name, {}).get(mechanism)

    def find_or_decoy(self, name: str, mechanism: Mechanism) -> ScramCredential:
        """Return the user's credential; for an unknown user a decoy that looks like one and matches no password."""
        decoy = self._decoy(name, mechanism)  # computed in any case, so that known and unknown users take the same time
        return self.find(name, mechanism) or decoy

    def any_or_decoy(self, name: str) -> ScramCredential:
        """Return the credential against which a user's plain password is checked, for either mechanism; a decoy for an
        unknown user.
        """
        chosen = self._draw_mechanism(name)
        decoy = self._decoy(name, chosen)  # so that a check takes as long as for a known user
        return _credential_to_check(self._by_name.get(name, {})) or decoy

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Apply a record of the log. Only this method changes users. Raises DamagedUserRecord, NewerUserRecord."""
        kind, *rest = unpack_list(key, DamagedUserRecord)
        if kind == SECRET:
            self.secret = _fields(value or b"", (bytes,))[0]
        elif kind == USER:
            name, mechanism = _user_of(rest)
            self._put(name, mechanism, None if value is None else _credential_of(mechanism, value))
        else:
            raise NewerUserRecord(f"this broker does not know the kind of record {kind!r}")

    def _put(self, name: str, mechanism: Mechanism, credential: ScramCredential | None) -> None:
        """Set or remove (None) a user's credential, and update the statistics for decoys."""
        credentials = self._by_name.setdefault(name, {})
        self._count_checked(credentials, -1)
        if old := credentials.pop(mechanism, None):
            self._kinds[mechanism].add(kind_of(old.salt, old.iterations), -1)
        if credential is not None:
            credentials[mechanism] = credential
            self._kinds[mechanism].add(kind_of(credential.salt, credential.iterations), 1)
        self._count_checked(credentials, 1)
        if not credentials:
            del self._by_name[name]

    def _count_checked(self, credentials: dict[Mechanism, ScramCredential], count: int) -> None:
        """Add `count` (1 or -1) to the number of users whose plain password is checked by the mechanism of this user. A
        user without credentials is not counted.
        """
        if checked := _credential_to_check(credentials):
            self._checked_by[checked.mechanism] += count

    def _draw_mechanism(self, name: str) -> Mechanism:
        """Choose a mechanism for an unknown user's name. Each is chosen as often as existing users have it."""
        drawn = int.from_bytes(hmac.digest(self.secret, f"mechanism {name}".encode(), "sha256")[:7]) / (1 << 56)
        by_256 = self._checked_by[Mechanism.SHA_256]
        by_512 = self._checked_by[Mechanism.SHA_512]
        return Mechanism.SHA_512 if drawn * (by_256 + by_512) < by_512 else Mechanism.SHA_256

    def _decoy(self, name: str, mechanism: Mechanism) -> ScramCredential:
        """Return a decoy: a credential that matches no password. The same name always gets the same one."""
        known = f"{mechanism.sasl_name} {name}".encode()
        seed, stored_key, server_key = (
            hmac.digest(self.secret, known + bytes([number]), "sha512") for number in range(3)
        )
        salt, iterations = self._kinds[mechanism].decoy(seed)
        size = mechanism.bits // 8
        return ScramCredential(mechanism, salt, iterations, stored_key[:size], server_key[:size])


def _credential_to_check(credentials: dict[Mechanism, ScramCredential]) -> ScramCredential | None:
    """Return the credential against which a user's plain password is checked: that for SHA-256, if there is one. None
    without credentials.
    """
    return credentials.get(Mechanism.SHA_256) or credentials.get(Mechanism.SHA_512)


# ---- records -----------------------------------------------------------------------------------------------------


def credential_set(name: str, credential: ScramCredential) -> Change:
    """Return the record that sets a user's credential for its mechanism."""
    _, *fields = credential
    return _pack([USER, name, int(credential.mechanism)]), _pack([RECORD_VERSION, *fields])


def credential_removed(name: str, mechanism: Mechanism) -> Change:
    """Return the record that removes a user's credential for this mechanism."""
    return _pack([USER, name, int(mechanism)]), None


def secret_set(secret: bytes) -> Change:
    """Return the record that sets the secret from which decoys are derived."""
    return _pack([SECRET]), _pack([RECORD_VERSION, secret])


def _pack(fields: list[Any]) -> bytes:
    """Encode a key or value of the log as a msgpack list."""
    packed: bytes = msgpack.packb(fields)
    return packed


def _user_of(fields: list[Any]) -> tuple[str, Mechanism]:
    """Decode user name and mechanism of a record's key. Raises DamagedUserRecord."""
    match fields:
        case [str(name), int(code)] if code in list(Mechanism):
            return name, Mechanism(code)
    raise DamagedUserRecord("the user has no name, or a mechanism that is not known")


def _credential_of(mechanism: Mechanism, value: bytes) -> ScramCredential:
    """Decode a credential. Raises DamagedUserRecord, NewerUserRecord."""
    credential = ScramCredential(mechanism, *_fields(value, (bytes, int, bytes, bytes)))
    size = mechanism.bits // 8
    if not LEAST_ITERATIONS <= credential.iterations <= MAX_ITERATIONS:
        raise DamagedUserRecord(
            f"a credential has {credential.iterations} iterations, {LEAST_ITERATIONS} to {MAX_ITERATIONS} are allowed"
        )
    if (len(credential.stored_key), len(credential.server_key)) != (size, size):
        raise DamagedUserRecord(f"the keys of a credential do not have the {size} bytes of {mechanism.sasl_name}")
    return credential


def _fields(value: bytes, types: tuple[type, ...]) -> list[Any]:
    """Decode the fields of a record's value, without its version. They must have these types.

    Raises DamagedUserRecord, NewerUserRecord, whose texts quote nothing of the value, because it is secret.
    """
    version, *fields = unpack_list(value, DamagedUserRecord)
    if isinstance(version, int) and version > RECORD_VERSION:
        raise NewerUserRecord(f"version {version}, where {RECORD_VERSION} is known")
    if version != RECORD_VERSION or list(map(type, fields)) != list(types):
        raise DamagedUserRecord("the fields of the record are not as this broker writes them")
    return fields
