"""The timeline of a partition: its batches as blocks, with their transactions, outcomes and markers.

The rule: blocks have the batches and offsets of the log, unchanged. One answer has at most MAX_BLOCKS, and
`next_offset` is where it ended. LSO and HW are from the moment of reading.
"""

from collections.abc import Mapping
from typing import Any

from ...client.admin.admin import Admin
from ...client.records.fates import Entry
from ...client.values import TopicPartition
from ...protocol.batches import Batch
from ..http.parameters import Parameter, parse
from .names import Names, find_names
from .places import ends_of
from .window import Limits, read_window

MAX_BLOCKS = 1_000
DEFAULT_SPAN = 200  # offsets
MAX_SPAN = 100_000
PARAMETERS = (
    Parameter("from", "number", "The first offset; by default `span` ones before `to`."),
    Parameter("to", "number", "The offset after the last one; by default the high watermark."),
    Parameter("span", "number", "How many offsets to show if `from` is not given.", DEFAULT_SPAN, 1, MAX_SPAN),
)


async def read(
    admin: Admin, topic: str, partition: int, query: Mapping[str, str], *, names: Names | None = None
) -> dict[str, Any]:
    """Return the batches and markers of offsets `from` to `to` (exclusive) as JSON; without these parameters the
    newest ones. query: the parameters as they were sent. Raises Problem, KafkaError.
    """
    where = TopicPartition(topic, partition)
    ends = await ends_of(admin, where)
    asked = parse(PARAMETERS, query)
    to = ends.high if asked["to"] is None else asked["to"]
    start = ends.inside(to - asked["span"] if asked["from"] is None else asked["from"])
    to = min(max(to, start), start + MAX_SPAN)
    window = await read_window(admin, where, start, Limits(to, batches=MAX_BLOCKS))
    known = await find_names(admin, window.entries, names or {})
    return {
        "kind": "KafkaTimeline",
        "topic_name": topic,
        "partition_id": partition,
        "from": start,
        "to": to,
        "next_offset": max(window.next_offset, start),
        "complete": window.next_offset >= min(to, window.high_watermark),
        "log_start_offset": ends.start,
        "last_stable_offset": max(ends.stable, window.last_stable_offset),
        "high_watermark": max(ends.high, window.high_watermark),
        "problem": window.problem or None,
        "blocks": [_block(each, known) for each in window.entries],
    }


def _block(entry: Entry, names: Mapping[int, str]) -> dict[str, Any]:
    """Return one batch or marker as JSON. names: transactional id by producer id."""
    batch: Batch = entry.record
    has_producer = entry.producer_id >= 0
    return {
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "count": batch.record_count,
        "bytes": batch.size,
        "timestamp_ms": batch.max_timestamp,
        "producer_id": entry.producer_id if has_producer else None,
        "producer_epoch": entry.producer_epoch if has_producer else None,
        "base_sequence": batch.base_sequence if batch.base_sequence >= 0 else None,
        "transactional": entry.transactional,
        "transactional_id": names.get(entry.producer_id) if entry.transactional else None,
        "state": entry.fate,
        "marker": entry.marker or None,
    }
