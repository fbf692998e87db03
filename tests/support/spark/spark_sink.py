"""The sink without a JVM: one topic, to which jobs write by PySpark's own runners (spark_runners.py)."""

import time

import pyarrow as pa
import pytest
import spark_runners
from fencepost.client import sync
from fencepost.client.admin.values import NewTopic
from fencepost.client.errors import RequestTimedOutError
from fencepost.client.values import TopicPartition
from fencepost.spark import client_thread
from fencepost.spark.sink import ledger
from fencepost.spark.sink.options import sink_options
from pyspark.sql.types import BinaryType, StringType, StructField, StructType
from spark_runners import Job

SCHEMA = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
KINDS = pytest.mark.parametrize("is_stream", [False, True], ids=["batch", "stream"])


class Sink:
    """One topic, by default of one partition, to which one test writes."""

    def __init__(self, broker, topic, *, is_new=True, partitions=1):
        self.topic, self.servers = topic, f"127.0.0.1:{broker.port}"
        if not is_new:
            return
        with sync.Admin(self.servers) as admin:
            admin.create_topics([NewTopic(topic, partitions)])

    def job(self, is_stream, *, number=0, schema=SCHEMA, query="", **more):
        options = {"kafka.bootstrap.servers": self.servers, "topic": self.topic, **more}
        if is_stream and not more:
            options["checkpointLocation"] = f"s3://nobody-can-read/{self.topic}"
        return Job(options, schema, query or self.topic, is_stream=is_stream, number=number)

    def open(self):
        """Return the transactional ids of the open transactions, prepared or not, which block readers."""
        with sync.Admin(self.servers) as admin:
            names = [each.transactional_id for each in admin.list_transactions(states=["Ongoing"])]
            found = admin.describe_transactions(names)
            return [name for name in names if any(tp.topic == self.topic for tp in found[name].partitions)]

    def prepared(self):
        """Return those of the open transactions that wait for a decision."""
        options = sink_options({"kafka.bootstrap.servers": self.servers, "topic": self.topic}, streaming=True)
        with spark_runners.process():
            cluster = client_thread.cluster_for(options)
            keys = client_thread.run(ledger.describe_entries(cluster, timeout_ms=5000), 10)
        waiting = {each.transactional_id for key in keys for each in key.waiting}
        return waiting & set(self.open())

    def wait_for_prepared(self, count):
        """Wait until this many transactions are prepared; fails after some seconds."""
        deadline = time.monotonic() + 20
        while len(self.prepared()) < count:
            assert time.monotonic() < deadline, f"never {count} prepared"
            time.sleep(0.05)

    def rows(self, partition=0):
        """Return the values that a read_committed reader gets from this partition, in order."""
        with sync.Consumer(self.servers, auto_offset_reset="earliest") as consumer:
            tp = TopicPartition(self.topic, partition)
            consumer.assign([tp])
            (end,) = consumer.end_offsets([tp]).values()
            found = []
            while consumer.position(tp) < end:
                for records in consumer.getmany(timeout_ms=200).values():
                    found += [each.value for each in records]
            return found


def arrow(*values):
    columns = [pa.array([None] * len(values), pa.string()), pa.array(values, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, ["key", "value"])


def answers_lost(monkeypatch, *, carried_out, away=False):
    """Let no decision be answered. carried_out: the broker makes the decision nevertheless. away: later requests are
    not answered either.
    """
    real = ledger.carry_out

    async def lost(cluster, key, steps, *, timeout_ms):
        if carried_out:
            await real(cluster, key, steps, timeout_ms=timeout_ms)
        if away:
            monkeypatch.setattr(ledger, "ask", silent)
        raise RequestTimedOutError("no answer")

    async def silent(*given, **more):
        raise RequestTimedOutError("no answer")

    monkeypatch.setattr(ledger, "carry_out", lost)
