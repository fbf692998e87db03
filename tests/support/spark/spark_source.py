"""The source without a JVM: tests make the calls that Spark would make."""

import json

from fencepost.client import sync
from fencepost.client.admin.values import NewTopic
from fencepost.spark.options import source_options
from fencepost.spark.source.reader import BatchReader, StreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType
from pyspark.sql.types import IntegerType as Int

WHERE = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", Int()),
        StructField("offset", LongType()),
        StructField("value", BinaryType()),
    ]
)


class Source:
    """A broker, and queries that read from it."""

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap
        self.admin = sync.Admin(bootstrap)
        self.admin.start()

    def close(self):
        self.admin.close()

    def create(self, topic, partitions=1, **configs):
        self.admin.create_topics([NewTopic(topic, partitions, configs=configs)])
        return topic

    def write(self, topic, *values, partition=0, **more):
        with sync.Producer(self.bootstrap) as producer:
            for value in values:
                producer.send(topic, value, partition=partition, **more)

    def given(self, options):
        named = {name.replace("__", "."): str(value) for name, value in options.items()}
        if not set(named) & {"subscribePattern", "assign"}:
            named.setdefault("subscribe", "t")
        return {"kafka.bootstrap.servers": self.bootstrap, **named}

    def batch(self, schema=WHERE, **options):
        return BatchReader(source_options(self.given(options), streaming=False), schema)

    def rows(self, schema=WHERE, **options):
        reader = self.batch(schema, **options)
        return rows_of(reader, reader.partitions())

    def stream(self, schema=WHERE, **options):
        return Query(lambda: StreamReader(source_options(self.given(options), streaming=True), schema))


def rows_of(reader, parts):
    return [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


def places(rows):
    return [(row["topic"], row["partition"], row["offset"]) for row in rows]


def values(rows):
    return [row["value"] for row in rows]


class Query:
    """A query and its checkpoint. restart: a new process reads the checkpoint, as after a kill."""

    def __init__(self, make):
        self._make = make
        self.log = []
        self.done = 0
        self.restart()

    def restart(self):
        self.reader = self._make()
        self._start = None

    def available_now(self):
        self.reader.prepareForTriggerAvailableNow()
        found = []
        while (rows := self.batch()) is not None:
            found += rows
        return found

    def _where(self):
        before = self.done - 1
        if before >= 0:
            return self.log[before]
        if self._start is None:
            self._start = json.loads(json.dumps(self.reader.initialOffset()))
        return self._start

    def plan(self, limit=None):
        """Write the next batch into the offset log. Returns whether there is one."""
        start = self._where()
        limit = limit or self.reader.getDefaultReadLimit()
        end = json.loads(json.dumps(self.reader.latestOffset(start, limit)))
        if self.log and json.dumps(end) == json.dumps(start):
            return False
        self.log.append(end)
        return True

    def batch(self, limit=None):
        """Run the planned batch, or plan one and run it. Returns its rows; None if there are no new records."""
        if len(self.log) == self.done and not self.plan(limit):
            return None
        found = self.run()
        self.done += 1
        return found

    def run(self):
        reader = self._make()  # a new one: tasks do not have the driver's state
        return rows_of(reader, self.reader.partitions(self._where(), self.log[-1]))

    def everything(self):
        return self.batch(ReadAllAvailable())
