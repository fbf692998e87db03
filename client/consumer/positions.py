"""Looking up positions: the group's committed offsets, or an end of the log.

The rule: a partition is not read before its position is known. A doubtful position is looked up from the committed
offsets when no open transaction has pending ones (require_stable), never taken from memory. No partition waits for
another one. It runs in the background and wakes the reader; the next read raises its error.
Source: Kafka's Fetcher.resetOffsetsIfNeeded.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Protocol

from ...protocol.errors import KafkaError
from ..errors import NoOffsetError, is_retriable
from ..group.offsets import Committed
from ..group.subscription import EARLIEST, LATEST, Need, PartitionState, Subscription
from ..net.cluster import Cluster
from ..settings import ConsumerSettings
from ..values import TopicPartition
from .list_offsets import READ_COMMITTED, READ_UNCOMMITTED, list_once

if TYPE_CHECKING:
    from ..group.group import Group

log = logging.getLogger("fencepost.client")
_Look = Callable[[list[PartitionState]], Awaitable[bool]]
WARN_AFTER_MS = 5_000
"""A transaction may end a moment later; after so long without a position the log says what it waits for."""
WARN_EVERY_MS = 60_000
NAMED = 5  # partitions in one message
RESETS = {"earliest": EARLIEST, "latest": LATEST}


class KeptPlaces(Protocol):
    """The places in a database (offsets, as `client/sql/keeping.py` keeps them) from which a consumer reads on."""

    async def find(self, states: Collection[PartitionState]) -> bool:
        """Set the positions of these partitions to their places. Returns whether any was found. Raises KafkaError."""
        ...

    async def close(self, timeout_ms: float) -> None:
        """Commit the group's offsets a last time."""
        ...


class Positions:
    """Looks up missing positions in the background. found: called when there is a position or an error."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerSettings,
        subscription: Subscription,
        group: "Group | None",
        found: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._clock = cluster.environment.clock
        self._settings = settings
        self._subscription = subscription
        self._group = group
        self._found = found
        self._tasks: dict[Need, asyncio.Task[None]] = {}
        self._failure: Exception | None = None
        self._warned_ms = -WARN_EVERY_MS
        self.isolation = READ_COMMITTED if settings.isolation_level == "read_committed" else READ_UNCOMMITTED
        self.policy: int | None = RESETS.get(settings.auto_offset_reset or "none")
        self.places: KeptPlaces | None = None  # a database that says where to read on, instead of the group

    def find(self) -> None:
        """Start looking up missing positions, unless that is running. Raises the error that ended the last lookup."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        self._begin(Need.COMMITTED, self._look_up_committed)
        self._begin(Need.OFFSET, self._look_up_ends)

    def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()

    def _begin(self, need: Need, look: _Look) -> None:
        """Start a task that looks up the positions with this need until none is missing, unless one is running."""
        if need not in self._tasks and self._missing(need):
            self._tasks[need] = asyncio.get_running_loop().create_task(self._run(need, look))

    async def _run(self, need: Need, look: _Look) -> None:
        """Look up the positions with this need until none is missing, with back-off after errors. look: looks up these
        partitions once, and returns whether it found a position.
        """
        attempt = 0
        try:
            while self._missing(need):
                try:
                    if await look(self._subscription.needing(need, self._clock.monotonic_ms())):
                        attempt = 0
                except KafkaError as error:
                    if not is_retriable(error):
                        self._failure = error
                        return
                    log.info("positions are not known yet: %s", error)
                pause_ms = self._cluster.backoff.delay_ms(attempt, self._cluster.environment.rng.random())
                attempt += 1
                self._found()
                if self._missing(need):
                    await asyncio.sleep(pause_ms / 1000)
        except Exception as error:  # a bug: the next read raises it
            self._failure = error
        finally:
            del self._tasks[need]
            self._found()

    def _missing(self, need: Need) -> bool:
        return any(state.need is need and state.refused is None for state in self._subscription.assigned.values())

    async def _look_up_committed(self, states: list[PartitionState]) -> bool:
        """Look up committed offsets. Returns whether any was found."""
        if self.places is not None:
            return await self.places.find(states)
        wanted = {state.tp: (state, state.epoch) for state in states}
        offsets: Committed = dict.fromkeys(wanted)
        if self._group is not None:
            offsets = await self._group.stable_now(wanted, timeout_ms=self._settings.default_api_timeout_ms)
        self._note_unstable(states, offsets)
        for tp, found in offsets.items():
            state, epoch = wanted[tp]
            if state.epoch != epoch or not self._subscription.is_current(state):
                continue
            offset, leader_epoch = (found.offset, found.leader_epoch) if found is not None else (-1, -1)
            if state.fallback is not None and not state.fallback <= offset <= state.fallback_below:
                offset, leader_epoch = state.fallback, -1  # a seek went past that offset, or back from there
            if offset < 0:
                self.apply_policy(state)
            elif offset == state.position:
                state.go_on(offset, leader_epoch)  # not a jump: it was rolled back to this offset
            else:
                state.move(offset, leader_epoch)
        self._begin(Need.OFFSET, self._look_up_ends)
        return bool(offsets)

    def _note_unstable(self, states: list[PartitionState], offsets: Committed) -> None:
        """Note the partitions whose committed offset is held by an open transaction; warn if that takes long."""
        now_ms = self._clock.monotonic_ms()
        for state in states:
            if state.tp in offsets:
                state.unstable_since_ms = None
            elif state.unstable_since_ms is None:
                state.unstable_since_ms = now_ms
        text = self.describe_wait()
        if text is not None and now_ms - self._warned_ms >= WARN_EVERY_MS:
            self._warned_ms = now_ms
            log.warning("%s; %s", text, self.hint)

    def describe_wait(self) -> str | None:
        """Return a text that names the partitions whose committed offsets open transactions have held for long; None
        if there are none.
        """
        now_ms = self._clock.monotonic_ms()
        assigned = self._subscription.assigned.values()
        waits = {state.tp: ms for state in assigned if (ms := state.unstable_ms(now_ms)) >= WARN_AFTER_MS}
        if not waits:
            return None
        named = ", ".join(map(str, [*waits][:NAMED])) + (", and others" if len(waits) > NAMED else "")
        return (
            f"group {self._settings.group_id}: an open transaction has held the committed offsets of {named} "
            f"for {max(waits.values()) // 1000} s, and nothing is read there until it ends"
        )

    @property
    def hint(self) -> str:
        """Return the command that finds the transaction which holds a committed offset."""
        return f"fencepost txn why-blocked --group {self._settings.group_id}"

    def apply_policy(self, state: PartitionState) -> None:
        """Let the offset that auto_offset_reset names be looked up. If that is "none", keep a NoOffsetError that the
        next read raises.
        """
        if self.policy is not None:
            state.look_up(Need.OFFSET, self.policy)
            return
        group = "" if self._group is None else f" in group {self._settings.group_id}"
        state.refused = NoOffsetError(f"{state.tp} has no committed offset{group}, and auto_offset_reset is none")

    async def _look_up_ends(self, states: list[PartitionState]) -> bool:
        """Look up first or last offsets. Returns whether any was found."""
        if self.places is not None:
            return await self.places.find(states)
        wanted: dict[TopicPartition, int] = {state.tp: state.reset_to for state in states}
        epochs = {state.tp: state.epoch for state in states}
        timeout_ms = self._settings.request_timeout_ms
        listed, failure = await list_once(self._cluster, wanted, self.isolation, timeout_ms=timeout_ms)
        for state in states:
            if state.tp not in listed:
                self._cluster.request_refresh()
            elif state.epoch == epochs[state.tp] and self._subscription.is_current(state):
                state.move(listed[state.tp].offset)
        if failure is not None:
            log.info("positions are not known yet: %s", failure)
        return bool(listed)
