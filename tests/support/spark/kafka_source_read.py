"""Reads a topic with Spark's own Kafka source, as a batch and as a stream, by a Spark that has nothing of fencepost.

Arguments: servers, topic, folder of the checkpoint. SPARK_KAFKA_PACKAGES: Maven's name of the jar. Prints the values
that each of the two saw, in the order of their offsets.
"""

import json
import os
import sys


def main() -> None:
    from pyspark.sql import SparkSession

    servers, topic, checkpoint = sys.argv[1:]
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.memory", "1g")
    builder = builder.config("spark.jars.packages", os.environ["SPARK_KAFKA_PACKAGES"])
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}

    def values(rows: object) -> list[str]:
        return [row.value.decode() for row in rows.orderBy("offset").collect()]

    batch = values(spark.read.format("kafka").options(**options).load())
    streamed: list[str] = []
    stream = spark.readStream.format("kafka").options(**options, maxOffsetsPerTrigger="700").load()
    writer = stream.writeStream.foreachBatch(lambda rows, _: streamed.extend(values(rows)))
    writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    print(json.dumps({"batch": batch, "stream": streamed}))
    spark.stop()


if __name__ == "__main__":
    main()
