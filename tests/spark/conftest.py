"""One Spark session for the whole suite, and one broker for each module.

Starting a session takes ten seconds and a gigabyte, so there is one, made when a test first asks for it. A test that
uses it is marked `jvm`, and `make test` runs those in one process of their own.
"""

import os
import sys
from pathlib import Path

import pytest
from broker_process import broker_process
from chaos_proxy import ChaosProxy

SUPPORT = Path(__file__).resolve().parent.parent / "support"
CONFIGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    "spark.sql.session.timeZone": "UTC",
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.jvm)


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """The session: two cores, four attempts of a task. Workers find tests/support; tables go to a folder of its own."""
    from fencepost.spark import session
    from pyspark.sql import SparkSession

    place = tmp_path_factory.mktemp("spark")
    paths = [*map(str, SUPPORT.glob("**/")), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths).strip(os.pathsep)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2,4]").appName("fencepost tests")
    for name, value in {**CONFIGS, "spark.sql.warehouse.dir": str(place), "spark.local.dir": str(place)}.items():
        builder = builder.config(name, value)
    started = session(builder)
    started.sparkContext.setLogLevel("ERROR")
    yield started
    for query in started.streams.active:
        query.stop()
    started.stop()


@pytest.fixture(scope="module")
def spark_proxy(spark_broker):
    """A proxy before the broker, at which tests kill processes: tests/support/brokers/chaos_proxy.py and
    spark_kills.py.
    """
    with ChaosProxy(spark_broker.bootstrap) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def spark_broker(request, tmp_path_factory):
    """A broker in a process of its own, which may be killed and started again (tests/support/brokers).

    A module's BROKER_OPTIONS are given to `serve`.
    """
    options = getattr(request.module, "BROKER_OPTIONS", ())
    with broker_process(str(tmp_path_factory.mktemp("broker") / "data"), *options) as broker:
        yield broker
