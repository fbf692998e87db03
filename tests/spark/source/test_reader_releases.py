"""The source with brokers of every release: it does without what they lack, and logs that once."""

import logging

import pytest
from capped_broker import RELEASES, capped
from fencepost.client import sync
from fencepost.spark import client_thread
from fencepost.spark.source.offsets import DataLost
from fencepost.testing.served import ObservedBroker
from spark_source import Source, values


@pytest.fixture(params=RELEASES)
def source(request):
    with ObservedBroker() as broker:
        broker.intercept(lambda serve: capped(serve, request.param))
        made = Source(broker.bootstrap_servers)
        made.release = tuple(map(int, request.param.split(".")))
        yield made
        made.close()
        client_thread.close_all()


def test_on_every_kafka_release_a_stream_reads_each_committed_record_once(source, caplog):
    source.create("t", 2)
    source.write("t", b"0", b"1", partition=1)
    with sync.Producer(source.bootstrap, transactional_id="x") as producer:
        for verdict in ("commit", "abort", "commit"):
            try:
                with producer.transaction() as tx:
                    tx.send("t", verdict.encode(), partition=0)
                    if verdict == "abort":
                        raise ValueError
            except ValueError:
                pass
    with caplog.at_level(logging.WARNING, "fencepost.spark"):
        query = source.stream(startingOffsets="earliest", maxOffsetsPerTrigger=3)
        found = query.available_now()
    assert sorted(values(found)) == [b"0", b"1", b"commit", b"commit"]
    assert caplog.text.count("no topic ids") == (source.release < (2, 8))
    assert ("ids" in query.log[-1]["@fencepost"]) == (source.release >= (2, 8))
    query.restart()
    source.write("t", b"2")
    assert values(query.batch()) == [b"2"]


def test_a_recreated_topic_raises_data_lost_with_and_without_topic_ids(source):
    source.create("t")
    source.write("t", *[b"old"] * 5)
    query = source.stream(startingOffsets="earliest")
    assert len(query.batch()) == 5
    source.admin.delete_topics(["t"])
    source.create("t")
    source.write("t", b"new")
    with pytest.raises(DataLost):
        query.batch()


def test_the_transaction_that_blocks_a_stream_is_logged_from_kafka_3_0_on(source, caplog, monkeypatch):
    monkeypatch.setattr("fencepost.spark.source.blocked_reads.WAITED_MS", 0)
    source.create("t")
    query = source.stream(startingOffsets="earliest")
    with (
        caplog.at_level(logging.WARNING, "fencepost.spark"),
        sync.Producer(source.bootstrap, transactional_id="holder") as producer,
        producer.transaction() as tx,
    ):
        tx.send_and_wait("t", b"x", partition=0)
        query.batch()
        assert query.batch() is None
    assert "t-0" in caplog.text
    assert ("'holder'" in caplog.text) == (source.release >= (3, 0))
