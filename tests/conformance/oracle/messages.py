"""From `name=value` on a command line to a request, guided by its schema.

A field that is not written has its default; one that has none is empty: 0, "", an empty list.
"""

from __future__ import annotations

from typing import Any

from fencepost.protocol import apis
from fencepost.protocol.schema import Array, Blob, Field, Fixed, Kind, Nested, Text, schema_of

from .names import Names
from .notation import BadNotation, Value


def request_named(name: str) -> apis.Api:
    """Return the API with this name of Kafka's. Raises BadNotation."""
    for api in apis.APIS.values():
        if api.name == name:
            return api
    raise BadNotation(f"there is no API {name}")


def build(cls: type, fields: dict[str, Value], names: Names) -> Any:
    """Return an instance of `cls` with these fields, converted from words. Raises BadNotation."""
    schema = {field.name: field for field in schema_of(cls).fields}
    unknown = fields.keys() - schema.keys()
    if unknown:
        raise BadNotation(f"{cls.__qualname__} has no {sorted(unknown)}; it has {sorted(schema)}")
    given = {name: _value(schema[name], value, names) for name, value in fields.items()}
    empty = {name: _empty(field.kind) for name, field in schema.items() if field.required and name not in given}
    return cls(**given, **empty)


def _value(field: Field, value: Value, names: Names) -> Any:
    if value is None:
        return None
    if field.name in ("producer_id",) and isinstance(value, str):
        number = names.number(value)
        names.literal("producer", number, value)
        return number
    return _of_kind(field.kind, value, names)


def _of_kind(kind: Kind, value: Value, names: Names) -> Any:
    match kind, value:
        case Array(item), list():
            return [None if each is None else _of_kind(item, each, names) for each in value]
        case Nested(cls), dict():
            return build(cls, value, names)
        case Text(), str():
            return names.text(value)
        case Fixed(format="16s"), str():
            return names.uuid(value)
        case Fixed(format="d"), str():
            return float(value)
        case Fixed(format="?"), "true" | "false":
            return value == "true"
        case Fixed(), str():
            return names.number(value)
        case Blob(), str():
            return bytes.fromhex(value)
    raise BadNotation(f"{value!r} is no {kind}")


def _empty(kind: Kind) -> Any:
    match kind:
        case Fixed():
            return kind.zero
        case Text():
            return ""
        case Array():
            return []
    return None
