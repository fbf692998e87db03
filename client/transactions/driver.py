"""The transactions of one producer: carries out what machine.py decides, one thing after the other.

The rules: whatever waits has a deadline. A commit is cancelled only before its EndTxn; from then on its answer is
awaited (bounded), because a transaction whose end nobody knows is worse than a late cancellation. Batches ask
`may_send` first: a failed one spoils its transaction, whether or not anybody waits for it.
Sources: Kafka's TransactionManager and KafkaProducer; KIP-447, KIP-588, KIP-890.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Protocol

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
    is_retriable,
)
from ..net.cluster import Cluster
from ..net.connection import log
from ..net.coordinators import CoordinatorKind
from ..net.environment import Environment
from ..net.retry import Deadline
from ..settings import ProducerSettings
from ..values import ConsumerGroupMetadata, ProducerIdentity, TopicPartition
from .adding_partitions import AddingPartitions
from .answers import Verdict, worst
from .cancellation import is_cancelled, outlast
from .machine import ClientTransaction, Outcome, fenced_by
from .requests import PRODUCE_V1, TransactionRequests
from .sources import FromGroup, Offsets, Sources
from .table import OPEN, Event, State
from .tries import Tries

SHIELD_S = 5.0
"""How long a cancelled transaction is given to be aborted; after that its timeout at the broker ends it."""


class Sending(Protocol):
    """What a driver needs of the sender, which is made after it."""

    def wake(self) -> None: ...
    async def flush(self) -> None: ...
    def drop_unsent(self, error: KafkaError) -> None: ...
    async def settle(self) -> None: ...


class TransactionDriver:
    """Also what the producer's Sender asks before it sends (`SendPermission`). `sender` is set before anything else."""

    sender: Sending

    def __init__(self, settings: ProducerSettings, cluster: Cluster, environment: Environment) -> None:
        assert settings.transactional_id is not None
        self.transactional_id: str = settings.transactional_id
        self.machine = ClientTransaction(self.transactional_id, settings.transaction_timeout_ms)
        self.machine.unknown_outcome, self.machine.spoilt = self._unknown, self._drop_unsent
        self._settings = settings
        self._environment, self._affinity = environment, cluster.affinity
        self._tries = Tries(settings, environment)
        self._requests = TransactionRequests(cluster, self.machine, settings.request_timeout_ms)
        self._adding = AddingPartitions(self.machine, self._requests, self._tries)
        self._ending: asyncio.Task[None] | None = None  # a commit or an abort
        self._offsets_turn = asyncio.Lock()  # offsets leave one after the other, with all their tries
        self.sources = Sources()  # of the newest transaction
        self.begun = 0  # transactions so far
        self._owes_abort = False  # one was tried, and not answered
        self._resolving = asyncio.Lock()

    # ---- what a Sender asks (SendPermission) -----------------------------------------------------------------

    def may_send(self, topic_partition: TopicPartition) -> bool:
        """Whether a batch may go there now. With version 1 the partition is added first; then the sender is woken."""
        if self.machine.may_write_to(topic_partition):
            return True
        self._adding.begin(self.sender.wake)
        return False

    def identity(self) -> ProducerIdentity | None:
        """What batches are written under."""
        return self.machine.identity if self.machine.identity.producer_id >= 0 else None

    def produce_cap(self) -> int | None:
        """The highest version of Produce that belongs to this version of transactions."""
        return None if self.machine.version >= 2 else PRODUCE_V1

    def failed(self, topic_partition: TopicPartition, error: Exception) -> None:
        """A batch failed for good."""
        if not isinstance(error, KafkaError):
            error = ClientError(f"{topic_partition}: {error}", code=ErrorCode.INVALID_RECORD)
        self.machine.failed(error)

    def _drop_unsent(self) -> None:
        """Fail the batches that were not sent, since they never will be; later, not inside of the caller."""

        def drop() -> None:
            if self.machine.is_in(State.ABORTABLE_ERROR, State.FATAL):
                self.sender.drop_unsent(self.machine.failure())

        asyncio.get_running_loop().call_soon(drop)

    def sent(self, topic_partition: TopicPartition) -> None:
        """A batch is on its way. may_send has noted it already."""

    # ---- beginning -------------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        return self.machine.state

    @property
    def goes_on(self) -> bool:
        """Whether another transaction may be begun, perhaps after what the last one left to be done."""
        state = self.machine.state
        if state is State.ABORTABLE_ERROR:
            return self._owes_abort
        return state in (State.READY, State.STALE, State.UNKNOWN_OUTCOME)

    def age_ms(self) -> int:
        """Since the transaction began."""
        return self._environment.clock.monotonic_ms() - self.machine.began_ms

    async def initialise(self) -> None:
        """Become the one producer of this id: who had it before is fenced, what was open is aborted.

        Raises what says why not; after a RequestTimedOutError it may be called again.
        """
        self.machine.asked(Event.INIT)
        await self._initialise(self._tries.deadline())

    async def _initialise(self, deadline: Deadline) -> None:
        machine = self.machine
        attempt = 0
        try:
            while True:
                error, code = await self._init_once(deadline)
                if error is None:
                    return
                if not await self._tries.pause(attempt, deadline, error, code):
                    machine.not_initialised(error)
                    raise self._tries.late("InitProducerId", error)
                attempt += 1
        except asyncio.CancelledError as cancelled:
            if machine.state in (State.INITIALIZING, State.ABORTING):
                machine.not_initialised(RequestTimedOutError("InitProducerId was cancelled"))
            raise cancelled

    async def _init_once(self, deadline: Deadline) -> tuple[KafkaError | None, int]:
        try:
            code, identity = await self._requests.init(deadline.left_ms())
        except KafkaError as error:
            return error, 0
        verdict = self.machine.initialised(code, identity)
        if verdict is Verdict.DONE:
            return None, 0
        if verdict is not Verdict.AGAIN:
            await self._explain()
            raise self.machine.failure()
        self._requests.stale(code, self._requests.target)
        return error_of(code), code

    async def begin(self, sources: Sources | None = None) -> None:
        """Nothing is sent, unless the one before left something to be done first. sources: with batches claimed."""
        machine = self.machine
        if machine.state is State.ABORTABLE_ERROR and self._owes_abort:
            await self.abort()
        if machine.state is State.STALE:
            await self.initialise()
        machine.begin(self._requests.seen_version, self._environment.clock.monotonic_ms())
        self.begun += 1
        self._owes_abort = False
        self.sources = sources or Sources()
        self.sources.resolve = partial(self._resolve, self.sources)

    def _ask_machine(self, event: Event) -> None:
        """As the machine's. Where the producer has ended, its batches are notified: nobody ends their transaction."""
        try:
            self.machine.asked(event)
        finally:
            if self.machine.state is State.FATAL:
                self.sources.tell(self.machine.outcome)

    # ---- offsets ---------------------------------------------------------------------------------------------

    async def send_offsets(
        self, offsets: Offsets, group: ConsumerGroupMetadata, batch: FromGroup | None = None
    ) -> None:
        """The offsets count when the transaction is committed, and its end waits for them. Cancelled, it is spoilt.

        Raises the error that spoils the transaction.
        """
        self._ask_machine(Event.WRITE)
        if batch is not None:
            batch.claim(self.sources)
            self.sources.add(batch)
        if not offsets:
            return
        try:
            async with self._offsets_turn:
                await self._send_offsets(offsets, group)
        except asyncio.CancelledError:
            self.machine.refused_write(Verdict.ABORT, RequestTimedOutError("sending offsets was cancelled"))
            raise

    async def offsets_sent(self) -> None:
        """What other tasks have begun to send is in the transaction, or has spoilt it."""
        async with self._offsets_turn:
            pass

    async def _send_offsets(self, offsets: Offsets, group: ConsumerGroupMetadata) -> None:
        machine, group_id = self.machine, group.group_id
        target: tuple[CoordinatorKind, str] = ("group", group_id)
        deadline = self._tries.deadline()
        await self._insist(partial(self._check_offsets, group_id), target, deadline, "finding the group's coordinator")
        machine.attempts_offsets()
        if machine.version < 2 and group_id not in machine.groups:
            ask = partial(self._requests.add_offsets, group_id)
            await self._insist(ask, self._requests.target, deadline, "AddOffsetsToTxn")
            machine.groups.add(group_id)
        await self._insist(
            partial(self._requests.commit_offsets, offsets, group), target, deadline, f"offsets of group {group_id!r}"
        )

    async def _check_offsets(self, group_id: str) -> Iterable[int]:
        await self._requests.check_offsets(group_id)
        return ()

    async def _insist(
        self,
        ask: Callable[[], Awaitable[Iterable[int]]],
        target: tuple[CoordinatorKind, str],
        deadline: Deadline,
        what: str,
    ) -> None:
        """Ask until it is done. Raises the error that spoils the transaction."""
        machine = self.machine
        attempt = 0
        while machine.state in OPEN:
            code = 0
            try:
                verdict, code = worst(await ask())
                if verdict is Verdict.DONE:
                    return
                error = error_of(code, f"{what}: {error_of(code)}")
            except KafkaError as raised:
                verdict, error = (Verdict.AGAIN if is_retriable(raised) else Verdict.ABORT), raised
            self._requests.stale(code, target)
            if verdict is not Verdict.AGAIN:
                machine.refused_write(verdict, error)
            elif not await self._tries.pause(attempt, deadline, error, code):
                machine.refused_write(Verdict.ABORT, self._tries.late(what, error))
            attempt += 1
        await self._explain()
        raise machine.failure()

    # ---- the end ---------------------------------------------------------------------------------------------

    async def commit(self, offsets: tuple[Offsets, ConsumerGroupMetadata] | None = None) -> None:
        """Wait for every write, then commit. offsets: sent with it.

        Raises AbortableTransactionError and the like: not committed, abort it. CommitOutcomeUnknownError: perhaps.
        Cancelled before EndTxn is sent, it aborts; later it waits for the answer, and then is cancelled.
        """
        self._ask_machine(Event.COMMIT)
        try:
            await self._attend(self._commit(offsets), is_commit=True)
        finally:
            if not self.machine.is_in(State.ABORTABLE_ERROR):  # an abort is to follow
                self.sources.tell(self.machine.outcome)

    async def _commit(self, offsets: tuple[Offsets, ConsumerGroupMetadata] | None) -> None:
        machine = self.machine
        if machine.state is State.FLUSHING:
            await self.offsets_sent()
            if offsets is not None and offsets[0]:
                both = await asyncio.gather(self.sender.flush(), self._send_offsets(*offsets), return_exceptions=True)
                for error in both:
                    if error is not None and not isinstance(error, KafkaError):  # of those the machine knows
                        raise error
            else:
                await self.sender.flush()
            if not machine.is_in(State.FLUSHING):
                await self._explain()
                raise machine.failure()
            if machine.ends_without_asking():
                return
        await self._end(True)
        if machine.outcome == "unknown":
            raise self._unknown()
        if machine.outcome != "committed":
            await self._explain()
            raise machine.failure()

    async def prepare(self, ask: Callable[[], Awaitable[Iterable[int]]]) -> None:
        """Wait for every write, then ask until the transaction is out of our hands; the producer is done with then.

        Raises AbortableTransactionError and the like: abort it.
        """
        self.machine.asked(Event.COMMIT)
        await self.sender.flush()
        await self._insist(ask, self._requests.target, self._tries.deadline(), "PrepareTxn")
        self.machine.prepared()

    async def abort(self, *, shielded: bool = False) -> None:
        """Drop what is not sent, wait for what is, and abort. Raises what is in the way; it may be called again.

        shielded: for somebody who was cancelled. Tried once, for SHIELD_S; the next transaction, or its timeout, does
        the rest. Raises nothing then.
        """
        if shielded and self._owes_abort:
            return
        self._ask_machine(Event.ABORT)
        self._owes_abort = True
        try:
            await self._attend(self._abort(), is_shielded=shielded)
        finally:
            self.sources.tell(self.machine.outcome)
        self._owes_abort = self.machine.outcome != "aborted"

    async def _abort(self) -> None:
        machine = self.machine
        self.sender.drop_unsent(AbortableTransactionError("the transaction was aborted before this was sent"))
        try:
            async with asyncio.timeout(self._settings.max_block_ms / 1000):
                await self._adding.end()
                await self.offsets_sent()
                await self.sender.settle()
        except TimeoutError:
            waiting = RequestTimedOutError(
                "records that were sent are not answered: the transaction cannot be ended yet"
            )
            machine.gave_up(waiting)
            raise waiting from None
        await self._explain()  # before the broker forgets
        if machine.ends_without_asking():
            return
        error = await self._end(False)
        await self._explain()
        if machine.outcome != "aborted":
            raise machine.failure() if machine.state is State.FATAL or error is None else error

    async def _end(self, commit: bool) -> KafkaError | None:
        """EndTxn, until it is answered or time is over. Returns the error that was in the way."""
        machine = self.machine
        going = State.COMMITTING if commit else State.ABORTING  # else something has failed since it was asked for
        deadline = self._tries.deadline()
        attempt, code = 0, 0
        error: KafkaError | None = None
        while machine.state is going:
            if machine.needs_identity_to_abort():
                try:
                    await self._initialise(deadline)
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
            if machine.state is not going or machine.needs_identity_to_abort():
                continue
            if not await self._tries.pause(attempt, deadline, error, code):
                error = self._tries.late("EndTxn", error)
                machine.gave_up(error)
            attempt += 1
        return error

    async def _attend(
        self, work: Coroutine[Any, Any, None], *, is_commit: bool = False, is_shielded: bool = False
    ) -> None:
        """Run a commit or an abort, with this module's rules for who is cancelled meanwhile."""
        loop = asyncio.get_running_loop()
        task = self._ending = loop.create_task(work)
        try:
            await (self._await_end(task) if is_shielded else asyncio.shield(task))
        except asyncio.CancelledError:
            if task.cancelled() and not is_cancelled():
                raise self._release() from None
            if is_commit and self.machine.state is not State.COMMITTING:
                task.cancel()
                await outlast(task, SHIELD_S)
                if self.machine.state in (State.FLUSHING, State.ABORTABLE_ERROR):
                    self.machine.asked(Event.ABORT)
                    self._owes_abort = True
                    task = self._ending = loop.create_task(self._abort())
            await self._await_end(task)
            raise
        finally:
            if task.done():
                self._ending = None

    async def _await_end(self, task: "asyncio.Task[None]", at_most_s: float = float("inf")) -> None:
        """Its end, as long as that may take: a commit's answer for one request's time, an abort's for SHIELD_S."""
        committing = self.machine.state is State.COMMITTING
        long_s = self._settings.request_timeout_ms / 1000 if committing else SHIELD_S
        await outlast(task, min(long_s, at_most_s))
        if not task.done():
            task.cancel()
            await outlast(task, SHIELD_S)
            self._release()
        if not task.cancelled() and task.done() and (error := task.exception()) is not None:
            log.info("%s: %s", self.transactional_id, error)

    def _release(self) -> KafkaError:
        """The end that was begun is not waited for any more. Returns the error for whoever waits for it."""
        machine = self.machine
        if machine.state in (State.COMMITTING, State.ABORTING):
            machine.gave_up(RequestTimedOutError(f"{machine.transactional_id!r} was not ended in time"))
        unknown = machine.outcome == "unknown"
        return self._unknown() if unknown else ClosedError("the producer was closed meanwhile")

    async def close(self, timeout_ms: float = float("inf")) -> None:
        """End what is open: a commit that was sent is waited for, everything else is aborted. Never hangs."""
        deadline = Deadline(self._environment.clock, timeout_ms)
        if self._ending is not None:
            await self._await_end(self._ending, deadline.left_ms() / 1000)
        if self.machine.state in OPEN or self.machine.state is State.ABORTABLE_ERROR:
            aborting = asyncio.get_running_loop().create_task(self.abort())
            await self._await_end(aborting, deadline.left_ms() / 1000)
        self._adding.cancel()
        self.sources.tell(self.machine.outcome)

    # ---- a commit that was not answered ----------------------------------------------------------------------

    def _unknown(self) -> CommitOutcomeUnknownError:
        """The error of the commit whose end is not known; each raise gets one of its own, all resolve the same."""
        return CommitOutcomeUnknownError(
            f"the commit of {self.transactional_id!r} was sent and not answered: it may have been carried out or not",
            resolve=self.sources.resolve,
        )

    async def resolve(self) -> Outcome:
        """What became of the newest commit, if nobody knows yet."""
        return await self._resolve(self.sources)

    async def _resolve(self, sources: Sources) -> Outcome:
        """Ask again with the same commit: its answer tells. Fenced, nobody can tell any more: "unknown".

        Who asks while another does waits for that one.
        """
        self._affinity.check()
        async with self._resolving:
            return await self._resolve_alone(sources)

    async def _resolve_alone(self, sources: Sources) -> Outcome:
        machine = self.machine
        if sources is not self.sources:
            return sources.outcome or "unknown"
        if machine.state is State.UNKNOWN_OUTCOME:
            try:
                await self.commit()
            except CommitOutcomeUnknownError:
                return "unknown"
            except KafkaError:
                pass
            if machine.is_in(State.ABORTABLE_ERROR):  # the broker has no such commit, and never gets one from us
                with contextlib.suppress(KafkaError):
                    await self.abort()
                sources.outcome = "aborted"
                return "aborted"
        return machine.outcome or "unknown"

    # ---- why -------------------------------------------------------------------------------------------------

    async def _explain(self) -> None:
        """Find out who fenced this producer, as well as it can be known."""
        machine, error = self.machine, self.machine.error
        if not isinstance(error, ProducerFencedError):
            return
        elapsed_ms = self.age_ms()
        if machine.outcome == "aborted" and machine.state is not State.FATAL:
            machine.explain_by_itself(elapsed_ms)
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
