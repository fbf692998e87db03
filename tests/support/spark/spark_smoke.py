"""A batch read and an exactly-once stream in a plain Spark session, which finds the format without a registration.

Arguments: servers, source, target, checkpoint, records a batch. Prints the version of Spark and how many rows it read.
"""

import json
import sys
from pathlib import Path

import spark_copies


def main() -> None:
    import fencepost.spark
    import pyspark
    from pyspark.sql import SparkSession

    for each in (fencepost.spark, spark_copies.sync):
        assert Path(sys.prefix) in Path(str(each.__file__)).parents, each
    *place, per_batch = sys.argv[1:]
    at = spark_copies.Place(*place, int(per_batch))
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.memory", "1g")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    reader = spark.read.format("fencepost").options(**at.options()).option("subscribe", at.source)
    rows = reader.load().selectExpr("key", "value", "offset", "timestamp").collect()
    spark_copies.start(spark, at).awaitTermination()
    print(json.dumps({"spark": pyspark.__version__, "rows": len(rows)}))
    spark.stop()


if __name__ == "__main__":
    main()
