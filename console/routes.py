"""The table of what the console answers to: method, path, who may ask, parameters, body, and what the answer is.

The rule: the application, /openapi.json and its test are all made from this table. Pure except for its handlers.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from .http.parameters import Parameter

if TYPE_CHECKING:
    from .asked import Asked

OPEN, LOGIN, CHANGE = "open", "login", "change"

Handler = Callable[["Asked"], Awaitable[Any]]


class Route(NamedTuple):
    """path: as OpenAPI writes it. access: OPEN to everybody, after a LOGIN, or a CHANGE of the cluster.

    answer: the name of a schema, or a media type. body: the JSON schema of the request's body.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    answer: str
    access: str = LOGIN
    query: tuple[Parameter, ...] = ()
    body: dict[str, Any] | None = None
