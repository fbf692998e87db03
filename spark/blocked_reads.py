"""Logs which open transaction a stream waits for at the last stable offset.

The rule: after some seconds of waiting, once a minute. It never delays or fails reading: a broker that does not answer
is left out. Source: KIP-664.
"""

import logging
from collections.abc import Iterable

from ..client.admin.admin import Admin
from ..client.admin.values import Blocker
from ..client.errors import UnsupportedVersionError
from ..client.settings import AdminSettings
from ..client.values import TopicPartition
from ..protocol.errors import KafkaError
from .offsets import Seen

log = logging.getLogger("fencepost.spark")
PATIENCE_MS = 10_000
EVERY_MS = 60_000


class Held:
    """Which partitions wait at the same last stable offset, with records after it."""

    def __init__(self) -> None:
        self._since: dict[TopicPartition, tuple[int, float]] = {}
        self._told_ms = -float(EVERY_MS)

    def due(self, seen: Seen, now_ms: float) -> list[TopicPartition]:
        """The partitions to log now: usually none."""
        held = {tp: each.end for tp, each in seen.logs.items() if each.end < each.high_watermark}
        self._since = {
            tp: known if (known := self._since.get(tp)) is not None and known[0] == end else (end, now_ms)
            for tp, end in held.items()
        }
        if now_ms - self._told_ms < EVERY_MS:
            return []
        found = sorted(tp for tp, (_, since_ms) in self._since.items() if now_ms - since_ms >= PATIENCE_MS)
        if found:
            self._told_ms = now_ms
        return found


async def tell(settings: AdminSettings, held: Iterable[TopicPartition]) -> list[str]:
    """Log which transactions block these partitions. Returns what was logged."""
    parts = list(held)
    names = ", ".join(map(str, parts))
    try:
        async with Admin.of(settings) as admin:
            blockers = await admin.find_blockers(parts)
            now_ms = admin._environment.clock.now_ms()
        texts = [described(each, now_ms) for each in blockers]
    except UnsupportedVersionError:
        texts = [f"{names}: an open transaction holds readers up; this broker cannot tell which (Kafka 3.0 can)"]
    except KafkaError as error:
        texts = [f"{names}: an open transaction holds readers up; which one, could not be asked: {error}"]
    for text in texts:
        log.warning("%s", text)
    return texts


def described(blocker: Blocker, now_ms: int) -> str:
    """Partition, transactional id, age."""
    producer = blocker.open.producer
    where = (
        f"{blocker.open.topic_partition} is held at offset {blocker.last_stable_offset}, below its end at"
        f" {blocker.high_watermark},"
    )
    known = blocker.description
    if known is None:
        idle_s = max(0, now_ms - producer.last_timestamp_ms) / 1000
        return (
            f"{where} by a transaction of producer id {producer.producer_id} that no coordinator knows, last written"
            f" to {idle_s:.0f} s ago (fencepost txn abort ends it)"
        )
    began_ms = known.started_ms if known.started_ms is not None else producer.last_timestamp_ms
    return f"{where} by transaction {known.transactional_id!r}, open for {max(0, now_ms - began_ms) / 1000:.0f} s"
