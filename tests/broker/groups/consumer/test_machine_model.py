"""Random lives of one consumer group: members that behave, answers that are lost, topics, time, restarts, full disks.

The plain reference is what every member believes: at no time may two of those that the group counts read one partition.
Whatever has happened, once all members behave for a while everything that is subscribed to is read, by one each.
"""

from collections import Counter
from contextlib import nullcontext

import pytest
from consumer_group_driver import Client, ConsumerGroupDriver
from fencepost.broker.groups.consumer.heartbeats import LEAVES_FOR_A_WHILE
from fencepost.broker.groups.consumer.machine import Rules
from fencepost.broker.groups.consumer.records import Kind, MemberState, Resolved
from fencepost.broker.groups.consumer.states import GroupState
from fencepost.protocol.errors import ErrorCode, KafkaError
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from long_runs import share_of

pytestmark = pytest.mark.slow

NAMES = ("t", "u", "v")
REGEXES = {"tu": ("t", "u"), "v": ("v",), "nothing": ()}
subscriptions = st.sets(st.sampled_from(NAMES), min_size=1).map(lambda names: tuple(sorted(names)))
who = st.integers(0, 9)


class ConsumerGroupLives(RuleBasedStateMachine):
    """clients: all that ever joined and did not leave for good. by_instance: the one that last took an instance id."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = ConsumerGroupDriver(Rules(assignment_interval_ms=0, max_size=5), t=3, u=2)
        self.clients: list[Client] = []

    def pick(self, n: int) -> Client:
        return self.clients[n % len(self.clients)]

    def join(self, **fields: object) -> Client:
        client = self.driver.join(**fields)  # type: ignore[arg-type]
        self.clients.append(client)
        return client

    # ---- members ---------------------------------------------------------------------------------------------

    @rule(topics=subscriptions, assignor=st.sampled_from([None, "uniform", "range"]))
    def somebody_joins(self, topics: tuple[str, ...], assignor: str | None) -> None:
        self.join(topics=topics, assignor=assignor)

    @rule(regex=st.sampled_from(sorted(REGEXES)))
    def somebody_joins_with_a_regular_expression(self, regex: str) -> None:
        self.join(topics=None, regex=regex)

    @rule(instance=st.sampled_from("xy"), topics=subscriptions)
    def a_static_member_joins(self, instance: str, topics: tuple[str, ...]) -> None:
        self.join(topics=topics, instance_id=instance)

    @precondition(lambda self: self.clients)
    @rule(n=who, lost=st.booleans(), revoke=st.booleans())
    def a_member_sends_a_heartbeat(self, n: int, lost: bool, revoke: bool) -> None:
        self.pick(n).beat(lost=lost, revoke=revoke)

    @precondition(lambda self: self.clients)
    @rule(n=who, topics=subscriptions, revoke=st.booleans())
    def a_member_subscribes_to_other_topics(self, n: int, topics: tuple[str, ...], revoke: bool) -> None:
        client = self.pick(n)
        client.topics = topics
        client.beat(revoke=revoke)

    def those_that_are_to_give_up_something(self) -> list[Client]:
        group = self.driver.group
        return [each for each in self.clients if group.current(each.member_id).state is MemberState.UNREVOKED]

    @precondition(lambda self: self.those_that_are_to_give_up_something())
    @rule(n=who, topics=subscriptions)
    def one_drops_topics_before_it_gave_up_what_it_is_to_give_up(self, n: int, topics: tuple[str, ...]) -> None:
        found = self.those_that_are_to_give_up_something()
        client = found[n % len(found)]
        client.topics = topics
        client.beat(revoke=False)

    @precondition(lambda self: self.clients)
    @rule(n=who, for_a_while=st.booleans())
    def a_member_leaves(self, n: int, for_a_while: bool) -> None:
        client = self.pick(n)
        is_member = client.member_id in self.driver.group.subscriptions
        with nullcontext() if is_member else pytest.raises(KafkaError, match=r"UNKNOWN_MEMBER_ID|FENCED_INSTANCE_ID"):
            client.leave(LEAVES_FOR_A_WHILE if for_a_while and "instance_id" in client.fields else -1)
        self.clients.remove(client)

    @precondition(lambda self: self.clients)
    @rule(n=who)
    def a_member_dies_and_is_not_heard_of_again(self, n: int) -> None:
        self.clients.remove(self.pick(n))

    # ---- what is around them ---------------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES), partitions=st.none() | st.integers(1, 4))
    def a_topic_changes(self, name: str, partitions: int | None) -> None:
        now = self.driver.topics.partitions.get(name, 0)
        self.driver.topics.set(name, None if partitions is None else max(now, partitions))

    @rule()
    def regular_expressions_are_looked_up(self) -> None:
        group, topics = self.driver.group, self.driver.topics
        due = group.regexes_due(self.driver.now_ms)
        known = set(topics.names())
        if due:
            found = {each: Resolved(tuple(n for n in REGEXES[each] if n in known), topics.version, 1) for each in due}
            group.set_resolved_topics(found, self.driver.now_ms)

    @rule(milliseconds=st.sampled_from([1, 10_000, 46_000]))
    def time_goes_by(self, milliseconds: int) -> None:
        self.driver.wait(milliseconds)

    @rule()
    def the_broker_is_killed_and_starts_again(self) -> None:
        before = dict(self.driver.group.__dict__)
        self.driver.restart()
        after = self.driver.group.__dict__
        for name in ("epoch", "target_epoch", "subscriptions", "currents", "targets", "regexes", "static", "_holders"):
            assert after[name] == before[name], name
        for name in ("subscribers", "regex_subscribers", "matched", "size_bytes"):
            assert after[name] == before[name], name

    @precondition(lambda self: self.clients)
    @rule(n=who)
    def nothing_can_be_written_for_a_moment(self, n: int) -> None:
        driver, client = self.driver, self.pick(n)
        before = {change[:2]: change.value for change in driver.group.changes()}
        driver.refuse = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        client.beat()
        driver.refuse = None
        assert {change[:2]: change.value for change in driver.group.changes()} == before

    @rule()
    def everybody_behaves_for_a_while(self) -> None:
        driver, group = self.driver, self.driver.group
        for _ in range(8):
            driver.wait(11_000)
            self.regular_expressions_are_looked_up()
            for client in self.clients:
                client.beat()
                client.beat()
        living = [each for each in self.clients if each.member_id in group.subscriptions]
        assert {each.member_id for each in living} == set(group.subscriptions)
        wanted = set()
        for client in living:
            for topic_id in group.topic_ids(group.subscriptions[client.member_id]):
                wanted |= {(topic_id, n) for n in range(driver.topics.shapes([topic_id])[topic_id].partitions)}
        assert Counter(place for client in living for place in client.owned) == Counter(wanted)
        assert group.state is (GroupState.STABLE if living else GroupState.EMPTY)
        assert {each.epoch for each in living} <= {group.epoch.epoch}

    # ---- what must hold --------------------------------------------------------------------------------------

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        group = self.driver.group
        living = [each for each in self.clients if each.member_id in group.subscriptions and each.epoch > 0]
        owners = Counter(place for client in living for place in client.owned)
        assert not [place for place, count in owners.items() if count > 1]

    @invariant()
    def what_the_group_counts_is_what_its_members_have(self) -> None:
        group = self.driver.group
        held = Counter(
            (topic_id, partition)
            for current in group.currents.values()
            for of in (current.assigned, current.revoking)
            for topic_id, epochs in of.items()
            for partition in epochs
        )
        assert max(held.values(), default=1) == 1
        assert {(t, p) for t, holders in group._holders.items() for p in holders} == set(held)
        assert group.subscribers == Counter(name for each in group.subscriptions.values() for name in each.topics)
        used = {each.regex for each in group.subscriptions.values()} & group.regexes.keys()
        assert group.matched == Counter(name for regex in used for name in group.regexes[regex].topics)
        assert set(group.targets) <= set(group.subscriptions)
        assert set(group.currents) <= set(group.subscriptions)

    @invariant()
    def epochs_are_in_order(self) -> None:
        group = self.driver.group
        assert group.target_epoch.epoch <= group.epoch.epoch
        for current in group.currents.values():
            assert current.epoch <= group.target_epoch.epoch
            assert all(e <= group.target_epoch.epoch for epochs in current.assigned.values() for e in epochs.values())

    @invariant()
    def the_target_gives_each_partition_once(self) -> None:
        targets = self.driver.group.targets.values()
        given = Counter((t, p) for target in targets for t, parts in target.partitions.items() for p in parts)
        assert max(given.values(), default=1) == 1

    @invariant()
    def the_log_holds_the_group(self) -> None:
        kept = sum(value is not None for value in dict(self.driver.log).values())
        assert kept == sum(change.kind is not Kind.PARTITION_METADATA for change in self.driver.group.changes())


TestConsumerGroupLives = ConsumerGroupLives.TestCase
TestConsumerGroupLives.settings = settings(max_examples=share_of(150), stateful_step_count=40, deadline=None)
