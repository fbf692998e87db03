"""The SDK's machine and the broker's, with lost and repeated heartbeats: nobody commits what another one reads."""

import pytest
from consumer_group_driver import ConsumerGroupDriver
from consumer_members import Reader
from fencepost.client.group.consumer_membership import State
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

WHICH = st.integers(0, 2)
TOPICS = st.sampled_from([("t",), ("u",), ("t", "u")])


class Members(RuleBasedStateMachine):
    """Three members, one of them static, that come, go, stall and change their minds."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = ConsumerGroupDriver(t=3, u=2)
        self.readers = [
            Reader(self.driver, "a", ("t",)),
            Reader(self.driver, "b", ("t", "u")),
            Reader(self.driver, "c", ("t",), "fixed"),
        ]

    @rule(which=WHICH)
    def poll(self, which):
        self.readers[which].poll()

    @rule(which=WHICH)
    def send(self, which):
        self.readers[which].send()

    @rule(which=WHICH)
    def arrive(self, which):
        self.readers[which].arrive()

    @rule(which=WHICH)
    def hear(self, which):
        self.readers[which].hear()

    @rule(which=WHICH)
    def fail(self, which):
        self.readers[which].fail()

    @rule(which=WHICH)
    def run_once(self, which):
        self.readers[which].run()

    @rule(which=WHICH)
    def leave(self, which):
        self.readers[which].leave()

    @rule(which=WHICH, topics=TOPICS)
    def subscribe(self, which, topics):
        self.readers[which].topics = frozenset(topics)

    @rule(name=st.sampled_from(["t", "u"]), partitions=st.sampled_from([None, 1, 3, 4]))
    def change_topic(self, name, partitions):
        if partitions is None or partitions >= self.driver.topics.partitions.get(name, 0):
            self.driver.topics.set(name, partitions)

    @rule(milliseconds=st.sampled_from([1_000, 20_000, 50_000]))
    def wait(self, milliseconds):
        self.driver.wait(milliseconds)

    @rule()
    def restart(self):
        self.driver.restart()

    @invariant()
    def only_one_may_commit_what_it_reads(self):
        for in_transaction in (False, True):
            owners = {}
            for reader in self.readers:
                for tp, topic_id in reader.reads.items():
                    if reader.may_commit(tp, in_transaction=in_transaction):
                        place = topic_id, tp.partition
                        assert place not in owners, (place, reader.membership.member_id, owners[place])
                        owners[place] = reader.membership.member_id

    @invariant()
    def only_one_member_reads_a_partition(self):
        owners = {}
        for reader in self.readers:
            if not self._is_counted(reader):
                continue  # the broker has removed it, and it does not know that yet
            for tp, topic_id in reader.reads.items():
                place = topic_id, tp.partition
                assert place not in owners, (place, reader.membership.member_id, owners[place])
                owners[place] = reader.membership.member_id

    def _is_counted(self, reader):
        member_id, group = reader.membership.member_id, self.driver.group
        if member_id not in group.subscriptions:
            return False
        current = group.current(member_id)
        return reader.membership.generation in (current.epoch, current.previous_epoch)

    @invariant()
    def a_reader_reads_only_what_it_subscribes_to_after_a_poll(self):
        for reader in self.readers:
            assert (
                all(tp.topic in reader.membership.joined_topics for tp in reader.reads)
                or not reader.membership.is_member
            )

    def teardown(self):
        """Check that the members, without further disturbances, divide all partitions among them and then send
        heartbeats without changes.
        """
        for reader in self.readers:
            reader.fail()
        for _ in range(40):
            self.driver.wait(5_000)
            for reader in self.readers:
                reader.run()
        wanted = {topic for reader in self.readers for topic in reader.topics if topic in self.driver.topics.partitions}
        places = [(tp.topic, tp.partition) for reader in self.readers for tp in reader.reads]
        assert sorted(places) == sorted(
            (name, n) for name in wanted for n in range(self.driver.topics.partitions[name])
        )
        for reader in self.readers:
            assert reader.membership.state is State.STABLE
            assert all(reader.may_commit(tp, in_transaction=True) for tp in reader.reads)
            reader.send()
            request = reader.last_request
            assert (request.subscribed_topic_names, request.topic_partitions, request.rebalance_timeout_ms) == (
                None,
                None,
                -1,
            )


TestMembers = pytest.mark.slow(Members.TestCase)
