"""The copier of group_copier.py with our own SDK, as its documentation has it: a transaction a batch, nothing by hand.

    python sdk_copier.py BOOTSTRAP SOURCE TARGET GROUP NAME PER_TRANSACTION ABORTED [TRANSACTION_VERSION]

Says a line for every commit, goes on until it is killed, and ends with what its library raises.
"""

import asyncio
import os
import random
import sys

from fencepost.client.net.connection import Connection

import fencepost as fp

SESSION_MS = int(os.environ.get("SESSION_MS", "2000"))
PAUSE_S = 0.1  # in each transaction: who is killed then is inside of one, and nobody is done before the last kill
SETTINGS = {"request_timeout_ms": 3000, "retry_backoff_max_ms": 200}


class Again(Exception):
    """Raised by the application so that its batch is aborted and read again."""


async def copy(bootstrap: str, source: str, target: str, group: str, name: str, at_most: int, aborted: float) -> None:
    async with (
        fp.Producer(bootstrap, transactional_id=name, **SETTINGS) as producer,
        fp.Consumer(
            bootstrap,
            topics=[source],
            group_id=group,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=400,
            **SETTINGS,
        ) as consumer,
    ):
        print("begun", flush=True)
        async for batch in consumer.batches(max_records=at_most):
            try:
                async with producer.transaction(batch) as tx:
                    for record in batch:
                        await tx.send(target, record.value, key=record.key, partition=record.partition)
                    await asyncio.sleep(PAUSE_S)
                    if random.random() < aborted:
                        raise Again
            except (Again, fp.AbortableTransactionError):
                print("aborted 0", flush=True)
            except fp.CommitOutcomeUnknownError as error:
                outcome = await error.resolve()
                if outcome == "unknown":
                    raise
                print(outcome, len(batch) if outcome == "committed" else 0, flush=True)
            else:
                print("committed", len(batch), flush=True)


def main() -> None:
    bootstrap, source, target, group, name, at_most, aborted, *version = sys.argv[1:]
    if version == ["1"]:  # a broker that has not finalized transaction.version 2
        Connection.features = property(lambda self: {}, lambda self, value: None)  # type: ignore[method-assign,assignment]
    try:
        asyncio.run(copy(bootstrap, source, target, group, name, int(at_most), float(aborted)))
    except fp.KafkaError as error:
        print("failed", type(error).__name__, error, flush=True)
        os._exit(1)


if __name__ == "__main__":
    main()
