"""Records as text: formats for people (%t %p %o …), one JSON object on each line for programs, and parsing these. Pure.

The rule: `produce --jsonl` accepts what `consume -o json` prints. A key, value or header that is not UTF-8 is in base64
under its name with "_base64" appended, so nothing is lost. A pipe gets the bytes of a record unchanged, a terminal only
printable characters.
"""

import base64
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from .writing import visible

if TYPE_CHECKING:
    from ...client.values import Record, ShareRecord

Form = Callable[["Record | ShareRecord"], bytes]
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_PARTS: dict[str, Form] = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % record.timestamp_ms,
    "k": lambda record: record.key or b"",
    "s": lambda record: record.value or b"",
    "h": lambda record: b",".join(name.encode() + b"=" + (value or b"") for name, value in record.headers),
    "K": lambda record: b"%d" % (-1 if record.key is None else len(record.key)),
    "S": lambda record: b"%d" % (-1 if record.value is None else len(record.value)),
    "%": lambda _: b"%",
}
FORMATS = (
    "%t topic, %p partition, %o offset, %T timestamp (ms), %k key, %s value, %h headers, %K and %S sizes (-1: null), "
    "%% a percent sign, \\n \\t \\0"
)


class BadFormat(ValueError):
    """Raised for a format that cannot be used. str() says what is wrong."""


def form_of(text: str, *, shown: bool = False) -> Form:
    """Return a function that formats a record as bytes. shown: for a terminal. Raises BadFormat."""
    parts: list[Form | bytes] = []
    position = 0
    while position < len(text):
        sign = text[position]
        if sign not in "%\\":
            parts.append(sign.encode())
            position += 1
            continue
        name = text[position + 1 : position + 2]
        known: Mapping[str, Form | bytes] = _PARTS if sign == "%" else _ESCAPES
        if name not in known or not name:
            raise BadFormat(f"{sign}{name} is unknown; there are {FORMATS}")
        parts.append(known[name])
        position += 2
    look = _visible_bytes if shown else bytes
    return lambda record: b"".join(part if isinstance(part, bytes) else look(part(record)) for part in parts)


def _visible_bytes(content: bytes) -> bytes:
    return visible(content.decode(errors="replace")).encode()


def as_facts(record: "Record | ShareRecord") -> dict[str, Any]:
    """Return a record as a JSON object; a record of a share group with its delivery count."""
    delivered = getattr(record, "delivery_count", None)
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        **_text("key", record.key),
        **_text("value", record.value),
        "headers": [{"name": name, **_text("value", value)} for name, value in record.headers],
        **({} if delivered is None else {"delivery_count": delivered}),
    }


def _text(name: str, content: bytes | None) -> dict[str, str | None]:
    """Return a JSON field with the content as text; if that is not UTF-8, in base64 under another name."""
    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode()}


class Line(NamedTuple):
    """A record to send. partition, timestamp_ms: None if the input does not set them."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class BadLine(ValueError):
    """Raised for a line that cannot be parsed. str() says what is wrong."""


def parse(line: bytes) -> Line:
    """Parse a line of --jsonl. A value that is not a string is sent as JSON; null is a tombstone. Raises BadLine."""
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise BadLine(f"it is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise BadLine('it is not an object: {"value": …, "key": …, "headers": …, "partition": …, "timestamp_ms": …}')
    if "value" not in fields and "value_base64" not in fields:
        raise BadLine('it has no "value"')
    return Line(
        _content(fields, "value"), _content(fields, "key"), _headers(fields.get("headers")),
        _whole(fields, "partition"), _whole(fields, "timestamp_ms"),
    )  # fmt: skip


def _content(fields: Mapping[str, Any], name: str) -> bytes | None:
    """Return the bytes of a field, given as text or in base64; None if it is missing or null. Raises BadLine."""
    encoded = fields.get(f"{name}_base64")
    if encoded is not None:
        try:
            return base64.b64decode(encoded, validate=True)
        except (TypeError, ValueError):
            raise BadLine(f'"{name}_base64" is not base64') from None
    value = fields.get(name)
    if value is None:
        return None
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).encode()


def _headers(fields: Any) -> tuple[tuple[str, bytes | None], ...]:
    """Return the headers of a JSON line, given as an object or as a list. Raises BadLine."""
    if fields is None:
        return ()
    if isinstance(fields, dict):
        return tuple((name, _content({"value": value}, "value")) for name, value in fields.items())
    try:
        return tuple((str(each["name"]), _content(each, "value")) for each in fields)
    except (TypeError, KeyError):
        raise BadLine('"headers" must be {"name": "value"} or [{"name": …, "value": …}]') from None


def _whole(fields: Mapping[str, Any], name: str) -> int | None:
    """Return a whole number; None if it is missing. Raises BadLine for anything else."""
    value = fields.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise BadLine(f'"{name}" must be a whole number')
    return value
