"""Rows: their schema is exactly that of Spark's Kafka source, and their values are those of the records."""

import datetime as dt

import pytest
from fencepost.client.errors import InvalidConfigurationError
from fencepost.client.records.columns import Columns
from fencepost.protocol.batches import read
from fencepost.protocol.records import Record, build
from fencepost.spark.source.rows import arrow_schema_of, check_schema, schema_text, to_batch, wanted_columns
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
FULL = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField("headers", ArrayType(HEADER)),
    ]
)


def rows(records, schema=FULL, **how):
    columns = Columns(wanted_columns(schema))
    columns.add(read(memoryview(build(records, **how))), 0, 1 << 62)
    arrow = arrow_schema_of(schema)
    batch = to_batch(columns, "t", 3, arrow)
    batch.validate(full=True)
    assert batch.schema.equals(arrow)
    return batch.to_pylist()


def test_a_row_has_key_value_offset_timestamp_and_headers_of_its_record():
    made = dt.datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=dt.UTC)
    at = round(made.timestamp() * 1000)
    found = rows([Record(4, at, b"k", b"v", (("h", b"1"), ("h", None))), Record(5, -1, None, None)], base_offset=4)
    assert found[0] == {
        "key": b"k",
        "value": b"v",
        "topic": "t",
        "partition": 3,
        "offset": 4,
        "timestamp": made,
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
    }
    assert (found[1]["key"], found[1]["value"], found[1]["headers"], found[1]["offset"]) == (None, None, None, 5)
    assert found[1]["timestamp"] == dt.datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=dt.UTC)


def test_rows_with_log_append_time_have_timestamp_type_1():
    assert rows([Record(0, 5, None, b"v")], log_append_time=7)[0]["timestampType"] == 1


def test_rows_have_only_the_columns_of_the_schema_in_its_order():
    schema = StructType([StructField("OFFSET", LongType()), StructField("value", BinaryType())])
    assert rows([Record(0, 5, b"k", b"v", (("h", b"x"),))], schema) == [{"OFFSET": 0, "value": b"v"}]


def test_header_names_that_are_not_utf_8_get_a_replacement_character():
    found = rows([Record(0, 5, None, b"v", (("\udcff", b"x"), ("ü", b"y")))])
    assert [each["key"] for each in found[0]["headers"]] == ["\ufffd", "ü"]


def test_a_record_without_headers_has_null_headers_even_beside_ones_with_headers():
    found = rows([Record(0, 5, None, b"v"), Record(1, 5, None, b"v", (("h", b"x"),)), Record(2, 5, None, b"v")])
    assert [each["headers"] for each in found] == [None, [{"key": "h", "value": b"x"}], None]


@pytest.mark.parametrize(("at", "shown"), [(2**61, 2**63 - 1), (-(2**61), -(2**63) + 1)])
def test_timestamps_out_of_sparks_range_become_its_largest_or_smallest(at, shown):
    columns = Columns()
    columns.add(read(memoryview(build([Record(0, at, None, None)]))), 0, 1 << 62)
    schema = StructType([StructField("timestamp", TimestampType())])
    column = to_batch(columns, "t", 0, arrow_schema_of(schema)).column(0)
    assert abs(column.cast("int64")[0].as_py() - shown) < 1000


def test_the_schema_is_that_of_sparks_kafka_source():
    assert schema_text(False) == (
        "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
    )
    assert schema_text(True).endswith(", headers array<struct<key:string,value:binary>>")
    check_schema(FULL)


def test_a_schema_with_unknown_columns_or_wrong_types_is_refused_with_a_hint():
    with pytest.raises(InvalidConfigurationError, match="'value'"):
        check_schema(StructType([StructField("valu", BinaryType())]))
    with pytest.raises(InvalidConfigurationError) as caught:
        check_schema(StructType([StructField("value", StringType())]))
    assert "cast(value as string)" in caught.value.hint


def test_a_schema_without_columns_is_refused_because_its_rows_could_not_be_counted():
    with pytest.raises(InvalidConfigurationError, match="no column"):
        check_schema(StructType([]))


def test_a_null_in_a_not_null_column_raises_an_error_that_names_the_offset():
    schema = StructType([StructField("offset", LongType(), False), StructField("value", BinaryType(), False)])
    assert rows([Record(0, 5, None, b"v")], schema) == [{"offset": 0, "value": b"v"}]
    with pytest.raises(InvalidConfigurationError, match="'value' is null at offset 8 of t-3"):
        rows([Record(7, 5, None, b"v"), Record(8, 5, None, None)], schema, base_offset=7)


def test_arrow_schema_of_works_if_to_arrow_schema_takes_no_time_zone_argument(monkeypatch):
    newer = arrow_schema_of(FULL)
    monkeypatch.setattr("fencepost.spark.source.rows.to_arrow_schema", lambda schema: newer)
    assert arrow_schema_of(FULL) == newer
