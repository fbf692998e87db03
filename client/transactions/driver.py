"""The transactions of one producer: sends the requests that machine.py decides on, one at a time.

The rules: every wait has a deadline. A commit can be cancelled only before its EndTxn; after that its response is
awaited (bounded), because an unknown outcome is worse than a late cancellation. The sender calls `may_send` before each
batch; a batch that fails makes its transaction fail, whether or not a caller awaits it.
Sources: Kafka's TransactionManager and KafkaProducer; KIP-447, KIP-588, KIP-890.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from ...protocol.errors import ErrorCode
from ..errors import (
    AbortableTransactionError,
    ClientError,
    ClosedError,
    CommitOutcomeUnknownError,
    KafkaError,
    ProducerFencedError,
    RequestTimedOutError,
    error_of,
)
from ..net.cluster import Cluster
from ..net.connection import log
from ..net.environment import Environment
from ..net.retry import Deadline
from ..settings import ProducerSettings
from ..values import ConsumerGroupMetadata, ProducerIdentity, TopicPartition
from .adding_partitions import AddingPartitions
from .answers import Verdict
from .cancellation import cancellations, is_cancelled, outlast
from .decisions import Decisions
from .initialising import Initialising
from .machine import ClientTransaction, Outcome, fenced_by
from .participant import DecidingDatabase
from .requests import PRODUCE_V1, Codes, TransactionRequests
from .sending import Sending
from .sources import FromGroup, FromShareGroup, Offsets, Sources
from .sql_commits import DatabaseCommits, Decide
from .table import OPEN, Event, State
from .tries import Tries
from .writes import Writes

SHIELD_S = 5.0
"""How long the abort of a cancelled transaction may take; after that its timeout at the broker ends it."""


class TransactionDriver:
    """The transactions of one producer; also the `SendPermission` of its Sender. Set `sender`
    before calling anything.
    """

    sender: Sending

    def __init__(self, settings: ProducerSettings, cluster: Cluster, environment: Environment) -> None:
        assert settings.transactional_id is not None
        self.transactional_id: str = settings.transactional_id
        self.machine = ClientTransaction(self.transactional_id, settings.transaction_timeout_ms)
        self.machine.unknown_outcome, self.machine.on_failed = self._unknown, self._drop_unsent
        self._settings = settings
        self._environment, self._affinity = environment, cluster.affinity
        self._tries = Tries(settings, environment)
        self._requests = TransactionRequests(cluster, self.machine, settings.request_timeout_ms)
        decisions = Decisions(cluster, settings.request_timeout_ms)
        self._initialising = Initialising(self.machine, self._requests, decisions, self._tries, self._explain)
        self.databases = DatabaseCommits(self.machine, decisions, self._tries, self._take_over)
        self._adding = AddingPartitions(self.machine, self._requests, self._tries)
        self._ending: asyncio.Task[None] | None = None  # a commit or an abort
        self._writes = Writes(self.machine, self._requests, self._tries, self._explain)
        self.sources = Sources()  # of the newest transaction
        self.begun = 0  # number of transactions so far
        self._owes_abort = False  # an abort was tried and is not confirmed
        self._resolving = asyncio.Lock()
        self._unanswered: KafkaError | None = None  # why the last EndTxn did not end the transaction

    @property
    def producer(self) -> None:
        """Return None: a transactional producer has no name."""
        return None

    def may_send(self, topic_partition: TopicPartition) -> bool:
        """Return whether a batch may be sent now. With version 1 the partition is added first; that
        wakes the sender.
        """
        if self.machine.may_write_to(topic_partition):
            return True
        self._adding.begin(self.sender.wake)
        return False

    def identity(self) -> ProducerIdentity | None:
        """Return producer id and epoch for batches, None without one."""
        return self.machine.identity if self.machine.identity.producer_id >= 0 else None

    def produce_cap(self) -> int | None:
        """Return the highest version of Produce for this version of transactions; None for any."""
        return None if self.machine.version >= 2 else PRODUCE_V1

    def failed(self, topic_partition: TopicPartition, error: Exception) -> None:
        """Fail the transaction: one of its batches failed and is not sent again."""
        if not isinstance(error, KafkaError):
            error = ClientError(f"{topic_partition}: {error}", code=ErrorCode.INVALID_RECORD)
        self.machine.failed(error)

    def _drop_unsent(self) -> None:
        """Fail, in the next turn of the loop, the batches that were not sent, because they never will be."""

        def drop() -> None:
            if self.machine.is_in(State.ABORTABLE_ERROR, State.FATAL):
                self.sender.drop_unsent(self.machine.failure())

        asyncio.get_running_loop().call_soon(drop)

    def refusal(self) -> KafkaError | None:
        """Return the retriable error of the last try to add partitions to the transaction; None if there is none."""
        return self._adding.refusal

    def sent(self, topic_partition: TopicPartition) -> None:
        """Do nothing: may_send has noted the partition."""

    @property
    def state(self) -> State:
        return self.machine.state

    @property
    def goes_on(self) -> bool:
        """Return whether another transaction can begin, perhaps after a pending abort or commit of the last one."""
        state = self.machine.state
        if state is State.ABORTABLE_ERROR:
            return self._owes_abort
        return state in (State.READY, State.STALE, State.UNKNOWN_OUTCOME)

    def age_ms(self) -> int:
        """Return how many milliseconds ago the transaction began."""
        return self._environment.clock.monotonic_ms() - self.machine.began_ms

    async def initialise(self) -> None:
        """Become the only producer of this id: fences its previous producer and aborts its open transaction. One that
        is held for a database is not aborted: the state is then PREPARED.

        After a RequestTimedOutError it may be called again.
        """
        await self._take_over(Event.INIT, self._tries.deadline())

    async def _take_over(self, event: Event, deadline: Deadline) -> None:
        """Request this event of the machine, then send InitProducerId until it succeeds or a held
        transaction is found.
        """
        self.machine.request(event)
        await self._initialising.run(deadline)

    async def begin(self, sources: Sources | None = None, database: DecidingDatabase | None = None) -> None:
        """Begin a transaction. Sends nothing unless the previous one left an abort or a new epoch to be done first.

        sources: with batches that are claimed already. database: one that takes part in its commit.
        """
        machine = self.machine
        if machine.state is State.ABORTABLE_ERROR and self._owes_abort:
            await self.abort()
        await self.databases.get_ready(database)
        if machine.state is State.PREPARED and machine.waits_for_predecessor:
            await self._take_over(Event.TAKE_OVER, self._tries.deadline())
        if machine.state is State.STALE:
            await self.initialise()
        machine.begin(self._requests.seen_version, self._environment.clock.monotonic_ms())
        self.begun += 1
        self._owes_abort, self._unanswered = False, None
        self.sources = sources or Sources()
        self.sources.resolve = partial(self._resolve, self.sources)

    def _request(self, event: Event) -> None:
        """Request an event of the machine. If its state is FATAL, notify the batches in `sources` of the outcome."""
        try:
            self.machine.request(event)
        finally:
            if self.machine.state is State.FATAL:
                self.sources.notify(self.machine.outcome)

    async def send_offsets(
        self, offsets: Offsets, group: ConsumerGroupMetadata, batch: FromGroup | None = None
    ) -> None:
        """Send offsets: they take effect with the commit, and the end of the transaction waits for this call.

        A failure or a cancellation fails the transaction. Raises its error.
        """
        self._request(Event.WRITE)
        if batch is not None:
            batch.claim(self.sources)
            self.sources.add(batch)
        if not offsets:
            return
        try:
            async with self._writes.lock:
                await self._writes.send_offsets(offsets, group)
        except asyncio.CancelledError:
            self.machine.refused_write(Verdict.ABORT, RequestTimedOutError("sending offsets was cancelled"))
            raise

    async def offsets_sent(self) -> None:
        """Wait until offsets and acknowledgements of other tasks are in the transaction, or have failed it."""
        async with self._writes.lock:
            pass

    def check_writable(self) -> None:
        """Raise the transaction's error if it accepts no writes now."""
        self._request(Event.WRITE)

    async def hand_over(self, taken: FromShareGroup) -> Callable[[], Awaitable[None]]:
        """Return a function for `commit` that sends the acknowledgements which a share group's consumer has not sent
        yet.

        Raises the transaction's error; RecordNotHeldError if another consumer has one of the records by now.
        """
        self._request(Event.WRITE)
        async with self._writes.lock:
            return await self._writes.hand_over(taken)

    async def acknowledge(self, taken: FromShareGroup) -> None:
        """Send acknowledgements of records of a share group now: they take effect with the commit.

        A failure or a cancellation fails the transaction, also where the broker may have taken them. Raises its error;
        RecordNotHeldError if one of the records is another consumer's by now, and nothing was sent.
        """
        self._request(Event.WRITE)
        try:
            async with self._writes.lock:
                await self._writes.acknowledge(taken)
        except asyncio.CancelledError:
            self.machine.refused_write(Verdict.ABORT, RequestTimedOutError("acknowledging was cancelled"))
            raise

    async def commit(
        self,
        offsets: tuple[Offsets, ConsumerGroupMetadata] | None = None,
        writes: Sequence[Callable[[], Awaitable[None]]] = (),
        decide: Decide | None = None,
    ) -> None:
        """Wait for every write, then commit. offsets, writes (returned by `hand_over`): sent before that, together with
        the records. decide: ends the transaction instead of EndTxn (`databases.commit`).

        Raises AbortableTransactionError and the like: not committed, abort it; CommitOutcomeUnknownError: unknown. A
        cancellation before EndTxn is sent aborts; a later one takes effect after the response.
        """
        self.databases.check_decides(decide is not None)
        self._request(Event.COMMIT)
        try:
            await self._run_end(self._commit(offsets, writes, decide), is_commit=True)
        finally:
            if not self.machine.is_in(State.ABORTABLE_ERROR):  # then an abort must follow, which notifies them
                self.sources.notify(self.machine.outcome)

    async def _commit(
        self,
        offsets: tuple[Offsets, ConsumerGroupMetadata] | None,
        writes: Sequence[Callable[[], Awaitable[None]]],
        decide: Decide | None,
    ) -> None:
        """Send pending offsets and writes, wait for records, send EndTxn(commit). Raises the transaction's error."""
        machine = self.machine
        if machine.state is State.FLUSHING:
            await self.offsets_sent()
            if offsets is not None and offsets[0]:
                writes = [*writes, partial(self._writes.send_offsets, *offsets)]
            flushing = asyncio.get_running_loop().create_task(self.sender.flush())
            try:
                for error in await asyncio.gather(*(write() for write in writes), return_exceptions=True):
                    if error is not None and not isinstance(error, KafkaError):  # KafkaErrors are in the machine
                        raise error
                if machine.is_in(State.FLUSHING):  # else the abort waits for the records, and not so long
                    if decide is not None and await decide(self.sender, flushing):
                        return
                    await flushing
            finally:
                flushing.cancel()
            if not machine.is_in(State.FLUSHING):
                if decide is not None and machine.is_in(State.FATAL):  # no abort follows, and it may be prepared
                    with contextlib.suppress(KafkaError):
                        await self._requests.end(False)
                await self._explain()
                raise machine.failure()
            if machine.ends_without_request():
                return
        await self._end(True)
        if machine.outcome == "unknown":
            raise self._unknown()
        if machine.outcome != "committed":
            await self._explain()
            raise machine.failure()

    async def prepare(self, ask: Callable[[], Awaitable[Codes]]) -> None:
        """Wait for every write, then call `ask`, which prepares the transaction. The producer can begin no other
        transaction after that. Raises AbortableTransactionError and the like: abort it.
        """
        self.machine.request(Event.COMMIT)
        await self.sender.flush()
        await self._writes.retry(ask, self._requests.target, self._tries.deadline(), "PrepareTxn")
        self.machine.prepared()

    async def abort(self, *, shielded: bool = False) -> None:
        """Drop unsent batches, wait for the responses to sent ones, and abort. After an error it may be called again.

        shielded: for a cancelled caller. It waits for SHIELD_S at most and raises nothing; if that fails, the next
        transaction aborts this one, or its timeout does.
        """
        if shielded and self._owes_abort:
            return
        self._request(Event.ABORT)
        self._owes_abort = True
        try:
            await self._run_end(self._abort(), is_shielded=shielded)
        finally:
            self.sources.notify(self.machine.outcome)
        self._owes_abort = self.machine.outcome != "aborted"

    async def _abort(self) -> None:
        """Drop unsent records, wait for responses to sent ones, then send EndTxn(abort). Raises RequestTimedOutError
        after max_block_ms.
        """
        machine = self.machine
        self.sender.drop_unsent(AbortableTransactionError("the transaction was aborted before this was sent"))
        try:
            async with asyncio.timeout(self._settings.max_block_ms / 1000):
                await self._adding.end()
                await self.offsets_sent()
                await self.sender.settle()
        except TimeoutError:
            waiting = RequestTimedOutError(
                "there is no response to records that were sent: the transaction cannot be ended yet"
            )
            machine.gave_up(waiting)
            raise waiting from None
        await self._explain()  # before the abort changes the state at the broker
        if machine.ends_without_request():
            return
        error = await self._end(False)
        await self._explain()
        if machine.outcome != "aborted":
            raise machine.failure() if machine.state is State.FATAL or error is None else error

    async def _end(self, commit: bool) -> KafkaError | None:
        """Send EndTxn until a response ends the transaction or the time is over. Returns the last error, if any."""
        machine = self.machine
        going = State.COMMITTING if commit else State.ABORTING  # another state: it has ended or failed
        deadline = self._tries.deadline()
        attempt, code = 0, 0
        error: KafkaError | None = None
        while machine.state is going:
            if machine.needs_identity_to_abort():
                try:
                    await self._initialising.run(deadline)
                except KafkaError as raised:
                    return raised
                return None
            try:
                code, identity = await self._requests.end(commit)
                if machine.ended(code, identity) is Verdict.DONE:
                    return None
                error = error_of(code, f"EndTxn: {error_of(code)}")
                self._requests.stale(code, self._requests.target)
            except KafkaError as raised:
                code, error = 0, raised
            self._unanswered = error.with_traceback(None)
            if machine.state is not going or machine.needs_identity_to_abort():
                continue
            if not await self._tries.pause(attempt, deadline, error, code, "EndTxn"):
                error = self._tries.late("EndTxn", error)
                machine.gave_up(error)
            attempt += 1
        return error

    async def _run_end(
        self, work: Coroutine[Any, Any, None], *, is_commit: bool = False, is_shielded: bool = False
    ) -> None:
        """Run a commit or an abort in a task. If the caller is cancelled meanwhile: abort instead of a commit whose
        EndTxn was not sent, and raise the cancellation once the task has ended.
        """
        loop = asyncio.get_running_loop()
        task = self._ending = loop.create_task(work)
        try:
            await (self._await_end(task) if is_shielded else asyncio.shield(task))
        except asyncio.CancelledError:
            if task.cancelled() and not is_cancelled():
                raise self._release() from None
            if is_commit and self.machine.state not in (State.COMMITTING, State.PREPARED):
                task.cancel()
                await outlast(task, SHIELD_S)
                if self.machine.state in (State.FLUSHING, State.ABORTABLE_ERROR):
                    self.machine.request(Event.ABORT)
                    self._owes_abort = True
                    task = self._ending = loop.create_task(self._abort())
            await self._await_end(task)
            raise
        finally:
            if task.done():
                self._ending = None

    async def _await_end(self, task: "asyncio.Task[None]", at_most_s: float = float("inf")) -> None:
        """Wait for a commit (at most request_timeout_ms) or an abort (SHIELD_S); cancel it if it takes longer."""
        committing = self.machine.state in (State.COMMITTING, State.PREPARED)
        long_s = self._settings.request_timeout_ms / 1000 if committing else SHIELD_S
        await outlast(task, min(long_s, at_most_s))
        if not task.done():
            task.cancel()
            await outlast(task, SHIELD_S)
            self._release()
        if not task.cancelled() and task.done() and (error := task.exception()) is not None:
            log.info("%s: %s", self.transactional_id, error)

    def _release(self) -> KafkaError:
        """Give up the commit or abort that was started. Returns the error for its caller."""
        machine = self.machine
        if machine.state in (State.COMMITTING, State.ABORTING):
            machine.gave_up(RequestTimedOutError(f"{machine.transactional_id!r} was not ended in time"))
        unknown = machine.outcome == "unknown"
        return self._unknown() if unknown else ClosedError("the producer was closed during the call")

    async def close(self, timeout_ms: float = float("inf")) -> None:
        """End the transaction: wait for a commit that was sent, abort everything else. Never hangs."""
        before, deadline = cancellations(), Deadline(self._environment.clock, timeout_ms)
        if self._ending is not None:
            await self._await_end(self._ending, deadline.left_ms() / 1000)
        self._release()
        if self.machine.state in OPEN:
            log.warning("transaction %r is open while its producer is closed: it is aborted", self.transactional_id)
        for _ in range(2):
            if self.machine.state in OPEN or self.machine.state is State.ABORTABLE_ERROR:
                aborting = asyncio.get_running_loop().create_task(self.abort())
                await self._await_end(aborting, deadline.left_ms() / 1000)
                if not aborting.cancelled():  # asyncio.run() may cancel it before its first step: then once more
                    break
        if self.databases.is_unsettled:
            settling = asyncio.get_running_loop().create_task(self.databases.settle())
            await self._await_end(settling, min(SHIELD_S, deadline.left_ms() / 1000))
        self.databases.close()
        self._adding.cancel()
        self.sources.notify(self.machine.outcome)
        if cancellations() > before:  # the caller was cancelled meanwhile
            raise asyncio.CancelledError

    def _unknown(self) -> CommitOutcomeUnknownError:
        """Return a new error for the commit with unknown outcome; all of them resolve the same commit."""
        why = "" if self._unanswered is None else f"; {self._unanswered}"
        return CommitOutcomeUnknownError(
            f"the commit of {self.transactional_id!r} got no response: it may have been carried out or not{why}",
            resolve=self.sources.resolve,
        )

    async def resolve(self) -> Outcome:
        """Return the outcome of the newest commit; sends it again if the outcome is not known yet."""
        return await self._resolve(self.sources)

    async def _resolve(self, sources: Sources) -> Outcome:
        """Send the same commit again, one call at a time. The outcome stays "unknown" if this producer is fenced."""
        self._affinity.check()
        async with self._resolving:
            return await self._resolve_alone(sources)

    async def _resolve_alone(self, sources: Sources) -> Outcome:
        """Return the outcome of the transaction with these sources, by repeating its commit if it is unknown."""
        machine = self.machine
        if sources is not self.sources:
            return sources.outcome or "unknown"
        if self.databases.is_unsettled:
            with contextlib.suppress(KafkaError):
                await self.databases.settle()
            sources.outcome = machine.outcome
        if machine.state is State.UNKNOWN_OUTCOME:
            try:
                await self.commit()
            except CommitOutcomeUnknownError:
                return "unknown"
            except KafkaError:
                pass
            if machine.is_in(State.ABORTABLE_ERROR):  # the broker did not commit, and nobody sends it again
                with contextlib.suppress(KafkaError):
                    await self.abort()
                sources.outcome = "aborted"
                return "aborted"
        return machine.outcome or "unknown"

    async def _explain(self) -> None:
        """If this producer was fenced, ask the broker for the reason, and set it in the error."""
        machine, error = self.machine, self.machine.error
        if not isinstance(error, ProducerFencedError):
            return
        elapsed_ms = self.age_ms()
        if machine.outcome == "aborted" and machine.state is not State.FATAL:
            machine.explain_broker_abort(elapsed_ms)
            return
        if error.reason != "unknown" and error.current_epoch >= 0:
            return
        try:
            async with asyncio.timeout(SHIELD_S):
                found = await self._requests.describe()
        except TimeoutError:
            found = None
        epoch = -1 if found is None else found.identity.epoch
        machine.explain(fenced_by(machine.identity, found, elapsed_ms, machine.timeout_ms), epoch)
