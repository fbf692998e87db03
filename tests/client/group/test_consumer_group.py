"""Members of the newer protocol on a real broker in simulated time: who has what, and what listeners hear."""

import asyncio
import contextlib

import pytest
from fencepost.client.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    InvalidConfigurationError,
    UnsupportedVersionError,
)
from fencepost.client.group.consumer_membership import State
from fencepost.client.group.heartbeat import RELEASE_MS
from fencepost.client.values import OffsetAndMetadata
from fencepost.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest
from fencepost.protocol.messages.topics import CreateTopicsRequest
from group_members import ALL, T0, T1, Member, RecordingListener, run, until

LONG_SESSION_MS = 60_000
FAST = {
    "group_consumer_heartbeat_interval_ms": 1_000,
    "group_consumer_min_heartbeat_interval_ms": 1_000,
    "group_consumer_session_timeout_ms": 10_000,
    "group_consumer_min_session_timeout_ms": 10_000,
}


def newer(broker, **settings):
    return Member(broker, group_protocol="consumer", **settings)


def go(scenario, **settings):
    return run(scenario, **{**FAST, **settings})


async def described(broker):
    return (await broker._ask(ConsumerGroupDescribeRequest(group_ids=["g"]), None)).groups[0]


def test_the_only_member_is_assigned_all_partitions_in_its_first_poll():
    """In the new consumer protocol. At its close they are revoked and the group is empty."""

    async def scenario(broker):
        a = await newer(broker).start()
        assert a.group.needs_poll
        assert await a.poll() == ALL
        assert not a.group.needs_poll
        assert a.listener.calls == [("assigned", sorted(ALL))]
        assert a.group.metadata().generation > 0
        await asyncio.sleep(3)
        assert a.group.member[0] == "stable"
        await a.close()
        assert a.listener.calls[-1] == ("revoked", sorted(ALL))
        assert (await described(broker)).group_state == "Empty"

    go(scenario)


def test_only_moving_partitions_are_revoked_when_members_change():
    async def scenario(broker):
        a, b = [await newer(broker, seed=seed).start() for seed in (1, 2)]
        await a.poll()
        a.keep_polling()
        b.keep_polling()
        await until(lambda: len(a.assigned) == len(b.assigned) == 2)
        assert a.assigned | b.assigned == ALL
        revoked = [places for what, places in a.listener.calls if what == "revoked"]
        assert [len(places) for places in revoked] == [2], "the other two were read all the time"
        await b.close()
        await until(lambda: a.assigned == ALL)
        assert not [call for call in a.listener.calls[3:] if call[0] == "revoked"]
        await a.close()

    go(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("assignor", ["uniform", "range", None])
def test_no_partition_has_two_owners_while_members_join_leave_and_die(assignor):
    async def scenario(broker):
        members = []

        async def look():
            while True:
                owned = [place for member in members for place in member.assigned]
                assert len(owned) == len(set(owned)), [member.assigned for member in members]
                await asyncio.sleep(0.01)

        looking = asyncio.get_running_loop().create_task(look())
        for seed in range(4):
            members.append(await newer(broker, seed=seed, group_remote_assignor=assignor).start())
            members[-1].keep_polling()
            await until(lambda: sum(len(m.assigned) for m in members) == 7 and all(m.assigned for m in members))
            await asyncio.sleep(3)
        await members[0].vanish()
        members.pop(0)
        await until(lambda: sum(len(m.assigned) for m in members) == 7)
        while members:
            await members.pop().close()
        looking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await looking

    go(scenario, partitions=7)


def test_a_member_that_stops_polling_leaves_and_loses_its_partitions():
    async def scenario(broker):
        a = await newer(broker, max_poll_interval_ms=5_000).start()
        await a.poll()
        await asyncio.sleep(7)
        assert (await described(broker)).group_state == "Empty"
        with pytest.raises(CommitFailedError):
            await a.group.commit({T0: OffsetAndMetadata(3)})
        assert a.group.needs_poll
        assert await a.poll() == ALL
        assert a.listener.calls[1:] == [("lost", sorted(ALL)), ("assigned", sorted(ALL))]
        await a.close()

    go(scenario)


def test_a_member_removed_by_the_broker_joins_again():
    async def scenario(broker):
        a, b = newer(broker), newer(broker, seed=2)
        await a.start()
        await a.poll()
        before = a.group.metadata()
        held = list(broker.net.connections)
        for connection in held:
            connection.hold()
        await b.start()
        b.keep_polling()
        await until(lambda: b.assigned == ALL)
        assert a.assigned == ALL, "nobody told it"
        for connection in held:
            connection.release()
        a.keep_polling()
        await until(lambda: len(a.assigned) == len(b.assigned) == 2)
        assert ("lost", sorted(ALL)) in a.listener.calls
        assert a.group.metadata().member_id != before.member_id, "so that no late commit of before is accepted"
        await a.close()
        await b.close()

    go(scenario)


def test_a_listener_commits_revoked_partitions_before_others_get_them():
    class Commits(RecordingListener):
        member = None

        async def on_partitions_revoked(self, partitions):
            await asyncio.sleep(5)
            await self.member.group.commit({tp: OffsetAndMetadata(7) for tp in partitions})
            super().on_partitions_revoked(partitions)

    async def scenario(broker):
        listener = Commits()
        a, b = await newer(broker, listener=listener).start(), await newer(broker, seed=2).start()
        listener.member = a
        await a.poll()
        a.keep_polling()
        b.keep_polling()
        await until(lambda: len(b.assigned) == 2)
        found = await b.group.committed(list(b.subscription.assigned))
        assert {at.offset for at in found.values()} == {7}
        await a.close()
        await b.close()

    go(scenario)


def test_a_rebalance_listeners_error_is_raised_after_the_rebalance():
    class Fails(RecordingListener):
        def on_partitions_revoked(self, partitions):
            super().on_partitions_revoked(partitions)
            raise ValueError("no")

    async def scenario(broker):
        a, b = await newer(broker, listener=Fails()).start(), await newer(broker, seed=2).start()
        await a.poll()
        b.keep_polling()
        with pytest.raises(ValueError, match="no"):
            await a.poll_until(lambda: len(a.assigned) == 0)
        assert len(a.assigned) == 2
        a.keep_polling()
        await until(lambda: len(b.assigned) == 2)
        with pytest.raises(ValueError, match="no"):
            await a.close()
        await b.close()

    go(scenario)


def test_a_regex_subscription_receives_topics_created_later():
    async def scenario(broker):
        a = newer(broker, topics=())
        a.subscription.subscribe((), expression="(t|new).*", listener=a.listener)
        await a.start()
        await a.poll_until(lambda: a.assigned == ALL)
        await _create(broker, "new-one", 2)
        await _create(broker, "other", 2)
        await a.poll_until(lambda: a.assigned == ALL | {"new-one-0", "new-one-1"})
        a.subscription.subscribe(("t",), listener=a.listener)
        await a.poll_until(lambda: a.assigned == ALL)
        await a.close()

    go(scenario, group_consumer_regex_refresh_interval_ms=10_000)


def test_each_poll_raises_until_a_pattern_that_the_broker_refused_is_changed():
    async def scenario(broker):
        a = newer(broker, topics=())
        a.subscription.subscribe((), expression="(", listener=a.listener)
        await a.start()
        for _ in range(2):
            with pytest.raises(InvalidConfigurationError) as raised:
                await a.poll()
            assert "RE2" in raised.value.hint
        a.subscription.subscribe((), expression="t", listener=a.listener)
        await a.poll_until(lambda: a.assigned == ALL)
        await a.close()

    go(scenario)


def test_a_remote_assignor_unknown_to_the_broker_makes_the_poll_raise():
    async def scenario(broker):
        a = await newer(broker, group_remote_assignor="nearest").start()
        with pytest.raises(InvalidConfigurationError, match="nearest") as raised:
            await a.poll()
        assert "group_remote_assignor" in raised.value.hint
        await a.close()

    go(scenario)


@pytest.mark.slow
def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance():
    """Another consumer with its instance id waits, and raises FencedInstanceIdError while the first one runs."""

    async def scenario(broker):
        a = await newer(broker, group_instance_id="one").start()
        b = await newer(broker, group_instance_id="two", seed=2).start()
        a.keep_polling()
        b.keep_polling()
        await until(lambda: len(a.assigned) == len(b.assigned) == 2)
        await asyncio.sleep(3)
        had, calls = set(a.assigned), len(b.listener.calls)
        await a.close()
        await asyncio.sleep(5)
        assert len(b.assigned) == 2, "they are kept for it"
        again = await newer(broker, group_instance_id="one", seed=3).start()
        await again.poll_until(lambda: again.assigned == had)
        assert len(b.listener.calls) == calls
        again.keep_polling()
        other = await newer(broker, group_instance_id="one", seed=4).start()
        started = broker.loop.time()
        with pytest.raises(FencedInstanceIdError, match="one") as raised:
            await other.poll_until(lambda: other.assigned, 90)
        assert RELEASE_MS <= (broker.loop.time() - started) * 1000 <= RELEASE_MS + 10_000
        assert "stop the other consumer" in raised.value.hint
        await other.close()
        assert again.assigned == had
        await again.close()
        await b.close()

    go(scenario)


def test_a_static_member_waits_for_the_session_of_its_killed_predecessor(caplog):
    """This happens when a container is killed and started again."""

    async def scenario(broker):
        killed = await newer(broker, group_instance_id="one").start()
        await killed.poll_until(lambda: killed.assigned == ALL)
        killed.group._heartbeats.stop()
        with caplog.at_level("WARNING", "fencepost.client"):
            again = await newer(broker, group_instance_id="one", seed=2).start()
            started = broker.loop.time()
            await again.poll_until(lambda: again.assigned == ALL)
        waited_s = broker.loop.time() - started
        assert abs(waited_s - FAST["group_consumer_session_timeout_ms"] / 1000) <= 1, "a heartbeat came every second"
        (line,) = [each.getMessage() for each in caplog.records if "group_instance_id" in each.getMessage()]
        assert ("group g" in line, "one" in line, "waits" in line) == (True, True, True)
        await again.close()
        await killed.close()

    go(scenario)


async def _be_fenced(member):
    """Let the broker fence the member: its heartbeat has an epoch that the broker never gave it."""
    await member.poll()
    await asyncio.sleep(3)
    assert member.group.member[0] == "stable"
    member.group._membership.generation = 1_000
    await until(lambda: member.group.member[0] == "unjoined")


def test_a_fenced_member_gets_its_partitions_again_before_its_old_session_ends():
    async def scenario(broker):
        a = await newer(broker).start()
        await _be_fenced(a)
        started = broker.loop.time()
        await a.poll_until(lambda: ("lost", sorted(ALL)) in a.listener.calls and a.assigned == ALL)
        assert broker.loop.time() - started < LONG_SESSION_MS / 2_000
        assert len((await described(broker)).members) == 1
        await a.close()

    go(scenario, group_consumer_session_timeout_ms=LONG_SESSION_MS)


def test_a_fenced_static_member_gets_its_partitions_back_at_once():
    async def scenario(broker):
        a = await newer(broker, group_instance_id="one").start()
        await _be_fenced(a)
        started = broker.loop.time()
        await a.poll_until(lambda: ("lost", sorted(ALL)) in a.listener.calls and a.assigned == ALL)
        assert broker.loop.time() - started < LONG_SESSION_MS / 2_000
        await a.close()

    go(scenario, group_consumer_session_timeout_ms=LONG_SESSION_MS)


@pytest.mark.parametrize("polls", [False, True])
def test_closing_a_fenced_member_leaves_the_group_empty(polls):
    async def scenario(broker):
        a = await newer(broker).start()
        await _be_fenced(a)
        if polls:
            polling = asyncio.ensure_future(a.poll())
            await asyncio.sleep(0)
            await a.close()
            assert await polling == set()
        else:
            await a.close()
        assert (await described(broker)).group_state == "Empty"

    go(scenario, group_consumer_session_timeout_ms=LONG_SESSION_MS)


def test_a_changed_subscription_replaces_the_old_topics_at_the_next_poll():
    async def scenario(broker):
        await _create(broker, "u", 2)
        a = await newer(broker).start()
        await a.poll()
        a.subscription.subscribe(("u",), listener=a.listener)
        assert a.group.needs_poll
        await a.poll()
        assert not a.assigned & ALL
        await a.poll_until(lambda: a.assigned == {"u-0", "u-1"})
        await a.close()

    go(scenario)


def test_unsubscribe_leaves_the_group_and_subscribe_joins_with_a_new_member_id():
    async def scenario(broker):
        a = await newer(broker).start()
        await a.poll()
        member_id = a.group.member[1]
        await a.group.unsubscribe()
        assert a.listener.calls[-1] == ("revoked", sorted(ALL))
        assert (await described(broker)).group_state == "Empty"
        a.subscription.subscribe(("t",), listener=a.listener)
        await a.poll_until(lambda: a.assigned == ALL)
        assert a.group.member[1] != member_id
        await a.close()

    go(scenario)


def test_cut_connections_to_the_broker_cause_no_rebalance():
    async def scenario(broker):
        a = await newer(broker).start()
        await a.poll()
        a.keep_polling()
        await asyncio.sleep(3)
        before, calls = a.group.metadata(), len(a.listener.calls)
        for connection in list(broker.net.connections):
            connection.cut()
        await asyncio.sleep(5)
        assert (a.group.metadata(), len(a.listener.calls)) == (before, calls)
        await a.group.commit({T0: OffsetAndMetadata(3)})
        await a.close()

    go(scenario)


def test_polling_a_broker_without_the_consumer_protocol_raises_with_a_hint(monkeypatch):
    async def scenario(broker):
        a = await newer(broker).start()
        monkeypatch.setattr("fencepost.client.net.connection.Connection.knows", lambda *_: False)
        for _ in range(2):
            with pytest.raises(UnsupportedVersionError, match="does not support the group protocol") as raised:
                await a.poll()
            assert "classic" in raised.value.hint
        assert a.group._membership.state is State.UNJOINED
        await a.close()

    go(scenario)


def test_a_commit_refused_with_stale_member_epoch_is_sent_again_with_the_current_one():
    async def scenario(broker):
        a = await newer(broker).start()
        await a.poll()
        await asyncio.sleep(3)
        membership, real = a.group._membership, a.group._membership.metadata_for
        epochs = []

        def wrong_at_first(partitions):  # any epoch but the member's own is refused with STALE_MEMBER_EPOCH
            found = real(partitions)
            epochs.append(found.generation)
            return found._replace(generation=found.generation + 5) if len(epochs) == 1 else found

        membership.metadata_for = wrong_at_first
        await a.group.commit({T1: OffsetAndMetadata(9)})
        assert len(epochs) == 2
        assert (await a.group.committed([T1]))[T1].offset == 9
        await a.close()

    go(scenario)


def test_an_empty_assignment_is_applied_after_a_second_heartbeat_confirms_it():
    async def scenario(broker):
        members = [await newer(broker, seed=seed).start() for seed in range(3)]
        for member in members[:2]:
            member.keep_polling()
        await until(lambda: all(member.assigned for member in members[:2]))
        surplus = members[2]
        await surplus.poll()
        assert not surplus.subscription.has_assignment
        await surplus.poll_until(lambda: surplus.subscription.has_assignment)
        assert (surplus.assigned, surplus.listener.calls) == (set(), [("assigned", [])])
        for member in members:
            await member.close()

    go(scenario, partitions=2)


async def _create(broker, name, partitions):
    topic = CreateTopicsRequest.Topic(name=name, num_partitions=partitions, replication_factor=1)
    answer = await broker._ask(CreateTopicsRequest(topics=[topic], timeout_ms=1_000), None)
    assert not answer.topics[0].error_code
