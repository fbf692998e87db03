"""The commits of one producer over the broker and a database: carries out what deciding.py says.

The rules: each step is one request. Where no answer comes it stays at its step, and the next call goes on from there.
From PrepareTxn's answer on nothing is cancelled or guessed: what the database did is asked over a new connection. Once
the database has committed, the call returns, whether or not the broker could be told; the next transaction waits for
that.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Literal

from ...protocol.errors import ErrorCode
from ..errors import (
    AbortableTransactionError,
    IllegalStateError,
    InvalidConfigurationError,
    KafkaError,
    OutcomeDivergedError,
    ProducerFencedError,
    RequestTimedOutError,
    is_retriable,
)
from ..net.retry import Deadline
from ..values import NO_IDENTITY
from .answers import Verdict, of_write
from .cancellation import outlast
from .deciding import TABLE, Answer, Row, Step, Waiting, ledger_key, next_number, older_broker, older_database
from .decisions import Decisions
from .initialising import held_error
from .machine import ClientTransaction, Outcome
from .participant import Block, DatabaseAway, DecidingDatabase, Wait
from .sources import Sources
from .table import Event, State
from .tries import Tries

log = logging.getLogger("fencepost.client")
AGAIN_S = 1.0
"""The pause between attempts to end, behind the application's back, a transaction whose end had no answer."""
ROLL_BACK_S = 10.0
"""How long a cancelled caller waits for the database's rollback."""

NotEnded = Literal["undecided", "diverged"]
"""Why a prepared transaction was not ended: no answer in time, or broker and database contradict each other."""


class DatabaseCommits:
    """Carries out the commits of one producer over the broker and a database. step: what is done next; DECIDE between
    two transactions that have ended.
    """

    def __init__(
        self,
        machine: ClientTransaction,
        decisions: Decisions,
        tries: Tries,
        initialise: Callable[[Event, Deadline], Awaitable[None]],
    ) -> None:
        """initialise: applies an event to the machine, and sends InitProducerId until it succeeds or a held transaction
        is found.
        """
        self._machine = machine
        self._decisions = decisions
        self._tries = tries
        self._initialise = initialise
        self._database: DecidingDatabase | None = None
        self._open: DecidingDatabase | None = None  # in which a transaction of this producer is open
        self._turn = asyncio.Lock()
        self.step = Step.STOPPED
        self._generation = 0  # the one that was claimed; 0 before
        self._number = 0
        self._row: Row | None = None  # as it was claimed
        self._waiting: Waiting | None = None  # what is being ended: a predecessor's, from PrepareTxn on our own
        self._committed = False  # what the database said about it
        self._passed: tuple[int, ...] | None = None  # what could not be ended, and must not wait still
        self._why_passed = ""
        self._telling: asyncio.Task[None] | None = None  # ends the last one, behind the application's back
        self._refusal: KafkaError | None = None  # why the last attempt of the step failed
        self.on_not_ended: Callable[[NotEnded], None] | None = None  # counts, if anybody does

    @property
    def is_unsettled(self) -> bool:
        """Return whether a transaction of this producer is prepared, and the broker was not told yet how it was
        decided.
        """
        return self.step in (Step.CLOSE_OWN, Step.END_OWN)

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
            if self._database is None or database.database_id != self._database.database_id:
                await self._decisions.check_holding(self._machine.transactional_id)
                self.step, self._generation = Step.STOPPED, 0
            self._database = database
            if self.step is not Step.DECIDE or self._machine.state is State.PREPARED:
                self.step, self._passed = Step.CLAIM, None
                await self._run(self._tries.deadline())

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
        if the caller is cancelled meanwhile, and returns that cancellation: the transaction has to be aborted first.
        """
        database, self._open = self._open, None
        if database is None:
            return None
        return await outlast(asyncio.get_running_loop().create_task(database.rollback()), ROLL_BACK_S)

    async def commit(self, wait: Wait = "ended") -> None:
        """Commit the transaction, whose records are all acknowledged, in the database and then at the broker.

        wait: with "decided" this returns once the database has committed; the broker is told in the background, and the
        next transaction waits for that. Raises the database's error if it was committed nowhere;
        AbortableTransactionError and ProducerFencedError, after which it has to be aborted; CommitOutcomeUnknownError.
        """
        database, machine = self._open, self._machine  # another may have asked for a transaction meanwhile
        assert database is not None
        if not machine.attempted:  # nothing for the broker
            await self._in_database(database.commit())
            self._open = None
            machine.ends_without_request()
            return
        key = ledger_key(database.database_id, machine.transactional_id)
        self._waiting = Waiting(key, machine.transactional_id, machine.identity, self._number)
        async with self._turn:
            await self._decide(database, self._waiting)
            await self._prepare(self._waiting)
            self.step = Step.CLOSE_OWN  # whatever happens meanwhile
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

    async def _commit_prepared(self, database: DecidingDatabase) -> Exception | None:
        """Commit in the database, while the broker holds the records. Returns the error if it does not confirm that."""
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
        self._committed, self.step = True, Step.END_OWN
        machine.outcome = "committed"
        return None

    async def _in_database(self, work: Awaitable[object]) -> object:
        """Await this work of the database within the transaction, and return its result. If it fails, the producer's
        transaction fails too.
        """
        try:
            return await work
        except Exception as error:
            self._count(error)
            self._machine.failed(AbortableTransactionError(f"the database: {error}"))
            raise

    async def _decide(self, database: DecidingDatabase, waiting: Waiting) -> None:
        """Write the decision into the database, as the last statement of the user's transaction. Raises
        ProducerFencedError if another producer with the id has written there since.
        """
        machine = self._machine
        name = machine.transactional_id
        self.step = Step.DECIDE
        if await self._in_database(database.decide(name, self._generation, waiting)):
            return
        self.step = Step.STOPPED
        error = _overtaken(
            f"the database has another generation of {name!r} than {self._generation}, or a later number than "
            f"{waiting.number - 1}"
        )
        machine.failed(AbortableTransactionError(str(error)))
        raise error

    async def _prepare(self, waiting: Waiting) -> None:
        """Send PrepareTxn until it is answered. Raises the transaction's error; it has to be aborted then."""
        machine, deadline = self._machine, self._tries.deadline()
        attempt = 0
        while True:
            code = 0
            try:
                code, error = await self._decisions.prepare(waiting)
                if not code:
                    return
                verdict = of_write(code)
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
        if code == ErrorCode.LEDGER_CONFLICT:  # the broker has aborted it; another producer is further on
            self.step = Step.STOPPED
        machine.refused_write(verdict, error)
        raise machine.failure()

    async def _end_own(self) -> None:
        """If it is not known whether the database has committed, ask it; then tell the broker. Raises
        CommitOutcomeUnknownError if the database does not answer; if only the broker does not, a warning is logged.
        """
        machine = self._machine
        try:
            await self._run(self._tries.deadline())
        except OutcomeDivergedError:
            raise
        except KafkaError as error:
            if self.step is Step.CLOSE_OWN:
                machine.outcome = "unknown"
                raise
            if self.step is not Step.END_OWN:
                raise
            log.warning(
                "transaction %r was %s in its database, and the broker does not answer: readers wait until it is told, "
                "which this producer tries again and again, or fencepost txn resolve does (%s)",
                machine.transactional_id,
                machine.outcome,
                error,
            )

    async def _tell(self, wait: Wait) -> None:
        """End the transaction, again and again until that succeeds: readers wait for it, and may be what this producer
        gets its next work from. What cannot change is logged, and the next transaction raises it again.
        """
        is_first = wait == "decided"  # which has not been tried
        while self.is_unsettled:
            if not is_first:
                await asyncio.sleep(AGAIN_S)
            try:
                async with self._turn:
                    if self.is_unsettled:
                        await (self._end_own() if is_first else self._run(self._tries.deadline(0)))
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
            await self._run(self._tries.deadline())
        self.close()

    def close(self) -> None:
        """End the attempts behind the application's back."""
        if self._telling is not None:
            self._telling.cancel()

    # ---- the table -------------------------------------------------------------------------------------------

    async def _run(self, deadline: Deadline) -> None:
        """Do step after step of the table until a transaction can begin, or this producer's own one is ended. Raises
        the error of a step that gets no answer in time.
        """
        attempt = 0
        is_own = self.is_unsettled
        while self.step is not Step.DECIDE:
            step = self.step
            answer = await self._ask(step, deadline)
            self.step = TABLE[step, answer]
            if self.step is Step.STOPPED:  # its number was closed, and a later one is decided
                self._machine.decided("unknown", NO_IDENTITY)
                raise self._machine.unknown_outcome()
            if answer is not Answer.NONE:
                attempt = 0
                if is_own and step is Step.END_OWN:
                    break
            else:
                error = self._refusal or RequestTimedOutError(f"{step.name}: no answer")
                if not await self._tries.pause(attempt, deadline, error, 0, step.name):
                    raise self._late(step, error)
                attempt += 1

    def _late(self, step: Step, error: KafkaError) -> KafkaError:
        """Return the error to raise for a step that got no answer in time."""
        machine = self._machine
        late = self._tries.late(_NAMES[step], error)
        if step in _WAITED_FOR and self.on_not_ended is not None:
            self.on_not_ended("undecided")
        if step is not Step.CLOSE_OWN:
            return late
        unknown = machine.unknown_outcome()
        unknown.__cause__ = late
        return unknown

    async def _ask(self, step: Step, deadline: Deadline) -> Answer:
        """Send the request of this step once, note what the answer says, and return the answer as a column of TABLE:
        NONE if there was none, or a retriable error.
        """
        asks: dict[Step, Callable[[], Awaitable[Answer]]] = {
            Step.CLAIM: self._claim,
            Step.LOOK: self._look,
            Step.CLOSE: self._close,
            Step.END: self._end,
            Step.CLOSE_OWN: self._close,
            Step.END_OWN: self._end,
        }
        try:
            return await (self._init(deadline) if step is Step.INIT else asks[step]())
        except DatabaseAway as away:
            self._refusal = RequestTimedOutError(f"the database: {away.__cause__ or away}")
        except KafkaError as error:
            # At CLOSE_OWN the outcome is unknown, whatever keeps this producer from asking.
            if not is_retriable(error) and step is not Step.CLOSE_OWN:
                self._count(error)
                raise
            self._refusal = error
        return Answer.NONE

    def _count(self, error: Exception) -> None:
        """Count the error if it says that broker and database contradict each other."""
        if isinstance(error, OutcomeDivergedError) and self.on_not_ended is not None:
            self.on_not_ended("diverged")

    async def _claim(self) -> Answer:
        """Claim the row of this transactional id in the database, so that older producers with the id cannot commit
        there any more. A producer does so once: later it only looks whether it is the newest one still, since to claim
        again would fence its successor. Raises ProducerFencedError.
        """
        database, name = self._database, self._machine.transactional_id
        assert database is not None
        row = await database.claim(name, self._generation > 0)
        if self._generation not in (0, row.generation):
            raise _overtaken(f"the database has generation {row.generation} of {name!r}, not {self._generation}")
        self._row, self._generation = row, row.generation
        return Answer.OK

    async def _look(self) -> Answer:
        """Ask the broker for the ledger entry of this id, and set the number of the next transaction. NO: a
        transaction still waits for this database's decision. Raises OutcomeDivergedError if either side lacks decisions
        that the other one knows.
        """
        name, database = self._machine.transactional_id, self._database
        assert self._row is not None
        assert database is not None
        key = ledger_key(database.database_id, name)
        standing = await self._decisions.look(key, name)
        if self._row.number < standing.number:  # perhaps decided since the row was read
            await self._claim()
            if (why := older_database(self._row, standing)) is not None:
                raise OutcomeDivergedError(f"transactional id {name!r}: {why}")
            standing = await self._decisions.look(key, name)
        if (why := older_broker(self._row, standing)) is not None:
            raise OutcomeDivergedError(f"transactional id {name!r}: {why}")
        self._number, self._waiting = next_number(self._row, standing), standing.waiting
        if standing.waiting is None:
            return Answer.OK
        if (*standing.waiting.identity, standing.waiting.number) == self._passed:
            raise self._diverged(self._why_passed)
        return Answer.NO

    async def _init(self, deadline: Deadline) -> Answer:
        """Send InitProducerId. NO: a transaction of this id waits for this database's decision. Raises held_error() if
        it waits for another database's.
        """
        await self._initialise(Event.TAKE_OVER, deadline)
        if self._machine.state is not State.PREPARED:
            return Answer.OK
        name, database = self._machine.transactional_id, self._database
        assert database is not None
        for held in await self._decisions.find_held(name):
            if held.key != ledger_key(database.database_id, name):  # looking again would never find it
                raise held_error(held)
        return Answer.NO

    async def _close(self) -> Answer:
        """Let the database decide "not committed", unless it has decided, and note its decision. NO: it has decided a
        later number, so that this one's decision is unknown.
        """
        waiting, database = self._waiting, self._database
        assert waiting is not None
        assert database is not None
        row = await database.close_number(waiting)
        self._row = row
        if row.number > waiting.number:
            self._pass("the database has decided a later one, and it still waits")
            return Answer.NO
        self._committed = row.committed
        if self.step is Step.CLOSE_OWN:
            self._machine.outcome = "committed" if row.committed else "aborted"
        return Answer.OK

    async def _end(self) -> Answer:
        """Tell the broker the database's decision by EndTxns. NO: the broker refuses the request, or has no next
        producer id and epoch for our producer. Raises OutcomeDivergedError if the broker was told the opposite.
        """
        waiting, is_own = self._waiting, self.step is Step.END_OWN
        assert waiting is not None
        ended = await self._decisions.end(waiting, self._committed)
        if ended.error is not None and ended.error.code not in _REFUSALS:
            raise ended.error
        if ended.error is not None and ended.number == waiting.number and ended.committed != self._committed:
            raise self._diverged(f"it was {_outcome(self._committed)} there, and the broker was told the opposite")
        if ended.error is not None and is_own and self._committed and ended.number < waiting.number:
            raise self._diverged(f"it was committed there, and the broker refuses to: {ended.error}")
        if not is_own:
            log.info("%s", f"{waiting.transactional_id!r} number {waiting.number}: {_outcome(self._committed)}")
            if ended.error is None:
                return Answer.OK
            self._pass(f"it was {_outcome(self._committed)} there, and the broker refuses to: {ended.error}")
            return Answer.NO
        self._machine.decided(_outcome(self._committed), ended.identity if ended.error is None else NO_IDENTITY)
        self._number = waiting.number + 1
        return Answer.OK if ended.error is None and ended.identity != NO_IDENTITY else Answer.NO

    def _pass(self, why: str) -> None:
        """Note why the waiting transaction could not be ended: _look() raises this reason if it finds it waiting
        again.
        """
        assert self._waiting is not None
        self._passed, self._why_passed = (*self._waiting.identity, self._waiting.number), why

    def _diverged(self, why: str) -> OutcomeDivergedError:
        """Return the error for a transaction that the broker and the database ended differently. why: how."""
        waiting = self._waiting
        assert waiting is not None
        return OutcomeDivergedError(f"number {waiting.number} of {waiting.transactional_id!r} in the database: {why}")


_FREE = (State.READY, State.STALE, State.PREPARED)
_WAITED_FOR = {Step.CLOSE, Step.END, Step.CLOSE_OWN, Step.END_OWN}
"""Steps at which a prepared transaction waits for the database's decision, or for the broker to be told."""
_REFUSALS = {
    ErrorCode.LEDGER_CONFLICT,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.PRODUCER_FENCED,
}
_NAMES = {
    Step.CLAIM: "claiming the transactional id in the database",
    Step.LOOK: "DescribeLedger",
    Step.CLOSE: "asking the database for the outcome",
    Step.END: "EndTxns",
    Step.INIT: "InitProducerId",
    Step.CLOSE_OWN: "asking the database for the outcome",
    Step.END_OWN: "EndTxns",
}


def _overtaken(text: str) -> ProducerFencedError:
    """Return the error for a producer whose id another one has claimed in the database. text: how that shows."""
    hint = "run only one producer for each transactional id"
    return ProducerFencedError(text, reason="newer_producer", hint=hint)


def _outcome(committed: bool) -> Outcome:
    return "committed" if committed else "aborted"
