"""Batches, records, markers and units on disk as plain dictionaries (facts), for tools.

The key "is" names the kind of fact; the other keys are those of docs/formats.md. Bytes that are text are shown as text,
other bytes in hex.
"""

import base64
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgpack

from ...protocol import batches
from ...protocol.batches import Batch, CorruptBatch
from ...protocol.compression import Codec
from ...protocol.errors import KafkaError
from ...protocol.records import read_marker, records
from ...storage.journal.format import APPEND, CREATE, DROP, LOG_START, Part, Unit
from ...storage.layout import CATALOGUE_LOG_ID

Fact = dict[str, Any]
Names = Mapping[int, str]  # of logs, by their id

KINDS = {APPEND: "append", LOG_START: "log start", CREATE: "create", DROP: "drop"}
SHOWN_BYTES = 200


def time_of(timestamp_ms: int) -> str | None:
    """Return a time as ISO 8601 in UTC; None if there is no timestamp or it is out of range."""
    if timestamp_ms < 0 or timestamp_ms > 253_402_300_799_999:
        return None
    moment = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03d}Z"


def shown(content: bytes | None) -> str | None:
    """Return bytes as text if they are printable, else as hex; shortened when long. None stays None."""
    if content is None:
        return None
    cut = content[:SHOWN_BYTES]
    more = f"… ({len(content)} bytes)" if len(content) > SHOWN_BYTES else ""
    try:
        text = cut.decode()
    except UnicodeDecodeError:
        return "0x" + cut.hex() + more
    return (text if text.isprintable() else "0x" + cut.hex()) + more


def batch_fact(batch: Batch, position: int) -> Fact:
    """Return a batch as a fact, with its marker if it has one, and whether its checksum matches."""
    fact: Fact = {
        "is": "batch",
        "position": position,
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "records": batch.record_count,
        "size_bytes": batch.size,
        "codec": Codec(batch.codec).name.lower() if batch.codec in set(Codec) else f"codec {batch.codec}",
        "max_timestamp": batch.max_timestamp,
        "time": time_of(batch.max_timestamp),
        "timestamp_type": "LogAppendTime" if batch.is_log_append_time else "CreateTime",
        "leader_epoch": batch.leader_epoch,
        "crc": "ok",
    }
    if batch.has_producer:
        fact |= {"producer_id": batch.producer_id, "producer_epoch": batch.producer_epoch}
        if batch.base_sequence >= 0:
            fact |= {"base_sequence": batch.base_sequence, "last_sequence": batch.last_sequence}
    if batch.is_transactional:
        fact["transactional"] = True
    if batch.delete_horizon_ms is not None:
        fact["delete_horizon"] = time_of(batch.delete_horizon_ms)
    try:
        batches.verify(batch)
        if batch.is_control:
            fact |= _marker(batch)
    except CorruptBatch:
        fact["crc"] = "bad"
    return fact


def _marker(batch: Batch) -> Fact:
    """Return what a control batch contains: commit or abort and the coordinator's epoch, or why that is not known."""
    try:
        marker = read_marker(batch)
    except KafkaError as error:
        return {"control": f"does not parse: {error.text}"}
    if marker is None:
        return {"control": "another kind" if batch.record_count else "emptied by compaction"}
    return {"control": marker[0].name.lower(), "coordinator_epoch": marker[1]}


def record_facts(batch: Batch, log_id: int | None) -> Iterator[Fact]:
    """Yield the records of a batch as facts. Those of the catalogue are unpacked."""
    try:
        for record in records(batch):
            fact: Fact = {"is": "record", "offset": record.offset, "timestamp": record.timestamp}
            if log_id == CATALOGUE_LOG_ID:
                fact |= {"key": _unpack(record.key), "value": _unpack(record.value)}
            else:
                fact |= {"key": shown(record.key), "value": shown(record.value)}
                if record.headers:
                    fact["headers"] = [[name, shown(value)] for name, value in record.headers]
            yield fact
    except KafkaError as error:
        yield {"is": "damage", "what": f"the records do not parse: {error.text}"}


def _unpack(packed: bytes | None) -> Any:
    """Decode msgpack for JSON; bytes that are not msgpack are returned as shown()."""
    if packed is None:
        return None
    try:
        return plain(msgpack.unpackb(packed, raw=False))
    except (ValueError, msgpack.UnpackException):
        return shown(packed)


def plain(value: Any) -> Any:
    """Convert a value from msgpack for JSON; topic ids in base64, as in Kafka's tools."""
    if isinstance(value, bytes):
        return base64.urlsafe_b64encode(value).rstrip(b"=").decode() if len(value) == 16 else shown(value)
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return {str(plain(key)): plain(entry) for key, entry in value.items()} if isinstance(value, dict) else value


def unit_facts(unit: Unit, names: Names, *, with_records: bool) -> Iterator[Fact]:
    """Yield a unit (entry) of the journal and each of its parts as facts."""
    yield {"is": "unit", "unit": unit.number, "position": unit.position, "parts": len(unit.parts)}
    for part in unit.parts:
        yield from part_facts(part, names, with_records=with_records)


def part_facts(part: Part, names: Names, *, with_records: bool) -> Iterator[Fact]:
    """Yield one part of a unit as a fact, then, with with_records, the records of its batch."""
    content = b"".join(part.data)
    fact: Fact = {
        "is": "part",
        "kind": KINDS.get(part.kind, f"kind {part.kind}"),
        "log_id": part.log_id,
        "log": names.get(part.log_id),
        "offset": part.offset,
        "size_bytes": len(content),
    }
    batch = None
    if part.kind == CREATE:
        fact |= created(content)
    elif part.kind == APPEND:
        try:
            batch = batches.read(memoryview(content))
            fact["batch"] = batch_fact(batch, 0)
        except CorruptBatch as error:
            fact["damage"] = error.reason
    yield fact
    if with_records and batch is not None and not batch.is_control:
        yield from record_facts(batch, part.log_id)


def created(content: bytes) -> Fact:
    """Return the contents of a CREATE part as a fact, or what is wrong with them."""
    try:
        topic, topic_id, partition, settings = msgpack.unpackb(content, raw=False)
    except (ValueError, msgpack.UnpackException):
        return {"damage": "it does not parse"}
    return {"topic": topic, "topic_id": plain(topic_id), "partition": partition, "settings": settings}
