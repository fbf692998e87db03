"""A worker of a share group whose open transaction has acknowledged as many records as a window has."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from fencepost.client.share import taken

import fencepost as fp

MAX_S = 240  # for what is looked at meanwhile
LIMIT = 100  # group.share.partition.max.record.locks of the broker; as many acknowledgements are sent before the commit


@contextmanager
def pending(bootstrap: str, transactional_id: str, topic: str, group: str) -> Iterator[None]:
    """Acknowledge as many records as a share window has in one transaction, which stays open during the block and is
    committed at its end. The topic has one partition.
    """
    done, has = threading.Event(), threading.Event()
    failures: list[Exception] = []

    async def work() -> None:
        timeout_ms = 2 * MAX_S * 1000
        producer = fp.Producer(bootstrap, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
        queue = fp.ShareConsumer(bootstrap, topics=[topic], group_id=group, auto_offset_reset="earliest")
        with patch.object(taken, "MANY", LIMIT - 1):
            await acknowledge(producer, queue)

    async def acknowledge(producer: fp.Producer, queue: fp.ShareConsumer) -> None:
        async with producer, queue, producer.transaction() as tx:
            left = LIMIT
            while left:
                records = await queue.getmany(timeout_ms=5_000, max_records=left)
                await tx.acknowledge(queue, *records)
                left -= len(records)
            has.set()
            await asyncio.to_thread(done.wait, MAX_S)

    def run() -> None:
        try:
            asyncio.run(work())
        except Exception as error:
            failures.append(error)
            has.set()

    thread = threading.Thread(target=run)
    thread.start()
    assert has.wait(30)
    try:
        assert not failures
        yield
    finally:
        done.set()
        thread.join()
    assert not failures
