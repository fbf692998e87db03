"""Two brokers for the tasks of a mirror, a source and a target: each with a disk of its own, on one network and clock.

The world itself is the source, so that the clients of other simulations write to it unchanged; its `target` is a world
as well. Neither asks for logins nor forgets by limits. What a mirror does in megabytes and minutes it does here in
less, where the seed says so: `MirrorSchedule`.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

from fencepost.broker.broker import Broker
from fencepost.client.admin import reading
from fencepost.client.mirror import ahead, offset_map, source, task, writing
from fencepost.effects.simulated.loop import SimulatedLoop
from fencepost.effects.simulated.net import SimulatedNet
from simulation.history import Place
from simulation.limits import Limits
from simulation.world import ADDRESS, CLASSIC, NEWER, OS_EVERY, World, settings

SOURCE, TARGET = "source", "target"
ADDRESSES = {SOURCE: "10.0.1.1", TARGET: "10.0.2.1"}
TARGET_SEEDS = 1 << 20  # so far are they from those of the source: another cluster id, other chance
CUTOVERS, TRIMS, GROWS = 0.4, 0.4, 0.3  # shares of the seeds
USUAL_MS = ahead.MAX_MS
ORDERS: list[Place] = [("orders", 0), ("orders", 1)]


@dataclass(frozen=True)
class MirrorSchedule:
    """How the mirror of one seed is set. Shares from 0 to 1."""

    cycle_bytes: int = task.CYCLE_BYTES
    most_ms: int = USUAL_MS  # for so long a record waits for a closed cut
    entry_runs: int = offset_map.FULL
    ahead_bytes: int = source.AHEAD_BYTES
    page_bytes: int = reading.FETCH_BYTES
    most_tasks: int = 2
    protocol: str = CLASSIC
    session_ms: int = 2_000
    transaction_ms: int = 300_000
    delivery_ms: int = 300_000
    follow_ms: int = 3_000
    cuts_over: bool = False
    trims: bool = False
    grows: bool = False

    @classmethod
    def of(cls, seed: int) -> "MirrorSchedule":
        rng = random.Random(f"{seed} mirror")
        return cls(
            cycle_bytes=rng.choice((600, 3_000, 20_000, cls.cycle_bytes)),
            most_ms=rng.choice((USUAL_MS, USUAL_MS, 300, 2_000)),
            entry_runs=rng.choice((1, 3, 20, cls.entry_runs)),
            ahead_bytes=rng.choice((500, 4_000, cls.ahead_bytes)),
            page_bytes=rng.choice((1, 2_000, cls.page_bytes)),
            most_tasks=rng.choice((1, 2, 3, 3)),
            protocol=rng.choice((CLASSIC, CLASSIC, NEWER)),
            session_ms=rng.choice((1_000, 2_000)),
            transaction_ms=rng.choice((4_000, 300_000)),
            delivery_ms=rng.choice((3_000, 10_000, 300_000)),
            follow_ms=rng.choice((500, 3_000)),
            cuts_over=rng.random() < CUTOVERS,
            trims=rng.random() < TRIMS,
            grows=rng.random() < GROWS,
        )

    @property
    def may_divide(self) -> bool:
        """Whether the mirror may divide a source's transaction. With the usual limit it may not: no history lasts that
        long.
        """
        return self.most_ms < USUAL_MS

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Within the block, patch the constants that are no settings, for all tasks of this process."""
        least_bytes = min(task.LEAST_CYCLE_BYTES, self.cycle_bytes // 4)
        constants: list[tuple[Any, str, int]] = [
            (task, "CYCLE_BYTES", self.cycle_bytes),
            (task, "LEAST_CYCLE_BYTES", least_bytes),
            (ahead, "MAX_MS", self.most_ms),
            (offset_map, "FULL", self.entry_runs),
            (writing, "FULL", self.entry_runs),
            (source, "AHEAD_BYTES", self.ahead_bytes),
            (source, "LEAST_AHEAD_BYTES", min(source.LEAST_AHEAD_BYTES, self.ahead_bytes)),
            (reading, "FETCH_BYTES", self.page_bytes),
        ]
        with ExitStack() as stack:
            for module, name, value in constants:
                stack.enter_context(mock.patch.object(module, name, value))
            yield


class MirroredWorld(World):
    """The source of a mirror, and its target."""

    def __init__(self, seed: int, loop: SimulatedLoop, prepare: Callable[[Broker], None] = lambda broker: None) -> None:
        super().__init__(seed, loop, prepare)
        self.mirror = MirrorSchedule.of(seed)
        self.target = World(seed + TARGET_SEEDS, loop, prepare)
        loop.set_exception_handler(self._complained)
        self.goods: list[Place] = [("goods", 0), ("goods", 1)]  # one more, once the topic has grown
        self.is_moving = False  # a cutover has begun, or is about to: groups commit nothing any more
        for name, side in self.sides.items():
            _settle(side, name, self.net)
        for name in ("failures", "errors", "met", "killed"):
            setattr(self.target, name, getattr(self, name))

    @property
    def places(self) -> list[Place]:
        """The partitions that are mirrored."""
        return [*ORDERS, *self.goods]

    @property
    def sides(self) -> dict[str, World]:
        return {SOURCE: self, TARGET: self.target}

    @contextmanager
    def in_force(self) -> Iterator[None]:
        with super().in_force(), self.mirror.in_force():
            yield

    def end(self) -> None:
        super().end()
        self.target.end()

    def bury(self) -> None:
        self.target.history.closed = True
        super().bury()


def _settle(side: World, name: str, net: SimulatedNet) -> None:
    """Give a side its address in the common network, no logins and no limits."""
    side.address = ADDRESSES[name]
    side.net, side.network = net, net.network
    side.is_guarded = False
    side.schedule = replace(side.schedule, has_follower=False, limits=Limits())
    at = f"{side.address}:{ADDRESS[1]}"
    mode = "fsync" if side.seed % OS_EVERY else "os"
    side.settings = settings(durability_mode=mode, **side.schedule.settings, listeners=(at,))
    side.bootstrap = at
