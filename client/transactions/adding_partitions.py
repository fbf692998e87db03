"""Transactions of version 1: a partition is added to the transaction before the first write to it.

The rule: one request at a time adds all noted partitions, until all are added, one is refused, or the transaction is no
longer open. Source: Kafka's TransactionManager.AddPartitionsToTxnHandler.
"""

import asyncio
from collections.abc import Callable

from ..errors import KafkaError, error_of, is_retriable
from ..net.connection import broken
from .answers import Verdict, worst
from .machine import ClientTransaction
from .requests import TransactionRequests
from .table import OPEN
from .tries import Tries


class AddingPartitions:
    """Adds the partitions in `machine.adding`. A partition that cannot be added fails the transaction."""

    def __init__(self, machine: ClientTransaction, requests: TransactionRequests, tries: Tries) -> None:
        self._machine = machine
        self._requests = requests
        self._tries = tries
        self._task: asyncio.Task[None] | None = None
        self.refusal: KafkaError | None = None  # of the last attempt, if it failed

    def begin(self, wake: Callable[[], None]) -> None:
        """Start a task that adds the partitions in `machine.adding`, unless it runs already. wake: called whenever
        partitions were added, and when the task ends.
        """
        if self._machine.adding and self._task is None and self._machine.state in OPEN:
            self._task = asyncio.get_running_loop().create_task(self._run(wake))

    async def end(self) -> None:
        """Wait until the task that adds partitions has ended, if one runs."""
        if self._task is not None:
            await asyncio.wait({self._task})

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self, wake: Callable[[], None]) -> None:
        """Add the noted partitions after one turn of the event loop. An unexpected error fails the transaction."""
        try:
            await asyncio.sleep(0)  # so that one request has all partitions of this turn of the loop
            await self._add(wake)
        except Exception as error:  # nobody awaits this
            self._machine.failed(broken("adding partitions to a transaction failed", error))
        finally:
            self._task = None
            wake()

    async def _add(self, wake: Callable[[], None]) -> None:
        """Send AddPartitionsToTxn until no partition is left to add, with back-off."""
        machine = self._machine
        attempt = 0
        while machine.adding and machine.state in OPEN:
            code = 0
            try:
                codes = await self._requests.add_partitions(tuple(machine.adding))
            except KafkaError as error:
                if not is_retriable(error):
                    machine.failed(error)
                    return
                self.refusal = error.with_traceback(None)
            else:
                if machine.added(codes) is Verdict.DONE:
                    attempt = 0
                    self.refusal = None
                    wake()
                    continue
                code = worst(codes.values())[1]
                self.refusal = error_of(code, f"AddPartitionsToTxn: {error_of(code)}")
                self._requests.stale(code, self._requests.target)
            await asyncio.sleep(self._tries.delay_s(attempt, code))
            attempt += 1
