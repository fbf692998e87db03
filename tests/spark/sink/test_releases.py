"""The sink with brokers of every release, which have no ledger: it writes at least once and warns, or refuses."""

import pickle

import pyarrow as pa
import pytest
from capped_broker import RELEASES, capped
from fencepost.client.errors import UnknownTopicError, UnsupportedVersionError
from fencepost.spark import client_thread
from fencepost.spark.format import FencepostDataSource
from fencepost.spark.sink import ledger
from fencepost.spark.sink import writer as spark_writer
from fencepost.testing.served import ObservedBroker
from pyspark.sql.types import ArrayType, BinaryType, StringType, StructField, StructType
from spark_source import Source, values

HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
SCHEMA = StructType([StructField("value", StringType()), StructField("headers", ArrayType(HEADER))])
ROWS = [{"value": f"{i}", "headers": [{"key": "h", "value": b"1"}] if i % 2 else None} for i in range(5)]


@pytest.mark.parametrize("release", RELEASES)
def test_the_sink_writes_at_least_once_to_an_older_broker_and_refuses_exactly_once(release, caplog, monkeypatch):
    monkeypatch.setattr(ledger, "TOPIC_TIMEOUT_MS", 100)
    monkeypatch.setattr(spark_writer, "_logged", set())  # the broker of another release may have had this port
    with ObservedBroker() as broker:
        broker.intercept(lambda serve: capped(serve, release))
        source = Source(broker.bootstrap_servers)
        source.create("t", 2)
        given = {"kafka.bootstrap.servers": source.bootstrap, "topic": "t", "includeHeaders": "true"}

        def writer(**more):
            return FencepostDataSource(given | more).streamWriter(schema=SCHEMA, overwrite=False)

        made = pickle.loads(pickle.dumps(writer()))
        assert made.guarantee == "at_least_once"
        assert "at least once, so a retry repeats them" in caplog.text
        made.commit([made.write(iter([pa.RecordBatch.from_pylist(ROWS)]))], 0)
        assert sorted(values(source.rows())) == [b"0", b"1", b"2", b"3", b"4"]
        with pytest.raises(UnsupportedVersionError, match="not fencepost"):
            writer(deliveryGuarantee="exactly_once")
        with pytest.raises(UnknownTopicError, match="no topic 'gone'"):
            writer(topic="gone", **{"kafka.allow.auto.create.topics": "false"})
        source.close()
        client_thread.close_all()
