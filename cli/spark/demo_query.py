"""The Spark driver of `fencepost spark demo`, a process that is killed: copies the text, and counts its words.

Both are streams with a checkpoint over all existing records, which continue after a restart. Prints the id of its
application, "running" when its queries run, and "done".
"""

import os
import sys

CORES, EXECUTOR_MB = 2, 1024


def main() -> None:
    """Run the query. Arguments: servers; topics of text, copies and counts; checkpoint folder; lines of a batch."""
    servers, text, copies, counts, checkpoints, per_batch = sys.argv[1:]
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from ...spark import session

    builder = SparkSession.builder.master(f"local-cluster[1,{CORES},{EXECUTOR_MB}]").appName("fencepost demo")
    configs = {
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(CORES),
        "spark.local.dir": checkpoints,
    }
    for name, value in configs.items():
        builder = builder.config(name, value)
    spark = session(builder)
    spark.sparkContext.setLogLevel("OFF")
    print(f"application {spark.sparkContext.applicationId}", flush=True)
    options = {"kafka.bootstrap.servers": servers}
    reader = spark.readStream.format("fencepost").options(**options).option("subscribe", text)
    lines = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", per_batch).load()

    def start(frame: DataFrame, topic: str, mode: str) -> StreamingQuery:
        """Start the query that writes this frame into the topic, and return it."""
        writer = frame.writeStream.format("fencepost").options(**options).option("topic", topic).outputMode(mode)
        checkpoint = os.path.join(checkpoints, topic)
        return writer.option("checkpointLocation", checkpoint).queryName(topic).trigger(availableNow=True).start()

    words = lines.selectExpr("explode(split(lower(substring_index(decode(value, 'UTF-8'), ':', -1)), '[^a-z]+')) word")
    counted = words.where("word != ''").groupBy("word").count()
    queries = [
        start(lines.selectExpr("key", "value"), copies, "append"),
        start(counted.selectExpr("word key", "cast(count as string) value"), counts, "complete"),
    ]
    print("running", flush=True)
    for query in queries:
        query.awaitTermination()
    print("done", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
