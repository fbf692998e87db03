"""ListOffsets and OffsetForLeaderEpoch as clients see them."""

import pytest
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.offsets import ListOffsetsRequest, OffsetForLeaderEpochRequest
from fencepost.protocol.records import Record, build
from produce_requests import batch, create, list_offsets, produce
from simulated_client import SimulatedClient

OK = ErrorCode.NONE
LATEST, EARLIEST, MAX, EARLIEST_LOCAL, TIERED, PENDING = -1, -2, -3, -4, -5, -6


@pytest.fixture
def client(broker):
    broker.ask(create("t", 2))
    client = SimulatedClient(broker)
    for times in ((100, 300, 200), (150, 300)):
        records = [Record(offset, time, b"k", b"v") for offset, time in enumerate(times)]
        client.ask(produce("t", build(records)), 9)
    return client


def found(client, timestamp, version=11, **more):
    """Return (error code, offset, timestamp) in the answer of ListOffsets."""
    part = client.ask(list_offsets("t", timestamp, **more), version).topics[0].partitions[0]
    return part.error_code, part.offset, part.timestamp


def test_list_offsets_earliest_and_latest_return_the_start_and_end_offset(client):
    assert found(client, LATEST) == (OK, 5, -1)
    assert found(client, LATEST, committed=True) == (OK, 5, -1)
    assert found(client, EARLIEST) == found(client, EARLIEST_LOCAL) == (OK, 0, -1)


def test_list_offsets_by_time_returns_the_first_record_at_or_after_it(client):
    expected = {0: (0, 100), 100: (0, 100), 101: (1, 300), 300: (1, 300)}
    assert {time: found(client, time)[1:] for time in expected} == expected
    client.broker.wait(30)  # flushed by now
    assert {time: found(client, time)[1:] for time in expected} == expected


def test_list_offsets_returns_minus_1_without_error_if_no_record_matches(client):
    assert found(client, 301) == (OK, -1, -1)
    assert found(client, TIERED) == found(client, PENDING) == (OK, -1, -1)
    assert found(client, MAX, partition=1) == found(client, 0, partition=1) == (OK, -1, -1)


def test_list_offsets_max_timestamp_returns_the_first_record_that_has_it(client):
    assert found(client, MAX) == (OK, 1, 300)


@pytest.mark.parametrize(("special", "since"), [(MAX, 7), (EARLIEST_LOCAL, 8), (TIERED, 9), (PENDING, 11)])
def test_list_offsets_refuses_special_timestamps_newer_than_the_version(client, special, since):
    assert found(client, special, since - 1)[0] == ErrorCode.UNSUPPORTED_VERSION
    assert found(client, special, since)[0] == OK


def test_list_offsets_refuses_unknown_special_timestamps(client):
    assert found(client, -7)[0] == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.slow
@pytest.mark.parametrize("version", range(1, 12))
def test_list_offsets_is_answered_in_every_version(client, version):
    assert found(client, LATEST, version) == (OK, 5, -1)
    part = client.ask(list_offsets("t", 150), version).topics[0].partitions[0]
    assert (part.offset, part.leader_epoch) == (1, 0 if version >= 4 else -1)


def test_list_offsets_gives_each_partition_its_own_error(client):
    asked = [
        ListOffsetsRequest.Topic(
            name=name,
            partitions=[ListOffsetsRequest.Topic.Partition(partition_index=i, timestamp=-1) for i in indexes],
        )
        for name, indexes in (("t", (1, 9, 0)), ("none", (0,)))
    ]
    response = client.ask(ListOffsetsRequest(topics=asked))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [
        (topic.name, [(p.partition_index, p.error_code) for p in topic.partitions]) for topic in response.topics
    ] == [
        ("t", [(1, OK), (9, unknown), (0, OK)]),
        ("none", [(0, unknown)]),
    ]


def test_list_offsets_refuses_a_partition_named_twice(client):
    twice = [ListOffsetsRequest.Topic.Partition(partition_index=0, timestamp=-1)] * 2
    response = client.ask(ListOffsetsRequest(topics=[ListOffsetsRequest.Topic(name="t", partitions=twice)]))
    assert [part.error_code for part in response.topics[0].partitions] == [ErrorCode.INVALID_REQUEST]


def test_list_offsets_refuses_a_wrong_leader_epoch(client):
    assert found(client, LATEST, current_leader_epoch=0)[0] == OK
    assert found(client, LATEST, current_leader_epoch=4)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_list_offsets_of_a_damaged_partition_gets_a_storage_error(client):
    client.broker.broker.topics.by_name["t"].partitions[0].log.offline = "a test"
    assert found(client, LATEST)[0] == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.requirement("S-11")
def test_list_offsets_latest_counts_only_durable_records(client):
    other = SimulatedClient(client.broker)
    executor, held = client.broker.broker.rounds._executor, []
    submit, executor.submit = executor.submit, lambda job, done: held.append((job, done))
    client.send(produce("t", batch(3, timestamp=900)), 9)
    client.broker.wait(0.1)
    assert found(other, LATEST) == (OK, 5, -1)
    assert found(other, 400) == (OK, -1, -1)
    executor.submit = submit
    submit(*held[0])
    client.receive()
    assert found(other, LATEST) == (OK, 8, -1)
    assert found(other, 400) == (OK, 5, 900)


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize(("epoch", "answer"), [(0, (0, 5)), (-1, (-1, -1)), (1, (-1, -1))])
def test_offset_for_leader_epoch_returns_the_end_of_the_epoch(client, version, epoch, answer):
    part = OffsetForLeaderEpochRequest.Topic.Partition(partition=0, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderEpochRequest.Topic(topic="t", partitions=[part])])
    (got,) = client.ask(request, version).topics[0].partitions
    assert (got.error_code, got.leader_epoch, got.end_offset) == (OK, *answer)


def test_offset_for_leader_epoch_refuses_unknown_partitions_and_wrong_epochs(client):
    asked = [
        OffsetForLeaderEpochRequest.Topic.Partition(partition=7, leader_epoch=0),
        OffsetForLeaderEpochRequest.Topic.Partition(partition=0, leader_epoch=0, current_leader_epoch=9),
    ]
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderEpochRequest.Topic(topic="t", partitions=asked)])
    got = client.ask(request).topics[0].partitions
    assert [part.error_code for part in got] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    ]
