"""Transactions of version 1: partitions are added to a transaction before anything is written to them.

The rule: all that are wanted go in as few requests as the answers allow, until they are added, one is refused, or the
transaction is not open any more. Source: Kafka's TransactionManager.AddPartitionsToTxnHandler.
"""

import asyncio
from collections.abc import Callable

from ..errors import KafkaError, is_retriable
from ..net.connection import broken
from .answers import Verdict, worst
from .machine import ClientTransaction
from .requests import TransactionRequests
from .table import OPEN
from .tries import Tries


class AddingPartitions:
    """What it cannot add fails the transaction."""

    def __init__(self, machine: ClientTransaction, requests: TransactionRequests, tries: Tries) -> None:
        self._machine = machine
        self._requests = requests
        self._tries = tries
        self._task: asyncio.Task[None] | None = None

    def begin(self, wake: Callable[[], None]) -> None:
        """Add what is wanted, if that is not under way. wake is called whenever there are partitions to write to."""
        if self._machine.adding and self._task is None and self._machine.state in OPEN:
            self._task = asyncio.get_running_loop().create_task(self._run(wake))

    async def end(self) -> None:
        """Wait until nothing is under way."""
        if self._task is not None:
            await asyncio.wait({self._task})

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self, wake: Callable[[], None]) -> None:
        try:
            await asyncio.sleep(0)  # for what else is drained in this turn
            await self._add(wake)
        except Exception as error:  # nobody awaits this
            self._machine.failed(broken("no partition can be added to a transaction", error))
        finally:
            self._task = None
            wake()

    async def _add(self, wake: Callable[[], None]) -> None:
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
            else:
                if machine.added(codes) is Verdict.DONE:
                    attempt = 0
                    wake()
                    continue
                code = worst(codes.values())[1]
                self._requests.stale(code, self._requests.target)
            await asyncio.sleep(self._tries.delay_s(attempt, code))
            attempt += 1
