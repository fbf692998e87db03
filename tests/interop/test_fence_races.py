"""The connection fence: what a delayed request of an old client does to Kafka, it does not do here.

With `transaction.v1.policy=allow` the broker is as Kafka is, and the same races corrupt what readers see; so they are
races. RACES says how many are run for each client and kind; KAFKA=HOST:PORT runs the corrupting ones there.
"""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest
import races
from library_producers import LIBRARIES
from long_runs import share_of
from served_broker import ServedBroker

pytestmark = pytest.mark.sampled

ROUNDS = int(os.environ.get("RACES", share_of(8)))
TASKS = {"confluent-kafka": 10}  # librdkafka waits for a second before it asks for a group's coordinator again
CLIENTS = ["raw", *LIBRARIES]
PATIENCE_MS = 1_000
# kafka-python gives the transaction up when one of its requests is not answered in time, and says so.
GIVES_UP = {"confluent-kafka": list(races.RACES), "aiokafka": list(races.RACES), "kafka-python": ["produce"]}
KINDS = [  # each client in one kind, and each kind by one client; the other pairs in a long run
    pytest.param(client, kind, marks=[] if client == "raw" or place % len(races.RACES) == number else pytest.mark.long)
    for place, client in enumerate(CLIENTS)
    for number, kind in enumerate(races.RACES)
]


@pytest.fixture(scope="module")
def fenced():
    with ServedBroker() as broker:
        yield broker


@pytest.fixture(scope="module")
def as_kafka():
    """The address of a broker that serves late requests as Kafka does."""
    if "KAFKA" in os.environ:
        yield os.environ["KAFKA"]
        return
    with ServedBroker(transaction_v1_policy="allow") as broker:
        yield f"127.0.0.1:{broker.port}"


@pytest.mark.parametrize(("client", "kind"), KINDS)
def test_a_request_that_arrives_late_over_an_older_connection_is_dropped(fenced, client, kind, name):
    late = races.run(f"127.0.0.1:{fenced.port}", client, races.RACES[kind], name, ROUNDS, TASKS.get(client, 4))
    assert len(late) >= ROUNDS  # a round in which the library hung was repeated
    assert set(late) == {None}, "each was dropped, and its connection closed"


def test_a_record_that_arrives_late_over_an_older_connection_is_dropped(fenced, name):
    late = races.run(f"127.0.0.1:{fenced.port}", "raw", races.abandoned_produce, name, ROUNDS, 4)
    assert late == [None] * ROUNDS  # dropped, and its connection closed


@pytest.mark.parametrize(("client", "kinds"), list(GIVES_UP.items()), ids=list(GIVES_UP))
def test_after_a_timeout_a_client_continues_over_a_new_connection(fenced, client, kinds, name):
    """A request is only slow, no connection is cut. All three libraries close the connection and send the request
    again over another; the late one is dropped.
    """

    def race(kind):
        with races.Racer(f"127.0.0.1:{fenced.port}", client, f"{name}-{kind}", PATIENCE_MS) as racer:
            races.complete(racer, races.RACES[kind], 0, 1)
            return racer.late[-1]

    with ThreadPoolExecutor(len(kinds)) as pool:
        assert set(pool.map(race, kinds)) == {None}


def test_a_late_tv1_record_is_written_if_its_client_has_no_newer_connection(fenced, name):
    """The broker cannot know of a newer connection over which nothing has come yet (docs/guarantees.md), so the record
    is written. With TV2 its epoch would be refused.
    """
    assert races.corruptions(f"127.0.0.1:{fenced.port}", "raw", races.abandoned_produce_alone, name, 3) == 3


@pytest.mark.parametrize("kind", ["end", "offsets"])
@pytest.mark.parametrize("client", CLIENTS)
def test_without_the_fence_a_late_request_changes_the_next_transaction_as_in_kafka(as_kafka, client, kind, name):
    rounds = 20 if client == "raw" else 2
    assert races.corruptions(as_kafka, client, races.RACES[kind], name, rounds) == rounds


def test_without_the_fence_a_late_record_joins_a_later_transaction(as_kafka, name):
    assert races.corruptions(as_kafka, "raw", races.abandoned_produce, name, 20) == 20


@pytest.mark.parametrize("client", CLIENTS)
def test_without_the_fence_a_late_init_producer_id_fences_the_client_that_sent_it(as_kafka, client, name):
    rounds = 20 if client == "raw" else 2
    assert races.corruptions(as_kafka, client, races.init, name, rounds) == rounds


@pytest.mark.parametrize("client", LIBRARIES)
def test_retries_by_the_libraries_never_let_a_late_record_join_a_later_transaction(as_kafka, client, name):
    """Without the fence too: they repeat a request until it is answered, and sequence numbers reveal the late one.
    After a record that they gave up they take a new epoch.
    """
    assert races.corruptions(as_kafka, client, races.produce, name, 2) == 0
