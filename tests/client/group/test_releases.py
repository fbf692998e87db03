"""Members on brokers of older Kafka releases, and on brokers that fail for a while."""

import asyncio
import random

import pytest
from capped_broker import RELEASES, cap
from fencepost.client.errors import CommitFailedError, RequestTimedOutError, UnsupportedVersionError
from fencepost.client.values import OffsetAndMetadata
from fencepost.protocol.apis import APIS, encode_response
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.headers import read_request_header
from fencepost.protocol.messages.groups import HeartbeatResponse
from fencepost.protocol.messages.offsets import OffsetCommitResponse
from fencepost.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)
from group_members import ALL, T0, Member, run, until


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("release", sorted(RELEASES))
def test_group_members_share_partitions_and_commit_on_every_kafka_release(release, strategy):
    async def scenario(broker):
        cap(broker.broker, release)
        a, b = [await Member(broker, seed=seed, partition_assignment_strategy=(strategy,)).start() for seed in (1, 2)]
        await a.poll()
        a.keep_polling()
        b.keep_polling()
        await until(lambda: len(a.assigned) == len(b.assigned) == 2 and not a.group.needs_poll)
        await a.group.commit({T0: OffsetAndMetadata(5, "x", 0)})
        assert (await b.group.committed([T0]))[T0] == OffsetAndMetadata(5, "x", 0)
        await b.close()
        await until(lambda: a.assigned == ALL)
        await a.close()

    run(scenario)


def test_static_members_are_refused_on_releases_without_static_membership():
    async def scenario(broker):
        cap(broker.broker, "2.1")
        a = await Member(broker, group_instance_id="i").start()
        with pytest.raises(UnsupportedVersionError, match="group_instance_id"):
            await a.poll()
        await a.close()

    run(scenario)


# ---- transactions that hold offsets --------------------------------------------------------------------------


@pytest.mark.requirement("S-84")
@pytest.mark.parametrize("commit", [True, False])
def test_committed_waits_for_pending_transactional_offsets_if_it_requires_stable(commit):
    """Without require_stable it returns the offset that was committed before."""

    async def scenario(broker):
        a = await Member(broker).start()
        await a.poll()
        await a.group.commit({T0: OffsetAndMetadata(1)})
        got = await broker._ask(InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000), 4)
        who = {"transactional_id": "x", "producer_id": got.producer_id, "producer_epoch": got.producer_epoch}
        await broker._ask(AddOffsetsToTxnRequest(group_id="g", **who), 3)
        member = a.group.metadata()
        partition = TxnOffsetCommitRequest.Topic.Partition(partition_index=0, committed_offset=2)
        topics = [TxnOffsetCommitRequest.Topic(name="t", partitions=[partition])]
        request = TxnOffsetCommitRequest(
            group_id="g", generation_id=member.generation, member_id=member.member_id, topics=topics, **who
        )
        assert not (await broker._ask(request, 3)).topics[0].partitions[0].error_code
        with pytest.raises(RequestTimedOutError):
            await a.group.committed([T0], timeout_ms=500)
        assert (await a.group.committed([T0], require_stable=False))[T0].offset == 1
        waiting = asyncio.create_task(a.group.committed([T0]))
        await asyncio.sleep(1)
        assert not waiting.done()
        assert not (await broker._ask(EndTxnRequest(committed=commit, **who), 3)).error_code
        assert (await waiting)[T0].offset == (2 if commit else 1)
        await a.close()

    run(scenario)


# ---- brokers that fail ---------------------------------------------------------------------------------------


def refusing(broker, api_key, codes, answer):
    """Answer the next requests of this API with these error codes, one after the other; None: cut the connection
    instead. Returns the list of codes that are left.
    """
    left = list(codes)

    def intercept(serve):
        def served(connection, frame):
            header = read_request_header(frame)
            if header.api_key != api_key or not left:
                return serve(connection, frame)
            code = left.pop(0)
            if code is None:
                return connection.fail("cut off, as a test wants it")
            response = answer(code)
            return connection.reply(
                encode_response(APIS[api_key], header.api_version, header.correlation_id, response), 0
            )

        return served

    broker.broker.intercept(intercept)
    return left


def commit_answer(code):
    partition = OffsetCommitResponse.Topic.Partition(partition_index=0, error_code=code)
    return OffsetCommitResponse(topics=[OffsetCommitResponse.Topic(name="t", partitions=[partition])])


def test_a_commit_is_retried_after_retriable_errors_and_unanswered_requests():
    async def scenario(broker):
        passing = [
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            None,
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            None,
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        a = await Member(broker).start()
        await a.poll()
        left = refusing(broker, 8, passing, commit_answer)
        await a.group.commit({T0: OffsetAndMetadata(5)})
        assert not left
        assert (await a.group.committed([T0]))[T0].offset == 5
        await a.close()

    run(scenario)


@pytest.mark.parametrize("code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_removed_members_commit_is_not_retried_and_its_next_poll_joins(code):
    async def scenario(broker):
        a = await Member(broker).start()
        await a.poll()
        left = refusing(broker, 8, [code, code], commit_answer)
        with pytest.raises(CommitFailedError):
            await a.group.commit({T0: OffsetAndMetadata(5)})
        assert len(left) == 1
        assert a.group.needs_poll
        assert await a.poll(15_000) == ALL, "once the session of the member that the broker still has is over"
        assert a.listener.calls[1] == ("lost", sorted(ALL))
        await a.close()

    run(scenario)


def test_a_commit_that_only_gets_load_in_progress_raises_at_its_timeout():
    async def scenario(broker):
        a = await Member(broker).start()
        await a.poll()
        refusing(broker, 8, [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 1000, commit_answer)
        started = a.environment.clock.monotonic_ms()
        with pytest.raises(RequestTimedOutError):
            await a.group.commit({T0: OffsetAndMetadata(5)}, timeout_ms=3_000)
        assert a.environment.clock.monotonic_ms() - started <= 3_100
        await a.close()

    run(scenario)


def test_heartbeats_continue_after_retriable_errors_and_lost_connections():
    async def scenario(broker):
        a = await Member(broker).start()
        await a.poll()
        codes = [ErrorCode.COORDINATOR_NOT_AVAILABLE, None, ErrorCode.NOT_COORDINATOR, None]
        left = refusing(broker, 12, codes, lambda code: HeartbeatResponse(error_code=code))
        for _ in range(30):
            await asyncio.sleep(1)
            a.group.polled()
        assert not left
        assert a.group.metadata().generation == 1
        assert not a.group.needs_poll
        await a.close()

    run(scenario)


def test_members_keep_their_partitions_over_a_broker_restart():
    async def scenario(broker):
        from fencepost.broker.broker import Broker
        from fencepost.effects.simulated.rng import SeededRng

        a, b = [await Member(broker, seed=seed).start() for seed in (1, 2)]
        a.keep_polling()
        b.keep_polling()
        await until(lambda: len(a.assigned) == len(b.assigned) == 2)
        generation = a.group.metadata().generation
        await broker.broker.stop()
        await asyncio.sleep(3)
        clock = broker.broker.clock
        broker.broker = Broker(broker.settings, disk=broker.disk, clock=clock, rng=SeededRng(9), net=broker.net)
        await broker.broker.start()
        await asyncio.sleep(20)
        assert (a.group.metadata().generation, len(a.assigned), len(b.assigned)) == (generation, 2, 2)
        await a.group.commit({T0: OffsetAndMetadata(5)})
        await a.close()
        await b.close()

    run(scenario)


GROUP_APIS = (8, 9, 10, 11, 12, 13, 14)


def unreliable(broker, chance):
    """Lose some requests of the groups' APIs, and the answers of others. Returns a list: once it is emptied, all
    arrive.
    """
    on = [True]

    def intercept(serve):
        def served(connection, frame):
            fate = chance.random() if on and read_request_header(frame).api_key in GROUP_APIS else 1
            if fate < 0.08:
                return connection.fail("lost, as a test wants it")
            serve(connection, frame)
            if fate < 0.16:
                connection.fail("the answer is lost, as a test wants it")
            return None

        return served

    broker.broker.intercept(intercept)
    return on


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("seed", range(4))
def test_members_form_a_group_although_requests_and_answers_are_lost(seed, strategy):
    async def scenario(broker):
        chance = random.Random(seed)
        on = unreliable(broker, chance)
        members = []
        for number in range(3):
            more = {"seed": 10 * seed + number, "partition_assignment_strategy": (strategy,)}
            members.append(await Member(broker, **more).start())
            members[-1].keep_polling()
            await asyncio.sleep(chance.random() * 5)
        await asyncio.sleep(30)
        for member in members:
            assert member._polling is not None
            assert not member._polling.done(), member._polling
        on.clear()

        def shared():
            owned = [place for member in members for place in member.assigned]
            return len(owned) == 4 and set(owned) == ALL and not any(m.group.needs_poll for m in members)

        await until(shared)
        for member in members:
            positions = {place: OffsetAndMetadata(9) for place in member.subscription.assigned}
            await member.group.commit(positions)
        await asyncio.sleep(5)
        assert shared()
        for member in members:
            await member.close()

    run(scenario)
