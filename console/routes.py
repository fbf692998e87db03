"""The type of a route: method, path, who may call it, parameters, body, and what it answers.

The rule: the application, /openapi.json and the test of that are all made from the table of routes. Pure except for its
handlers.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from .http.parameters import Parameter

if TYPE_CHECKING:
    from .asked import Asked

OPEN, LOGIN, CHANGE = "open", "login", "change"

Handler = Callable[["Asked"], Awaitable[Any]]


class Route(NamedTuple):
    """One address of the console. path: as OpenAPI writes it. access: OPEN to everybody, LOGIN to users who are logged
    in, CHANGE if it changes the cluster. summary: its description in the OpenAPI document.

    answer: the name of a schema, or a media type; empty: no body. query: its parameters. body: the JSON schema of the
    request's body.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    answer: str
    access: str = LOGIN
    query: tuple[Parameter, ...] = ()
    body: dict[str, Any] | None = None
