"""Groups in a whole broker: timers by its clock, answers after the log is durable, restarts, full disks and limits."""

import pytest
from broker_lives import slow
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.handlers.group_admin import MEMBER_BYTES
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from fencepost.protocol.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    LeaveGroupRequest,
)
from fencepost.protocol.messages.offsets import OffsetDeleteRequest
from group_client import MEMBER_ID_REQUIRED, alone, beating, begin, joining, leaving, listed, state_of, syncing
from offset_requests import commit
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient

NOT_AVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS
TOO_MANY = ErrorCode.GROUP_MAX_SIZE_REACHED
AT_ONCE = BrokerSettings(group_initial_rebalance_delay_ms=0)


@pytest.fixture
def broker():
    with begin() as broker:
        yield broker


# ---- names ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["i" * 32_767, "\u00e9" * 16_383])
def test_a_member_with_the_longest_name_gets_an_id_that_the_protocol_can_carry(broker, name):
    member, generation = alone(broker, instance_id=name)
    assert len(member.encode()) <= 32_767
    assert broker.ask(beating("g", member, generation)).error_code == 0
    again = broker.again()
    assert again.ask(beating("g", member, generation)).error_code == 0
    again.stop()


# ---- groups that nobody is in --------------------------------------------------------------------------------


def test_forgetting_empty_groups_continues_after_a_full_disk_and_after_a_bug(monkeypatch):
    with begin(offsets_retention_check_interval_ms=1000) as broker:
        groups, real = broker.broker.groups, broker.broker.groups.offsets_expired
        member, _ = alone(broker)
        broker.ask(leaving("g", member))

        def failing(error: Exception):
            def fail(group_id: str) -> None:
                raise error

            monkeypatch.setattr(groups, "offsets_expired", fail)

        failing(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        broker.wait(3)
        assert listed(broker) == ["g"]
        monkeypatch.setattr(groups, "offsets_expired", real)
        broker.wait(2)
        assert listed(broker) == []
        for group in ("bad", "good"):
            member, _ = alone(broker, group)
            broker.ask(leaving(group, member))
        monkeypatch.setattr(groups, "offsets_expired", lambda group_id: 1 / 0 if group_id == "bad" else real(group_id))
        broker.wait(2)
        assert (listed(broker), broker.broker.halted) == (["bad"], None)
        assert {type(each) for each in broker.broker.metrics.failures} == {ZeroDivisionError}


def test_a_bug_in_the_timer_of_one_group_delays_no_other_and_is_retried(broker):
    """Without a delay, the failed timer would fire again at once for ever and no other request would be served."""
    bad, good = SimulatedClient(broker), SimulatedClient(broker)
    alone(bad, "bad", session_timeout_ms=6_000)
    alone(good, "good", session_timeout_ms=6_000)
    group = broker.broker.groups.groups["bad"]
    calls, real = [], group.expire
    group.expire = lambda now_ms: calls.append(now_ms) or 1 / 0
    broker.wait(7)
    assert (state_of(broker, "good"), len(calls)) == ("Empty", 1)
    broker.wait(100)
    assert len(calls) == 11, "looked at again every ten seconds"
    group.expire = real
    broker.wait(11)
    assert state_of(broker, "bad") == "Empty"
    assert broker.broker.halted is None


def test_a_group_timer_set_in_the_past_does_not_block_other_requests(broker):
    """A wrong time raises no exception, but the timer would fire again and again."""
    alone(broker, "bad")
    group = broker.broker.groups.groups["bad"]
    calls = []

    def expire(now_ms):
        calls.append(now_ms)
        group.wake_ms = now_ms - 1 if len(calls) < 50 else now_ms + 60_000

    group.expire = expire
    broker.wait(30)
    assert len(calls) == 50
    alone(broker, "good")


# ---- clients and time ----------------------------------------------------------------------------------------


def test_a_member_that_disconnects_during_its_join_is_kept_until_its_session_ends(broker):
    member, generation = alone(broker)
    other = SimulatedClient(broker)
    described = other.ask(joining("g"))
    other.send(joining("g", described.member_id))
    broker.wait(0.1)
    other.close()
    assert broker.ask(beating("g", member, generation)).error_code == REBALANCING
    again = broker.ask(joining("g", member))
    assert {each.member_id for each in again.members} == {member, described.member_id}
    broker.ask(syncing("g", member, again.generation_id, {member: b"all"}))
    for _ in range(3):
        broker.wait(5)
        broker.ask(beating("g", member, again.generation_id))
    assert broker.ask(joining("g", member)).members[0].member_id == member


def test_group_sessions_are_timed_by_the_monotonic_clock(broker):
    member, generation = alone(broker)
    for hours in (48, -96):
        broker.broker.clock.jump_wall(hours * 3_600_000)
        broker.wait(5)
        assert broker.ask(beating("g", member, generation)).error_code == 0
    broker.wait(9.9)
    assert state_of(broker) == "Stable"
    broker.wait(0.2)
    assert state_of(broker) == "Empty"


def test_a_first_join_waits_three_seconds_for_others_by_default():
    with SimulatedBroker() as broker:
        assert broker.settings.group_initial_rebalance_delay_ms == 3_000
        began = broker.loop.time()
        alone(broker)
        assert 3 <= broker.loop.time() - began < 3.1


def test_kafka_8653_join_group_v0_uses_the_session_timeout_as_rebalance_timeout(broker):
    old = broker.ask(joining("g", session_timeout_ms=6_000, rebalance_timeout_ms=-1), 0)
    broker.ask(syncing("g", old.member_id, 1, {old.member_id: b"all"}), 0)
    newcomer = SimulatedClient(broker)
    newcomer.send(joining("g", session_timeout_ms=6_000, rebalance_timeout_ms=-1), 0)
    for _ in range(5):
        broker.wait(1)
        assert broker.ask(beating("g", old.member_id, 1), 0).error_code == REBALANCING
    broker.wait(1.1)
    assert newcomer.receive().generation_id == 2


def test_kafka_8715_members_that_join_at_the_same_moment_get_different_ids(broker):
    ids = {broker.ask(joining("g")).member_id for _ in range(50)}
    assert len(ids) == 50
    assert all(each.startswith("test-") for each in ids)


def test_a_request_sent_behind_a_waiting_join_is_answered_after_the_join(broker):
    client = SimulatedClient(broker)
    member, generation = alone(client)
    other = SimulatedClient(broker)
    described = other.ask(joining("g"))
    other.send(joining("g", described.member_id))
    other.send(FindCoordinatorRequest(coordinator_keys=["g"]))
    assert other.quiet()
    client.ask(joining("g", member))
    assert other.receive().generation_id == generation + 1
    assert other.receive().coordinators[0].error_code == 0


# ---- the barrier and the log ---------------------------------------------------------------------------------


def test_an_assignment_is_sent_when_it_is_durable_and_not_before():
    disk = SimulatedDisk(history=False)
    delays = slow(disk, journal=0.001)
    with begin(disk) as broker:
        alone(broker, "other")  # the log of groups is there now
        joined = broker.ask(joining("g", broker.ask(joining("g")).member_id))
        delays["journal"] = 5.0
        member, generation = joined.member_id, joined.generation_id
        first, retry, reader = (SimulatedClient(broker) for _ in range(3))
        first.send(syncing("g", member, generation, {member: b"all"}))
        assert first.quiet(1)
        retry.send(syncing("g", member, generation))
        assert retry.quiet(1)
        # This answer need not wait for the journal: it tells nothing that could be lost.
        assert reader.ask(beating("g", member, generation)).error_code == 0
        assert first.receive().assignment == retry.receive().assignment == b"all"


@pytest.mark.parametrize("leave", ["again", "after_power_cut"])
def test_a_classic_group_continues_its_generation_after_a_restart(leave):
    """A static member continues under another member id. A member that stays silent is removed after its session."""
    with begin() as before:
        member, generation = alone(before)
        static, _ = alone(before, "s", instance_id="i")
        gone, _ = alone(before, "gone")
        before.ask(leaving("gone", gone))
        after = getattr(before, leave)()
    with after:
        assert [state_of(after, group) for group in ("g", "s", "gone")] == ["Stable", "Stable", "Empty"]
        assert after.ask(beating("g", member, generation)).error_code == 0
        assert after.ask(syncing("g", member, generation)).assignment == b"all"
        back = after.ask(joining("s", "", "i"))
        assert (back.generation_id, back.skip_assignment) == (1, True)
        assert back.member_id != static
        after.wait(11)
        assert state_of(after) == "Empty"


def test_members_silent_after_a_restart_are_removed_when_their_sessions_end():
    with begin() as before:
        alone(before)
        after = before.after_power_cut()
    with after:
        after.wait(9.9)
        assert state_of(after) == "Stable"
        after.wait(0.2)
        assert state_of(after) == "Empty"


def test_a_broker_restart_returns_to_the_generation_before_an_unfinished_join():
    with begin() as before:
        member, generation = alone(before)
        again = before.ask(joining("g", member))
        assert again.generation_id == generation + 1
        after = before.after_power_cut()
    with after:
        assert after.ask(beating("g", member, generation + 1)).error_code == ErrorCode.ILLEGAL_GENERATION
        assert after.ask(beating("g", member, generation)).error_code == 0


def test_a_deleted_group_stays_deleted():
    with begin() as before:
        member, _ = alone(before)
        before.ask(leaving("g", member))
        assert before.ask(DeleteGroupsRequest(groups_names=["g"])).results[0].error_code == 0
        after = before.after_power_cut()
    with after:
        assert listed(after) == []


def test_empty_groups_without_offsets_are_forgotten_at_the_next_retention_check():
    with begin(offsets_retention_check_interval_ms=60_000) as before:
        alone(before, "stays", session_timeout_ms=1_800_000)
        for number in range(3):
            group = f"g{number}"
            before.ask(leaving(group, alone(before, group)[0]))
        assert len(listed(before)) == 4
        before.wait(61)
        assert listed(before) == ["stays"]
        after = before.after_power_cut()
    with after:
        assert listed(after) == ["stays"]


# ---- bounds --------------------------------------------------------------------------------------------------


def test_groups_whose_only_join_was_not_completed_are_removed_after_its_session(broker):
    for number in range(100):
        assert broker.ask(joining(f"g{number}")).error_code == MEMBER_ID_REQUIRED
        broker.ask(joining(f"h{number}", protocols={}))  # refused: it makes no group
    assert len(broker.broker.groups.groups) == 100  # the groups g
    broker.wait(11)  # longer than the session timeout in joining(), 10 s
    assert broker.broker.groups.groups == {}


def test_groups_that_do_not_fit_in_one_answer_get_a_retriable_error(broker):
    size = 700_000
    alone(broker, protocols={"range": bytes(size)})
    found = broker.ask(DescribeGroupsRequest(groups=["g"] * 100)).groups
    described = [each for each in found if each.error_code == 0]
    # An answer is full at 16 MiB; the group that exceeds this is still described.
    assert len(described) == 1 + (16 << 20) // (size + 3 + MEMBER_BYTES)
    others = {(each.group_id, each.error_code, len(each.members)) for each in found[len(described) :]}
    assert others == {("g", NOT_AVAILABLE, 0)}


def test_stopping_the_broker_does_not_wait_for_pending_joins(broker):
    member, _ = alone(broker)
    other = SimulatedClient(broker)
    other.send(joining("g", other.ask(joining("g")).member_id))
    broker.wait(0.1)
    with broker.again() as after:
        assert state_of(after) == "Stable"
        assert after.ask(joining("g", member)).generation_id == 2


def test_a_member_whose_metadata_is_larger_than_a_record_is_refused(broker):
    assert broker.ask(joining("g", protocols={"range": bytes(2 << 20)})).error_code == TOO_MANY


def test_an_assignment_larger_than_a_record_is_refused_and_sent_to_no_member(broker):
    joined = broker.ask(joining("g", broker.ask(joining("g")).member_id))
    answer = broker.ask(syncing("g", joined.member_id, 1, {joined.member_id: bytes(2 << 20)}))
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert state_of(broker) == "PreparingRebalance"
    assert broker.ask(joining("g", joined.member_id)).generation_id == 2


def test_on_a_full_disk_no_assignment_is_made_and_heartbeats_succeed(broker):
    member, generation = alone(broker)
    joined = broker.ask(joining("h", broker.ask(joining("h")).member_id))
    broker.broker.store.space_exhausted = True
    assert broker.ask(syncing("h", joined.member_id, 1, {joined.member_id: b"all"})).error_code == NOT_AVAILABLE
    assert broker.ask(beating("g", member, generation)).error_code == 0
    broker.broker.store.space_exhausted = False
    assert broker.ask(joining("h", joined.member_id)).error_code == 0


# ---- the way to the coordinator ------------------------------------------------------------------------------


@pytest.mark.requirement("S-56")
def test_the_first_find_coordinator_of_each_type_creates_its_internal_topic(broker):
    topics = broker.broker.topics.by_name
    assert not topics
    assert broker.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])).coordinators[0].error_code == 0
    assert list(topics) == ["__consumer_offsets"]
    assert len(topics["__consumer_offsets"].partitions) == 50
    assert broker.ask(FindCoordinatorRequest(key="t", key_type=1), 3).error_code == 0
    assert list(topics) == ["__consumer_offsets", "__transaction_state"]


def test_find_coordinator_fails_while_the_offsets_topic_cannot_be_created(broker):
    broker.broker.store.space_exhausted = True
    found = broker.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g", "h"])).coordinators
    assert [(each.key, each.error_code, each.node_id) for each in found] == [
        ("g", NOT_AVAILABLE, -1),
        ("h", NOT_AVAILABLE, -1),
    ]
    assert broker.ask(FindCoordinatorRequest(key="g"), 3).error_code == NOT_AVAILABLE
    assert not broker.broker.topics.by_name


# ---- a log that is offline -----------------------------------------------------------------------------------


def test_group_requests_get_a_retriable_error_while_the_groups_log_is_offline(broker):
    """An error for an unknown group, or an empty answer, would tell the client that the group was deleted."""
    broker.ask(FindCoordinatorRequest(key="g"), 3)
    topic = broker.broker.group_offsets.topic
    topic.log(topic.partition_for("g")).offline = "a test"
    assert broker.ask(DeleteGroupsRequest(groups_names=["g"])).results[0].error_code == NOT_AVAILABLE
    assert broker.ask(DescribeGroupsRequest(groups=["g"])).groups[0].error_code == NOT_AVAILABLE
    assert broker.ask(OffsetDeleteRequest(group_id="g", topics=[])).error_code == NOT_AVAILABLE
    broker.broker.topics.create("t", 1)
    assert commit(broker, "g", "t", {0: 1}, generation_id_or_member_epoch=5, member_id="m") == [NOT_AVAILABLE]


def test_classic_members_get_a_retriable_error_while_the_groups_log_is_offline(broker):
    """With UNKNOWN_MEMBER_ID they would join again under a new id and lose the generation."""
    member, generation = alone(broker)
    topic = broker.broker.group_offsets.topic
    log = topic.log(topic.partition_for("g"))
    log.offline = "a test"
    groups = broker.broker.groups.groups
    kept = dict(groups)
    groups.clear()  # a broker that cannot read the log when it starts knows no group
    for request in (
        joining("g"),
        joining("g", member),
        syncing("g", member, generation),
        beating("g", member, generation),
        leaving("g", member),
    ):
        assert broker.ask(request).error_code == NOT_AVAILABLE
    assert broker.ask(LeaveGroupRequest(group_id="g", member_id=member), 2).error_code == NOT_AVAILABLE
    assert not groups
    log.offline = None
    groups.update(kept)
    assert broker.ask(beating("g", member, generation)).error_code == 0


def test_consumer_members_get_a_retriable_error_while_the_groups_log_is_offline(broker):
    """With an error saying that the group does not exist, members would give up all partitions."""
    broker.broker.topics.create("t", 1)
    joins = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"], "topic_partitions": []}
    requests = [
        ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0, **joins),
        *(ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=each) for each in (2, -1)),
    ]
    assert broker.ask(requests[0]).member_epoch == 2
    topic, groups = broker.broker.group_offsets.topic, broker.broker.consumer_groups.groups
    log = topic.log(topic.partition_for("g"))
    log.offline = "a test"
    kept = dict(groups)
    groups.clear()  # a broker that cannot read the log when it starts knows no group
    for request in requests:
        assert broker.ask(request).error_code == NOT_AVAILABLE
    assert broker.ask(ConsumerGroupDescribeRequest(group_ids=["g"])).groups[0].error_code == NOT_AVAILABLE
    assert not groups
    groups.update(kept)
    for request in requests:
        assert broker.ask(request).error_code == NOT_AVAILABLE
    log.offline = None
    assert broker.ask(requests[1]).error_code == 0


def test_memory_for_member_ids_whose_clients_never_rejoin_is_bounded_and_freed():
    """Each first join gets a member id with a session of half an hour. Beyond the memory limit further joins are
    refused, and all memory is free after the sessions end.
    """
    with begin(group_metadata_max_bytes=1 << 20) as broker:
        asked = [joining(f"{number}{'g' * 30_000}", session_timeout_ms=1_800_000) for number in range(60)]
        described = [broker.ask(each).error_code for each in asked]
        assert set(described) == {MEMBER_ID_REQUIRED, TOO_MANY}
        assert 30 <= described.count(MEMBER_ID_REQUIRED) <= 40  # 1 MiB has room for about 35 ids of 30 KB
        broker.wait(1_900)
        assert broker.broker.groups.memory.size_bytes == 0
        alone(broker)
