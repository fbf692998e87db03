"""The steps of one producer's commits that wait for an answer: it takes over its transactional id, and ends what is
prepared, its own or what a predecessor left.

The rule: each step is one request, and deciding.py has the table of what follows. Where no answer comes it stays at its
step, and the next call goes on from there.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Literal

from ...protocol.errors import ErrorCode
from ..errors import KafkaError, OutcomeDivergedError, ProducerFencedError, RequestTimedOutError, is_retriable
from ..net.retry import Deadline
from ..values import NO_IDENTITY
from .deciding import TABLE, Answer, Row, Step, Waiting, ledger_key, next_number, older_broker, older_database
from .decisions import Decisions
from .initialising import held_error
from .machine import ClientTransaction, Outcome
from .participant import DatabaseAway, DecidingDatabase
from .table import Event, State
from .tries import Tries

log = logging.getLogger("fencepost.client")

NotEnded = Literal["undecided", "diverged"]
"""Why a prepared transaction was not ended: no answer in time, or broker and database contradict each other."""


class Steps:
    """Takes the steps of one producer. step: what is done next; DECIDE between two transactions that have ended.

    generation: the one that was claimed in the database; 0 before. number: of the next transaction. waiting: what is
    being ended: a predecessor's, from PrepareTxn on our own. committed: what the database said about it.
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
        self.step = Step.STOPPED
        self.generation = 0
        self.number = 0
        self.waiting: Waiting | None = None
        self.committed = False
        self._database: DecidingDatabase | None = None  # where transactions are decided
        self._passed: tuple[int, ...] | None = None  # identity and number of one that could not be ended
        self._why_passed = ""
        self._row: Row | None = None  # as it was claimed
        self._refusal: KafkaError | None = None  # why the last attempt of the step failed
        self.on_not_ended: Callable[[NotEnded], None] | None = None  # counts, for ClientMetrics

    @property
    def is_unsettled(self) -> bool:
        """Return whether a transaction of this producer is prepared, and the broker was not told yet how it was
        decided.
        """
        return self.step in (Step.CLOSE_OWN, Step.END_OWN)

    async def take_over(self, database: DecidingDatabase) -> None:
        """Become the id's only producer in this database, unless it is that already, and end what earlier ones have
        left there. Raises the error of a step that gets no answer in time, OutcomeDivergedError, ProducerFencedError,
        and UnsupportedVersionError if the broker cannot hold a transaction.
        """
        if self._database is None or database.database_id != self._database.database_id:
            await self._decisions.check_holding(self._machine.transactional_id)
            self.step, self.generation = Step.STOPPED, 0
        self._database = database
        if self.step is not Step.DECIDE or self._machine.state is State.PREPARED:
            self.step, self._passed = Step.CLAIM, None
            await self.run(self._tries.deadline())

    async def run(self, deadline: Deadline) -> None:
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
                self.count(error)
                raise
            self._refusal = error
        return Answer.NONE

    def count(self, error: Exception) -> None:
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
        row = await database.claim(name, self.generation > 0)
        if self.generation not in (0, row.generation):
            raise overtaken(f"the database has generation {row.generation} of {name!r}, not {self.generation}")
        self._row, self.generation = row, row.generation
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
        self.number, self.waiting = next_number(self._row, standing), standing.waiting
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
        waiting, database = self.waiting, self._database
        assert waiting is not None
        assert database is not None
        row = await database.close_number(waiting)
        self._row = row
        if row.number > waiting.number:
            self._pass("the database has decided a later one, and it still waits")
            return Answer.NO
        self.committed = row.committed
        if self.step is Step.CLOSE_OWN:
            self._machine.outcome = "committed" if row.committed else "aborted"
        return Answer.OK

    async def _end(self) -> Answer:
        """Tell the broker the database's decision by EndTxns. NO: the broker refuses the request, or has no next
        producer id and epoch for our producer. Raises OutcomeDivergedError if the broker was told the opposite.
        """
        waiting, is_own = self.waiting, self.step is Step.END_OWN
        assert waiting is not None
        ended = await self._decisions.end(waiting, self.committed)
        if ended.error is not None and ended.error.code not in _REFUSALS:
            raise ended.error
        if ended.error is not None and ended.number == waiting.number and ended.committed != self.committed:
            raise self._diverged(f"it was {_outcome(self.committed)} there, and the broker was told the opposite")
        if ended.error is not None and is_own and self.committed and ended.number < waiting.number:
            raise self._diverged(f"it was committed there, and the broker refuses to: {ended.error}")
        if not is_own:
            log.info("%s", f"{waiting.transactional_id!r} number {waiting.number}: {_outcome(self.committed)}")
            if ended.error is None:
                return Answer.OK
            self._pass(f"it was {_outcome(self.committed)} there, and the broker refuses to: {ended.error}")
            return Answer.NO
        self._machine.decided(_outcome(self.committed), ended.identity if ended.error is None else NO_IDENTITY)
        self.number = waiting.number + 1
        return Answer.OK if ended.error is None and ended.identity != NO_IDENTITY else Answer.NO

    def _pass(self, why: str) -> None:
        """Note why the waiting transaction could not be ended: _look() raises this reason if it finds it waiting
        again.
        """
        assert self.waiting is not None
        self._passed, self._why_passed = (*self.waiting.identity, self.waiting.number), why

    def _diverged(self, why: str) -> OutcomeDivergedError:
        """Return the error for a transaction that the broker and the database ended differently. why: how."""
        waiting = self.waiting
        assert waiting is not None
        return OutcomeDivergedError(f"number {waiting.number} of {waiting.transactional_id!r} in the database: {why}")


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


def overtaken(text: str) -> ProducerFencedError:
    """Return the error for a producer whose id another one has claimed in the database. text: how that shows."""
    hint = "run only one producer for each transactional id"
    return ProducerFencedError(text, reason="newer_producer", hint=hint)


def _outcome(committed: bool) -> Outcome:
    return "committed" if committed else "aborted"
