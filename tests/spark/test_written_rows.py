"""Rows of Arrow as the lists that a producer takes."""

import pyarrow as pa
import pytest
from fencepost.client.errors import InvalidConfigurationError
from fencepost.spark.written_rows import columns_of


@pytest.mark.parametrize(
    ("wrong", "says"), [([None], "an entry of 'headers' is null"), ([{"key": None, "value": b""}], "has no key")]
)
def test_headers_that_no_record_can_have_are_refused_by_name(wrong, says):
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
