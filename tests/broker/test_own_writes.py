"""Requests sent together over one connection: each sees what those before it did, as if every answer was waited for."""

import pytest
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetForLeaderEpochRequest,
)
from fencepost.protocol.messages.topics import DeleteRecordsRequest
from produce_requests import batch, bytes_of, create, fetch, fetched, list_offsets, produce
from simulated_client import SimulatedClient
from txn_client import END, Txn

LATEST, EARLIEST, NEWEST_TIME = -1, -2, -3
ALL_OF_IT = -1  # in DeleteRecords: all records of the partition
LATE_MS = 1_700_000_000_900
OFFSETS = "__consumer_offsets"


@pytest.fixture
def client(broker):
    broker.ask(create("t", 2))
    client = SimulatedClient(broker)
    client.ask(produce("t", batch(3)), 9)
    return client


def produced(count=2, **more):
    return produce("t", batch(count), **more), 9


def deleted(before):
    part = DeleteRecordsRequest.Topic.Partition(partition_index=0, offset=before)
    return DeleteRecordsRequest(topics=[DeleteRecordsRequest.Topic(name="t", partitions=[part])], timeout_ms=1000)


def offset(listed):
    return listed.topics[0].partitions[0].offset


def end_of_epoch():
    part = OffsetForLeaderEpochRequest.Topic.Partition(partition=0, current_leader_epoch=-1, leader_epoch=0)
    return OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderEpochRequest.Topic(topic="t", partitions=[part])]
    )


@pytest.mark.parametrize("version", [3, 9, 12])
def test_list_offsets_counts_records_produced_earlier_on_its_connection(client, version):
    _, listed = client.ask_together((produced()[0], version), list_offsets("t", LATEST))
    assert offset(listed) == 5


@pytest.mark.parametrize("place", [LATE_MS, NEWEST_TIME])
def test_list_offsets_by_time_finds_records_produced_earlier_on_its_connection(client, place):
    _, listed = client.ask_together((produce("t", batch(2, timestamp=LATE_MS)), 9), list_offsets("t", place))
    assert offset(listed) == 3


def test_list_offsets_counts_records_produced_with_acks_0(client):
    (listed,) = client.ask_together(produced(acks=0), list_offsets("t", LATEST), unanswered=1)
    assert offset(listed) == 5


def test_list_offsets_shows_an_earlier_delete_records_on_its_connection(client):
    removed, listed = client.ask_together(deleted(2), list_offsets("t", EARLIEST))
    assert removed.topics[0].partitions[0].low_watermark == offset(listed) == 2


def test_delete_records_to_the_end_deletes_records_produced_on_its_connection(client):
    _, removed, listed = client.ask_together(produced(), deleted(ALL_OF_IT), list_offsets("t", EARLIEST))
    assert removed.topics[0].partitions[0].low_watermark == offset(listed) == 5


@pytest.mark.slow
def test_a_fetch_returns_records_produced_earlier_on_its_connection(client):
    _, got = client.ask_together(produced(), (fetch("t", 3), 12))
    assert fetched(got).high_watermark == 5
    assert bytes_of(fetched(got))


def test_a_fetch_respects_an_earlier_delete_records_on_its_connection(client):
    _, got = client.ask_together(deleted(2), (fetch("t", 2), 12))
    assert fetched(got).log_start_offset == 2


def test_offset_for_leader_epoch_counts_records_produced_earlier_on_its_connection(client):
    _, ended = client.ask_together(produced(), end_of_epoch())
    assert ended.topics[0].partitions[0].end_offset == 5


@pytest.mark.parametrize("version", [1, 2])
def test_a_read_committed_fetch_returns_records_committed_on_its_connection(broker, client, version):
    txn = Txn(broker, version=version, client=client)
    txn.init()
    txn.write("t", b"v", 0)
    _, listed, got = client.ask_together(
        (txn.ending(commit=True), END[version]),
        list_offsets("t", LATEST, committed=True),
        (fetch("t", 3, committed=True), 12),
    )
    assert offset(listed) == fetched(got).last_stable_offset == 5


def test_list_offsets_of_the_offsets_topic_counts_commits_sent_before_it(broker, client):
    def committing(at):
        part = OffsetCommitRequest.Topic.Partition(partition_index=0, committed_offset=at)
        return OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequest.Topic(name="t", partitions=[part])]), 9

    client.ask(*committing(1))
    logs = [partition.log for partition in broker.broker.topics.by_name[OFFSETS].partitions]
    (index,) = [index for index, log in enumerate(logs) if log.end_offset]
    _, listed = client.ask_together(committing(2), list_offsets(OFFSETS, LATEST, partition=index))
    assert offset(listed) == 2


def test_a_read_does_not_return_effects_of_requests_sent_after_it(client):
    _, between, _, after = client.ask_together(
        produced(), list_offsets("t", LATEST), produced(), list_offsets("t", LATEST)
    )
    assert (offset(between), offset(after)) == (5, 7)


class HeldRounds:
    """Holds back the rounds (writes of the journal) of a broker until go_on() is called."""

    def __init__(self, broker):
        self.executor = broker.broker.rounds._executor
        self.held = []
        self.submit = self.executor.submit
        self.executor.submit = lambda job, done: self.held.append((job, done))

    def go_on(self):
        self.executor.submit = self.submit
        for job, done in self.held:
            self.submit(job, done)


def test_list_offsets_does_not_wait_for_a_produce_on_another_connection(broker, client):
    rounds, other = HeldRounds(broker), SimulatedClient(broker)
    client.send_together(produced(), list_offsets("t", LATEST))
    assert client.quiet()
    assert offset(other.ask(list_offsets("t", LATEST))) == 3
    rounds.go_on()
    client.receive()
    assert offset(client.receive()) == 5


def test_a_produce_behind_a_read_that_waits_is_appended_and_answered_after_the_read(broker, client):
    rounds = HeldRounds(broker)
    client.send_together(produced(), list_offsets("t", LATEST))
    client.send(*produced())
    assert client.quiet()
    assert broker.broker.topics.by_name["t"].partitions[0].log.end_offset == 5
    rounds.go_on()
    client.receive()
    assert offset(client.receive()) == 5
    client.receive()
    assert offset(client.ask(list_offsets("t", LATEST))) == 7


def test_a_disconnect_before_a_waiting_fetch_is_answered_leaves_no_state(broker, client):
    rounds = HeldRounds(broker)
    client.send_together(produced(), (fetch("t", 5, max_wait_ms=60_000), 12))
    client.broker.wait(0.1)
    client.close()
    rounds.go_on()
    broker.wait(0.1)
    assert not len(broker.broker.waiting)
    assert not broker.broker.metrics.failures


def test_a_disconnect_while_a_fetch_waits_for_min_bytes_leaves_no_state(broker, client):
    client.send_together(produced(), (fetch("t", 5, max_wait_ms=60_000), 12))
    client.receive()
    assert client.quiet()
    assert len(broker.broker.waiting) == 1
    client.close()
    assert not len(broker.broker.waiting)


def test_a_fetch_waiting_for_min_bytes_does_not_delay_later_requests(client):
    client.send_together(produced(), (fetch("t", 5, max_wait_ms=60_000), 12))
    client.receive()
    client.send(*produced(1))
    assert fetched(client.receive()).high_watermark == 6


def test_a_bug_in_list_offsets_after_a_produce_is_answered_unknown_server_error(broker, client, monkeypatch):
    monkeypatch.setattr("fencepost.broker.handlers.offsets.find_partition", lambda *_: 1 / 0)
    _, listed = client.ask_together(produced(), list_offsets("t", LATEST))
    assert listed.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert broker.broker.halted is None
