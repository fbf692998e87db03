"""The records of a partition as JSON: transaction outcome, producer, key, value and headers, each shortened; and one
value in full.

The rule: bytes that are UTF-8 are sent as text, others in base64, so nothing is lost and nothing is interpreted. The
amounts of data that are read, decompressed and sent are limited; a batch beyond a limit becomes one row that says so.
"""

import base64
from collections.abc import Iterator, Mapping
from typing import Any

from ...client.admin.admin import Admin
from ...client.records.decoding import Records
from ...client.records.fates import ABORTED, MARKER, OPEN, UNDECIDED, Entry
from ...client.values import Record, TopicPartition
from ...protocol.batches import SEQUENCE_MASK, Batch
from ...protocol.errors import KafkaError
from ..http.parameters import Parameter, parse
from ..http.problems import NOT_FOUND, Problem
from .names import Names, find_names
from .places import PLACES, ends_of, first_offset
from .window import Limits, Window, read_window

ISOLATIONS = ("read_uncommitted", "read_committed")
MAX_RECORDS = 500
DECOMPRESSED_BYTES = 16 << 20  # of one batch
SHOWN_BYTES = 8 << 10  # of one key, value or header
PAGE_BYTES = 2 << 20  # of all of them
MAX_HEADERS = 50
PARAMETERS = (
    *PLACES,
    Parameter("limit", "number", "How many rows there are at most.", 50, 1, MAX_RECORDS),
    Parameter("isolation", "choice", "Whose view it is.", ISOLATIONS[0], choices=ISOLATIONS),
)
_PIECE = 256  # records decoded at once
_HIDDEN = frozenset({ABORTED, OPEN, UNDECIDED, MARKER})  # from read_committed readers


async def browse(
    admin: Admin, topic: str, partition: int, query: Mapping[str, str], *, names: Names | None = None
) -> dict[str, Any]:
    """Return a page of records as JSON: from an `offset` or `time_ms` on, or the `last` ones. query: the parameters as
    they were sent. names: known transactional ids. Raises Problem, KafkaError.
    """
    where = TopicPartition(topic, partition)
    asked = parse(PARAMETERS, query)
    isolation, limit = asked["isolation"], asked["limit"]
    ends = await ends_of(admin, where)
    end = ends.stable if isolation == "read_committed" else ends.high
    start = await first_offset(admin, where, ends, asked, limit, end)
    hidden = _HIDDEN if isolation == "read_committed" else frozenset[str]()
    window = await read_window(admin, where, start, Limits(end, records=limit, hidden=hidden))
    known = await find_names(admin, window.entries, names or {})
    rows, next_offset = _rows(where, window, limit, isolation, known)
    return {
        "kind": "KafkaRecordPage",
        "topic_name": topic,
        "partition_id": partition,
        "isolation": isolation,
        "start_offset": start,
        "next_offset": next_offset,
        "log_start_offset": ends.start,
        "last_stable_offset": max(ends.stable, min(window.last_stable_offset, ends.high)),
        "high_watermark": ends.high,
        "problem": window.problem or None,
        "data": rows,
    }


async def raw(admin: Admin, topic: str, partition: int, offset: int, what: str) -> bytes:
    """Return the whole key, value or one header of a record. what: "key", "value" or "header-N", with N from 0.
    Raises Problem if there is no such record or part, KafkaError.
    """
    where = TopicPartition(topic, partition)
    ends = await ends_of(admin, where)
    if not ends.start <= offset < ends.high:
        raise _no_record(where, offset, f"the partition has offsets {ends.start} to {ends.high - 1}")
    window = await read_window(admin, where, offset, Limits(offset + 1, scan_bytes=0))
    for entry in window.entries:
        batch: Batch = entry.record
        if not entry.marker and batch.base_offset <= offset <= batch.last_offset:
            for record in _decoded(where, batch, offset):
                if record.offset == offset:
                    return _part(where, record, what)
    raise _no_record(where, offset, window.problem or "it is a marker, or was removed by compaction")


def _no_record(where: TopicPartition, offset: int, hint: str) -> Problem:
    """Return the problem that there is no record at this offset. hint: why."""
    return Problem(NOT_FOUND, f"{where} has no record at offset {offset}", hint)


def _part(where: TopicPartition, record: Record, what: str) -> bytes:
    """Return the key, the value or one header of the record as bytes. what: as in raw(). Raises Problem if it is null
    or missing.
    """
    found: bytes | None = None
    if what in ("key", "value"):
        found = record.key if what == "key" else record.value
    elif what.startswith("header-") and what[7:].isdecimal() and len(what) < 14 and int(what[7:]) < len(record.headers):
        found = record.headers[int(what[7:])][1]
    if found is None:
        raise Problem(NOT_FOUND, f"the record at offset {record.offset} of {where} has no {what}")
    return found


def _rows(
    where: TopicPartition, window: Window, limit: int, isolation: str, names: Mapping[int, str]
) -> tuple[list[dict[str, Any]], int]:
    """Return up to `limit` rows with about PAGE_BYTES in all, and the offset at which the next page begins."""
    rows: list[dict[str, Any]] = []
    left = PAGE_BYTES
    for entry in window.entries:
        if isolation == "read_committed" and entry.fate in _HIDDEN:
            continue
        for row in _rows_of(where, window.start, entry, names):
            if len(rows) >= limit or left <= 0:
                return rows, int(row["offset"])
            rows.append(row)
            left -= _weight(row)
    return rows, window.next_offset


def _rows_of(where: TopicPartition, start: int, entry: Entry, names: Mapping[int, str]) -> Iterator[dict[str, Any]]:
    """Yield the rows of one batch from offset `start` on: one for each record, or one for a marker. A batch that
    cannot be decoded gives a row with the problem.
    """
    batch: Batch = entry.record
    facts: dict[str, Any] = {
        "state": entry.fate,
        "producer_id": entry.producer_id if entry.producer_id >= 0 else None,
        "producer_epoch": entry.producer_epoch if entry.producer_id >= 0 else None,
        "transactional_id": names.get(entry.producer_id) if entry.transactional else None,
    }
    if entry.marker:
        yield {"offset": batch.base_offset, "timestamp_ms": batch.max_timestamp, **facts, "marker": entry.marker}
        return
    try:
        for record in _decoded(where, batch, start):
            yield {"offset": record.offset, "timestamp_ms": record.timestamp_ms, **facts, **_content(batch, record)}
    except KafkaError as error:
        at = max(start, batch.base_offset)
        yield {"offset": at, "timestamp_ms": batch.max_timestamp, **facts, "problem": str(error)}


def _decoded(where: TopicPartition, batch: Batch, start: int) -> Iterator[Record]:
    """Yield the records of a batch from offset `start` on. Raises KafkaError if they are damaged or too large."""
    records = Records(batch, *where, limit=DECOMPRESSED_BYTES)
    while records.left:
        for record in records.take(_PIECE):
            if record.offset >= start:
                yield record


def _content(batch: Batch, record: Record) -> dict[str, Any]:
    """Return sequence number, key, value and headers of a record as JSON."""
    sequence = -1
    if batch.base_sequence >= 0:
        sequence = batch.base_sequence + record.offset - batch.base_offset & SEQUENCE_MASK
    headers = record.headers[:MAX_HEADERS]
    return {
        "sequence": sequence if sequence >= 0 else None,
        "key": shown(record.key),
        "value": shown(record.value),
        "headers": [{"name": name[:SHOWN_BYTES], "value": shown(value)} for name, value in headers],
        "headers_count": len(record.headers),
    }


def shown(content: bytes | None) -> dict[str, Any] | None:
    """Return bytes as JSON: as text if they are UTF-8, else as base64. Only the first SHOWN_BYTES. None for null."""
    if content is None:
        return None
    part = content[:SHOWN_BYTES]
    facts: dict[str, Any] = {"size": len(content), "truncated": len(content) > SHOWN_BYTES}
    try:
        return facts | {"text": part.decode()}
    except UnicodeDecodeError as error:
        if facts["truncated"] and error.start >= len(part) - 3:  # the cut is within a character
            return facts | {"text": part[: error.start].decode()}
        return facts | {"base64": base64.b64encode(part).decode()}


def _weight(row: Mapping[str, Any]) -> int:
    """Return roughly how many bytes a row takes as JSON."""
    parts = [row.get("key"), row.get("value"), *(each["value"] for each in row.get("headers", ()))]
    sizes: list[int] = [part["size"] for part in parts if part is not None]
    return 200 + sum(min(size, SHOWN_BYTES) for size in sizes)
