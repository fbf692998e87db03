"""The conditions for sending a batch: a producer identity, and permission to write to the partition now.

If a condition is not met, the call starts the missing work, which wakes the sender when it is done. `PlainPermission`
is for a producer without transactions: if it is idempotent, it needs a producer id (KIP-98).
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.produce import ProducerName
from ...protocol.messages.transactions import InitProducerIdRequest, InitProducerIdResponse
from ..errors import is_retriable
from ..net.cluster import Cluster
from ..net.connection import broken
from ..settings import ProducerSettings
from ..values import ProducerIdentity, TopicPartition


class SendPermission(Protocol):
    """What the sender asks before it sends a batch: whose identity to use, and whether it may write now."""

    @property
    def transactional_id(self) -> str | None:
        """The transactional id; None without transactions."""
        ...

    @property
    def producer(self) -> ProducerName | None:
        """The producer's name and epoch; None if it has no name."""
        ...

    def identity(self) -> ProducerIdentity | None:
        """Return the producer id and epoch for new batches; None while they are fetched, which the first call starts,
        and always without idempotence. A new transactional identity restarts all sequences at 0, so it may change
        only while nothing is in flight (`Sender.settle`)."""
        ...

    def may_send(self, topic_partition: TopicPartition) -> bool:
        """Return whether the partition may be written to now. With transactions: whether it is in the open one."""
        ...

    def produce_cap(self) -> int | None:
        """Return the highest usable version of Produce: 11 in transactions of version 1 (before KIP-890); None: any."""
        ...

    def sent(self, topic_partition: TopicPartition) -> None:
        """Note that a batch is being sent to this partition. The sender calls it."""
        ...

    def refusal(self) -> KafkaError | None:
        """Return the broker's last error for InitProducerId or for adding a partition; None if there was none."""
        ...

    def failed(self, topic_partition: TopicPartition, error: KafkaError) -> None:
        """Note that a batch has failed and is not sent again, whether or not a caller awaits its records."""
        ...


class PlainPermission(SendPermission):
    """The permission of a producer without transactions.

    go_on: called with the task that fetches a producer id, when it has ended. on_fatal: called with the error if no
    producer id can be had.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: ProducerSettings,
        *,
        go_on: "Callable[[asyncio.Task[None]], None]",
        on_fatal: Callable[[KafkaError], None],
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._go_on = go_on
        self._on_fatal = on_fatal
        self._identity: ProducerIdentity | None = None
        self._fetching: asyncio.Task[None] | None = None
        self._refusal: KafkaError | None = None

    @property
    def transactional_id(self) -> str | None:
        return None

    @property
    def producer(self) -> ProducerName | None:
        return None

    def identity(self) -> ProducerIdentity | None:
        """The producer id and epoch. None until the first one is fetched, which this begins; always None without
        idempotence.
        """
        if self._identity is None and self._fetching is None and self._settings.enable_idempotence:
            self._fetching = asyncio.get_running_loop().create_task(self._fetch_identity())
            self._fetching.add_done_callback(self._fetched)
        return self._identity

    def renew(self) -> None:
        """Drop the producer id, which cannot be used any more; the next `identity` call fetches another."""
        self._identity = None

    def may_send(self, topic_partition: TopicPartition) -> bool:
        return True

    def produce_cap(self) -> int | None:
        return None

    def sent(self, topic_partition: TopicPartition) -> None:
        pass

    def refusal(self) -> KafkaError | None:
        return self._refusal

    def failed(self, topic_partition: TopicPartition, error: KafkaError) -> None:
        pass

    def _note(self, error: KafkaError) -> None:
        """Remember the newest refusal of InitProducerId, for `refusal`."""
        self._refusal = error.with_traceback(None)  # which would keep frames alive

    async def _fetch_identity(self) -> None:
        """Send InitProducerId until it returns a producer id, for at most delivery_timeout_ms. The batches that wait
        for it have their own deadlines.
        """
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
        timeout_ms = self._settings.delivery_timeout_ms
        try:
            response: InitProducerIdResponse = await self._cluster.ask_until(
                "any", request, verdict=_code_of_answer, timeout_ms=timeout_ms, note=self._note
            )
            self._refusal = None
            self._identity = ProducerIdentity(response.producer_id, response.producer_epoch)
        except KafkaError as error:
            if not is_retriable(error):
                self._on_fatal(error)
        except Exception as error:  # nobody awaits this
            self._on_fatal(broken("getting a producer id failed", error))

    def _fetched(self, task: "asyncio.Task[None]") -> None:
        self._fetching = None
        self._go_on(task)

    def close(self) -> None:
        """Stop fetching a producer id."""
        if self._fetching is not None:
            self._fetching.cancel()


def _code_of_answer(answer: InitProducerIdResponse) -> int:
    """Return the response's error code; a success without a producer id counts as UNKNOWN_SERVER_ERROR, since writes
    would not be idempotent.
    """
    return answer.error_code or (ErrorCode.UNKNOWN_SERVER_ERROR if answer.producer_id < 0 else ErrorCode.NONE)
