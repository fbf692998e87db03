"""Values of messages, made by hypothesis from our schemas, in the range that every oracle can express.

What an oracle cannot express is left out: kio keeps error codes as an enumeration and some timestamps as dates.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.schema import Array, Blob, Field, Fixed, Nested, Text, schema_of
from hypothesis import strategies as st

LAST_DATE_MS = 32_503_680_000_000  # the year 3000

OURS_FROM = 10_000  # codes of our own APIs, and tagged fields of our own in Kafka's, which no oracle knows
_CODES = st.sampled_from([int(code) for code in ErrorCode if code < OURS_FROM])
_DATES = st.integers(0, LAST_DATE_MS)
_TEXTS = st.sampled_from(
    ["", "a", "topic", "my-topic.with_all-9", "größe", "主题", "x" * 127, "y" * 128, "é" * 200]
) | st.text(max_size=5)
_BLOBS = st.sampled_from([b"", b"\0", b"records" * 3, b"z" * 126, b"z" * 127, b"q" * 300, bytes(range(256)) * 66])
_UUIDS = st.just(bytes(16)) | st.binary(min_size=16, max_size=16)
_FIXED = {
    "?": st.booleans(),
    "d": st.floats(allow_nan=False, allow_infinity=False),
    "16s": _UUIDS,
    "H": st.integers(0, (1 << 16) - 1),
    **{
        letter: st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) | st.integers(-2, 3)
        for letter, bits in {"b": 8, "h": 16, "i": 32, "q": 64}.items()
    },
}


def is_own(f: Field) -> bool:
    """Return whether it is a tagged field of Fencepost's own, which Apache Kafka does not have."""
    return f.tag is not None and f.tag >= OURS_FROM


def messages(cls: type, version: int, dates: Mapping[str, bool] = MappingProxyType({})) -> st.SearchStrategy[Any]:
    """Return a strategy for instances of `cls` as they can stand in a frame of that version.

    dates: the names of the fields that hold dates, each with whether it may be -1 (no date).
    """
    present = [f for f in schema_of(cls).fields if version in f.versions and not is_own(f)]
    values = {}
    for f in present:
        if isinstance(f.kind, Fixed) and f.name.endswith("error_code"):
            strategy = _CODES
        elif f.name in dates:
            strategy = st.just(-1) | _DATES if dates[f.name] else _DATES
        else:
            strategy = _of(f.kind, version, dates)
        if f.tag is not None and isinstance(f.kind, Nested):
            strategy = strategy.map(_sent)
        if version in f.nullable:
            strategy = st.none() | strategy
        if f.tag is not None:
            strategy = st.just(f.initial()) | strategy
        values[f.name] = strategy
    return st.builds(cls, **values)


def _of(kind: Any, version: int, dates: Mapping[str, bool]) -> st.SearchStrategy[Any]:
    match kind:
        case Fixed():
            return _FIXED[kind.format]
        case Text():
            return _TEXTS
        case Blob(of="slices"):
            return _BLOBS.map(slices)
        case Blob(of="view"):
            return _BLOBS.map(memoryview)
        case Blob():
            return _BLOBS
        case Array():
            return st.lists(_of(kind.item, version, dates), max_size=2)
        case Nested():
            return messages(kind.cls, version, dates)
    raise AssertionError(kind)


def _sent(tagged: Any) -> Any:
    """Return None for a tagged struct with nothing but defaults: the oracles do not send such a struct."""
    return None if tagged == type(tagged)() else tagged


def slices(records: bytes) -> list[memoryview]:
    """Return the same bytes as a log returns them: in up to two pieces, none of them empty."""
    view = memoryview(records)
    middle = len(records) // 2
    return [piece for piece in (view[:middle], view[middle:]) if len(piece)]


def plain(value: Any) -> Any:
    """Return a value that compares by content: records in one piece, classes as names and values."""
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, list):
        if value and all(isinstance(piece, memoryview) for piece in value):
            return b"".join(value)
        return [plain(item) for item in value]
    if hasattr(value, "__schema__"):
        return {f.name: _content(f.kind, getattr(value, f.name)) for f in schema_of(type(value)).fields}
    return value


def _content(kind: Any, value: Any) -> Any:
    return b"" if isinstance(kind, Blob) and value == [] else plain(value)
