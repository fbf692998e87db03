"""The login of the pages: what a session may do, the exchange of the token for a cookie, and the logout.

The cookie is HttpOnly, so no script reads it, and SameSite=Strict, so no other site's page sends it.
"""

import logging
from typing import Any

from aiohttp import web

from ...client.errors import KafkaError
from ..asked import Asked
from ..http.guard import LONGEST_TOKEN, SESSION_MS
from ..http.schemas import fields
from ..routes import LOGIN, OPEN, Route

log = logging.getLogger(__name__)


async def show(asked: Asked) -> dict[str, Any]:
    """Handle GET /v1/session: whether a login is needed, and what this session may do."""
    return await _facts(asked, asked.session)


async def _facts(asked: Asked, session: str | None) -> dict[str, Any]:
    """Return what a page needs to know about its session: CSRF token, cluster and rights. session: its id, None
    without one.
    """
    guard = asked.parts.guard
    csrf = guard.csrf_of(session, asked.now_ms)
    return {
        "login_required": guard.login_required,
        "logged_in": csrf is not None,
        "csrf_token": csrf,
        "changes_allowed": guard.changes_allowed,
        "changes_hint": None if guard.changes_allowed else guard.changes_hint or None,
        "cluster_id": await _cluster_id(asked) if csrf is not None else None,
        "bootstrap": asked.parts.bootstrap if csrf is not None else None,
        "version": asked.parts.version,
    }


async def _cluster_id(asked: Asked) -> str | None:
    """Return the cluster's id; None if the broker does not answer."""
    try:
        return (await asked.parts.cluster()).cluster_id
    except KafkaError:
        return None


async def begin(asked: Asked) -> web.Response:
    """Handle POST /v1/session: log in with the console's token and set the session cookie. Raises Problem if the token
    is wrong.
    """
    session = asked.parts.guard.log_in(asked.body["token"], asked.address, asked.now_ms)
    log.info("a login from %s", asked.address)
    response = web.json_response(await _facts(asked, session))
    response.set_cookie(
        asked.parts.guard.cookie,
        session,
        path="/",
        httponly=True,
        samesite="Strict",
        max_age=SESSION_MS // 1000,
        secure=False,
    )
    return response


async def end(asked: Asked) -> web.Response:
    """Handle DELETE /v1/session: log out and delete the session cookie."""
    asked.parts.guard.log_out(asked.session)
    response = web.Response(status=204)
    response.del_cookie(asked.parts.guard.cookie, path="/")
    return response


_TOKEN = fields({"token": {"type": "string", "maxLength": LONGEST_TOKEN}})

ROUTES = (
    Route("GET", "/v1/session", show, "Whether a login is needed, and what this one may do", "Session", OPEN),
    Route("POST", "/v1/session", begin, "Log in: exchange the token for a cookie", "Session", OPEN, body=_TOKEN),
    Route("DELETE", "/v1/session", end, "Log out", "", LOGIN),
)
