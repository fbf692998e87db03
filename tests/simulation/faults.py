"""Seeded faults: what strikes the network, the disk, the clock and the process while clients work.

Each lasts a while and is healed by itself; `heal` ends all of them. What was held arrives then: whole requests, late,
from connections that their clients gave up long ago.
"""

import asyncio
import errno
from collections.abc import Awaitable, Callable
from contextvars import Context

from fencepost.effects.simulated.net import SimulatedConnection
from fencepost.effects.simulated.operations import Link, Open
from fencepost.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from fencepost.protocol.messages.offsets import OffsetCommitRequest
from fencepost.protocol.messages.produce import ProduceRequest
from fencepost.protocol.messages.share_fetch import ShareAcknowledgeRequest
from fencepost.protocol.messages.share_transactions import TxnShareAcknowledgeRequest
from fencepost.protocol.messages.transactions import AddPartitionsToTxnRequest, EndTxnRequest, TxnOffsetCommitRequest
from fencepost.protocol.schema import schema_of
from simulation.world import JOURNAL_S, READS_S, World

_HELD = {
    AddPartitionsToTxnRequest: 0.01,
    TxnOffsetCommitRequest: 0.04,
    ProduceRequest: 0.03,
    OffsetCommitRequest: 0.02,
    ConsumerGroupHeartbeatRequest: 0.02,
    ShareAcknowledgeRequest: 0.01,
    TxnShareAcknowledgeRequest: 0.04,
}
HELD = {schema_of(request).api: chance for request, chance in _HELD.items()}
END_TXN = schema_of(EndTxnRequest).api
OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
ERRORS_OF_A_START = (*OUT_OF_RESOURCES, errno.EACCES, errno.EIO)
IN_PIECES = 0.25
JUMPS_MS = (-86_400_000 * 400, -3_600_000, -1_000, 1_000, 3_600_000, 86_400_000 * 30)
Fault = Callable[[], Awaitable[None]]


class Faults:
    """Lets faults strike, one after the other, until the world is over."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = world.rng("faults")
        self.struck: dict[str, int] = {}
        self._held = HELD | {END_TXN: world.schedule.late_end_txns}
        kinds: list[tuple[int, Fault]] = [
            (4, self.delays),
            (6, self.cut),
            (6, self.held_requests),
            (3, self.held_answers),
            (world.schedule.kills, self.crash),
            (3, self.power_cut),
            (2, self.slow_disk),
            (2, self.clock_jump),
            (2, self.full_disk),
            (1, self.failed_sync),
            (2, self.stopped_process),
            (3, self.unplugged_while_it_writes),
            (2, self.no_descriptors),
            (2, self.start_that_fails),
        ]
        if world.schedule.forgets_indexes:
            kinds.append((8, self.forgotten_indexes))
        if len(world.schedule.reads_s) > 1:
            kinds.append((4, self.slow_reads))
        self._kinds = [fault for weight, fault in kinds for _ in range(weight)]

    async def run(self) -> None:
        self.world.network.delay_ms = (0.05, 2.0)
        self.world.network.on_connect = self._perhaps_in_pieces
        self.world.on_send = self.perhaps_hold
        while not self.world.over:
            await asyncio.sleep(self.rng.uniform(0.1, 1.5))
            fault = self.rng.choice(self._kinds)
            self.struck[fault.__name__] = self.struck.get(fault.__name__, 0) + 1
            await fault()
        await self.heal()

    async def heal(self) -> None:
        """End all faults, and wait until a broker runs."""
        world = self.world
        world.on_send = lambda transport, keys: None
        world.network.delay_ms = (0.05, 1.0)
        world.delays["journal"], world.delays["reads"] = JOURNAL_S, READS_S
        world.disk.capacity_bytes = None
        for connection in world.network.connections:
            connection.release()
        while world.broker is None:  # noqa: ASYNC110
            await asyncio.sleep(0.1)

    # ---- the network -----------------------------------------------------------------------------------------

    async def delays(self) -> None:
        self.world.network.delay_ms = self.rng.choice(((0.05, 2.0), (0.0, 0.0), (5.0, 60.0), (0.1, 400.0)))

    def _perhaps_in_pieces(self, connection: SimulatedConnection) -> None:
        """On some connections, in one direction, deliver data in pieces of any size."""
        self.rng.choice((connection.to_server, connection.to_client)).fragments = self.rng.random() < IN_PIECES

    async def cut(self) -> None:
        if connections := self.world.network.connections:
            connection = self.rng.choice(connections)
            self.rng.choice((connection.cut, lambda: connection.cut_after("client", self.rng.randint(0, 90))))()

    async def held_requests(self) -> None:
        """Hold what a client sends, often until it has continued over another connection."""
        if connections := self.world.network.connections:
            connection = self.rng.choice(connections)
            connection.to_server.hold()
            self.world.loop.call_later(self.rng.uniform(0.1, 4.0), connection.release)

    def perhaps_hold(self, transport: object, keys: list[int]) -> None:
        """Sometimes hold requests of transactions and groups, for which being late matters most. keys: the keys of
        their APIs.
        """
        if self.rng.random() < max((self._held.get(key, 0.0) for key in keys), default=0.0):
            self.struck["held transactions"] = self.struck.get("held transactions", 0) + 1
            for connection in self.world.network.connections:
                if connection.client is transport:
                    connection.to_server.hold()
                    delay_s = self.rng.uniform(0.5, 3.0)
                    # In a context of its own, so that the requests go on also if their client's process is killed.
                    self.world.loop.call_later(delay_s, connection.release, context=Context())

    async def held_answers(self) -> None:
        if connections := self.world.network.connections:
            connection = self.rng.choice(connections)
            connection.to_client.hold()
            self.world.loop.call_later(self.rng.uniform(0.1, 4.0), connection.release)

    # ---- the process -----------------------------------------------------------------------------------------

    async def crash(self) -> None:
        if self.world.broker is not None:
            await self.world.restart(after_s=self.rng.uniform(0.0, 1.0))

    async def power_cut(self) -> None:
        if self.world.broker is not None:
            await self.world.restart(power=True, rng=self.rng, after_s=self.rng.uniform(0.0, 1.0))

    async def unplugged_while_it_writes(self) -> None:
        """Cut the power during a slow sync: some of what was written is on the disk, and nothing of it was answered."""
        self.world.delays["journal"] = 0.4
        await asyncio.sleep(self.rng.uniform(0.3, 0.8))
        self.world.delays["journal"] = JOURNAL_S
        await self.power_cut()

    async def stopped_process(self) -> None:
        """Let time pass in which nothing runs, as if the whole machine got SIGSTOP."""
        self.world.loop.pass_time(self.rng.uniform(0.1, 2.0))

    # ---- the disk and the clock ------------------------------------------------------------------------------

    async def slow_disk(self) -> None:
        self.world.delays["journal"] = self.rng.choice((0.0, 0.05, 0.4))
        await asyncio.sleep(self.rng.uniform(0.1, 1.0))
        self.world.delays["journal"] = JOURNAL_S

    async def slow_reads(self) -> None:
        """Choose another delay for reads from the disk: flushes, checkpoints and deletions may happen before they
        return.
        """
        self.world.delays["reads"] = self.rng.choice(self.world.schedule.reads_s)

    async def forgotten_indexes(self) -> None:
        self.world.forget_indexes()

    async def clock_jump(self) -> None:
        self.world.clock.jump_wall(self.rng.choice(JUMPS_MS))

    async def full_disk(self) -> None:
        disk = self.world.disk
        disk.capacity_bytes = disk._seen.used_bytes() + self.rng.choice((0, 4_096, 65_536))
        await asyncio.sleep(self.rng.uniform(0.2, 1.5))
        self.world.disk.capacity_bytes = None

    async def no_descriptors(self) -> None:
        """Let every opening of a file fail for a while. That is no reason to halt, or to take a partition for
        damaged.
        """
        disk, error = self.world.disk, self.rng.choice(OUT_OF_RESOURCES)
        fault = disk.fail(lambda one: isinstance(one, Open | Link), error=error, times=None)
        await asyncio.sleep(self.rng.uniform(0.1, 1.0))
        if fault in disk._faults:
            disk._faults.remove(fault)

    async def start_that_fails(self) -> None:
        """Kill the broker, and let one step of its start fail. That start changes nothing, and the next one
        succeeds.
        """
        if self.world.broker is not None:
            self.world.kill(power=self.rng.random() < 0.5, rng=self.rng)
            self.world.disk.fail_step(int(2 ** self.rng.uniform(0, 10)), error=self.rng.choice(ERRORS_OF_A_START))
            await self.world.restart(after_s=self.rng.uniform(0.0, 0.3))
            self.world.disk._faults.clear()

    async def failed_sync(self) -> None:
        """Let a sync of the journal fail: the broker has to halt. What it wrote may be readable, and not on the
        disk.
        """
        self.world.disk.fail_sync(lambda path: "journal" in path)
