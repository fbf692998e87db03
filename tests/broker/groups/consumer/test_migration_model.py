"""Random lives of one group id: members of both protocols come, go, die and come back; conversions both ways.

The plain reference is what members believe and what they have committed. At no time do two members that the group
counts read one partition; no commit lowers an offset; no restart changes an epoch or moves a
partition. Once all members behave for a while, everything that is subscribed to is read, by one each.
"""

from collections import Counter
from contextlib import nullcontext

import pytest
from fencepost.broker.groups.consumer.migration import Policy
from fencepost.broker.groups.states import State
from fencepost.protocol.errors import ErrorCode, KafkaError
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from long_runs import share_of
from migration_driver import COOPERATIVE, EAGER, ClassicClient, Client, MigrationDriver, Places

pytestmark = pytest.mark.slow

who = st.integers(0, 9)
subscriptions = st.sampled_from([("t",), ("u",), ("t", "u")])
instances = st.none() | st.sampled_from("xy")
OF_INSTANCES = {"x": ("t",), "y": ("t", "u")}  # leaders whose static members subscribe to others must look themselves
AnyClient = Client | ClassicClient


class MigratingGroupLives(RuleBasedStateMachine):
    """clients: all that ever joined and did not leave. dead: those of them that send no heartbeats any more.

    positions: how far each has read of what it owns; a reader begins where the last commit was.
    """

    def __init__(self) -> None:
        super().__init__()
        self.driver = MigrationDriver(t=3, u=2)
        self.clients: list[AnyClient] = []
        self.dead: list[AnyClient] = []
        self.positions: dict[AnyClient, dict[tuple[bytes, int], int]] = {}
        self.committed: dict[tuple[bytes, int], int] = {}
        self.protocol = EAGER

    @initialize(protocol=st.sampled_from([EAGER, COOPERATIVE]))
    def classic_members_speak_one_protocol(self, protocol: str) -> None:
        self.protocol = protocol

    def pick(self, n: int) -> AnyClient:
        return self.clients[n % len(self.clients)]

    def counts(self, client: AnyClient) -> bool:
        return self.driver.consumer is not None and client.member_id in self.driver.group.subscriptions

    def added(self, client: AnyClient) -> None:
        self.clients.append(client)

    # ---- members ---------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.clients) < 5)
    @rule(topics=subscriptions, instance=instances)
    def a_member_of_the_newer_protocol_joins(self, topics: tuple[str, ...], instance: str | None) -> None:
        said = {} if instance is None else {"instance_id": instance}
        self.added(self.driver.join(OF_INSTANCES.get(instance, topics), **said))

    @precondition(lambda self: len(self.clients) < 5)
    @rule(topics=subscriptions, instance=instances)
    def a_classic_member_joins(self, topics: tuple[str, ...], instance: str | None) -> None:
        topics = OF_INSTANCES.get(instance, topics)
        client = self.driver.classic_member(self.protocol, topics=topics, instance_id=instance)
        self.added(client)
        client.settle()

    @precondition(lambda self: self.clients)
    @rule(n=who, steps=st.integers(1, 6), lost=st.booleans())
    def a_member_goes_on(self, n: int, steps: int, lost: bool) -> None:
        client = self.pick(n)
        for _ in range(steps):
            client.step() if isinstance(client, ClassicClient) else client.beat(lost=lost)

    @precondition(lambda self: self.clients)
    @rule(n=who)
    def a_member_leaves(self, n: int) -> None:
        client = self.pick(n)
        self.clients.remove(client)
        is_newer_elsewhere = isinstance(client, Client) and not self.counts(client)
        refused = r"UNKNOWN_MEMBER_ID|FENCED_INSTANCE_ID|GROUP_ID_NOT_FOUND"
        with pytest.raises(KafkaError, match=refused) if is_newer_elsewhere else nullcontext():
            client.leave()

    @precondition(lambda self: self.clients)
    @rule(n=who)
    def a_member_is_held_up_for_ever_and_goes_on_reading(self, n: int) -> None:
        client = self.pick(n)
        self.clients.remove(client)
        self.dead.append(client)

    @precondition(lambda self: self.clients)
    @rule(n=who)
    def a_member_is_restarted_with_the_other_protocol(self, n: int) -> None:
        client = self.pick(n)
        self.commit(client)
        self.a_member_leaves(n)
        if isinstance(client, ClassicClient):
            self.added(self.driver.join(client.topics))
        else:
            self.a_classic_member_joins(client.topics or (), None)

    # ---- offsets ---------------------------------------------------------------------------------------------

    @precondition(lambda self: self.clients or self.dead)
    @rule(n=who)
    def a_member_reads_and_commits(self, n: int) -> None:
        both = self.clients + self.dead
        client = both[n % len(both)]
        self.note_what_is_owned()
        for place in client.owned:
            self.positions[client][place] += 1
        self.commit(client)

    def commit(self, client: AnyClient) -> None:
        self.note_what_is_owned()
        positions = dict(self.positions.get(client, {}))
        if positions and self.driver.may_commit(client.member_id, client.epoch, frozenset(positions)):
            for place, position in positions.items():
                assert position >= self.committed.get(place, 0), "a stale commit was taken"
                self.committed[place] = position

    def note_what_is_owned(self) -> None:
        for client in self.clients + self.dead:
            before = self.positions.get(client, {})
            self.positions[client] = {p: before.get(p, self.committed.get(p, 0)) for p in client.owned}

    # ---- what is around them ---------------------------------------------------------------------------------

    @rule(policy=st.sampled_from(Policy))
    def an_admin_sets_the_policy(self, policy: Policy) -> None:
        self.driver.policy = policy

    @rule(milliseconds=st.sampled_from([1, 10_000, 46_000]))
    def time_goes_by(self, milliseconds: int) -> None:
        self.driver.wait(milliseconds)

    @rule()
    def the_broker_is_killed_and_starts_again(self) -> None:
        driver = self.driver
        before = driver.consumer
        driver.restart()
        if before is None or next(before.changes(), None) is None:
            assert driver.consumer is None
        else:
            assert {c[:2]: c.value for c in driver.group.changes()} == {c[:2]: c.value for c in before.changes()}
        for client in self.clients + self.dead:
            if isinstance(client, ClassicClient) and client.is_waiting:
                client._waiting = None  # its connection is gone

    @precondition(lambda self: self.clients)
    @rule(n=who)
    def nothing_can_be_written_for_a_moment(self, n: int) -> None:
        client, log = self.pick(n), len(self.driver.log)
        self.driver.refuse = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        client.step() if isinstance(client, ClassicClient) else client.beat()
        self.driver.refuse = None
        assert len(self.driver.log) == log

    @rule()
    def everybody_behaves_for_a_while(self) -> None:
        driver = self.driver
        for _ in range(16):
            driver.wait(11_000)
            for _ in range(3):
                for client in self.clients:
                    client.step() if isinstance(client, ClassicClient) else client.beat()
                    self.no_partition_has_two_owners()
        living = [each for each in self.clients if each.member_id in driver.member_ids]
        assert {each.member_id for each in living} == driver.member_ids
        wanted = Counter(
            (driver.topics.id_of(topic), n)
            for topic in {topic for each in living for topic in each.topics or ()}
            for n in range(driver.topics.partitions[topic])
        )
        assert Counter(place for each in living for place in each.owned) == wanted
        kinds = {isinstance(each, ClassicClient) for each in living}
        if driver.classic is not None and living:
            assert (kinds, driver.classic.state) == ({True}, State.STABLE)
        if driver.policy.downgrades and kinds == {True}:
            assert driver.classic is not None or driver.group.is_all_classic

    # ---- what must hold --------------------------------------------------------------------------------------

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        members = self.driver.member_ids
        counted = [each for each in self.clients + self.dead if each.member_id in members and each.epoch > 0]
        owners = Counter(place for each in counted for place in each.owned)
        assert not [place for place, count in owners.items() if count > 1]

    @invariant()
    def what_is_owned_is_noted(self) -> None:
        self.note_what_is_owned()

    @invariant()
    def a_group_is_of_one_kind(self) -> None:
        assert self.driver.consumer is None or self.driver.classic is None

    @invariant()
    def the_target_gives_each_partition_once(self) -> None:
        if self.driver.consumer is not None:
            targets = self.driver.group.targets.values()
            given: Counter[Places | tuple[bytes, int]] = Counter(
                (t, p) for target in targets for t, parts in target.partitions.items() for p in parts
            )
            assert max(given.values(), default=1) == 1


TestMigratingGroupLives = MigratingGroupLives.TestCase
TestMigratingGroupLives.settings = settings(max_examples=share_of(100), stateful_step_count=40, deadline=None)
