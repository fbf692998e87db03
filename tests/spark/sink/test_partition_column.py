"""The column `partition` says where a row goes, as in Spark's Kafka sink; a frame of our source has it, too."""

import pyarrow as pa
import pytest
from fencepost.client.errors import InvalidConfigurationError, UnknownTopicError
from fencepost.spark.sink.written_rows import check_columns
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
)
from spark_sink import KINDS, Sink

PARTITIONS = 4
SCHEMA = StructType([StructField("value", BinaryType()), StructField("partition", IntegerType())])


@pytest.fixture
def wide(broker, request):
    """A topic of several partitions."""
    topic = "".join(c if c.isalnum() else "-" for c in request.node.name)[:200]
    return Sink(broker, topic, partitions=PARTITIONS)


def rows(*pairs):
    values, partitions = zip(*pairs, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(values, pa.binary()), pa.array(partitions, pa.int32())], ["value", "partition"]
    )


@KINDS
def test_each_row_is_in_the_partition_that_its_column_names(wide, is_stream):
    job = wide.job(is_stream, schema=SCHEMA)
    numbers = [(b"%d" % each, each % PARTITIONS) for each in range(40)]
    job.commit([job.task([rows(*numbers[:7]), rows(*numbers[7:])])])
    for partition in range(PARTITIONS):
        assert wide.rows(partition) == [value for value, named in numbers if named == partition]


@KINDS
def test_a_row_without_a_partition_is_placed_by_the_partitioner(wide, is_stream):
    job = wide.job(is_stream, schema=SCHEMA)
    job.commit([job.task([rows((b"a", 3), (b"b", None)), rows((b"c", None))])])
    found = [wide.rows(partition) for partition in range(PARTITIONS)]
    assert b"a" in found[3]
    assert sorted(value for each in found for value in each) == [b"a", b"b", b"c"]


@KINDS
@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize("missing", [PARTITIONS, -1])
def test_a_partition_column_with_a_missing_partition_fails_the_task_naming_it(wide, is_stream, guarantee, missing):
    job = wide.job(is_stream, schema=SCHEMA, deliveryGuarantee=guarantee)
    says = f"topic '{wide.topic}' has {PARTITIONS} partitions: there is no partition {missing}\n"
    hint = "→ the column 'partition' names it: drop it, and the partitioner chooses"
    with pytest.raises(UnknownTopicError, match=says + hint):
        job.task([rows((b"v", missing))])
    assert not wide.open()
    assert not any(wide.rows(partition) for partition in range(PARTITIONS))


@pytest.mark.parametrize(
    "type_", [ByteType(), ShortType(), LongType(), DoubleType(), DecimalType(10, 0), StringType()], ids=repr
)
def test_a_partition_column_of_another_type_is_refused_before_any_task(type_):
    schema = StructType([StructField("value", BinaryType()), StructField("partition", type_)])
    with pytest.raises(InvalidConfigurationError, match="column 'partition' must be int, not ") as caught:
        check_columns(schema, "t")
    assert caught.value.hint == 'cast it: selectExpr("cast(partition as int)")'
