"""Users of different rights in one share group: each is given what it may read, and hears of nothing else."""

from collections.abc import Iterator
from typing import Any

import pytest
from acl_client import guarded
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.share_groups import ShareGroupDescribeRequest, ShareGroupHeartbeatRequest
from fencepost.protocol.messages.share_offsets import DescribeShareGroupOffsetsRequest
from guarded_broker import Guarded
from produce_requests import create
from share_transactions import ShareWorker, acquire
from share_transactions import begin as begin_at_zero
from simulated_broker import SimulatedBroker

OPEN, SECRET = "open", "secret"
BOTH = {(OPEN, 0), (OPEN, 1), (SECRET, 0), (SECRET, 1)}


class World(Guarded):
    """alice may read both topics, bob may read the open one and describe the other."""

    def __init__(self, broker: SimulatedBroker) -> None:
        super().__init__(broker)
        for name in (OPEN, SECRET):
            broker.ask(create(name, 2))
        self.may("alice", f"READ TOPIC = {SECRET}")
        self.may("bob", f"DESCRIBE TOPIC = {SECRET}")
        self.epochs: dict[str, int] = {}
        self.reads: dict[str, set[tuple[str, int]]] = {}

    def may(self, user: str, *more: str) -> None:
        """Set the rights of the user to READ of the group and of the open topic, and to these."""
        self.have_no_more(user)
        self.have(*(f"allow User:{user} {each}" for each in ("READ GROUP = g", f"READ TOPIC = {OPEN}", *more)))

    def beat(self, user: str, *topics: str) -> ErrorCode:
        """Send a heartbeat of the user's only member, which joins with the first one. Return the error code."""
        epoch = self.epochs.get(user, 0)
        request = ShareGroupHeartbeatRequest(
            group_id="g",
            member_id=f"m-{user}",
            member_epoch=epoch,
            subscribed_topic_names=list(topics or (OPEN, SECRET)) if epoch == 0 else None,
        )
        answer = self.as_user(user, lambda: self.client.ask(request))
        if answer.error_code == 0:
            self.epochs[user] = answer.member_epoch
        if answer.assignment is not None:
            by_id = self.broker.broker.topics.by_id
            self.reads[user] = {
                (by_id[each.topic_id].name, partition)
                for each in answer.assignment.topic_partitions
                for partition in each.partitions
            }
        return ErrorCode(answer.error_code)

    def settle(self) -> None:
        for _ in range(4):
            for user in self.epochs:
                self.beat(user)
            self.broker.wait(2)


@pytest.fixture
def world() -> Iterator[World]:
    settings = guarded(super_users="User:root", group_initial_rebalance_delay_ms=0)
    with SimulatedBroker(settings) as broker:
        yield World(broker)


def describe(world: World, user: str) -> Any:
    return world.as_user(user, lambda: world.client.ask(ShareGroupDescribeRequest(group_ids=["g"]))).groups[0]


def test_a_share_member_without_read_gets_no_partitions_if_another_may_read(world):
    assert (world.beat("alice"), world.beat("bob")) == (ErrorCode.NONE, ErrorCode.NONE)
    world.settle()
    assert {(SECRET, 0), (SECRET, 1)} <= world.reads["alice"]
    assert {topic for topic, _ in world.reads["bob"]} == {OPEN}
    assert world.reads["alice"] | world.reads["bob"] == BOTH


def test_a_topic_no_share_member_may_read_is_assigned_to_those_with_describe(world):
    """Their fetch then returns the authorization error."""
    assert world.beat("bob") is ErrorCode.NONE
    assert world.reads["bob"] == BOTH


def test_a_topic_without_describe_cannot_be_subscribed_and_is_hidden_in_answers(world):
    world.beat("alice")
    world.may("bob")
    assert world.beat("bob") is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert ErrorCode(describe(world, "bob").error_code) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert ErrorCode(describe(world, "alice").error_code) is ErrorCode.NONE


def test_changed_rights_apply_with_the_next_share_heartbeats(world):
    world.beat("alice")
    world.beat("bob")
    world.settle()
    world.may("alice")
    world.may("bob", f"READ TOPIC = {SECRET}")
    world.settle()
    assert {topic for topic, _ in world.reads["alice"]} == {OPEN}
    assert {(SECRET, 0), (SECRET, 1)} <= world.reads["bob"]
    assert world.reads["alice"] | world.reads["bob"] == BOTH


def test_the_transactional_id_of_pending_records_is_shown_only_with_describe_on_it(world):
    (key,) = begin_at_zero(world.broker, OPEN)
    acquire(world.broker, key, 0, 1)
    world.have("allow User:alice DESCRIBE TRANSACTIONAL_ID = x")
    assert ShareWorker(world.broker).acknowledge((key, 0, 1)) == [0]
    asked = DescribeShareGroupOffsetsRequest.Group(group_id="g", topics=None)
    named = {}
    for user in ("alice", "bob"):
        answer = world.as_user(user, lambda: world.client.ask(DescribeShareGroupOffsetsRequest(groups=[asked])))
        (pending,) = next(iter(answer.groups[0].topics[0].partitions)).window.pending
        named[user] = pending.transactional_id
    assert named == {"alice": "x", "bob": None}
