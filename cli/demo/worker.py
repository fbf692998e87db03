"""A worker of `fencepost demo`: takes orders from a share group and writes an invoice for each, until it is killed.

The rule: an order is acknowledged in the transaction that writes its invoice. Prints a line for every transaction.
It runs by its path, so that it does not import the whole demo: eight of them begin at once.
"""

import asyncio
import random
import sys

import fencepost as fp

MAX_RECORDS = 20
"""Orders in one transaction."""
WORK_S = 0.02
"""What the work on them takes at most."""
TIMEOUT_MS = 10_000


async def main(bootstrap: str, group: str, orders: str, invoices: str, name: str) -> None:
    """Process orders until killed."""
    producer = fp.Producer(bootstrap, transactional_id=f"{group}-{name}", transaction_timeout_ms=TIMEOUT_MS)
    queue = fp.ShareConsumer(
        bootstrap, topics=[orders], group_id=group, auto_offset_reset="earliest", max_poll_records=MAX_RECORDS
    )
    async with producer, queue:
        async for taken in queue.batches(MAX_RECORDS):
            try:
                async with producer.transaction() as tx:
                    await tx.acknowledge(queue, *taken)
                    for order in taken:
                        await tx.send(invoices, b"invoice for " + order.value, partition=0)
                    await asyncio.sleep(random.random() * WORK_S)
                print("invoiced", len(taken), flush=True)
            except (fp.AbortableTransactionError, fp.RecordNotHeldError):
                print("aborted", flush=True)
            except fp.CommitOutcomeUnknownError as error:
                outcome = await error.resolve()
                print(f"invoiced {len(taken)}" if outcome == "committed" else outcome, flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
