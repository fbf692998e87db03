"""Admin and answers that leave out what was asked; and what it takes for a partition or an offset."""

import pytest
from fencepost.client.admin.admin import Admin
from fencepost.client.admin.offsets import LATEST
from fencepost.client.errors import ClientError, RequestTimedOutError
from fencepost.client.values import OffsetAndMetadata, TopicPartition
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.protocol.messages.groups import DescribeGroupsResponse
from fencepost.protocol.messages.offsets import ListOffsetsResponse
from fencepost.protocol.messages.transactions import DescribeTransactionsResponse, ListTransactionsResponse
from odd_answers import answered
from reading import make, write
from txn_world import BOOTSTRAP, within

PLAIN = ("t", 0)
T0 = TopicPartition(*PLAIN)


def admin(world, **keywords):
    return Admin(BOOTSTRAP, environment=world.world.environment, **keywords)


def test_admin_asks_again_for_partitions_missing_from_an_answer():
    async def main(world):
        await write(world, b"a")
        async with admin(world, default_api_timeout_ms=3_000) as asking:
            world.intercept(answered("ListOffsets", lambda request: ListOffsetsResponse(topics=[]), 2))
            assert await asking.ends([T0], LATEST) == {T0: 1}
            world.intercept(answered("ListOffsets", lambda request: ListOffsetsResponse(topics=[]), 1_000))
            with pytest.raises(RequestTimedOutError, match="t-0"):
                await asking.ends([T0], LATEST)

    within(main)


def test_admin_does_not_wait_for_partitions_without_a_leader_if_told_not_to():
    async def main(world):
        await write(world, b"a")
        async with admin(world) as asking:
            world.intercept(answered("ListOffsets", lambda request: ListOffsetsResponse(topics=[]), 1))
            unavailable = {}
            assert await asking.ends([T0], LATEST, unavailable=unavailable) == {}
            assert [(tp, error.code) for tp, error in unavailable.items()] == [(T0, ErrorCode.REQUEST_TIMED_OUT)]
            unavailable = {}
            assert await asking.ends([T0], LATEST, unavailable=unavailable) == {T0: 1}
            assert unavailable == {}
            for leader, code in ((-1, ErrorCode.LEADER_NOT_AVAILABLE), (77, ErrorCode.NETWORK_EXCEPTION)):

                async def leaders(partitions, *, skip_missing, leader=leader):
                    return dict.fromkeys(partitions, leader)

                asking._leaders = leaders
                unavailable = {}
                assert await asking.ends([T0], LATEST, unavailable=unavailable) == {}
                assert [(tp, error.code) for tp, error in unavailable.items()] == [(T0, code)]
                with pytest.raises(KafkaError) as failed:
                    await asking.read_page(T0, 0, retry=False)
                assert failed.value.code is code

    within(main)


def test_an_admin_raises_naming_what_a_describe_answer_left_out():
    async def main(world):
        async with admin(world) as asking:
            world.intercept(answered("DescribeGroups", lambda request: DescribeGroupsResponse(groups=[])))
            with pytest.raises(ClientError, match="group nobody"):
                await asking.describe_groups("nobody")
            nothing = DescribeTransactionsResponse(transaction_states=[])
            world.intercept(answered("DescribeTransactions", lambda request: nothing))
            with pytest.raises(ClientError, match="transactional id x"):
                await asking.describe_transactions("x")

    within(main)


def test_admin_returns_none_as_the_identifier_of_a_kafka_brokers_transaction():
    """The identifier is in a tagged field that only fencepost's answers have; here it is left out on the wire."""

    async def main(world):
        producer = await world.producer("holder")
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"a")
        described = DescribeTransactionsResponse.TransactionState(
            transactional_id="holder",
            transaction_state="Ongoing",
            transaction_timeout_ms=1,
            transaction_start_time_ms=1,
            producer_id=1,
            producer_epoch=0,
            topics=[],
        )
        listed = ListTransactionsResponse.TransactionState(
            transactional_id="holder", producer_id=1, transaction_state="Ongoing"
        )
        async with admin(world) as asking:
            assert (await asking.describe_transactions("holder"))["holder"].transaction_id
            answer = DescribeTransactionsResponse(transaction_states=[described])
            world.intercept(answered("DescribeTransactions", lambda request: answer))
            assert (await asking.describe_transactions("holder"))["holder"].transaction_id is None
            world.intercept(
                answered("ListTransactions", lambda request: ListTransactionsResponse(transaction_states=[listed]))
            )
            assert [each.transaction_id for each in await asking.list_transactions()] == [None]

    within(main)


def test_every_admin_method_accepts_a_tuple_as_a_partition():
    async def main(world):
        await write(world, b"a", b"b")
        producer = await world.producer()
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"c")
        async with admin(world) as asking:
            assert list(await asking.describe_producers([PLAIN])) == [T0]
            assert await asking.delete_records({PLAIN: 1}) == {T0: 1}
            assert await asking.ends([PLAIN], LATEST) == {T0: 3}
            assert [batch.base_offset async for batch in asking.read_batches(PLAIN, 1, 3)] == [1, 2]
            await asking.alter_group_offsets("g", {PLAIN: 1})
            assert await asking.list_group_offsets("g", [PLAIN]) == {T0: OffsetAndMetadata(1)}
            await asking.delete_group_offsets("g", [PLAIN])
            assert [found.open.topic_partition for found in await asking.find_blockers([PLAIN])] == [T0]
            assert await asking.find_hanging_transactions([PLAIN]) == []
            assert (await asking.abort_transaction(PLAIN, 2)).topic_partition == T0
            assert await asking.open_transactions([PLAIN]) == []
        await producer.abort_transaction()

    within(main)


@pytest.mark.parametrize(("offset", "error"), [(-1, ValueError), ("x", TypeError), (None, TypeError)])
def test_an_invalid_offset_does_not_replace_a_groups_committed_offset(offset, error):
    async def main(world):
        await make(world)
        async with admin(world) as asking:
            await asking.alter_group_offsets("g", {T0: 5})
            with pytest.raises(error):
                await asking.alter_group_offsets("g", {T0: offset})
            assert await asking.list_group_offsets("g") == {T0: OffsetAndMetadata(5)}

    within(main)
