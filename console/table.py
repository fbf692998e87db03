"""All routes, from the modules that answer them."""

from .rest import about, sessions, streaming
from .routes import Route


def routes() -> tuple[Route, ...]:
    """In the order of /openapi.json."""
    return (*about.ROUTES, *sessions.ROUTES, *streaming.ROUTES)
