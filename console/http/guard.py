"""Who may send requests to the console: hosts, origins, the token, sessions and their CSRF tokens. Pure.

The rule: a page of another site can read nothing and change nothing. A request must name a host that is this console
(otherwise a name of the attacker's could lead here: DNS rebinding); its origin, if it has one, must be that same host;
a change needs JSON and a token that only the console's own pages can read. The login token is compared in constant
time, and never part of a URL: it is exchanged for a cookie, or sent as a Bearer token by scripts.

Source: OWASP's cheat sheets on CSRF and session management; Fetch Metadata (W3C) for Sec-Fetch-Site.
"""

import hashlib
import hmac
import ipaddress
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from .problems import CHANGES_REFUSED, NOT_FROM_HERE, NOT_JSON, NOT_LOGGED_IN, Problem
from .tries import Tries

COOKIE = "fencepost_session"  # and its port: browsers send a cookie to all ports of a host
CSRF_HEADER = "X-CSRF-Token"
MAX_SESSIONS = 1_000  # the one that was not used for longest ends
SESSION_MS = 12 * 3_600_000  # without a request
LEAST_TOKEN_CHARS = 16
LONGEST_TOKEN = 1_024
_LOCAL = frozenset({"localhost", "localhost.localdomain", "ip6-localhost"})

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; font-src 'self';"
        " worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Server": "fencepost",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
"""The headers of every answer, including refusals."""


def is_loopback(host: str) -> bool:
    """Return whether only this machine can connect to a server that listens there."""
    if host in _LOCAL:
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def host_name(host: str) -> str:
    """Return the name or address in a Host header, without the port, in lower case."""
    text = host.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.rpartition(":")[0] if ":" in text else text


@dataclass(slots=True)
class _Session:
    csrf: str
    used_ms: int


class Guard:
    """The rules for one console.

    token: with which people and scripts log in; None: no login. hosts: names besides localhost and addresses that a
    Host header may contain. new_secret: returns an unguessable text. log: called with a line about wrong tokens,
    rarely.
    """

    def __init__(
        self,
        token: str | None,
        hosts: Collection[str],
        new_secret: Callable[[], str],
        *,
        changes_allowed: bool,
        changes_hint: str = "",
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._token = None if token is None else _digest(token)
        self._hosts = frozenset(each.lower() for each in hosts) | _LOCAL
        self._new_secret = new_secret
        self._csrf_without_login = new_secret()
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._tries = Tries(log)
        self.cookie = COOKIE  # the name of the session's cookie
        self.changes_allowed = changes_allowed
        self.changes_hint = changes_hint

    @property
    def login_required(self) -> bool:
        """Return whether this console has a token, so that users must log in."""
        return self._token is not None

    def serve_at(self, port: int) -> None:
        """Put the port that this console listens on into the cookie's name, so that consoles on one host do not share
        sessions.
        """
        self.cookie = f"{COOKIE}_{port}"

    def check_host(self, headers: Mapping[str, str]) -> None:
        """Raise Problem unless the Host header names this console and the request does not come from a page of another
        site.

        A Host that is an IP address is always accepted: an attacker can make only a name resolve to this machine.
        """
        host = headers.get("Host", "")
        name = host_name(host)
        if name not in self._hosts and not _is_address(name):
            hint = "--http-host NAME allows a name; localhost and addresses always are"
            raise Problem(NOT_FROM_HERE, f"this console is not called {name[:100]!r}", hint)
        origin = headers.get("Origin")
        if origin is not None and origin.partition("://")[2].lower() != host.strip().lower():
            raise Problem(NOT_FROM_HERE, "the request comes from a page of another site")
        if headers.get("Sec-Fetch-Site") == "cross-site" and headers.get("Sec-Fetch-Mode") != "navigate":
            raise Problem(NOT_FROM_HERE, "the request comes from a page of another site")

    # ---- logins --------------------------------------------------------------------------------------------------

    def log_in(self, token: str, address: str, now_ms: int) -> str:
        """Check the token and begin a session. Returns the session's id, for the cookie. Raises Problem if the token
        is wrong, or after too many wrong ones from this address. Beyond MAX_SESSIONS the session that was used least
        recently ends.
        """
        self._check_token(token, address, now_ms)
        session = self._new_secret()
        self._sessions[session] = _Session(self._new_secret(), now_ms)
        if len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return session

    def log_out(self, session: str | None) -> None:
        """End the session, if there is one of this id."""
        if session is not None:
            self._sessions.pop(session, None)

    def csrf_of(self, session: str | None, now_ms: int) -> str | None:
        """Return the CSRF token that requests for changes must contain, and note that the session is in use. None if
        there is no such session, or it was not used for SESSION_MS. Without a login, all requests have the same token.
        """
        if self._token is None:
            return self._csrf_without_login
        found = self._sessions.get(session or "")
        if found is None or now_ms - found.used_ms > SESSION_MS:
            self.log_out(session)
            return None
        found.used_ms = now_ms
        self._sessions.move_to_end(session or "")
        return found.csrf

    def check_login(self, headers: Mapping[str, str], session: str | None, address: str, now_ms: int) -> None:
        """Raise Problem if a login is needed and the request has neither a valid session nor the token in its
        Authorization header. address: the client's.
        """
        if self.csrf_of(session, now_ms) is not None:
            return
        token = _bearer_of(headers)
        if token is None:
            raise Problem(NOT_LOGGED_IN, "log in first", "POST /v1/session, or send Authorization: Bearer TOKEN")
        self._check_token(token, address, now_ms)

    def _check_token(self, token: str, address: str, now_ms: int) -> None:
        """Raise Problem if the token is wrong, or this address sent too many wrong ones."""
        self._tries.check(address, now_ms)
        if not self._is_token(token):
            self._tries.add(address, now_ms)
            raise Problem(NOT_LOGGED_IN, "that is not the token", "it is in the file of --http-token-file")

    def check_form(self, headers: Mapping[str, str], session: str | None, now_ms: int, *, with_csrf: bool) -> None:
        """Raise Problem unless the body is JSON and, if with_csrf, was sent by this console's own pages or by a script:
        the request must have the session's CSRF token in a header, or the login token in the Authorization header.

        To be called after check_login.
        """
        if headers.get("Content-Type", "").partition(";")[0].strip().lower() != "application/json":
            raise Problem(NOT_JSON, "the body must be JSON", "send Content-Type: application/json")
        token = _bearer_of(headers)
        if not with_csrf or (token is not None and self._is_token(token)):
            return
        expected, given = self.csrf_of(session, now_ms), headers.get(CSRF_HEADER, "")
        if expected is None or not hmac.compare_digest(expected.encode(), given.encode("utf-8", "replace")):
            raise Problem(NOT_FROM_HERE, f"{CSRF_HEADER} is missing or wrong", "GET /v1/session returns it")

    def check_changes(self) -> None:
        """Raise Problem if this console is read-only."""
        if not self.changes_allowed:
            raise Problem(CHANGES_REFUSED, "this console is read-only", self.changes_hint or None)

    def _is_token(self, token: str) -> bool:
        """Return whether this is the token. Takes constant time: digests of the same length are compared."""
        if self._token is None or len(token) > LONGEST_TOKEN:
            return False
        return hmac.compare_digest(self._token, _digest(token))


def _bearer_of(headers: Mapping[str, str]) -> str | None:
    """Return the token in the Authorization header; None if there is none."""
    scheme, _, token = headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _digest(token: str) -> bytes:
    """Return the SHA-256 of a token. Any text has one, also text that is not valid Unicode."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _is_address(name: str) -> bool:
    """Return whether the name is an IP address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
