"""An application that copies every record exactly once, and chooses at random between all ways that the SDK offers for
it.

It reads batches, several records, or one; it passes its transaction the consumer, batches, or numbers; it commits,
fails, or gets no answer, and tries again or reads on; sometimes it writes without a transaction, and its consumer
commits.
"""

import random
from typing import Any

from fencepost.client.errors import (
    AlreadyCommittedError,
    CommitOutcomeUnknownError,
    IllegalStateError,
    ProducerFencedError,
    RequestTimedOutError,
)
from fencepost.client.producer.producer import Producer
from fencepost.client.transactions.table import State
from fencepost.client.values import Record, TopicPartition
from reading import reader
from txn_world import BOOTSTRAP, TxnWorld

OUT = "out"


class Failure(Exception):
    """Raised by the application to have its transaction aborted."""


class MixedWork:
    """pending: records that it was given and that are not in `OUT` yet. batches: these, None if not all came in one."""

    def __init__(self, world: TxnWorld, rng: random.Random) -> None:
        self._world, self._rng = world, rng
        self._log: list[Any] = []
        self._pending: list[Record] = []
        self._batches: list[Any] | None = []
        self._consumer = reader(world, group_id="g", topics=["t"], fetch_max_wait_ms=50)
        self._plain = Producer(BOOTSTRAP, environment=world.world.environment)
        self._passed = False
        self._producer: Producer

    async def run(self, steps: int) -> None:
        self._producer = await self._world.producer("copier")
        async with self._consumer, self._plain:
            partitions = await self._consumer.assigned()
            for _ in range(steps):
                await self._step()
            ends = await self._consumer.end_offsets(partitions)
            while self._pending or any([await self._consumer.position(tp) < end for tp, end in ends.items()]):
                await self._step()

    async def _step(self) -> None:
        chance = self._rng.random()
        if chance < 0.5:
            await self._read()
        elif not self._pending:
            return
        elif chance < 0.9:
            await self._transactions()
        elif chance < 0.97:
            await self._without_transaction()
        else:
            await self._back(self._parts())

    def _parts(self) -> set[TopicPartition]:
        return {record.topic_partition for record in self._pending}

    async def _read(self) -> None:
        most = self._rng.choice((1, 2, 5))
        how = self._rng.choice(("batch", "many", "one"))
        if how == "batch":
            async for batch in self._consumer.batches(most, timeout_ms=200):
                self._pending += batch
                if self._batches is not None:
                    self._batches.append(batch)
                return
        elif how == "many":
            for records in (await self._consumer.getmany(timeout_ms=200, max_records=most)).values():
                self._pending += records
                self._batches = None
        else:
            try:
                self._pending.append(await self._consumer.getone(timeout_ms=200))
                self._batches = None
            except RequestTimedOutError:
                pass

    def _taken(self) -> tuple[list[Record], list[Any] | None]:
        pending, batches = self._pending, self._batches
        self._pending, self._batches = [], []
        return pending, batches

    async def _without_transaction(self) -> None:
        pending, _ = self._taken()
        for record in pending:
            await self._plain.send_and_wait(OUT, _name(record))
        await self._consumer.commit(_numbers(pending) if self._rng.random() < 0.5 else None)

    async def _back(self, partitions: set[TopicPartition]) -> None:
        self._taken()
        await self._consumer.seek_to_committed(*partitions)

    # ---- transactions ----------------------------------------------------------------------------------------

    async def _transactions(self) -> None:
        """Repeat a transaction with the same records until it has committed, or return to the committed offsets, so
        that they are read again.
        """
        pending, batches = self._taken()
        source = self._rng.choice(("consumer", "numbers", *(("batches",) * 3 if batches else ())))
        while not await self._transaction(source, pending, batches or []):
            if not self._passed or source == "numbers":
                await self._consumer.seek_to_committed(*{record.topic_partition for record in pending})
                return
            if source != "batches" or self._rng.random() < 0.5:
                return

    async def _transaction(self, source: str, pending: list[Record], batches: list[Any]) -> bool:
        """Run one transaction with these records. Returns whether it has committed."""
        if self._producer._driver.state is State.UNKNOWN_OUTCOME:  # type: ignore[union-attr]
            await self._producer._driver.resolve()  # type: ignore[union-attr]
        end = self._rng.choice(("commit", "commit", "failure", "failure", "before_write", "after_write"))
        silence = self._world.faults.blackhole("EndTxn", when=end) if "write" in end else None  # type: ignore[arg-type]
        self._passed = False
        try:
            async with self._producer.transaction() as tx:
                is_first = self._rng.random() < 0.5
                if is_first:
                    await self._pass(tx, source, pending, batches)
                for record in pending:
                    await tx.send(OUT, _name(record))
                if not is_first:
                    await self._pass(tx, source, pending, batches)
                if end == "failure":
                    raise Failure
        except (Failure, IllegalStateError):
            return False
        except CommitOutcomeUnknownError as unknown:
            if silence is not None:
                self._world.faults.remove(silence)
                silence = None
            return self._rng.random() < 0.5 and await unknown.resolve() == "committed"
        except AlreadyCommittedError:
            return True
        except ProducerFencedError:  # it timed out meanwhile
            self._producer = await self._world.producer("copier")
            return False
        finally:
            if silence is not None:
                self._world.faults.remove(silence)
        return True

    async def _pass(self, tx: Any, source: str, pending: list[Record], batches: list[Any]) -> None:
        if source == "consumer":
            await tx.send_offsets_to_transaction(self._consumer)
        elif source == "numbers":
            await tx.send_offsets_to_transaction(_numbers(pending), self._consumer.group_metadata())
        else:
            for batch in batches:
                await tx.send_offsets_to_transaction(batch)
        self._passed = True


def _name(record: Record) -> bytes:
    return b"%d@%d" % (record.offset, record.partition)


def _numbers(pending: list[Record]) -> dict[TopicPartition, int]:
    return {record.topic_partition: record.offset + 1 for record in pending}
