"""A ProducerPool of the SDK in the simulation: handlers of a server, each with a transaction, that lose their patience.

Each of its slots is a transactional producer like any other; what a handler is told is what the history says.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from simulation.history import Begin, End, Init, Op, Place
from simulation.sdk_clients import COMMITS, LosesEnds, Mistake, Watched
from simulation.world import TXN_TIMEOUT_MS, World

import fencepost as fp

SIZE, HANDLERS = 2, 4
IMPATIENT = 0.4  # share of transactions


class SdkPool(LosesEnds):
    """One process with a pool, until another one with the same prefix fences it."""

    lost = 0.1

    def __init__(self, world: World, prefix: str, number: int, tv: int, places: Sequence[Place]) -> None:
        super().__init__(world, f"{prefix}#{number}", places)
        self._prefix, self._tv = prefix, tv
        self._txns = 0
        self._watched: dict[str, Watched] = {}  # by transactional id: of the producers that have the slots now

    async def live(self) -> None:
        pool = await self.started(
            fp.ProducerPool,
            prefix=self._prefix,
            size=SIZE,
            max_wait_ms=self.rng.choice((300, 5_000)),
            transaction_timeout_ms=TXN_TIMEOUT_MS,
            delivery_timeout_ms=self.rng.choice((2_000, 8_000)),
            max_block_ms=int(self._patience_s * 1_000),
        )
        await asyncio.gather(*(self._handle(pool) for _ in range(HANDLERS)))

    def prepare(self, client: Any) -> None:
        """Note its start as an Init of each id, since it takes them over, and watch the producer of each slot."""
        make, start = client._make_producer, client._start

        def watched(slot: int) -> Any:
            producer = make(slot)
            start_producer = producer.start

            async def started() -> None:
                driver = producer._driver
                self._watched[driver.transactional_id] = Watched(self.history, self.name, self._tv, driver)
                await start_producer()

            producer.start = started
            return producer

        async def taking_over() -> None:
            ops = [self.history.invoke(self.name, Init(f"{self._prefix}-{slot}")) for slot in range(SIZE)]
            for op in ops:
                op.late = True
            try:
                await start()
            finally:
                for op in ops:
                    op.info()  # whether it succeeded or not: no producer uses the epochs of this start

        client._make_producer, client._start = watched, taking_over

    # ---- its transactions ------------------------------------------------------------------------------------

    async def _handle(self, pool: Any) -> None:
        while not self.world.over and pool.state().life == "open":
            self._txns += 1
            await self._transaction(pool, f"{self.name}/{self._txns}")
            await asyncio.sleep(self.rng.choice((0.0, 0.02, 0.3)))

    async def _transaction(self, pool: Any, txn: str) -> None:
        sent: list[tuple[Op, Any]] = []
        ends: list[Op] = []
        begun: list[tuple[Any, Watched]] = []
        is_impatient = self.rng.random() < IMPATIENT
        commit = self.rng.random() < COMMITS
        try:
            async with asyncio.timeout(self.rng.choice((0.0, 0.02, 0.1, 0.5, 2.0)) if is_impatient else None):
                async with pool.transaction() as tx:
                    watched = self._watched[tx._driver.transactional_id]
                    begun.append((tx, watched))
                    await self._fill(tx, watched, txn, sent)
                    what = End(txn, tx._driver.transactional_id, watched.identity, commit)
                    ends.append(self.history.invoke(self.name, what))
                    if not commit:
                        raise Mistake
        except fp.CommitOutcomeUnknownError as error:
            outcome = await error.resolve() if self.rng.random() < 0.5 else "unknown"
            tx, watched = begun[0]
            self._ended(ends, outcome, watched if tx.is_begun else None)  # else another transaction has the slot
        except (fp.KafkaError, Mistake, TimeoutError):
            if begun:
                tx, watched = begun[0]
                self._ended(ends, tx.outcome or "aborted", watched)
        else:
            self._ended(ends, "committed", begun[0][1])
        finally:
            await self.settle(sent)

    async def _fill(self, tx: Any, watched: Watched, txn: str, sent: list[tuple[Op, Any]]) -> None:
        watched.said_yes = False
        begin = Begin(txn, tx._driver.transactional_id, watched.identity, TXN_TIMEOUT_MS)
        self.history.invoke(self.name, begin).ok()
        for _ in range(self.rng.choice((1, 2, 5))):
            sent.append(await self.send(tx, watched.identity, self.rng.choice(self.places), txn))
        if self.rng.random() < 0.2:
            await asyncio.sleep(self.rng.choice((0.05, 0.5, 6.0)))

    def _ended(self, ends: Sequence[Op], outcome: str, watched: Watched | None) -> None:
        """End these operations with their outcomes. outcome: what the SDK says of the transaction; "aborted" also if
        it says nothing, because an abort was not answered: then no commit was sent.
        """
        for op in ends:
            producer = op.what.producer
            if outcome == "committed" and op.what.commit and watched is not None:
                op.ok(watched.goes_on_with(producer))
            elif outcome == "aborted" and op.what.commit:
                op.fail()
            elif outcome == "aborted" and watched is not None and watched.said_yes:
                op.ok(watched.goes_on_with(producer))
            else:
                op.info()
                if outcome == "committed" and not op.what.commit:
                    self.world.failures.append(f"{self.name} says committed of {op.what}, which it was not asked")
