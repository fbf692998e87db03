"""A response as lines of text: every field that its version carries, in Kafka's words.

What is left out has its usual value (USUAL below; `whole` on the command shows it), and a field without a value (null,
false) is never shown. A topic with its partitions becomes one line a partition, `$t/0 NONE base_offset=0`. Lists whose
order means nothing are sorted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.share_fetch import Leader
from fencepost.protocol.schema import Array, Blob, Field, Nested, schema_of

from .batches import CODEC_NAMES, FLAGS, Batch, Record, batches, records
from .names import Names, base64url

USUAL: dict[str, Any] = {
    "throttle_time_ms": 0,
    "session_id": 0,
    "topic_config_error_code": 0,
    "log_append_time_ms": -1,
    "record_errors": [],
    "preferred_read_replica": -1,
    "node_endpoints": [],
    "offline_replicas": [],
    "cluster_authorized_operations": -2147483648,
    "topic_authorized_operations": -2147483648,
    "acknowledge_error_code": 0,
    "acquired_records": [],
    "acquisition_lock_timeout_ms": 30_000,
    "current_leader": Leader(),
}
USUAL_TEXTS = {  # the one broker there is, as every client sees it
    "cluster_id=$cluster",
    "controller_id=$node",
    "brokers: node_id=$node host=$host port=$port",
    "brokers: broker_id=$node host=$host port=$port",
}
TIMES = {"timestamp", "log_append_time_ms", "last_timestamp", "transaction_start_time_ms"}
FILLED = {
    "throttle_time_ms",
    "error_message",
    "documentation",
    "log_dir",
    "total_bytes",
    "usable_bytes",
    "log_end_offset",
    "last_fetch_timestamp",
    "last_caught_up_timestamp",
    "finalized_features_epoch",
}
NODES = {"node_id", "broker_id", "replica_id", "leader_id", "controller_id", "leader"}
NODE_LISTS = {"replica_nodes", "isr_nodes", "offline_replicas", "eligible_leader_replicas", "last_known_elr"}
NAMED = {"producer_id": ("producer", "p"), "session_id": ("session", "s"), "topic_id": ("topic_id", "id")}
TOPIC = ("name", "topic", "topic_name", "topic_id")
PARTITION = ("partition_index", "partition", "index", "partition_id")
IDENTITY = (
    *TOPIC,
    *PARTITION,
    "resource_type",
    "resource_name",
    "api_key",
    "key",
    "node_id",
    "broker_id",
    "transactional_id",
    "group_id",
    "producer_id",
    "pattern_type",
    "principal",
    "host",
    "operation",
    "permission_type",
    "entity_type",
    "entity_name",
    "user",
    "mechanism",
)
TAGS_OF_OUR_OWN = 10_000  # fields with this tag or a higher one are ours: Kafka has none to compare with
MEMBERS = ("member_id", "leader")
CODES = ("error_code", "partition_error_code")
MEMBER = re.compile(r"(.*-)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[\w-]{22}")
"""A member's id that the broker made: ours and Kafka's in classic groups, and Kafka's in consumer groups."""
IN_ORDER = {"FetchResponse", "CreateAclsResponse"}


class Renderer:
    """Renders the responses of one scenario."""

    def __init__(self, names: Names, *, show_records: bool = False, whole: bool = False) -> None:
        self._names = names
        self._show_records = show_records
        self._whole = whole
        self._ordered = False

    def lines(self, response: Any, version: int) -> list[str]:
        """Return the lines of a response."""
        self._ordered = type(response).__name__ in IN_ORDER
        return list(self._block("", response, version)) or ["(empty)"]

    def _block(self, start: str, message: Any, version: int, *, given: tuple[str, ...] = ()) -> Iterator[str]:
        """Yield the lines of one struct: one with its plain fields, and below it those of the structs in it. start: how
        the first line begins. given: fields that are left out, because `start` has them.
        """
        self._note_topic_id(message)
        plain, nested = [start] if start else [], []
        for field in sorted(schema_of(type(message)).fields, key=lambda field: field.name != "error_code"):
            if version not in field.versions or field.name in given or _is_left_out(field, message):
                continue
            value = getattr(message, field.name)
            if (_is_list_of_structs(field) and value) or _is_batches(field):
                nested.append((field, value))
            elif (said_of_it := _special(message, field.name, value)) is not None:
                plain.append(f"{field.name}={said_of_it}")
            else:
                plain.extend(self._plain(field, value, version))
        if plain:
            yield " ".join(plain)
        for field, value in nested:
            inner = self._items(field, value, version) if isinstance(field.kind, Array) else self._batches(value)
            yield from (("  " if plain else "") + line for line in inner)

    def _items(self, field: Field, items: list[Any], version: int) -> Iterator[str]:
        if not self._ordered and field.name != "record_errors":
            items = sorted(items, key=lambda item: (_identity(item), self._member_sort_key(item)))
        for item in items:
            partitions = _partitions(item, version)
            if partitions is None:
                lines = list(self._block(f"{field.name}:", item, version))
                yield from lines if self._whole or lines[0] not in USUAL_TEXTS else []
            else:
                yield from self._topic(item, partitions, version)

    def _member_sort_key(self, item: Any) -> str:
        """Return the second sort key of an item, after its _identity(): for a described member of a consumer group the
        name under which its id is shown, because an id that the broker made up differs in each run; else "".
        """
        return self._names.show_text(item.member_id) if hasattr(item, "member_epoch") else ""

    def _topic(self, topic: Any, partitions: Field, version: int) -> Iterator[str]:
        """Yield the lines of a topic that has nothing but partitions. Each begins with the topic's name."""
        self._note_topic_id(topic)
        name = next(
            self._scalar(f, getattr(topic, f.name))
            for f in schema_of(type(topic)).fields
            if f.name in TOPIC and version in f.versions
        )
        items = getattr(topic, partitions.name)
        if not items:
            yield f"{name} without partitions"
        for item in items if self._ordered else sorted(items, key=_identity):
            index = next(getattr(item, field) for field in PARTITION if hasattr(item, field))
            yield from self._block(f"{name}/{index}", item, version, given=PARTITION)

    def _note_topic_id(self, message: Any) -> None:
        """Name the topic id in this struct after the topic, if the struct has both."""
        name = next((getattr(message, f, None) for f in TOPIC[:3] if getattr(message, f, None)), None)
        topic_id = getattr(message, "topic_id", None)
        if isinstance(name, str) and topic_id and any(topic_id):
            self._names.topic_id(name, topic_id)

    # Plain fields.

    def _plain(self, field: Field, value: Any, version: int) -> Iterator[str]:
        if value is None or value is False:
            return
        if field.name in USUAL and value == USUAL[field.name] and not self._whole:
            return
        if field.name in CODES:
            yield ErrorCode(value).name
        elif field.name == "acknowledge_error_code":
            yield f"{field.name}={ErrorCode(value).name}"
        elif isinstance(value, list):
            is_struct = _is_list_of_structs(field)
            shown = (self._inline(item, version) if is_struct else self._scalar(field, item) for item in value)
            yield f"{field.name}=[{' '.join(sorted(shown) if is_struct else shown)}]"
        elif isinstance(field.kind, Nested):
            yield f"{field.name}={self._inline(value, version)}"
        else:
            text = f"{field.name}={self._scalar(field, value)}"
            yield from [] if text in USUAL_TEXTS and not self._whole else [text]

    def _inline(self, message: Any, version: int) -> str:
        """Return a struct with all its fields as a part of a line."""
        texts = [
            text
            for f in schema_of(type(message)).fields
            if version in f.versions
            for text in self._plain(f, getattr(message, f.name), version)
        ]
        return f"{{{' '.join(texts)}}}"

    def _scalar(self, field: Field, value: Any) -> str:
        name = field.name
        if name in FILLED and value not in ("", -1):
            return "…"
        if name in ("host", "port", "cluster_id") and value not in ("", -1):
            return self._names.show(name, value, name)
        if name in MEMBERS and isinstance(value, str):
            return self._names.show("text", value, "m") if MEMBER.fullmatch(value) else self._text(value)
        if name in NODES | NODE_LISTS:
            return str(value) if value == -1 else self._names.show("node", value, "node")
        nobody = (-1,) if name == "producer_id" else (0, bytes(16))  # 0 is the first producer id of all
        if name in NAMED and value not in nobody:
            return self._names.show(NAMED[name][0], value, NAMED[name][1])
        if name == "resource_name" and value.isdecimal() and self._names.is_named("node", int(value)):
            return self._names.show("node", int(value), "node")
        if name in TIMES:
            return self._names.show_time(value)
        return self._text(value)

    def _text(self, value: Any) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, (bytes, memoryview)):
            return base64url(bytes(value)) if any(value) else "0"
        text = self._names.show_text(str(value))
        plain = text.isprintable() and re.fullmatch(r"[^\s\[\]{}\"=]+", text)
        return text if plain else json.dumps(text, ensure_ascii=False)

    # Record batches.

    def _batches(self, slices: Iterable[Any] | None) -> Iterator[str]:
        if slices is None:
            yield "records=null"
            return
        for batch in batches(b"".join(bytes(piece) for piece in slices)):
            yield " ".join(self._batch(batch))
            if self._show_records:
                yield from ("  " + " ".join(self._record(record)) for record in records(batch))

    def _batch(self, batch: Batch) -> Iterator[str]:
        yield f"batch {batch.base_offset}..{batch.base_offset + batch.last_offset_delta}"
        if batch.record_count != batch.last_offset_delta + 1:
            yield f"records={batch.record_count}"
        if batch.attributes & 7:
            yield f"codec={CODEC_NAMES[batch.attributes & 7]}"
        yield from (flag for flag, bit in FLAGS.items() if batch.attributes & bit)
        if batch.attributes >> 8:
            yield f"attributes={batch.attributes}"
        if (batch.producer_id, batch.producer_epoch, batch.base_sequence) != (-1, -1, -1):
            pid = self._names.show("producer", batch.producer_id, "p") if batch.producer_id >= 0 else batch.producer_id
            yield f"pid={pid} epoch={batch.producer_epoch} seq={batch.base_sequence}"
        first = "horizon" if batch.attributes & FLAGS["delete-horizon"] else self._names.show_time(batch.base_timestamp)
        last = self._names.show_time(batch.max_timestamp)
        yield f"ts={first}" if first == last else f"ts={first}..{last}"
        if batch.leader_epoch:
            yield f"leader_epoch={batch.leader_epoch}"
        if not batch.crc_is_right:
            yield "crc=WRONG"

    def _record(self, record: Record) -> Iterator[str]:
        yield f"{record.offset}:"
        yield f"key={_bytes(record.key)}"
        yield f"value={_bytes(record.value)}"
        yield f"ts={self._names.show_time(record.timestamp)}"
        if record.headers:
            yield f"headers={{{' '.join(f'{name}={_bytes(value)}' for name, value in record.headers)}}}"


def _special(message: Any, name: str, value: Any) -> str | None:
    """Return the text for a field whose meaning depends on other fields of the message; None for all others."""
    if name == "producer_id" and value in (0, -1) and getattr(message, "error_code", 0):
        return str(value)  # nobody, not the first producer of all
    if name == "host" and hasattr(message, "permission_type"):
        return str(value)  # of an ACL, not the broker's
    if name == "partitions" and getattr(message, "topic", "") == "__consumer_offsets":
        return "[…]"  # a hash of the group's name gives the partition, and the name differs in each run
    if name == "partitions" and hasattr(message, "topic"):
        return f"[{' '.join(map(str, sorted(value)))}]"
    return None


def _is_list_of_structs(field: Field) -> bool:
    return isinstance(field.kind, Array) and isinstance(field.kind.item, Nested)


def _is_batches(field: Field) -> bool:
    of: str = field.kind.of if isinstance(field.kind, Blob) else ""
    return of in ("view", "slices")


def _is_left_out(field: Field, message: Any) -> bool:
    """Return whether a field is not shown: one of our own, which Kafka cannot have, or an explanation of an error."""
    return (field.tag or 0) >= TAGS_OF_OUR_OWN or _is_explanation(field, message)


def _is_explanation(field: Field, message: Any) -> bool:
    """Return whether a field is the text that explains an error. The protocol does not say what it contains."""
    failed: int = getattr(message, "error_code", 0)
    refused: int = getattr(message, "acknowledge_error_code", 0)
    return (
        field.name == "batch_index_error_message"
        or (field.name == "error_message" and failed != 0)
        or (field.name == "acknowledge_error_message" and refused != 0)
    )


def _identity(item: Any) -> tuple[Any, ...]:
    if hasattr(item, "entity"):  # whose quotas, by one name or two
        return tuple(sorted(map(_identity, item.entity)))
    return tuple(
        str(value) if isinstance(value, str) else value
        for f in IDENTITY
        if (value := getattr(item, f, None)) is not None
    )


def _partitions(item: Any, version: int) -> Field | None:
    """Return the field with a topic's partitions, if beside it there is only the topic's name or id; else None."""
    fields = [f for f in schema_of(type(item)).fields if version in f.versions and f.name not in TOPIC]
    if len(fields) != 1 or not hasattr(item, "__schema__") or not isinstance(fields[0].kind, Array):
        return None
    inner = fields[0].kind.item
    if not isinstance(inner, Nested) or not any(f.name in PARTITION for f in schema_of(inner.cls).fields):
        return None
    return fields[0]


def _bytes(value: bytes | None) -> str:
    if value is None:
        return "null"
    text = value.decode(errors="backslashreplace")
    return text if re.fullmatch(r"[!-~]{1,40}", text) else f"({len(value)} bytes)"
