"""A client's transaction: what may be sent now, and what each answer means for what comes next.

The rules: no success without an answer that says so. A commit that may have been carried out is only ever repeated,
never aborted, on its epoch. EndTxn is left out only where nothing at all was attempted. A new transaction never begins
on an epoch of which a request may still be on its way: with transactions version 2 every end gives a new epoch, with
version 1 one is asked for (STALE). An impossible answer ends the producer.
Sources: Kafka's TransactionManager; KIP-98, KIP-360, KIP-588, KIP-890 (TV2); the states are in table.py.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple

from ...protocol.errors import ErrorCode, KafkaError
from ..errors import (
    AbortableTransactionError,
    CommitOutcomeUnknownError,
    FatalError,
    FencedBy,
    FencedInstanceIdError,
    IllegalStateError,
    InvalidConfigurationError,
    ProducerFencedError,
    RecordTooLargeError,
    UnknownTopicError,
    error_of,
)
from ..values import NO_IDENTITY, ProducerIdentity, TopicPartition
from .answers import Verdict, of_end, of_failure, of_init, worst
from .table import UNDER_WAY, Event, Refusal, State, cell

Outcome = Literal["committed", "aborted", "unknown"]

_AS_THEY_ARE = (InvalidConfigurationError, RecordTooLargeError, FencedInstanceIdError, UnknownTopicError, FatalError)
"""Doing the work again would fail again: these are raised as they are, not as an AbortableTransactionError."""

_TOO_LATE = {
    Event.BEGIN: "a transaction is begun once the producer is started and the one before is ended",
    Event.WRITE: "nothing may be written outside of a transaction",
    Event.COMMIT: "there is no transaction to commit",
    Event.ABORT: "there is no transaction to abort",
    Event.INIT: "init_transactions() can be called only once, before the first transaction",
}

_ONE_AT_A_TIME = (
    "a producer has one transaction at a time: use a ProducerPool for concurrent tasks, "
    "or one producer with its own transactional_id for each"
)


class ClientTransaction:
    """One transactional id's state in this client.

    version: 2 where the broker has KIP-890's transactions, else 1; fixed while a transaction is open.
    can_renew: InitProducerId of the broker takes the identity it replaces (version 3, KIP-360).
    attempted: something of this transaction was sent, or is about to be.
    maybe_ended: an EndTxn of this transaction may have been carried out, and no answer has confirmed it.
    suspect: the broker refused the epoch: it ended the transaction by itself, or somebody else has the id.
    forgotten: the broker does not know our producer id: nothing is open, and InitProducerId tells whether somebody else
    has the transactional id, or it was only not used for transactional.id.expiration.ms.
    """

    def __init__(self, transactional_id: str, timeout_ms: int) -> None:
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.state = State.UNINITIALIZED
        self.identity = NO_IDENTITY
        self.version = 1
        self.can_renew = False
        self.began_ms = 0
        self.partitions: set[TopicPartition] = set()  # written to; with version 1: added before
        self.adding: dict[TopicPartition, None] = {}  # to be added, and not answered yet
        self.groups: set[str] = set()
        self.attempted = self.maybe_ended = self.suspect = self.forgotten = False
        self.error: KafkaError | None = None  # what spoiled the transaction, or ended the producer
        self.outcome: Outcome | None = None  # of the last transaction
        # makes what is raised in UNKNOWN_OUTCOME
        self.unknown_outcome: Callable[[], CommitOutcomeUnknownError] = CommitOutcomeUnknownError
        self.spoilt: Callable[[], None] = lambda: None  # called when nothing more can be written
        self._loose = False  # a request of this epoch was given up without an answer
        self._before = State.UNINITIALIZED

    def is_in(self, *states: State) -> bool:
        """Whether it is in one of these states by now."""
        return self.state in states

    # ---- the table -------------------------------------------------------------------------------------------

    def asked(self, event: Event) -> None:
        """The user asks for it. Raises what the state says, and then nothing has changed."""
        found = cell(event, self.state)
        if isinstance(found, State):
            self._enter(found)
        elif found is Refusal.ILLEGAL:
            hint = _ONE_AT_A_TIME if event is Event.BEGIN and self.state in UNDER_WAY else ""
            raise IllegalStateError(f"{_TOO_LATE[event]} (the state is {self.state.text})", hint=hint)
        else:
            raise self.failure()

    def failure(self) -> KafkaError:
        """The error for whoever goes on with what has failed; a new one each time, as each gets its own traceback."""
        if self.state is State.UNKNOWN_OUTCOME:
            return self.unknown_outcome()
        error = self.error
        if error is None:
            return IllegalStateError(f"the transaction is {self.state.text}")
        if isinstance(error, ProducerFencedError):
            again: KafkaError = ProducerFencedError(
                error.detail, code=error.code, hint=error.hint, reason=error.reason, current_epoch=error.current_epoch
            )
        elif isinstance(error, _AS_THEY_ARE) or self.state is State.FATAL:
            return error
        else:
            again = AbortableTransactionError(str(error), code=error.code)
        again.__cause__ = error
        return again

    def _apply(self, event: Event) -> None:
        found = cell(event, self.state)
        if isinstance(found, State):
            self._enter(found)
        elif found is Refusal.BACK:
            self._enter(self._before)
        elif found is not Refusal.IGNORED:
            self._break(FatalError(f"{event.name} came in the state {self.state.text}, where it cannot be"))

    def _enter(self, state: State) -> None:
        if state is State.INITIALIZING:
            self._before = self.state
        self.state = state
        if state is State.ABORTABLE_ERROR or state is State.FATAL:
            self.spoilt()

    def _break(self, error: KafkaError) -> None:
        if self.state is not State.FATAL:
            self.error = error
        self._apply(Event.BROKEN)

    # ---- an identity -----------------------------------------------------------------------------------------

    def former_identity(self) -> ProducerIdentity:
        """What InitProducerId is told: the pair to be replaced, so that a newer producer is not fenced (KIP-360).

        Who begins anew, or gives an unknown outcome up, takes the id over whatever its state.
        """
        anew = self.state is State.INITIALIZING and self._before in (State.UNINITIALIZED, State.UNKNOWN_OUTCOME)
        return NO_IDENTITY if anew or not self.can_renew else self.identity

    def initialised(self, code: int, identity: ProducerIdentity) -> Verdict:
        """InitProducerId was answered."""
        verdict = of_init(code)
        if verdict is Verdict.DONE and identity.producer_id < 0:
            verdict, code = Verdict.FATAL, ErrorCode.UNKNOWN_SERVER_ERROR  # no identity in it: not an answer to live by
        if verdict is Verdict.DONE:
            if self.state is State.ABORTING:
                self.outcome = "aborted"
            self.identity = identity
            self._clear()
            self._apply(Event.INITIALIZED)
        elif verdict is Verdict.FENCED:  # Kafka says so too where its own abort moved the epoch: see `explain`
            self._break(fenced("unknown", error_of(code)))
        elif verdict is Verdict.FATAL:
            self._break(error_of(code))
        return verdict

    def not_initialised(self, error: KafkaError) -> None:
        """No answer in time. Asking again is safe: at worst an epoch is skipped (KAFKA-13412)."""
        if self.state is State.ABORTING:
            self.error = self.error or error
        self._apply(Event.NOT_INITIALIZED)

    # ---- writing ---------------------------------------------------------------------------------------------

    def begin(self, version: int, now_ms: int) -> None:
        """Nothing is sent. Raises as `asked`."""
        self.asked(Event.BEGIN)
        self._clear()
        self.error, self.outcome = None, None
        self.version = version
        self.began_ms = now_ms

    def _clear(self) -> None:
        self.partitions.clear()
        self.adding.clear()
        self.groups.clear()
        self.attempted = self.maybe_ended = self.suspect = self.forgotten = self._loose = False

    def may_write_to(self, partition: TopicPartition) -> bool:
        """Whether a batch may go there now. With version 1 the partition is noted, to be added first.

        While it is aborted only what was sent before may go again, so that its fate is known.
        """
        if self.state is not State.IN_TRANSACTION and self.state is not State.FLUSHING:
            return self.state is State.ABORTING and partition in self.partitions
        if partition in self.partitions:
            return True
        self.attempted = True
        if self.version >= 2:
            self.partitions.add(partition)
            return True
        self.adding[partition] = None
        return False

    def added(self, codes: Mapping[TopicPartition, int]) -> Verdict:
        """AddPartitionsToTxn was answered: all or none are part of the transaction."""
        verdict, code = worst(codes.values())
        if verdict is Verdict.DONE:
            for partition in codes:
                self.adding.pop(partition, None)
            self.partitions.update(codes)
        elif verdict is not Verdict.AGAIN:
            bad = next(partition for partition, found in codes.items() if found == code)
            self.refused_write(verdict, error_of(code, f"{bad}: {error_of(code)}"))
        return verdict

    def attempts_offsets(self) -> None:
        """Offsets are about to be sent."""
        self.attempted = True

    def refused_write(self, verdict: Verdict, error: KafkaError) -> None:
        """A write of this transaction is refused for good."""
        if self.state in (State.READY, State.STALE):
            return
        self._loose = True
        if verdict is Verdict.FATAL:
            self._break(error)
            return
        if error.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING and self.can_renew:
            self.forgotten = True
        elif verdict is Verdict.FENCED:
            self.suspect = True
            error = fenced("unknown", error)
        if self.state in (State.IN_TRANSACTION, State.FLUSHING):
            self.error = error
        self._apply(Event.MUST_ABORT)

    def failed(self, error: KafkaError) -> None:
        """A batch, or anything else of the transaction, failed for good, whether or not anybody waits for it."""
        self.refused_write(of_failure(error.code), error)

    def unanswered(self) -> None:
        """A request of this epoch was given up without an answer: it may arrive later."""
        self._loose = True

    # ---- ending ----------------------------------------------------------------------------------------------

    def ends_without_asking(self) -> bool:
        """For FLUSHING and ABORTING: there is nothing to end, as nothing was attempted; or EndTxn goes out now."""
        if not self.attempted and not self.maybe_ended:
            self.outcome = "committed" if self.state is State.FLUSHING else "aborted"
            self._apply(Event.ENDED_STALE if self._loose else Event.ENDED)
            return True
        if self.state is State.FLUSHING:
            self._apply(Event.SEND_COMMIT)
        return False

    def prepared(self) -> None:
        """A decision of the broker's ledger ends it, and nothing that this producer asks may."""
        self._break(IllegalStateError("the transaction waits for its decision: its producer is done with"))

    def end_unanswered(self) -> None:
        """EndTxn may have reached the broker, and no answer came."""
        self.maybe_ended = self._loose = True

    def ended(self, code: int, identity: ProducerIdentity) -> Verdict:
        """EndTxn was answered. AGAIN and PERHAPS: the same has to be sent again. identity: of version 5's answer."""
        verdict = of_end(code)
        commit = self.state is State.COMMITTING
        if verdict is Verdict.DONE:
            self.outcome = "committed" if commit else "aborted"
            if identity.producer_id >= 0:
                self.identity = identity
            stale = identity.producer_id < 0 and (self._loose or self.version >= 2)
            self._apply(Event.ENDED_STALE if stale else Event.ENDED)
        elif verdict is Verdict.PERHAPS:
            self.end_unanswered()
        elif verdict is not Verdict.AGAIN:
            (self._commit_refused if commit else self._abort_refused)(verdict, code)
        return verdict

    def _commit_refused(self, verdict: Verdict, code: int) -> None:
        """It was not carried out by this attempt. After an unanswered one only NOT_OPEN of version 2 tells what became
        of that: had it been carried out, the same EndTxn again would be a success (KIP-890), so it was aborted, by its
        timeout or an operator. With version 1 a late InitProducerId of ours may have wiped out that it was committed.
        """
        if self.maybe_ended and verdict is Verdict.NOT_OPEN and self.version < 2:
            self.outcome = "unknown"
            self._apply(Event.UNANSWERED)
            return
        if self.maybe_ended and verdict is not Verdict.NOT_OPEN:
            self.outcome = "unknown"
            self._break(fenced("unknown") if verdict is Verdict.FENCED else error_of(code))
            return
        if verdict is Verdict.FATAL:
            self._break(error_of(code))
            return
        self.suspect = verdict is not Verdict.ABORT
        self.error = fenced("unknown", error_of(code)) if self.suspect else error_of(code, transactional=True)
        self._loose, self.maybe_ended, self.outcome = True, False, None
        self._apply(Event.REFUSED)

    def _abort_refused(self, verdict: Verdict, code: int) -> None:
        if verdict is Verdict.NOT_OPEN and self.version < 2:
            self.outcome = "aborted"  # nothing of it is open, and no commit was ever sent
            self._apply(Event.ENDED_STALE)
        elif verdict is Verdict.FENCED:
            self.suspect = True
            if self.version >= 2 or not self.can_renew:
                self._break(fenced("newer_producer" if self.version >= 2 else "unknown"))
        else:
            self._break(error_of(code))

    def needs_identity_to_abort(self) -> bool:
        """The id is forgotten; or version 1, and the abort was refused with our epoch: InitProducerId tells what is so.

        If the broker ended it by itself, our pair is the one before its bump, and gets the next (KIP-588); else it is
        fenced.
        """
        refused = self.forgotten or (self.suspect and self.version < 2)
        return self.state is State.ABORTING and refused and self.can_renew

    def gave_up(self, error: KafkaError) -> None:
        """Time is over and the end is not answered."""
        if self.state is State.COMMITTING and self.maybe_ended:
            self.outcome = "unknown"
            self._apply(Event.UNANSWERED)
        elif self.state is State.COMMITTING:
            self.error = error
            self._apply(Event.REFUSED)
        elif self.state is State.ABORTING:
            self.error = self.error or error
            self._apply(Event.UNANSWERED)

    def explain(self, reason: FencedBy, current_epoch: int = -1) -> None:
        """What is known by now of who ended it."""
        if isinstance(self.error, ProducerFencedError):
            cause, known = self.error.__cause__, self.error.reason
            reason = reason if known == "unknown" else known
            self.error = fenced(reason, cause if isinstance(cause, KafkaError) else None, current_epoch)

    def explain_by_itself(self, elapsed_ms: int) -> None:
        """The broker let us go on, so it was the broker that ended the transaction, and no newer producer."""
        error = self.error
        if isinstance(error, ProducerFencedError) and error.reason in ("unknown", "newer_producer"):
            reason: FencedBy = "transaction_timeout" if elapsed_ms >= self.timeout_ms else "admin_abort"
            cause = error.__cause__
            self.error = fenced(reason, cause if isinstance(cause, KafkaError) else None, self.identity.epoch)


_FENCED_TEXTS: Mapping[FencedBy, tuple[str, str]] = {
    "newer_producer": (
        "another producer uses this transactional id",
        "run only one producer for each transactional id",
    ),
    "transaction_timeout": (
        "the broker aborted the transaction: it was open for longer than transaction_timeout_ms",
        "do less in one transaction, or raise transaction_timeout_ms",
    ),
    "admin_abort": ("an operator aborted the transaction", "repeat its work"),
    "unknown": ("the broker refuses this producer's epoch", "create a new Producer, if no other one uses this id"),
}


def fenced(reason: FencedBy, cause: KafkaError | None = None, current_epoch: int = -1) -> ProducerFencedError:
    """The error, in words."""
    text, hint = _FENCED_TEXTS[reason]
    code = ErrorCode.PRODUCER_FENCED if cause is None else cause.code
    error = ProducerFencedError(text, code=code, hint=hint, reason=reason, current_epoch=current_epoch)
    error.__cause__ = cause
    return error


class Described(NamedTuple):
    """What the broker says of the id, as far as it tells who ended a transaction.

    is_old: by the broker's own clock the transaction began longer ago than its timeout.
    """

    state: str
    identity: ProducerIdentity
    is_old: bool = False


def fenced_by(ours: ProducerIdentity, found: Described | None, elapsed_ms: int, timeout_ms: int) -> FencedBy:
    """Who ended the transaction, as well as can be known.

    The broker's own abort leaves the next epoch and CompleteAbort behind; a new producer leaves Empty, or writes.
    """
    if found is None:
        return "unknown"
    next_one = ProducerIdentity(ours.producer_id, ours.epoch + 1)
    if found.identity != next_one or found.state not in ("CompleteAbort", "PrepareAbort", "PrepareEpochFence"):
        return "newer_producer"
    return "transaction_timeout" if found.is_old or elapsed_ms >= timeout_ms else "admin_abort"


def partitions_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """As requests list them."""
    found: dict[str, list[int]] = {}
    for topic, index in partitions:
        found.setdefault(topic, []).append(index)
    return found
