"""Adds up payments by customer. The totals are in a compacted topic, from which a restart reads them back.

    python totals.py [HOST:PORT]

Payments are records with the customer as key and an amount as value. A total is written in the same transaction as the
offset of the payments in it: so none is counted twice, and none is left out.
"""

import asyncio
import sys
from collections import defaultdict

import fencepost as fp


async def restored(bootstrap: str) -> "defaultdict[bytes, int]":
    """Return the total of each customer, from the topic's committed records: the last record of a customer counts."""
    totals: defaultdict[bytes, int] = defaultdict(int)
    async with fp.Consumer(bootstrap, auto_offset_reset="earliest") as reader:
        place = fp.TopicPartition("totals", 0)
        reader.assign([place])
        end = (await reader.end_offsets([place]))[place]
        while await reader.position(place) < end:
            for records in (await reader.getmany(timeout_ms=1000)).values():
                for record in records:
                    totals[record.key] = int(record.value)
    return totals


async def add_up(bootstrap: str) -> None:
    """Add each batch of payments to the totals, in a transaction with the batch's offsets."""
    async with fp.Admin(bootstrap) as admin:
        try:
            await admin.create_topics([fp.NewTopic("totals", 1, configs={"cleanup.policy": "compact"})])
        except fp.KafkaError as error:
            if error.code is not fp.ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
    producer = fp.Producer(bootstrap, transactional_id="totals-1")
    consumer = fp.Consumer(bootstrap, topics=["payments"], group_id="totals", auto_offset_reset="earliest")
    async with producer:  # from here on a predecessor can commit nothing more
        totals = await restored(bootstrap)
        async with consumer:
            async for batch in consumer.batches():
                changed: defaultdict[bytes, int] = defaultdict(int)
                for payment in batch:
                    changed[payment.key] += int(payment.value)
                async with producer.transaction(batch) as tx:
                    for customer, amount in changed.items():
                        await tx.send("totals", b"%d" % (totals[customer] + amount), key=customer)
                for customer, amount in changed.items():
                    totals[customer] += amount


if __name__ == "__main__":
    try:
        asyncio.run(add_up(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"))
    except KeyboardInterrupt:
        pass
