"""All routes, from the modules that answer them."""

from .rest import about, actions, clusters, groups, scraping, sessions, streaming, topics, transactions
from .routes import Route


def routes() -> tuple[Route, ...]:
    """In the order of /openapi.json."""
    of_the_cluster = (*clusters.ROUTES, *topics.ROUTES, *groups.ROUTES, *actions.ROUTES, *transactions.ROUTES)
    return (*about.ROUTES, *scraping.ROUTES, *sessions.ROUTES, *streaming.ROUTES, *of_the_cluster)
