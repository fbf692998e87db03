"""The SDK's members on a real broker in simulated time: who has what, and who is told when."""

import asyncio
import contextlib
import re

import pytest
from fencepost.client.errors import (
    ClosedError,
    CommitFailedError,
    FencedInstanceIdError,
    IllegalStateError,
    InvalidConfigurationError,
)
from fencepost.client.values import OffsetAndMetadata, TopicPartition
from fencepost.protocol.messages.groups import DescribeGroupsRequest
from fencepost.protocol.messages.topics import CreatePartitionsRequest, CreateTopicsRequest
from group_members import ALL, COOPERATIVE, T0, T1, Member, RecordingListener, Slow, run, until


async def described(broker):
    response = await broker._ask(DescribeGroupsRequest(groups=["g"]), None)
    return response.groups[0]


def test_the_only_classic_member_is_assigned_all_partitions_in_its_first_poll():
    async def scenario(broker):
        a = await Member(broker).start()
        assert a.group.needs_poll
        assert await a.poll() == ALL
        assert not a.group.needs_poll
        assert a.listener.calls == [("assigned", sorted(ALL))]
        assert a.group.metadata().generation == 1
        await a.close()
        assert (await described(broker)).group_state == "Empty"

    run(scenario)


def test_eager_members_revoke_all_partitions_and_get_a_new_assignment():
    async def scenario(broker):
        a, b = [await Member(broker, seed=seed).start() for seed in (1, 2)]
        await a.poll()
        a.keep_polling()
        b.keep_polling()
        await until(lambda: len(a.assigned) == len(b.assigned) == 2)
        assert a.assigned | b.assigned == ALL
        assert a.listener.calls[1:] == [("revoked", sorted(ALL)), ("assigned", sorted(a.assigned))]
        await b.close()
        assert b.listener.calls[-1][0] == "revoked"
        await until(lambda: a.assigned == ALL)
        await a.close()

    run(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_each_partition_has_one_owner_while_classic_members_join_and_leave(strategy):
    async def scenario(broker):
        members = []

        async def look():
            while True:
                owned = [place for member in members for place in member.assigned]
                assert len(owned) == len(set(owned)), [member.assigned for member in members]
                await asyncio.sleep(0.01)

        looking = asyncio.get_running_loop().create_task(look())
        for seed in range(4):
            members.append(await Member(broker, seed=seed, partition_assignment_strategy=(strategy,)).start())
            members[-1].keep_polling()
            await until(lambda: sum(len(m.assigned) for m in members) == 7 and all(m.assigned for m in members))
            await asyncio.sleep(3)
        await members[0].vanish()  # its session ends after 10 s
        gone = members.pop(0)
        await until(lambda: sum(len(m.assigned) for m in members) == 7)
        assert gone.assigned, "nobody told it"
        while members:
            await members.pop().close()
            await until(lambda: not members or sum(len(m.assigned) for m in members) == 7)
        looking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await looking

    run(scenario, partitions=7)


def test_a_cooperative_member_keeps_its_partitions_and_polls_on_during_a_rebalance():
    async def scenario(broker):
        a, b = [await Member(broker, seed=seed, **COOPERATIVE).start() for seed in (1, 2)]
        await a.poll()
        kept = [a.subscription.assigned[place] for place in (T0, T1)]
        b.keep_polling()
        await until(lambda: a.group.needs_poll)
        started = a.environment.clock.monotonic_ms()
        assert await a.poll() == ALL, "the join goes on in the background"
        assert a.environment.clock.monotonic_ms() == started
        a.keep_polling()
        await until(lambda: len(b.assigned) == 2)
        assert a.assigned | b.assigned == ALL
        assert [a.subscription.assigned.get(place) for place in (T0, T1)] == kept, "their positions too"
        await until(lambda: len(a.listener.calls) == 4)
        assert [what for what, _ in a.listener.calls] == ["assigned", "revoked", "assigned", "assigned"]
        assert b.listener.calls[0] == ("assigned", []), "first the other gives up, then this one gets"
        await a.close()
        await b.close()

    run(scenario)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_between_polls_a_member_sends_only_heartbeats(strategy):
    """Java's rule: nothing is joined, revoked or assigned except inside of a poll."""

    async def scenario(broker):
        a, b = [await Member(broker, seed=seed, partition_assignment_strategy=(strategy,)).start() for seed in (1, 2)]
        await a.poll()
        before = a.group.metadata()
        b.keep_polling()
        await asyncio.sleep(15)  # more than a session
        assert a.group.needs_poll
        assert (await described(broker)).group_state == "PreparingRebalance", "the group waits for it"
        assert a.assigned == ALL
        assert a.listener.calls == [("assigned", sorted(ALL))]
        assert a.group.metadata() == before
        await a.group.commit({T0: OffsetAndMetadata(5)})  # the old generation is still its own
        a.keep_polling()
        await until(lambda: len(a.assigned) == len(b.assigned) == 2)
        await a.close()
        await b.close()

    run(scenario)


def test_on_needs_poll_is_called_when_another_member_joins():
    async def scenario(broker):
        a, b = [await Member(broker, seed=seed).start() for seed in (1, 2)]
        await a.poll()
        woken = asyncio.Event()
        a.group.on_needs_poll = woken.set
        b.keep_polling()
        async with asyncio.timeout(5):
            await woken.wait()
        assert a.group.needs_poll
        await a.close()
        await b.close()

    run(scenario)


# ---- polls that do not come ----------------------------------------------------------------------------------


def test_past_max_poll_interval_a_member_leaves_and_cannot_commit_until_it_rejoins():
    async def scenario(broker):
        a = await Member(broker).start()
        await a.poll()
        stale = a.group.metadata()
        await asyncio.sleep(31)
        assert (await described(broker)).group_state == "Empty"
        assert a.assigned == ALL, "nothing is taken away outside of a poll"
        with pytest.raises(CommitFailedError):
            await a.group.commit({T0: OffsetAndMetadata(5)})
        assert a.group.metadata() == stale, "with this metadata the group refuses the offsets of a transaction"
        assert await a.poll() == ALL
        assert [what for what, _ in a.listener.calls] == ["assigned", "lost", "assigned"]
        assert (await a.group.committed([T0])) == {T0: None}
        await a.close()

    run(scenario)


def test_max_poll_interval_does_not_elapse_during_a_poll():
    async def scenario(broker):
        a = await Member(broker).start()
        await a.poll()
        with a.group.polling():
            await asyncio.sleep(100)
        await asyncio.sleep(29)
        assert (await described(broker)).group_state == "Stable"
        await a.close()

    run(scenario)


def test_a_member_without_heartbeats_for_a_session_loses_its_partitions():
    async def scenario(broker):
        a, b = [await Member(broker, seed=seed).start() for seed in (1, 2)]
        await a.poll()
        a.group._heartbeats.stop()  # as a process that was stopped
        b.keep_polling()
        await until(lambda: b.assigned == ALL)
        with pytest.raises(CommitFailedError):
            await a.group.commit({T0: OffsetAndMetadata(9)})
        a.keep_polling()
        await until(lambda: len(a.assigned) == len(b.assigned) == 2)
        assert [what for what, _ in a.listener.calls] == ["assigned", "lost", "assigned"]
        await a.close()
        await b.close()

    run(scenario)


# ---- static members ------------------------------------------------------------------------------------------


def test_a_static_member_does_not_leave_at_close_and_is_back_without_a_rebalance():
    async def scenario(broker):
        a, b = [await Member(broker, seed=seed, group_instance_id=f"i{seed}").start() for seed in (1, 2)]
        await a.poll()
        a.keep_polling()
        b.keep_polling()
        await until(lambda: len(a.assigned) == len(b.assigned) == 2)
        generation, had = b.group.metadata().generation, a.assigned
        await a.close()
        assert len((await described(broker)).members) == 2
        again = await Member(broker, seed=3, group_instance_id="i1").start()
        again.keep_polling()
        await until(lambda: bool(again.assigned))
        assert again.assigned == had
        assert again.group.metadata().generation == b.group.metadata().generation == generation
        await again.close()
        await b.close()

    run(scenario)


def test_a_second_process_with_the_same_instance_id_fences_the_first():
    async def scenario(broker):
        first = await Member(broker, group_instance_id="i").start()
        await first.poll()
        second = await Member(broker, seed=2, group_instance_id="i").start()
        await second.poll()
        await until(lambda: first.group.needs_poll)
        with pytest.raises(FencedInstanceIdError):
            await first.group.commit({T0: OffsetAndMetadata(9)})
        for _ in range(2):
            with pytest.raises(FencedInstanceIdError):
                await first.poll()
        assert first.listener.calls[-1] == ("lost", sorted(ALL))
        assert first.assigned == set()
        await first.close()
        assert second.assigned == ALL
        await second.close()

    run(scenario)


# ---- listeners -----------------------------------------------------------------------------------------------


class Failing(RecordingListener):
    def __init__(self, *what):
        super().__init__()
        self.what = what

    def on_partitions_assigned(self, partitions):
        super().on_partitions_assigned(partitions)
        if "assigned" in self.what:
            raise ZeroDivisionError("assigned")

    def on_partitions_revoked(self, partitions):
        super().on_partitions_revoked(partitions)
        if "revoked" in self.what:
            raise ZeroDivisionError("revoked")


def test_each_error_of_a_listener_is_raised_once_by_the_poll_after_the_rebalance():
    async def scenario(broker):
        a = await Member(broker, listener=Failing("assigned", "revoked")).start()
        with pytest.raises(ZeroDivisionError, match="assigned"):
            await a.poll()
        assert a.assigned == ALL
        assert await a.poll() == ALL, "once"
        a.subscription.subscribe(["t", "other"], listener=a.listener)
        with pytest.raises(ZeroDivisionError, match="revoked"):
            await a.poll()
        assert a.assigned == set()
        with pytest.raises(ZeroDivisionError, match="assigned"):
            await a.poll()
        assert a.assigned == ALL
        with pytest.raises(ZeroDivisionError, match="revoked"):
            await a.close()
        assert (await described(broker)).group_state == "Empty"
        await a.cluster.close()

    run(scenario)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_offsets_committed_by_a_slow_listener_are_seen_by_the_new_owner(strategy):
    async def scenario(broker):
        listener = Slow()
        a = await Member(broker, listener=listener, partition_assignment_strategy=(strategy,)).start()
        b = await Member(broker, seed=2, partition_assignment_strategy=(strategy,)).start()
        listener.member = a
        await a.poll()
        a.keep_polling()
        b.keep_polling()
        await until(lambda: len(a.assigned) == len(b.assigned) == 2)
        given_up = [TopicPartition("t", int(name[-1])) for name in b.assigned]
        found = await b.group.committed(given_up)
        assert {offset.offset for offset in found.values()} == {7}
        await b.close()
        await a.vanish()

    run(scenario)


def test_a_poll_cancelled_in_a_listener_still_completes_the_rebalance():
    async def scenario(broker):
        listener = Slow()
        a = await Member(broker, listener=listener).start()
        listener.member = a
        await a.poll()
        a.subscription.subscribe(["t", "other"], listener=listener)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await a.poll()
        assert a.assigned == ALL, "kept until the listener is done"
        await a.poll()  # waits for the listener
        assert await a.poll() == ALL
        committed = await a.group.committed([TopicPartition("t", 0)])
        assert [at.offset for at in committed.values()] == [7], "the listener went on"
        await a.vanish()

    run(scenario)


# ---- the cluster changes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("unsubscribes", [True, False])
def test_a_new_subscription_pattern_matches_existing_topics(unsubscribes):
    async def scenario(broker):
        a = await Member(broker, topics=()).start()
        a.subscription.subscribe((), re.compile("t"))
        assert await a.poll() == ALL
        topics = [CreateTopicsRequest.Topic(name="new", num_partitions=1, replication_factor=1)]
        await broker._ask(CreateTopicsRequest(topics=topics, timeout_ms=5_000), None)
        if unsubscribes:
            await a.group.unsubscribe()
        a.subscription.subscribe((), re.compile("t|new"))
        assert await a.poll() == ALL | {"new-0"}
        await a.close()

    run(scenario)


def test_the_leader_rebalances_for_new_partitions_and_matching_new_topics():
    async def scenario(broker):
        a = await Member(broker, metadata_max_age_ms=1_000, topics=()).start()
        a.subscription.subscribe((), re.compile("t|u.*"), a.listener)
        assert await a.poll() == ALL
        a.keep_polling()
        more = CreatePartitionsRequest.Topic(name="t", count=5)
        await broker._ask(CreatePartitionsRequest(topics=[more], timeout_ms=1_000), None)
        await until(lambda: a.assigned == ALL | {"t-4"})
        new = CreateTopicsRequest.Topic(name="u1", num_partitions=1, replication_factor=1)
        await broker._ask(CreateTopicsRequest(topics=[new], timeout_ms=1_000), None)
        await until(lambda: a.assigned == ALL | {"t-4", "u1-0"})
        await a.close()

    run(scenario)


def test_a_changed_subscription_rejoins_in_the_next_poll():
    async def scenario(broker):
        new = CreateTopicsRequest.Topic(name="u", num_partitions=1, replication_factor=1)
        await broker._ask(CreateTopicsRequest(topics=[new], timeout_ms=1_000), None)
        a = await Member(broker, **COOPERATIVE).start()
        await a.poll()
        a.subscription.subscribe(["u"], listener=a.listener)
        assert a.group.needs_poll
        a.keep_polling()
        await until(lambda: a.assigned == {"u-0"})
        assert a.listener.calls == [("assigned", sorted(ALL)), ("revoked", sorted(ALL)), ("assigned", ["u-0"])]
        await a.close()

    run(scenario)


def test_a_member_that_left_can_join_again():
    async def scenario(broker):
        a = await Member(broker).start()
        await a.poll()
        await a.group.unsubscribe()
        assert a.listener.calls[-1][0] == "revoked"
        assert (await described(broker)).group_state == "Empty"
        await a.poll()
        assert a.assigned == set()
        a.subscription.subscribe(["t"], listener=a.listener)
        assert a.group.needs_poll, "for the topics it had before, too"
        assert await a.poll() == ALL
        await a.close()

    run(scenario)


# ---- more than one task --------------------------------------------------------------------------------------


def test_of_several_tasks_polling_at_once_only_one_joins_the_group():
    async def scenario(broker):
        a = await Member(broker).start()
        await asyncio.gather(a.poll(), a.poll(), a.poll())
        assert a.assigned == ALL
        assert a.group.metadata().generation == 1
        assert len(a.listener.calls) == 1
        await a.close()

    run(scenario)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_closing_a_member_makes_a_waiting_poll_raise_closed_error_and_not_rejoin(strategy):
    async def scenario(broker):
        a, b = [await Member(broker, seed=seed, partition_assignment_strategy=(strategy,)).start() for seed in (1, 2)]
        await a.poll()
        waiting = asyncio.create_task(b.poll(60_000))
        await asyncio.sleep(1)
        await b.group.close()
        with pytest.raises(ClosedError):
            await waiting
        await asyncio.sleep(1)
        assert len((await described(broker)).members) == 1
        with pytest.raises(ClosedError):
            await b.poll()
        await b.cluster.close()
        await a.close()

    run(scenario)


class Reading(RecordingListener):
    def __init__(self):
        super().__init__()
        self.member = None

    async def on_partitions_assigned(self, partitions):
        super().on_partitions_assigned(partitions)
        await self.member.poll()


def test_polling_inside_a_rebalance_listener_raises():
    async def scenario(broker):
        listener = Reading()
        a = await Member(broker, listener=listener).start()
        listener.member = a
        with pytest.raises(IllegalStateError):
            await a.poll()
        assert a.assigned == ALL
        await a.close()

    run(scenario)


# ---- what cannot be ------------------------------------------------------------------------------------------


def test_a_poll_raises_the_error_of_a_refused_join():
    async def scenario(broker):
        a = await Member(broker, session_timeout_ms=1_500_000_000, heartbeat_interval_ms=1_000).start()
        for _ in range(2):
            with pytest.raises(InvalidConfigurationError):
                await a.poll()
        await a.close()

    run(scenario)


def test_closing_a_classic_member_ends_at_its_timeout_if_the_broker_does_not_answer():
    async def scenario(broker):
        a = await Member(broker, enable_auto_commit=True, listener=Slow()).start()
        a.listener.member = a
        await a.poll()
        a.subscription.seek(T0, 1)
        await broker.broker.stop()
        started = a.environment.clock.monotonic_ms()
        await a.group.close(2_000)
        assert a.environment.clock.monotonic_ms() - started <= 2_100
        await a.cluster.close()

    run(scenario)


def test_a_member_closes_at_once_in_the_middle_of_a_join():
    async def scenario(broker):
        a, b = [await Member(broker, seed=seed).start() for seed in (1, 2)]
        await a.poll()
        assert await b.poll(500) == set(), "a does not poll, so the group waits"
        started = b.environment.clock.monotonic_ms()
        await b.close()
        assert b.environment.clock.monotonic_ms() - started < 1_000
        assert len((await described(broker)).members) == 1
        await a.close()

    run(scenario)
