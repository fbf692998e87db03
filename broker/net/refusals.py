"""The response to a request that failed as a whole: the error code is where the clients of each API look for it.

The rule is that of Kafka's getErrorResponse, for all APIs: if the response has an error code of its own, that is set
and the rest is empty; otherwise every item of the request is repeated with the error. Clients notice items that are
missing, and some abort because of them.
"""

from typing import Any

from ...protocol.errors import KafkaError
from ...protocol.schema import NONE, Array, Field, Fixed, Nested, Text, schema_of

_CODE = "error_code"
_CODES = (_CODE, "partition_error_code")
_MESSAGE = "error_message"

_BOTH = (3, 43, 45)
"""Metadata, ElectLeaders, AlterPartitionReassignments: they have a code of their own in some versions, and clients look
at the items all the same."""
_SAME = {  # names of one thing: in requests, in responses
    "index": "partition",
    "partition_id": "partition",
    "partition_index": "partition",
    "partition_indexes": "partition",
    "partitions": "partition",
    "topic": "name",
    "topic_names": "name",
    "coordinator_keys": "key",
    "keys": "key",
    "names": "name",
    "groups": "group_id",
    "groups_names": "group_id",
    "transactional_ids": "transactional_id",
}
_GRANTED = ("producer_id", "producer_epoch", "protocol_type", "protocol_name")
"""What a response gives away, as a request of the same name wants it or had it: not with an error."""


def refusal(response: type, version: int, request: Any, error: KafkaError) -> Any:
    """Return the response to `request` that contains `error`: in the error code of the response, or in that of each
    item asked for.

    response: the class of the response. version: of the request, which decides what fields there are.
    """
    return _refuse(response, version, request, error)


def _refuse(made: type, version: int, asked: Any, error: KafkaError) -> Any:
    """Make an object of this response class, or of the class of its items, that contains `error`. asked: the request or
    item that it answers.
    """
    schema = schema_of(made)
    own = any(field.name == _CODE and version in field.versions for field in schema.fields)
    values = {}
    for field in schema.fields:
        value = _value(field, version, asked, error, own and schema.api not in _BOTH)
        if value is not None or field.required:
            values[field.name] = value
    return made(**values)


def _value(field: Field, version: int, asked: Any, error: KafkaError, own: bool) -> Any:
    """Return the value of one field of a refusal; None for the field's default. asked: the request or item that it
    answers.

    own: whether the struct has an error code itself, so that its arrays stay empty; otherwise their items contain the
    error.
    """
    if field.name in _CODES:
        return int(error.code)
    if field.name == _MESSAGE:
        return error.text
    kind = field.kind
    if isinstance(kind, Array):
        if not own and isinstance(kind.item, Nested) and _has_error_code(kind.item.cls):
            return [_refuse(kind.item.cls, version, item, error) for item in _items_to_answer(kind.item.cls, asked)]
        return [] if field.required else None
    given = None if own and field.name in _GRANTED else _field_named(asked, field.name)
    if given is not None and isinstance(kind, Fixed | Text):
        return given
    if not field.required or field.nullable is not NONE:
        return None
    return kind.zero if isinstance(kind, Fixed) else "" if isinstance(kind, Text) else b""


def _has_error_code(made: type) -> bool:
    """Return whether items of this class have an error code, directly or in nested items."""
    return any(
        field.name in _CODES
        or (
            isinstance(field.kind, Array)
            and isinstance(field.kind.item, Nested)
            and _has_error_code(field.kind.item.cls)
        )
        for field in schema_of(made).fields
    )


def _items_to_answer(made: type, asked: Any) -> list[Any]:
    """Return the items of `asked` for each of which a refusal has one item of the class `made`. asked: the request, or
    one of its items.

    They are the items of the first list whose fields have a name in common with `made`. If `made` has only an error,
    they are the items of the first list, in its order.
    """
    wanted = {_common_name(field.name) for field in schema_of(made).fields}
    nameless = all(
        field.name in (*_CODES, _MESSAGE) or isinstance(field.kind, Array) for field in schema_of(made).fields
    )
    for field in schema_of(type(asked)).fields if hasattr(asked, "__schema__") else ():
        if isinstance(field.kind, Array):
            item = field.kind.item
            names = {field.name} if not isinstance(item, Nested) else {f.name for f in schema_of(item.cls).fields}
            items = getattr(asked, field.name)
            if items and (nameless or wanted & {_common_name(name) for name in names}):
                return [each if isinstance(item, Nested) else {_common_name(field.name): each} for each in items]
    return []


def _field_named(asked: Any, name: str) -> Any:
    """Return the value of the request's field with this name, or with another name for the same thing; None if there is
    none.
    """
    plain = _common_name(name)
    if isinstance(asked, dict):
        return asked.get(plain)
    for field in schema_of(type(asked)).fields:
        if _common_name(field.name) == plain and not isinstance(field.kind, Array):
            return getattr(asked, field.name)
    return None


def _common_name(name: str) -> str:
    """Return one name for all field names of the same thing: "partition" for "partition_index" or "partitions"."""
    return _SAME.get(name, name)
