"""The list of all routes, from the modules that handle them, and the OpenAPI document of them."""

import functools
from typing import Any

from ..asked import Asked
from ..rest import (
    about,
    actions,
    clients,
    clusters,
    groups,
    scraping,
    sessions,
    share_groups,
    streaming,
    topics,
    transactions,
)
from ..routes import OPEN, Route
from .openapi import document


async def openapi(asked: Asked) -> dict[str, Any]:
    """Handle GET /openapi.json."""
    return _document(asked.parts.version, asked.parts.guard.cookie)


@functools.cache
def _document(version: str, cookie: str) -> dict[str, Any]:
    """Return the OpenAPI document as JSON. cookie: the name of the session's cookie."""
    return document(routes(), version, cookie)


_DOCUMENT = Route("GET", "/openapi.json", openapi, "This document", "OpenApi", OPEN)


def routes() -> tuple[Route, ...]:
    """Return all routes, in the order of /openapi.json."""
    of_the_cluster = (
        *clusters.ROUTES,
        *topics.ROUTES,
        *groups.ROUTES,
        *share_groups.ROUTES,
        *transactions.ROUTES,
        *actions.ROUTES,
    )
    of_the_console = (*about.ROUTES, *scraping.ROUTES, *sessions.ROUTES, *streaming.ROUTES, _DOCUMENT)
    return (*of_the_console, *of_the_cluster, *clients.ROUTES)
