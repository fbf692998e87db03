"""The producer of one of many tasks: its transaction is prepared here, and ended by one decision for all tasks.

The rules: it writes one transaction only, over a cluster that it shares. After `prepare`, only the decision ends the
transaction (docs/apis.md). It takes whole columns, because a call for each record would cost more than the record.
Without a transactional id it is a plain producer, whose `finish` raises the error of a failed batch.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from ...protocol.errors import ErrorCode
from ...protocol.messages.ledger import PrepareTxnRequest, PrepareTxnResponse
from ..net.cluster import Cluster
from ..settings import ProducerSettings
from ..values import Headers
from .batching import Batch, Topic
from .producer import Producer

Bytes = Sequence[bytes | None]


class TaskProducer(Producer):
    """The producer of one task. Call `begin`, `send_columns`, then `prepare` (or `abort_transaction`, or `finish`
    without transactions), and `close`.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: ProducerSettings,
        *,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60_000,
    ) -> None:
        if transactional_id is not None:
            settings = replace(
                settings, transactional_id=transactional_id, transaction_timeout_ms=transaction_timeout_ms
            )
        self._set_up(settings, cluster.environment, cluster)
        self._batches: list[Batch] = []  # of a plain producer, for `finish`

    async def begin(self) -> None:
        """Start the producer and, with a transactional id, begin its transaction. Raises the errors of both."""
        await self.start()
        if self._driver is not None:
            await self._driver.begin()

    async def send_columns(
        self,
        topic: str,
        values: Bytes,
        keys: Bytes | None = None,
        partitions: Sequence[int | None] | None = None,
        headers: Sequence[Headers | None] | None = None,
    ) -> None:
        """Take one record for each of `values`, with the other columns' items at the same index. Waits only while the
        buffer is full. Raises like Producer.send.
        """
        self._check_open()
        found = await self._topic(topic)
        now_ms = self._now_ms()
        if partitions is None and headers is None and self._placing is None:
            if keys is None:
                await self._send_values(found, values, now_ms)
            else:
                await self._send_pairs(found, values, keys, now_ms)
            return
        for index, value in enumerate(values):
            key = None if keys is None else keys[index]
            partition = None if partitions is None else partitions[index]
            if partition is not None or self._placing is not None:
                partition = self._partition(found, partition, key)
            await self._take(found, partition, key, value, None if headers is None else headers[index], now_ms)

    async def _send_values(self, topic: Topic, values: Bytes, now_ms: int) -> None:
        """Append values without keys, as many at once as fit into a batch."""
        at = 0
        while at < len(values):
            taken = self._accumulator.extend(topic, values, at, now_ms)
            if taken is None:
                await self._after_append(None, topic, None, None, values[at], None, now_ms)
                at += 1
                continue
            batch, index, count = taken
            at += count
            await self._after_append((batch, index), topic, None, None, None, None, now_ms)

    async def _send_pairs(self, topic: Topic, values: Bytes, keys: Bytes, now_ms: int) -> None:
        """Append records with a key and a value each, one after the other."""
        append = self._accumulator.append
        is_plain = self._driver is None
        for key, value in zip(keys, values, strict=True):
            placed = append(topic, None, key, value, None, now_ms)
            if placed is None or self._accumulator.filled or (is_plain and not placed[1]):  # index 0: a new batch
                await self._after_append(placed, topic, None, key, value, None, now_ms)

    async def _take(
        self,
        topic: Topic,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Headers | None,
        now_ms: int,
    ) -> None:
        """Append one record with all its columns, waiting while the buffer is full."""
        placed = self._accumulator.append(topic, partition, key, value, headers, now_ms)
        await self._after_append(placed, topic, partition, key, value, headers, now_ms)

    async def _after_append(
        self,
        placed: tuple[Batch, int] | None,
        topic: Topic,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Headers | None,
        now_ms: int,
    ) -> None:
        """Do the rest after an attempt to append a record: wait and append it if it found no memory (placed None),
        note a new batch for `finish`, and let the sender run when a batch is full.
        """
        if placed is None:
            placed = await self._append_when_room(topic, partition, key, value, headers, now_ms)
        batch, index = placed
        if self._driver is None and index == 0:
            batch.is_awaited = True  # by finish
            self._batches.append(batch)
        if self._accumulator.filled:  # let the loop write requests and read responses
            self._accumulator.filled = False
            self._sender.wake()
            await asyncio.sleep(0)

    async def finish(self) -> None:
        """Without transactions: wait until all records are acknowledged. Raises the error of a failed batch."""
        await self.flush()
        for batch in self._batches:
            if batch.error is not None:
                raise batch.error
        self._batches.clear()

    async def prepare(self, ledger_key: str, number: int, timeout_ms: int) -> bool:
        """Wait until every record is acknowledged, then send PrepareTxn. Returns True if the transaction is prepared;
        False if the broker's ledger has decided about `number` already: then the broker has aborted it.

        ledger_key, number: the decision that will end the transaction. timeout_ms: how long the transaction may wait
        for it; -1: without limit. Raises the error of a failed transaction.
        """
        driver = self._transacting()
        identity = driver.machine.identity
        request = PrepareTxnRequest(
            transactional_id=driver.transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            ledger_key=ledger_key,
            number=number,
            prepared_timeout_ms=timeout_ms,
        )
        waits = True

        async def ask() -> dict[str, int]:
            """Send PrepareTxn once. Returns its error code by the request's name; {} after LEDGER_CONFLICT, which sets
            waits to False.
            """
            nonlocal waits
            answer: PrepareTxnResponse = await self._cluster.ask(
                ("transaction", driver.transactional_id), request, timeout_ms=self.settings.request_timeout_ms
            )
            if answer.error_code == ErrorCode.LEDGER_CONFLICT:
                waits = False
                return {}
            return {"PrepareTxn": answer.error_code}

        await driver.prepare(ask)
        return waits
