"""What a sender asks before it sends: under which identity, and whether a partition may be written to now.

An answer "not yet" means that what is missing was begun, and that the sender is woken once it is there.
`PlainPermission` is that of a producer without transactions: it needs a producer id, if it is idempotent (KIP-98).
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.transactions import InitProducerIdRequest, InitProducerIdResponse
from ..errors import is_retriable
from ..net.cluster import Cluster
from ..net.connection import broken
from ..settings import ProducerSettings
from ..values import ProducerIdentity, TopicPartition


class SendPermission(Protocol):
    """transactional_id: None without transactions."""

    @property
    def transactional_id(self) -> str | None: ...

    def identity(self) -> ProducerIdentity | None:
        """Of new batches; None: not now. A transactional one that differs from the last lets all sequences begin at 0,
        so it may change only when nothing is in flight (`Sender.settle`)."""
        ...

    def may_send(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition may be written to: in a transaction, whether it is part of it."""
        ...

    def produce_cap(self) -> int | None:
        """The highest version of Produce to be used: 11 in transactions of version 1 (KIP-890)."""
        ...

    def sent(self, topic_partition: TopicPartition) -> None:
        """A batch is being sent there, so something may be written from now on."""
        ...

    def failed(self, topic_partition: TopicPartition, error: KafkaError) -> None:
        """A batch was given up, and its records with it, whether or not anybody awaits them."""
        ...


class PlainPermission(SendPermission):
    """wake: called when there is an identity. on_fatal: called with what makes it impossible to get one."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ProducerSettings,
        *,
        wake: Callable[[], None],
        on_fatal: Callable[[KafkaError], None],
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._wake = wake
        self._on_fatal = on_fatal
        self._identity: ProducerIdentity | None = None
        self._asking: asyncio.Task[None] | None = None

    @property
    def transactional_id(self) -> str | None:
        return None

    def identity(self) -> ProducerIdentity | None:
        if self._identity is None and self._asking is None and self._settings.enable_idempotence:
            self._asking = asyncio.get_running_loop().create_task(self._ask())
        return self._identity

    def renew(self) -> None:
        """The producer id is of no use any more: another is needed."""
        self._identity = None

    def may_send(self, topic_partition: TopicPartition) -> bool:
        return True

    def produce_cap(self) -> int | None:
        return None

    def sent(self, topic_partition: TopicPartition) -> None:
        pass

    def failed(self, topic_partition: TopicPartition, error: KafkaError) -> None:
        pass

    async def _ask(self) -> None:
        """Until there is an id. What is waiting for it has its own deadlines."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
        timeout_ms = self._settings.delivery_timeout_ms
        try:
            response: InitProducerIdResponse = await self._cluster.ask_until(
                "any", request, verdict=_code_of_answer, timeout_ms=timeout_ms
            )
            self._identity = ProducerIdentity(response.producer_id, response.producer_epoch)
        except KafkaError as error:
            if not is_retriable(error):
                self._on_fatal(error)
        except Exception as error:  # nobody awaits this
            self._on_fatal(broken("there is no producer id to be had", error))
        finally:
            self._asking = None
        self._wake()

    def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()


def _code_of_answer(answer: InitProducerIdResponse) -> int:
    """Without an id, what is written would not be idempotent."""
    return answer.error_code or (ErrorCode.UNKNOWN_SERVER_ERROR if answer.producer_id < 0 else ErrorCode.NONE)
