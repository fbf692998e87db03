"""Clients that take something and vanish: with a transaction open, or prepared, or as members of groups.

Nobody comes after them, so nothing but timeouts frees what they hold. Some ask for more time than anybody may have.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from fencepost.protocol.messages.groups import DescribeGroupsRequest
from fencepost.protocol.messages.ledger import NEVER_MS
from fencepost.protocol.messages.transactions import ListTransactionsRequest
from simulation.history import Begin, Held, Place
from simulation.lines import Caller, Unanswered
from simulation.newcomers import JOIN_PATIENCE_S, JOIN_VERSION, SYNC_VERSION, join, sync
from simulation.txn_clients import Incarnation
from simulation.world import PREPARED_MAX_MS, TXN_TIMEOUT_MS, World

KEY = "vanishing"
HOUR_MS = 3_600_000
SAID_BYTES = 150_000
GROUPS_AT_ONCE = (2, 6)
ENDED = ("Empty", "CompleteCommit", "CompleteAbort", "Dead")


class Vanisher:
    """Starts one client after the other that vanishes without ending what it began."""

    def __init__(self, world: World, places: Sequence[Place]) -> None:
        self.world = world
        self.places = places
        self.rng = world.rng("vanisher")
        self.groups: list[str] = []
        self._number = 0

    async def run(self) -> None:
        kinds = [self._with_a_transaction, self._prepared, self._prepared, self._in_groups]
        while not self.world.over:
            await asyncio.sleep(self.rng.choice((0.2, 0.6, 2.0)))
            self._number += 1
            await self.rng.choice(kinds)()

    async def _with_a_transaction(self) -> None:
        await Vanishing(self.world, f"gone{self._number}", 1, self.rng.choice((1, 2)), self.places).begins()

    async def _prepared(self) -> None:
        timeout_ms = self.rng.choice((1_000, PREPARED_MAX_MS, PREPARED_MAX_MS + 1, HOUR_MS, NEVER_MS))
        client = Vanishing(self.world, f"gone{self._number}", 1, self.rng.choice((1, 2)), self.places)
        await client.begins(lambda: client.prepare(KEY, self._number, timeout_ms))

    async def _in_groups(self) -> None:
        names = [f"gone{self._number}-{each}" for each in range(self.rng.randint(*GROUPS_AT_ONCE))]
        self.groups += names
        await asyncio.gather(*(self._joins(name, self.rng.random() < 0.5) for name in names))

    async def _joins(self, name: str, syncs: bool) -> None:
        caller = Caller(self.world, name)
        try:
            joined = await caller.ask(join(name, SAID_BYTES), JOIN_VERSION, JOIN_PATIENCE_S)
            if syncs and not joined.error_code:
                await caller.ask(sync(name, joined), SYNC_VERSION, JOIN_PATIENCE_S)
        except Unanswered:
            pass
        caller.close()

    async def look(self) -> None:
        """Note what is still held for the clients that vanished, when all of that should have timed out."""
        caller, op = Caller(self.world, "final"), self.world.history.invoke("final", Held())
        found = (await caller.ask(ListTransactionsRequest())).transaction_states
        held = [each.transactional_id for each in found if each.transaction_state not in ENDED]
        groups = (await caller.ask(DescribeGroupsRequest(groups=self.groups))).groups
        op.ok((*held, *(group.group_id for group in groups if group.members)))


class Vanishing(Incarnation):
    """A process that begins a transaction and vanishes."""

    async def begins(self, then: Callable[[], Awaitable[object]] | None = None) -> None:
        if await self.init():
            txn = f"{self.name}/1"
            self.history.invoke(self.name, Begin(txn, self.transactional_id, self.producer, TXN_TIMEOUT_MS)).ok()
            if await self.fill(txn) == (True, True) and then is not None:
                await then()
        for caller in {self.coordinator: None, self.data: None}:
            caller.close()
