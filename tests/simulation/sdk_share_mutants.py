"""The bank of bugs in the SDK's share consumer: what it says for its application, and what it says to it.

A function's name is the bug that it plants; its docstring says what comes of it, or where it is known from.
"""

from contextlib import ExitStack
from typing import Any

from fencepost.client.share.arrivals import Arrivals
from fencepost.client.share.fetcher import ShareFetcher
from fencepost.client.transactions.machine import ClientTransaction
from fencepost.client.transactions.requests import TransactionRequests
from fencepost.client.transactions.table import State
from fencepost.protocol.errors import ErrorCode, KafkaError
from simulation.planting import around, breaks, caught_with_queues, killed_by, replaced

ITS_WORD = "sdk.md: A record about which nothing is said is delivered again"
WITH_ITS_TRANSACTION = "guarantees.md: A record is acknowledged if and only if the transaction commits"
AFTER_A_YES = "guarantees.md: aborts after any answer that was not a yes"


@caught_with_queues(seed=1)
@breaks(ITS_WORD)
def sdk_what_was_returned_is_accepted_with_the_next_poll(stack: ExitStack) -> None:
    def wrapper(begin_poll: Any) -> Any:
        return lambda self, *, implicit: begin_poll(self, implicit=True)

    around(stack, Arrivals.begin_poll, wrapper)


@caught_with_queues(seed=1)
@breaks(WITH_ITS_TRANSACTION)
def sdk_what_a_transaction_acknowledges_is_not_sent(stack: ExitStack) -> None:
    async def acknowledged(self: Any, group_id: str, member_id: str, acks: Any) -> Any:
        return 0, KafkaError(ErrorCode.NONE)

    replaced(stack, TransactionRequests.acknowledge, acknowledged)


@caught_with_queues(seed=2)
@breaks(AFTER_A_YES)
def sdk_a_transaction_is_committed_whose_acknowledgement_has_no_answer(stack: ExitStack) -> None:
    def wrapper(acknowledge: Any) -> Any:
        async def acknowledged(self: Any, group_id: str, member_id: str, acks: Any) -> Any:
            try:
                return await acknowledge(self, group_id, member_id, acks)
            except KafkaError as error:
                return 0, error

        return acknowledged

    around(stack, TransactionRequests.acknowledge, wrapper)


@killed_by("tests/client/share/test_share_transactions.py")
@breaks(AFTER_A_YES)
def sdk_a_transaction_is_committed_whose_acknowledgement_was_refused(stack: ExitStack) -> None:
    def wrapper(acknowledge: Any) -> Any:
        async def acknowledged(self: Any, group_id: str, member_id: str, acks: Any) -> Any:
            _, error = await acknowledge(self, group_id, member_id, acks)
            return 0, error

        return acknowledged

    around(stack, TransactionRequests.acknowledge, wrapper)


@caught_with_queues(seed=1)
@breaks("sdk.md: `commit` raises `RecordNotHeldError` if some were not taken")
def sdk_a_commit_of_a_share_consumer_waits_for_nothing(stack: ExitStack) -> None:
    async def flushed(self: Any, timeout_ms: float) -> bool:
        return True

    replaced(stack, ShareFetcher.flush, flushed)


@caught_with_queues(seed=2)
@breaks("sdk.md: `commit` raises `RecordNotHeldError` if some were not taken")
def sdk_what_is_not_taken_is_not_said(stack: ExitStack) -> None:
    replaced(stack, ShareFetcher._refused, lambda self, acks, renewal, error: None)


@killed_by("tests/client/share/test_share_transactions.py")
@breaks("how-to/work-queues.md: which gives back all records of the transaction at once")
def sdk_a_failed_transaction_waits_for_records_that_nobody_sends_again(stack: ExitStack) -> None:
    """It waits until their delivery timeout: two minutes, after a broker was killed during a commit."""

    def wrapper(may_write_to: Any) -> Any:
        def may(self: Any, partition: Any) -> bool:
            return self.state is not State.ABORTABLE_ERROR and bool(may_write_to(self, partition))

        return may

    around(stack, ClientTransaction.may_write_to, wrapper)
