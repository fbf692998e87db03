"""Share groups of unchanged clients: confluent-kafka's ShareConsumer, Java's KafkaShareConsumer and franz-go."""

import time

import pytest
from broker_process import broker_process
from confluent_kafka import Producer, ShareConsumer
from long_runs import first_only
from share_orders import TIMEOUT_S, left, prepare
from share_workers import KINDS, Crew

ORDERS, FEW = 2_000, 300


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("share") / "classes"


@pytest.mark.parametrize("kind", first_only(KINDS))
def test_two_share_consumers_of_one_partition_accept_each_record_exactly_once(broker, name, folder, kind):
    prepare(broker.bootstrap, name, name, FEW)
    with Crew(broker.bootstrap, name, name, folder) as crew:
        for _ in range(2):
            crew.hire(kind)
        crew.wait_until(FEW, TIMEOUT_S)
        time.sleep(1)  # the last acknowledgements
        assert left(broker.bootstrap, name, name) == []
        assert crew.done == {str(number): [1] for number in range(FEW)}
        assert crew.complaints == []


def test_records_a_closed_share_consumer_did_not_acknowledge_go_to_another(broker, name, folder):
    prepare(broker.bootstrap, name, name, 10)
    held = ShareConsumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": name, "share.acknowledgement.mode": "explicit"}
    )
    held.subscribe([name])
    until, messages = time.monotonic() + TIMEOUT_S, []
    while not messages and time.monotonic() < until:
        messages = list(held.poll(1))
    assert len(messages) == 10
    held.acknowledge(messages[0])
    assert list(held.commit_sync(TIMEOUT_S).values()) == [None]
    with Crew(broker.bootstrap, name, name, folder) as crew:
        crew.hire("librdkafka")
        crew.wait_for_begin()
        time.sleep(1)
        assert crew.done == {}, "all is locked"
        held.close()
        crew.wait_until(9, TIMEOUT_S)
        assert crew.done == {str(number): [2] for number in range(1, 10)}


def test_a_share_group_loses_no_record_when_broker_and_workers_are_killed(tmp_path, folder):
    with broker_process(str(tmp_path / "data")) as broker:
        prepare(broker.bootstrap, "orders", "billing", ORDERS, partitions=2)
        with Crew(broker.bootstrap, "orders", "billing", folder) as crew:
            for kind in (*KINDS, "librdkafka"):
                crew.hire(kind)
            crew.wait_for_begin()
            for share in (0.2, 0.4, 0.6):
                crew.wait_until(int(ORDERS * share), 3 * TIMEOUT_S)
                broker.kill()
                broker.start()
                worker = crew.workers[int(share * 5) % len(crew.workers)]
                worker.kill()
                worker.start()
            crew.wait_until(ORDERS, 5 * TIMEOUT_S)
            time.sleep(2)  # the last acknowledgements
        assert set(crew.done) == {str(number) for number in range(ORDERS)}
        assert left(broker.bootstrap, "orders", "billing") == []


def test_a_share_group_gets_large_batches_of_segments_before_later_records(tmp_path):
    """Each batch is larger than a partition's share of the 8 MiB that a response may have."""
    with broker_process(str(tmp_path / "data")) as broker:
        prepare(broker.bootstrap, "orders", "billing", 0, partitions=10)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.size": 1_000_000})
        for number in range(20):
            producer.produce("orders", f"{number}".encode().ljust(900_000), partition=number % 10)
        assert producer.flush(TIMEOUT_S) == 0
        broker.kill()
        broker.start()  # now all of it is in segments
        for number in range(20, 30):
            producer.produce("orders", f"{number}", partition=number % 10)
        assert producer.flush(TIMEOUT_S) == 0
        consumer = ShareConsumer({"bootstrap.servers": broker.bootstrap, "group.id": "billing"})
        consumer.subscribe(["orders"])
        found, until = [], time.monotonic() + TIMEOUT_S
        while len(found) < 30 and time.monotonic() < until:
            found += [int(message.value()) for message in consumer.poll(1)]
        consumer.close()
        assert sorted(found) == list(range(30))
