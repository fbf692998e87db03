"""The state of a client's transaction: what may be sent now, and what follows from each response. Pure.

The rules: a transaction is committed only if a response confirms it. A commit that may have been carried out is sent
again, never aborted, on its epoch. EndTxn is omitted only if nothing was attempted. A new transaction never begins on
an epoch of which a request may still arrive: with transactions version 2 every end returns a new epoch, with version 1
the client requests one (STALE). An impossible response ends the producer.
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

_NOT_ABORTABLE = (InvalidConfigurationError, RecordTooLargeError, FencedInstanceIdError, UnknownTopicError, FatalError)
"""Doing the work again would fail again: these are raised as they are, not as an AbortableTransactionError."""

_ILLEGAL_TEXTS = {
    Event.BEGIN: "a transaction can begin only after the producer is started and the previous transaction has ended",
    Event.WRITE: "records and offsets can be sent only within a transaction",
    Event.COMMIT: "there is no transaction to commit",
    Event.ABORT: "there is no transaction to abort",
    Event.INIT: "init_transactions() can be called only once, before the first transaction",
    Event.TAKE_OVER: "a database can take part only between transactions",
}

_ONE_AT_A_TIME = (
    "a producer has one transaction at a time: use a ProducerPool for concurrent tasks, "
    "or one producer with its own transactional_id for each"
)


class ClientTransaction:
    """The state of one transactional id in this client.

    version: 2 if the broker has KIP-890's transactions, else 1; fixed while a transaction is open.
    can_renew: the broker's InitProducerId accepts the identity to be replaced (version 3, KIP-360).
    attempted: a request of this transaction was sent, or is about to be.
    maybe_ended: an EndTxn of this transaction may have been carried out, and no response has confirmed it.
    suspect: the broker refused our epoch: either it has aborted the transaction, or another producer uses the id.
    forgotten: the broker does not know our producer id, so nothing is open. InitProducerId shows whether another
    producer uses the transactional id, or it only expired (transactional.id.expiration.ms).
    """

    def __init__(self, transactional_id: str, timeout_ms: int) -> None:
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.state = State.UNINITIALIZED
        self.identity = NO_IDENTITY
        self.version = 1
        self.can_renew = False
        self.began_ms = 0
        self.partitions: set[TopicPartition] = set()  # written to; with version 1 they are added first
        self.adding: dict[TopicPartition, None] = {}  # to be added with version 1, not confirmed yet
        self.groups: set[str] = set()
        self.attempted = self.maybe_ended = self.suspect = self.forgotten = False
        self.error: KafkaError | None = None  # the error that failed the transaction, or ended the producer
        self._outcome: Outcome | None = None
        self.on_outcome: Callable[[Outcome], None] | None = None  # counts, for ClientMetrics
        # creates the error that is raised in UNKNOWN_OUTCOME
        self.unknown_outcome: Callable[[], CommitOutcomeUnknownError] = CommitOutcomeUnknownError
        self.on_failed: Callable[[], None] = lambda: None  # called when nothing more can be written
        self.waits_for_predecessor = False  # in PREPARED: what waits is not this producer's own
        self._may_arrive_late = False  # a request of this epoch was given up without a response, so it may still arrive
        self._state_before = State.UNINITIALIZED

    @property
    def outcome(self) -> Outcome | None:
        """Return the outcome of the last transaction; None from begin() until the end is known."""
        return self._outcome

    @outcome.setter
    def outcome(self, outcome: Outcome | None) -> None:
        if self.on_outcome is not None and outcome is not None and outcome != self._outcome:
            self.on_outcome(outcome)
        self._outcome = outcome

    def is_in(self, *states: State) -> bool:
        """Return whether the state is one of these. (A type checker does not narrow `state` after this.)"""
        return self.state in states

    # ---- the table -------------------------------------------------------------------------------------------

    def request(self, event: Event) -> None:
        """Change the state for a call of the application. If the state does not allow the event, raises the state's
        error and changes nothing.
        """
        found = cell(event, self.state)
        if isinstance(found, State):
            self._enter(found)
        elif found is Refusal.ILLEGAL:
            hint = _ONE_AT_A_TIME if event is Event.BEGIN and self.state in UNDER_WAY else ""
            raise IllegalStateError(f"{_ILLEGAL_TEXTS[event]} (the state is {self.state.text})", hint=hint)
        else:
            raise self.failure()

    def failure(self) -> KafkaError:
        """Return the error to raise for a call after the transaction has failed; mostly a new one each time, with its
        own traceback.
        """
        if self.state is State.UNKNOWN_OUTCOME:
            return self.unknown_outcome()
        error = self.error
        if error is None:
            return IllegalStateError(f"the transaction is {self.state.text}")
        if isinstance(error, ProducerFencedError):
            again: KafkaError = ProducerFencedError(
                error.detail, code=error.code, hint=error.hint, reason=error.reason, current_epoch=error.current_epoch
            )
        elif isinstance(error, _NOT_ABORTABLE) or self.state in (State.FATAL, State.PREPARED):
            return error
        else:
            again = AbortableTransactionError(str(error), code=error.code)
        again.__cause__ = error
        return again

    def _apply(self, event: Event) -> None:
        """Change the state for a response or its absence. An event that is impossible in the state ends the
        producer.
        """
        found = cell(event, self.state)
        if isinstance(found, State):
            self._enter(found)
        elif found is Refusal.BACK:
            self._enter(self._state_before)
        elif found is not Refusal.IGNORED:
            self._break(FatalError(f"the event {event.name} is impossible in the state {self.state.text}"))

    def _enter(self, state: State) -> None:
        """Set the state. On ABORTABLE_ERROR and FATAL call on_failed, which fails the unsent batches."""
        if state is State.INITIALIZING:
            self._state_before = self.state
        self.state = state
        if state is State.ABORTABLE_ERROR or state is State.FATAL:
            self.on_failed()

    def _break(self, error: KafkaError) -> None:
        """End the producer with this error."""
        if self.state is not State.FATAL:
            self.error = error
        self._apply(Event.BROKEN)

    # ---- identity --------------------------------------------------------------------------------------------

    def former_identity(self) -> ProducerIdentity:
        """Return the identity that InitProducerId names as the one to replace, so that a newer producer is not fenced
        (KIP-360).

        NO_IDENTITY after a start, or if an unknown outcome is given up: then this producer takes over the id in any
        case.
        """
        is_new = self.state is State.INITIALIZING and self._state_before in (State.UNINITIALIZED, State.UNKNOWN_OUTCOME)
        return NO_IDENTITY if is_new or not self.can_renew else self.identity

    def initialised(self, code: int, identity: ProducerIdentity) -> Verdict:
        """Apply a response to InitProducerId, with its error code and identity. Returns the verdict: DONE, AGAIN,
        FENCED or FATAL.
        """
        verdict = of_init(code)
        if verdict is Verdict.DONE and identity.producer_id < 0:
            verdict, code = Verdict.FATAL, ErrorCode.UNKNOWN_SERVER_ERROR  # success without an identity
        if verdict is Verdict.DONE:
            if self.state is State.ABORTING:
                self.outcome = "aborted"
            self.identity = identity
            self._clear()
            self._apply(Event.INITIALIZED)
        elif verdict is Verdict.FENCED:  # or Kafka's own abort raised the epoch: see `explain`
            self._break(fenced("unknown", error_of(code)))
        elif verdict is Verdict.FATAL:
            self._break(error_of(code))
        return verdict

    def not_initialised(self, error: KafkaError) -> None:
        """Note that InitProducerId had no response in time. A repeat is safe: it may skip an epoch (KAFKA-13412)."""
        if self.state is State.ABORTING:
            self.error = self.error or error
        self._apply(Event.NOT_INITIALIZED)

    # ---- writing ---------------------------------------------------------------------------------------------

    def begin(self, version: int, now_ms: int) -> None:
        """Begin a transaction without a request. version: of the transaction protocol, 1 or 2. Raises like
        `request`.
        """
        self.request(Event.BEGIN)
        self._clear()
        self.error, self.outcome = None, None
        self.version = version
        self.began_ms = now_ms

    def _clear(self) -> None:
        """Forget everything about the transaction that has ended."""
        self.partitions.clear()
        self.adding.clear()
        self.groups.clear()
        self.attempted = self.maybe_ended = self.suspect = self.forgotten = self._may_arrive_late = False

    def may_write_to(self, partition: TopicPartition) -> bool:
        """Return whether a batch may be sent to this partition now. With version 1, notes the partition to be added
        first.

        Once the transaction has failed, and during its abort, only batches that were sent before may be sent again, so
        that each gets a response: a commit that fails, and the abort, wait for it.
        """
        if self.state is not State.IN_TRANSACTION and self.state is not State.FLUSHING:
            return self.state in (State.ABORTING, State.ABORTABLE_ERROR) and partition in self.partitions
        if partition in self.partitions:
            return True
        self.attempted = True
        if self.version >= 2:
            self.partitions.add(partition)
            return True
        self.adding[partition] = None
        return False

    def added(self, codes: Mapping[TopicPartition, int]) -> Verdict:
        """Apply a response to AddPartitionsToTxn, with the code of each partition: all were added, or none. Returns
        the verdict.
        """
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
        """Note that offsets or acknowledgements are about to be sent, so that the transaction needs EndTxn."""
        self.attempted = True

    def refused_write(self, verdict: Verdict, error: KafkaError) -> None:
        """Fail the transaction, or the producer, because the broker has refused a write. verdict: what the error
        means.
        """
        if self.state in (State.READY, State.STALE):
            return
        self._may_arrive_late = True
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
        """Fail the transaction after an error of a batch or another write that is not repeated, whether or not a
        caller awaits it.
        """
        self.refused_write(of_failure(error.code), error)

    def unanswered(self) -> None:
        """Note that a request of this epoch was given up without a response: it may still arrive."""
        self._may_arrive_late = True

    # ---- ending ----------------------------------------------------------------------------------------------

    def ends_without_request(self) -> bool:
        """In FLUSHING and ABORTING: if nothing was sent in the transaction, end it here and return True. Else return
        False: EndTxn is sent next.
        """
        if not self.attempted and not self.maybe_ended:
            self.outcome = "committed" if self.state is State.FLUSHING else "aborted"
            self._apply(Event.ENDED_STALE if self._may_arrive_late else Event.ENDED)
            return True
        if self.state is State.FLUSHING:
            self._apply(Event.SEND_COMMIT)
        return False

    def prepared(self) -> None:
        """Note that PrepareTxn succeeded: only a decision in the broker's ledger ends the transaction now."""
        self.waits_for_predecessor = False
        self.error = IllegalStateError("the transaction is prepared and waits for its decision")
        self._apply(Event.PREPARED)

    def held(self, error: KafkaError) -> None:
        """Note that InitProducerId was refused, since a transaction of a predecessor waits for its decision. error:
        raised by calls until it is decided.
        """
        self._apply(Event.HELD)
        self.error = error
        self.waits_for_predecessor = True

    def decided(self, outcome: Outcome, identity: ProducerIdentity) -> None:
        """Note that the decision about the prepared transaction was carried out. identity: the next producer id and
        epoch; NO_IDENTITY if the broker did not give them.
        """
        self.outcome = outcome
        self.error = None
        if identity.producer_id >= 0:
            self.identity = identity
        self._apply(Event.ENDED_STALE if identity.producer_id < 0 else Event.ENDED)

    def end_unanswered(self) -> None:
        """Note that EndTxn had no response, so it may have been carried out or may still arrive."""
        self.maybe_ended = self._may_arrive_late = True

    def ended(self, code: int, identity: ProducerIdentity) -> Verdict:
        """Apply a response to EndTxn and return its verdict; after AGAIN and PERHAPS, EndTxn must be sent again.
        identity: the next producer id and epoch, in responses since version 5.
        """
        verdict = of_end(code)
        commit = self.state is State.COMMITTING
        if verdict is Verdict.DONE:
            self.outcome = "committed" if commit else "aborted"
            if identity.producer_id >= 0:
                self.identity = identity
            stale = identity.producer_id < 0 and (self._may_arrive_late or self.version >= 2)
            self._apply(Event.ENDED_STALE if stale else Event.ENDED)
        elif verdict is Verdict.PERHAPS:
            self.end_unanswered()
        elif verdict is not Verdict.AGAIN:
            (self._commit_refused if commit else self._abort_refused)(verdict, code)
        return verdict

    def _commit_refused(self, verdict: Verdict, code: int) -> None:
        """Apply that the broker refused EndTxn(commit).

        This attempt did not commit. An earlier one without a response may have, unless NOT_OPEN of version 2 comes:
        after a commit the same EndTxn would succeed (KIP-890), so the transaction was aborted, by its timeout or an
        operator. With version 1 a late InitProducerId of ours may have removed the trace of the commit.
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
        self._may_arrive_late, self.maybe_ended, self.outcome = True, False, None
        self._apply(Event.REFUSED)

    def _abort_refused(self, verdict: Verdict, code: int) -> None:
        """Apply that the broker refused EndTxn(abort)."""
        if verdict is Verdict.NOT_OPEN and self.version < 2:
            self.outcome = "aborted"  # it is not open, and no commit was ever sent
            self._apply(Event.ENDED_STALE)
        elif verdict is Verdict.FENCED:
            self.suspect = True
            if self.version >= 2 or not self.can_renew:
                self._break(fenced("newer_producer" if self.version >= 2 else "unknown"))
        else:
            self._break(error_of(code))

    def needs_identity_to_abort(self) -> bool:
        """Return whether the abort continues with InitProducerId: the broker does not know the producer id, or
        (version 1) has refused the epoch.

        If the broker itself aborted the transaction, InitProducerId with our identity, valid up to that abort, returns
        the next one (KIP-588). Otherwise the broker refuses it: this producer is fenced.
        """
        refused = self.forgotten or (self.suspect and self.version < 2)
        return self.state is State.ABORTING and refused and self.can_renew

    def gave_up(self, error: KafkaError) -> None:
        """Note that the time for a commit or an abort is over without a response. error: raised by later calls, unless
        there is an earlier one.
        """
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
        """Set the reason in the ProducerFencedError that ended the transaction, unless a reason is known already."""
        if isinstance(self.error, ProducerFencedError):
            cause, known = self.error.__cause__, self.error.reason
            reason = reason if known == "unknown" else known
            self.error = fenced(reason, cause if isinstance(cause, KafkaError) else None, current_epoch)

    def explain_broker_abort(self, elapsed_ms: int) -> None:
        """Set the reason in the ProducerFencedError to a timeout or an operator's abort: the broker gave this producer
        a new epoch, so no newer producer fenced it.
        """
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
    "unknown": ("the broker refused this producer's epoch", "create a new Producer if no other one uses this id"),
}


def fenced(reason: FencedBy, cause: KafkaError | None = None, current_epoch: int = -1) -> ProducerFencedError:
    """Return the ProducerFencedError for this reason."""
    text, hint = _FENCED_TEXTS[reason]
    code = ErrorCode.PRODUCER_FENCED if cause is None else cause.code
    error = ProducerFencedError(text, code=code, hint=hint, reason=reason, current_epoch=current_epoch)
    error.__cause__ = cause
    return error


class Described(NamedTuple):
    """The broker's description of a transactional id, as far as it shows who ended a transaction.

    is_old: by the broker's clock, the transaction began longer ago than its timeout.
    """

    state: str
    identity: ProducerIdentity
    is_old: bool = False


def fenced_by(ours: ProducerIdentity, found: Described | None, elapsed_ms: int, timeout_ms: int) -> FencedBy:
    """Return the most likely reason for which the producer with identity `ours` was fenced. found: the broker's
    description of its transactional id, None if unknown.

    After the broker's own abort the id has the next epoch and an abort state; after a new producer's InitProducerId it
    is Empty or in a new transaction.
    """
    if found is None:
        return "unknown"
    next_one = ProducerIdentity(ours.producer_id, ours.epoch + 1)
    if found.identity != next_one or found.state not in ("CompleteAbort", "PrepareAbort", "PrepareEpochFence"):
        return "newer_producer"
    return "transaction_timeout" if found.is_old or elapsed_ms >= timeout_ms else "admin_abort"


def partitions_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Group partitions for requests: topic → its partition numbers."""
    found: dict[str, list[int]] = {}
    for topic, index in partitions:
        found.setdefault(topic, []).append(index)
    return found
