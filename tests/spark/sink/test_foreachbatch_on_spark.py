"""Writes in foreachBatch on real Spark: the runs of a query are distinguished, and the writes in one run.

They are distinguished by properties that Spark sets but does not document: if this fails and test_runners.py does not,
Spark has changed.
"""

import threading

import pytest
from long_runs import first_only

from fencepost import sync

pytestmark = pytest.mark.jvm


@pytest.mark.parametrize("where", first_only(["with a job group of its own", "in a thread"]))
def test_a_second_foreachbatch_write_with_one_sink_id_stops_the_query(spark, spark_broker, tmp_path, where):
    """A repetition of the same write by a later run of the batch does not stop it."""
    servers, source, target = spark_broker.bootstrap, f"in-{len(where)}", f"out-{len(where)}"
    with sync.Producer(servers) as producer:
        producer.send(source, b"row")
    checkpoint = str(tmp_path / "checkpoint")
    seconds = iter([None, None, "another"])  # the second write of each run; the third run is the first with one

    def write(batch, number, value):
        rows = batch.selectExpr(f"'{value}' as value")  # a new frame makes its session the thread's active one
        spark._jvm.SparkSession.setActiveSession(rows.sparkSession._jsparkSession)
        options = {"kafka.bootstrap.servers": servers, "topic": target, "sinkId": target, "batchId": str(number)}
        options["checkpointLocation"] = checkpoint
        rows.write.format("fencepost").options(**options).mode("append").save()

    def elsewhere(*given):
        if where != "in a thread":
            spark.sparkContext.setJobGroup("nightly", "of the user's own")
            write(*given)
            return
        problems = []

        def run():
            try:
                write(*given)
            except Exception as problem:
                problems.append(problem)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        if problems:
            raise problems[0]

    def each(batch, number):
        elsewhere(batch, number, "one")
        second = next(seconds)
        if second is not None:
            elsewhere(batch, number, second)
        raise RuntimeError("stopped after the write")

    def ended():
        reader = spark.readStream.format("fencepost").option("kafka.bootstrap.servers", servers)
        stream = reader.option("subscribe", source).option("startingOffsets", "earliest").load()
        query = stream.writeStream.foreachBatch(each).option("checkpointLocation", checkpoint).start()
        with pytest.raises(Exception, match="STREAM_FAILED") as caught:
            query.awaitTermination(120)
        return str(caught.value)

    assert "stopped after the write" in ended()
    assert "stopped after the write" in ended()
    assert "written twice" in ended()
    frame = spark.read.format("fencepost").option("kafka.bootstrap.servers", servers).option("subscribe", target)
    assert [bytes(row.value) for row in frame.load().collect()] == [b"one"]
