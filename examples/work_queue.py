"""Takes orders from a queue and writes an invoice for each: once, however many workers there are and are killed.

    python work_queue.py [HOST:PORT] [NAME]

Any number of workers share one partition. NAME must be another one for each that runs at the same time; after a restart
with the same one the transaction of the killed worker ends at once, with another one when it times out.
"""

import asyncio
import sys

import fencepost as fp

MAX_RECORDS = 20
"""Orders in one transaction, and about as many as a killed worker keeps from the others for a moment."""


async def bill(bootstrap: str, name: str) -> None:
    """Take orders from the share group, and write an invoice for each in the transaction that acknowledges it. name:
    of this worker.
    """
    producer = fp.Producer(bootstrap, transactional_id=f"billing-{name}", transaction_timeout_ms=10_000)
    queue = fp.ShareConsumer(
        bootstrap, topics=["orders"], group_id="billing", auto_offset_reset="earliest", max_poll_records=MAX_RECORDS
    )
    async with producer, queue:
        async for orders in queue.batches(MAX_RECORDS):
            try:
                async with producer.transaction() as tx:
                    await tx.acknowledge(queue, *orders)  # first, so that every failure after it gives them back
                    for order in orders:
                        await tx.send("invoices", b"invoice for order " + order.value, key=order.key)
            except (fp.AbortableTransactionError, fp.RecordNotHeldError) as error:
                print(f"rolled back, and delivered again: {error}", file=sys.stderr)


if __name__ == "__main__":
    bootstrap, name = [*sys.argv[1:], *["127.0.0.1:9092", "1"][len(sys.argv) - 1 :]][:2]
    try:
        asyncio.run(bill(bootstrap, name))
    except fp.ProducerFencedError as error:
        sys.exit(f"another process has this name: {error}")
    except KeyboardInterrupt:
        pass
