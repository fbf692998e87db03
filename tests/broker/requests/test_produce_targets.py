"""The partitions of a Produce request: looked up once a topic, and again only when somebody says so."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from fencepost.broker.requests.produce_targets import Targets
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.produce import ProduceRequest
from produce_requests import EARLY_MS, batch, create, idempotent

BY_NAME, BY_ID = 12, 13  # versions of Produce, which names topics by their id since 13


class CountedLookUps(dict):
    """A dictionary that counts how often it is asked."""

    asked = 0

    def get(self, key, default=None):
        self.asked += 1
        return super().get(key, default)


@pytest.fixture
def topics(broker):
    for name in ("t", "u"):
        broker.ask(create(name, 3))
    real = broker.broker.topics
    return SimpleNamespace(by_name=CountedLookUps(real.by_name), by_id=CountedLookUps(real.by_id))


def request(topics, names, indexes=(0, 1, 2), records=None):
    parts = [ProduceRequest.Topic.Partition(index=index, records=memoryview(records or batch())) for index in indexes]
    named = [
        ProduceRequest.Topic(name=name, topic_id=topics.by_name[name].id, partition_data=parts)
        for name in names
        if name in topics.by_name
    ]
    unknown = [ProduceRequest.Topic(name=name, partition_data=parts) for name in names if name not in topics.by_name]
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=named + unknown)


@pytest.mark.parametrize("version", [BY_NAME, BY_ID])
def test_each_topic_is_looked_up_once_for_all_its_partitions(topics, version):
    targets = Targets(topics, request(topics, ["t", "u"]), version)
    assert topics.by_name.asked + topics.by_id.asked == 2
    found = [(target.partition.topic.name, target.partition.index) for target in targets.all]
    assert found == [(name, index) for name in ("t", "u") for index in range(3)]


@pytest.mark.parametrize(
    ("version", "names", "code"),
    [
        (BY_NAME, ["none"], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (BY_ID, ["none"], ErrorCode.UNKNOWN_TOPIC_ID),
        (BY_ID, ["t"], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_a_produce_target_that_does_not_exist_has_no_partition_and_an_error_code(topics, version, names, code):
    targets = Targets(topics, request(topics, names, indexes=(-1, 3)), version)
    assert [target.partition for target in targets.all] == [None, None]
    assert targets.refusal_of_missing(targets.by_topic[0][0]).code is code


def test_a_workers_check_is_dropped_if_the_topic_or_its_settings_changed_meanwhile(topics):
    """A worker checks the records of a large Produce; the batch is then checked again."""
    targets = Targets(topics, request(topics, ["t"], indexes=(0,)), BY_NAME)
    (target,) = targets.all
    partition, found = target.partition, ValueError("what the worker found")
    target.looked_into(partition, partition.rules, found)
    assert target.is_looked_into
    with pytest.raises(ValueError, match="what the worker found"):
        target.accept(partition, target.part.records, 0)
    targets.look_up()
    assert target.is_looked_into  # nothing has changed
    partition.obey(replace(partition.rules, max_message_bytes=100_000))
    assert not target.is_looked_into
    assert target.accept(partition, target.part.records, EARLY_MS).record_count == 1
    topics.by_name["t"] = topics.by_name["u"]
    target.looked_into(partition, partition.rules, found)
    targets.look_up()  # another topic has the name now
    assert not target.is_looked_into


@pytest.mark.parametrize(
    ("records", "transactional"),
    [(idempotent(0, transactional=True), True), (idempotent(0), False), (b"short", False)],
    ids=["transactional", "idempotent", "short"],
)
def test_a_produce_target_of_a_transactional_batch_has_its_producer_id_and_epoch(topics, records, transactional):
    (target,) = Targets(topics, request(topics, ["t"], indexes=(0,), records=records), BY_NAME).all
    assert target.transactional is transactional
    if transactional:
        assert target.producer == (7, 0)
