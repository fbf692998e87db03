"""The aiohttp application: checks every request before its handler, and sets the security headers of every answer.

The rule: no request reaches a handler unchecked, and every answer has the headers, also a refusal or an error. An
exception of a handler is answered as JSON in one shape; one that is a bug is answered as a bug, and logged.
"""

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiohttp import web

from ...client.errors import KafkaError
from ..asked import Asked
from ..http.guard import HEADERS
from ..http.parameters import LONGEST_NAME, name_of, parse
from ..http.problems import (
    BAD_PARAMETER,
    BAD_REQUEST,
    FAILED,
    METHOD,
    NO_ROUTE,
    TIMED_OUT,
    TOO_LARGE,
    Problem,
    problem_of,
)
from ..http.schemas import check_body
from ..parts import Parts
from ..routes import CHANGE, OPEN, Route
from . import static_files
from .table import routes

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 256 << 10  # room for a transactional id of 32,767 characters twice, escaped as JSON
BODY_S = 30.0
MAX_QUERY_CHARS = 80_000  # room for a page token, which contains a name
_NAME, _ANY_NAME = re.compile(r"\{(\w+)\}"), r"{\1:[^/]+}"  # aiohttp's own pattern matches no name with a brace
PARTS = web.AppKey("parts", Parts)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def make_app(parts: Parts) -> web.Application:
    """Make the application. The parts are started and stopped with it."""
    app = web.Application(middlewares=[_answered], client_max_size=MAX_BODY_BYTES)
    app[PARTS] = parts
    files = static_files.read_files()

    async def index(request: web.Request) -> web.Response:
        """Handle GET /: the page."""
        return static_files.answer(files, "index.html", request)

    async def static_file(request: web.Request) -> web.Response:
        """Handle GET /static/{name}: a file of the page."""
        return static_files.answer(files, request.match_info["name"], request)

    app.router.add_get("/", index)
    app.router.add_get("/static/{name:.+}", static_file)
    for route in routes():
        app.router.add_route(route.method, _NAME.sub(_ANY_NAME, route.path), _handler_of(parts, route))
    app.on_shutdown.append(_hang_up)
    app.on_cleanup.append(_end)
    return app


async def _hang_up(app: web.Application) -> None:
    """End the event streams, which never end by themselves, before the server waits for open requests."""
    app[PARTS].hang_up()


async def _end(app: web.Application) -> None:
    """Close the parts when the application ends."""
    await app[PARTS].end()


@web.middleware
async def _answered(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The middleware of all requests: answer the request with the security headers. Its connection counts as busy in
    the connection limits meanwhile.
    """
    parts, connection = request.app[PARTS], request.transport
    if connection is not None:
        parts.connections.begin(connection)
    try:
        response = await _answer(parts, request, handler)
    finally:
        if connection is not None:
            parts.connections.wait(connection)
    if not response.prepared:
        secure(response)
    return response


async def _answer(parts: Parts, request: web.Request, handler: Handler) -> web.StreamResponse:
    """Check host and query, call the handler, and turn any exception into an error answer."""
    try:
        parts.guard.check_host(request.headers)
        if len(request.query_string) > MAX_QUERY_CHARS:
            raise Problem(BAD_PARAMETER, f"the query is longer than {MAX_QUERY_CHARS} characters")
        return await handler(request)
    except Problem as problem:
        return refusal(problem)
    except KafkaError as error:
        return refusal(problem_of(error))
    except TimeoutError:
        return refusal(Problem(TIMED_OUT, "the broker did not answer in time"))
    except web.HTTPException as error:
        response = refusal(_problem_of_http(error))
        if "Allow" in error.headers:
            response.headers["Allow"] = error.headers["Allow"]
        return response
    except Exception:
        log.exception("a bug: %s %s", request.method, request.path)
        return refusal(Problem(FAILED, "the console has a bug; its log says more"))


def secure(response: web.StreamResponse) -> None:
    """Set the security headers that every answer has, and forbid caching unless the answer allows it."""
    response.headers.update(HEADERS)
    response.headers.setdefault("Cache-Control", "no-store")


def _problem_of_http(error: web.HTTPException) -> Problem:
    """Return the problem for an error that aiohttp raised, such as 404."""
    if error.status == 404:
        return Problem(NO_ROUTE, "there is no such address", "/openapi.json lists them")
    if error.status == 405:
        return Problem(METHOD, "this address does not take that method", "/openapi.json lists them")
    if error.status == 413:
        return Problem(TOO_LARGE, f"the body is larger than {MAX_BODY_BYTES} bytes")
    return Problem(error.status * 100 + 1, error.reason)


def refusal(problem: Problem) -> web.Response:
    """Return the response for a problem."""
    return web.json_response(problem.body(), status=problem.status)


def _handler_of(parts: Parts, route: Route) -> Handler:
    """Return the aiohttp handler of a route: it checks login, CSRF token, rights, parameters and body, and calls the
    route's handler.
    """

    async def handle(request: web.Request) -> web.StreamResponse:
        """Check a request as its route demands (login, CSRF token, rights, parameters, body) and call the route's
        handler.
        """
        session = request.cookies.get(parts.guard.cookie)
        now_ms = parts.clock.monotonic_ms()  # not the wall clock, whose steps would end logins
        if route.access != OPEN:
            parts.guard.check_login(request.headers, session, request.remote or "", now_ms)
        body = None
        if route.method in ("POST", "DELETE"):
            parts.guard.check_form(request.headers, session, now_ms, with_csrf=route.access != OPEN)
        if route.access == CHANGE:
            parts.guard.check_changes()
        if route.body is not None:
            body = check_body(route.body, _json(await _body_of(request)))
        names = _names(request.match_info)
        given = dict(reversed(list(request.query.items())))  # of a name that comes twice, the first
        asked = Asked(parts, request, names, parse(route.query, given), given, body)
        answer = await route.handler(asked)
        return answer if isinstance(answer, web.StreamResponse) else web.json_response(answer)

    return handle


async def _body_of(request: web.Request) -> bytes:
    """Return the request's body. Raises Problem if it does not arrive within BODY_S."""
    try:
        async with asyncio.timeout(BODY_S):
            return await request.read()
    except TimeoutError:
        raise Problem(BAD_REQUEST, f"the body did not come within {BODY_S:.0f} s") from None


def _names(found: Mapping[str, str]) -> dict[str, str]:
    """Return the decoded names in the path. Raises Problem for one that Kafka cannot send: it is longer than a string
    of its protocol, or not Unicode.
    """
    for name, text in found.items():
        if len(text) > LONGEST_NAME:
            raise Problem(BAD_PARAMETER, f"{name} is longer than {LONGEST_NAME} characters")
        if any("\ud800" <= each <= "\udfff" for each in text):
            raise Problem(BAD_PARAMETER, f"{name} is not text")
    return {name: name_of(text) for name, text in found.items()}


def _json(raw: bytes) -> Any:
    """Parse a body as JSON. Raises Problem if it is not."""
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        raise Problem(BAD_PARAMETER, "the body is not JSON") from None
