"""A Spark session that executes commands from standard input, with the data source `fencepost` or Spark's own for
Kafka.

Run by its path, with any Python that has pyspark: `python spark_loads.py fencepost|kafka`. Each line of input is one
command, as JSON: {"do": "read" | "write" | "copy", "servers", "topic", "target", "records", "record_bytes",
"partitions", "per_batch", "options"}. Each line of output is the result of one command: {"seconds", "batches": [ms of
each]}, or {"error"}. All commands use one session, so only the first of each sort runs cold.
"""

import json
import os
import sys
import tempfile
import time
from typing import Any

CONFIGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "3g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
}
ERROR_CHARACTERS = 2000  # of an error's text; one of Spark contains the whole plan


def session(form: str) -> Any:
    """Start a Spark session with two cores. form: "fencepost", or else Spark's own connector with the jar of
    SPARK_KAFKA_PACKAGES.
    """
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]")
    for name, value in CONFIGS.items():
        builder = builder.config(name, value)
    if form == "fencepost":
        from fencepost.spark import session as ours  # absolute, because this file is run by its path

        return ours(builder)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return builder.config("spark.jars.packages", os.environ["SPARK_KAFKA_PACKAGES"]).getOrCreate()


def read(spark: Any, form: str, order: dict[str, Any]) -> dict[str, Any]:
    """Read the topic as a batch and discard the rows. Returns the seconds it took."""
    reader = spark.read.format(form).option("kafka.bootstrap.servers", order["servers"])
    frame = reader.options(**order["options"]).option("subscribe", order["topic"]).load()
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return {"seconds": time.perf_counter() - began}


def write(spark: Any, form: str, order: dict[str, Any]) -> dict[str, Any]:
    """Write rows that Spark generates, with keys of eight bytes and the same value, to the target as a batch. Returns
    the seconds it took.
    """
    rows = spark.range(0, order["records"], numPartitions=order["partitions"])
    key = "CAST(lpad(CAST(id % 10000 AS STRING), 8, '0') AS BINARY) AS key"
    frame = rows.selectExpr(key, f"CAST(repeat('v', {order['record_bytes']}) AS BINARY) AS value")
    writer = frame.write.format(form).mode("append").options(**order["options"])
    writer = writer.option("kafka.bootstrap.servers", order["servers"]).option("topic", order["target"])
    began = time.perf_counter()
    writer.save()
    return {"seconds": time.perf_counter() - began}


def copy(spark: Any, form: str, order: dict[str, Any]) -> dict[str, Any]:
    """Copy keys and values of the topic to the target as a stream, until all are copied. Returns the seconds it took,
    and the ms of each micro-batch.
    """
    reader = spark.readStream.format(form).option("kafka.bootstrap.servers", order["servers"])
    reader = reader.option("subscribe", order["topic"]).option("startingOffsets", "earliest")
    if order.get("per_batch"):
        reader = reader.option("maxOffsetsPerTrigger", order["per_batch"])
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = reader.load().selectExpr("key", "value").writeStream.format(form).options(**order["options"])
        writer = writer.option("kafka.bootstrap.servers", order["servers"]).option("topic", order["target"])
        began = time.perf_counter()
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        seconds = time.perf_counter() - began
        done = [each.durationMs["triggerExecution"] for each in query.recentProgress if each.numInputRows]
    return {"seconds": seconds, "batches": done}


def main() -> None:
    """Start the session, then run a command for each line of JSON on standard input and print its answer as JSON."""
    form = sys.argv[1]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Spark prints must not mix with the answers
    spark = session(form)
    spark.sparkContext.setLogLevel("ERROR")
    print(json.dumps({"spark": spark.version}), file=answers, flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        work = {"read": read, "write": write, "copy": copy}[order["do"]]
        try:
            answer = work(spark, form, order)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS]}
        print(json.dumps(answer), file=answers, flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
