"""The login of a connection: which SASL request is allowed when, the responses, and how long a session lasts. Pure.

The rules: SaslHandshake (v1) chooses a mechanism, and SaslAuthenticate carries the mechanism's messages. A request that
is out of order ends the login. A session lasts as long as the listener and the credential allow. Before it ends, the
client logs in again, with the same mechanism and as the same user (KIP-368). Where Kafka closes the connection without
a response, this broker responds with the reason.

Sources: KIP-43, KIP-152, KIP-368; asked of Apache Kafka 4.3.1.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from ...protocol.errors import ErrorCode
from ...protocol.messages.security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from .principals import USER
from .sasl import WRONG_PASSWORD, Challenge, Exchange, LoginFailed, PasswordCheck, Success

IN_KAFKA_FRAMES = 1  # from this version of SaslHandshake on, SASL messages are sent as SaslAuthenticate requests
LEAST_BETWEEN_MS = 1_000  # the shortest time between two renewals
MAX_REQUESTS = 20  # until the client is known
NOT_NOW = "SaslAuthenticate request received after successful authentication"


@dataclass(frozen=True, slots=True)
class LoginRules:
    """What a listener requires of a login. begin: starts the exchange of a mechanism, by its name.

    max_reauth_ms: after this time the client must log in again; 0: only when its credential expires.
    """

    mechanisms: tuple[str, ...]
    begin: Callable[[str], Exchange]
    max_reauth_ms: int = 0


class Times(NamedTuple):
    """The present time in ms, by the wall clock and the monotonic clock."""

    wall_ms: int
    monotonic_ms: int


class Phase(Enum):
    """How far a login has come."""

    UNKNOWN = "no login has begun"
    EXCHANGE = "a mechanism's messages go back and forth"
    KNOWN = "it is known who this is"
    FAILED = "it could not prove who it is"


class Reply(NamedTuple):
    """A response of the login. ends: whether the login has failed, so that the connection is closed after this
    response.

    Such a response is sent with a delay, to slow down guessing.
    """

    response: Any
    ends: bool = False


class Login:
    """The login of one connection.

    name: the user's, None before success. expires_ms: the end of the session, by the monotonic clock; None if it does
    not expire.
    """

    __slots__ = (
        "_begun_ms",
        "_check",
        "_exchange",
        "_renewed",
        "_requests",
        "_rules",
        "expires_ms",
        "mechanism",
        "name",
        "phase",
    )

    def __init__(self, rules: LoginRules) -> None:
        self.phase = Phase.UNKNOWN
        self.name: str | None = None
        self.mechanism = ""
        self.expires_ms: int | None = None
        self._rules = rules
        self._exchange: Exchange | None = None
        self._check: PasswordCheck | None = None
        self._begun_ms = 0  # when the last renewal began
        self._renewed = False
        self._requests = 0

    @property
    def is_renewable(self) -> bool:
        """Whether the session expires, so that the client may log in again."""
        return self.expires_ms is not None

    def is_expired(self, monotonic_ms: int) -> bool:
        return self.expires_ms is not None and monotonic_ms >= self.expires_ms

    def admits_another(self) -> bool:
        """Count a request that came before the login has succeeded. Returns False if there were too many."""
        self._requests += 1
        return self._requests <= MAX_REQUESTS

    # ---- the requests ----------------------------------------------------------------------------------------

    def handshake(self, request: SaslHandshakeRequest, version: int, now: Times) -> Reply:
        """Handle SaslHandshake, by which the client chooses a mechanism. Returns the reply, which may end the login."""
        if self.phase not in (Phase.UNKNOWN, Phase.KNOWN):
            return self._fail_handshake(ErrorCode.ILLEGAL_SASL_STATE, ())
        if self.phase is Phase.KNOWN and not self._may_renew(now):
            return Reply(SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[]))
        offered = self._rules.mechanisms if self.name is None else (self.mechanism,)
        if version < IN_KAFKA_FRAMES or request.mechanism not in offered:
            return self._fail_handshake(ErrorCode.UNSUPPORTED_SASL_MECHANISM, offered)
        self.mechanism = request.mechanism
        self._exchange = self._rules.begin(request.mechanism)
        self.phase = Phase.EXCHANGE
        return Reply(SaslHandshakeResponse(mechanisms=list(offered)))

    def authenticate(self, request: SaslAuthenticateRequest, now: Times) -> Reply | PasswordCheck:
        """Handle SaslAuthenticate, the client's next message.

        Returns the response, or a PasswordCheck that the caller runs before it calls conclude().
        """
        if self.phase is Phase.KNOWN:
            response = SaslAuthenticateResponse(
                error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=NOT_NOW, auth_bytes=b""
            )
            return Reply(response)
        exchange = self._exchange
        if exchange is None or self._check is not None:
            return self._fail("SaslAuthenticate request received before a handshake", ErrorCode.ILLEGAL_SASL_STATE)
        try:
            outcome = exchange.receive(bytes(request.auth_bytes), now.wall_ms)
        except LoginFailed as error:
            return self._fail(str(error))
        if isinstance(outcome, Challenge):
            return Reply(_response(outcome.message))
        if isinstance(outcome, PasswordCheck):
            self._check = outcome
            return outcome
        return self._succeed(outcome, now)

    def conclude(self, is_right: bool, now: Times) -> Reply:
        """Finish a login for which authenticate() returned a PasswordCheck. is_right: the result of that check."""
        check, self._check = self._check, None
        assert check is not None
        return self._succeed(check.success, now) if is_right else self._fail(WRONG_PASSWORD)

    # ---- what comes of them ----------------------------------------------------------------------------------

    def _may_renew(self, now: Times) -> bool:
        """Return whether the client may log in again now, and note the time if so. It may not soon after the last
        login, because a check takes milliseconds of CPU.
        """
        if not self.is_renewable or (self._renewed and now.monotonic_ms - self._begun_ms < LEAST_BETWEEN_MS):
            return False
        self._renewed, self._begun_ms = True, now.monotonic_ms
        return True

    def _succeed(self, success: Success, now: Times) -> Reply:
        """Note the authenticated user and when the session expires. Returns the reply.

        The reply is a refusal if a renewal names another user, or the credential has expired.
        """
        who = success.identity
        if self.name is not None and who.name != self.name:
            text = f"Cannot change principals during re-authentication from {USER}.{self.name}: {USER}.{who.name}"
            return self._fail(text)
        lifetime_ms = self._rules.max_reauth_ms or None
        if who.expires_ms is not None:
            left_ms = who.expires_ms - now.wall_ms
            if left_ms <= 0:
                return self._fail("")
            lifetime_ms = left_ms if lifetime_ms is None else min(left_ms, lifetime_ms)
        self.name, self.phase, self._exchange = who.name, Phase.KNOWN, None
        self.expires_ms = None if lifetime_ms is None else now.monotonic_ms + lifetime_ms
        return Reply(_response(success.message, lifetime_ms or 0))

    def _fail(self, text: str, code: ErrorCode = ErrorCode.SASL_AUTHENTICATION_FAILED) -> Reply:
        """End the login. Returns the reply with this error text; if it is empty, with Kafka's text for invalid
        credentials.
        """
        when = "authentication" if self.name is None else "re-authentication"
        text = text or (
            f"Authentication failed during {when} due to invalid credentials with SASL mechanism {self.mechanism}"
        )
        self._end()
        return Reply(SaslAuthenticateResponse(error_code=code, error_message=text, auth_bytes=b""), ends=True)

    def _fail_handshake(self, code: ErrorCode, offered: tuple[str, ...]) -> Reply:
        """End the login. Returns the reply to SaslHandshake. offered: the mechanisms to name in it."""
        self._end()
        return Reply(SaslHandshakeResponse(error_code=code, mechanisms=list(offered)), ends=True)

    def _end(self) -> None:
        """End the login as failed, and drop its exchange."""
        self.phase, self._exchange, self._check = Phase.FAILED, None, None


def _response(message: bytes, lifetime_ms: int = 0) -> SaslAuthenticateResponse:
    """Return a SaslAuthenticate response without an error. lifetime_ms: after which the client must log in again; 0:
    never.
    """
    return SaslAuthenticateResponse(error_message="", auth_bytes=message, session_lifetime_ms=lifetime_ms)
