"""Health of the console itself: whether it runs, and whether its broker answers."""

from typing import Any

from aiohttp import web

from ...client.errors import KafkaError
from ..asked import Asked
from ..routes import OPEN, Route

STORE_AWAY_S = 5.0


async def healthy(asked: Asked) -> dict[str, Any]:
    """Handle GET /healthz: the console runs, whatever its broker does."""
    return {"status": "ok"}


async def ready(asked: Asked) -> web.Response:
    """Handle GET /readyz: status 200 if the broker answers, else 503 with the reasons. It needs no login, so it shows
    no address and no full error.
    """
    reasons: list[str] = []
    parts = asked.parts
    try:
        cluster = await parts.cluster()
        if cluster.controller < 0:
            reasons.append("the cluster has no controller")
        silence_s = await parts.store_silence_s()
        if silence_s > STORE_AWAY_S:
            reasons.append(
                f"the object store does not do what the broker asks, since {silence_s:.0f} s: nothing is acknowledged, "
                "and the broker's log says why"
            )
    except KafkaError as error:
        reasons.append(f"the broker does not answer: {error.code.name}")
        if parts.waits_for and not parts.has_answered:
            reasons.append(f"it may wait {parts.waits_for}, as its log says")
    return web.json_response({"ready": not reasons, "reasons": reasons}, status=503 if reasons else 200)


ROUTES = (
    Route("GET", "/healthz", healthy, "Whether this console lives", "Health", OPEN),
    Route("GET", "/readyz", ready, "Whether its broker answers, and else why not", "Readiness", OPEN),
)
