"""How the brokers of one seed are set: when housekeeping, segments, caches and executors do what; the seed decides.

A broker as it is shipped flushes every two seconds and checkpoints every ten, always in that order and far apart. What
breaks between a flush, a checkpoint and a marker is met only where each of them may come at any time.
"""

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

from fencepost.broker.upkeep import housekeeping
from fencepost.client.consumer import fetcher
from simulation.limits import Limits

AS_SHIPPED, FAST_READS, FOLLOWED = 0.25, 0.4, 0.3  # shares of the seeds


@dataclass(frozen=True)
class Schedule:
    """How the brokers of one seed are set. Times are in seconds unless they say ms; shares from 0 to 1."""

    flush_after_ms: int = housekeeping.FLUSH_AFTER_MS
    flush_at_bytes: int = housekeeping.FLUSH_AT_BYTES
    tick_s: float = housekeeping.TICK_S
    checkpoint_interval_ms: int = 3_000
    segment_ms: int = 5_000
    batches_a_segment: int = 0  # 0: as many as fit
    cold: float = 0.0  # share of files that are not in memory whenever they are asked about
    reads_s: tuple[float, ...] = (0.001,)  # how long a job of the reads executor may take
    kills: int = 4  # weight among the faults
    forgets_indexes: bool = False  # whatever was loaded of indexes, at random moments
    limits: Limits = field(default_factory=Limits)
    late_end_txns: float = 0.06  # share of the EndTxn requests that stay on the way
    has_follower: bool = False  # the SDK's clients see one
    assignment_interval_ms: int = 1_000  # between two assignments of a group whose broker assigns
    leader_only_ms: int = fetcher._LEADER_ONLY_MS  # for so long its consumers do not go back to it; over one fetch wait

    @classmethod
    def of(cls, seed: int) -> "Schedule":
        rng = random.Random(f"{seed} follower")
        has_follower, leader_only_ms = rng.random() < FOLLOWED, rng.choice((1_000, 2_000, fetcher._LEADER_ONLY_MS))
        interval_ms = random.Random(f"{seed} assignments").choice((0, 100, 1_000))
        followed = {"has_follower": True, "leader_only_ms": leader_only_ms} if has_follower else {}
        return replace(cls._of(seed), limits=Limits.of(seed), assignment_interval_ms=interval_ms, **followed)

    @classmethod
    def _of(cls, seed: int) -> "Schedule":
        rng = random.Random(f"{seed} schedule")
        if rng.random() < AS_SHIPPED:
            return cls()
        fast = rng.random() < FAST_READS
        return cls(
            flush_after_ms=rng.choice((20, 100, 400, 2_000)),
            flush_at_bytes=rng.choice((1, 2_000, 100_000, *(housekeeping.FLUSH_AT_BYTES,) * 3)),
            tick_s=rng.choice((0.01, 0.03, 0.1)),
            checkpoint_interval_ms=rng.choice((100, 200, 700, 3_000)),
            segment_ms=rng.choice((100, 1_000, 5_000)),
            batches_a_segment=rng.choice((0, 1, 3, 8)),
            cold=0.0 if fast else rng.choice((0.2, 1.0)),
            reads_s=(0.001,) if fast else rng.choice(((0.001, 0.05), (0.001, 0.3, 2.0), (0.001, 3.0, 20.0))),
            kills=rng.choice((4, 4, 16)),
            forgets_indexes=rng.random() < 0.5,
            late_end_txns=rng.choice((0.06, 0.06, 0.06, 0.5)),
        )

    @property
    def settings(self) -> dict[str, Any]:
        """The broker's settings of this schedule."""
        return {
            "log_checkpoint_interval_ms": self.checkpoint_interval_ms,
            "group_consumer_assignment_interval_ms": self.assignment_interval_ms,
            **self.limits.settings,
        }

    @property
    def topic_configs(self) -> dict[str, object]:
        """Configs for all topics. With index_interval_bytes 0 each batch has an entry of 8 bytes in the index, and a
        segment is closed when its index is full.
        """
        configs: dict[str, object] = {"segment_ms": self.segment_ms}
        if self.batches_a_segment:
            configs |= {"index_interval_bytes": 0, "segment_index_bytes": 8 * self.batches_a_segment}
        return configs

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Within the block, patch the constants that are no settings, for all brokers of this process."""
        constants = {
            "FLUSH_AFTER_MS": self.flush_after_ms,
            "FLUSH_AT_BYTES": self.flush_at_bytes,
            "TICK_S": self.tick_s,
        }
        with ExitStack() as stack:
            for name, value in constants.items():
                stack.enter_context(mock.patch.object(housekeeping, name, value))
            stack.enter_context(mock.patch.object(fetcher, "_LEADER_ONLY_MS", self.leader_only_ms))
            yield
