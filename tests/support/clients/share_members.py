"""What tests of the SDK's share consumer begin with: a consumer of group g that reads topic t from its start."""

from collections.abc import Iterable
from typing import Any

from fencepost.client.share.consumer import ShareConsumer
from fencepost.client.values import AcknowledgeType, ShareRecord
from txn_world import BOOTSTRAP, TxnWorld

ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType


def sharer(world: TxnWorld, **keywords: Any) -> ShareConsumer:
    chosen = {"topics": ["t"], "group_id": "g", "auto_offset_reset": "earliest", **keywords}
    return ShareConsumer(BOOTSTRAP, environment=world.world.environment, **chosen)


def seen(records: Iterable[ShareRecord]) -> list[tuple[bytes, int]]:
    """Return (value, delivery count) of each record."""
    return [(record.value, record.delivery_count) for record in records]


async def left(world: TxnWorld, *, wait_ms: float = 1_000, **keywords: Any) -> list[tuple[bytes, int]]:
    """Return the records that the group delivers to a new consumer. They are released again."""
    found: list[tuple[bytes, int]] = []
    async with sharer(world, **keywords) as consumer:
        while records := await consumer.getmany(timeout_ms=wait_ms):
            found += seen(records)
    return found
