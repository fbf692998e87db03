"""Ends acquisition locks whose owner has not acknowledged, when its share session ends or at their deadline, in steps.

The rules: a step ends the locks of RUNS runs (ranges of records in the same state) at most, in any number of share
partitions, and logs that as one unit. Other records stay acquired until a later step ends their locks, which only
delays them. The records of an ended session are released before its member opens another one, so
that nothing of the new session is released. Deadlines within ALARM_MS of each other are handled together. There is one
timer, for the earliest deadline of all. If nothing can be logged, locks end as soon as that is possible again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from ...protocol.errors import KafkaError
from ...storage.store import BrokerHalted
from ..alarms import Alarms
from ..bugs import contain_bugs
from ..net.turns import Job, Steps
from ..shared import Shared
from .counts import count_released
from .ended import decide_releases, find_acquired, find_expired
from .logged import EncodedUpdate, LoggedPartition
from .machine import Alarm
from .portions import Portions
from .runs import Run
from .state_log import ShareStateLog
from .values import SharePartitionKey

log = logging.getLogger("fencepost.broker")

RUNS = 200  # whose locks one step ends, at most
UNITS_OF_A_RUN = 4  # the work of ending the lock of one run, in the units of Steps
ALARM_MS = 50
RETRY_MS = 1_000  # until locks whose end could not be logged are tried again

Ending = tuple[SharePartitionKey, list[Run], Portions]
"""A share partition, the runs in it whose locks end, and the changes that this makes."""


class Release:
    """The release of all records that the member of an ended session has acquired, as far as it is not done yet."""

    __slots__ = ("group", "keys", "member", "offset")

    def __init__(self, group: str, member: str, keys: Iterable[SharePartitionKey]) -> None:
        """keys: the share partitions in which the member may still have acquired records."""
        self.group = group
        self.member = member
        self.keys = deque(keys)
        self.offset = 0  # where to go on in the first of them


class Locks:
    """Ends the acquisition locks of all share partitions of a broker: at their deadline, or with the session of their
    member.
    """

    def __init__(
        self,
        shared: Shared,
        state_log: ShareStateLog,
        limit_of: Callable[[str], int],
        loop: asyncio.AbstractEventLoop,
        wake_soon: Callable[[Iterable[SharePartitionKey]], None],
    ) -> None:
        """limit_of: returns how often a record of this group is delivered at most. wake_soon: makes fetches that wait
        for these share partitions try again.
        """
        self._state_log = state_log
        self._known = state_log.known
        self._limit_of = limit_of
        self._wake_soon = wake_soon
        self._store = shared.store
        self._clock = shared.clock
        self._metrics = shared.metrics
        self._turns = shared.turns
        self._alarms: Alarms[SharePartitionKey] = Alarms(shared.clock, loop, self._ring, granularity_ms=ALARM_MS)
        self._releases: dict[tuple[str, str], Release] = {}
        self._due: dict[SharePartitionKey, None] = {}
        self._is_working = False

    def stop(self) -> None:
        """Cancel the timer."""
        self._alarms.stop()

    def __len__(self) -> int:
        """Return how many alarms are set, by which locks end at their deadlines."""
        return len(self._alarms)

    def ensure_alarm(self, key: SharePartitionKey, kept: LoggedPartition) -> None:
        """Make sure that the timer goes off at the earliest deadline of this share partition, or before."""
        alarm_ms = kept.machine.alarm_ms
        if alarm_ms is not None:
            self._alarms.set(key, alarm_ms)

    # ---- the end of a session --------------------------------------------------------------------------------

    def begin_release(self, group: str, member: str, keys: Iterable[SharePartitionKey]) -> None:
        """Begin to make the records that the member has acquired in these share partitions available again: a step now,
        the rest in turns with other jobs.
        """
        before = self._releases.get((group, member))
        if before is None:
            self._releases[group, member] = Release(group, member, keys)
        else:
            before.keys.extend(keys)
        self._begin_work()

    def finish_release(self, group: str, member: str) -> Steps[None]:
        """Release now, in steps, all that an ended session of this member still has acquired."""
        while (release := self._releases.get((group, member))) is not None:
            yield self._take_step_of(release)

    def _take_step_of(self, release: Release) -> int:
        """Release about RUNS runs (ranges of records in the same state) of an ended session, in one unit. If that
        cannot be logged, their deadlines are set to now, so that the timer tries again. Returns how much work that was.
        """
        left, limit = RUNS, self._limit_of(release.group)
        ending: list[Ending] = []
        with contain_bugs(self._metrics, f"the end of a session of share group {release.group}"):
            while left > 0 and release.keys:
                key, offset = release.keys.popleft(), release.offset
                release.offset = 0
                kept = self._known.get(key)
                if kept is None or not self._state_log.is_online(key):
                    left -= 1
                    continue
                held = find_acquired(kept.machine, release.member, offset, left)
                left -= max(1, held.looked_at)
                if held.go_on is not None:
                    release.keys.appendleft(key)
                    release.offset = held.go_on
                if held.runs:
                    ending.append((key, held.runs, decide_releases(kept.machine, held.runs, limit)))
            if not self._log(ending, timed_out=False):
                for key, runs, _ in ending:
                    self._known[key].machine.end_locks(runs, self._clock.monotonic_ms())
                    self.ensure_alarm(key, self._known[key])
        if not release.keys:
            self._releases.pop((release.group, release.member), None)
        return 1 + (RUNS - left) * UNITS_OF_A_RUN

    # ---- deadlines -------------------------------------------------------------------------------------------

    def _ring(self, keys: Sequence[SharePartitionKey]) -> None:
        """End the locks of these share partitions whose deadline has passed. Called by the timer."""
        self._due.update(dict.fromkeys(keys))
        self._begin_work()

    def _take_step_of_due(self) -> int:
        """End locks whose deadline has passed, for about RUNS runs (ranges of records in the same state), in one unit.

        Returns how much work that was.
        """
        left, now_ms = RUNS, self._clock.monotonic_ms()
        ending: list[Ending] = []
        due: list[tuple[SharePartitionKey, list[Alarm]]] = []
        with contain_bugs(self._metrics, "the locks of share groups"):
            while left > 0 and self._due:
                key = next(iter(self._due))
                del self._due[key]
                kept = self._known.get(key)
                left -= 1
                if kept is None:
                    continue
                if not self._state_log.is_online(key):
                    self._alarms.set(key, now_ms + RETRY_MS)
                    continue
                alarms, runs = kept.machine.due_alarms(now_ms, left + 1)
                left -= max(0, runs - 1)
                due.append((key, alarms))
                ended = find_expired(kept.machine, alarms)
                if ended:
                    ending.append((key, ended, decide_releases(kept.machine, ended, self._limit_of(key.group))))
            self._end_due(due, ending, now_ms)
        return 1 + (RUNS - left) * UNITS_OF_A_RUN

    def _end_due(self, due: Sequence[tuple[SharePartitionKey, list[Alarm]]], ending: list[Ending], now_ms: int) -> None:
        """Log and apply the ends of these locks. If that is impossible, set their alarms again, RETRY_MS from now."""
        if self._log(ending, timed_out=True):
            for key, _ in due:
                self._continue_or_set_alarm(key, now_ms)
        else:
            for key, alarms in due:
                self._known[key].machine.put_off(alarms)
                self._alarms.set(key, now_ms + RETRY_MS)

    def _continue_or_set_alarm(self, key: SharePartitionKey, now_ms: int) -> None:
        """If more locks of this share partition are due, end them in the next step; else set the timer for it."""
        kept = self._known[key]
        alarm_ms = kept.machine.alarm_ms
        if alarm_ms is not None and alarm_ms <= now_ms:
            self._due[key] = None
        else:
            self.ensure_alarm(key, kept)

    # ---- both ------------------------------------------------------------------------------------------------

    def _begin_work(self) -> None:
        """Start _work(): its first step now, which is mostly enough, and the rest in turns with other jobs."""
        if self._is_working or self._store.halted is not None:
            return
        self._is_working = True
        job = Job(self._work())
        try:
            if self._turns.is_spent() or not self._turns.begin(job):
                self._turns.enqueue(job, long=True)
        except BrokerHalted:  # the broker serves nobody any more, so no lock matters
            pass

    def _work(self) -> Steps[None]:
        """End the locks that are due and those of ended sessions, alternately, until none is left. Yields the work that
        each step took.
        """
        try:
            while self._releases or self._due:
                if self._due:
                    yield self._take_step_of_due()
                if self._releases:
                    yield self._take_step_of(next(iter(self._releases.values())))
        finally:
            self._is_working = False

    def _log(self, ending: Sequence[Ending], *, timed_out: bool) -> bool:
        """Log and apply the ends of locks in one unit.

        Returns whether that was possible; if not, nothing has changed.
        """
        if not ending:
            return True
        for *_, portions in ending:
            portions.finish()
        changes = [
            (key, EncodedUpdate(*portions.position(), portions.encoded(), portions.apply))
            for key, _, portions in ending
        ]
        try:
            self._state_log.commit(changes)
        except KafkaError as error:
            log.info("locks of share groups end later: %s", error.text)
            return False
        for *_, portions in ending:
            count_released(self._metrics, portions.batches, timed_out=timed_out)
        self._wake_soon(key for key, _ in changes)
        return True
