"""In each tenth seed: an outsider in the file system, and an admin who asks for more settings than anybody needs.

The outsider renames the data directory and puts another one in its place, as `mv` and `restore` do; a while later it is
back. In between nobody may serve from the one that is away, and what is in its place stays as it is: the broker notices
at some moment and halts, or the directory is back before. Clients notice a restart.

The admin's changes are answered, refused or of unknown outcome. Brokers are killed all the time, and each that begins
has to show what was answered, and nothing that was refused.
"""

import asyncio

from fencepost.effects.disk import AlreadyLocked
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.configs import DescribeConfigsRequest, IncrementalAlterConfigsRequest
from simulation.lines import Caller, Unanswered
from simulation.world import World

EVERY, FIRST = 10, 5  # seeds
ASIDE = "/moved-aside"
STEP_S = 0.05

TOPIC, BROKER = 2, 4
SET, APPEND = 0, 2
LONGEST_BYTES = 32_767  # of a value
REPLICAS = "leader.replication.throttled.replicas"
KEPT = (
    (TOPIC, "heavy", REPLICAS, APPEND),
    (BROKER, "", "sasl.kerberos.service.name", SET),
    (BROKER, "", "nobody.knows.this", SET),
)


def has_strangers(world: World) -> bool:
    return world.seed % EVERY == FIRST


class Outsider:
    """Another process on the same volume, which no broker knows of."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = world.rng("outsider")
        self._directory = f"/{world.settings.log_dir}"

    async def run(self) -> None:
        while not self.world.over:
            await asyncio.sleep(self.rng.uniform(1.0, 5.0))
            if not self.world.over and self.world.is_serving:
                await self._move(self.rng.choice((0.0, 0.1, 0.5, 2.0)))

    async def _move(self, wait_s: float) -> None:
        world, disk = self.world, self.world.disk.beside()
        disk.rename(self._directory, ASIDE)
        disk.make_directory(self._directory)
        disk.sync_directory("/")
        world.is_moved = True
        try:
            disk.lock(f"{ASIDE}/lock")
            world.failures.append("a second broker may begin on a directory that was moved")
        except AlreadyLocked:
            world.met["outsider: locked out"] += 1
        lives = world.lives
        while wait_s > 0 and not world.over:
            await asyncio.sleep(STEP_S)
            wait_s -= STEP_S
        disk = world.disk.beside()  # that of another broker, perhaps
        if found := disk.list(self._directory):
            world.failures.append(f"written into a directory that took the place of the broker's: {found}")
        disk.remove_tree(self._directory)
        disk.rename(ASIDE, self._directory)
        disk.sync_directory("/")
        world.is_moved = False
        world.met["outsider: moved"] += 1
        world.met["outsider: halted"] += not world.is_serving or world.lives > lives


class Hoarder:
    """Changes settings that nobody obeys, and looks what is kept of them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = world.rng("hoarder")
        self.caller = Caller(world, "hoarder")
        self._may_be: dict[str, set[str]] = {name: {""} for _, _, name, _ in KEPT}

    async def run(self) -> None:
        while not self.world.over:
            await asyncio.sleep(self.rng.uniform(0.1, 0.8))
            kind, resource, name, verb = self.rng.choice(KEPT)
            try:
                await self._look(kind, resource, name)
                await self._change(kind, resource, name, verb)
            except Unanswered:
                continue

    async def _change(self, kind: int, resource: str, name: str, verb: int) -> None:
        count = self.rng.choice((1, 1, 10, 500, 4_000))
        text = ",".join(f"{self.rng.randrange(10_000)}:{number}" for number in range(count))
        before = self._may_be[name]
        after = {_joined(each, text) if verb == APPEND else text for each in before}
        self._may_be[name] = before | after
        entry = IncrementalAlterConfigsRequest.Resource.Config(name=name, config_operation=verb, value=text)
        asked = IncrementalAlterConfigsRequest.Resource(resource_type=kind, resource_name=resource, configs=[entry])
        (answer,) = (await self.caller.ask(IncrementalAlterConfigsRequest(resources=[asked]))).responses
        if answer.error_code == ErrorCode.NONE:
            self._may_be[name] = {each for each in after if len(each) <= LONGEST_BYTES}
            self.world.met["hoarder: kept"] += 1
        else:
            self._may_be[name] = before
            self.world.met["hoarder: refused"] += 1

    async def _look(self, kind: int, resource: str, name: str) -> None:
        asked = DescribeConfigsRequest.Resource(resource_type=kind, resource_name=resource, configuration_keys=[name])
        (answer,) = (await self.caller.ask(DescribeConfigsRequest(resources=[asked]))).results
        if answer.error_code:
            return
        shown = next((each.value or "" for each in answer.configs if each.name == name), "")
        if shown not in self._may_be[name]:
            ends = [f"{len(each)} bytes, {each[-20:]}" for each in (shown, *self._may_be[name])]
            self.world.failures.append(f"{name} is shown as {ends[0]}, and should be one of {ends[1:]}")
        self._may_be[name] = {shown}


def _joined(before: str, added: str) -> str:
    there = before.split(",") if before else []
    return ",".join([*there, *(each for each in added.split(",") if each not in set(there))])
