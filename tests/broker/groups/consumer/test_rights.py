"""Two users of different rights in one group: each is given what it may read, and hears of nothing else."""

from collections.abc import Iterator
from typing import Any

import pytest
from acl_client import guarded
from fencepost.broker.groups.consumer_protocol import assignment_for, read_assignment
from fencepost.client.assignors.consumer_protocol import Subscription, encode_subscription
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from fencepost.protocol.messages.groups import DeleteGroupsRequest
from group_client import MEMBER_ID_REQUIRED, beating, joining, syncing
from guarded_broker import Guarded
from produce_requests import create
from simulated_broker import SimulatedBroker

OPEN, SECRET = "open", "secret"
PATTERN = {"subscribed_topic_names": None, "subscribed_topic_regex": "open|secret"}
NAMES = {"subscribed_topic_names": [OPEN, SECRET], "server_assignor": "range"}
Owned = dict[str, set[int]]


def subscription(*topics: str) -> bytes:
    return encode_subscription(Subscription(topics))


class Member:
    """A member of the consumer protocol (KIP-848) that revokes partitions as soon as it is told to."""

    def __init__(self, world: "World", user: str, **subscribes: Any) -> None:
        self.world, self.user = world, user
        self.member_id = f"m-{user}"
        self.epoch = 0
        self.owned: Owned = {}
        self._subscribes = subscribes
        self.code = 0

    def beat(self) -> None:
        joins = self.epoch == 0
        made = ConsumerGroupHeartbeatRequest.TopicPartitions
        ids = self.world.broker.broker.topics.by_name
        owned = [made(topic_id=ids[name].id, partitions=sorted(parts)) for name, parts in self.owned.items()]
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=self.member_id,
            member_epoch=self.epoch,
            topic_partitions=[] if joins else owned,
            **({"rebalance_timeout_ms": 60_000, **self._subscribes} if joins else {}),
        )
        answer = self.world.as_user(self.user, lambda: self.world.client.ask(request))
        self.code = answer.error_code
        if self.code == 0:
            self.epoch = answer.member_epoch
        if answer.assignment is not None:
            names = self.world.broker.broker.topics.by_id
            self.owned = {
                names[each.topic_id].name: set(each.partitions) for each in answer.assignment.topic_partitions
            }


class ClassicMember:
    """A member of the classic protocol, with eager rebalances."""

    def __init__(self, world: "World", user: str, *topics: str) -> None:
        self.world, self.user = world, user
        self.member_id, self.generation, self.owned = "", -1, Owned()
        self.joins = 0
        self._topics = topics

    def _ask(self, request: Any) -> Any:
        return self.world.as_user(self.user, lambda: self.world.client.ask(request))

    def beat(self) -> None:
        if self.generation >= 0 and self._ask(beating("g", self.member_id, self.generation)).error_code == 0:
            return
        protocols = {"range": subscription(*self._topics)}
        joined = self._ask(joining("g", self.member_id, protocols=protocols))
        if joined.error_code == MEMBER_ID_REQUIRED:
            joined = self._ask(joining("g", joined.member_id, protocols=protocols))
        assert joined.error_code == 0
        self.joins += 1
        self.member_id, self.generation = joined.member_id, joined.generation_id
        synced = self._ask(syncing("g", self.member_id, self.generation))
        self.owned = {name: set(parts) for name, parts in read_assignment(synced.assignment).items() if parts}


class World(Guarded):
    """alice and bob may read the group and the open topic. Each test sets their rights on the secret one."""

    def __init__(self, broker: SimulatedBroker) -> None:
        super().__init__(broker)
        for name in (OPEN, SECRET):
            broker.ask(create(name, 4))
        self.have("allow User:alice READ GROUP = g", "allow User:bob READ GROUP = g")
        self.have(f"allow User:alice READ TOPIC = {OPEN}", f"allow User:bob READ TOPIC = {OPEN}")

    def settle(self, *members: Any) -> None:
        for _ in range(8):
            for member in members:
                member.beat()
            self.broker.wait(2)


ALL = {0, 1, 2, 3}


@pytest.fixture
def world() -> Iterator[World]:
    settings = guarded(super_users="User:root", group_initial_rebalance_delay_ms=0)
    with SimulatedBroker(settings) as broker:
        yield World(broker)


@pytest.mark.parametrize("first", ["alice", "bob"])
def test_a_regex_subscription_matches_only_topics_that_the_member_may_read(world: World, first: str) -> None:
    """This holds although the topics of the regex are looked up for the member that asks first."""
    world.have(f"allow User:alice READ TOPIC = {SECRET}")
    alice, bob = Member(world, "alice", **PATTERN), Member(world, "bob", **PATTERN)
    world.settle(*([alice, bob] if first == "alice" else [bob, alice]))
    assert (alice.owned[SECRET], set(bob.owned)) == (ALL, {OPEN})
    assert alice.owned.get(OPEN, set()) | bob.owned[OPEN] == ALL


def test_a_member_with_describe_but_not_read_is_not_assigned_the_topic(world: World) -> None:
    world.have(f"allow User:alice READ TOPIC = {SECRET}", f"allow User:bob DESCRIBE TOPIC = {SECRET}")
    alice, bob = Member(world, "alice", **NAMES), Member(world, "bob", **NAMES)
    world.settle(alice, bob)
    assert (alice.owned[SECRET], set(bob.owned)) == (ALL, {OPEN})


def test_a_topic_that_no_member_may_read_is_assigned_to_those_with_describe(world: World) -> None:
    """Their fetch then returns the authorization error."""
    world.have(f"allow User:bob DESCRIBE TOPIC = {SECRET}")
    alice, bob = Member(world, "alice", **PATTERN), Member(world, "bob", **PATTERN)
    world.settle(alice, bob)
    assert (bob.owned[SECRET], set(alice.owned)) == (ALL, {OPEN})


def test_granting_a_right_assigns_partitions_and_revoking_it_removes_them(world: World) -> None:
    alice, bob = Member(world, "alice", **PATTERN), Member(world, "bob", **PATTERN)
    world.settle(alice, bob)
    assert {*alice.owned, *bob.owned} == {OPEN}
    world.have(f"allow User:alice READ TOPIC = {SECRET}")
    world.settle(alice, bob)
    assert (alice.owned[SECRET], set(bob.owned)) == (ALL, {OPEN})
    world.have(f"allow User:bob READ TOPIC = {SECRET}", f"deny User:alice READ TOPIC = {SECRET}")
    world.settle(alice, bob)
    assert (bob.owned[SECRET], set(alice.owned)) == (ALL, {OPEN})


def test_changed_rights_apply_even_if_the_first_new_assignment_could_not_be_logged(world: World) -> None:
    world.have(f"allow User:alice DESCRIBE TOPIC = {SECRET}", f"allow User:bob READ TOPIC = {SECRET}")
    alice, bob = Member(world, "alice", **NAMES), Member(world, "bob", **NAMES)
    world.settle(alice, bob)
    assert (bob.owned[SECRET], set(alice.owned)) == (ALL, {OPEN})
    group = world.broker.broker.consumer_groups.groups["g"]
    keep, refused = group._log, [KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)]

    def refuse_once(*change: Any) -> None:
        if refused:
            raise refused.pop()
        keep(*change)

    group._log = refuse_once
    world.have(f"deny User:bob READ TOPIC = {SECRET}", f"allow User:alice READ TOPIC = {SECRET}")
    world.settle(alice, bob)
    assert not refused
    assert (alice.owned[SECRET], set(bob.owned)) == (ALL, {OPEN})


def test_a_group_forgets_a_regex_that_no_member_subscribes_to(world: World) -> None:
    alice = Member(world, "alice", **PATTERN)
    world.settle(alice)
    group = world.broker.broker.consumer_groups.groups["g"]
    group._unresolved.add("left")  # its subscriber chose another one before it was looked up
    world.have("allow User:carol READ TOPIC = *")
    world.settle(alice)
    assert not group._unresolved


def test_a_member_denied_describe_loses_the_topic_it_subscribes_to_by_name(world: World) -> None:
    world.have(f"allow User:alice READ TOPIC = {SECRET}", f"allow User:bob READ TOPIC = {SECRET}")
    alice, bob = Member(world, "alice", **NAMES), Member(world, "bob", **NAMES)
    world.settle(alice, bob)
    assert set(alice.owned) == set(bob.owned) == {OPEN, SECRET}
    world.have(f"deny User:bob DESCRIBE TOPIC = {SECRET}")
    world.settle(alice, bob)
    assert (alice.owned[SECRET], set(bob.owned)) == (ALL, {OPEN})


def test_a_member_that_lost_its_right_does_not_get_a_partition_it_waited_for(world: World) -> None:
    """The assignment with that partition was made before the right was removed."""
    world.have(f"allow User:alice READ TOPIC = {SECRET}", f"allow User:bob READ TOPIC = {SECRET}")
    alice, bob = Member(world, "alice", **NAMES), Member(world, "bob", **NAMES)
    world.settle(alice)
    bob.beat()
    world.have(f"deny User:bob DESCRIBE TOPIC = {SECRET}")
    for member in (alice, alice, bob):
        member.beat()
    assert set(bob.owned) == {OPEN}
    world.settle(alice, bob)
    assert (alice.owned[SECRET], set(bob.owned)) == (ALL, {OPEN})


def test_a_classic_member_is_not_asked_to_rejoin_for_a_topic_it_may_not_describe(world: World) -> None:
    """It waited for partitions of the topic when its right was removed."""
    world.have(f"allow User:alice READ TOPIC = {SECRET}", f"allow User:bob READ TOPIC = {SECRET}")
    alice, bob = Member(world, "alice", **NAMES), ClassicMember(world, "bob", OPEN, SECRET)
    world.settle(alice)
    bob.beat()
    world.have(f"deny User:bob DESCRIBE TOPIC = {SECRET}")
    for member in (alice, alice, bob, bob):
        member.beat()
    assert (bob.joins, SECRET in bob.owned) == (1, False)
    world.settle(alice, bob)
    assert (alice.owned[SECRET], set(bob.owned)) == (ALL, {OPEN})


def test_acl_changes_that_do_not_affect_a_group_create_no_epoch(world: World) -> None:
    world.have(f"allow User:alice READ TOPIC = {SECRET}")
    alice, bob = Member(world, "alice", **PATTERN), Member(world, "bob", **PATTERN)
    world.settle(alice, bob)
    before = alice.epoch, alice.owned, bob.epoch, bob.owned
    world.have("allow User:carol READ TOPIC = *", f"allow User:bob WRITE TOPIC = {OPEN}")
    world.settle(alice, bob)
    assert (alice.epoch, alice.owned, bob.epoch, bob.owned) == before


def test_a_classic_member_is_assigned_only_topics_that_it_may_read(world: World) -> None:
    world.have(f"allow User:alice READ TOPIC = {SECRET}")
    alice, bob = Member(world, "alice", **NAMES), ClassicMember(world, "bob", OPEN, SECRET)
    world.settle(alice, bob)
    assert (alice.owned[SECRET], set(bob.owned)) == (ALL, {OPEN})
    assert alice.owned.get(OPEN, set()) | bob.owned[OPEN] == ALL


def test_after_an_upgrade_classic_members_are_assigned_only_readable_topics(world: World) -> None:
    bob = ClassicMember(world, "bob", OPEN, SECRET)
    metadata = {"range": subscription(OPEN, SECRET)}
    joined = world.as_user("bob", lambda: world.client.ask(joining("g", protocols=metadata)))
    joined = world.as_user("bob", lambda: world.client.ask(joining("g", joined.member_id, protocols=metadata)))
    bob.member_id, bob.generation = joined.member_id, joined.generation_id
    mine = {bob.member_id: assignment_for(subscription(OPEN, SECRET), {OPEN: [0, 1, 2, 3], SECRET: [0, 1, 2, 3]})}
    world.as_user("bob", lambda: world.client.ask(syncing("g", bob.member_id, bob.generation, mine)))
    world.have(f"allow User:alice READ TOPIC = {SECRET}")
    alice = Member(world, "alice", **NAMES)
    world.settle(alice, bob)
    assert (alice.owned[SECRET], set(bob.owned)) == (ALL, {OPEN})


def test_after_a_restart_each_member_keeps_its_readable_partitions(world: World) -> None:
    """This also holds if one member has sent its first heartbeat some seconds before the other."""
    world.have(f"allow User:alice READ TOPIC = {SECRET}")
    alice, bob = Member(world, "alice", **PATTERN), Member(world, "bob", **PATTERN)
    world.settle(alice, bob)
    before = alice.epoch, alice.owned, bob.epoch, bob.owned
    with world.broker.after_power_cut() as again:
        later = object.__new__(World)
        Guarded.__init__(later, again)
        alice.world = bob.world = later
        bob.beat()
        again.wait(3)
        later.settle(alice, bob)
        assert (alice.epoch, alice.owned, bob.epoch, bob.owned) == before
        later.have(f"deny User:alice READ TOPIC = {OPEN}")
        later.settle(alice, bob)
        assert (alice.owned, bob.owned) == ({SECRET: ALL}, {OPEN: ALL})


def test_a_classic_member_that_heartbeats_after_a_restart_loses_forbidden_topics(world: World) -> None:
    """A heartbeat, like the join before, tells the broker which user the member is."""
    world.have(f"allow User:alice READ TOPIC = {SECRET}", f"allow User:bob READ TOPIC = {SECRET}")
    alice, bob = Member(world, "alice", **NAMES), ClassicMember(world, "bob", OPEN, SECRET)
    world.settle(alice, bob)
    assert SECRET in bob.owned
    with world.broker.after_power_cut() as again:
        later = object.__new__(World)
        Guarded.__init__(later, again)
        alice.world = bob.world = later
        later.settle(alice, bob)
        later.have(f"deny User:bob DESCRIBE TOPIC = {SECRET}")
        later.settle(alice, bob)
        assert (alice.owned[SECRET], set(bob.owned)) == (ALL, {OPEN})


@pytest.mark.slow
@pytest.mark.parametrize("goes", ["it leaves", "it is silent"])
def test_the_user_of_a_member_is_forgotten_when_the_member_leaves(world: World, goes: str) -> None:
    alice, bob = Member(world, "alice", **PATTERN), Member(world, "bob", **PATTERN)
    world.settle(alice, bob)
    users = world.broker.broker.consumer_groups.groups["g"].users
    assert set(users) == {alice.member_id, bob.member_id}
    if goes == "it leaves":
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=bob.member_id, member_epoch=-1)
        world.as_user("bob", lambda: world.client.ask(request))
    else:
        for _ in range(60):
            world.settle(alice)
    assert set(users) == {alice.member_id}


def test_a_regex_does_not_reveal_whether_a_forbidden_topic_exists(world: World) -> None:
    """If it matched the topic, the group's epoch would grow, and members would see that."""
    world.have("deny User:bob READ TOPIC = open")
    epochs = []
    for pattern in (SECRET, "nothing"):
        bob = Member(world, "bob", subscribed_topic_names=None, subscribed_topic_regex=pattern)
        world.settle(bob)
        epochs.append(bob.epoch)
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=bob.member_id, member_epoch=-1)
        world.as_user("bob", lambda asked=request: world.client.ask(asked))  # type: ignore[misc]
        world.as_user("root", lambda: world.broker.ask(DeleteGroupsRequest(groups_names=["g"])))
    assert epochs[0] == epochs[1]
