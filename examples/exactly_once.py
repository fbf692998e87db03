"""Reads orders and writes an invoice for each: once, however often this process or the broker is killed.

    python exactly_once.py [HOST:PORT] [NAME]

NAME must be another one for each process that runs at the same time, and the same one after a restart.
"""

import asyncio
import sys

import fencepost as fp


async def bill(bootstrap: str, name: str) -> None:
    """Read orders in batches, and write an invoice for each in a transaction with the batch's offsets. name: of this
    worker.
    """
    producer = fp.Producer(bootstrap, transactional_id=f"billing-{name}")
    consumer = fp.Consumer(
        bootstrap,
        topics=["orders"],
        group_id="billing",
        group_instance_id=name,  # a restart goes on at once, and does not wait for the session of its predecessor
        auto_offset_reset="earliest",
    )
    async with producer, consumer:
        async for batch in consumer.batches(max_records=500):
            try:
                async with producer.transaction(batch) as tx:
                    for order in batch:
                        await tx.send("invoices", b"invoice for order " + order.value, key=order.key)
            except fp.AbortableTransactionError as error:
                print(f"rolled back, and read again: {error}", file=sys.stderr)


if __name__ == "__main__":
    bootstrap, name = [*sys.argv[1:], *["127.0.0.1:9092", "1"][len(sys.argv) - 1 :]][:2]
    try:
        asyncio.run(bill(bootstrap, name))
    except fp.ProducerFencedError as error:
        sys.exit(f"another process has this name: {error}")
    except KeyboardInterrupt:
        pass
