"""A random model of Spark around the steps of a sink: drivers and tasks run, fail, are killed, and wake up late.

The model keeps Spark's promises: the rows of a batch are stored before the batch runs, that a batch is done is stored
after its commit has returned, and nothing else survives a driver. A batch that is run again may have another number of
tasks. Each request or its answer may be lost, and a request may arrive long after its sender was killed. Every choice
comes from one seed. `shortcut` names a rule of the protocol that is left out, to show what the rule is for.
"""

import itertools
import random
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

from fake_ledger import PREFIX, FakeBroker, RealBroker
from fencepost.client.errors import ClientError, KafkaError
from fencepost.protocol.errors import ErrorCode
from fencepost.spark.sink import left_open, protocol
from fencepost.spark.sink.protocol import (
    Abort,
    BatchRefusedError,
    Begin,
    Limits,
    Prepare,
    SinkBatch,
    SinkConflictError,
    TaskDone,
    Write,
)

LIMITS = Limits(PREFIX, 900_000, 3_600_000)
MAX_ATTEMPTS = 3
IDLE = "idle"  # an actor that has nothing to ask just now


class TaskFailed(Exception):
    """Raised as Spark sees a failed task."""


@dataclass
class Checkpoint:
    """What is on disk: the plan of each batch, and which are done."""

    owner: str
    plans: dict[int, list[bytes]] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)

    def copy(self) -> "Checkpoint":
        return Checkpoint(self.owner, dict(self.plans), set(self.done))

    def digest(self, number: int) -> bytes:
        return b"t" * 32 + b"".join(self.plans[number])[:32].ljust(32, b".")


@dataclass
class Job:
    """The tasks of one attempt at a batch."""

    parts: list[list[bytes]]
    messages: list[TaskDone | None]
    attempts: list[int]
    running: list[int]
    failed: bool = False


class World:
    """A broker, one sink, and the actors (drivers and tasks) that run against it. One seed makes all choices."""

    def __init__(self, broker: FakeBroker | RealBroker, seed: int, shortcut: str = "", name: str = "s") -> None:
        self.broker = broker
        self.rng = random.Random(seed)
        self.shortcut = shortcut
        self.sink = name
        self.budget = self.rng.randint(0, 12)  # how many faults may still happen
        self.actors: list[Any] = []
        self.late: list[Any] = []  # requests on their way whose senders were killed
        self.refusals = 0
        self.conflicts: list[SinkConflictError] = []
        self.finished = 0  # drivers that ran to their end
        self._names = itertools.count()

    def chance(self, share: float) -> bool:
        """Return whether a fault happens now, at random. share: its probability."""
        if self.budget and self.rng.random() < share:
            self.budget -= 1
            return True
        return False

    # ---- actors ------------------------------------------------------------------------------------------------

    def start(self, steps: Generator[Any, Any, Any]) -> "Actor":
        actor = Actor(self, steps)
        self.actors.append(actor)
        return actor

    def turn(self) -> None:
        """Let one actor make a step; before that, an abandoned request may arrive, and time may pass."""
        if self.late and self.rng.random() < 0.1:
            self.late.pop(self.rng.randrange(len(self.late)))()
        if self.chance(0.01):
            self.broker.advance(self.rng.choice((1_000, 301_000, 901_000)))
        self.rng.choice(self.actors).turn()
        self.actors = [actor for actor in self.actors if not actor.ended]

    def perform(self, step: Any, actor: "Actor") -> Any:
        """Carry out a step at the broker, and return its result, whose type depends on the step. Raises TaskFailed
        where a task's client would raise.
        """
        broker = self.broker
        if isinstance(step, Begin):
            actor.written = broker.begin(step.transactional_id, step.timeout_ms)
            actor.prepare = step.prepare
            return actor.written
        if isinstance(step, Write):
            if self.chance(0.03):  # the transaction has become so old that it is prepared before this write
                self.perform(actor.prepare, actor)
                return None
            if broker.write(actor.written, step.rows):
                raise TaskFailed
            return len(step.rows)
        if isinstance(step, Prepare):
            if self.shortcut == "commit inside write":
                code = broker.end(actor.written, True)
            else:
                code = broker.prepare(actor.written, step.ledger_key, step.number, step.timeout_ms)
            if code not in (ErrorCode.NONE, ErrorCode.LEDGER_CONFLICT):  # CONFLICT: the driver learns the decision
                raise TaskFailed
            return None
        if isinstance(step, Abort):
            broker.end(actor.written, False)
            return None
        if isinstance(step, tuple):  # ("end", written, whether to commit)
            return broker.end(*step[1:])
        return broker.ask(step)

    # ---- a query -----------------------------------------------------------------------------------------------

    def plan(self, checkpoint: Checkpoint, number: int) -> list[bytes]:
        rows = [b"%s/%d/%d" % (checkpoint.owner.encode(), number, row) for row in range(self.rng.randint(0, 4))]
        return checkpoint.plans.setdefault(number, rows)

    def driver(self, checkpoint: Checkpoint, batches: int, *, writes: int = 1) -> Generator[Any, Any, None]:
        """Yield the steps of one start of a query. writes: how many writes its foreachBatch makes; 1: it has none."""
        run = f"r{next(self._names)}"
        while len(checkpoint.done) < batches:
            number = next(n for n in range(batches) if n not in checkpoint.done)
            rows = self.plan(checkpoint, number)
            for part in range(writes):
                own = rows if writes == 1 else [row + b"w%d" % part for row in rows or [b"x/%d/0" % number]]
                batch = SinkBatch(
                    self.sink, number, checkpoint.owner, f"a{next(self._names)}", run, is_shared=writes > 1
                )
                if not (yield from self._batch(self._shortened(batch), own, checkpoint.digest(number))):
                    return
            checkpoint.done.add(number)
        self.finished += 1

    def _shortened(self, batch: SinkBatch) -> SinkBatch:
        if self.shortcut == "number not checked":
            return batch._replace(sink=f"{batch.sink}/{batch.attempt}")
        if self.shortcut == "owner not checked":
            return batch._replace(owner="anybody")
        if self.shortcut == "writes not told apart":
            return batch._replace(is_shared=False)
        return batch

    def _batch(self, batch: SinkBatch, rows: list[bytes], digest: bytes) -> Generator[Any, Any, bool]:
        """Yield the driver's steps for one batch. Returns whether it was committed, as far as the driver knows."""
        if self.shortcut in ("digest not checked", "owner not checked"):
            digest = b"d"
        job = self._split(rows)
        for partition in range(len(job.parts)):
            self._launch(job, batch, partition)
        while any(message is None for message in job.messages):
            yield IDLE
            if job.failed:
                yield from self._abort(batch, job.messages)
                return False
            if self.chance(0.1):  # a second copy: of a slow task, or of one that was taken for lost
                self._launch(job, batch, self.rng.randrange(len(job.parts)))
        try:
            if self.shortcut == "no ledger":
                yield from self._end_each(job.messages)
            else:
                yield from self._decide(batch, job.messages, digest)
                yield from self._free(batch.sink, lambda number, _: number <= batch.number)
        except ClientError as error:
            self.refusals += isinstance(error, BatchRefusedError)
            if isinstance(error, SinkConflictError):
                self.conflicts.append(error)
            yield from self._abort(batch, job.messages)
            return False
        return True

    def _decide(self, batch: SinkBatch, messages: list[TaskDone | None], digest: bytes) -> Generator[Any, Any, None]:
        """Yield the steps of the writer's commit: if the decision is too large, first end earlier attempts."""
        try:
            yield from protocol.commit_steps(messages, digest)
        except ClientError as error:
            if not protocol.is_too_large(error) or self.shortcut == "earlier attempts are left":
                raise
            yield from self._free(batch.sink, left_open.others_than(batch))
            yield from protocol.commit_steps(messages, digest)

    def _end_each(self, messages: list[TaskDone | None]) -> Generator[Any, Any, None]:
        for message in messages:
            for written in message.transactions if message is not None else ():
                yield ("end", written, True)

    def _abort(self, batch: SinkBatch, messages: list[TaskDone | None]) -> Generator[Any, Any, None]:
        yield from self._free(batch.sink, left_open.failed_with(messages, batch.number))

    def _free(self, name: str, is_over: Callable[[int, str], bool]) -> Generator[Any, Any, None]:
        if self.shortcut != "what is open is left":
            for written in (yield from left_open.open_steps(PREFIX, name, is_over)):
                yield ("end", written, False)

    def _split(self, rows: list[bytes]) -> Job:
        count = self.rng.randint(1, 3)
        parts = [rows[index::count] for index in range(count)]
        return Job(parts, [None] * count, [0] * count, [0] * count)

    def _launch(self, job: Job, batch: SinkBatch, partition: int) -> None:
        job.attempts[partition] += 1
        job.running[partition] += 1
        actor = self.start(self._task(job, batch, partition, next(self._names)))
        actor.on_lost = lambda: self._failed(job, batch, partition)

    def _task(self, job: Job, batch: SinkBatch, partition: int, task: int) -> Generator[Any, Any, None]:
        """Yield the steps of one attempt of a task. At its end, as in Spark, the first message counts, and a failed
        task is tried again.
        """
        rows = [row + b"@" + batch.attempt.encode() for row in job.parts[partition]]
        pieces: Iterator[list[bytes]] = iter([rows[:1], rows[1:]] if len(rows) > 1 else [rows] if rows else [])
        if self.shortcut == "one id for each partition":
            batch, task = batch._replace(attempt="."), 0
        try:
            done = yield from protocol.task_steps(batch, partition, task, pieces, LIMITS, lambda: self.broker.now_ms)
        except TaskFailed:
            self._failed(job, batch, partition)
            return
        job.running[partition] -= 1
        if self.shortcut == "commit inside write":
            done = done._replace(transactions=())
        if job.messages[partition] is None:
            job.messages[partition] = done

    def _failed(self, job: Job, batch: SinkBatch, partition: int) -> None:
        job.running[partition] -= 1
        if job.messages[partition] is None and not job.running[partition]:
            if job.attempts[partition] < MAX_ATTEMPTS:
                self._launch(job, batch, partition)
            else:
                job.failed = True


class Actor:
    """A driver or a task: it carries out one of its steps in each turn."""

    def __init__(self, world: World, steps: Generator[Any, Any, Any]) -> None:
        self.world = world
        self.steps = steps
        self.written: Any = None
        self.prepare: Any = None
        self.ended = False
        self.asleep = 0
        self.on_lost: Callable[[], None] | None = None  # of a task
        self.step: Any = None
        self._go(None)

    def turn(self) -> None:
        world = self.world
        if self.ended:
            return
        if self.asleep:
            self.asleep -= 1
            return
        step = self.step
        if step is IDLE:
            self._go(None)
            return
        is_task = self.on_lost is not None
        if is_task and world.chance(0.02):
            self.die()
            return
        if world.chance(0.03):
            self.asleep = world.rng.randint(1, 200)
        if world.chance(0.03) and not isinstance(step, Write | Begin):  # the request is lost, and sent again
            return
        if world.chance(0.03):  # its sender is killed or gives up before it arrives
            ghost = Ghost(self.written, self.prepare)
            world.late.append(lambda: self._arrives(step, ghost))
            self.die() if not is_task else self.throw(TaskFailed())
            return
        try:
            answer = world.perform(step, self)
        except TaskFailed as error:
            self.throw(error)
            return
        if world.chance(0.05):  # the answer is lost
            if isinstance(step, Write | Begin | Abort):
                self.throw(TaskFailed())
            return
        self._go(answer)

    def _arrives(self, step: Any, ghost: "Ghost") -> None:
        try:
            self.world.perform(step, ghost)
        except (TaskFailed, KafkaError):
            pass

    def die(self) -> None:
        self.ended = True
        self.steps.close()
        if self.on_lost is not None:
            self.on_lost()

    def throw(self, error: Exception) -> None:
        try:
            self.step = self.steps.throw(error)
        except (StopIteration, TaskFailed):
            self.ended = True

    def _go(self, answer: Any) -> None:
        try:
            self.step = self.steps.send(answer)
        except StopIteration:
            self.ended = True


@dataclass
class Ghost:
    """In place of the sender of a request, if the sender was killed before the request arrived."""

    written: Any
    prepare: Any


def run(world: World, checkpoint: Checkpoint, batches: int = 3, *, turns: int = 6_000, writes: int = 1) -> bool:
    """Start one driver after the other until all batches are done, or four without a fault could not do them.
    Returns whether the checkpoint has all batches as done.
    """
    everything = set(range(batches))
    drivers: list[Actor] = []
    in_vain = 0
    for _ in range(turns):
        if all(driver.ended or driver.asleep for driver in drivers):  # one that sleeps counts as dead
            if (checkpoint.done >= everything and all(driver.ended for driver in drivers)) or in_vain == 4:
                break
            in_vain += not world.budget
            drivers.append(world.start(world.driver(checkpoint, batches, writes=writes)))
        elif world.chance(0.01):
            drivers[-1].die()
        if world.actors:
            world.turn()
    settle(world)
    return checkpoint.done >= everything


def settle(world: World) -> None:
    """Let all actors that are left finish, and all requests arrive."""
    world.budget = 0
    for _ in range(5_000):
        if not world.actors:
            break
        for actor in world.actors:
            actor.asleep = 0
        world.turn()
    for arrives in world.late:
        arrives()
    world.late.clear()
