"""Spark's own Kafka source, which reads uncommitted by default, on a committed-only topic.

The source belongs to one release of Spark, which is installed into an environment of its own; Spark gets the jar from
Maven.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import installed
import pytest
import spark_copies
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

SPARK = "4.2"
PACKAGE = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
PROGRAM = Path(spark_copies.__file__).with_name("kafka_source_read.py")
TIMEOUT_S = 600
SOON_S = 20
SHOWN = ["first", "kept", "between"]

pytestmark = [pytest.mark.jvm, pytest.mark.long, pytest.mark.requirement("S-122")]


@pytest.fixture
def python(tmp_path):
    """The Python of an environment that has this release of Spark."""
    folder = tmp_path / "venv"
    try:
        yield installed.environment(folder, f"pyspark=={SPARK}.*")
    except subprocess.CalledProcessError as problem:
        output = [line for line in problem.stderr.splitlines() if line.strip()]
        pytest.skip(f"Spark's own source is NOT TESTED, as it could not be installed: {' '.join(output[-2:])}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def topic(spark_broker):
    """A topic with records of a committed transaction, of a long one that was aborted, and of one that is open."""
    name, server = "kafkas-own-source", {"bootstrap.servers": spark_broker.bootstrap, "linger.ms": 0}
    made = NewTopic(name, 1, config={"fencepost.isolation.level.min": "read_committed"})
    admin = AdminClient(server)
    admin.create_topics([made])[name].result(SOON_S)
    plain, producer = Producer(server), Producer(server | {"transactional.id": name, "batch.num.messages": 50})
    producer.init_transactions(SOON_S)

    def send(by, *values):
        for value in values:
            by.produce(name, value)
        by.flush(SOON_S)

    send(plain, "first")
    producer.begin_transaction()
    send(producer, "kept")
    producer.commit_transaction(SOON_S)
    producer.begin_transaction()
    send(producer, *["lost" * 100] * 2_000)
    send(plain, "between")
    send(producer, *["lost" * 100] * 2_000)
    producer.abort_transaction(SOON_S)
    producer.begin_transaction()
    send(producer, "open")
    send(plain, "behind")
    yield name
    producer.abort_transaction(SOON_S)


def test_sparks_own_source_reads_only_committed_records_if_the_topic_demands_it(spark_broker, python, topic, tmp_path):
    given = {**os.environ, "PYSPARK_PYTHON": str(python), "SPARK_KAFKA_PACKAGES": PACKAGE}
    words = [python, PROGRAM, spark_broker.bootstrap, topic, tmp_path / "checkpoint"]
    done = subprocess.run([str(each) for each in words], capture_output=True, text=True, timeout=TIMEOUT_S, env=given)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {"batch": SHOWN, "stream": SHOWN}
