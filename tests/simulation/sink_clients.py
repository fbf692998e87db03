"""A sink of many tasks and one driver, as a streaming engine has it: each task prepares a transaction, and one decision
of the driver, recorded in the broker's ledger, ends them all (PrepareTxn and EndTxns, this broker's own).

The driver commits a batch only if every task said that it is prepared; else it aborts it. It repeats a decision that
was not answered, and sometimes one that was: at once, or later, as when it has found another broker meanwhile.
"""

import asyncio
from typing import Any

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.ledger import EndTxnsRequest
from simulation.history import Begin, End, Op, Place, Producer, Together
from simulation.lines import Caller, Unanswered
from simulation.plain_clients import RETRIED
from simulation.txn_clients import Incarnation
from simulation.world import PREPARED_MAX_MS, TXN_TIMEOUT_MS, World

KEY, OWNER = "sink", "driver"
TASKS_S = 5.0  # a task that is not prepared by then has failed


class SinkTask(Incarnation):
    """One task of one batch."""

    async def prepared(self, txn: str, number: int) -> bool:
        """Write something and prepare the transaction. Returns whether it surely is prepared."""
        if not await self.init():
            return False
        self.history.invoke(self.name, Begin(txn, self.transactional_id, self.producer, TXN_TIMEOUT_MS)).ok()
        filled = await self.fill(txn)
        if filled != (True, True):
            return False
        return await self.prepare(KEY, number, PREPARED_MAX_MS) == ErrorCode.NONE


class SinkDriver:
    """Runs batch after batch: starts the tasks, and decides."""

    def __init__(self, world: World, places: list[Place]) -> None:
        self.world = world
        self.places = places
        self.rng = world.rng("driver")
        self.caller = Caller(world, "driver")
        self._last: EndTxnsRequest | None = None  # the last decision, if it was carried out
        self._decided_in = 0  # which life of the broker that was

    async def run(self) -> None:
        number = 0
        while not self.world.over:
            number += 1
            await self._batch(number)
            await asyncio.sleep(self.rng.choice((0.0, 0.1, 1.0)))
            if self.world.lives != self._decided_in or self.rng.random() < 0.2:
                await self._again()

    async def _batch(self, number: int) -> None:
        tasks = [
            SinkTask(self.world, f"sk{index}", number, self.rng.choice((1, 2)), self.places)
            for index in range(self.rng.randint(1, 3))
        ]
        names = [f"{task.name}/1" for task in tasks]
        self.world.history.invoke("driver", Together(tuple(names))).ok()
        working = [asyncio.ensure_future(task.prepared(txn, number)) for task, txn in zip(tasks, names, strict=True)]
        await asyncio.wait(working, timeout=TASKS_S)
        good = [
            (task, txn) for task, txn, work in zip(tasks, names, working, strict=True) if work.done() and work.result()
        ]
        for work in working:
            work.cancel()
        await self._decide(number, good, commit=len(good) == len(tasks) and self.rng.random() < 0.8)

    async def _decide(self, number: int, prepared: list[tuple[SinkTask, str]], commit: bool) -> None:
        history = self.world.history
        ops = [history.invoke("driver", _end(task, txn, commit)) for task, txn in prepared]
        items = [_item(task.transactional_id, task.producer) for task, _ in prepared]
        request = EndTxnsRequest(
            ledger_key=KEY, number=number, owner=OWNER, digest=b"%d" % commit, committed=commit, transactions=items
        )
        code, unsure = await self._answer(request)
        self._last, self._decided_in = request if code == ErrorCode.NONE else None, self.world.lives
        for op in ops:
            _finish(op, code, unsure)
        if code != ErrorCode.NONE:  # one of them was taken from it: the others are not to wait for ever
            nobody = EndTxnsRequest(ledger_key=KEY, number=number, owner=OWNER, digest=b"none", committed=False)
            await self._answer(nobody)
        elif self.rng.random() < 0.2:
            await self._again()

    async def _again(self) -> None:
        """Repeat the last decision that was carried out: it has to be accepted again, at any time."""
        if self._last is not None:
            self._decided_in = self.world.lives
            code, _ = await self._answer(self._last)
            if code != ErrorCode.NONE:
                self.world.failures.append(f"decision {self._last.number} is refused when it is repeated: {code}")

    async def _answer(self, request: EndTxnsRequest) -> tuple[int, bool]:
        """Ask until the answer is final. Returns its code, and whether an earlier attempt may have been carried out."""
        unsure = False
        while True:
            try:
                answer = await self.caller.ask(request, 0)
            except Unanswered:
                unsure = True
                continue
            if answer.error_code not in RETRIED:
                return int(answer.error_code), unsure
            await asyncio.sleep(0.05)


def _end(task: SinkTask, txn: str, commit: bool) -> End:
    return End(txn, task.transactional_id, task.producer, commit)


def _item(transactional_id: str, producer: Producer) -> Any:
    return EndTxnsRequest.Transaction(
        transactional_id=transactional_id, producer_id=producer[0], producer_epoch=producer[1]
    )


def _finish(op: Op, code: int, unsure: bool) -> None:
    if code == ErrorCode.NONE:
        op.ok(op.what.producer)
    elif unsure:
        op.info()
    else:
        op.fail(code)
