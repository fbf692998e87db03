"""Two embedded brokers on sockets, each with an Admin: the source and the target of a mirror."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple

from fencepost.client.admin.admin import Admin
from served_broker import ServedBroker


class Clusters(NamedTuple):
    """Source and target of a mirror: their addresses, and an Admin of each."""

    source_at: str
    target_at: str
    source: Admin
    target: Admin


@asynccontextmanager
async def two_clusters(
    source: dict[str, Any] | None = None, target: dict[str, Any] | None = None
) -> AsyncIterator[Clusters]:
    """Run two brokers, with these settings."""
    async with AsyncExitStack() as stack:
        quick = {"group_initial_rebalance_delay_ms": 0}
        brokers = [stack.enter_context(ServedBroker(**quick | (settings or {}))) for settings in (source, target)]
        at = [f"127.0.0.1:{each.port}" for each in brokers]
        admins = [await stack.enter_async_context(Admin(each)) for each in at]
        yield Clusters(*at, *admins)
