"""The columns that the sink writes, and their conversion from Arrow batches to lists for a producer.

The rule: columns and their meaning are those of Spark's Kafka sink: `value`, and optionally `key`, `topic`, `partition`
and `headers`. Names are case-sensitive; other columns, `Key` among them, are ignored.
Source: Spark's KafkaWriter and KafkaRowWriter.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ...client.errors import InvalidConfigurationError

COLUMNS = {
    "value": ("binary", "string"),
    "key": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}


class TopicRows(NamedTuple):
    """Records for one topic, as columns of the same length. keys, partitions, headers: None if no record has one."""

    topic: str
    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None = None
    partitions: Sequence[int | None] | None = None
    headers: Sequence[Any] | None = None

    def __len__(self) -> int:
        return len(self.values)


def check_columns(schema: Any, topic: str | None) -> None:
    """Raise InvalidConfigurationError if rows of this schema (a StructType) cannot be written. topic: of the option;
    None if a column must have it.
    """
    types = {each.name: each.dataType.simpleString() for each in schema.fields}
    names = [each.name for each in schema.fields]
    for name in COLUMNS:
        if names.count(name) > 1:
            raise InvalidConfigurationError(f"column {name!r} exists twice", hint="drop or rename one of them")
    if "value" not in types:
        raise InvalidConfigurationError(
            "there is no column 'value'", hint='add it: selectExpr("to_json(struct(*)) as value")'
        )
    if topic is None and "topic" not in types:
        raise InvalidConfigurationError("no topic: neither option 'topic' nor a column 'topic' is set")
    for name, allowed in COLUMNS.items():
        if name in types and types[name] not in allowed:
            wanted = " or ".join(allowed)
            raise InvalidConfigurationError(
                f"column {name!r} must be {wanted}, not {types[name]}",
                hint=f'cast it: selectExpr("cast({name} as {allowed[-1]})")',
            )


def columns_of(batch: Any, topic: str | None) -> Iterator[TopicRows]:
    """Yield the rows of a pyarrow.RecordBatch, one TopicRows for each topic in it. topic: of the option; None: a
    column has it. Raises InvalidConfigurationError.
    """
    places = {name: index for index, name in enumerate(batch.schema.names)}

    def column(name: str) -> Any:
        """Return the batch's column of this name; None if it has none."""
        return batch.column(places[name]) if name in places else None

    found = TopicRows(
        topic or "",
        _bytes(column("value")),
        None if _is_null(column("key")) else _bytes(column("key")),
        _partitions(column("partition")),
        _headers(column("headers")),
    )
    if topic is not None:
        yield found
        return
    topics = column("topic").to_pylist()
    if None in topics:
        raise InvalidConfigurationError("the topic of a row is null, and option 'topic' is not set")
    for name in dict.fromkeys(topics):
        rows = [index for index, each in enumerate(topics) if each == name]
        yield TopicRows(name, *(None if each is None else [each[row] for row in rows] for each in found[1:]))  # type: ignore[arg-type]


def _is_null(column: Any) -> bool:
    """Return whether the column does not exist, or has only nulls."""
    return column is None or column.null_count == len(column)


def _bytes(column: Any) -> list[bytes | None]:
    """Convert a binary or string column to a list of bytes; None for null."""
    import pyarrow as pa

    if not pa.types.is_binary(column.type):
        column = column.cast(pa.binary())
    found: list[bytes | None] = column.to_pylist()
    return found


def _partitions(column: Any) -> list[int | None] | None:
    """Convert the partition column to a list; None if there is none or all are null."""
    if _is_null(column):
        return None
    found: list[int | None] = column.to_pylist()
    return found


def _headers(column: Any) -> list[Any] | None:
    """Convert the headers column to a list of (key, value) lists; None if there is none or all are null. Raises
    InvalidConfigurationError for a null entry or key.
    """
    if _is_null(column):
        return None
    entries = column.flatten()
    if entries.null_count:
        raise InvalidConfigurationError("an entry of 'headers' is null", hint="remove it from the array")
    if entries.field("key").null_count:
        raise InvalidConfigurationError(
            "an entry of 'headers' has no key", hint="a key must not be null: it may be empty"
        )
    return [None if row is None else [(each["key"], each["value"]) for each in row] for row in column.to_pylist()]
