"""One request, as handlers see it: checked names, parameters and body, and the parts of the console."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from aiohttp import web

if TYPE_CHECKING:
    from ..client.admin.admin import Admin
    from .parts import Parts


class Asked(NamedTuple):
    """names: of the path. query: by the route's table. given: the query as it came, each name once."""

    parts: "Parts"
    request: web.Request
    names: Mapping[str, str]
    query: Mapping[str, Any]
    given: Mapping[str, str]
    body: Any

    async def admin(self) -> "Admin":
        """Raises KafkaError."""
        return await self.parts.connecting.admin()

    @property
    def address(self) -> str:
        """The client's, or that of the proxy that it comes through."""
        return self.request.remote or ""

    @property
    def session(self) -> str | None:
        """The id in its cookie, which may be of no session."""
        return self.request.cookies.get(self.parts.guard.cookie)

    @property
    def now_ms(self) -> int:
        """The time in ms by a clock that is never set back, for logins."""
        return self.parts.clock.monotonic_ms()
