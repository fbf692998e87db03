"""A share group under any order of heartbeats, lost answers, leaving, timeouts, topics, restarts and failing writes.

After every step: a replay makes the same group, nobody reads what has no share partition or what it does not subscribe
to, and who has the newest target reads with the others all that is subscribed to, none of it with more than it takes.
"""

import pytest
from consumer_group_driver import topic_id
from fencepost.broker.groups.share.machine import Rules
from fencepost.protocol.errors import ErrorCode, KafkaError
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from long_runs import share_of
from share_group_driver import ShareGroupDriver

NAMES = ("t", "u", "v")
MAX_SIZE = 3  # of the group; five members try to join
some_topics = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True)


def code_of(call, *args):
    try:
        call(*args)
    except KafkaError as error:
        return error.code
    return None


def places_of(partitions):
    return {(topic, each) for topic, some in partitions.items() for each in some}


class ShareGroupUnderAnyOrder(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.driver = ShareGroupDriver(Rules(max_size=MAX_SIZE), t=2, u=1)
        self.members = []
        self.epoch = 0

    @rule(number=st.integers(1, 5), topics=some_topics)
    def join(self, number, topics):
        name = f"m-{number}"
        if all(each.member_id != name for each in self.members):
            member = self.driver.join(name, *topics)
            if not member.errors or member.errors == [ErrorCode.COORDINATOR_NOT_AVAILABLE]:
                self.members.append(member)
            else:
                assert (member.errors, len(self.driver.group.members)) == ([ErrorCode.GROUP_MAX_SIZE_REACHED], MAX_SIZE)

    @precondition(lambda self: self.members)
    @rule(data=st.data(), lost=st.booleans())
    def beat(self, data, lost):
        member = data.draw(st.sampled_from(self.members))
        member.beat(lost=lost)
        if member.errors[-1:] == [ErrorCode.GROUP_MAX_SIZE_REACHED]:
            self.members.remove(member)

    @precondition(lambda self: self.members)
    @rule(data=st.data(), topics=some_topics)
    def subscribe(self, data, topics):
        data.draw(st.sampled_from(self.members)).topics = tuple(topics)

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def leave(self, data):
        member = data.draw(st.sampled_from(self.members))
        refused = code_of(member.leave)
        assert refused in (None, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if refused is None:
            self.members.remove(member)

    @rule(milliseconds=st.sampled_from([1, 999, 1_000, 20_000, 45_000]))
    def wait(self, milliseconds):
        assert code_of(self.driver.wait, milliseconds) in (None, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    @rule(name=st.sampled_from(NAMES), size=st.none() | st.integers(1, 4))
    def change_topics(self, name, size):
        if size is None or size > self.driver.topics.partitions.get(name, 0):
            self.driver.topics.set(name, size)

    @rule(place=st.tuples(st.sampled_from([topic_id(name) for name in NAMES]), st.integers(0, 3)))
    def take_offline(self, place):
        self.driver.offline ^= {place}

    @rule(refuse=st.booleans())
    def refuse_writes(self, refuse):
        self.driver.refuse = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE) if refuse else None

    @rule()
    def restart(self):
        self.driver.restart()

    @invariant()
    def epochs_only_grow(self):
        group = self.driver.group
        assert group.target_epoch.epoch <= group.epoch.epoch >= self.epoch
        self.epoch = group.epoch.epoch
        assert all(current.epoch <= group.target_epoch.epoch for current in group.currents.values())

    @invariant()
    def nobody_reads_what_is_not_begun_or_not_subscribed_to(self):
        group, topics = self.driver.group, self.driver.topics
        begun = places_of({topic: each.partitions for topic, each in group.state_partitions.initialized.items()})
        assert begun <= self.driver.share_partitions
        for member_id, current in group.currents.items():
            has = {place for place in places_of(current.assigned) if topics.name_of(place[0]) is not None}
            assert has <= begun
            names = {topics.name_of(topic) for topic, _ in has}
            if current.epoch == group.epoch.epoch:
                assert names <= set(group.members[member_id].topics)

    @invariant()
    def those_that_have_the_newest_target_read_all_that_is_begun(self):
        group, driver = self.driver.group, self.driver
        if not group.members or group.target_epoch.epoch != group.epoch.epoch:
            return
        if {member_id for member_id in group.members if group.current(member_id).epoch != group.epoch.epoch}:
            return
        read = {
            (topic, each)
            for current in group.currents.values()
            for topic, some in current.assigned.items()
            for each in some
        }
        named = {name for member in group.members.values() for name in member.topics}
        there = {driver.topics.id_of(name) for name in named}
        begun = places_of({topic: each.partitions for topic, each in group.state_partitions.initialized.items()})
        if group.epoch.metadata_hash and not group._topics_changed():
            assert {place for place in begun if place[0] in there} <= read


TestShareGroup = pytest.mark.slow(ShareGroupUnderAnyOrder.TestCase)
TestShareGroup.settings = settings(max_examples=share_of(60), stateful_step_count=30, deadline=None)
