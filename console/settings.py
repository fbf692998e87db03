"""Where a console is served, for whom, and what it may do. Imports no aiohttp, because the broker's process checks the
settings, too.

The rule: an address that other machines can reach is refused without a token, unless the caller insists.
"""

from collections.abc import Collection
from dataclasses import dataclass

from .http.guard import LEAST_TOKEN_CHARS, is_loopback


class BadAddress(Exception):
    """Raised for an address at which the console may not or cannot be served. hint: what to do."""

    def __init__(self, cause: str, hint: str) -> None:
        super().__init__(cause)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """How a console is served. bootstrap: the broker's address, to show it. token: for the login; None: no login.
    hosts: allowed names in Host headers. insecure: allow other machines without a login. changes_hint: how to allow
    changes. waits_for: what the broker may wait for before it answers for the first time; "" for nothing.
    """

    host: str
    port: int
    bootstrap: str
    version: str
    token: str | None = None
    hosts: Collection[str] = ()
    insecure: bool = False
    changes_allowed: bool = False
    changes_hint: str = ""
    waits_for: str = ""

    def check(self) -> None:
        """Raise BadAddress if other machines could connect without a login, or the token is too short."""
        if self.token is None and not self.insecure and not is_loopback(self.host):
            raise BadAddress(
                f"{self.host} is reachable from other machines, and the console asks for no login there",
                "--http-token-file FILE asks for a token; --insecure serves everybody",
            )
        if self.token is not None and len(self.token) < LEAST_TOKEN_CHARS:
            raise BadAddress(
                f"the token is shorter than {LEAST_TOKEN_CHARS} characters",
                "python -c 'import secrets; print(secrets.token_urlsafe())' makes one",
            )
