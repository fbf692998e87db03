"""Answers that say nothing of what was asked, or something of what was not: neither believed nor mistaken for a yes."""

import asyncio

import pytest
from fencepost.client.errors import BrokerUnreachableError, ClientError, RequestTimedOutError, UnknownTopicError
from fencepost.client.producer.producer import Producer
from fencepost.client.values import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.headers import read_request_header
from fencepost.protocol.messages.cluster import MetadataResponse
from fencepost.protocol.messages.groups import JoinGroupResponse, SyncGroupResponse
from fencepost.protocol.messages.offsets import ListOffsetsResponse, OffsetCommitResponse
from fencepost.protocol.messages.transactions import (
    AddPartitionsToTxnResponse,
    InitProducerIdResponse,
    TxnOffsetCommitResponse,
    TxnTopicResult,
)
from odd_answers import answered
from reading import make, member, reader, write
from txn_world import BOOTSTRAP, within

T0 = TopicPartition("t", 0)
JOIN = 11
both = pytest.mark.parametrize("version", [1, 2])
whose = pytest.mark.parametrize("whose", ["of nothing", "of another partition"])


def answer_of_offsets(kind, whose):
    partitions = [] if whose == "of nothing" else [kind.Topic.Partition(partition_index=7)]
    return lambda request: kind(topics=[kind.Topic(name="t", partitions=partitions)])


@both
@whose
def test_transactional_offsets_are_resent_until_a_response_has_their_partition(version, whose):
    async def main(world):
        await make(world)
        producer = await world.producer()
        world.intercept(answered("TxnOffsetCommit", answer_of_offsets(TxnOffsetCommitResponse, whose), 2))
        async with producer.transaction() as tx:
            await tx.send_offsets_to_transaction({T0: 7}, ConsumerGroupMetadata("g"))
        async with reader(world, group_id="g") as consumer:
            assert await consumer.committed(T0) == {T0: OffsetAndMetadata(7)}

    within(main, version)


@whose
def test_a_commit_is_resent_until_a_response_has_its_partition_or_it_times_out(whose):
    async def main(world):
        await make(world)
        async with reader(world, group_id="g", default_api_timeout_ms=3_000) as consumer:
            silent = answer_of_offsets(OffsetCommitResponse, whose)
            world.intercept(answered("OffsetCommit", silent, 2))
            await consumer.commit({T0: 7})
            assert await consumer.committed(T0) == {T0: OffsetAndMetadata(7)}
            world.intercept(answered("OffsetCommit", silent, 1_000))
            with pytest.raises(RequestTimedOutError):
                await consumer.commit({T0: 8})

    within(main)


@whose
def test_partitions_missing_in_the_answer_to_add_partitions_to_txn_are_sent_again(whose):
    asked = []

    def answer(request):
        asked.append(request)
        partition = TxnTopicResult.Partition(partition_index=7)
        topics = [] if whose == "of nothing" else [TxnTopicResult(name="t", results_by_partition=[partition])]
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)

    async def main(world):
        await write(world, b"a")
        producer = await world.producer()
        world.intercept(answered("AddPartitionsToTxn", answer, 5))
        begun = asyncio.get_running_loop().time()
        async with producer.transaction() as tx:
            await tx.send("t", b"b")
        assert len(asked) == 5
        assert asyncio.get_running_loop().time() - begun > 0.5, "each retry waits"
        assert await world.values() == [b"a", b"b"]

    within(main, 1)


@pytest.mark.parametrize("has_own", [True, False])
def test_end_offsets_of_unrequested_partitions_are_ignored(has_own):
    Topic = ListOffsetsResponse.Topic

    def answer(request):
        partitions = [Topic.Partition(partition_index=7, offset=5)]
        partitions += [Topic.Partition(partition_index=0, offset=1)] * has_own
        return ListOffsetsResponse(topics=[Topic(name="t", partitions=partitions)])

    async def main(world):
        await write(world, b"a")
        async with reader(world) as consumer:
            world.intercept(answered("ListOffsets", answer))
            assert await consumer.end_offsets([T0]) == {T0: 1}

    within(main)


def test_a_partition_without_an_end_offset_in_the_answer_is_asked_again():
    def answer(request):
        partitions = [ListOffsetsResponse.Topic.Partition(partition_index=0, offset=-1)]
        return ListOffsetsResponse(topics=[ListOffsetsResponse.Topic(name="t", partitions=partitions)])

    async def main(world):
        await write(world, b"a")
        async with reader(world, topics=["t"]) as consumer:
            world.intercept(answered("ListOffsets", answer, 2))
            assert (await consumer.getone(timeout_ms=10_000)).value == b"a"
            world.intercept(answered("ListOffsets", answer, 2))
            assert await consumer.end_offsets([T0]) == {T0: 1}

    within(main)


def test_a_send_fails_if_init_producer_id_returned_no_id_and_the_next_one_works():
    async def main(world):
        await make(world)
        async with Producer(BOOTSTRAP, environment=world.world.environment) as producer:
            world.intercept(answered("InitProducerId", lambda request: InitProducerIdResponse()))
            with pytest.raises(ClientError) as failed:
                await producer.send_and_wait("t", b"a")
            assert failed.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
            await producer.send_and_wait("t", b"b")
            assert producer.producer_id >= 0
        assert await world.values() == [b"b"]

    within(main)


def without_partitions(request):
    broker = MetadataResponse.Broker(node_id=1, host="127.0.0.1", port=9092)
    topics = [MetadataResponse.Topic(name=each.name, partitions=[]) for each in request.topics or ()]
    return MetadataResponse(brokers=[broker], topics=topics)


def test_send_waits_up_to_max_block_ms_while_a_topic_is_listed_without_partitions():
    async def main(world):
        await make(world)
        async with Producer(BOOTSTRAP, environment=world.world.environment, max_block_ms=3_000) as producer:
            world.intercept(answered("Metadata", without_partitions, 1_000))
            for _ in range(2):
                with pytest.raises(UnknownTopicError):
                    await producer.send("t", b"a")
            world.intercept(answered("Metadata", without_partitions, 2))
            await producer.send_and_wait("t", b"b")

    within(main)


def test_a_topic_without_partitions_does_not_make_a_group_rebalance_repeatedly():
    joins = []

    async def main(world):
        await write(world, b"a")

        def intercept(serve):
            odd = answered("Metadata", without_partitions, 1_000)(serve)

            def served(connection, frame):
                joins.extend([None] * (read_request_header(frame).api_key == JOIN))
                (odd if len(joins) < 20 else serve)(connection, frame)  # so that a loop of joins ends

            return served

        async with member(world) as consumer:
            world.intercept(intercept)
            assert await consumer.getmany(timeout_ms=10_000) == {}
        assert len(joins) <= 2  # the second one to be given its member id

    within(main)


def test_an_empty_sync_group_assignment_means_no_partitions():
    async def main(world):
        await write(world, b"a")
        async with member(world) as consumer:
            world.intercept(answered("SyncGroup", lambda request: SyncGroupResponse(assignment=b"")))
            assert await consumer.assigned() == frozenset()
            assert consumer.state().membership == "stable"

    within(main)


@pytest.mark.parametrize("api", ["JoinGroup", "SyncGroup"])
def test_an_answer_with_another_assignor_is_refused_and_both_are_named(api):
    named = {"protocol_type": "consumer", "protocol_name": "other"}
    if api == "JoinGroup":
        answer = JoinGroupResponse(generation_id=1, leader="m", member_id="m", members=[], **named)
    else:
        answer = SyncGroupResponse(assignment=b"", **named)

    async def main(world):
        await write(world, b"a")
        async with member(world, partition_assignment_strategy=("range",)) as consumer:
            world.intercept(answered(api, lambda request: answer))
            with pytest.raises(ClientError, match=r"protocol 'other' .* not one of: range") as refused:
                await consumer.getone(timeout_ms=5_000)
            assert refused.value.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            assert (await consumer.getone(timeout_ms=10_000)).value == b"a"

    within(main)


@pytest.mark.parametrize("host", ["a..b", "x" * 64 + ".example"])
async def test_an_invalid_broker_host_name_counts_as_an_unreachable_broker(host):
    with pytest.raises(BrokerUnreachableError, match=host[:8]):
        async with Producer(f"{host}:9092", connect_timeout_ms=100):
            pass
