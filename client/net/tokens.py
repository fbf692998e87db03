"""The tokens of OAUTHBEARER: asked of the application, kept while they are good, asked for again before they end.

The rule: one call at a time for all connections of a client. A function that is not async runs in a thread, since it
may ask a server. A token is in no error, log or repr. Sources: KIP-255, RFC 6750, RFC 7519 (exp).
"""

import asyncio
import inspect
import json
from base64 import urlsafe_b64decode
from collections.abc import Callable
from typing import Any, NamedTuple

from ...effects.clock import Clock
from ...effects.threads import MORE_THREADS, CannotStartThread, call_in_thread
from ..errors import AuthenticationError, BrokerUnreachableError
from ..security import Token

REFRESHED_AT = 0.8  # fraction of a token's life; a session of a broker ends with the token, and is renewed later
_HINT = "sasl_oauth_token_provider returns the token as a str, or (token, lifetime_ms)"


class _Kept(NamedTuple):
    """A token, and until when it is used (monotonic ms)."""

    token: str
    until_ms: float

    def __repr__(self) -> str:
        return "_Kept()"


class TokenSource:
    """The tokens of one client, for all its connections. provider: the application's function, as described in the
    settings.
    """

    def __init__(self, provider: Callable[[], Any], clock: Clock) -> None:
        self._provide = provider
        self._clock = clock
        self._lock = asyncio.Lock()
        self._kept: _Kept | None = None

    async def token(self) -> str:
        """Return a valid token: the last one, or a new one from the application.

        Raises AuthenticationError if the application has none; BrokerUnreachableError if no thread can be started to
        call it.
        """
        async with self._lock:
            kept = self._kept
            if kept is not None and self._clock.monotonic_ms() < kept.until_ms:
                return kept.token
            self._kept = None
            asked_ms = self._clock.monotonic_ms()
            token, lifetime_ms = self._read(await self._ask())
            if lifetime_ms is not None:
                self._kept = _Kept(token, asked_ms + lifetime_ms * REFRESHED_AT)
            return token

    def forget(self) -> None:
        """Drop a token that a broker has refused. The next login gets another."""
        self._kept = None

    async def _ask(self) -> Any:
        """Return what the application's token provider returns; it is called in a thread if it may block."""
        provide = self._provide
        try:
            if inspect.iscoroutinefunction(provide) or inspect.iscoroutinefunction(type(provide).__call__):
                return await provide()
            found = await call_in_thread(provide, "token provider")
            return await found if inspect.isawaitable(found) else found
        except CannotStartThread as error:
            raise BrokerUnreachableError(str(error), hint=MORE_THREADS) from None
        except Exception as error:  # its text may contain a secret, so only its class is shown; the cause has the rest
            raise AuthenticationError(
                f"sasl_oauth_token_provider raised {type(error).__name__}", hint="see its __cause__"
            ) from error

    def _read(self, found: Any) -> tuple[str, float | None]:
        """Return the token in what the provider returned, and for how many ms it is valid; None: not known. Raises
        AuthenticationError.
        """
        match found:
            case Token(str(token), float() | int() as expires_ms):
                return token, expires_ms - self._clock.now_ms()
            case (str(token), float() | int() as lifetime_ms):
                return token, lifetime_ms
            case str(token) if token:
                expiry_ms = _expiry_ms(token)
                return token, None if expiry_ms is None else expiry_ms - self._clock.now_ms()
            case _:
                raise AuthenticationError(f"sasl_oauth_token_provider returned a {type(found).__name__}", hint=_HINT)


def _expiry_ms(token: str) -> float | None:
    """Return the expiry of a JWT, its claim `exp`, in ms since 1970, without checking the signature. None for any
    other token.
    """
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        expires = claims["exp"]
    except (ValueError, KeyError, TypeError):
        return None
    return expires * 1000 if isinstance(expires, int | float) and not isinstance(expires, bool) else None
