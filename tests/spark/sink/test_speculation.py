"""Two copies of one task at once, of which Spark starts the second because the first is slow: exactly one of them is in
the decision, whatever the other one does and however late.

The proxy holds one copy until the batch is decided: in the first batch the answer to its PrepareTxn, in a later one the
request. Spark ignores the message of the slower copy, and does not kill it.
"""

import os
import re
import threading
from collections import defaultdict

import pytest
import spark_copies
from chaos_proxy import REPLY, REQUEST, Rule
from spark_cluster import spark_cluster
from spark_kills import END_TXNS, PREPARE_TXN, owner_of

NAME = re.compile(rb"fencepost\.once\.[\w.-]+")
RECORDS, PER_BATCH = 2_000, 500
TIMEOUT_S = 600  # a guard against a hang; a loaded machine takes minutes to start Spark
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.efficiency.enabled": "false",
    "spark.executor.memory": "512m",
    "spark.python.task.killTimeout": "120s",  # so that Spark does not kill the slower copy
}

pytestmark = [pytest.mark.jvm, pytest.mark.long]


class Names(Rule):
    """Collects the transactional ids in each request of an API, in the order in which the broker gets them."""

    def __init__(self, proxy, api):
        super().__init__(proxy, REQUEST, [api], None)
        self.found = []
        self.more = threading.Condition()
        proxy.rules = [self, *proxy.rules]

    def takes(self, frame):
        if super().takes(frame):
            with self.more:
                self.found.append(NAME.findall(frame.body))
                self.more.notify_all()
        return False

    def wait_for(self, count, within_s=90):
        """Wait until `count` requests have been found."""
        with self.more:
            assert self.more.wait_for(lambda: len(self.found) >= count, within_s), self.found


class Answers(Names):
    """Collects the answers of an API in place of its requests."""

    def __init__(self, proxy, api):
        super().__init__(proxy, api)
        self.side = REPLY


def task_of(name):
    """Return (batch, attempt to write it, partition) from a transactional id: equal for all copies of one task."""
    *_, number, attempt, partition, _, _ = name.decode().split(".")
    return number, attempt, partition


def test_a_slower_speculative_copy_writes_nothing_even_after_the_commit(spark_broker, spark_proxy, tmp_path):
    """Exactly one copy of each task is in the decision, and every row is there once."""
    place = spark_copies.filled(spark_broker.bootstrap, "speculation", tmp_path, RECORDS, PER_BATCH)
    place = place.through(spark_proxy.bootstrap)
    prepared, decided = Names(spark_proxy, PREPARE_TXN), Names(spark_proxy, END_TXNS)
    answers = Answers(spark_proxy, END_TXNS)
    submitted = " ".join(f"--conf {name}={value}" for name, value in SPECULATION.items())
    environment = {**os.environ, "PYSPARK_SUBMIT_ARGS": f"{submitted} pyspark-shell"}
    with spark_cluster(tmp_path) as master, spark_copies.watched(spark_broker.bootstrap, place) as seen:
        driver = spark_copies.Driver(place, master, environment)
        for side in (REPLY, REQUEST):
            held = spark_proxy.hold(PREPARE_TXN, side=side)
            frame = held.caught(TIMEOUT_S)
            answers.wait_for(len(answers.found) + 1)
            port = spark_proxy.links[frame.connection].client.writer.get_extra_info("peername")[1]
            owner_of(port)  # raises if the process of the held copy was killed
            held.release()
        assert driver.wait(TIMEOUT_S) == 0, driver.output()
    found = spark_copies.outcome(spark_broker.bootstrap, place, seen)
    print(f"\n  {found}", end="")
    assert found.exact, found
    assert found.records == RECORDS
    copies = defaultdict(set)
    for (name,) in prepared.found:
        copies[task_of(name)].add(name)
    twice = [each for each in copies.values() if len(each) > 1]
    assert len(twice) >= 2, copies  # at least the two that were held above
    chosen = {name for each in decided.found for name in each}
    assert all(len(each & chosen) == 1 for each in copies.values()), (copies, chosen)
    (late,) = NAME.findall(frame.body)
    assert late not in chosen
