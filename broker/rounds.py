"""Rounds: all units (journal entries) of one turn of the loop, or of the time that one sync takes, are made durable
together.

At the end of a turn, or of the next one (second_look.py), the open round is closed and written. When it is written (and
synced, if its durability mode asks for that), high watermarks advance, parked fetches are woken, and waiting replies
are sent. Units that arrive meanwhile form the next round. It waits for its turn; but if it is large and is to be synced
as the rounds in flight are, it is written beside them. Rounds are released in their order. Journal, store and times
each keep an entry for each round in flight. If a write or sync fails, the broker halts and sends no more replies.
docs/glossary.md defines round and released.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from typing import Protocol

from ..effects.disk import AsyncWriter, Executor
from ..storage.journal.journal import RoundWrite, SyncJob
from ..storage.log.partition_log import PartitionLog
from ..storage.store import Store
from .metrics import Metrics
from .second_look import SecondLook

# Rounds up to these sizes are written in the loop, because handing them to a worker costs more: rounds without a sync,
# and rounds with one while the device is quick (decision 15). The loop begins synced rounds of the sizes that the
# writer says (decision 24). All others, and those that cannot be begun, are a worker's.
WRITTEN_HERE_BYTES = 1 << 20
SYNCED_HERE_BYTES = 16 << 10
LOOK_AGAIN_BYTES = 6 << 10  # a larger round has many clients already, and with more may be too large to sync here
SEAL_AFTER_MS = 50  # after so long without a unit, an empty round records that the last one was synced


class Replying(Protocol):
    """The method of a connection that Rounds calls."""

    def flush(self, released_unit: int) -> bool:
        """Send the replies whose unit (journal entry) is durable. Returns whether others still wait for one."""


class Timing(Protocol):
    """What rounds call to measure requests: RequestTimes (requests/request_times.py)."""

    def begin_turn(self) -> None:
        """Called when the first request of this turn of the loop has a reply or has written something."""
        ...

    def end_turn(self, waits: bool) -> None:
        """Called at the end of a turn. waits: a round (write of the journal) is open or being written."""
        ...

    def count_answers(self) -> None:
        """Called when the replies of this turn that wait for no write have been sent."""
        ...

    def begin_round(self) -> None:
        """Called when the open round (write of the journal) begins to be written; later units go to the next one."""
        ...

    def end_round(self, is_last: bool) -> None:
        """Called when the oldest round (write of the journal) is released. is_last: no other round has units: none is
        being written, and the open one is empty.
        """
        ...


class Pacing(Protocol):
    """Decides when rounds begin, if each costs something (ownership/pacing.py)."""

    def wait_ms(self, now_ms: int, open_bytes: int) -> int:
        """Return how many ms the open round (the next write of the journal) is to wait; 0 if it begins now, which is
        counted.
        """
        ...


class Untimed:
    """A Timing that measures nothing."""

    def begin_turn(self) -> None: ...
    def end_turn(self, waits: bool) -> None: ...
    def count_answers(self) -> None: ...
    def begin_round(self) -> None: ...
    def end_round(self, is_last: bool) -> None: ...


class Rounds:
    """Writes and syncs the rounds of one broker, and then sends the replies that waited for them. Belongs to one
    loop.
    """

    def __init__(
        self,
        store: Store,
        executor: Executor,
        loop: asyncio.AbstractEventLoop,
        metrics: Metrics | None = None,
        *,
        sync_every_ms: int = 100,
        times: Timing | None = None,
        writer: AsyncWriter | None = None,
        pace: Pacing | None = None,
    ) -> None:
        """sync_every_ms: how often the journal is synced for logs in durability mode interval. In mode os it is only
        synced for checkpoints.

        pace: decides when rounds (writes of the journal) begin; None: as soon as they can.
        """
        self._store = store
        self._executor = executor
        self._writer = writer
        self._pace = pace
        self._paced: asyncio.TimerHandle | None = None
        self._loop = loop
        self._metrics = metrics or Metrics()
        self._times = times or Untimed()
        self._sync_every_ms = sync_every_ms
        self._touched: dict[Replying, None] = {}
        self._waiting: dict[Replying, None] = {}
        self._scheduled = False
        self._in_flight: deque[RoundWrite] = deque()
        self._sync_next = False
        self._second_look = SecondLook()
        self._seal_timer: asyncio.TimerHandle | None = None
        self._interval_timer: asyncio.TimerHandle | None = None
        self._ending = False
        self._idle: list[Callable[[], None]] = []
        self._synced: list[tuple[int, Callable[[], None]]] = []
        self._released: list[tuple[int, Callable[[], None]]] = []
        self.on_release: list[Callable[[Collection[PartitionLog]], None]] = []
        self.on_halt: list[Callable[[BaseException], None]] = []
        self.finished = 0
        store.on_change = self.changed

    def changed(self) -> None:
        """Note that there is a new unit (journal entry) or reply. It is processed at the end of this turn of
        the loop.
        """
        if not self._scheduled:
            self._schedule()

    def _schedule(self) -> None:
        """Have _end_of_turn() called at the end of this turn of the loop."""
        self._scheduled = True
        self._times.begin_turn()
        self._loop.call_soon(self._end_of_turn)

    def touch(self, connection: Replying) -> None:
        """Send this connection's replies at the end of the turn, and at later releases while one of them waits."""
        self._touched[connection] = None
        if not self._scheduled:
            self._schedule()

    def touch_first(self, connection: Replying) -> None:
        """Like touch(), but send this connection's replies before all others of this turn. Takes time for each
        connection.
        """
        self.touch(connection)
        self._touched = {connection: None, **self._touched}
        self._waiting = {connection: None, **self._waiting}

    def forget(self, connection: Replying) -> None:
        """Forget a connection that has ended."""
        self._touched.pop(connection, None)
        self._waiting.pop(connection, None)
        self._second_look.forget(connection)

    def sync_soon(self) -> None:
        """Sync all that was appended so far, in every durability mode. If there is nothing new, write an empty round.

        Called for when_synced(), by the timer of mode interval, to write the seal (an empty round) after the last
        round, and when the broker stops.
        """
        self._sync_next = True
        self.changed()

    def when_synced(self, unit: int, callback: Callable[[], None]) -> None:
        """Call back when the journal is synced up to and including this unit (journal entry). If it is not yet, a sync
        is begun.
        """
        if self._store.synced_unit >= unit:
            callback()
        else:
            self._synced.append((unit, callback))
            self.sync_soon()

    def when_released(self, unit: int, callback: Callable[[], None]) -> None:
        """Call back when this unit (journal entry) is as durable as its mode requires, which may be at once.

        High watermarks have moved by then.
        """
        if self._store.released_unit >= unit:
            callback()
        else:
            self._released.append((unit, callback))

    def note_end_of_sync(self, job: SyncJob) -> None:
        """Note that a sync of the journal outside of rounds has ended, and call the callbacks that waited for it. If no
        round is open or being written, the seal (an empty round) follows soon.
        """
        self._store.journal.synced(job)
        self._tell_synced()
        if not (self._in_flight or self._store.journal.pending):
            self._seal_soon()

    @property
    def is_idle(self) -> bool:
        """Whether no round (write of the journal) is open or being written."""
        return not (self._in_flight or self._sync_next or self._store.journal.pending)

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call back when no round (write of the journal) is open or being written, which may be at once; or when the
        broker fails.
        """
        if self.is_idle:
            callback()
        else:
            self._idle.append(callback)
            self.changed()

    def _end_of_turn(self) -> None:
        """Begin to write the open round to the journal, unless it must wait, and send the replies that need not wait
        for it.
        """
        self._scheduled = False
        store = self._store
        store.look()
        if store.halted is not None:
            self._touched.clear()
            return
        self._times.end_turn(bool(self._in_flight) or store.journal.pending)
        looks_again = False
        if (store.journal.pending or self._sync_next) and (not self._in_flight or self._may_overlap()):
            try:
                looks_again = self._looks_again()
                if not looks_again and (self._pace is None or not self._waits_for(self._pace)):
                    self._begin()
            except Exception as error:  # a bug: no reply that it may affect is sent
                self.halt(error)
                return
        touched, self._touched = self._touched, {}
        self._flush(touched)
        self._times.count_answers()
        if looks_again and not self._scheduled:  # after the replies, whose times end with this turn
            self._schedule()

    def _waits_for(self, pace: Pacing) -> bool:
        """Return whether the open round must wait, because each write to an object store costs money. If so, a timer
        begins it later.
        """
        if self._paced is not None:
            return True
        wait_ms = pace.wait_ms(round(self._loop.time() * 1000), self._store.journal.open_bytes)
        if wait_ms:
            self._paced = self._loop.call_later(wait_ms / 1000, self._begin_paced)
        return wait_ms > 0

    def _begin_paced(self) -> None:
        """Begin the round (write of the journal) that waited, at the end of this turn. Called by the timer."""
        self._paced = None
        self.changed()

    def _looks_again(self) -> bool:
        """Return whether the loop is to read its sockets once more before the open round is written to the journal."""
        if self._in_flight or self._sync_next or not self._store.sync_wanted:
            return False
        return self._store.journal.open_bytes <= LOOK_AGAIN_BYTES and self._second_look.is_wanted(
            self._active_connections()
        )

    def _active_connections(self) -> set[Replying]:
        """Return the connections whose replies wait for the next write of the journal, or that had a request in this
        turn.
        """
        return self._waiting.keys() | self._touched.keys()

    def _may_overlap(self) -> bool:
        """Return whether the open round may be written to the journal while earlier ones still are.

        It may if it is to be synced, the asynchronous writer takes a round of its size, and that writer has begun the
        newest of the earlier rounds. It may not while a worker thread writes one: it would only wait for that thread.
        """
        writer = self._writer
        if writer is None or self._sync_next or not self._store.sync_wanted or not self._in_flight[-1].begun:
            return False
        size_bytes = self._store.journal.open_bytes
        return len(self._in_flight) < writer.at_once and writer.from_bytes <= size_bytes <= writer.largest_bytes

    def _begin(self) -> None:
        """Take all units (entries) of the open round, and begin to write them to the journal, with a sync if one is
        needed.

        The write is done right here, in a worker thread, or asynchronously by the kernel.
        """
        store = self._store
        sync = True if self._sync_next else None
        write = store.take_round(sync=sync)
        if write is None:
            return
        self._sync_next = False
        if write.sync:
            self._second_look.round_begins(self._active_connections())
        self._in_flight.append(write)
        self._times.begin_round()
        if write.sync:
            here = write.to_sync_bytes <= SYNCED_HERE_BYTES and self._executor.quick and len(self._in_flight) == 1
            here = here and write.may_run_here
        else:
            here = write.size_bytes <= WRITTEN_HERE_BYTES
        if not here:
            if self._writer is None or not write.begin(self._writer, self._ended):
                self._executor.submit(write.run, self._ended)
            return
        try:
            if write.sync:
                self._executor.run_here(write.run)
            else:
                write.run()
        except Exception as error:
            self._ended(error)
        else:
            self._ended(None)

    def _ended(self, result: BaseException | None) -> None:
        """Release all rounds whose write to the journal has ended, the oldest first. Called when one write has ended.

        result: None, or the error of that write, which halts the broker. A bug in a callback halts it, too.
        """
        if isinstance(result, BaseException):
            self._in_flight.clear()
            self.halt(result)
        try:
            while self._in_flight and self._in_flight[0].done and self._store.halted is None:
                self._release(self._in_flight.popleft())
        except Exception as error:
            self.halt(error)

    def _release(self, write: RoundWrite) -> None:
        """Release the oldest round, which is in the journal: move high watermarks, wake readers, send waiting
        replies.
        """
        moved = self._store.round_finished(write)
        self.finished += 1
        self._metrics.round_bytes.add(write.size_bytes)
        if write.sync:
            self._metrics.sync_ns.add(write.sync_ns or self._executor.last_ns)
        if self._store.interval_wanted and self._interval_timer is None:
            self._interval_timer = self._later(self._sync_every_ms, self._sync_when_due)
        for woken in self.on_release:
            woken(moved)
        if self._released:
            self._call_released()
        waiting, self._waiting = self._waiting, {}
        self._flush(waiting)
        self._times.end_round(not self._store.journal.pending and not self._in_flight)
        if self._synced and write.sync:
            self._tell_synced()
        if self._store.journal.pending or self._sync_next:
            self.changed()
        elif not self._in_flight:
            self._became_idle(write)

    def _flush(self, connections: dict[Replying, None]) -> None:
        """Send the replies of these connections, and note the connections that have replies which still wait for a unit
        of the journal.
        """
        released = self._store.released_unit
        for connection in connections:
            if connection.flush(released):
                self._waiting[connection] = None

    def _call_released(self) -> None:
        """Call the callbacks whose journal unit is now as durable as its mode requires."""
        released = self._store.released_unit
        due = [callback for unit, callback in self._released if unit <= released]
        self._released = [entry for entry in self._released if entry[0] > released]
        for callback in due:
            callback()

    def _tell_synced(self) -> None:
        """Call the callbacks whose journal unit is synced now."""
        synced = self._store.synced_unit
        due = [entry for entry in self._synced if entry[0] <= synced]
        self._synced = [entry for entry in self._synced if entry[0] > synced]
        for _, callback in due:
            callback()

    def _became_idle(self, write: RoundWrite) -> None:
        """Call the callbacks that wait until nothing is written, and set the timer for a seal (an empty round). Called
        when no round is open or being written.
        """
        self._call_idle()
        if write.sync:
            self._seal_soon()

    def _call_idle(self) -> None:
        """Call the callbacks that wait until nothing is being written to the journal."""
        idle, self._idle = self._idle, []
        for callback in idle:
            callback()

    def _seal_soon(self) -> None:
        """Set the timer for a seal: an empty round after the last one, if that has none yet."""
        if self._seal_timer is None and self._store.journal.lacks_seal:
            self._seal_timer = self._later(SEAL_AFTER_MS, self._seal)

    def _later(self, ms: int, call: Callable[[], None]) -> asyncio.TimerHandle | None:
        """Call this function after this number of ms, and return the timer; after end() do nothing and return None."""
        return None if self._ending else self._loop.call_later(ms / 1000, call)

    def _seal(self) -> None:
        """Write an empty round to the journal, which records that the last one was synced. Called by the timer."""
        self._seal_timer = None
        if not self._store.journal.pending and not self._in_flight:
            self.sync_soon()

    def _sync_when_due(self) -> None:
        """The timer of durability mode interval has expired: sync what was only written to the journal."""
        self._interval_timer = None
        self.sync_soon()

    def halt(self, error: BaseException) -> None:
        """Stop for ever because of this error: from now on nothing is written, acknowledged or answered. Calls the
        functions in on_halt.
        """
        if self._store.halted is None:
            self._store.halt(error)
            for callback in self.on_halt:
                callback(error)
            self._call_idle()  # it will never be idle

    def halt_unheard(self, error: BaseException) -> None:
        """Like halt(), but without a call of the functions in on_halt."""
        self._store.halt(error)
        self._call_idle()

    def end(self) -> None:
        """Cancel the timers, and set none from now on. The journal is then written only on request."""
        self._ending = True
        for timer in (self._seal_timer, self._interval_timer):
            if timer is not None:
                timer.cancel()
        self._seal_timer = self._interval_timer = None
