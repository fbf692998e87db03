"""A pool under concurrent handlers over a real broker's sockets and files, which is killed under them."""

import asyncio
import threading

import pytest
from fencepost.client import sync
from fencepost.client.errors import CommitOutcomeUnknownError, KafkaError
from fencepost.client.producer.pool import ProducerPool
from fencepost.testing.served import ObservedBroker

HANDLERS = 12
EACH = 5
TOPICS = ("orders", "mails")
QUICK = {"request_timeout_ms": 3_000, "delivery_timeout_ms": 10_000, "max_block_ms": 10_000}


@pytest.fixture
def broker(tmp_path):
    with ObservedBroker(tmp_path) as running:
        for topic in TOPICS:
            running.create_topic(topic, partitions=2)
        yield running
        running.verify()


def label(record):
    return record.value


def seen(broker, topic):
    return sorted(record.value for record in broker.records(topic))


async def handle(pool, name, known):
    """Serve one request: repeat its transaction until it is known to be committed. known: gets outcomes that were
    resolved.
    """
    while True:
        try:
            async with pool.transaction() as tx:
                for topic in TOPICS:
                    await tx.send(topic, name)
        except CommitOutcomeUnknownError as unknown:
            while (outcome := await unknown.resolve()) == "unknown":  # noqa: ASYNC110 (nothing says when the broker is back)
                await asyncio.sleep(0.05)
            known.append(outcome)
            if outcome == "committed":
                return
        except KafkaError:
            await asyncio.sleep(0.05)
        else:
            return


async def requests(pool, number, known, done=lambda: None):
    for each in range(EACH):
        await handle(pool, b"%d-%d" % (number, each), known)
        done()


ALL = sorted(b"%d-%d" % (number, each) for number in range(HANDLERS) for each in range(EACH))


@pytest.mark.slow
def test_concurrent_handlers_each_commit_their_transaction_exactly_once(broker):
    async def main():
        async with ProducerPool(broker.bootstrap_servers, prefix="api", size=4, **QUICK) as pool:
            await asyncio.gather(*(requests(pool, number, []) for number in range(HANDLERS)))

    asyncio.run(main())
    for topic in TOPICS:
        assert seen(broker, topic) == ALL
    broker.assert_atomic(TOPICS, txn=label)


@pytest.mark.slow
def test_handlers_commit_exactly_once_although_the_broker_is_killed(broker):
    async def main():
        known, done = [], asyncio.Semaphore(0)
        loop = asyncio.get_running_loop()
        async with ProducerPool(broker.bootstrap_servers, prefix="api", size=4, **QUICK) as pool:
            working = [asyncio.create_task(requests(pool, n, known, done.release)) for n in range(HANDLERS)]
            for _ in range(2):
                for _ in range(len(ALL) // 3):  # once when a third is done, and once when two thirds are
                    await done.acquire()
                await loop.run_in_executor(None, broker.kill)
                await loop.run_in_executor(None, broker.restart)
            await asyncio.gather(*working)
            assert pool._slots.taken == 0

    asyncio.run(main())
    for topic in TOPICS:
        assert seen(broker, topic) == ALL
    broker.assert_atomic(TOPICS, txn=label)


def fail(pool, error):
    with pool.transaction() as tx:
        tx.send("orders", b"to be aborted")
        raise error


@pytest.mark.slow
def test_several_threads_can_use_one_blocking_pool(broker):
    def work(number):
        for each in range(EACH):
            with pool.transaction() as tx:
                for topic in TOPICS:
                    tx.send(topic, b"%d-%d" % (number, each))
            assert tx.outcome == "committed"

    with sync.ProducerPool(broker.bootstrap_servers, prefix="wsgi", size=3, **QUICK) as pool:
        threads = [threading.Thread(target=work, args=[number]) for number in range(HANDLERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert pool.run_in_transaction(lambda tx: tx.send_and_wait("other", b"x").offset) == 0
        for error in (ZeroDivisionError, KeyboardInterrupt):
            with pytest.raises(error):
                fail(pool, error)
        assert repr(pool) == "<blocking <ProducerPool 'wsgi' 0 of 3 taken open>>"
    for topic in TOPICS:
        assert seen(broker, topic) == ALL
