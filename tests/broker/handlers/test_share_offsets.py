"""Offsets of share groups, altered, deleted and described by an admin: changes survive restarts, in bounded units."""

from typing import Any

import pytest
from fencepost.broker.groups.share.heartbeats import JOINS, Heartbeat
from fencepost.broker.handlers import share_offsets
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.share_offsets import (
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
)
from group_client import begin
from produce_requests import batch, create, produce
from share_transactions import ShareWorker, acquire
from share_transactions import begin as begin_at_zero
from simulated_broker import SimulatedBroker

PARTITIONS = 5


@pytest.fixture
def broker():
    with begin() as broker:
        broker.ask(create("t", PARTITIONS))
        yield broker


def alter(broker: SimulatedBroker, *starts: tuple[int, int], group: str = "g") -> Any:
    made = AlterShareGroupOffsetsRequest.Topic
    parts = [made.Partition(partition_index=index, start_offset=start) for index, start in starts]
    return broker.ask(AlterShareGroupOffsetsRequest(group_id=group, topics=[made(topic_name="t", partitions=parts)]))


def delete(broker: SimulatedBroker, group: str = "g") -> Any:
    named = DeleteShareGroupOffsetsRequest.Topic(topic_name="t")
    return broker.ask(DeleteShareGroupOffsetsRequest(group_id=group, topics=[named]))


def stands(broker: SimulatedBroker, group: str = "g") -> dict[int, tuple[int, int]]:
    """Start offset and lag, by partition."""
    asked = DescribeShareGroupOffsetsRequest.Group(group_id=group, topics=None)
    (found,) = broker.ask(DescribeShareGroupOffsetsRequest(groups=[asked])).groups
    assert found.error_code == 0
    return {part.partition_index: (part.start_offset, part.lag) for topic in found.topics for part in topic.partitions}


@pytest.mark.slow
def test_altered_share_group_offsets_survive_a_restart(broker):
    broker.ask(produce("t", batch(3)))
    assert alter(broker, (0, 1), (2, 0)).error_code == 0
    with broker.after_power_cut() as again:
        assert stands(again) == {0: (1, 2), 2: (0, 0)}
        assert delete(again).responses[0].error_code == 0
        with again.after_power_cut() as third:
            assert stands(third) == {}


def test_of_repeated_partitions_in_one_alter_the_last_offset_counts(broker):
    assert [part.error_code for part in alter(broker, (0, 1), (0, 2)).responses[0].partitions] == [0, 0]
    assert stands(broker) == {0: (2, -2)}  # a negative lag: the partition is empty


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [1, 2, PARTITIONS])
def test_share_offsets_altered_in_several_units_all_survive_a_power_cut(broker, monkeypatch, at_once):
    monkeypatch.setattr(share_offsets, "AT_ONCE", at_once)
    altered = alter(broker, *((index, 0) for index in range(PARTITIONS)))
    assert [part.error_code for part in altered.responses[0].partitions] == [0] * PARTITIONS
    with broker.after_power_cut() as again:
        assert set(stands(again)) == set(range(PARTITIONS))


def test_a_join_between_two_units_of_an_alter_refuses_the_remaining_partitions(broker, monkeypatch):
    monkeypatch.setattr(share_offsets, "AT_ONCE", 2)
    groups = broker.broker.share_groups
    alter_some = groups.alter

    def join_then_alter(group_id, starts):
        if group_id in groups.groups:
            groups.heartbeat(group_id, Heartbeat("m", JOINS, topics=("t",)))
        alter_some(group_id, starts)

    monkeypatch.setattr(groups, "alter", join_then_alter)
    altered = alter(broker, *((index, 7) for index in range(PARTITIONS)))
    later = ErrorCode.NON_EMPTY_GROUP
    assert [part.error_code for part in altered.responses[0].partitions] == [0, 0, later, later, later]
    assert {index for index, (start, _) in stands(broker).items() if start == 7} == {0, 1}


def test_altering_offsets_creates_a_share_group_only_if_a_partition_is_altered(broker):
    assert alter(broker, (9, 0)).responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "g" not in broker.broker.share_groups.groups
    assert alter(broker, (0, 0)).error_code == 0
    assert "g" in broker.broker.share_groups.groups


def window(broker: SimulatedBroker) -> Any:
    """Return the window of the group's first partition, as it is described."""
    asked = DescribeShareGroupOffsetsRequest.Group(group_id="g", topics=None)
    (found,) = broker.ask(DescribeShareGroupOffsetsRequest(groups=[asked])).groups
    return next(iter(found.topics[0].partitions)).window


def ranges(found: Any) -> list[tuple[int, int, str | None, str]]:
    """Return (first offset, last offset, transactional id, member id) of each pending range of a window."""
    return [(each.first_offset, each.last_offset, each.transactional_id, each.member_id) for each in found.pending]


def test_pending_ranges_are_described_with_their_transaction_until_it_ends(broker):
    """DescribeShareGroupOffsets also gives the size and limit of the window."""
    key, *_ = begin_at_zero(broker, "t", partitions=PARTITIONS)
    for _ in range(12):
        broker.ask(produce("t", batch(1)))
    acquire(broker, key, 0, 9)
    assert (window(broker).size, window(broker).pending_count, window(broker).limit) == (10, 0, 2000)
    one, other = ShareWorker(broker, "x"), ShareWorker(broker, "y")
    assert other.acknowledge((key, 4, 5)) == [0]
    assert one.acknowledge((key, 0, 2), (key, 7, 7)) == [0]
    assert ranges(window(broker)) == [(0, 2, "x", "m"), (4, 5, "y", "m"), (7, 7, "x", "m")]
    assert window(broker).pending_count == 6
    one.end(commit=True)
    assert ranges(window(broker)) == [(4, 5, "y", "m")]
    other.end(commit=False)
    assert (window(broker).size, window(broker).pending_count, window(broker).pending) == (7, 0, [])


def test_describing_many_pending_ranges_lists_the_first_and_counts_all(broker, monkeypatch):
    monkeypatch.setattr(share_offsets, "PENDING_SHOWN", 2)
    key, *_ = begin_at_zero(broker, "t", partitions=PARTITIONS)
    acquire(broker, key, 0, 9)
    worker = ShareWorker(broker, "x")
    assert worker.acknowledge((key, 0, 0), (key, 2, 2), (key, 4, 4)) == [0]
    assert [each[0] for each in ranges(window(broker))] == [0, 2]
    assert window(broker).pending_count == 3
    monkeypatch.setattr(share_offsets, "PENDING_BYTES", 1 << 40)  # the first range fills the answer
    assert [each[0] for each in ranges(window(broker))] == [0]
