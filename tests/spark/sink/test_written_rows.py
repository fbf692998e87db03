"""Arrow batches are converted to the lists that a producer takes."""

import pyarrow as pa
import pytest
from fencepost.client.errors import InvalidConfigurationError
from fencepost.spark.sink.written_rows import check_columns, columns_of
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType


@pytest.mark.parametrize(
    ("wrong", "says"), [([None], "an entry of 'headers' is null"), ([{"key": None, "value": b""}], "has no key")]
)
def test_a_null_header_or_header_key_raises_an_error_that_says_which(wrong, says):
    type_ = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    good = [{"key": "a", "value": None}]
    columns = [pa.array([b"0", b"1", b"2"]), pa.array([good, None, good], type_)]
    batch = pa.RecordBatch.from_arrays(columns, ["value", "headers"])
    (found,) = columns_of(batch, "t")
    assert found.headers == [[("a", None)], None, [("a", None)]]
    batch = pa.RecordBatch.from_arrays([columns[0], pa.array([good, None, wrong], type_)], ["value", "headers"])
    with pytest.raises(InvalidConfigurationError, match=says):
        list(columns_of(batch, "t"))
    assert list(columns_of(batch.slice(0, 2), "t"))


OTHERS = ("Key", "VALUE", "Topic", "Partition", "Headers")


def test_column_names_are_case_sensitive_as_in_sparks_kafka_sink():
    fields = [StructField(name, IntegerType()) for name in OTHERS]
    check_columns(StructType([StructField("value", BinaryType()), *fields]), "t")
    with pytest.raises(InvalidConfigurationError, match="no column 'value'"):
        check_columns(StructType(fields), "t")
    with pytest.raises(InvalidConfigurationError, match="nor a column 'topic'"):
        check_columns(StructType([StructField("value", BinaryType()), *fields]), None)
    for names in (("value", *OTHERS), (*OTHERS, "value")):
        columns = [pa.array([b"it"]) if name == "value" else pa.array([1]) for name in names]
        (found,) = columns_of(pa.RecordBatch.from_arrays(columns, list(names)), "t")
        assert found == ("t", [b"it"], None, None, None)


def test_a_schema_with_two_columns_of_one_name_is_refused():
    twice = StructType([StructField(name, StringType()) for name in ("value", "key", "key", "other", "other")])
    with pytest.raises(InvalidConfigurationError, match="column 'key' exists twice"):
        check_columns(twice, "t")
