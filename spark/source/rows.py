"""Rows of the source: the schema of Spark's Kafka source, and Arrow record batches of decoded columns.

The rule: a batch has exactly the Arrow schema that Spark derives from the rows' schema: Spark reads the buffers
unchecked. Only columns of the query's schema are built. Spark does not pass its column selection to a Python source, so
a query leaves columns out with `.schema("offset bigint, value binary")`.
"""

import inspect
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ...client.errors import InvalidConfigurationError
from ...client.records.columns import Columns, WantedColumns
from ...client.settings import nearest

HEADERS = "headers"
TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    HEADERS: "array<struct<key:string,value:binary>>",
}
_PROPER = {name.lower(): name for name in TYPES}
_LATEST_MS = (2**63 - 1) // 1000
"""The largest timestamp in microseconds: the year 294247."""


def schema_text(include_headers: bool) -> str:
    """Return the columns of Spark's Kafka source as a schema in SQL's form."""
    return ", ".join(f"{name} {type_}" for name, type_ in TYPES.items() if name != HEADERS or include_headers)


def check_schema(schema: StructType) -> None:
    """Raise InvalidConfigurationError for columns that the source lacks, or has with another type."""
    if not schema.fields:
        raise InvalidConfigurationError("the schema has no column", hint='add one: .schema("offset bigint")')
    for column in schema.fields:
        name = _PROPER.get(column.name.lower())
        if name is None:
            raise InvalidConfigurationError(f"the source has no column {column.name!r}{nearest(column.name, TYPES)}")
        found = column.dataType.simpleString()
        if found != TYPES[name]:
            hint = f'cast it in the query: selectExpr("cast({name} as {found})")'
            raise InvalidConfigurationError(f"column {name!r} must be {TYPES[name]}, not {found}", hint=hint)


def arrow_schema_of(schema: StructType) -> Any:
    """Return the Arrow schema that Spark expects. The to_arrow_schema of Spark 4.1 has no time zone argument: it
    always uses UTC.
    """
    if "timezone" in inspect.signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)


def wanted_columns(schema: StructType) -> WantedColumns:
    """Return the columns to decode for this schema."""
    names = {column.name.lower() for column in schema.fields}
    return WantedColumns(
        "key" in names, "value" in names, HEADERS in names, bool(names & {"timestamp", "timestamptype"})
    )


def to_batch(columns: Columns, topic: str, partition: int, schema: Any) -> Any:
    """Return a pyarrow.RecordBatch of decoded columns. schema: of arrow_schema_of. Raises InvalidConfigurationError."""
    count = len(columns)
    made = [_column(_PROPER[each.name.lower()], each.type, columns, topic, partition, count) for each in schema]
    for each, found in zip(schema, made, strict=True):
        if found.null_count and not each.nullable:
            at = columns.offsets[found.is_null().index(True).as_py()]
            raise InvalidConfigurationError(
                f"column {each.name!r} is null at offset {at} of {topic}-{partition}, but the schema has it NOT NULL",
                hint="remove NOT NULL from the schema",
            )
    return pa.RecordBatch.from_arrays(made, schema=schema)


def _column(name: str, type_: Any, columns: Columns, topic: str, partition: int, count: int) -> Any:
    """Return one column of the batch as an Arrow array. name: one of the source's. count: the number of rows."""
    if name == "key":
        return pa.array(columns.keys, type_)
    if name == "value":
        return pa.array(columns.values, type_)
    if name == "topic":
        return pa.repeat(pa.scalar(topic, type_), count)
    if name == "partition":
        return pa.repeat(pa.scalar(partition, type_), count)
    if name == "offset":
        return _numbers(type_, columns.offsets, count)
    if name == "timestampType":
        return _numbers(type_, columns.kinds, count)
    if name == "timestamp":
        return _timestamps(columns, type_, count)
    return _headers(columns.headers, type_)


def _numbers(type_: Any, found: Any, count: int) -> Any:
    """Return an Arrow array over a buffer of numbers, without copying."""
    return pa.Array.from_buffers(type_, count, [None, pa.py_buffer(found)])


def _timestamps(columns: Columns, type_: Any, count: int) -> Any:
    """Convert timestamps to microseconds. One that is out of range becomes the largest or smallest possible one."""
    found = _numbers(pa.int64(), columns.timestamps, count)
    try:
        return pc.multiply_checked(found, 1000).cast(type_)
    except pa.ArrowInvalid:
        near = [min(max(each, -_LATEST_MS), _LATEST_MS) * 1000 for each in columns.timestamps]
        return pa.array(near, pa.int64()).cast(type_)


def _headers(found: Sequence[Sequence[tuple[str, bytes | None]]], type_: Any) -> Any:
    """Convert headers. Null for a record without headers, as in Spark's Kafka source."""
    if not any(found):
        return pa.nulls(len(found), type_)
    ends: list[int | None] = []
    names: list[str] = []
    values: list[bytes | None] = []
    for each in found:
        ends.append(len(names) if each else None)
        for name, value in each:
            names.append(name if name.isascii() else name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))
            values.append(value)
    ends.append(len(names))
    inner = type_.value_type
    columns = [pa.array(names, inner.field(0).type), pa.array(values, inner.field(1).type)]
    entries = pa.StructArray.from_arrays(columns, fields=[inner.field(0), inner.field(1)])
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), entries, type=type_)
