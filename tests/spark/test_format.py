"""The data source as Spark uses it: found by its name, readers made of options, and on Spark 4.1, without limits."""

import importlib.util
import pickle
import sys
import threading

import pytest
from fencepost.client.errors import BrokerUnreachableError, InvalidConfigurationError
from fencepost.spark import client_thread
from fencepost.spark.format import FencepostDataSource
from fencepost.spark.source.reader import BatchReader, StreamReader
from fencepost.testing.served import ObservedBroker
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StringType, StructField, StructType
from spark_source import WHERE, Query, Source, values

GIVEN = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t"}


def test_readers_are_created_and_pickled_without_a_broker():
    """The schema has a column for headers only with includeHeaders."""
    source = FencepostDataSource(GIVEN)
    assert source.name() == "fencepost"
    assert isinstance(source.reader(schema=WHERE), BatchReader)
    reader = source.streamReader(schema=WHERE)
    assert isinstance(reader, SupportsTriggerAvailableNow)
    assert isinstance(pickle.loads(pickle.dumps(reader)), StreamReader), "it goes to the tasks"
    assert "headers" in FencepostDataSource(GIVEN | {"includeHeaders": "true"}).schema()
    assert "headers" not in source.schema()


def test_a_schema_error_has_its_hint_as_a_note_and_the_repr_shows_no_password():
    with pytest.raises(InvalidConfigurationError) as caught:
        FencepostDataSource(GIVEN).reader(schema=StructType([StructField("value", StringType())]))
    assert "cast(value as string)" in caught.value.__notes__[0]
    assert "hush" not in repr(FencepostDataSource(GIVEN | {"kafka.sasl.password": "hush"}))


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"maxOffsetsPerTrigger": "5", "maxBytesPerTrigger": "1m"}, ReadMaxRows(5)),
        ({"maxBytesPerTrigger": "1m"}, ReadMaxBytes(1 << 20)),
        ({"minOffsetsPerTrigger": "5"}, ReadMinRows(5)),
    ],
)
def test_a_streams_default_read_limit_is_that_of_its_per_trigger_options(options, limit):
    assert FencepostDataSource(GIVEN | options).streamReader(schema=WHERE).getDefaultReadLimit() == limit


def test_reading_from_an_unreachable_broker_raises_after_start_ms(monkeypatch):
    monkeypatch.setattr(client_thread, "START_MS", 100)
    with pytest.raises(BrokerUnreachableError):
        FencepostDataSource(GIVEN).reader(schema=WHERE).partitions()


@pytest.fixture(scope="module")
def source():
    with ObservedBroker() as broker:
        made = Source(broker.bootstrap_servers)
        made.broker = broker
        yield made
        made.close()
        client_thread.close_all()


def test_a_stream_continues_after_its_broker_was_killed_and_restarted(source):
    source.create("comes-back")
    source.write("comes-back", b"0", b"1")
    query = source.stream(subscribe="comes-back", startingOffsets="earliest")
    assert query.plan()
    source.broker.kill()
    source.broker.restart()
    assert values(query.batch()) == [b"0", b"1"]
    source.broker.kill()
    source.broker.restart()
    assert query.batch() is None


def test_a_sink_waits_for_a_broker_that_comes_back_before_each_batch(source):
    source.create("sink-comes-back")
    given = {"kafka.bootstrap.servers": source.bootstrap, "topic": "sink-comes-back"}
    schema = StructType([StructField("value", StringType())])
    for _ in range(2):
        assert FencepostDataSource(given).streamWriter(schema=schema, overwrite=False).guarantee == "exactly_once"
        source.broker.kill()
        back = threading.Timer(0.5, source.broker.restart)
        back.start()
        try:
            FencepostDataSource(given).streamWriter(schema=schema, overwrite=False)
        finally:
            back.join()


@pytest.fixture
def reader_of_4_1(monkeypatch):
    """The StreamReader of Spark 4.1, which has no read limits: the module, imported without Spark 4.2's classes for
    them.
    """
    import fencepost.spark.source.reader as known

    monkeypatch.setitem(sys.modules, "pyspark.sql.streaming.datasource", None)
    spec = importlib.util.spec_from_file_location("fencepost.spark.source.reader_of_4_1", known.__file__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert not module.ADMISSION
    return module.StreamReader


class OldQuery(Query):
    """A query of Spark 4.1, which does not pass the query's position to latestOffset()."""

    def plan(self, limit=None):
        start = self._where() if not self.log else self.log[-1]
        end = self.reader.latestOffset()
        if self.log and end == start:
            return False
        self.log.append(end)
        return True


def test_on_spark_4_1_records_are_read_once_and_trigger_limits_are_ignored(source, reader_of_4_1, caplog):
    """A warning names each ignored limit; limits of offsets are obeyed."""
    from fencepost.spark.options import source_options

    source.create("old", 2)
    source.write("old", b"0", b"1")
    given = source.given({"subscribe": "old", "startingOffsets": "earliest", "maxBytesPerTrigger": 1})
    query = OldQuery(lambda: reader_of_4_1(source_options(given, streaming=True), WHERE))
    assert values(query.batch()) == [b"0", b"1"]
    assert "'maxBytesPerTrigger' needs Spark 4.2" in caplog.text
    assert "OffsetsPerTrigger" not in caplog.text
    source.write("old", b"2", partition=1)
    assert values(query.batch()) == [b"2"]
    assert query.batch() is None
    source.write("old", b"3")
    query.restart()
    source.admin.create_partitions({"old": 3})
    source.write("old", b"4", partition=2)
    assert sorted(values(query.batch())) == [b"3", b"4"]
