"""Honest clients that nobody knows yet: a new producer, a new transactional id, a member of a new group.

Each asks until it is served, whatever a limit says meanwhile; then it is gone, and the next one comes. When the last
fault is over some more come of each kind: by then nobody but clients that vanished holds anything, and not for long.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.groups import JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, SyncGroupRequest
from simulation.history import Begin, Healed, Need, Place, Send
from simulation.lines import Caller, Unanswered
from simulation.plain_clients import PLAIN_VERSIONS, Batch, deliver, init_plain, values_of
from simulation.txn_clients import Incarnation
from simulation.world import TXN_TIMEOUT_MS, World

JOIN_VERSION, SYNC_VERSION, LEAVE_VERSION = 3, 3, 3  # the last that gives an id at once
SAID_BYTES = 100_000
AT_THE_END = 6  # of each kind, one after the other
SESSION_MS, REBALANCE_MS, JOIN_PATIENCE_S = 1_200, 1_000, 4.0


class Newcomers(ABC):
    """New clients of one kind, one after the other."""

    need = ""

    def __init__(self, world: World, name: str, places: Sequence[Place]) -> None:
        self.world = world
        self.places = places
        self.rng = world.rng(name)
        self.number_of_clients = 0
        self._name = name
        self._numbers = 0

    async def run(self) -> None:
        while not self.world.over:
            await self._next()
            await asyncio.sleep(self.rng.choice((0.1, 0.5, 2.0)))
        while not any(self.world.history.of(Healed)):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        for _ in range(AT_THE_END):
            await self._next()

    async def _next(self) -> None:
        self.number_of_clients += 1
        op = self.world.history.invoke(self.name, Need(self.need))
        attempts = 1
        while not await self.served(attempts):
            attempts += 1
            await asyncio.sleep(self.rng.choice((0.05, 0.2)))
        op.ok(attempts)

    @property
    def name(self) -> str:
        return f"{self._name}.{self.number_of_clients}"

    def number(self) -> int:
        self._numbers += 1
        return self._numbers

    @abstractmethod
    async def served(self, attempt: int) -> bool:
        """Make one attempt of the client. Returns whether it was served."""


class NewProducers(Newcomers):
    """Idempotent producers, each with one batch."""

    need = "to write"

    async def served(self, attempt: int) -> bool:
        caller = Caller(self.world, self.name)
        producer = await init_plain(caller, self.name)
        values = values_of(self, self.rng)
        op = self.world.history.invoke(self.name, Send(self.rng.choice(self.places), producer, 0, values))
        batch = Batch(op, self.world.clock.now_ms())
        taken = await deliver(caller, [batch], self.rng.choice(PLAIN_VERSIONS), patient=False)
        caller.close()
        return taken


class NewIds(Newcomers):
    """New transactional ids, each with one transaction."""

    need = "to commit a transaction"

    async def served(self, attempt: int) -> bool:
        places = [self.rng.choice(self.places)]
        client = FirstTransaction(self.world, self.name, attempt, self.rng.choice((1, 2)), places)
        return await client.committed()


class FirstTransaction(Incarnation):
    """A client that runs a single transaction."""

    async def committed(self) -> bool:
        done = await self.init() and await self._commits(f"{self.name}/1")
        for caller in {self.coordinator: None, self.data: None}:
            caller.close()
        return done

    async def _commits(self, txn: str) -> bool:
        self.history.invoke(self.name, Begin(txn, self.transactional_id, self.producer, TXN_TIMEOUT_MS)).ok()
        return await self.fill(txn) == (True, True) and await self.end(txn, commit=True)


class NewMembers(Newcomers):
    """Members of new groups, each the only one of its group, with much metadata."""

    need = "to join a group"

    async def served(self, attempt: int) -> bool:
        caller = Caller(self.world, self.name)
        try:
            return await self._in_and_out(caller)
        except Unanswered:
            return False
        finally:
            caller.close()

    async def _in_and_out(self, caller: Caller) -> bool:
        joined = await caller.ask(join(self.name, SAID_BYTES), JOIN_VERSION, JOIN_PATIENCE_S)
        if joined.error_code != ErrorCode.NONE:
            return False
        synced = await caller.ask(sync(self.name, joined), SYNC_VERSION, JOIN_PATIENCE_S)
        if synced.error_code != ErrorCode.NONE:
            return False
        try:
            member = LeaveGroupRequest.Member(member_id=joined.member_id)
            await caller.ask(LeaveGroupRequest(group_id=self.name, members=[member]), LEAVE_VERSION)
        except Unanswered:
            pass
        return True


def join(group_id: str, said_bytes: int) -> JoinGroupRequest:
    """Build the JoinGroup request of a member that has no id yet."""
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=REBALANCE_MS,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequest.Protocol(name="all", metadata=bytes(said_bytes))],
    )


def sync(group_id: str, joined: JoinGroupResponse) -> SyncGroupRequest:
    """Build the SyncGroup request of the only member of a group."""
    mine = SyncGroupRequest.Assignment(member_id=joined.member_id, assignment=b"all")
    return SyncGroupRequest(
        group_id=group_id,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[mine],
    )
