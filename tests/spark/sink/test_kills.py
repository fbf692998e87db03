"""Every kill at every step of the sink on real Spark, and the other ways in which Spark ends a batch.

A driver, a Python worker or the broker gets SIGKILL while a request of a step is on its way: before the broker has it,
or after the broker has answered and before the answer has arrived. The query is started again on the same checkpoint
until it ends well. Each test prints a line with what a read_committed reader found of each batch and could see
meanwhile.
"""

import re
import time

import pytest
import spark_copies
from spark_kills import SIDES, STEPS, kill_at, kill_worker

RECORDS, PER_BATCH = 2_000, 500
TIMEOUT_S = 600  # a guard against a hang; a loaded machine takes minutes to start Spark
ATTEMPTS = 4  # of a task; the query fails with the last

pytestmark = [pytest.mark.jvm, pytest.mark.long]
MOMENTS = [(step, side) for step in STEPS for side in SIDES]


@pytest.fixture
def place(request, spark_broker, spark_proxy, tmp_path):
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[5:70].strip("-")
    yield spark_copies.filled(spark_broker.bootstrap, name, tmp_path, RECORDS, PER_BATCH).through(spark_proxy.bootstrap)
    spark_proxy.clear()


@pytest.fixture
def counted(request, spark_broker, place):
    """After the test, print what a read_committed reader found, and assert that each row was written exactly once."""
    with spark_copies.watched(spark_broker.bootstrap, place) as seen:
        yield
    found = spark_copies.outcome(spark_broker.bootstrap, place, seen)
    print(f"\n  {request.node.name}: {found}", end="")
    assert found.exact, found


def until_it_ends_well(spark, place, attempts: int = 5, **options: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        query = spark_copies.start(spark, place, **options)
        try:
            assert query.awaitTermination(TIMEOUT_S), "the query goes on and on"
            return
        except Exception as failure:
            attempts -= not spark_copies.was_too_slow(failure)
            if not attempts or time.monotonic() > deadline:
                raise
        finally:
            query.stop()


@pytest.mark.parametrize(("step", "side"), MOMENTS)
@pytest.mark.usefixtures("counted")
def test_spark_rows_are_written_once_although_a_worker_is_killed(spark, spark_proxy, place, step, side):
    """At InitProducerId, Produce and PrepareTxn a task's worker is killed; at EndTxns the driver's, so that commit
    raises.
    """
    kill = kill_at(spark_proxy, step, side, 3, kill_worker)
    until_it_ends_well(spark, place)
    kill.check()


@pytest.mark.parametrize(("step", "side"), MOMENTS)
@pytest.mark.usefixtures("counted")
def test_spark_rows_are_written_once_although_the_broker_is_killed(spark, spark_broker, spark_proxy, place, step, side):
    def restart(_: int) -> None:
        spark_broker.kill()
        spark_broker.start()

    kill = kill_at(spark_proxy, step, side, 3, restart)
    until_it_ends_well(spark, place)
    kill.check()


@pytest.mark.parametrize(("step", "side"), MOMENTS)
@pytest.mark.usefixtures("counted")
def test_spark_rows_are_written_once_although_the_driver_is_killed(spark_proxy, place, step, side):
    """At EndTxns, before the broker carries it out or after; before EndTxns nothing is decided."""
    driver = spark_copies.Driver(place)
    kill = kill_at(spark_proxy, step, side, 3, lambda _: driver.kill())
    assert driver.wait(TIMEOUT_S) != 0, driver.output()
    kill.check()
    assert spark_copies.Driver(place).wait(TIMEOUT_S) == 0, driver.output()


@pytest.mark.usefixtures("counted")
def test_a_query_restarted_after_a_failed_task_writes_each_row_once(spark, spark_proxy, place):
    """No message tells what other tasks of the failed batch had prepared."""
    kills = [kill_at(spark_proxy, "Produce", "before", 3 + i, kill_worker) for i in range(2 * ATTEMPTS)]
    until_it_ends_well(spark, place, attempts=8)
    assert sum(kill.done for kill in kills) == len(kills)


@pytest.mark.usefixtures("counted")
def test_spark_rows_are_written_once_although_the_query_is_stopped_during_a_batch(spark, spark_proxy, place):
    """When nothing is written, when a task has prepared, and before the driver decides."""
    for step, side in (("Produce", "before"), ("PrepareTxn", "after"), ("EndTxns", "before")):
        api = STEPS[step]
        held = spark_proxy.hold(api, side=SIDES[side])
        query = spark_copies.start(spark, place)
        held.caught(60)
        query.stop()
        time.sleep(0.5)  # Spark kills the tasks meanwhile; the rows must be right whether it is done or not
        held.release()
    until_it_ends_well(spark, place)


@pytest.mark.parametrize(("step", "side"), [("Produce", "after"), ("PrepareTxn", "before"), ("PrepareTxn", "after")])
def test_stopping_a_query_aborts_its_open_transactions_without_a_next_run(
    spark, spark_broker, spark_proxy, place, step, side
):
    """Spark aborts the batch, so that readers do not wait for its tasks' transactions."""
    held = spark_proxy.hold(STEPS[step], side=SIDES[side])
    query = spark_copies.start(spark, place)
    held.caught(TIMEOUT_S)
    query.stop()
    held.release()
    print(f"\n  free after {spark_copies.settled(spark_broker.bootstrap, place.target)} s", end="")
    assert spark_copies.read(spark_broker.bootstrap, place.target) == []


@pytest.mark.usefixtures("counted")
def test_spark_rows_are_written_once_although_the_driver_is_killed_repeatedly(spark_proxy, place):
    """Several drivers in turn run the same batch, whether it is decided or not."""
    for i, (step, side) in enumerate((("EndTxns", "after"), ("PrepareTxn", "after"), ("EndTxns", "before"))):
        driver = spark_copies.Driver(place)
        kill = kill_at(spark_proxy, step, side, 1 + i % 2, lambda _, driver=driver: driver.kill())
        assert driver.wait(TIMEOUT_S) != 0, driver.output()
        kill.check()
    assert spark_copies.Driver(place).wait(TIMEOUT_S) == 0, driver.output()


def test_a_query_whose_first_batch_is_empty_writes_rows_of_later_batches_once(
    spark, spark_broker, spark_proxy, tmp_path
):
    spark_copies.topics(spark_broker.bootstrap, "nothing-source", "nothing-target")
    place = spark_copies.Place(spark_proxy.bootstrap, "nothing-source", "nothing-target", str(tmp_path / "c"), 100)
    until_it_ends_well(spark, place)
    spark_copies.put(spark_broker.bootstrap, "nothing-source", [b"1", b"2"])
    until_it_ends_well(spark, place)
    found = spark_copies.outcome(spark_broker.bootstrap, place)
    assert found.exact, found
