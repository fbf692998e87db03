"""Finds the transactions of a sink's tasks that no decision will end, so that the driver can abort them. Pure.

The rule: aborting them is not needed for the guarantee (protocol.py), only so that readers need not wait for them, or
so that a decision is not too large. A decision that lists one of them is refused as a whole.
"""

import re
from collections.abc import Callable, Generator, Sequence
from typing import Any

from ...client.errors import error_of
from ...protocol.messages.transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from .protocol import SinkBatch, TaskDone, Written, written_for


def failed_with(messages: Sequence[TaskDone | None], number: int, mark: str = "") -> Callable[[int, str], bool]:
    """Return the `is_over` function of open_steps for a micro-batch that Spark aborts. messages: of its tasks; None for
    a task that failed. number: of the batch. mark: the prefix that all attempts of its query have.

    Only the messages tell which attempt failed. Without any message the function selects every attempt of the query up
    to that batch. If another driver is about to decide one of these, its whole decision is refused, and Spark writes
    the batch again.
    """
    attempts = {message.batch.attempt for message in messages if message is not None}
    if attempts:
        return lambda _, attempt: attempt in attempts
    return lambda of, attempt: of <= number and attempt.startswith(mark)


def others_than(batch: SinkBatch) -> Callable[[int, str], bool]:
    """Return the `is_over` function of open_steps for use after a decision about this batch: it selects all earlier
    batches, and all other attempts of this one.

    If another driver is about to decide one of these, its whole decision is refused, and Spark writes the batch again.
    """
    return lambda number, attempt: number < batch.number or (number == batch.number and attempt != batch.attempt)


def open_steps(
    prefix: str, sink: str | None, is_over: Callable[[int, str], bool]
) -> Generator[Any, Any, list[Written]]:
    """Find the transactions of a sink's tasks, prepared or not, that no decision will end. Yields requests, is sent
    their responses, and returns the transactions. Raises the broker's error.

    Number and attempt are read from the transactional id, because the broker does not know the batch before PrepareTxn.
    sink: None for any. is_over: returns whether no decision can list a transaction of this number and attempt any more.
    """
    pattern = re.escape(prefix if sink is None else f"{prefix}{sink}.") + ".*"
    listed: ListTransactionsResponse = yield ListTransactionsRequest(
        state_filters=["Ongoing"], transactional_id_pattern=pattern
    )
    if listed.error_code:
        raise error_of(listed.error_code)
    names = [
        each.transactional_id
        for each in listed.transaction_states
        if (found := written_for(each.transactional_id, prefix, sink)) is not None and is_over(*found)
    ]
    if not names:
        return []
    described: DescribeTransactionsResponse = yield DescribeTransactionsRequest(transactional_ids=names)
    return [
        Written(each.transactional_id, each.producer_id, each.producer_epoch)
        for each in described.transaction_states
        if not each.error_code and each.transaction_state == "Ongoing"
    ]
