"""Conversions in a whole broker: its handlers, its log and its snapshots, power cuts in the midst, offsets."""

import pytest
from fencepost.client.assignors.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from fencepost.client.values import TopicPartition
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from fencepost.protocol.messages.groups import DescribeGroupsRequest, ListGroupsRequest
from group_client import beating, begin, joining, leaving, syncing
from offset_requests import commit, fetch
from produce_requests import create
from simulated_client import SimulatedClient

NONE = ErrorCode.NONE
REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS
ILLEGAL = ErrorCode.ILLEGAL_GENERATION
NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
TOO_MANY = ErrorCode.GROUP_MAX_SIZE_REACHED
CLASSIC, CONSUMER = "classic", "consumer"
METADATA = {"range": encode_subscription(Subscription(("t",)))}
ALL = tuple(TopicPartition("t", partition) for partition in range(4))


@pytest.fixture
def broker():
    with begin(group_consumer_assignment_interval_ms=0) as broker:
        broker.ask(create("t", 4))
        yield broker


def classic_group(broker, group="g", **more):
    """Make a stable classic group of one member, and return the member's id."""
    joined = broker.ask(joining(group, protocols=METADATA, **more))
    if joined.error_code:
        joined = broker.ask(joining(group, joined.member_id, protocols=METADATA, **more))
    all_of_it = {joined.member_id: encode_assignment(Assignment(ALL))}
    assert broker.ask(syncing(group, joined.member_id, joined.generation_id, all_of_it)).error_code == NONE
    return joined.member_id


def beat(broker, member, epoch, owned=None, group="g"):
    said = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"]} if epoch == 0 else {}
    request = ConsumerGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=epoch, topic_partitions=[] if epoch == 0 else owned, **said
    )
    return broker.ask(request)


def rejoined(broker, member, group="g", **more):
    """Let an eager member join and ask for its assignment. Return the generation and its partitions."""
    joined = broker.ask(joining(group, member, protocols=METADATA, **more))
    assert joined.error_code == NONE
    synced = broker.ask(syncing(group, member, joined.generation_id))
    assert synced.error_code == NONE
    return joined.generation_id, {each.partition for each in decode_assignment(synced.assignment).partitions}


def described(broker, group="g"):
    return broker.ask(ConsumerGroupDescribeRequest(group_ids=[group])).groups[0]


def type_of(broker, group="g"):
    return {each.group_id: each.group_type for each in broker.ask(ListGroupsRequest()).groups}[group]


def again(broker, how):
    return broker.again() if how == "orderly" else broker.after_power_cut()


WAYS = pytest.mark.parametrize("how", ["orderly", "power cut"])


@pytest.mark.slow
@WAYS
def test_a_restart_during_an_upgrade_changes_no_epoch_and_moves_no_partition(broker, how):
    """An upgrade makes a classic group a consumer group while some of its members still use the classic protocol."""
    old = classic_group(broker)
    assert beat(broker, "new", 0).member_epoch == 2
    before = described(broker)
    assert {(each.member_id, each.member_epoch, each.member_type) for each in before.members} == {
        (old, 1, 0),
        ("new", 2, 1),
    }
    with again(broker, how) as after:
        assert described(after) == before
        assert after.ask(beating("g", old, 1)).error_code == REBALANCING
        assert rejoined(after, old) == (2, {0, 1})
        assert beat(after, "new", 2).assignment.topic_partitions[0].partitions == [2, 3]
        whole = described(after)
        with again(after, how) as last:
            assert described(last) == whole
            assert last.ask(beating("g", old, 2)).error_code == NONE


@WAYS
def test_a_restart_after_a_downgrade_finds_the_classic_group(broker, how):
    """The group became classic again when its last consumer protocol member left; the remaining member is asked to
    rejoin.
    """
    old = classic_group(broker)
    beat(broker, "new", 0)
    generation, _ = rejoined(broker, old)
    assert beat(broker, "new", -1).error_code == NONE
    assert type_of(broker) == CLASSIC
    with again(broker, how) as after:
        found = after.ask(DescribeGroupsRequest(groups=["g"])).groups[0]
        assert (found.group_state, [each.member_id for each in found.members]) == ("PreparingRebalance", [old])
        assert decode_assignment(found.members[0].member_assignment).partitions == ALL[:2]
        assert described(after).error_code == NOT_FOUND
        assert after.ask(beating("g", old, generation)).error_code == REBALANCING
        after.ask(leaving("g", old))
        assert beat(after, "b", 0).error_code == NONE


def test_a_snapshot_during_migration_keeps_classic_members_protocols(broker):
    old = classic_group(broker)
    beat(broker, "new", 0)
    before = described(broker)
    broker.loop.run_until_complete(broker.broker.coordinator_snapshots.take())
    with broker.after_power_cut() as after:
        assert described(after) == before
        assert rejoined(after, old) == (2, {0, 1})


def test_committed_offsets_are_kept_when_a_group_is_upgraded_or_downgraded(broker):
    old = classic_group(broker)
    assert commit(broker, "g", "t", {0: 5}, member_id=old, generation_id_or_member_epoch=1) == [NONE]
    beat(broker, "new", 0)
    assert fetch(broker, "g") == {("t", 0): 5}
    rejoined(broker, old)
    beat(broker, "new", -1)
    assert fetch(broker, "g") == {("t", 0): 5}
    with broker.after_power_cut() as after:
        assert fetch(after, "g") == {("t", 0): 5}


def test_a_session_timeout_of_the_last_consumer_protocol_member_downgrades_a_group(broker):
    old = classic_group(broker, session_timeout_ms=100_000)
    beat(broker, "new", 0)
    rejoined(broker, old, session_timeout_ms=100_000)
    broker.wait(46)
    assert type_of(broker) == CLASSIC
    assert broker.ask(beating("g", old, 2)).error_code == REBALANCING


def test_converting_an_empty_classic_group_and_the_join_are_logged_in_one_unit(broker):
    """A unit is an entry of the journal: after a crash all of it is there or nothing."""
    old = classic_group(broker)
    broker.ask(leaving("g", old))
    before = broker.broker.store.journal.last_unit
    assert beat(broker, "new", 0).error_code == NONE
    assert broker.broker.store.journal.last_unit == before + 1
    with broker.after_power_cut() as after:
        assert (type_of(after), [each.member_id for each in described(after).members]) == (CONSUMER, ["new"])


def test_a_classic_join_that_exceeds_the_group_memory_is_refused_in_consumer_groups():
    with begin(group_metadata_max_bytes=1 << 20) as broker:
        broker.ask(create("t", 4))
        beat(broker, "new", 0)
        large = {"range": METADATA["range"] + b"x" * (1 << 20)}
        assert broker.ask(joining("g", "m", protocols=large)).error_code == TOO_MANY
        assert broker.ask(joining("g", "m", protocols=METADATA)).error_code == NONE


def test_a_group_too_large_for_one_classic_group_record_stays_a_consumer_group():
    with begin(message_max_bytes=3_000, group_consumer_assignment_interval_ms=0) as broker:
        broker.ask(create("t", 4))
        beat(broker, "new", 0)
        for number in range(2):
            large = {"range": METADATA["range"] + b"x" * 1_500}
            assert broker.ask(joining("g", f"m{number}", protocols=large)).error_code == NONE
        assert beat(broker, "new", -1).error_code == NONE
        assert type_of(broker) == CONSUMER
        # m0 is still known, and has to join again for the partitions of the member that left.
        assert broker.ask(beating("g", "m0", 3)).error_code == REBALANCING


def test_classic_members_get_the_partitions_of_a_consumer_member_that_left():
    with begin(group_consumer_assignment_interval_ms=0, group_consumer_migration_policy="upgrade") as broker:
        broker.ask(create("t", 4))
        old = classic_group(broker)
        beat(broker, "new", 0)
        generation, parts = rejoined(broker, old)
        assert parts == {0, 1}
        beat(broker, "new", -1)
        assert type_of(broker) == CONSUMER
        assert broker.ask(beating("g", old, generation)).error_code == REBALANCING
        assert rejoined(broker, old) == (3, {0, 1, 2, 3})


# ---- answers to members that joined before the conversion ----------------------------------------------------


def test_converting_a_classic_group_never_gives_a_member_epoch_0():
    with begin(group_initial_rebalance_delay_ms=3_000) as broker:
        first = SimulatedClient(broker)
        nowhere = {"range": encode_subscription(Subscription(("nowhere",)))}
        first.send(joining("g", protocols=nowhere), 3)
        assert first.quiet()
        by_pattern = {"rebalance_timeout_ms": 60_000, "subscribed_topic_regex": "nothing.*", "topic_partitions": []}
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="new", member_epoch=0, **by_pattern)
        answer = broker.ask(request)
        assert (answer.error_code, answer.member_epoch > 0) == (NONE, True)
        assert beat(broker, "new", answer.member_epoch).error_code == NONE
        assert first.receive().error_code == REBALANCING


def two_preferences(broker):
    """Make a classic group of two members: one prefers the protocol "other" and knows "range" too, the second knows
    only "range". Return the client of the first, and the join answers of both.
    """
    both, one = SimulatedClient(broker), SimulatedClient(broker)
    preferring = joining("g", protocols={"other": METADATA["range"], **METADATA})
    member = both.ask(preferring, 3).member_id
    one.send(joining("g", protocols=METADATA), 3)
    one.quiet()
    joined = both.ask(joining("g", member, protocols={"other": METADATA["range"], **METADATA}))
    assert (joined.error_code, joined.protocol_name) == (NONE, "range")
    return both, joined, one.receive()


def test_a_member_that_joined_before_a_group_conversion_must_rejoin_at_its_sync(broker):
    client, joined, _ = two_preferences(broker)
    assert beat(broker, "new", 0).error_code == NONE
    synced = client.ask(syncing("g", joined.member_id, joined.generation_id))
    assert synced.error_code == REBALANCING


def test_a_classic_join_that_downgrades_the_group_returns_the_common_protocol(broker):
    static = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"], "topic_partitions": []}
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="new", member_epoch=0, instance_id="i", **static)
    assert broker.ask(request).error_code == NONE
    assert broker.ask(joining("g", "old", protocols=METADATA)).error_code == NONE
    joined = broker.ask(joining("g", "", "i", protocols={"other": METADATA["range"], **METADATA}))
    assert (joined.error_code, joined.protocol_name, type_of(broker)) == (NONE, "range", CLASSIC)


def test_a_downgraded_group_with_a_waiting_member_gets_a_new_assignment(broker):
    """Without one, the partitions that the member waits for would have no reader, and no member would be asked to join
    again.
    """
    fields = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"], "topic_partitions": []}
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="new", member_epoch=0, instance_id="i", **fields)
    assert broker.ask(request).error_code == NONE
    waiting = broker.ask(joining("g", "old", protocols=METADATA))
    assert broker.ask(syncing("g", "old", waiting.generation_id)).error_code == NONE
    static, old = SimulatedClient(broker), SimulatedClient(broker)
    taken = static.ask(joining("g", "", "i", protocols=METADATA))
    assert (taken.error_code, type_of(broker)) == (NONE, CLASSIC)
    assert broker.ask(beating("g", "old", taken.generation_id)).error_code == REBALANCING
    static.send(joining("g", taken.member_id, "i", protocols=METADATA))
    old.send(joining("g", "old", protocols=METADATA))
    assert sorted((static.receive().error_code, old.receive().error_code)) == [NONE, NONE]
