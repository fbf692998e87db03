"""An error of the SDK says what the broker said: its code and its words, also where the time ran out over retries."""

import asyncio

import pytest
from fencepost.client.admin.admin import Admin
from fencepost.client.consumer.consumer import Consumer
from fencepost.client.errors import (
    AbortableTransactionError,
    BufferFullError,
    CommitOutcomeUnknownError,
    DeliveryTimeoutError,
    KafkaError,
    RequestTimedOutError,
    UnknownTopicError,
)
from fencepost.client.net.words import words_of
from fencepost.client.producer.producer import Producer
from fencepost.client.values import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.topics import CreateTopicsResponse
from txn_world import BOOTSTRAP, within, write

SOON = {"delivery_timeout_ms": 5_000, "request_timeout_ms": 1_000, "max_block_ms": 5_000}
FULL = "NOT_ENOUGH_REPLICAS: the disk is nearly full"
both = pytest.mark.parametrize("version", [1, 2])


def plain(world, **keywords):
    return Producer(BOOTSTRAP, environment=world.world.environment, **{**SOON, **keywords})


def fill_disk(world):
    """Let the disk have less free space than storage.min.free.bytes from now on."""
    store = world.broker.store
    store.look_at_free_space = lambda: None
    store.space_low = True


def test_a_delivery_timeout_names_the_brokers_last_error_for_the_record(caplog):
    async def main(world):
        async with plain(world) as producer:
            await producer.send_and_wait("t", b"v")
            fill_disk(world)
            with pytest.raises(DeliveryTimeoutError, match=FULL) as late:
                await producer.send_and_wait("t", b"v")
            assert late.value.__cause__.code is ErrorCode.NOT_ENOUGH_REPLICAS
            await producer.send("t", b"nobody awaits this")
            await producer.flush()

    within(main)
    assert f"they were not written; {FULL}" in caplog.text


def test_on_a_full_disk_errors_of_a_starting_producer_hint_at_the_disk():
    async def main(world):
        async with plain(world, enable_idempotence=False) as producer:
            await producer.send_and_wait("t", b"v")
        fill_disk(world)
        world.broker.store.space_exhausted = True
        async with plain(world) as producer:
            with pytest.raises(UnknownTopicError, match="LEADER_NOT_AVAILABLE"):
                await producer.send("new", b"v")
            with pytest.raises(DeliveryTimeoutError) as late:
                await producer.send_and_wait("t", b"v")
        assert "COORDINATOR_LOAD_IN_PROGRESS" in str(late.value)
        assert "nearly full: fencepost doctor" in late.value.hint
        transactional = Producer(BOOTSTRAP, environment=world.world.environment, transactional_id="x", **SOON)
        with pytest.raises(RequestTimedOutError) as late:
            await transactional.start()
        assert "nearly full" in late.value.hint

    within(main)


def test_a_full_buffer_error_names_the_cause_of_unwritten_records():
    async def main(world):
        async with plain(world, buffer_memory=1_000, max_request_size=1_000, max_block_ms=2_000) as producer:
            await producer.send_and_wait("t", b"v")
            fill_disk(world)
            await producer.send("t", bytes(900))
            with pytest.raises(BufferFullError, match=FULL):
                await producer.send("t", bytes(900))

    within(main)


@both
def test_a_transaction_whose_records_are_refused_raises_the_brokers_reason(version):
    async def main(world):
        producer = await world.producer()
        await write(producer, b"a")
        fill_disk(world)
        with pytest.raises(KafkaError, match=FULL):
            await write(producer, b"b")

    within(main, version)


def test_records_that_wait_for_a_producer_id_fail_with_the_brokers_reason():
    async def main(world):
        world.faults.error("InitProducerId", "COORDINATOR_LOAD_IN_PROGRESS").every_time()
        async with plain(world) as producer:
            with pytest.raises(DeliveryTimeoutError, match=r"never sent.*COORDINATOR_LOAD_IN_PROGRESS"):
                await producer.send_and_wait("t", b"v")

    within(main)


def test_a_timeout_of_records_names_why_their_partition_was_not_added():
    async def main(world):
        producer = await world.producer()
        world.faults.error("AddPartitionsToTxn", "COORDINATOR_LOAD_IN_PROGRESS").every_time()
        with pytest.raises(KafkaError, match="AddPartitionsToTxn: COORDINATOR_LOAD_IN_PROGRESS"):
            await write(producer, b"v")

    within(main, 1)


@both
def test_a_commit_with_an_unknown_outcome_names_the_last_error_of_end_txn(version):
    async def main(world):
        producer = await world.producer()
        world.faults.error("EndTxn", "COORDINATOR_NOT_AVAILABLE", when="after_write").every_time()
        with pytest.raises(CommitOutcomeUnknownError, match="EndTxn: COORDINATOR_NOT_AVAILABLE"):
            await write(producer, b"v")
        world.faults.clear()

    within(main, version)


def test_a_timeout_of_transactional_offsets_names_why_no_coordinator_is_found():
    async def main(world):
        producer = await world.producer()
        world.faults.error("FindCoordinator", "COORDINATOR_NOT_AVAILABLE").every_time()
        with pytest.raises(AbortableTransactionError, match="COORDINATOR_NOT_AVAILABLE"):
            async with producer.transaction() as tx:
                await tx.send_offsets_to_transaction(
                    {TopicPartition("t", 0): OffsetAndMetadata(1)}, ConsumerGroupMetadata("g")
                )

    within(main)


MISSING = {TopicPartition("t", 0): 1, TopicPartition("t", 7): 1}


@both
def test_the_timeout_of_transactional_offsets_names_a_partition_that_does_not_exist(version):
    async def main(world):
        producer = await world.producer()
        await write(producer, b"v")
        with pytest.raises(AbortableTransactionError, match=r"within 5000 ms: .*\bt-7: UNKNOWN_TOPIC_OR_PART") as late:
            async with producer.transaction() as tx:
                await tx.send_offsets_to_transaction(MISSING, ConsumerGroupMetadata("g"))
        assert "t-0" not in str(late.value)

    within(main, version)


def test_the_timeout_of_a_commit_names_a_partition_that_does_not_exist():
    async def main(world):
        async with plain(world) as producer:
            await producer.send_and_wait("t", b"v")
        given = {"group_id": "g", "enable_auto_commit": False, "default_api_timeout_ms": 5_000}
        async with Consumer(BOOTSTRAP, environment=world.world.environment, **given) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            with pytest.raises(RequestTimedOutError, match=r"within 5000 ms: .*\bt-7\b.*no such topic or part") as late:
                await consumer.commit(MISSING)
            assert "t-0" not in str(late.value)

    within(main)


def test_unknown_topic_error_gives_the_brokers_reason_for_not_creating_it():
    async def main(world):
        fill_disk(world)
        async with plain(world) as producer:
            with pytest.raises(UnknownTopicError, match=r"there is no topic 'new'.*LEADER_NOT_AVAILABLE") as missed:
                await producer.send("new", b"v")
            assert missed.value.code is missed.value.__cause__.code is ErrorCode.LEADER_NOT_AVAILABLE
            assert "fencepost topic create new" in missed.value.hint

    within(main)


def test_with_auto_creation_off_a_missing_topics_error_names_topic_and_time_limit():
    async def main(world):
        async with plain(world, allow_auto_create_topics=False) as producer:
            with pytest.raises(UnknownTopicError, match=r"there is no topic 'new', .* within 5000 ms$") as missed:
                await producer.send("new", b"v")
            assert missed.value.hint == "create the topic first"

    within(main)


def admin(world):
    return Admin(BOOTSTRAP, environment=world.world.environment, default_api_timeout_ms=3_000)


def test_the_timeout_of_create_topics_on_a_full_disk_has_the_brokers_error_text():
    async def main(world):
        fill_disk(world)
        async with admin(world) as client:
            with pytest.raises(RequestTimedOutError, match="the disk is nearly full") as late:
                await client.create_topics("new")
            assert late.value.code is ErrorCode.KAFKA_STORAGE_ERROR

    within(main)


@pytest.mark.parametrize("api", ["FindCoordinator", "OffsetFetch"])
def test_the_timeout_of_an_admin_call_names_the_last_error_code(api):
    async def main(world):
        world.faults.error(api, "COORDINATOR_LOAD_IN_PROGRESS").every_time()
        async with admin(world) as client:
            with pytest.raises(RequestTimedOutError, match="COORDINATOR_LOAD_IN_PROGRESS"):
                await client.list_group_offsets("g")

    within(main)


def test_the_timeout_of_an_admin_call_to_leaders_names_the_last_error_code():
    async def main(world):
        async with plain(world) as producer:
            await producer.send_and_wait("t", b"v")
        world.faults.error("DeleteRecords", "KAFKA_STORAGE_ERROR").every_time()
        async with admin(world) as client:
            with pytest.raises(RequestTimedOutError, match="t-0: KAFKA_STORAGE_ERROR"):
                await asyncio.wait_for(client.delete_records({TopicPartition("t", 0): 1}), 30)

    within(main)


def test_words_of_returns_the_brokers_text_for_an_error_code_or_an_empty_string():
    response = CreateTopicsResponse(
        topics=[
            CreateTopicsResponse.Topic(name="a", error_code=36, error_message="there it is"),
            CreateTopicsResponse.Topic(name="b", error_code=56, error_message="no space"),
        ]
    )
    assert words_of(response, 56) == "no space"
    assert words_of(response, 3) == ""
