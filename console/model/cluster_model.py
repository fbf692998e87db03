"""Reads the cluster for all browsers together: makes a new view regularly while somebody looks at a page.

The rule: reading takes at most a quarter of the time, however large the cluster is and however many people look: the
pause after a reading is LOAD times as long as the reading. Groups are read less often, because each costs two requests.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from ...client.admin.admin import Admin
from ...client.admin.values import HeldOffsets, LowLogDir, TopicDescription
from ...client.consumer.consumer import Consumer
from ...client.errors import AuthorizationError, KafkaError, UnsupportedVersionError
from ...client.values import Record, TopicPartition
from ...effects.clock import Clock
from .alarms import alarm_rows
from .changes import MAX_BLOCKERS, changes
from .events import Events
from .groups import read_groups
from .names import ProducerNames
from .offsets import read_offsets
from .release import release_of
from .rights import left_out
from .story import Story
from .tail import Tail
from .transaction_records import read_record
from .view import Group, Offsets, View, blocker_rows, cluster_row, counts_row, open_rows

log = logging.getLogger(__name__)
T = TypeVar("T")

INTERVAL_MS = 500  # between two readings of a small cluster
GROUPS_INTERVAL_MS = 2_000
RIGHTS_INTERVAL_MS = 30_000
LOAD = 3
MAX_PAUSE_AFTER_FAILURE_MS = 5_000
LOOK_MS = 10_000  # for how long after a request the cluster is read again and again
FRESH_MS = 2_000  # how old a view may be that answers a request
SHOWN_OPEN = 100


def pause_ms(took_ms: int, *, failed: bool) -> int:
    """Return how many milliseconds to wait before the cluster is read again. took_ms: how long the last reading took.
    After a failure the pause is short, since the broker may soon be back.
    """
    most_ms = MAX_PAUSE_AFTER_FAILURE_MS if failed else LOAD * took_ms
    return max(INTERVAL_MS - took_ms, min(LOAD * took_ms, most_ms))


class ClusterModel:
    """Reads the cluster regularly into a View. connect: returns the connected Admin. events: gets an event for each
    change. new_consumer: makes the consumer that reads the log of transactions; None: it is not read.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[Admin]],
        events: Events,
        clock: Clock,
        new_consumer: Callable[[], Consumer] | None = None,
    ) -> None:
        self._connect = connect
        self._events = events
        self._clock = clock
        self._task: asyncio.Task[None] | None = None
        self._wanted_until_ms = 0
        self._next: asyncio.Future[View] | None = None
        self._view: View | None = None
        self._view_ms = 0  # on the monotonic clock, as all below
        self._took_ms = 0
        self._rows_of: View | None = None
        self._rows: dict[str, Any] = {}
        self._groups: dict[str, Group] = {}
        self._alarms: tuple[tuple[HeldOffsets, ...], tuple[LowLogDir, ...]] = ((), ())
        self._groups_due_ms = 0
        self._left_out: tuple[str, ...] = ()
        self._release: str | None = None
        self._rights_due_ms = 0
        self.problem: KafkaError | None = None
        self.names = ProducerNames()
        self._story = Story()
        self._tail = Tail(connect, new_consumer, self._follow, lambda: self.is_wanted, clock)

    async def view(self) -> View:
        """Return a view that is a few seconds old at most: the last one, or else the next. Raises KafkaError if the
        broker could not be asked.
        """
        now_ms = self._clock.monotonic_ms()
        self._wanted_until_ms = now_ms + LOOK_MS
        self.look()
        fresh_ms = max(FRESH_MS, 2 * (1 + LOAD) * self._took_ms)  # of a slow cluster, two readings with their pauses
        if self._view is not None and self.problem is None and now_ms - self._view_ms <= fresh_ms:
            return self._view
        return await self.next_view()

    async def next_view(self) -> View:
        """Wait until the cluster was read once more and return that view. Raises KafkaError if the reading fails."""
        self._wanted_until_ms = max(self._wanted_until_ms, self._clock.monotonic_ms() + LOOK_MS)
        self.look()
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        return await asyncio.shield(self._next)

    def look(self) -> None:
        """Start the task that reads the cluster regularly, if it does not run. The task ends when no page has asked
        for LOOK_MS.
        """
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="the console's reader")

    async def close(self) -> None:
        """Stop reading the cluster. Calls that wait for a view are cancelled."""
        await self._tail.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._next is not None:
            self._next.cancel()

    @property
    def is_wanted(self) -> bool:
        """Return whether somebody needs views now: an event stream is open, or a page asked in the last LOOK_MS."""
        return self._events.watchers > 0 or self._clock.monotonic_ms() < self._wanted_until_ms

    # ---- reading -------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Read the cluster again and again while somebody needs views. A failed reading is published as a problem, and
        tried again.
        """
        while self.is_wanted or self._next is not None:  # somebody may still wait, if a pause was long
            began_ms = self._clock.monotonic_ms()
            try:
                self._adopt(await self._read())
            except KafkaError as error:
                self._fail(error)
            except Exception as error:
                log.exception("a bug: the cluster could not be read")
                self._fail(KafkaErrorOfBug(error))
            self._took_ms = self._clock.monotonic_ms() - began_ms
            await asyncio.sleep(pause_ms(self._took_ms, failed=self.problem is not None) / 1000)

    async def _read(self) -> View:
        """Read the whole cluster and return the view. What this login or this broker does not allow is left out and
        named in `missing`. Raises KafkaError.
        """
        admin = await self._connect()
        cluster, topics = await admin.describe_cluster(), await admin.describe_topics()
        view = View(0, cluster, topics, await self._offsets(admin, topics.values()))
        missing = [*await self._read_rights(admin, topics)]
        listed = await _or_none(admin.list_transactions(), missing, "transactions")
        if listed is not None:
            of_open = [each for each in listed if each.state == "Ongoing" or each.state.startswith("Prepare")]
            described = await admin.describe_listed_transactions(of_open) if of_open else {}
            for each in listed:
                self.names.add(each.producer_id, each.transactional_id)
            view = replace(
                view,
                listed={each.transactional_id: each for each in listed},
                open={name: each for name, each in described.items() if each.is_open},
            )
        if view.open:
            prepared = await _or_none(admin.prepared_transactions(), missing, "sinks that decide")
            view = replace(view, prepared=prepared or {})
        ends = {at: (each.stable, each.end) for at, each in view.offsets.items()}
        blockers = await _or_none(admin.blockers_at(ends), missing, "what holds back readers")
        groups = await self._read_groups(admin, missing)
        held, low_disks = self._alarms
        return replace(
            view,
            at_ms=self._clock.now_ms(),
            blockers=tuple(blockers or ()),
            groups=groups,
            held=held,
            low_disks=low_disks,
            missing=tuple(missing),
            release=self._release,
        )

    @staticmethod
    async def _offsets(admin: Admin, topics: Iterable[TopicDescription]) -> dict[TopicPartition, Offsets]:
        """Read the offsets of all partitions with a leader, without internal topics."""
        return await read_offsets(admin, [at for topic in topics if not topic.is_internal for at in topic.led])

    async def _read_groups(self, admin: Admin, missing: list[str]) -> dict[str, Group]:
        """Return the groups by name: read now, or, if that was done a short time ago, the last ones. With them reads
        what alarms need. missing: gets a line if this login may not list them.
        """
        began_ms = self._clock.monotonic_ms()
        if began_ms < self._groups_due_ms:
            return self._groups
        listed = await _or_none(admin.list_groups(), missing, "groups") or []
        found = await read_groups(admin, listed)
        self._groups, self._alarms = found, await _read_alarms(admin)
        ended_ms = self._clock.monotonic_ms()
        self._groups_due_ms = ended_ms + max(GROUPS_INTERVAL_MS, LOAD * (ended_ms - began_ms))
        return found

    async def _read_rights(self, admin: Admin, topics: Collection[str]) -> tuple[str, ...]:
        """Return one line for each kind of thing that this login may not see. Reads that and fencepost's release, each
        at most once in RIGHTS_INTERVAL_MS.
        """
        if self._clock.monotonic_ms() >= self._rights_due_ms:
            self._left_out = await left_out(admin, topics)
            self._release = await release_of(admin)
            self._rights_due_ms = self._clock.monotonic_ms() + RIGHTS_INTERVAL_MS
        return self._left_out

    def _adopt(self, view: View) -> None:
        """Replace the view by a newer one, and publish events about what changed."""
        before, self._view, self._view_ms = self._view, view, self._clock.monotonic_ms()
        if self.problem is not None:
            self.problem = None
            self._events.publish("recovered", {})
        if before is None:
            self._story.begin(view.listed, view.open)
        elif not self._tail.follows:
            self._tell(self._story.compare(view.listed, view.open, view.at_ms))
        self._tail.look()
        if before is not None:
            for name, data in changes(before, view):
                self._events.publish(name, data)
        if self._next is not None:
            self._next.set_result(view)
            self._next = None

    def _follow(self, record: Record) -> None:
        """Take a record of __transaction_state, and publish the transaction events that follow from it."""
        found = read_record(record.key, record.value)
        if found is not None:
            name, status = found
            if status is not None:
                self.names.add(status.producer_id, name)
            self._tell(self._story.follow(name, status, record.timestamp_ms))

    def _tell(self, story: Iterable[dict[str, Any]]) -> None:
        """Publish events about transactions."""
        for each in story:
            self._events.publish("txn", each)

    def _fail(self, error: KafkaError) -> None:
        """Store the error of a failed reading, publish it if the reading before succeeded, and raise it in the
        callers that wait for a view.
        """
        if self.problem is None:
            self._events.publish("problem", problem_row(error))
        self.problem = error
        if self._next is not None:
            self._next.set_exception(error)
            self._next.exception()  # so that asyncio does not log it if nobody waits
            self._next = None

    def snapshot(self, view: View | None) -> dict[str, Any]:
        """Return what a page shows when it is opened, as JSON: cluster, counts, open transactions, blocked partitions,
        alarms and recent events. Its size is bounded. view: None for the last one; if there is none yet, lists are
        empty.
        """
        if view is None:
            view = self._view
        found: dict[str, Any] = {
            "sequence": self._events.last,
            "id": self._events.last_id,
            "reachable": self.problem is None,
            "problem": None if self.problem is None else problem_row(self.problem),
            "recent": list(self._story.recent),
            "events_from": "log" if self._tail.follows else "poll",
        }
        if view is None:
            nothing: dict[str, Any] = {
                "counts": None,
                "open_transactions": [],
                "blockers": [],
                "blockers_complete": True,
                "alarms": [],
            }
            return {"at_ms": self._clock.now_ms(), **found, "cluster": None, **nothing, "missing": []}
        if self._rows_of is not view:  # made once for all browsers
            self._rows_of, self._rows = view, _rows(view)
        return {"at_ms": view.at_ms, **found, **self._rows}


def _rows(view: View) -> dict[str, Any]:
    """Return the part of a snapshot that depends on the view only, so that it is made once for all browsers."""
    blockers = blocker_rows(view, MAX_BLOCKERS)
    return {
        "cluster": cluster_row(view),
        "counts": counts_row(view),
        "open_transactions": open_rows(view, SHOWN_OPEN),
        "blockers": blockers,
        "blockers_complete": len(blockers) == len(view.blockers),
        "alarms": alarm_rows(view),
        "missing": list(view.missing),
    }


class KafkaErrorOfBug(KafkaError):
    """A KafkaError made of an unexpected exception: a bug of the console is shown like an error of the broker."""

    def __init__(self, error: Exception) -> None:
        from ...client.errors import ErrorCode

        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, f"the console has a bug: {type(error).__name__}")


def problem_row(error: KafkaError) -> dict[str, Any]:
    """Return an error's message and hint as JSON, each on one line; hint null if there is none."""
    return {"message": " ".join(str(error).split()), "hint": getattr(error, "hint", "") or None}


async def _or_none(asking: Awaitable[T], missing: list[str], what: str) -> T | None:
    """Await a call of Admin, and return its result. Returns None, and adds a line to `missing`, if the broker is too
    old or this login may not read it. what: names the thing in that line.
    """
    try:
        return await asking
    except UnsupportedVersionError:
        missing.append(f"{what}: this broker cannot tell")
    except AuthorizationError as error:
        missing.append(f"{what}: {error}")
    return None


async def _read_alarms(admin: Admin) -> tuple[tuple[HeldOffsets, ...], tuple[LowLogDir, ...]]:
    """Return the groups whose offsets a transaction blocks, and the nearly full disks. Empty where the broker is too
    old or this login may not see them.
    """
    held: list[HeldOffsets] = []
    low: list[LowLogDir] = []
    with suppress(UnsupportedVersionError, AuthorizationError):
        held = await admin.find_held_offsets()
    with suppress(UnsupportedVersionError, AuthorizationError):
        low = await admin.find_low_log_dirs()
    return tuple(held), tuple(low)
