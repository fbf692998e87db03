"""The broker's side of the SASL mechanisms PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER. Pure.

The rules: an exchange consists of two messages at most. A client that fails learns no more than from Kafka, and the
same whether the user exists or not. A client that asks to act as somebody else is refused. No error text contains
anything that the client has sent. A password is checked elsewhere, because that takes milliseconds. SCRAM's last
message is checked completely: channel binding, nonce and proof.

Sources: RFC 4616, RFC 5802, RFC 7628, KIP-43, KIP-84, KIP-255; CVE-2024-56128; texts asked of Kafka 4.3.1.
"""

import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import NamedTuple, Protocol

from .credentials import Mechanism, ScramCredential, ScramUsers

PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"
SCRAM = {mechanism.sasl_name: mechanism for mechanism in Mechanism}
MECHANISMS = (PLAIN, *SCRAM, OAUTHBEARER)

NONCE_BYTES = 24
OTHER_IDENTITY = "Authentication failed: Client requested an authorization id that is different from username"
WRONG_PASSWORD = "Authentication failed: Invalid username or password"
INVALID_TOKEN = '{"status":"invalid_token"}'


class LoginFailed(Exception):
    """Raised to refuse a login. Its text is sent to the client; by default, that the credentials are wrong."""


class Identity(NamedTuple):
    """The user who logged in. expires_ms: wall time until which the credential is valid; None: without limit."""

    name: str
    expires_ms: int | None = None


class Challenge(NamedTuple):
    """A message to send to the client, which will answer it."""

    message: bytes


class Success(NamedTuple):
    """The last message to send to the client, and who the client is."""

    message: bytes
    identity: Identity


class PasswordCheck(NamedTuple):
    """A password check that the caller must still run, because it takes milliseconds. success: the outcome if the
    password is right.
    """

    credential: ScramCredential
    password: bytes
    success: Success

    def __repr__(self) -> str:
        return "PasswordCheck()"

    def run(self) -> bool:
        """Return whether the password is right. Takes milliseconds; may run in any thread."""
        return self.credential.is_made_from(self.password)


Outcome = Challenge | Success | PasswordCheck


class Exchange(Protocol):
    """One client's login by one mechanism."""

    def receive(self, message: bytes, now_ms: int) -> Outcome:
        """Handle the client's next message. Returns a Challenge to send, a PasswordCheck to run, or a Success; raises
        LoginFailed. No message may follow a Success or an error.
        """
        ...


class TokenRefused(Exception):
    """Raised for a refused token. The text says why, for the broker's log, without any part of the token."""


Verify = Callable[[str, int], Identity]
"""Verifies a token at a wall time and returns its user. Raises TokenRefused."""


class PlainExchange(Exchange):
    """The PLAIN mechanism (RFC 4616): name and password in one message."""

    def __init__(self, users: ScramUsers) -> None:
        self._users = users

    def receive(self, message: bytes, now_ms: int) -> Outcome:
        """Return the check of the password in the client's only message. Raises LoginFailed."""
        if (tokens := message.count(b"\0") + 1) != 3:
            raise LoginFailed(f"Invalid SASL/PLAIN response: expected 3 tokens, got {tokens}")
        identity, user, password = message.split(b"\0")
        if not user:
            raise LoginFailed("Authentication failed: username not specified")
        if not password:
            raise LoginFailed("Authentication failed: password not specified")
        if identity and identity != user:
            raise LoginFailed(OTHER_IDENTITY)
        try:
            name = user.decode()
        except UnicodeDecodeError:
            raise LoginFailed(WRONG_PASSWORD) from None
        return PasswordCheck(self._users.any_or_decoy(name), password, Success(b"", Identity(name)))


# RFC 5802, section 7. A value is anything but NUL and comma; a name has its commas and equals signs escaped.
_GS2 = rb"(?P<gs2>[ny],(?:a=(?P<identity>[^\0,]+))?,)"
_MORE = rb"(?:,[A-Za-z]+=[^\0,]+)*"
_NONCE = rb"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = rb"[A-Za-z0-9+/]+={0,2}"
_FIRST = re.compile(_GS2 + rb"(?P<bare>n=(?P<name>[^\0,]+),r=(?P<nonce>" + _NONCE + rb")(?P<more>" + _MORE + rb"))")
_FINAL = re.compile(
    rb"(?P<unproved>c=(?P<binding>" + _BASE64 + rb"),r=(?P<nonce>" + _NONCE + rb")" + _MORE + rb"),"
    rb"p=(?P<proof>" + _BASE64 + rb")"
)
_BY_TOKEN = b",tokenauth=true"  # KIP-48's delegation tokens, of which there are none here
LONGEST_SCRAM_MESSAGE = 16 << 10
LONGEST_BEARER_MESSAGE = 32 << 10  # web servers take tokens of 8 to 32 KiB; more would be long work on the loop


def fresh_nonce(random: bytes) -> bytes:
    """Make a nonce. random: NONCE_BYTES unguessable bytes that are used only once."""
    return b64encode(random)


class ScramExchange(Exchange):
    """The SCRAM mechanisms (RFC 5802): each side proves that it knows the password, or what is derived from it."""

    def __init__(self, users: ScramUsers, mechanism: Mechanism, nonce: bytes) -> None:
        """nonce: the broker's part of the exchange's nonce, made by fresh_nonce()."""
        self._users = users
        self._mechanism = mechanism
        self._our_nonce = nonce
        self._identity = Identity("")
        self._credential: ScramCredential | None = None
        self._binding = b""
        self._nonce = b""
        self._exchanged = b""  # SCRAM's AuthMessage so far: the messages of both sides

    def receive(self, message: bytes, now_ms: int) -> Outcome:
        """Handle the client's first message, then its final one. Raises LoginFailed."""
        if len(message) > LONGEST_SCRAM_MESSAGE:
            raise LoginFailed
        return self._first(message) if self._credential is None else self._final(message, self._credential)

    def _first(self, message: bytes) -> Challenge:
        """Parse the client's first message. Returns the challenge. Raises LoginFailed."""
        found = _FIRST.fullmatch(message)
        if found is None:
            raise LoginFailed
        name = _unescape(found["name"])
        if found["identity"] is not None and _unescape(found["identity"]) != name:
            raise LoginFailed(OTHER_IDENTITY)
        if _BY_TOKEN in found["more"]:
            raise LoginFailed
        self._identity = Identity(name)
        self._credential = credential = self._users.find_or_decoy(name, self._mechanism)
        self._binding, self._nonce = found["gs2"], found["nonce"] + self._our_nonce
        salt = b64encode(credential.salt)
        answer = b"r=%b,s=%b,i=%d" % (self._nonce, salt, credential.iterations)
        self._exchanged = found["bare"] + b"," + answer
        return Challenge(answer)

    def _final(self, message: bytes, credential: ScramCredential) -> Success:
        """Check the client's proof. Returns the server's signature. Raises LoginFailed."""
        found = _FINAL.fullmatch(message)
        if found is None or _decode(found["binding"]) != self._binding:
            raise LoginFailed
        if not hmac.compare_digest(found["nonce"], self._nonce):
            raise LoginFailed
        auth_message = self._exchanged + b"," + found["unproved"]
        if not credential.proves(auth_message, _decode(found["proof"])):
            raise LoginFailed
        return Success(b"v=" + b64encode(credential.signature(auth_message)), self._identity)


def _unescape(name: bytes) -> str:
    """Decode the escapes =2C and =3D in a name. Raises LoginFailed for any other equals sign."""
    if re.search(rb"=(?!2C|3D)", name):
        raise LoginFailed
    try:
        return name.replace(b"=2C", b",").replace(b"=3D", b"=").decode()
    except UnicodeDecodeError:
        raise LoginFailed from None


def _decode(base64: bytes) -> bytes:
    """Decode base64 strictly. Raises LoginFailed for any text that an encoder would not produce."""
    try:
        decoded = b64decode(base64, validate=True)
    except ValueError:
        raise LoginFailed from None
    if b64encode(decoded) != base64:
        raise LoginFailed
    return decoded


# RFC 7628, section 3.1: pairs between bytes of 1; the token is in the one that is called auth.
_BEARER = re.compile(
    rb"n,(?:a=(?P<identity>[^\0,]+))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x20-\x7e\t\r\n]*\x01){0,20})\x01", re.DOTALL
)
_TOKEN = re.compile(rb"bearer +(?P<token>[-_.A-Za-z0-9]+) *", re.IGNORECASE)


class BearerExchange(Exchange):
    """The OAUTHBEARER mechanism (RFC 7628): a token that an identity provider has signed."""

    def __init__(self, verify: Verify, refused: Callable[[str], None]) -> None:
        """refused: called with the reason why a token is refused, which is not sent to the client."""
        self._verify = verify
        self._refused = refused
        self._has_failed = False

    def receive(self, message: bytes, now_ms: int) -> Outcome:
        """Verify the token in the client's message. Raises LoginFailed.

        An invalid token is first answered with a Challenge that contains the error; the client's next message then
        raises LoginFailed.
        """
        if self._has_failed:  # RFC 7628: the client confirms the error with one byte of 1; other bytes change nothing
            raise LoginFailed(INVALID_TOKEN)
        if len(message) > LONGEST_BEARER_MESSAGE:
            self._refused(f"it comes in a message of {len(message)} bytes, more than {LONGEST_BEARER_MESSAGE}")
            raise LoginFailed
        found = _BEARER.fullmatch(message)
        auth = [value for key, _, value in _pairs(found["pairs"]) if key == b"auth"] if found else []
        token = _TOKEN.fullmatch(auth[0]) if len(auth) == 1 else None
        if found is None or token is None:
            raise LoginFailed
        try:
            who = self._verify(token["token"].decode(), now_ms)
        except TokenRefused as error:
            self._refused(str(error))
            self._has_failed = True
            return Challenge(INVALID_TOKEN.encode())
        if found["identity"] is not None and _unescape(found["identity"]) != who.name:
            raise LoginFailed(OTHER_IDENTITY)
        return Success(b"", who)


def _pairs(text: bytes) -> list[tuple[bytes, bytes, bytes]]:
    """Split the message into (key, "=", value), separated by bytes of 1."""
    return [pair.partition(b"=") for pair in text.split(b"\x01") if pair]
