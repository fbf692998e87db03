"""The connector on real Spark: what it reads and writes, and that a kill loses and repeats no record.

A Python worker, the broker and the driver are killed once each, at the most critical steps; all other kills are in
test_kills.py. Checked is what a read_committed reader finds at the end, and what it could see meanwhile.
"""

import re
from pathlib import Path

import pytest
import spark_copies
from spark_kills import kill_at, kill_worker

ROOT = Path(__file__).resolve().parent.parent.parent
RECORDS, PER_BATCH = 3_000, 1_100
TIMEOUT_S = 600  # a guard against a hang; a loaded machine takes minutes to start Spark

pytestmark = pytest.mark.jvm


@pytest.fixture
def place(request, spark_broker, spark_proxy, tmp_path):
    """A filled source, which queries reach through the proxy."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name)[5:50]
    filled = spark_copies.filled(spark_broker.bootstrap, name, tmp_path, RECORDS, PER_BATCH)
    yield filled.through(spark_proxy.bootstrap)
    spark_proxy.clear()


def finished(spark, place, attempts: int = 3) -> int:
    """Start the query until it has ended well. Returns how often it was started."""
    for started in range(1, attempts + 1):
        query = spark_copies.start(spark, place)
        try:
            assert query.awaitTermination(TIMEOUT_S), "the query did not end"
            return started
        except Exception as problem:
            last = problem
        finally:
            query.stop()
    raise last


def test_a_batch_reads_committed_records_or_all_with_read_uncommitted(spark, place):
    def count(**options) -> int:
        reader = spark.read.format("fencepost").options(**place.options(), **options)
        return reader.option("subscribe", place.source).load().count()

    assert count() == RECORDS
    assert count(isolationLevel="read_uncommitted") == RECORDS + 80


def test_a_batch_is_written_as_a_whole_and_read_again(spark, place):
    rows = spark.range(1000).selectExpr("cast(id % 10 as string) key", "cast(id as string) value")
    rows.write.format("fencepost").options(**place.options()).option("topic", place.target).mode("append").save()
    reader = spark.read.format("fencepost").options(**place.options()).option("subscribe", place.target)
    copied = reader.load().selectExpr("cast(key as string) key", "cast(value as string) value")
    assert copied.count() == 1000
    assert copied.exceptAll(rows).count() == 0


def test_a_dataframe_of_the_source_is_copied_to_the_same_partitions(spark, spark_broker, place):
    """A topic with fewer partitions is refused, with the advice to drop the column."""
    whole, narrow = f"{place.target}-whole", f"{place.target}-narrow"
    spark_copies.topics(spark_broker.bootstrap, whole, partitions=spark_copies.SOURCE_PARTITIONS)
    spark_copies.topics(spark_broker.bootstrap, narrow)
    frame = spark.read.format("fencepost").options(**place.options()).option("subscribe", place.source).load()

    def write(rows, topic: str) -> None:
        rows.write.format("fencepost").options(**place.options()).option("topic", topic).mode("append").save()

    write(frame, whole)
    copied = {(partition, value) for partition, _, value in spark_copies.read(spark_broker.bootstrap, whole)}
    asked = {(partition, value) for partition, _, value in spark_copies.read(spark_broker.bootstrap, place.source)}
    assert copied == asked
    with pytest.raises(Exception, match=r"has 1 partition: there is no partition \d(.|\n)*drop it"):
        write(frame, narrow)
    assert spark_copies.read(spark_broker.bootstrap, narrow) == []
    write(frame.drop("partition"), narrow)
    assert len(spark_copies.read(spark_broker.bootstrap, narrow)) == RECORDS
    with pytest.raises(Exception, match="column 'partition' must be int, not bigint"):
        write(frame.selectExpr("value", "cast(partition as bigint) partition"), narrow)


def test_a_stream_copies_every_record_once_and_a_batch_appears_as_a_whole(spark, spark_broker, place):
    with spark_copies.watched(spark_broker.bootstrap, place) as seen:
        assert finished(spark, place) == 1
    found = spark_copies.outcome(spark_broker.bootstrap, place, seen)
    assert found.exact, found
    assert found.records == RECORDS
    assert found.batches >= RECORDS // PER_BATCH


def test_a_worker_killed_after_an_unanswered_prepare_loses_and_repeats_no_row(spark, spark_broker, spark_proxy, place):
    kill = kill_at(spark_proxy, "PrepareTxn", "after", 3, kill_worker)
    with spark_copies.watched(spark_broker.bootstrap, place) as seen:
        finished(spark, place)
    found = spark_copies.outcome(spark_broker.bootstrap, place, seen)
    kill.check()
    assert found.exact, found


def test_a_broker_killed_after_an_unanswered_decision_loses_and_repeats_no_row(spark, spark_broker, spark_proxy, place):
    def restart(_: int) -> None:
        spark_broker.kill()
        spark_broker.start()

    kill = kill_at(spark_proxy, "EndTxns", "after", 2, restart)
    with spark_copies.watched(spark_broker.bootstrap, place) as seen:
        finished(spark, place)
    found = spark_copies.outcome(spark_broker.bootstrap, place, seen)
    kill.check()
    assert found.exact, found


@pytest.mark.long
def test_a_driver_killed_after_an_unanswered_decision_loses_and_repeats_no_row(spark_broker, spark_proxy, place):
    driver = spark_copies.Driver(place)
    kill = kill_at(spark_proxy, "EndTxns", "after", 2, lambda _: driver.kill())
    with spark_copies.watched(spark_broker.bootstrap, place) as seen:
        assert driver.wait(TIMEOUT_S) != 0, driver.output()
        kill.check()
        assert spark_copies.Driver(place).wait(TIMEOUT_S) == 0, driver.output()
    found = spark_copies.outcome(spark_broker.bootstrap, place, seen)
    assert found.exact, found


def test_the_spark_snippets_in_readme_and_docs_run(spark, spark_broker, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spark_copies.topics(spark_broker.bootstrap, "orders", "copies", "totals", "archive")
    spark_copies.put(spark_broker.bootstrap, "orders", [b"%d" % i for i in range(100)])
    for document in (ROOT / "README.md", ROOT / "docs" / "spark.md"):
        names: dict[str, object] = {}
        for snippet in re.findall(r"^```python spark\n(.*?)^```", document.read_text(), re.MULTILINE | re.DOTALL):
            code = snippet.replace("127.0.0.1:9092", spark_broker.bootstrap).replace("/tmp/", f"{tmp_path}/")
            exec(compile(code, document.name, "exec"), names)
    copies = [value for _, _, value in spark_copies.read(spark_broker.bootstrap, "copies")]
    assert sorted(copies, key=int) == [f"{i}" for i in range(100)]
