"""Named producers, through a whole broker: every row of docs/apis.md, and what Pulsar's deduplication got wrong."""

from collections.abc import Iterator

import pytest
from broker_lives import slow, small, unplug
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.net import turns
from fencepost.broker.producers.names import LONGEST_NAME_BYTES
from fencepost.broker.topics.names import PRODUCERS_TOPIC
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.produce import ProduceRequest
from fencepost.protocol.messages.topics import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from named_requests import Part, described, highest, numbered_batch, opened, opening, remove, write, writing
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient
from txn_client import values

FENCED, OUT_OF_ORDER = ErrorCode.PRODUCER_FENCED, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
INVALID, POLICY = ErrorCode.INVALID_REQUEST, ErrorCode.POLICY_VIOLATION
WRONG_COUNT = ErrorCode.INVALID_PARTITIONS
LATER = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def create(broker: SimulatedBroker, name: str = "t", partitions: int = 2) -> None:
    topic = CreateTopicsRequest.Topic(name=name, num_partitions=partitions)
    assert [each.error_code for each in broker.ask(CreateTopicsRequest(topics=[topic])).topics] == [0]


def delete(broker: SimulatedBroker, name: str = "t") -> None:
    asked = DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name=name)], timeout_ms=1000)
    assert [each.error_code for each in broker.ask(asked).responses] == [0]


@pytest.fixture
def broker() -> Iterator[SimulatedBroker]:
    with SimulatedBroker() as broker:
        create(broker)
        yield broker


@pytest.mark.requirement("S-120")
def test_batches_at_or_below_a_names_highest_sequence_are_not_written_again(broker):
    epoch = opened(broker, "sensor", t=2)
    first = write(broker, "sensor", epoch, 1, 2, 5)
    assert (first.error_code, first.base_offset) == (0, 0)
    assert (first.named.duplicate, first.named.highest) == (False, 5)
    for again in ([1, 2, 5], [1], [3], [0, 4]):
        found = write(broker, "sensor", epoch, *again)
        assert (found.error_code, found.base_offset) == (0, -1)
        assert (found.named.duplicate, found.named.highest) == (True, 5)
    assert write(broker, "sensor", epoch, 9).base_offset == 3
    assert values(broker, "t") == [b"1", b"2", b"5", b"9"]


@pytest.mark.requirement("S-120")
def test_each_producer_name_has_its_own_highest_sequence_per_partition(broker):
    epochs = {name: opened(broker, name, t=2) for name in ("a", "b")}
    assert epochs["a"] != epochs["b"]
    write(broker, "a", epochs["a"], 10)
    assert not write(broker, "a", epochs["a"], 3, partition=1).named.duplicate
    assert not write(broker, "b", epochs["b"], 4).named.duplicate
    assert highest(broker, "a", epochs["a"]) == {0: 10, 1: 3}
    assert highest(broker, "b", epochs["b"]) == {0: 4}


def test_sequences_of_named_producers_have_64_bits(broker):
    epoch = opened(broker, "sensor", t=2)
    top = 2**63 - 1
    assert write(broker, "sensor", epoch, 2**40, top).named.highest == top
    assert write(broker, "sensor", epoch, top).named.duplicate


def test_a_batch_partly_above_the_highest_sequence_is_refused_whole(broker):
    """Pulsar #6273: a batch that was written in part was dropped whole."""
    epoch = opened(broker, "sensor", t=2)
    write(broker, "sensor", epoch, 1, 2)
    refused = write(broker, "sensor", epoch, 2, 3)
    assert (refused.error_code, refused.named.duplicate, refused.named.highest) == (OUT_OF_ORDER, False, 2)
    assert values(broker, "t") == [b"1", b"2"]
    assert write(broker, "sensor", epoch, 3).error_code == 0
    assert values(broker, "t") == [b"1", b"2", b"3"]


def test_only_the_newest_epoch_of_a_named_producer_may_write(broker):
    old = opened(broker, "sensor", t=2)
    write(broker, "sensor", old, 1)
    new = opened(broker, "sensor", t=2)
    assert new > old
    for sequences in ([1], [2]):
        answer = write(broker, "sensor", old, *sequences)
        assert answer.error_code == FENCED
        assert "was opened again, by client 'test' at" in answer.error_message
    assert broker.ask(opening("sensor", old, t=2)).error_code == FENCED
    assert write(broker, "sensor", new + 1, 2).error_code == FENCED  # an epoch that no client was given
    assert write(broker, "sensor", new, 2).error_code == 0
    assert values(broker, "t") == [b"1", b"2"]


def test_each_client_that_opens_a_producer_name_fences_those_that_opened_it_before(broker):
    """Pulsar #25954: two recoveries of one name at a time."""
    others = [SimulatedClient(broker) for _ in range(3)]
    epochs = [opened(client, "sensor", t=2) for client in others]
    assert len(set(epochs)) == 3
    answers = [write(client, "sensor", epoch, 7) for client, epoch in zip(others, epochs, strict=True)]
    assert [each.error_code for each in answers] == [FENCED, FENCED, 0]
    assert values(broker, "t") == [b"7"]


def test_a_batch_and_its_highest_sequence_are_written_in_one_unit(broker):
    epoch = opened(broker, "sensor", t=2)
    units = broker.broker.store.last_unit
    write(broker, "sensor", epoch, 1)
    assert broker.broker.store.last_unit == units + 1
    write(broker, "sensor", epoch, 1)
    assert broker.broker.store.last_unit == units + 1  # the repeated batch writes nothing


def test_a_retried_batch_is_written_if_a_power_cut_lost_its_first_attempt():
    """Pulsar #5218: a sequence was marked before its message was durable, and the retry was dropped."""
    disk = SimulatedDisk()
    delays = slow(disk, journal=0.001)
    with SimulatedBroker(small(), disk=disk) as broker:
        create(broker)
        epoch = opened(broker, "sensor", t=2)
        delays["journal"] = 1.0
        for client in (SimulatedClient(broker), SimulatedClient(broker)):  # at the retry, the first is not durable yet
            client.send(writing("sensor", epoch, [1]))
            assert client.quiet(0.1)
        left = unplug(broker)
    with SimulatedBroker(small(), disk=left, seed=9) as again:
        assert values(again, "t") == []
        assert not write(again, "sensor", epoch, 1).named.duplicate
        assert values(again, "t") == [b"1"]


def test_a_retry_during_its_first_attempt_waits_for_it_and_is_a_duplicate(broker):
    """Pulsar #21892: whether a message was a duplicate could not be determined while the first was pending."""
    epoch = opened(broker, "sensor", t=2)
    clients = SimulatedClient(broker), SimulatedClient(broker)
    for client in clients:
        client.send(writing("sensor", epoch, [1]))
    answers = [client.receive().responses[0].partition_responses[0] for client in clients]
    assert [(each.error_code, each.named.duplicate) for each in answers] == [(0, False), (0, True)]


def test_producer_names_and_sequences_survive_a_power_cut_and_a_snapshot(broker):
    epoch = opened(broker, "sensor", t=2)
    write(broker, "sensor", epoch, 1, 2)
    with broker.after_power_cut() as second:
        assert highest(second, "sensor", epoch) == {0: 2}
        write(second, "sensor", epoch, 3)
        with second.again() as third:  # an orderly end writes a snapshot
            assert highest(third, "sensor", epoch) == {0: 3}
            assert write(third, "sensor", epoch, 3).named.duplicate
            assert opened(third, "sensor", t=2) == epoch + 1


def test_opening_a_name_with_a_wrong_partition_count_is_refused(broker):
    (topic,) = broker.ask(opening("sensor", t=3)).topics
    assert (topic.error_code, topic.error_message is not None) == (WRONG_COUNT, True)


def test_a_named_producer_is_refused_after_its_topic_got_more_partitions(broker):
    epoch = opened(broker, "sensor", t=2)
    write(broker, "sensor", epoch, 1)
    more = CreatePartitionsRequest.Topic(name="t", count=3)
    assert broker.ask(CreatePartitionsRequest(topics=[more], timeout_ms=1000)).results[0].error_code == 0
    answer = write(broker, "sensor", epoch, 2)
    assert (answer.error_code, "had 2" in answer.error_message) == (WRONG_COUNT, True)
    (topic,) = broker.ask(opening("sensor", t=3)).topics
    assert (topic.error_code, "had 2" in topic.error_message) == (WRONG_COUNT, True)
    assert remove(broker, "sensor") == [0]
    assert write(broker, "sensor", opened(broker, "sensor", t=3), 2).error_code == 0


def test_a_named_batch_for_a_topic_the_name_did_not_open_is_refused(broker):
    epoch = opened(broker, "sensor")
    assert write(broker, "sensor", epoch, 1).error_code == INVALID
    assert highest(broker, "sensor", epoch) == {}  # highest() opens the topic, with the same epoch
    assert write(broker, "sensor", epoch, 1).error_code == 0


def test_a_removed_name_starts_without_sequences_and_its_old_client_is_fenced(broker):
    """Pulsar #15204: unused names could not be removed."""
    old = opened(broker, "sensor", t=2)
    write(broker, "sensor", old, 5)
    assert remove(broker, "sensor", "sensor") == [0, ErrorCode.RESOURCE_NOT_FOUND]
    assert write(broker, "sensor", old, 6).error_code == FENCED
    new = opened(broker, "sensor", t=2)
    assert new > old
    assert write(broker, "sensor", old, 6).error_code == FENCED
    assert write(broker, "sensor", new, 1).error_code == 0
    with broker.after_power_cut() as again:
        assert highest(again, "sensor", new) == {0: 1}


def test_deleting_a_topic_forgets_the_sequences_that_names_had_in_it(broker):
    create(broker, "u", 1)
    epoch = opened(broker, "sensor", t=2, u=1)
    write(broker, "sensor", epoch, 5)
    write(broker, "sensor", epoch, 6, topic="u")
    delete(broker)
    create(broker)
    assert broker.broker.named_producers.names.entries == 2
    assert write(broker, "sensor", epoch, 1).error_code == INVALID  # it is another topic
    assert highest(broker, "sensor", epoch) == {}
    with broker.after_power_cut() as again:
        assert highest(again, "sensor", epoch, "u", 1) == {0: 6}
        assert again.broker.named_producers.names.entries == 3


def test_describing_a_name_returns_its_owner_and_highest_sequences(broker):
    epoch = opened(broker, "sensor", t=2)
    write(broker, "sensor", epoch, 5, partition=1)
    opened(broker, "other")
    assert [each.name for each in described(broker)] == ["other", "sensor"]
    found, unknown = described(broker, "sensor", "nobody")
    assert (found.epoch, [(each.topic, each.index, each.highest) for each in found.partitions]) == (
        epoch,
        [("t", 1, 5)],
    )
    assert found.owner.startswith("client 'test' at")
    assert unknown.error_code == ErrorCode.RESOURCE_NOT_FOUND


def test_described_names_beyond_the_answers_size_limit_get_a_retriable_error(broker, monkeypatch):
    for name in "abc":
        write(broker, name, opened(broker, name, t=2), 5)
    monkeypatch.setattr(turns, "LEAST_ANSWER_BYTES", 0)
    monkeypatch.setattr(turns, "MAX_ANSWER_BYTES", 1)
    for names in ((), "abc"):
        found = described(broker, *names)
        assert [(each.name, each.error_code) for each in found] == [("a", 0), ("b", LATER), ("c", LATER)]
        assert [len(each.partitions) for each in found] == [1, 0, 0]
    (alone,) = described(broker, "c")
    assert (alone.error_code, [each.highest for each in alone.partitions]) == (0, [5])


@pytest.mark.parametrize("name", ["", "x" * (LONGEST_NAME_BYTES + 1)])
def test_an_empty_or_too_long_producer_name_is_refused(broker, name):
    assert broker.ask(opening(name)).error_code == INVALID


def test_named_batches_with_invalid_sequences_are_refused(broker):
    epoch = opened(broker, "sensor", t=2)
    for sequences in ([3, 3], [5, 4], [-1], [-3, -1]):
        assert write(broker, "sensor", epoch, *sequences).error_code == INVALID
    assert write(broker, None, epoch, 1).error_code == INVALID
    assert write(broker, "sensor", epoch, 1, producer_id=5).error_code == INVALID
    nameless = Part(index=0, records=memoryview(numbered_batch([b"x"])))
    request = writing("sensor", epoch, [1])
    request.topic_data = [ProduceRequest.Topic(name="t", partition_data=[nameless])]
    assert broker.ask(request).responses[0].partition_responses[0].error_code == INVALID
    assert values(broker, "t") == []


def test_the_internal_topic_of_named_producers_cannot_be_opened_for_writing(broker):
    opened(broker, "sensor")
    (topic,) = broker.ask(opening("sensor", **{PRODUCERS_TOPIC: 1})).topics
    assert topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    (missing,) = broker.ask(opening("sensor", nothing=1)).topics
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_producer_names_and_partitions_beyond_their_limits_get_policy_violation():
    """A name or a partition that is known may be used again; removing a name makes room."""
    settings = BrokerSettings(max_named_producers=2, max_named_producer_partitions=3)
    with SimulatedBroker(settings) as broker:
        create(broker, partitions=3)
        first = opened(broker, "a", t=3)
        opened(broker, "b")
        assert broker.ask(opening("c")).error_code == POLICY
        assert opened(broker, "a") > first  # allowed, because the name "a" exists already
        epoch = opened(broker, "a")
        assert [write(broker, "a", epoch, 1, partition=index).error_code for index in range(3)] == [0, 0, POLICY]
        assert broker.ask(opening("b", t=3)).error_code == 0
        assert write(broker, "a", epoch, 2).error_code == 0  # allowed, because "a" has written to partition 0 before
        assert remove(broker, "b") == [0]
        opened(broker, "c")


@pytest.mark.parametrize("version", range(9, 13))
def test_only_produce_requests_without_a_producer_name_take_the_fast_path(broker, version):
    epoch = opened(broker, "sensor", t=2)
    asked = writing("sensor", epoch, [1])
    part = Part(index=0, records=memoryview(numbered_batch([b"p"])))
    topic = ProduceRequest.Topic(name="t", partition_data=[part])
    plain = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])
    for number, request in enumerate([plain, plain, asked, plain, asked]):
        fast = broker.broker.metrics.fast_requests[0]
        (found,) = broker.ask(request, version).responses[0].partition_responses
        assert (found.error_code, found.named is not None) == (0, request is asked), number
        assert broker.broker.metrics.fast_requests[0] - fast == (request is plain)
    assert values(broker, "t") == [b"p", b"p", b"1", b"p"]


def test_a_named_batch_that_is_sent_twice_with_acks_0_is_written_once(broker):
    epoch = opened(broker, "sensor", t=2)
    client = SimulatedClient(broker)
    for _ in range(2):
        client.send_unanswered(writing("sensor", epoch, [1], acks=0))
    broker.wait(0.1)
    assert values(broker, "t") == [b"1"]
