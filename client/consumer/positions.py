"""Finding where to begin: the group's committed offsets, or an end of the log.

The rule: a partition is not read before its position is known, and one in doubt comes from the committed offsets, read
when no transaction holds them (require_stable), never from memory. It runs beside the reader, which is woken when
something was found; what cannot be found is told at the next read. Source: Kafka's Fetcher.resetOffsetsIfNeeded.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...protocol.errors import KafkaError
from ..errors import NoOffsetError, is_retriable
from ..group.subscription import EARLIEST, LATEST, Need, PartitionState, Subscription
from ..net.cluster import Cluster
from ..settings import ConsumerSettings
from ..values import TopicPartition
from .list_offsets import READ_COMMITTED, READ_UNCOMMITTED, list_offsets

if TYPE_CHECKING:
    from ..group.group import Group

log = logging.getLogger("fencepost.client")
RESETS = {"earliest": EARLIEST, "latest": LATEST}


class Positions:
    """found is called when there is something new to read or to be told."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerSettings,
        subscription: Subscription,
        group: "Group | None",
        found: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._subscription = subscription
        self._group = group
        self._found = found
        self._task: asyncio.Task[None] | None = None
        self._failure: Exception | None = None
        self.isolation = READ_COMMITTED if settings.isolation_level == "read_committed" else READ_UNCOMMITTED
        self.policy: int | None = RESETS.get(settings.auto_offset_reset or "none")

    def find(self) -> None:
        """Look for what is missing, if nobody does so yet. Raises what the last search could not get over."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        attempt = 0
        try:
            while self._missing():
                try:
                    await self._once()
                    attempt = 0
                except KafkaError as error:
                    if not is_retriable(error):
                        self._failure = error
                        return
                    log.info("positions are not known yet: %s", error)
                pause_ms = self._cluster.backoff.delay_ms(attempt, self._cluster.environment.rng.random())
                attempt += 1
                self._found()
                if self._missing():
                    await asyncio.sleep(pause_ms / 1000)
        except Exception as error:  # a bug, which whoever reads is to see
            self._failure = error
        finally:
            self._task = None
            self._found()

    def _missing(self) -> bool:
        states = self._subscription.assigned.values()
        return any(state.need is not Need.NOTHING and state.refused is None for state in states)

    async def _once(self) -> None:
        now_ms = self._cluster.environment.clock.monotonic_ms()
        await self._committed(self._subscription.needing(Need.COMMITTED, now_ms))
        await self._listed(self._subscription.needing(Need.OFFSET, now_ms))

    async def _committed(self, states: list[PartitionState]) -> None:
        if not states:
            return
        asked = {state.tp: (state, state.epoch) for state in states}
        offsets = {}
        if self._group is not None:
            timeout_ms = self._settings.default_api_timeout_ms
            offsets = await self._group.committed(list(asked), require_stable=True, timeout_ms=timeout_ms)
        for tp, (state, epoch) in asked.items():
            if state.epoch != epoch or not self._subscription.is_current(state):
                continue
            found = offsets.get(tp)
            if found is not None and found.offset >= 0:
                state.move(found.offset, found.leader_epoch)
            elif state.fallback is not None:
                state.move(state.fallback)
            else:
                self._by_policy(state)

    def _by_policy(self, state: PartitionState) -> None:
        if self.policy is not None:
            state.ask(Need.OFFSET, self.policy)
            return
        group = "" if self._group is None else f" in group {self._settings.group_id}"
        state.refused = NoOffsetError(f"{state.tp} has no committed offset{group}, and auto_offset_reset is none")

    async def _listed(self, states: list[PartitionState]) -> None:
        if not states:
            return
        asked: dict[TopicPartition, int] = {state.tp: state.reset_to for state in states}
        epochs = {state.tp: state.epoch for state in states}
        timeout_ms = self._settings.request_timeout_ms
        listed = await list_offsets(self._cluster, asked, self.isolation, timeout_ms=timeout_ms)
        for state in states:
            if state.epoch == epochs[state.tp] and self._subscription.is_current(state):
                state.move(listed[state.tp].offset)
