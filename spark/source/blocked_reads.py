"""Logs which open transaction a stream waits for at the last stable offset.

The rule: it logs after some seconds of waiting, at most once a minute. An error while it finds out is only logged, and
does not fail the query. Source: KIP-664.
"""

import logging
from collections.abc import Iterable

from ...client.admin.admin import Admin
from ...client.admin.values import Blocker
from ...client.errors import UnsupportedVersionError
from ...client.settings import AdminSettings
from ...client.values import TopicPartition
from ...protocol.errors import KafkaError
from .offsets import Seen

log = logging.getLogger("fencepost.spark")
WAITED_MS = 10_000
EVERY_MS = 60_000


class BlockedPartitions:
    """Finds the partitions whose last stable offset has not moved for WAITED_MS although there are records after it:
    an open transaction blocks them.
    """

    def __init__(self) -> None:
        self._since: dict[TopicPartition, tuple[int, float]] = {}
        self._logged_ms = -float(EVERY_MS)

    def due(self, seen: Seen, now_ms: float) -> list[TopicPartition]:
        """Note the current ends of the logs, and return the blocked partitions to log now: usually none, at most once
        in EVERY_MS. now_ms: monotonic.
        """
        blocked = {tp: each.end for tp, each in seen.logs.items() if each.end < each.high_watermark}
        self._since = {
            tp: known if (known := self._since.get(tp)) is not None and known[0] == end else (end, now_ms)
            for tp, end in blocked.items()
        }
        if now_ms - self._logged_ms < EVERY_MS:
            return []
        found = sorted(tp for tp, (_, since_ms) in self._since.items() if now_ms - since_ms >= WAITED_MS)
        if found:
            self._logged_ms = now_ms
        return found


async def log_blockers(settings: AdminSettings, blocked: Iterable[TopicPartition]) -> list[str]:
    """Log which transactions block these partitions. Returns the lines that were logged. An error while asking is
    logged too, not raised.
    """
    parts = list(blocked)
    names = ", ".join(map(str, parts))
    try:
        async with Admin.of(settings) as admin:
            blockers = await admin.find_blockers(parts)
            now_ms = admin._environment.clock.now_ms()
        texts = [describe(each, now_ms) for each in blockers]
    except UnsupportedVersionError:
        texts = [f"{names}: an open transaction blocks readers; to find out which one needs Kafka 3.0"]
    except KafkaError as error:
        texts = [f"{names}: an open transaction blocks readers; which one could not be found out: {error}"]
    for text in texts:
        log.warning("%s", text)
    return texts


def describe(blocker: Blocker, now_ms: int) -> str:
    """Return one sentence: the partition, the transaction that blocks it and for how long. now_ms: wall clock."""
    producer = blocker.open.producer
    where = (
        f"{blocker.open.topic_partition} is blocked at offset {blocker.last_stable_offset}, below its end at"
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
