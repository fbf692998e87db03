"""Two other codecs of the same protocol, as judges of ours: kio, and kafka-python's kafka.protocol.

The rule: a field of theirs is found by its place, not by its name, so that a field that one of us lacks shows at once.
kio represents milliseconds as timedelta or datetime, ids as UUID, an absent tagged struct as one with defaults.
"""

import dataclasses
import datetime
import importlib
import io
import typing
import uuid
import warnings
from typing import Any

from fencepost.protocol.primitives import ZERO_UUID
from fencepost.protocol.schema import Array, Blob, Field, Fixed, Nested, schema_of
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from wire_values import is_own

with warnings.catch_warnings():  # kafka-python reads its definitions with a deprecated call
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.errors as kafka_errors
    import kafka.protocol.admin
    import kafka.protocol.consumer
    import kafka.protocol.metadata
    import kafka.protocol.producer
    import kafka.protocol.sasl

_KAFKA_PYTHON = (
    kafka.protocol.producer,
    kafka.protocol.consumer,
    kafka.protocol.metadata,
    kafka.protocol.admin,
    kafka.protocol.sasl,
)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MS = datetime.timedelta(milliseconds=1)

__all__ = ["KafkaPython", "Kio", "kafka_errors"]


class Kio:
    """kio's codec of one of our classes in one version."""

    def __init__(self, cls: type, version: int) -> None:
        self.cls, self.version = cls, version
        self.theirs = _kio_class(cls.__name__, version)
        self.dates = dict(_dates(cls, version, self.theirs))
        self._write, self._read = entity_writer(self.theirs), entity_reader(self.theirs)

    def encode(self, ours: Any) -> bytes:
        buffer = io.BytesIO()
        self._write(buffer, _to_kio(ours, self.version, self.theirs))
        return buffer.getvalue()

    def decode(self, data: bytes) -> tuple[Any, int]:
        theirs, size = self._read(data, 0)
        return _from_kio(theirs, self.cls, self.version), size


def _kio_class(name: str, version: int) -> type:
    stem, _, side = name.rpartition("Re")
    module = "".join("_" + c.lower() if c.isupper() else c for c in stem).lstrip("_")
    found: type = getattr(importlib.import_module(f"kio.schema.{module}.v{version}.re{side}"), name)
    return found


def _pairs(cls: type, version: int, theirs: type) -> list[tuple[Field, Any]]:
    """Return our fields of that version, each with kio's field at the same place. Fails if names or tags differ."""
    ours = [f for f in schema_of(cls).fields if version in f.versions and not is_own(f)]
    others = dataclasses.fields(theirs)
    names = [(f.name, other.name) for f, other in zip(ours, others, strict=True)]
    assert all(mine.removesuffix("_ms") == his.removesuffix("_ms") for mine, his in names), names
    for f, other in zip(ours, others, strict=True):
        assert f.tag == other.metadata.get("tag"), (cls, f.name)
    return list(zip(ours, others, strict=True))


def _inner(other: Any) -> Any:
    """Return the class inside the field's type: `X` of `X`, `X | None` or `tuple[X, ...]`."""
    hint = other.type
    while not isinstance(hint, type) or typing.get_origin(hint):
        hint = next(arg for arg in typing.get_args(hint) if arg not in (type(None), Ellipsis))
    return hint


def _dates(cls: type, version: int, theirs: type) -> list[tuple[str, bool]]:
    """Return the names of the fields that kio has as dates or 64-bit durations, each with whether it may be absent
    (None in kio, -1 in ours).
    """
    found = []
    for f, other in _pairs(cls, version, theirs):
        if other.metadata.get("kafka_type") == "timedelta_i64":
            found.append((f.name, False))
        if other.metadata.get("kafka_type") == "datetime_i64":
            found.append((f.name, type(None) in typing.get_args(other.type)))
        kind = f.kind.item if isinstance(f.kind, Array) else f.kind
        if isinstance(kind, Nested):
            found += _dates(kind.cls, version, _inner(other))
    return found


def _to_kio(ours: Any, version: int, theirs: type) -> Any:
    given = {}
    for f, other in _pairs(type(ours), version, theirs):
        value = getattr(ours, f.name)
        if value is None and f.tag is not None and isinstance(f.kind, Nested):
            continue  # not sent: their default
        given[other.name] = _value_to_kio(f.kind, value, version, other)
    return theirs(**given)


def _value_to_kio(kind: Any, value: Any, version: int, other: Any) -> Any:
    if value is None:
        return None
    if isinstance(kind, Array):
        return tuple(_value_to_kio(kind.item, item, version, other) for item in value)
    if isinstance(kind, Nested):
        return _to_kio(value, version, _inner(other))
    if isinstance(kind, Blob):
        return b"".join(value) if kind.of == "slices" else bytes(value)
    match other.metadata["kafka_type"]:
        case "error_code":
            return ErrorCode(value)
        case "timedelta_i32" | "timedelta_i64":
            return datetime.timedelta(milliseconds=value)
        case "datetime_i64":
            return None if value == -1 else _EPOCH + value * _MS
        case "uuid":
            return None if value == bytes(16) else uuid.UUID(bytes=value)
    return value


def _from_kio(theirs: Any, cls: type, version: int) -> Any:
    given = {}
    for f, other in _pairs(cls, version, type(theirs)):
        value = getattr(theirs, other.name)
        if f.tag is not None and isinstance(f.kind, Nested) and value == other.default:
            continue  # not sent
        given[f.name] = _value_from_kio(f.kind, value, version, other)
    return cls(**given)


def _value_from_kio(kind: Any, value: Any, version: int, other: Any) -> Any:
    if isinstance(kind, Array):
        return None if value is None else [_value_from_kio(kind.item, item, version, other) for item in value]
    if isinstance(kind, Nested):
        return None if value is None else _from_kio(value, kind.cls, version)
    if isinstance(kind, Blob):
        return (
            value
            if value is None or kind.of == "bytes"
            else [memoryview(value)]
            if kind.of == "slices"
            else memoryview(value)
        )
    match other.metadata["kafka_type"]:
        case "error_code":
            return int(value)
        case "timedelta_i32" | "timedelta_i64":
            return value // _MS
        case "datetime_i64":
            return -1 if value is None else (value - _EPOCH) // _MS
        case "uuid":
            return bytes(16) if value is None else value.bytes
    return value


_OPERATIONS = "authorized_operations"  # theirs is a set of bits under this name


class KafkaPython:
    """kafka-python's codec of one of our classes in one version."""

    def __init__(self, cls: type, version: int) -> None:
        self.cls, self.version = cls, version
        found = (getattr(module, cls.__name__) for module in _KAFKA_PYTHON if hasattr(module, cls.__name__))
        self.theirs: Any = next(found, None)

    @property
    def knows(self) -> bool:
        return self.theirs is not None and bool(self.version <= self.theirs.max_version)

    def encode(self, ours: Any) -> bytes:
        return bytes(_to_kafka_python(ours, self.version, self.theirs).encode(version=self.version))

    def decode(self, data: bytes) -> Any:
        return _from_kafka_python(self.theirs.decode(data, version=self.version), self.cls, self.version)


def _to_kafka_python(ours: Any, version: int, theirs: Any) -> Any:
    given = {}
    for f in schema_of(type(ours)).fields:
        value = getattr(ours, f.name)
        if version not in f.versions or (f.tag is not None and value == f.initial()):
            continue
        if f.name == _OPERATIONS or f.name not in theirs._struct.fields:
            given[_OPERATIONS] = {bit for bit in range(32) if value >> bit & 1}
        else:
            given[f.name] = _value_to_kafka_python(f.kind, value, version, theirs._struct.fields[f.name])
    return theirs(version=version, **given)


def _value_to_kafka_python(kind: Any, value: Any, version: int, field: Any) -> Any:
    if value is None:
        return None
    if isinstance(kind, Array):
        return [_value_to_kafka_python(kind.item, item, version, field) for item in value]
    if isinstance(kind, Nested):
        return _to_kafka_python(value, version, field.data_class)
    if isinstance(kind, Blob):
        return b"".join(value) if kind.of == "slices" else bytes(value)
    return uuid.UUID(bytes=value) if getattr(kind, "format", "") == "16s" else value


def _from_kafka_python(theirs: Any, cls: type, version: int) -> Any:
    given = {}
    for f in schema_of(cls).fields:
        if version in f.versions and (f.tag is None or f.name in (theirs.tags or ())):
            name = f.name if f.name in theirs._struct.fields else _OPERATIONS
            given[f.name] = _value_from_kafka_python(f.kind, getattr(theirs, name), version)
    return cls(**given)


def _value_from_kafka_python(kind: Any, value: Any, version: int) -> Any:
    if isinstance(kind, Fixed):
        return _fixed_from_kafka_python(kind, value)
    if value is None:
        return None
    if isinstance(kind, Array):
        return [_value_from_kafka_python(kind.item, item, version) for item in value]
    if isinstance(kind, Nested):
        return _from_kafka_python(value, kind.cls, version)
    if isinstance(kind, Blob):
        return [memoryview(value)] if kind.of == "slices" else memoryview(value)
    return value


def _fixed_from_kafka_python(kind: Fixed, value: Any) -> Any:
    if kind.format == "16s":
        return ZERO_UUID if value is None else value.bytes
    if value is None:  # the set of operations that nobody asked for
        return -(1 << 31)
    if isinstance(value, set):
        return int.from_bytes(sum(1 << bit for bit in value).to_bytes(4, "big"), "big", signed=True)
    return value
