"""Checks of what is given to `send`: here, since an error of one record would fail its whole batch later. Pure."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from ...protocol.errors import ErrorCode
from ..errors import error_of
from ..serialization import Serializers
from ..values import Headers, HeadersLike

Given = tuple[Any, Any, HeadersLike | None, int | None]
"""Key, value, headers and time of a record, as an application gives them."""


def timestamp_error(timestamp_ms: object) -> Exception:
    """Return the error for a refused timestamp: TypeError if it is not an int, else KafkaError INVALID_TIMESTAMP."""
    if not isinstance(timestamp_ms, int) or isinstance(timestamp_ms, bool):
        return TypeError(f"timestamp_ms must be an int, not {type(timestamp_ms).__name__}")
    return error_of(ErrorCode.INVALID_TIMESTAMP, f"timestamp_ms={timestamp_ms} is out of range: 0 to 2**63 - 1")


def as_bytes(value: Any, what: str, hint: str | None = None) -> bytes:
    """Return `value` as bytes, copied if it is mutable. what: "key" or "value", for the error. hint: what the error
    advises instead of setting a serializer. Raises TypeError.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(cast("bytes", value))
    if hint is None:
        encode = f"pass {what}.encode(), or " if isinstance(value, str) else ""
        hint = f"{encode}set {what}_serializer"
    raise TypeError(f"{what} must be bytes or None, not {type(value).__name__}: {hint}")


def check_headers(headers: HeadersLike) -> Headers:
    """Return the headers as pairs of a str and bytes or None. Raises TypeError or UnicodeEncodeError for others."""
    pairs = cast("Iterable[tuple[str, bytes | None]]", headers.items() if isinstance(headers, Mapping) else headers)
    checked: list[tuple[str, bytes | None]] = []
    for name, value in pairs:
        if not isinstance(name, str):
            raise TypeError(f"header name must be a str, not {type(name).__name__}")
        if not name.isascii():
            name.encode("utf-8", "surrogateescape")  # raises UnicodeEncodeError here instead of in a batch
        if value is not None and value.__class__ is not bytes:
            value = as_bytes(value, "header value", "encode it first")
        checked.append((name, value))
    return tuple(checked)


def checked_record(
    serializers: Serializers | None,
    topic: str,
    key: Any,
    value: Any,
    headers: HeadersLike | None,
    timestamp_ms: int | None,
    now_ms: Callable[[], int],
) -> tuple[bytes | None, bytes | None, Headers | None, int]:
    """Return key, value, headers and timestamp (in ms; now by default) as they go into a batch: serialized and
    checked. Raises TypeError, KafkaError.
    """
    if serializers is not None:
        key, value, headers = serializers(topic, key, value, headers)
    if timestamp_ms is None:
        timestamp_ms = now_ms()
    elif timestamp_ms.__class__ is not int or not 0 <= timestamp_ms < 1 << 63:
        raise timestamp_error(timestamp_ms)
    return (
        None if key is None else as_bytes(key, "key"),
        None if value is None else as_bytes(value, "value"),
        check_headers(headers) if headers else None,
        timestamp_ms,
    )
