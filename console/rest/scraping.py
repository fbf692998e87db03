"""`/metrics` for Prometheus, which needs the login if there is one. console/metrics.py makes the answer."""

from aiohttp import web

from ..asked import Asked
from ..metrics import METRICS_CONTENT_TYPE
from ..routes import Route


async def metrics(asked: Asked) -> web.Response:
    """Handle GET /metrics: one scrape in Prometheus' text format."""
    return web.Response(body=await asked.parts.scraper.text(), headers={"Content-Type": METRICS_CONTENT_TYPE})


ROUTES = (Route("GET", "/metrics", metrics, "Metrics in the text format of Prometheus", "text/plain"),)
