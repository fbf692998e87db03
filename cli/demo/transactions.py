"""The transactions of `fencepost demo`: atomic writes to two topics, fencing by a successor, a lost answer to a commit.

Each step compares what readers of each isolation level see with what it expects; a difference makes the demo fail. Only
Kafka's own clients are used: confluent-kafka produces and reads.
"""

import logging
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..output.interruption import Interruption
from .flaky_proxy import END_TXN, FlakyProxy

TOPICS = ("orders", "payments")
PROGRAM = Path(__file__).with_name("victim.py")
TRANSACTIONAL_ID = "shop"
ANSWER_S = 20.0

_SILENT = logging.getLogger(f"{__name__}.clients")  # the fenced zombie is expected: do not log it
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


@dataclass(slots=True)
class Results:
    """The results so far. wrong: the results that were not as expected."""

    bootstrap: str
    proxy: FlakyProxy
    interruption: Interruption
    say: Callable[[str], None]
    wrong: list[str] = field(default_factory=list)

    def expect(self, what: str, seen: object, wanted: object) -> None:
        """Print a result, and note it if it is not as expected."""
        self.interruption.check()
        right = seen == wanted
        self.say(f"          {what}: {seen}" + ("" if right else f"   NOT {wanted}"))
        if not right:
            self.wrong.append(what)


def run(results: Results) -> None:
    """Run all steps in order; each one leaves records that the next one counts."""
    _all_or_nothing(results)
    _successor(results)
    _zombie(results)
    _lost_answer(results)


def _all_or_nothing(results: Results) -> None:
    """Show that records in two topics become visible together at the commit."""
    results.say(f"atomic    one transaction over two topics, {TOPICS[0]} and {TOPICS[1]}, three records each")
    producer = _producer(results.bootstrap)
    producer.begin_transaction()
    _write(producer, 3)
    results.expect("before the commit, read_uncommitted sees", _count_seen(results, "read_uncommitted"), [3, 3])
    results.expect("before the commit, read_committed sees", _count_seen(results, "read_committed"), [0, 0])
    producer.commit_transaction(ANSWER_S)
    results.expect("the moment the commit returns, read_committed sees", _count_seen(results, "read_committed"), [3, 3])


def _successor(results: Results) -> None:
    """Show that a killed producer's successor aborts its open transaction."""
    results.say("fencing   a client writes three more to each topic and is killed (kill -9) before its commit")
    command = [sys.executable, "-P", str(PROGRAM), results.bootstrap, TRANSACTIONAL_ID, *TOPICS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as victim:
        try:
            assert victim.stdout is not None
            victim.stdout.readline()  # it has written
        finally:
            victim.send_signal(signal.SIGKILL)
    results.expect("its records, to read_uncommitted", _count_seen(results, "read_uncommitted"), [6, 6])
    results.say("          its successor takes over the transactional id, which aborts the open transaction")
    successor = _producer(results.bootstrap)
    results.expect("read_committed sees", _count_seen(results, "read_committed"), [3, 3])
    successor.begin_transaction()
    _write(successor, 1)
    successor.commit_transaction(ANSWER_S)
    results.expect(
        "after a transaction of the successor, read_committed sees", _count_seen(results, "read_committed"), [4, 4]
    )


def _zombie(results: Results) -> None:
    """Show that a slow producer is fenced by its successor."""
    from confluent_kafka import KafkaException

    results.say("zombie    a producer that was only slow continues after its successor has started")
    zombie = _producer(results.bootstrap)
    zombie.begin_transaction()
    _write(zombie, 1)
    _producer(results.bootstrap)  # the successor
    try:
        _write(zombie, 1, flush=False)
        zombie.commit_transaction(ANSWER_S)
        refusal = "nothing"
    except KafkaException as error:
        refusal = error.args[0].name()
    results.expect("its commit is refused with", refusal, "_FENCED")
    results.expect("read_committed still sees", _count_seen(results, "read_committed"), [4, 4])


def _lost_answer(results: Results) -> None:
    """Show that a commit whose answer is lost is sent again and takes effect once."""
    results.say("retry     the answer to a commit is lost on the network, with its connection")
    producer = _producer(results.bootstrap)
    producer.begin_transaction()
    _write(producer, 2)
    results.proxy.lose_next = END_TXN
    producer.commit_transaction(ANSWER_S)
    results.expect("answers to commits that were lost", results.proxy.tally.commits_lost, 1)
    results.expect(
        "the client repeats the commit and succeeds; read_committed sees",
        _count_seen(results, "read_committed"),
        [6, 6],
    )


def _producer(bootstrap: str) -> Any:
    """Return confluent-kafka's producer with the demo's transactional id."""
    from confluent_kafka import Producer

    settings = {
        "bootstrap.servers": bootstrap,
        "transactional.id": TRANSACTIONAL_ID,
        "transaction.timeout.ms": 30_000,
        "socket.timeout.ms": 2000,
        "reconnect.backoff.max.ms": 200,
        "log_level": 0,
    }
    producer = Producer(settings, logger=_SILENT)
    producer.init_transactions(ANSWER_S)
    return producer


def _write(producer: Any, count: int, *, flush: bool = True) -> None:
    """Write `count` records to each topic in the open transaction; with flush, wait until they are acknowledged."""
    for topic in TOPICS:
        for number in range(count):
            producer.produce(topic, f"{topic} {number}", partition=0)
    if flush:
        producer.flush(ANSWER_S)


def _count_seen(results: Results, isolation: str) -> list[int]:
    """Return how many records a reader of this isolation level finds in each topic."""
    return [_count(results.bootstrap, topic, isolation) for topic in TOPICS]


def _count(bootstrap: str, topic: str, isolation: str) -> int:
    """Count the records of a topic that a reader of this isolation level sees. Raises RuntimeError for an error, or if
    no answer comes.
    """
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "demo-look",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found = 0
    try:
        while (message := consumer.poll(ANSWER_S)) is not None:
            error = message.error()
            if error is None:
                found += 1
            elif error.code() == KafkaError._PARTITION_EOF:
                return found
            else:
                raise RuntimeError(f"reading {topic}: {error}")
        raise RuntimeError(f"reading {topic}: no answer in {ANSWER_S:.0f} s")
    finally:
        consumer.close()
