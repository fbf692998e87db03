"""Settings of single groups in a whole broker: obeyed by running groups, kept across restarts and power cuts."""

from dataclasses import replace

import pytest
from fencepost.broker.topics.catalogue import group_configs_changed
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.configs import (
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)
from fencepost.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from fencepost.protocol.messages.groups import DeleteGroupsRequest
from group_client import begin
from produce_requests import create

GROUP = 32  # the resource type
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
POLICY_VIOLATION = ErrorCode.POLICY_VIOLATION
INVALID_CONFIG = ErrorCode.INVALID_CONFIG


@pytest.fixture
def broker():
    with begin() as broker:
        broker.ask(create("t", 1))
        yield broker


def alter(broker, configs, group="g", **asked):
    made = IncrementalAlterConfigsRequest.Resource
    entries = [made.Config(name=name, config_operation=value is None, value=value) for name, value in configs.items()]
    resource = made(resource_type=GROUP, resource_name=group, configs=entries)
    (answer,) = broker.ask(IncrementalAlterConfigsRequest(resources=[resource], **asked)).responses
    return answer.error_code


def given(broker, group="g"):
    resource = DescribeConfigsRequest.Resource(resource_type=GROUP, resource_name=group, configuration_keys=None)
    (result,) = broker.ask(DescribeConfigsRequest(resources=[resource])).results
    return {each.name: each.value for each in result.configs if each.config_source == 8}


def listed(broker):
    answer = broker.ask(ListConfigResourcesRequest(resource_types=[GROUP]))
    return sorted(each.resource_name for each in answer.config_resources)


def beat(broker, member, epoch, group="g"):
    joins = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"], "topic_partitions": []}
    return broker.ask(
        ConsumerGroupHeartbeatRequest(
            group_id=group, member_id=member, member_epoch=epoch, **(joins if epoch == 0 else {})
        )
    )


def test_a_changed_heartbeat_interval_is_in_each_members_next_heartbeat_answer(broker):
    assert beat(broker, "a", 0).heartbeat_interval_ms == 5_000
    assert alter(broker, {HEARTBEAT: "6000"}) == 0
    assert beat(broker, "a", 2).heartbeat_interval_ms == 6_000
    assert beat(broker, "b", 0, "another").heartbeat_interval_ms == 5_000
    assert alter(broker, {HEARTBEAT: None}) == 0
    assert beat(broker, "a", 2).heartbeat_interval_ms == 5_000


def test_a_longer_session_timeout_applies_from_each_members_next_heartbeat(broker):
    """A shorter session timeout applies from then on, too."""
    beat(broker, "a", 0)
    beat(broker, "b", 0, "another")
    assert alter(broker, {SESSION: "60000"}) == 0
    beat(broker, "a", 2)
    broker.wait(50)
    assert beat(broker, "a", 2).error_code == 0
    assert beat(broker, "b", 2, "another").error_code == UNKNOWN
    assert alter(broker, {SESSION: "45000"}) == 0
    broker.wait(59)  # the session of its last heartbeat goes on
    assert beat(broker, "a", 2).error_code == 0
    broker.wait(46)
    assert beat(broker, "a", 2).error_code == UNKNOWN


@pytest.mark.slow
@pytest.mark.parametrize("orderly", [True, False], ids=["orderly", "power cut"])
def test_group_configs_survive_a_restart(broker, orderly):
    alter(broker, {HEARTBEAT: "6000", SESSION: "50000"})
    alter(broker, {HEARTBEAT: "7000"}, "never was a group")
    alter(broker, {HEARTBEAT: "7000"}, "taken back")
    alter(broker, {HEARTBEAT: None}, "taken back")
    again = broker.again() if orderly else broker.after_power_cut()
    with again:
        assert listed(again) == ["g", "never was a group"]
        assert given(again) == {HEARTBEAT: "6000", SESSION: "50000"}
        assert beat(again, "a", 0).heartbeat_interval_ms == 6_000


def test_a_group_config_outlives_the_deletion_of_its_group(broker):
    alter(broker, {HEARTBEAT: "6000"})
    beat(broker, "a", 0)
    beat(broker, "a", -1)
    assert broker.ask(DeleteGroupsRequest(groups_names=["g"])).results[0].error_code == 0
    assert listed(broker) == ["g"]
    assert beat(broker, "a", 0).heartbeat_interval_ms == 6_000


def test_validate_only_and_refused_config_changes_leave_a_group_unchanged(broker):
    alter(broker, {HEARTBEAT: "6000"})
    assert alter(broker, {HEARTBEAT: "7000"}, validate_only=True) == 0
    assert alter(broker, {HEARTBEAT: "7000", SESSION: "1"}) == INVALID_CONFIG
    assert given(broker) == {HEARTBEAT: "6000"}
    assert alter(broker, {}, "empty") == 0
    assert listed(broker) == ["g"]


def test_a_group_config_beyond_the_bounds_is_limited_to_them_and_logged(broker, caplog):
    alter(broker, {HEARTBEAT: "14000", SESSION: "60000"})
    narrow = replace(broker.settings, group_consumer_max_heartbeat_interval_ms=10_000, layers={})
    with broker.again(narrow) as again:
        assert [beat(again, "a", epoch).heartbeat_interval_ms for epoch in (0, 2)] == [10_000, 10_000]
        assert given(again) == {HEARTBEAT: "14000", SESSION: "60000"}
    warnings = [each.getMessage() for each in caplog.records if "bound" in each.getMessage()]
    assert warnings == ["group g was given consumer.heartbeat.interval.ms=14000, and obeys 10000, the broker's bound"]


def test_group_settings_stored_by_an_earlier_version_are_kept_but_ignored(broker):
    kept = {HEARTBEAT: "soon", "consumer.no.more": "1", SESSION: "50000"}
    broker.broker.topics.commit([group_configs_changed("g", kept)], [])
    assert given(broker) == {HEARTBEAT: "soon", SESSION: "50000"}
    assert beat(broker, "a", 0).heartbeat_interval_ms == 5_000
    assert broker.broker.consumer_groups.rules("g").session_timeout_ms == 50_000


def test_the_memory_for_group_configs_is_limited():
    with begin(group_metadata_max_bytes=1 << 20) as broker:
        name = "g" * 30_000
        codes = [alter(broker, {HEARTBEAT: "6000"}, f"{name}{number}") for number in range(12)]
        taken = codes.index(POLICY_VIOLATION)
        assert codes == [0] * taken + [POLICY_VIOLATION] * (12 - taken)
        assert alter(broker, {HEARTBEAT: "7000"}, f"{name}0") == 0  # replacing a value takes no more memory
        assert alter(broker, {HEARTBEAT: None}, f"{name}0") == 0
        assert alter(broker, {HEARTBEAT: "6000"}, f"{name}11") == 0
        assert len(listed(broker)) == taken
