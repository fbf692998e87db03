"""Which clients are connected. This is an API of fencepost's own, so for another broker the answer is an error that
says so.
"""

from typing import Any

from ..asked import Asked
from ..http.parameters import CONTAINS, PAGING
from ..routes import Route
from .listing import matching, page
from .places import cluster_id, link_of


async def clients(asked: Asked) -> dict[str, Any]:
    """Handle GET …/clients: a page of connected clients, those with most requests first."""
    await cluster_id(asked)
    found = await (await asked.admin()).describe_clients()
    shown = matching(found, asked.query["contains"], lambda each: f"{each.client_id or ''} {each.host}")
    return page(
        "KafkaClientList",
        link_of(asked),
        asked.query,
        shown,
        lambda each: (-each.requests, each.client_id or "", each.host, each.listener, each.principal, each.software),
        lambda each: {"kind": "KafkaClient", **each._asdict()},
    )


ROUTES = (
    Route(
        "GET",
        "/v3/clusters/{cluster_id}/clients",
        clients,
        "Connected clients, the busiest first",
        "ClientList",
        query=(CONTAINS, *PAGING),
    ),
)
