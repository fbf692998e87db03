"""Wakes producers of librdkafka that wait, without a limit, for a group coordinator that is gone, by closing a
connection of theirs.

The problem. To commit offsets in a transaction, librdkafka sends AddOffsetsToTxn, and then TxnOffsetCommit to the
coordinator of the group, which it remembers from the last time. From 2.10 on, if it loses its last connection, it gives
up its records of all brokers, and makes new ones from what Metadata tells (KIP-899). What it remembers as coordinator
stays the old record, which never connects again. The next TxnOffsetCommit waits for that, and the timeout of
send_offsets_to_transaction is not checked: https://github.com/confluentinc/librdkafka/issues/5511 and 5456. So after
each restart of a broker, and each take-over of a store, a program that had nothing to copy just then stands still.

The observation. Whenever any of its connections is opened or lost, librdkafka looks at its waiting requests again, and
asks for the coordinator again if the remembered one is not connected.

The rule. If AddOffsetsToTxn was answered, and no TxnOffsetCommit of that transaction came for WAIT_MS, its connection
is closed, once. Nothing is lost by that: the client waits for no answer on it. It sends its TxnOffsetCommit, and the
transaction goes on. The same if a client asks for the coordinator of a transaction that is open, and to which a group
was added, but no offsets: it has added the group before a restart or a take-over, or its first connection was closed
for that and it waits still. Other libraries have no such wait, so their connections are left alone.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ...effects.clock import Clock
from ..groups.offset_log import GroupOffsets
from ..net.connection import Connection
from ..rare_log import RareLog
from ..topics.names import OFFSETS_TOPIC
from .states.transaction import Status, Transaction

log = logging.getLogger("fencepost.broker")

LIBRARY = "rdkafka"  # is in the name or in the version with which all its bindings introduce themselves
WAIT_MS = 2_000

CallLater = Callable[[float, Callable[[], None]], asyncio.TimerHandle]


class _Awaited(NamedTuple):
    """An AddOffsetsToTxn after which offsets are awaited. transaction: what identifies it."""

    connection: Connection
    transaction: tuple[int, int, int]
    due_ms: int


class AwaitedOffsets:
    """The transactions of one broker to which a group was added and in which no offsets came yet."""

    def __init__(
        self,
        transactions: Mapping[str, Transaction],
        offsets: GroupOffsets,
        clock: Clock,
        call_later: CallLater,
    ) -> None:
        """transactions: the states by transactional id, as the coordinator has them."""
        self._transactions = transactions
        self._offsets = offsets
        self._clock = clock
        self._call_later = call_later
        self._timer: asyncio.TimerHandle | None = None  # runs while anything is awaited
        self._rare_log = RareLog(log, clock.monotonic_ms)
        self._awaited: dict[str, _Awaited] = {}  # by transactional id, the longest awaited first

    def added(self, transactional_id: str, connection: Connection) -> None:
        """Called when the AddOffsetsToTxn on this connection is answered with success. If the client is librdkafka, the
        offsets of this id are awaited from now on.
        """
        if LIBRARY in connection.client_software:
            self._await(transactional_id, connection)

    def asked(self, transactional_id: str, connection: Connection) -> None:
        """Called when the FindCoordinator for this id on this connection is answered with success. If the client is
        librdkafka, and the id's transaction has a group but no offsets of it, they are awaited from now on.
        """
        if LIBRARY in connection.client_software and transactional_id not in self._awaited:
            txn = self._transactions.get(transactional_id)
            if txn is not None and self._lacks_offsets(txn):
                self._await(transactional_id, connection)

    def came(self, transactional_id: str) -> None:
        """Note that a TxnOffsetCommit of this id has come."""
        self._awaited.pop(transactional_id, None)

    def stop(self) -> None:
        """Cancel the timer. No connection is closed any more."""
        self._awaited.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        """Close the connections of those that have sent no offsets for WAIT_MS. Called by the timer."""
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        while self._awaited:
            transactional_id, awaited = next(iter(self._awaited.items()))
            if awaited.due_ms > now_ms:
                self._set_timer(awaited.due_ms - now_ms)
                return
            del self._awaited[transactional_id]
            connection = awaited.connection
            if connection.transport is None or self._identity(transactional_id) != awaited.transaction:
                continue
            if connection.slots:  # the answer waits for the journal
                self._await(transactional_id, connection)
                continue
            self._rare_log.write(
                logging.INFO,
                "closing a connection of %s: librdkafka has added a group to transaction %.200r and sent no offsets; "
                "it may wait for a coordinator that is gone, and asks for it again now",
                connection.client_host, transactional_id,
            )  # fmt: skip
            connection.hang_up()

    def _lacks_offsets(self, txn: Transaction) -> bool:
        """Return whether a group was added to the transaction, and no offsets of that group came."""
        partitions = [partition for topic, partition in txn.partitions if topic == OFFSETS_TOPIC]
        return not all(self._offsets.has_pending_of(partition, txn.producer_id) for partition in partitions)

    def _await(self, transactional_id: str, connection: Connection) -> None:
        """Look at this id after WAIT_MS, if it has an open transaction."""
        self._awaited.pop(transactional_id, None)  # so that it comes last
        transaction = self._identity(transactional_id)
        if transaction is not None:
            self._awaited[transactional_id] = _Awaited(connection, transaction, self._clock.monotonic_ms() + WAIT_MS)
            if self._timer is None:
                self._set_timer(WAIT_MS)

    def _set_timer(self, delay_ms: int) -> None:
        self._timer = self._call_later(delay_ms / 1000, self._look)

    def _identity(self, transactional_id: str) -> tuple[int, int, int] | None:
        """Return what identifies the id's open transaction; None if none is open."""
        txn = self._transactions.get(transactional_id)
        if txn is None or txn.status is not Status.ONGOING:
            return None
        return txn.producer_id, txn.producer_epoch, txn.opened_at
