"""Reads __transaction_state, if this login may, so that every step of a transaction is seen when it happens.

The rule: it reads only new records, and only while somebody looks at a page. If the topic may not be read, or does not
exist, events are derived from the lists of transactions, and reading is tried again after RETRY_MS.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ...client.admin.admin import Admin
from ...client.consumer.consumer import Consumer
from ...client.errors import KafkaError
from ...client.values import Record
from ...effects.clock import Clock

log = logging.getLogger(__name__)

TOPIC = "__transaction_state"
RETRY_MS = 5_000
WAIT_MS = 500
MAX_RECORDS = 500


class Tail:
    """Reads __transaction_state from its end on, while `is_wanted` is true. new_consumer: makes a Consumer without a
    group; None: the topic is never read. on_record: called with each record. `follows`: whether it is being read now.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[Admin]],
        new_consumer: Callable[[], Consumer] | None,
        on_record: Callable[[Record], None],
        is_wanted: Callable[[], bool],
        clock: Clock,
    ) -> None:
        self._connect = connect
        self._new_consumer = new_consumer
        self._on_record = on_record
        self._is_wanted = is_wanted
        self._clock = clock
        self._task: asyncio.Task[None] | None = None
        self._due_ms = 0
        self.follows = False

    def look(self) -> None:
        """Start reading the topic, unless it is being read already or reading failed a short time ago. The reading
        ends when no page needs it any more.
        """
        if self._new_consumer is None or self._clock.monotonic_ms() < self._due_ms:
            return
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(self._new_consumer), name="the console's tail of transactions")

    async def close(self) -> None:
        """Stop reading the topic."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, new_consumer: Callable[[], Consumer]) -> None:
        """Read new records of all partitions and pass each to on_record, until no page needs them or the broker
        refuses.
        """
        try:
            topic = (await (await self._connect()).describe_topics([TOPIC]))[TOPIC]
            async with new_consumer() as consumer:
                consumer.assign(topic.topic_partitions)
                await consumer.seek_to_end(*topic.topic_partitions)
                for each in topic.topic_partitions:  # then the ends are known, and each later record will be read
                    await consumer.position(each)
                self.follows = True
                while self._is_wanted():
                    for records in (await consumer.getmany(timeout_ms=WAIT_MS, max_records=MAX_RECORDS)).values():
                        for record in records:
                            self._on_record(record)
        except KafkaError as error:
            log.debug("%s cannot be read: %s", TOPIC, error)
        except Exception:
            log.exception("a bug: %s could not be followed", TOPIC)
        finally:
            self.follows = False
            self._due_ms = self._clock.monotonic_ms() + RETRY_MS
