"""One request, as handlers see it: checked names, parameters and body, and the parts of the console."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from aiohttp import web

if TYPE_CHECKING:
    from ..client.admin.admin import Admin
    from .parts import Parts


class Asked(NamedTuple):
    """One HTTP request as a handler sees it. names: the parts of the path, such as topic_name, decoded. query: the
    query parameters, checked and converted, with defaults. given: the query parameters as they were sent. body: the
    parsed JSON; None if the route takes none.
    """

    parts: "Parts"
    request: web.Request
    names: Mapping[str, str]
    query: Mapping[str, Any]
    given: Mapping[str, str]
    body: Any

    async def admin(self) -> "Admin":
        """Return the console's Admin. Raises KafkaError."""
        return await self.parts.connecting.admin()

    @property
    def address(self) -> str:
        """Return the address of the client, or of the proxy that it connects through."""
        return self.request.remote or ""

    @property
    def session(self) -> str | None:
        """Return the session id in the request's cookie; None without one. A session of that id need not exist."""
        return self.request.cookies.get(self.parts.guard.cookie)

    @property
    def now_ms(self) -> int:
        """Return the time in ms by a clock that is never set back, for logins."""
        return self.parts.clock.monotonic_ms()
