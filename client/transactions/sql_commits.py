"""The commits of one producer over the broker and a database: carries out what deciding.py says.

The rules: DECIDE, PrepareTxn and COMMIT are sent here; what may have to be asked again and again is in sql_steps.py.
COMMIT is sent once the row is written, all records are acknowledged and PrepareTxn is answered. From then on nothing is
cancelled or guessed: what the database did is asked over a new connection. Once the database has committed, the call
returns, whether or not the broker could be told; the next transaction waits for that.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection

from ...protocol.errors import ErrorCode
from ...protocol.messages.ledger import PrepareTxnResponse
from ..errors import (
    AbortableTransactionError,
    IllegalStateError,
    InvalidConfigurationError,
    KafkaError,
    OutcomeDivergedError,
    is_retriable,
)
from ..net.retry import Deadline
from .answers import Verdict, of_write
from .cancellation import outlast
from .deciding import Step, Waiting, ledger_key
from .decisions import Decisions
from .machine import ClientTransaction
from .participant import Block, DecidingDatabase, Wait
from .sending import Sending
from .sources import Sources
from .sql_steps import Steps, overtaken
from .table import Event, State
from .tries import Tries

log = logging.getLogger("fencepost.client")

Decide = Callable[[Sending, Awaitable[None]], Awaitable[bool]]
"""Commits in the database and at the broker, like DatabaseCommits.commit."""
AGAIN_S = 1.0
"""The pause between attempts to end, in the background, a transaction whose end had no answer."""
ROLL_BACK_S = 10.0
"""How long a cancelled caller waits for the database's rollback."""


class DatabaseCommits:
    """Carries out the commits of one producer over the broker and a database. steps: those outside of a commit, and
    where the producer is among all of them.
    """

    def __init__(
        self,
        machine: ClientTransaction,
        decisions: Decisions,
        tries: Tries,
        initialise: Callable[[Event, Deadline], Awaitable[None]],
    ) -> None:
        """initialise: like that of Steps."""
        self.steps = Steps(machine, decisions, tries, initialise)
        self._machine = machine
        self._decisions = decisions
        self._tries = tries
        self._open: DecidingDatabase | None = None  # in which a transaction of this producer is open
        self._turn = asyncio.Lock()
        self._telling: asyncio.Task[None] | None = None  # ends the last transaction in the background

    @property
    def is_unsettled(self) -> bool:
        """Return whether a transaction of this producer is prepared, and the broker was not told yet how it was
        decided.
        """
        return self.steps.is_unsettled

    async def get_ready(self, database: DecidingDatabase | None) -> None:
        """Make ready for a transaction: end the last one if its outcome is still open, and those that earlier producers
        with the same id have left.

        database: None for a transaction without one. Raises CommitOutcomeUnknownError or RequestTimedOutError if the
        database or the broker do not answer, and OutcomeDivergedError; ProducerFencedError if another producer uses the
        transactional id.
        """
        async with self._turn:
            await self._settle()
            if database is None or self._machine.state not in _FREE:
                return  # of another state the machine's begin() says why it refuses
            database.check_free()
            await self.steps.take_over(database)

    async def begin(self, database: DecidingDatabase, sources: Sources) -> None:
        """Begin the database's transaction. sources: those of the producer's transaction. Raises like `database.begin`;
        then nothing is open.
        """
        try:
            await database.begin()
        except asyncio.CancelledError:
            await database.rollback()
            raise
        self._open = database
        database.block = Block(sources, self._machine.failed)

    def check_decides(self, decides: bool) -> None:
        """Raise IllegalStateError for a commit that leaves out the database whose transaction is open. decides: whether
        the database decides about the commit.
        """
        if self._open is not None and not decides:
            raise IllegalStateError("the block of transaction(db=…) commits at its end, together with the database")

    async def roll_back(self) -> asyncio.CancelledError | None:
        """Roll back the database's transaction if it is open, and not one that somebody else has begun since. Goes on
        if the caller is cancelled meanwhile, and returns that cancellation (else None), which the caller raises once it
        has aborted the transaction.
        """
        database, self._open = self._open, None
        if database is None:
            return None
        return await outlast(asyncio.get_running_loop().create_task(database.rollback()), ROLL_BACK_S)

    async def commit(self, sender: Sending, flushing: Awaitable[None], wait: Wait = "ended") -> bool:
        """Commit the transaction in the database and then at the broker. Returns False, and does nothing, if the
        transaction has failed because of a record.

        flushing: the running `sender.flush()`. wait: with "decided" this returns once the database has committed; the
        broker is told in the background, and the next transaction waits for that. Raises the database's error if it was
        committed nowhere; AbortableTransactionError and ProducerFencedError, after which it has to be aborted;
        CommitOutcomeUnknownError.
        """
        database, machine = self._open, self._machine  # not the database of a caller that was refused meanwhile
        assert database is not None
        if not machine.attempted and not sender.buffered_bytes:  # nothing for the broker
            await self._in_database(database.commit())
            self._open = None
            machine.ends_without_request()
            return True
        key = ledger_key(database.database_id, machine.transactional_id)
        self.steps.waiting = Waiting(key, machine.transactional_id, machine.identity, self.steps.number)
        async with self._turn:
            if not await self._vote(sender, flushing, database, self.steps.waiting):
                return False
            self.steps.step = Step.CLOSE_OWN  # whatever happens meanwhile
            machine.prepared()
            try:
                refusal = await self._commit_prepared(database)
                if wait == "ended" or refusal is not None:
                    await self._end_own()
            except asyncio.CancelledError:
                machine.outcome = machine.outcome or "unknown"
                raise
            finally:
                if self.is_unsettled:
                    self._telling = asyncio.get_running_loop().create_task(self._tell(wait))
        if refusal is not None and machine.outcome == "aborted":
            raise refusal
        return True

    async def _vote(
        self, sender: Sending, flushing: Awaitable[None], database: DecidingDatabase, waiting: Waiting
    ) -> bool:
        """Send the last records, PrepareTxn right behind these, and then DECIDE; return True once the answers to all
        are good. Returns False if a record failed. Raises like _decide() and _prepare(). In both cases the transaction
        has to be aborted, and may be prepared.

        DECIDE waits for the records, because it locks the id's row until COMMIT: a successor waits for that lock, and
        a broker that does not answer may take minutes.
        """
        machine = self._machine
        sent: list[asyncio.Future[PrepareTxnResponse] | None] = []

        def prepare(node_ids: Collection[int]) -> None:
            if machine.is_in(State.FLUSHING):  # and not if all batches have failed
                sent.append(self._decisions.prepare_behind(waiting, node_ids))

        sender.call_when_sent(prepare)
        is_prepared = False
        try:
            await flushing
            if machine.is_in(State.FLUSHING):
                await self._decide(database, waiting)
                await self._prepare(waiting, sent[0] if sent else None)
                is_prepared = True
        finally:
            sender.call_when_sent(None)
            if not is_prepared and sent and sent[0] is not None:
                self._may_be_prepared()
        return is_prepared

    def _may_be_prepared(self) -> None:
        """Note that PrepareTxn was sent in a transaction that has failed. If a record came too late for it, raise an
        error that says so: the transaction can be tried again.
        """
        machine, error = self._machine, self._machine.error
        machine.unanswered()
        if machine.state is State.ABORTABLE_ERROR and error is not None and error.code == ErrorCode.INVALID_TXN_STATE:
            machine.error = AbortableTransactionError(
                "a record was refused for now, and the transaction was prepared before it could be sent again",
                code=error.code,
            )

    async def _commit_prepared(self, database: DecidingDatabase) -> Exception | None:
        """Commit in the database, while the broker holds the records. Returns the error if it does not confirm that;
        None if it does.
        """
        machine = self._machine
        try:
            await database.commit()
        except Exception as error:
            log.info("%s: the database did not confirm COMMIT: %s", machine.transactional_id, error)
            cancelled = await self.roll_back()  # what is left of it must not hold the row
            if cancelled is not None:
                raise cancelled from error
            return error
        self._open = None
        self.steps.committed, self.steps.step = True, Step.END_OWN
        machine.outcome = "committed"
        return None

    async def _in_database(self, work: Awaitable[object]) -> object:
        """Await this work of the database within the transaction, and return its result. If it fails, the producer's
        transaction fails too.
        """
        try:
            return await work
        except Exception as error:
            self.steps.count(error)
            self._machine.failed(AbortableTransactionError(f"the database: {error}"))
            raise

    async def _decide(self, database: DecidingDatabase, waiting: Waiting) -> None:
        """Write the decision into the database, as the last statement of the user's transaction. Raises
        ProducerFencedError if another producer with the id has written there since.
        """
        machine = self._machine
        name = machine.transactional_id
        self.steps.step = Step.DECIDE
        if await self._in_database(database.decide(name, self.steps.generation, waiting)):
            return
        self.steps.step = Step.STOPPED
        error = overtaken(
            f"the database has another generation of {name!r} than {self.steps.generation}, or a later number than "
            f"{waiting.number - 1}"
        )
        machine.failed(AbortableTransactionError(str(error)))
        raise error

    async def _prepare(self, waiting: Waiting, sent: "asyncio.Future[PrepareTxnResponse] | None") -> None:
        """Wait for the answer to the PrepareTxn that was sent, if one was; send it until it is answered. Raises the
        transaction's error; it has to be aborted then.
        """
        machine, deadline = self._machine, self._tries.deadline()
        attempt = 0
        while True:
            code = 0
            try:
                code, error = await self._decisions.prepare(waiting, sent)
                if not code:
                    return
                verdict = of_write(code)
                if sent is not None and code == ErrorCode.INVALID_TXN_STATE:
                    verdict = Verdict.AGAIN  # it has overtaken a record that was sent twice
            except KafkaError as raised:
                machine.unanswered()
                error, verdict = raised, Verdict.AGAIN if is_retriable(raised) else Verdict.ABORT
            if code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
                error = InvalidConfigurationError(
                    error.detail, code=error.code, hint="set transaction.two.phase.commit.enable=true at the broker"
                )
            if verdict is not Verdict.AGAIN:
                break
            if not await self._tries.pause(attempt, deadline, error, code, "PrepareTxn"):
                error, verdict = self._tries.late("PrepareTxn", error), Verdict.ABORT
                break
            attempt += 1
            sent = None
        self.steps.step = Step.STOPPED
        machine.refused_write(verdict, error)
        raise machine.failure()

    async def _end_own(self) -> None:
        """If it is not known whether the database has committed, ask it; then tell the broker. Raises
        CommitOutcomeUnknownError if the database does not answer; if only the broker does not, a warning is logged.
        """
        machine = self._machine
        try:
            await self.steps.run(self._tries.deadline())
        except OutcomeDivergedError:
            raise
        except KafkaError as error:
            if self.steps.step is Step.CLOSE_OWN:
                machine.outcome = "unknown"
                raise
            if self.steps.step is not Step.END_OWN:
                raise
            log.warning(
                "transaction %r was %s in its database, and the broker does not answer: readers wait until it is told, "
                "which this producer tries again and again, or fencepost txn resolve does (%s)",
                machine.transactional_id,
                machine.outcome,
                error,
            )

    async def _tell(self, wait: Wait) -> None:
        """End at the broker the transaction that the database has decided; try again until it succeeds, because readers
        wait for it, and this producer's input may come from them. Logs an error that is not retriable; the next
        transaction raises it again.
        """
        is_first = wait == "decided"  # with "ended", the commit itself has tried once
        while self.is_unsettled:
            if not is_first:
                await asyncio.sleep(AGAIN_S)
            try:
                async with self._turn:
                    if self.is_unsettled:
                        await (self._end_own() if is_first else self.steps.run(self._tries.deadline(0)))
            except KafkaError as error:
                if not is_retriable(error):
                    log.error("transaction %r: %s", self._machine.transactional_id, error)
                    return
            is_first = False

    async def settle(self) -> None:
        """Try again to end the transaction whose commit had no answer. Raises like `get_ready`."""
        async with self._turn:
            await self._settle()

    async def _settle(self) -> None:
        if self.is_unsettled:
            await self.steps.run(self._tries.deadline())
        self.close()

    def close(self) -> None:
        """Stop the task that tries to end the last transaction."""
        if self._telling is not None:
            self._telling.cancel()


_FREE = (State.READY, State.STALE, State.PREPARED)
