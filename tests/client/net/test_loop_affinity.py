"""A client belongs to the loop it was started in; in another it says so at once, and closes without a word."""

import asyncio
import gc
import multiprocessing
import warnings

import pytest
from fencepost.client.admin.admin import Admin
from fencepost.client.consumer.consumer import Consumer
from fencepost.client.errors import ForkedError, IllegalStateError
from fencepost.client.producer.producer import Producer
from fencepost.testing.served import ObservedBroker

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def servers():
    with ObservedBroker() as broker:
        yield broker.bootstrap_servers


def _in_a_second_loop(make, begin, use):
    """Assert that a client that was started in one loop refuses `use` in another loop, and can be closed there."""

    async def first(client):
        await client.start()
        await begin(client)

    async def second(client):
        with pytest.raises(IllegalStateError, match="another event loop") as refused:
            await asyncio.wait_for(use(client), 5)
        assert refused.value.hint
        await asyncio.wait_for(client.close(), 5)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # of the sockets that the first loop left open
        client = make()
        asyncio.run(first(client))
        asyncio.run(second(client))
        del client
        gc.collect()


def _write(producer):
    return producer.send_and_wait("t", b"v")


def _read(consumer):
    return consumer.getmany(timeout_ms=500)


@pytest.mark.parametrize("use", [_write, Producer.flush, lambda producer: producer.partitions_for("t")])
def test_a_producer_used_in_another_event_loop_raises(servers, use):
    _in_a_second_loop(lambda: Producer(servers), _write, use)


def test_a_transactional_producer_in_another_loop_refuses_a_transaction(servers):
    make = lambda: Producer(servers, transactional_id="x")  # noqa: E731
    _in_a_second_loop(make, Producer.init_transactions, Producer.begin_transaction)


@pytest.mark.parametrize("transactional_id", [None, "x"])
def test_starting_a_producer_in_another_loop_raises_and_it_stays_usable(servers, transactional_id):
    async def elsewhere(producer):
        with pytest.raises(IllegalStateError, match="another event loop"):
            await producer.start()

    async def main():
        async with Producer(servers, transactional_id=transactional_id) as producer:
            await asyncio.to_thread(asyncio.run, elsewhere(producer))
            if transactional_id is None:
                await producer.send_and_wait("t", b"v")
            else:
                async with producer.transaction() as transaction:
                    await transaction.send_and_wait("t", b"v")

    asyncio.run(main())


@pytest.mark.parametrize("use", [Consumer.getone, _read, lambda consumer: consumer.end_offsets([("t", 0)])])
@pytest.mark.parametrize("group", [None, "g"])
def test_a_consumer_used_in_another_event_loop_raises(servers, group, use):
    make = lambda: Consumer(servers, topics=["t"], group_id=group, auto_offset_reset="earliest")  # noqa: E731
    _in_a_second_loop(make, _read, use)


def test_an_admin_used_in_another_event_loop_raises(servers):
    _in_a_second_loop(lambda: Admin(servers), Admin.list_topics, Admin.list_topics)


def _in_the_child(client, use, reported):
    async def main():
        try:
            await asyncio.wait_for(use(client), 10)
        except Exception as error:
            reported.put(type(error))
        await asyncio.wait_for(client.close(), 5)
        reported.put("closed")

    asyncio.run(main())


@pytest.mark.parametrize(
    ("make", "use"), [(Producer, _write), (Consumer, lambda consumer: consumer.end_offsets([("t", 0)]))]
)
def test_a_client_raises_forked_error_in_a_forked_child_and_works_on_in_the_parent(servers, make, use):
    async def main():
        context = multiprocessing.get_context("fork")
        async with make(servers) as client:
            await use(client)
            reported = context.Queue()
            child = context.Process(target=_in_the_child, args=(client, use, reported))
            child.start()
            assert await asyncio.to_thread(reported.get, timeout=30) is ForkedError
            assert await asyncio.to_thread(reported.get, timeout=30) == "closed"
            await asyncio.to_thread(child.join)
            await use(client)

    asyncio.run(main())
