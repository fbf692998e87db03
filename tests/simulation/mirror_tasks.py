"""The tasks of a mirror, and cutovers, as processes: the product's own code, killed, put to sleep and begun anew.

A task that is put to sleep for longer than its session lasts is a zombie when it wakes: its partitions are another's,
and what it was about to send leaves then. Each has a name that no other has, as the command gives it.
"""

import asyncio
from contextvars import Context
from typing import Any

from fencepost.client.admin.admin import Admin
from fencepost.client.config_names import part_for
from fencepost.client.errors import BrokerUnreachableError, KafkaError, is_retriable
from fencepost.client.mirror.cutover.looking import Looking
from fencepost.client.mirror.cutover.running import CutoverFailed, Overtaken, cut_over
from fencepost.client.mirror.cutover.sides import AdminSides
from fencepost.client.mirror.task import MirrorTask
from fencepost.client.producer.producer import Producer
from fencepost.client.settings import AdminSettings, ProducerSettings
from fencepost.effects.simulated.net import SimulatedConnection
from fencepost.effects.simulated.transport import SimulatedTransport
from fencepost.protocol.messages.cluster import MetadataRequest
from fencepost.protocol.messages.produce import ProduceRequest
from fencepost.protocol.messages.transactions import (
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)
from fencepost.protocol.schema import schema_of
from simulation.mirror_rules import CutOver, Moved, Stopped
from simulation.mirrored_world import MirroredWorld
from simulation.sdk_clients import LAST_WORD_S, LosesEnds, SdkClient
from simulation.world import NEWER

MIRROR = "m"
PATTERN = "orders|goods"
GROUPS = "group-.*"
PATIENT = {"request.timeout.ms": 1_500, "retry.backoff.ms": 60, "retry.backoff.max.ms": 600}
CUTOVER_WAITS_S = 20.0
WAIT_S = 0.1
LATEST_S = 6.0  # a commit of a group that was on its way has arrived by then, or never will
CALM_S = 2.0  # a task goes on for up to so long before it is struck again
KINDS = ("killed", "asleep", "asleep", "request lost", "answer lost", "answer late")
ASLEEP = ("asleep", "asleep", "asleep")  # more often before the positions leave, as a zombie's are refused
BEFORE = {schema_of(request).api for request in (MetadataRequest, ProduceRequest)}  # a cycle begins with the former
STRUCK = [
    schema_of(request).api
    for request in (
        MetadataRequest,
        InitProducerIdRequest,
        ProduceRequest,
        TxnOffsetCommitRequest,
        EndTxnRequest,
    )
]


class MirrorProcess(LosesEnds):
    """A process that runs one task, until it is stopped or killed."""

    world: MirroredWorld

    def __init__(self, world: MirroredWorld, number: int) -> None:
        super().__init__(world, f"task-{number}", ())
        self._strikes = world.rng(f"strikes {self.name}")
        self._arm()
        self.task: MirrorTask | None = None
        self._life: asyncio.Task[None] | None = None
        self.is_ending = self.is_over = False

    def start(self) -> None:
        self._life = self._process.start(self.live())

    async def live(self) -> None:
        """Run the task. If it ends because a broker cannot be reached, run another one."""
        chosen = self.world.mirror
        target: dict[str, Any] = {
            "bootstrap.servers": self.world.target.bootstrap,
            "transaction.timeout.ms": chosen.transaction_ms,
            "delivery.timeout.ms": chosen.delivery_ms,
            "max.block.ms": int(self._patience_s * 1000),
            "metadata.max.age.ms": 2_000,
            **PATIENT,
        }
        if chosen.protocol == NEWER:
            target["group.protocol"] = NEWER
        else:
            target |= {"session.timeout.ms": chosen.session_ms, "heartbeat.interval.ms": chosen.session_ms // 4}
        source = {"bootstrap.servers": self.world.bootstrap, **PATIENT}
        try:
            for attempt in range(1_000):
                self.task = MirrorTask(
                    source,
                    target,
                    mirror=MIRROR,
                    topics=PATTERN,
                    task=f"{self.name}.{attempt}",
                    environment=self._environment,
                    follow_ms=chosen.follow_ms,
                )
                try:
                    await self.task.run()
                    return  # all of its topics have stopped
                except KafkaError as error:
                    self._take_counts()
                    if not (is_retriable(error) or isinstance(error, BrokerUnreachableError)):
                        self.world.failures.append(f"{self.name} ends: {error!r}")
                        return
                await asyncio.sleep(WAIT_S)
        finally:
            self._take_counts()
            self.is_over = True

    def _take_counts(self) -> None:
        task, self.task = self.task, None
        if task is None:
            return
        counts, met = task.counts, self.world.met
        for name in ("records", "cycles", "divided", "doubts"):
            met[f"mirror: {name}"] += getattr(counts, name)
        for topic, why in counts.stopped.items():
            self.history.invoke(self.name, Stopped(topic, str(why))).ok()

    def _arm(self) -> None:
        """Choose an API, and the time from which on its next request is struck: so rare requests are struck as often as
        others.
        """
        self._armed_s = self.world.loop.time() + self._strikes.uniform(0.0, CALM_S)
        self._api = self._strikes.choice(STRUCK)

    def on_send(self, transport: SimulatedTransport, keys: list[int]) -> None:
        super().on_send(transport, keys)
        now = self.world.loop.time()
        if now >= self._armed_s + CALM_S:
            self._arm()  # there was no such request
        if self._api in keys and now >= self._armed_s and not (self.world.over or self.is_over):
            self._arm()
            name = self._strikes.choice(KINDS + ASLEEP * (not BEFORE.isdisjoint(keys)))
            self.world.met[f"mirror: {name}"] += 1
            self._strike(name, next(each for each in self._host.connections if each.client is transport))

    def _strike(self, name: str, connection: SimulatedConnection) -> None:
        """Let this fault strike the task in the middle of a cycle, as it sends a request on this connection."""
        rng, loop = self._strikes, self.world.loop
        soon_s = rng.choice((0.0, 0.0, 0.001, 0.005))
        if name == "killed":
            loop.call_later(soon_s, self.kill, context=Context())
        elif name == "asleep":
            loop.call_later(soon_s, self.sleep, context=Context())
        elif name == "request lost":
            connection.cut()
        elif name == "answer lost":
            connection.cut_after("client", rng.randint(0, 40))
        else:
            connection.to_client.hold()
            loop.call_later(rng.uniform(0.5, 4.0), connection.release, context=Context())

    def sleep(self) -> None:
        """Stop the process (SIGSTOP), and let it go on later (SIGCONT): before its session is over, or long
        after that.
        """
        if not (self.is_over or self.is_ending or self.stands_still or self.world.over):
            self._process.stand_still()
            session_s = self.world.mirror.session_ms / 1000
            self.world.loop.call_later(
                self._strikes.choice((0.3, 2.0, 2.0, 3.0)) * session_s, self.go_on, context=Context()
            )

    @property
    def stands_still(self) -> bool:
        return self._process.stands_still

    def go_on(self) -> None:
        self._process.go_on()

    async def stop(self) -> None:
        """End the process in an orderly way, as Ctrl-C does."""
        assert self._life is not None
        self.is_ending = True
        self.go_on()
        self._life.cancel()
        await asyncio.wait([self._life], timeout=LAST_WORD_S)
        if not self.is_over:
            self.world.failures.append(f"{self.name}: does not end")

    def kill(self) -> None:
        if self.is_over:
            return
        if self.task is not None:
            self.clients += [self.task._source_admin, self.task._target_admin]
            if self.task._producer is not None:
                self.clients.append(self.task._producer)
        self._take_counts()
        self.is_over = True
        super().kill()


class TaskKeeper:
    """Keeps some tasks going until the world is over, and those that are there then until the mirror has drained."""

    def __init__(self, world: MirroredWorld) -> None:
        self.world = world
        self.rng = world.rng("task keeper")
        self.tasks: list[MirrorProcess] = []
        self._begun = 0

    async def run(self) -> None:
        while not self.world.over:
            self.tasks = [each for each in self.tasks if not each.is_over]
            if len(self.tasks) < self.world.mirror.most_tasks and (not self.tasks or self.rng.random() < 0.5):
                self.begin()
            elif self.tasks and self.rng.random() < 0.1:
                await self.rng.choice(self.tasks).stop()
            await asyncio.sleep(self.rng.uniform(0.1, 1.0))

    def begin(self) -> None:
        self._begun += 1
        process = MirrorProcess(self.world, self._begun)
        self.tasks.append(process)
        process.start()

    async def kill(self) -> None:
        """Kill one of the tasks (SIGKILL), if there is one."""
        if alive := [each for each in self.tasks if not each.is_over]:
            self.rng.choice(alive).kill()

    async def put_to_sleep(self) -> None:
        if awake := [each for each in self.tasks if not (each.is_over or each.is_ending or each.stands_still)]:
            self.rng.choice(awake).sleep()

    async def heal(self) -> None:
        """Let all tasks go on, and begin one if there is none."""
        for each in self.tasks:
            each.go_on()
        self.tasks = [each for each in self.tasks if not each.is_over]
        if not self.tasks:
            self.begin()

    async def end(self) -> None:
        for each in self.tasks:
            if not each.is_over:
                await each.stop()


class CutoverProcess(SdkClient):
    """One run of the command that moves the groups. moved: whether they are."""

    world: MirroredWorld

    def __init__(self, world: MirroredWorld, number: int) -> None:
        super().__init__(world, f"cutover-{number}", ())
        self.moved = False

    async def live(self) -> None:
        source, target = (
            {"bootstrap.servers": side.bootstrap, "client.id": self.name, **PATIENT}
            for side in self.world.sides.values()
        )
        admins = [
            Admin.from_config(part_for(AdminSettings, config), environment=self._environment)
            for config in (source, target)
        ]
        self.clients += admins
        op = self.history.invoke(self.name, CutOver())
        for admin in admins:
            await admin.start()

        def producer(transactional_id: str) -> Producer:
            settings = part_for(ProducerSettings, target) | {
                "transactional.id": transactional_id,
                "max.block.ms": 10_000,
            }
            made = Producer.from_config(settings, environment=self._environment)
            self.clients.append(made)
            return made

        sides = AdminSides(Looking(*admins, MIRROR, GROUPS), producer, wait_s=CUTOVER_WAITS_S)
        try:
            record = await cut_over(sides, lambda line: None)
        except (CutoverFailed, Overtaken, KafkaError) as error:
            now = getattr(error, "now", "overtaken" if isinstance(error, Overtaken) else "away")
            self.world.met[f"cutover: {now}"] += 1
            op.info()
            return
        finally:
            await sides.close()
        self.world.met["cutover: done"] += 1
        self.moved = True
        op.ok(
            Moved(
                tuple((tuple(tp), end) for tp, end in sorted(record.ends.items())),
                tuple(
                    (group, tuple(tp), each.source)
                    for group, carried in sorted(record.groups.items())
                    for tp, each in sorted(carried.items())
                ),
            )
        )


class Mover:
    """In some seeds, moves the groups: runs that are killed or overtaken, and again, until one has done it."""

    def __init__(self, world: MirroredWorld, seconds: float) -> None:
        self.world = world
        self.rng = world.rng("mover")
        self._begins_s = self.rng.uniform(0.2, 0.7) * seconds
        self._begun = 0

    async def run(self) -> None:
        await asyncio.sleep(self._begins_s)
        self.world.is_moving = True
        await asyncio.sleep(LATEST_S)
        while not self.world.over:
            one = self._next()
            one.vanishing = 0.5
            runs = [one]
            if self.rng.random() < 0.2:
                runs.append(self._next())
            await asyncio.gather(*(each.run() for each in runs))
            if any(each.moved for each in runs) and self.rng.random() < 0.7:
                return
            await asyncio.sleep(self.rng.uniform(0.1, 1.0))

    def _next(self) -> CutoverProcess:
        self._begun += 1
        return CutoverProcess(self.world, self._begun)

    async def finish(self) -> bool:
        """Only to be called after the last fault has ended: run the cutover, at most twice. Returns whether it moved
        the groups.
        """
        for _ in range(2):
            one = self._next()
            one.vanishing = 0.0
            await one.run()
            if one.moved:
                return True
        return False
