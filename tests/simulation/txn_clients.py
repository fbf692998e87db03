"""Scripted transactional clients, of the old protocol (TV1) and the new (TV2, KIP-890), with zombies of both.

A supervisor keeps one incarnation of a transactional id going and now and then starts another while the first still
works: from then on that is a zombie, which goes on until it is told. An incarnation does what a correct client may do:
it repeats what was not answered, over a new connection; it never commits what was not acknowledged; and whatever it
cannot know it leaves to a successor with a new epoch.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.ledger import PrepareTxnRequest
from fencepost.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnTopic,
)
from simulation.history import Add, Begin, End, Init, Place, Producer, Send, name_of
from simulation.lines import Caller, Unanswered
from simulation.plain_clients import RETRIED, Batch, deliver, values_of
from simulation.world import TXN_TIMEOUT_MS, World

E = ErrorCode
ATTEMPTS = 8
COMMITS, VANISHES = 0.75, 0.05
BEGINS_ANEW_SINCE = 3  # version of InitProducerId


class Versions:
    """The versions of requests that a client of one protocol uses."""

    def __init__(self, tv: int, rng: Any) -> None:
        old = tv < 2
        self.tv = tv
        self.init = rng.choice((0, 2, 4)) if old else 5
        self.add = rng.choice((0, 2, 3))
        self.produce = rng.choice((3, 9, 11)) if old else 12
        self.end = rng.choice((1, 3, 4)) if old else 5
        self.add_offsets = rng.choice((1, 3))
        self.offsets = rng.choice((3, 4)) if old else 5


class Incarnation:
    """One process with a transactional id, from its InitProducerId until it is fenced, unsure or gone."""

    def __init__(self, world: World, transactional_id: str, number: int, tv: int, places: Sequence[Place]) -> None:
        self.world = world
        self.history = world.history
        self.transactional_id = transactional_id
        self.name = f"{transactional_id}#{number}"
        self.places = places
        self.rng = world.rng(self.name)
        self.versions = Versions(tv, self.rng)
        self.coordinator = Caller(world, self.name)
        self.data = self.coordinator if self.rng.random() < 0.3 else Caller(world, self.name)
        self.producer: Producer = (-1, -1)
        self.sequences: dict[Place, int] = defaultdict(int)
        self._numbers = 0
        self._txns = 0

    async def run(self) -> None:
        if await self.init():
            while not self.world.over and await self.transaction():  # noqa: ASYNC110
                await asyncio.sleep(self.rng.choice((0, 0, 0.02, 0.3)))
        for caller in {self.coordinator: None, self.data: None}:
            caller.close()

    def number(self) -> int:
        self._numbers += 1
        return self._numbers

    # ---- requests --------------------------------------------------------------------------------------------

    async def prepare(self, key: str, number: int, timeout_ms: int) -> int | None:
        """Prepare the open transaction, for this number of this key of the ledger. Returns the final error code; None
        if no answer was final.
        """
        request = PrepareTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            ledger_key=key,
            number=number,
            prepared_timeout_ms=timeout_ms,
        )
        code, _, _ = await self.persist(self.coordinator, request, 0, lambda answer: int(answer.error_code))
        return code

    async def persist(
        self, caller: Caller, request: Any, version: int, code_of: Callable[[Any], int], attempts: int = ATTEMPTS
    ) -> tuple[int | None, Any, bool]:
        """Ask until an answer is final. Returns (its error code, the answer, may an earlier attempt have been carried
        out?).

        The error code is None if no answer was final.
        """
        unsure = False
        for _ in range(attempts):
            try:
                answer = await caller.ask(request, version)
            except Unanswered:
                unsure = True
                continue
            code = code_of(answer)
            if code not in RETRIED:
                return code, answer, unsure
            await asyncio.sleep(self.rng.choice((0.005, 0.05)))
        return None, None, unsure

    async def init(self, current: Producer | None = None) -> bool:
        op = self.history.invoke(self.name, Init(self.transactional_id, current))
        producer_id, epoch = current or (-1, -1)
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=TXN_TIMEOUT_MS,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        code, answer, unsure = await self.persist(
            self.coordinator, request, self.versions.init, lambda one: int(one.error_code), 20
        )
        op.late = unsure
        if code == E.NONE:
            self.producer = op.ok((answer.producer_id, answer.producer_epoch))
            self.sequences.clear()
        elif unsure or code is None:
            op.info()
        else:
            op.fail(code)
        return code == E.NONE

    # ---- one transaction -------------------------------------------------------------------------------------

    async def transaction(self) -> bool:
        """Run one transaction. Returns whether to go on with another one."""
        self._txns += 1
        txn = f"{self.name}/{self._txns}"
        self.history.invoke(self.name, Begin(txn, self.transactional_id, self.producer, TXN_TIMEOUT_MS)).ok()
        filled = await self.fill(txn)
        if filled is None:
            await asyncio.sleep(0.05)
            return True  # nothing was begun
        sure, good = filled
        if self.rng.random() < 0.1:
            await asyncio.sleep(self.rng.choice((0.5, 2.0, 8.0)))  # the longest is long enough to time out
        if self.rng.random() < VANISHES:
            return False
        ended = await self.end(txn, commit=good and sure and self.rng.random() < COMMITS)
        if ended and sure:
            return True
        # What it cannot know it leaves to a successor, or to itself with a new epoch, if nobody came before it.
        return self.versions.init >= BEGINS_ANEW_SINCE and self.rng.random() < 0.5 and await self.init(self.producer)

    async def fill(self, txn: str) -> tuple[bool, bool] | None:
        """Write. Returns (is the outcome of all of it known?, was all of it accepted?), or None if there was nothing to
        do.
        """
        places = self.rng.sample(list(self.places), self.rng.randint(1, min(3, len(self.places))))
        if not await self.add(txn, places):
            return False, False
        batches = [
            self.batch(txn, place, values_of(self, self.rng)) for place in places for _ in range(self.rng.randint(1, 2))
        ]
        return await self.deliver(batches)

    async def deliver(self, batches: list[Batch]) -> tuple[bool, bool]:
        good = await deliver(self.data, batches, self.versions.produce, patient=False)
        return not any(each.unsure for each in batches if each.op.outcome == "info"), good

    def batch(
        self, txn: str, place: Place, values: tuple[str, ...], sources: tuple[tuple[Place, int], ...] = ()
    ) -> Batch:
        send = Send(place, self.producer, self.sequences[place], values, txn, sources)
        self.sequences[place] += len(values)
        op = self.history.invoke(self.name, send)
        return Batch(op, self.world.clock.now_ms(), self.transactional_id)

    async def add(self, txn: str, places: Sequence[Place]) -> bool:
        """With TV1, add these partitions to the transaction; with TV2, Produce does that. Returns whether they are
        added.
        """
        if self.versions.tv >= 2:
            return True
        ops = [self.history.invoke(self.name, Add(txn, place, self.producer)) for place in places]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer[0],
            v3_and_below_producer_epoch=self.producer[1],
            v3_and_below_topics=[TxnTopic(name=name_of(place), partitions=[place[1]]) for place in places],
        )
        code, _, unsure = await self.persist(self.coordinator, request, self.versions.add, _code_of_added)
        for op in ops:
            if code == E.NONE:
                op.ok()
            elif unsure or code is None:
                op.info()
            else:
                op.fail(code)
        return code == E.NONE

    async def end(self, txn: str, commit: bool) -> bool:
        """End the transaction. Returns whether it surely has ended, so that this producer may go on."""
        op = self.history.invoke(self.name, End(txn, self.transactional_id, self.producer, commit))
        producer_id, epoch = self.producer
        request = EndTxnRequest(
            transactional_id=self.transactional_id, producer_id=producer_id, producer_epoch=epoch, committed=commit
        )
        code, answer, unsure = await self.persist(
            self.coordinator, request, self.versions.end, lambda one: int(one.error_code)
        )
        if code == E.NONE:
            self._ended(op, answer)
        elif unsure or code is None:
            op.info()
        else:
            op.fail(code)
        return code == E.NONE

    def _ended(self, op: Any, answer: Any) -> None:
        if self.versions.tv >= 2 and answer.producer_id >= 0:  # less for an id that went with its transaction
            self.producer = (answer.producer_id, answer.producer_epoch)
            self.sequences.clear()
        op.ok(self.producer)


def _code_of_added(answer: Any) -> int:
    codes = [
        int(part.partition_error_code)
        for topic in answer.results_by_topic_v3_and_below
        for part in topic.results_by_partition
    ]
    return next((code for code in codes if code), 0)


class Supervisor:
    """Keeps a transactional id in use, by one incarnation after the other or, now and then, by two."""

    def __init__(
        self,
        world: World,
        transactional_id: str,
        tv: int,
        make: Callable[[int, int], Any],
        spell_s: tuple[float, float] = (2.0, 12.0),
    ) -> None:
        """make: makes an incarnation, given its number and protocol. spell_s: the range of times after which another
        one is started.
        """
        self.world = world
        self.transactional_id = transactional_id
        self.tv = tv
        self.rng = world.rng(f"supervisor {transactional_id}")
        self._make = make
        self._spell_s = spell_s
        self._running: list[asyncio.Future[None]] = []
        self._begun = 0

    async def run(self) -> None:
        while not self.world.over:
            self._begin()
            _, left = await asyncio.wait(
                self._running, timeout=self.rng.uniform(*self._spell_s), return_when=asyncio.FIRST_COMPLETED
            )
            for task in self._running:
                if task.done():
                    task.result()
            self._running = [task for task in self._running if task in left][-2:] if left else []
        if self._running:
            await asyncio.gather(*self._running)

    def _begin(self) -> None:
        self._begun += 1
        tv = self.tv if self.rng.random() < 0.85 else 3 - self.tv  # a rolling upgrade, or back
        self._running.append(asyncio.ensure_future(self._make(self._begun, tv).run()))
