"""One task of a mirror: a member of its group on the target, which repeats the cycle in the package's docstring.

The rule: `machine.py` says what may be done next, and this module does it. After any error nothing that was known is
trusted: the producer is replaced, which ends its transaction, and the positions are asked for again. So most errors
only cost time; raised are those that no wait changes (rights, settings), and some stop a topic.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...protocol.errors import ErrorCode, KafkaError
from ..admin.admin import Admin
from ..admin.offsets import EARLIEST, LATEST
from ..config_names import part_for
from ..errors import (
    AuthenticationError,
    AuthorizationError,
    IllegalStateError,
    InvalidConfigurationError,
    is_retriable,
)
from ..net.environment import SYSTEM, Environment
from ..producer.producer import Producer
from ..settings import AdminSettings, ConsumerSettings, ProducerSettings
from ..transactions.cancellation import outlast
from ..values import OffsetAndMetadata, TopicPartition
from . import machine, others
from .ahead import Ahead, Chunk
from .findings import ANEW, StoppedError
from .leftovers import Leftovers
from .machine import Step
from .membership import Membership
from .names import group_id, is_own, transactional_id
from .offset_map import EntryKey
from .positions import Position, decode_position, encode_position, known_positions
from .preflight import TRANSACTION_TIMEOUT_MS
from .progress import Progress
from .source import Source, explain
from .topic_ids import TopicIds
from .topics import follow_topics
from .writing import Writer

log = logging.getLogger("fencepost.client")

CYCLE_BYTES = 32 << 20
"""So much goes into one transaction, where the partitions have closed cuts; less after transactions that failed."""
LEAST_CYCLE_BYTES = 64 << 10
WAIT_MS = 200
"""How long a task waits for records before it looks at its group again."""
JOINING_MS = 50
RETRY_MS = 1_000
FOLLOW_MS = 30_000
"""How often the source is asked for new topics and partitions."""
CLOSING_MS = 5_000
LEAVING_S = 60
"""How long leaving the group and closing may take in all."""
_USUAL = {
    "max.request.size": 100 << 20,  # the target decides
    "buffer.memory": 128 << 20,
    "linger.ms": 5,
    "delivery.timeout.ms": 300_000,
    "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
}
_OTHER_SOURCE = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
MAKE_IT = "make the topic on the target, empty and with as many partitions, and start the mirror again"
_HOPELESS = (AuthenticationError, AuthorizationError, InvalidConfigurationError)


@dataclass(slots=True)
class Counts:
    """What a task has done since it began. divided: cycles whose cut was not closed; doubts: transactions given up."""

    records: int = 0
    bytes: int = 0
    cycles: int = 0
    divided: int = 0
    doubts: int = 0
    waits_for: str = ""
    stopped: dict[str, StoppedError] = field(default_factory=dict[str, StoppedError])


class MirrorTask:
    """`await MirrorTask(…).run()` mirrors until it is cancelled, or until all its topics have stopped.

    counts, lags, progress: for whoever shows them. source, target: configurations by Kafka's names.
    """

    def __init__(
        self,
        source: Mapping[str, Any],
        target: Mapping[str, Any],
        *,
        mirror: str,
        topics: str,
        task: str,
        tell: Callable[[str], None] = lambda line: None,
        environment: Environment = SYSTEM,
        follow_ms: int = FOLLOW_MS,
    ) -> None:
        """topics: a regular expression of whole names. task: a name that no other task has, nor had before. tell:
        called with each line of text for the user. Raises InvalidConfigurationError.
        """
        self.counts = Counts()
        self.progress = Progress()
        self._mirror = mirror
        self._pattern = re.compile(topics)
        self._tell = tell
        self._environment = environment
        self._follow_ms = follow_ms
        self._id = transactional_id(mirror, task)
        self._target = dict(target) | {"client.id": self._id}
        self._source_admin = Admin.from_config(part_for(AdminSettings, source), environment=environment)
        self._target_admin = Admin.from_config(part_for(AdminSettings, self._target), environment=environment)
        self._source = Source(self._source_admin, environment)
        self._writer = Writer(mirror)
        self._leftovers = Leftovers(self._target_admin, mirror, environment)
        self._ids = TopicIds(self._source_admin, self._target_admin, environment)
        self._task = machine.Task()
        self._aheads: dict[TopicPartition, Ahead] = {}
        self._assigned: frozenset[TopicPartition] = frozenset()  # which may change within a generation (KIP-848)
        self._names: frozenset[str] = frozenset()
        self._producer: Producer | None = None
        self._membership: Membership | None = None
        self._unbegun: dict[TopicPartition, KafkaError] = {}  # without a position, and not available at the source
        self._followed_ms = -1
        self._cycle_bytes = CYCLE_BYTES

    @property
    def lags(self) -> dict[TopicPartition, int]:
        """Return how many offsets each partition of this task is behind the end that was last seen.

        May be called by another thread, as for the page of metrics: so what changes meanwhile is copied first.
        """
        ends, aheads = dict(self._source.ends), dict(self._aheads)
        return {tp: max(0, end - aheads[tp].position.offset) for tp, end in ends.items() if tp in aheads}

    def note_progress(self) -> None:
        """Add the present counts and lag to `progress`."""
        now_ms = self._environment.clock.monotonic_ms()
        self.progress.add(now_ms, self.counts.records, self.counts.bytes, sum(self.lags.values()))

    # ---- life --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Mirror until cancelled. Returns once every topic that matches is stopped. Raises errors
        that no wait changes.
        """
        try:
            await self._start()
            while not (self._names and self._names <= self.counts.stopped.keys()):
                try:
                    await self._go_on()
                except StoppedError as error:
                    await self._doubt()
                    await self._stop(error)
                except KafkaError as error:
                    if isinstance(error, _HOPELESS) and error.code is not _OTHER_SOURCE:
                        raise
                    await self._start_again_after(error)
        finally:
            await self._close()

    async def _start(self) -> None:
        """Connect to both sides, and prepare the membership. Raises BrokerUnreachableError and the like."""
        await self._source_admin.start()
        await self._target_admin.start()
        source_id = (await self._source_admin.describe_cluster()).cluster_id or "unknown"
        target_id = (await self._target_admin.describe_cluster()).cluster_id
        if source_id == target_id:
            raise InvalidConfigurationError(
                "source and target are the same cluster", hint="topics keep their names: a mirror needs two clusters"
            )
        self._membership = Membership(
            part_for(ConsumerSettings, self._target), group_id(self._mirror), source_id, self._environment
        )
        await self._membership.start()

    async def _close(self) -> None:
        """Abort what is open, leave the group, and close all connections, even if cancelled meanwhile. Never hangs."""
        self._source.close()
        closing = [self._end_producer(), self._source_admin.close(), self._target_admin.close()]
        if self._membership is not None:
            closing.append(self._membership.close())
        closed = asyncio.gather(*closing, return_exceptions=True)
        cancelled = await outlast(closed, LEAVING_S)
        for error in closed.result() if closed.done() else ():
            if error is not None:
                log.info("mirror: closing: %s", error)
        if cancelled is not None:
            raise cancelled

    async def _start_again_after(self, error: KafkaError) -> None:
        """Log an error that may pass, forget all but the membership of the group, and pause."""
        if error.code is _OTHER_SOURCE:
            self._wait_for("another mirror of this name, from another source, to leave the group")
        else:
            log.info("mirror: begins its cycle again: %s", error)
            self._wait_for(error.text)
        await self._doubt()
        await asyncio.sleep(RETRY_MS / 1000)

    def _wait_for(self, what: str) -> None:
        """Note what keeps the task from going on; "" for nothing. The user is told of it once."""
        if what and what != self.counts.waits_for:
            self._tell(f"waiting: {what}")
        self.counts.waits_for = what

    async def _doubt(self) -> None:
        """Forget all but the membership, and abort the open transaction: from here on the task knows nothing but what
        it asks the target.
        """
        if self._task.step in (Step.WRITING, Step.ADDED):
            self.counts.doubts += 1
            self._cycle_bytes = max(LEAST_CYCLE_BYTES, self._cycle_bytes // 4)
        self._task = machine.doubted(self._task)
        self._drop_aheads()
        self._writer.forget()
        await self._end_producer()

    async def _end_producer(self) -> None:
        """Close the producer. The next one has its transactional id, so that it ends what this one left open."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.close(timeout_ms=CLOSING_MS)

    def _drop_aheads(self) -> None:
        """Stop reading, and forget what was read ahead."""
        self._source.read({})
        self._aheads = {}

    async def _stop(self, error: StoppedError) -> None:
        """Mirror this topic no more. Say why, once, and write it down for `mirror status`."""
        if error.topic not in self.counts.stopped:
            self.counts.stopped[error.topic] = error
            self._tell(f"stopped: {error.topic}: {error.why}")
        self._source.drop(error.topic)
        self._aheads = {tp: ahead for tp, ahead in self._aheads.items() if tp.topic != error.topic}
        try:
            await self._write_down(error)
        except KafkaError as failed:  # such as of a topic that was deleted on the target, which status sees by itself
            log.info("mirror: why %s has stopped is not written down: %s", error.topic, failed)
            await self._end_producer()

    async def _write_down(self, error: StoppedError) -> None:
        """Commit this task's positions in the topic as they are, with the reason why it has stopped."""
        if self._membership is None or self._task.member is None:
            return
        own = [tp for tp in self._membership.assigned if tp.topic == error.topic]
        committed = await self._membership.stable_offsets(own)
        positions = {tp: decode_position(at) for tp, at in committed.items() if at is not None}
        if positions:
            await self._commit_alone({tp: at._replace(stopped=error.why) for tp, at in positions.items()})

    # ---- cycles ------------------------------------------------------------------------------------------------

    async def _go_on(self) -> None:
        """Take the next step of the cycle. Raises KafkaError, after which the task has to forget all but its
        membership.
        """
        await self._follow_when_due()
        assert self._membership is not None
        if not self._names:
            self._wait_for("a topic of the source that matches")
            await asyncio.sleep(RETRY_MS / 1000)
            return
        member = await self._membership.poll()
        if member is None:
            await asyncio.sleep(JOINING_MS / 1000)  # a poll that has nothing to do does not wait
            return
        if (member, self._membership.assigned) != (self._task.member, self._assigned):
            await self._doubt()
            self._task = machine.joined(self._task, member)
            self._assigned = self._membership.assigned
        if self._task.step is Step.ASKING:
            await self._find_positions(self._membership)
            return
        if (failed := self._source.failed) is not None:
            self._source.failed = None
            await self._stop_unless_old(self._membership, failed)
            return
        trouble = self._source.trouble
        unavailable = self._unbegun | self._source.unavailable
        self._wait_for(explain(unavailable) if trouble is None else f"the source: {trouble.text}")
        chunks = self._take()
        if chunks:
            await self._cycle(chunks)
        else:
            await self._wait_for_records()

    async def _stop_unless_old(self, membership: Membership, failed: StoppedError) -> None:
        """Raise the error, which says that the source does not have what comes after this task's position. If the
        position on the target is another one, or pending, ask for it instead: the task has slept, and others went on.
        """
        positions = {tp: position for tp, position in self._task.positions if tp.topic == failed.topic}
        await self._ids.check(positions)
        committed = await membership.stable_offsets(positions)
        if all(tp in committed and _offset(committed[tp]) == position.offset for tp, position in positions.items()):
            raise failed
        await self._doubt()

    async def _follow_when_due(self) -> None:
        """Every follow_ms, make the source's topics and added partitions on the target too, and subscribe to the
        topics.
        """
        now_ms = self._environment.clock.monotonic_ms()
        if self._followed_ms >= 0 and now_ms - self._followed_ms < self._follow_ms:
            return
        if self._task.step is Step.READY:  # before a topic that was deleted on the target is made again there
            await self._ids.check(dict(self._task.positions))
        listed = await self._source_admin.list_topics()
        names = frozenset(name for name in listed if self._pattern.fullmatch(name) and not is_own(name))
        names |= self._names  # one that was deleted is stopped, which the comparison of its id finds
        going = sorted((names & set(listed)) - self.counts.stopped.keys())
        await self._follow(going)
        self._names = names
        if names and self._membership is not None:
            self._membership.subscribe(names)
        if self._task.step is Step.READY:
            await self._leftovers.look(dict(self._task.positions))
            if self._unbegun:
                await self._doubt()  # and asks for positions again, as a partition may have a leader now
        self._followed_ms = now_ms

    async def _follow(self, names: list[str]) -> None:
        """Make these topics on the target as they are on the source. One that the target refuses is stopped."""
        try:
            await follow_topics(self._source_admin, self._target_admin, names)
        except KafkaError as error:
            if is_retriable(error) or isinstance(error, AuthenticationError | AuthorizationError):
                raise
            if len(names) == 1:
                hint = MAKE_IT if isinstance(error, InvalidConfigurationError) else getattr(error, "hint", "")
                raise StoppedError(names[0], error.text, hint=hint) from error
            for name in names:
                try:
                    await self._follow([name])
                except StoppedError as stopped:
                    await self._stop(stopped)

    async def _find_positions(self, membership: Membership) -> None:
        """Ask the target for the positions, and begin to read there once all of them are known and stable."""
        wanted = [tp for tp in sorted(membership.assigned) if tp.topic not in self.counts.stopped]
        copies = await self._ids.on_target({tp.topic for tp in wanted})
        committed = await membership.stable_offsets(wanted)
        pending = len(committed) < len(wanted)
        known = known_positions(committed, copies)
        fresh = [tp for tp in committed if tp not in known]
        await self._ids.check(known)
        if not pending:
            await self._check_others(copies)
        self._unbegun = {}
        if fresh and not pending and await self._commit_first(membership, fresh, copies):
            return  # and asks again
        resumed = {tp: position._replace(stopped="") for tp, position in known.items() if position.stopped}
        if resumed and not pending:
            await self._commit_alone(resumed)
            return  # and asks again
        self._task = machine.found(self._task, tuple(sorted(known.items())), pending=pending)
        if pending:
            self._wait_for("transactions of other tasks to end, which hold positions")
            await self._started_producer()  # ends what this task itself has left open: nobody else would
            await self._leftovers.end_orphans()
            await asyncio.sleep(WAIT_MS / 1000)
            return
        self._aheads = {tp: Ahead(tp, position) for tp, position in known.items()}
        await self._leftovers.end_orphans(patience_ms=0)  # they hide what comes after them from readers
        await self._leftovers.look(known)
        self._source.read(self._aheads)

    async def _check_others(self, copies: Mapping[str, bytes]) -> None:
        """Raise StoppedError if another mirror copies one of these topics, too. copies: their ids on the target."""
        sources = await self._ids.on_source(copies)
        rivals = await others.find_rivals(self._target_admin, self._mirror, copies, sources)
        for topic, group in sorted(rivals.items()):
            raise StoppedError(topic, others.rival_text(group, self._mirror), hint=others.RIVAL_HINT)
        for topic, group in sorted((await others.find_circles(self._source_admin, copies)).items()):
            raise StoppedError(topic, others.circle_text(group), hint=others.CIRCLE_HINT)

    async def _commit_first(
        self, membership: Membership, fresh: list[TopicPartition], copies: Mapping[str, bytes]
    ) -> bool:
        """Commit the source's first offsets as positions of partitions that are empty on the target. copies: the ids of
        the topics on the target. Returns False if the source cannot say any of them now.

        Raises StoppedError for a partition that is not empty. Entries of the map that an earlier copy left are removed
        in the same transaction: a cutover would believe them.
        """
        ids = await self._ids.on_source({tp.topic for tp in fresh})
        starts = await self._source_admin.ends(fresh, EARLIEST, unavailable=self._unbegun)
        fresh = [tp for tp in fresh if tp in starts]
        if not fresh:
            return False
        above = await self._target_admin.ends(fresh, LATEST)
        taken = [tp for tp in fresh if above[tp] != 0]
        again = await membership.stable_offsets(taken)
        if len(again) < len(taken) or known_positions(again, copies):
            return True  # another task has committed the first positions meanwhile, and has written
        for tp in taken:
            raise StoppedError(
                tp.topic,
                f"partition {tp.partition} of the target has records, and this mirror has no position in it",
                hint="others write there, or the positions were deleted, which expire when no task runs for long:"
                f" {ANEW}",
            )
        first = {tp: Position(starts[tp], ids[tp.topic], None, copies[tp.topic]) for tp in fresh}
        await self._leftovers.look({})
        await self._commit_alone(first, self._leftovers.of_earlier_copies(fresh))
        return True

    async def _commit_alone(
        self, positions: Mapping[TopicPartition, Position], stale: Collection[EntryKey] = ()
    ) -> None:
        """Commit positions in a transaction without records. stale: entries to remove from the map in it.

        A plain commit would not do: the network may deliver one that was given up and sent again, after cycles that
        moved the positions, and it would set them back. The next cycle's producer has a newer epoch, which fences this
        transaction's requests.
        """
        assert self._task.member is not None
        producer = await self._started_producer()
        async with producer.transaction() as transaction:
            await self._writer.remove(producer, stale)
            committed = {tp: encode_position(position) for tp, position in positions.items()}
            await transaction.send_offsets_to_transaction(committed, self._task.member)
        self._leftovers.removed(stale)
        await self._end_producer()

    def _take(self) -> list[Chunk]:
        """Return chunks of the partitions in turn, until they are enough for one transaction."""
        now_ms, left = self._environment.clock.monotonic_ms(), self._cycle_bytes
        taken = list[Chunk]()
        for tp, ahead in list(self._aheads.items()):
            chunk = ahead.take(now_ms, left)
            if chunk is not None:
                taken.append(chunk)
                left -= chunk.size
                self._aheads[tp] = self._aheads.pop(tp)  # the last one next time
                if left <= 0:
                    break
        return taken

    async def _wait_for_records(self) -> None:
        """Wait until something was read, or for a moment."""
        self._source.arrived.clear()
        try:
            async with asyncio.timeout(WAIT_MS / 1000):
                await self._source.arrived.wait()
        except TimeoutError:
            return

    async def _cycle(self, chunks: list[Chunk]) -> None:
        """Write the chunks, their entries of the offset map and the new positions in one transaction, and commit it."""
        await self._ids.check({chunk.tp: chunk.following for chunk in chunks})
        producer = await self._started_producer()
        following = dict(self._task.positions) | {chunk.tp: chunk.following for chunk in chunks}
        gone = self._leftovers.gone(self._source.starts)
        self._task = machine.began(self._task)
        member = machine.fence_of(self._task)
        async with producer.transaction() as transaction:
            await self._writer.write(producer, chunks, gone)
            moved = {chunk.tp: encode_position(chunk.following) for chunk in chunks}
            await transaction.send_offsets_to_transaction(moved, member)
            self._task = machine.added(self._task, tuple(sorted(following.items())))
            if not machine.may_commit(self._task):
                raise IllegalStateError("a cycle without its positions is not committed")
        self._task = machine.committed(self._task)
        self._writer.committed()
        self._leftovers.removed(gone)
        self._count(chunks)

    def _count(self, chunks: list[Chunk]) -> None:
        """Add a committed cycle to the counts."""
        counts = self.counts
        counts.cycles += 1
        self._cycle_bytes = min(CYCLE_BYTES, 2 * self._cycle_bytes)
        counts.divided += sum(chunk.divides for chunk in chunks)
        counts.records += sum(len(chunk.records) for chunk in chunks)
        counts.bytes += sum(
            len(record.key or b"") + len(record.value or b"") for chunk in chunks for record in chunk.records
        )

    async def _started_producer(self) -> Producer:
        """Return the task's producer. A new one aborts the transaction that the one before it left open."""
        if self._producer is None:
            config = part_for(ProducerSettings, _USUAL | self._target) | {"transactional.id": self._id}
            self._producer = Producer.from_config(config, environment=self._environment)
            await self._producer.start()  # if that fails or is cancelled, the producer is closed like any other
        return self._producer


def _offset(committed: OffsetAndMetadata | None) -> int | None:
    return None if committed is None else committed.offset
