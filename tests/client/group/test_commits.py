"""Commits of the SDK's members: which count, in what order they end, and what is committed by itself and when."""

import asyncio

import pytest
from fencepost.client.errors import CommitFailedError, RebalanceInProgressError
from fencepost.client.group.membership import State
from fencepost.client.values import OffsetAndMetadata
from group_members import ALL, COOPERATIVE, T0, T1, Member, Slow, run, until


def test_committed_returns_the_offset_that_was_committed():
    async def scenario(broker):
        a = await Member(broker).start()
        await a.poll()
        await a.group.commit({T0: OffsetAndMetadata(5, "so far", 0)})
        await a.group.commit({})
        assert await a.group.committed([T0, T1]) == {T0: OffsetAndMetadata(5, "so far", 0), T1: None}
        a.subscription.seek(T1, 3)
        await a.group.commit()
        assert (await a.group.committed([T1]))[T1].offset == 3
        await a.close()

    run(scenario)


def test_concurrent_commits_complete_in_the_order_they_were_made():
    async def scenario(broker):
        a = await Member(broker).start()
        await a.poll()
        commits = [a.group.commit({T0: OffsetAndMetadata(offset)}) for offset in range(1, 20)]
        await asyncio.gather(*commits)
        assert (await a.group.committed([T0]))[T0].offset == 19
        await a.close()

    run(scenario)


def test_commit_raises_rebalance_in_progress_while_the_member_is_joining():
    async def scenario(broker):
        a, b = [await Member(broker, seed=seed, **COOPERATIVE).start() for seed in (1, 2)]
        await a.poll()
        b.keep_polling()
        await until(lambda: a.group.needs_poll)
        await a.poll()
        assert a.group._membership.state is State.JOINING
        with pytest.raises(RebalanceInProgressError):
            await a.group.commit({T0: OffsetAndMetadata(5)})
        a.keep_polling()
        await until(lambda: len(b.assigned) == 2)
        await until(lambda: not a.group.needs_poll)
        await a.group.commit({T0: OffsetAndMetadata(5)})
        await a.close()
        await b.close()

    run(scenario)


def test_partitions_assigned_by_hand_are_committed_without_a_membership():
    async def scenario(broker):
        a = await Member(broker, topics=()).start()
        a.subscription.assign([T0])
        await a.poll()
        assert a.assigned == {"t-0"}
        assert a.group.metadata().generation == -1
        await a.group.commit({T0: OffsetAndMetadata(5)})
        assert (await a.group.committed([T0]))[T0].offset == 5
        await a.close()

    run(scenario)


def test_auto_commit_commits_during_polls_before_revocations_and_at_close():
    async def scenario(broker):
        a = await Member(broker, enable_auto_commit=True, auto_commit_interval_ms=1_000).start()
        reader = await Member(broker, seed=9, topics=()).start()

        async def committed():
            found = (await reader.group.committed([T0]))[T0]
            return found and found.offset

        await a.poll()
        a.subscription.seek(T0, 3)
        assert await committed() is None
        await until(lambda: a.group.needs_poll, 2)
        await a.poll()
        await asyncio.sleep(0.1)
        assert await committed() == 3
        a.subscription.seek(T0, 4)
        a.subscription.subscribe(["t", "other"])
        await a.poll()
        assert await committed() == 4
        a.subscription.seek(T0, 5)
        await a.close()
        assert await committed() == 5
        await reader.close()

    run(scenario)


def test_auto_commit_omits_records_returned_since_the_last_poll():
    async def scenario(broker):
        a = await Member(broker, enable_auto_commit=True, auto_commit_interval_ms=1_000).start()
        await a.poll()
        a.subscription.seek(T0, 3)
        await until(lambda: a.group.needs_poll, 2)
        await a.poll()
        a.subscription.seek(T0, 50)  # what this poll gave: the application is at work on it
        await asyncio.sleep(0.5)
        assert (await a.group.committed([T0]))[T0].offset == 3
        await a.close()

    run(scenario)


def test_an_auto_commit_interval_that_ends_during_a_poll_does_not_stop_auto_commits():
    async def scenario(broker):
        a = await Member(broker, listener=Slow(), enable_auto_commit=True, auto_commit_interval_ms=1_000).start()
        a.listener.member = a
        await a.poll()
        a.subscription.subscribe(["t", "other"], listener=a.listener)
        await a.poll(30_000)  # takes longer than the interval
        a.subscription.seek(T0, 70)
        await until(lambda: a.group.needs_poll, 2)
        await a.poll()
        await asyncio.sleep(0.1)
        assert (await a.group.committed([T0]))[T0].offset == 70
        await a.vanish()

    run(scenario)


def test_offsets_of_a_partition_that_moved_to_another_member_are_not_committed():
    """The broker knows the member and its generation, not what it owns: the new owner's offsets would go back."""

    async def scenario(broker):
        a, b = [await Member(broker, seed=seed).start() for seed in (1, 2)]
        assert await a.poll() == ALL
        a.keep_polling()
        b.keep_polling()
        await until(lambda: len(a.assigned) == len(b.assigned) == 2)
        (theirs, *_), (ours, *_) = sorted(b.subscription.assigned), sorted(a.subscription.assigned)
        await b.group.commit({theirs: OffsetAndMetadata(10)})
        with pytest.raises(CommitFailedError, match=str(theirs)):
            await a.group.commit({ours: OffsetAndMetadata(3), theirs: OffsetAndMetadata(5)})
        assert (await b.group.committed([theirs]))[theirs].offset == 10
        await a.close()
        await b.close()

    run(scenario)
