"""What happens in a simulation of a mirror: writers, tasks, faults; then an end, a drained mirror, a last look."""

import asyncio
from typing import Any

from produce_requests import create
from simulation.faults import Fault, Faults
from simulation.lines import Caller
from simulation.mirror_clients import (
    PLAIN_GROUPS,
    TOPICS,
    TXN_GROUP,
    Committer,
    GoodsWriter,
    Grower,
    MirroredTrimmer,
)
from simulation.mirror_logs import log_of, map_of, positions_of, write_groups_down, write_positions_down
from simulation.mirror_rules import CutOver, Whole
from simulation.mirror_tasks import MIRROR, Mover, TaskKeeper
from simulation.mirrored_world import ORDERS, SOURCE, MirroredWorld
from simulation.plain_clients import Reader
from simulation.sdk_clients import MAX_MESSAGE_BYTES, SdkIncarnation
from simulation.txn_clients import Incarnation, Supervisor
from simulation.working import work_under

DRAINED_S = 30.0  # and the mirror, whose tasks end what dead ones have left open
JUMPS_MS = (-3_600_000, -1_000, 1_000, 3_600_000)


class MirrorFaults(Faults):
    """Faults of the network, of both brokers and of the tasks."""

    world: MirroredWorld

    def __init__(self, world: MirroredWorld, keeper: TaskKeeper) -> None:
        super().__init__(world)
        self._there = Faults(world.target)
        self._keeper = keeper
        kinds: list[tuple[int, Fault]] = [
            (3, self.delays),
            (6, self.cut),
            (6, self.held_requests),
            (6, self.held_answers),
            (1, self.mirror_clock_jump),
            (1, self.target_clock_jump),
            (1, self.stopped_process),
            (4, self.task_killed),
            (4, self.task_put_to_sleep),
            (2, self.crash),
            (4, self.target_crash),
            (1, self.power_cut),
            (2, self.target_power_cut),
            (1, self.slow_disk),
            (2, self.target_slow_disk),
            (1, self.target_full_disk),
            (1, self.target_failed_sync),
            (2, self.target_unplugged_while_it_writes),
            (1, self.both_crash),
            (1, self.target_no_descriptors),
        ]
        self._kinds = [fault for weight, fault in kinds for _ in range(weight)]

    async def run(self) -> None:
        self.world.target.on_send = self.perhaps_hold
        await super().run()

    async def heal(self) -> None:
        await super().heal()
        await self._there.heal()
        await self._keeper.heal()

    async def mirror_clock_jump(self) -> None:
        """Set the wall clock of the source and of all clients; the target has a clock of its own."""
        self.world.clock.jump_wall(self.rng.choice(JUMPS_MS))

    async def target_clock_jump(self) -> None:
        self.world.target.clock.jump_wall(self.rng.choice(JUMPS_MS))

    async def task_killed(self) -> None:
        await self._keeper.kill()

    async def task_put_to_sleep(self) -> None:
        await self._keeper.put_to_sleep()

    async def target_crash(self) -> None:
        await self._there.crash()

    async def target_power_cut(self) -> None:
        await self._there.power_cut()

    async def target_slow_disk(self) -> None:
        await self._there.slow_disk()

    async def target_full_disk(self) -> None:
        await self._there.full_disk()

    async def target_failed_sync(self) -> None:
        await self._there.failed_sync()

    async def target_unplugged_while_it_writes(self) -> None:
        await self._there.unplugged_while_it_writes()

    async def target_no_descriptors(self) -> None:
        await self._there.no_descriptors()

    async def both_crash(self) -> None:
        await asyncio.gather(self.crash(), self._there.crash())


async def play_mirror(world: MirroredWorld, seconds: float) -> dict[str, int]:
    """Run a whole simulation. Returns which faults struck how often, and what a mirror did."""
    for side in world.sides.values():
        await side.start()
    await _make_topics(world)
    keeper = TaskKeeper(world)
    mover = Mover(world, seconds) if world.mirror.cuts_over else None
    faults = MirrorFaults(world, keeper)
    clients = [*_clients_of(world, seconds), keeper, *([mover] if mover else [])]
    await work_under(faults, world, clients, seconds)
    await keeper.heal()
    if mover is not None and not await mover.finish():
        world.failures.append("no cutover succeeds")
    await _drained(world)
    await keeper.end()
    if world.rng("end").random() < 0.5:
        for side in world.sides.values():
            await side.restart(power=True)
    await _look(world)
    return faults.struck | world.met


def _clients_of(world: MirroredWorld, seconds: float) -> list[Any]:
    def scripted(name: str, tv: int) -> Supervisor:
        return Supervisor(world, name, tv, lambda number, tv: Incarnation(world, name, number, tv, ORDERS))

    def sdk(name: str, tv: int) -> Supervisor:
        return Supervisor(
            world, name, tv, lambda number, tv: SdkIncarnation(world, name, number, tv, ORDERS), (4.0, 20.0)
        )

    def goods(name: str, *, plain: bool = False) -> Supervisor:
        return Supervisor(world, name, 2, lambda number, _: GoodsWriter(world, name, number, plain=plain), (4.0, 15.0))

    clients = [scripted("tx0", 1), scripted("tx1", 2), sdk("sdk0", 1 + world.seed % 2)]
    clients += [goods("goods0"), goods("goods1"), goods("goods-plain", plain=True)]
    if world.mirror.cuts_over:
        clients.append(Committer(world))
    if world.mirror.trims:
        clients.append(MirroredTrimmer(world))
    if world.mirror.grows:
        clients.append(Grower(world, seconds))
    return clients


async def _make_topics(world: MirroredWorld) -> None:
    caller, rng = Caller(world, "admin"), world.rng("topics")
    for topic, count in TOPICS.items():
        configs = world.schedule.topic_configs | {"max_message_bytes": MAX_MESSAGE_BYTES, "retention_ms": -1}
        if rng.random() < 0.3:
            configs["message_timestamp_type"] = "LogAppendTime"
        made = (await caller.ask(create(topic, count, **configs))).topics[0]
        assert made.error_code == 0, made
    if not world.mirror.may_divide:
        world.history.invoke("scenario", Whole()).ok()


async def _drained(world: MirroredWorld) -> None:
    """Wait, within limits, until the mirror's positions are at the source's ends. Whether they are is checked later."""
    ends = {place: (await log_of(world, SOURCE, place)) for place in world.places}
    until = world.loop.time() + DRAINED_S
    while world.loop.time() < until:
        positions = await positions_of(world, MIRROR, world.places)
        if all(op is not None and positions[place] >= op.result.end for place, op in ends.items()):
            return
        await asyncio.sleep(0.2)


async def _look(world: MirroredWorld) -> None:
    for place in ORDERS:
        reader = Reader(world, f"final {place}", place, True)
        offset = 0
        while True:
            seen = await reader.read(offset, client="final")
            if seen is not None:
                if seen.next_offset >= seen.last_stable or seen.next_offset == offset:
                    break
                offset = seen.next_offset
            else:
                offset = max(offset, reader.next_offset)
    for side in world.sides:
        for place in world.places:
            op = await log_of(world, side, place)
            assert op is not None
            world.met[f"{side}: records"] += len(op.result.copies)
    await map_of(world, MIRROR, world.places)
    await write_positions_down(world, MIRROR, world.places)
    if any(world.history.of(CutOver)):
        await write_groups_down(world, [TXN_GROUP, *PLAIN_GROUPS], world.places)
