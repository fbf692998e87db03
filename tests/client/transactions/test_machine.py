"""A client's transaction: the table cell by cell, answers, and the bugs that other clients had."""

import pytest
from fencepost.client.errors import (
    AbortableTransactionError,
    AuthorizationError,
    CommitOutcomeUnknownError,
    DeliveryTimeoutError,
    FatalError,
    FencedInstanceIdError,
    IllegalStateError,
    ProducerFencedError,
    RecordTooLargeError,
    RequestTimedOutError,
    error_of,
)
from fencepost.client.transactions.answers import Verdict, of_end, of_init, of_write, worst
from fencepost.client.transactions.machine import ClientTransaction, Described, fenced_by
from fencepost.client.transactions.table import TABLE, Event, Refusal, State, cell
from fencepost.client.values import NO_IDENTITY, ProducerIdentity, TopicPartition
from fencepost.protocol.errors import ErrorCode

FIRST, NEXT = ProducerIdentity(7, 0), ProducerIdentity(7, 1)
A, B = TopicPartition("t", 0), TopicPartition("t", 1)
ASKED = (Event.INIT, Event.BEGIN, Event.WRITE, Event.COMMIT, Event.ABORT)


def ready(version: int = 2) -> ClientTransaction:
    client = ClientTransaction("x", 60_000)
    client.can_renew = True
    client.request(Event.INIT)
    client.initialised(0, FIRST)
    client.version = version
    return client


def begun(version: int = 2, *, wrote: bool = True) -> ClientTransaction:
    client = ready(version)
    client.begin(version, 0)
    if wrote and not client.may_write_to(A):
        client.added({A: 0})
        assert client.may_write_to(A)
    return client


def committing(version: int = 2) -> ClientTransaction:
    client = begun(version)
    client.request(Event.COMMIT)
    assert not client.ends_without_request()
    return client


def aborting(version: int = 2) -> ClientTransaction:
    client = begun(version)
    client.request(Event.ABORT)
    assert not client.ends_without_request()
    return client


# ---- the table ---------------------------------------------------------------------------------------------------


def test_the_transition_table_has_a_cell_for_every_event_in_every_state():
    assert set(TABLE) == set(Event)
    assert {len(row) for row in TABLE.values()} == {len(State)}


@pytest.mark.parametrize("event", ASKED)
def test_no_state_ignores_an_application_call_or_answers_it_as_a_bug(event):
    assert not {cell(event, state) for state in State} & {Refusal.BUG, Refusal.IGNORED}


def test_no_event_leaves_the_fatal_state():
    assert {cell(event, State.FATAL) for event in Event} == {Refusal.BROKEN, Refusal.IGNORED}


def test_only_the_same_commit_init_or_a_fatal_error_ends_an_unknown_outcome():
    left = {event for event in Event if isinstance(cell(event, State.UNKNOWN_OUTCOME), State)}
    assert left == {Event.COMMIT, Event.INIT, Event.BROKEN}


@pytest.mark.requirement("S-115")
@pytest.mark.parametrize("event", [Event.WRITE, Event.COMMIT, Event.ABORT])
@pytest.mark.parametrize("state", [State.UNINITIALIZED, State.INITIALIZING, State.READY])
def test_writing_committing_or_aborting_without_a_transaction_raises_illegal_state(event, state):
    client = ready()
    client.state = state
    with pytest.raises(IllegalStateError):
        client.request(event)
    assert client.state is state


@pytest.mark.requirement("S-93")
@pytest.mark.parametrize("state", [State.INITIALIZING, State.READY, State.IN_TRANSACTION])
def test_init_transactions_raises_in_every_state_after_the_first_transaction(state):
    client = begun()
    client.state = state
    with pytest.raises(IllegalStateError, match="once"):
        client.request(Event.INIT)


@pytest.mark.requirement("S-76")
@pytest.mark.requirement("S-136")
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_without_any_write_ends_without_a_request(version, commit):
    client = begun(version, wrote=False)
    client.request(Event.COMMIT if commit else Event.ABORT)
    assert client.ends_without_request()
    assert (client.state, client.outcome) == (State.READY, "committed" if commit else "aborted")


# ---- answers -----------------------------------------------------------------------------------------------------


def test_only_error_code_0_counts_as_success():
    for code in ErrorCode:
        for verdict in (of_end, of_init, of_write):
            assert (verdict(code) is Verdict.DONE) == (code == 0)


def test_worst_returns_verdict_and_code_of_the_most_severe_partition_error():
    assert worst([0, 0]) == (Verdict.DONE, 0)
    assert worst([55, 29, 55]) == (Verdict.ABORT, 29)
    assert worst([55, 51]) == (Verdict.AGAIN, 51)
    assert worst([55]) == (Verdict.AGAIN, 55)
    assert worst([3, 90, 29]) == (Verdict.FENCED, 90)


def test_with_version_2_the_next_transaction_has_the_epoch_that_end_txn_returned():
    client = committing()
    assert client.ended(0, NEXT) is Verdict.DONE
    assert (client.state, client.identity, client.outcome) == (State.READY, NEXT, "committed")


def test_with_version_1_a_resent_commit_makes_a_new_epoch_necessary():
    """The first commit request may still arrive, and would otherwise end the next transaction."""
    client = committing(1)
    client.end_unanswered()
    assert client.ended(0, NO_IDENTITY) is Verdict.DONE
    assert (client.state, client.outcome) == (State.STALE, "committed")
    with pytest.raises(IllegalStateError):
        client.begin(1, 0)
    client.request(Event.INIT)
    assert client.former_identity() == FIRST, "so that a newer producer is not fenced by it"
    client.initialised(0, NEXT)
    assert client.state is State.READY


@pytest.mark.parametrize("version", [1, 2])
def test_a_commit_that_nobody_answers_has_an_unknown_outcome(version):
    client = committing(version)
    client.end_unanswered()
    client.gave_up(RequestTimedOutError())
    assert (client.state, client.outcome) == (State.UNKNOWN_OUTCOME, "unknown")
    for event in (Event.BEGIN, Event.WRITE, Event.ABORT):
        with pytest.raises(CommitOutcomeUnknownError):
            client.request(event)


def test_a_commit_that_was_never_sent_can_be_aborted():
    client = committing()
    client.gave_up(RequestTimedOutError("no connection"))
    assert client.state is State.ABORTABLE_ERROR
    client.request(Event.ABORT)
    assert not client.ends_without_request()


def test_an_abort_while_the_commit_is_sent_is_refused_and_changes_nothing():
    client = committing()
    with pytest.raises(IllegalStateError, match="the transaction is committing"):
        client.request(Event.ABORT)
    assert client.state is State.COMMITTING


def test_fenced_as_the_answer_to_a_resent_commit_leaves_the_outcome_unknown():
    client = committing(1)
    client.end_unanswered()
    client.ended(ErrorCode.PRODUCER_FENCED, NO_IDENTITY)
    assert (client.state, client.outcome) == (State.FATAL, "unknown")


def test_invalid_txn_state_for_a_resent_commit_means_it_was_aborted():
    client = committing()
    client.end_unanswered()
    client.ended(ErrorCode.INVALID_TXN_STATE, NO_IDENTITY)
    assert (client.state, client.outcome) == (State.ABORTABLE_ERROR, None)
    client.request(Event.ABORT)
    client.ended(0, NEXT)
    assert (client.state, client.outcome) == (State.READY, "aborted")


def test_with_version_1_invalid_txn_state_for_a_resent_commit_is_outcome_unknown():
    client = committing(1)
    client.end_unanswered()
    client.ended(ErrorCode.INVALID_TXN_STATE, NO_IDENTITY)
    assert (client.state, client.outcome) == (State.UNKNOWN_OUTCOME, "unknown")
    with pytest.raises(CommitOutcomeUnknownError):
        client.request(Event.ABORT)


def test_a_commit_whose_first_answer_is_fenced_was_not_committed():
    client = committing()
    client.ended(ErrorCode.PRODUCER_FENCED, NO_IDENTITY)
    assert isinstance(client.failure(), ProducerFencedError)
    client.request(Event.ABORT)
    client.ended(0, NEXT)  # the broker had ended it by itself
    assert client.state is State.READY
    client.explain("transaction_timeout", 1)
    assert client.failure().reason == "transaction_timeout"


def test_with_version_1_the_abort_of_a_fenced_transaction_asks_for_a_new_epoch():
    client = aborting(1)
    client.ended(ErrorCode.INVALID_PRODUCER_EPOCH, NO_IDENTITY)
    assert client.needs_identity_to_abort()
    assert client.former_identity() == FIRST
    client.initialised(0, NEXT)
    assert (client.state, client.outcome, client.identity) == (State.READY, "aborted", NEXT)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.ILLEGAL_GENERATION, AbortableTransactionError),
        (ErrorCode.UNKNOWN_MEMBER_ID, AbortableTransactionError),
        (ErrorCode.TRANSACTION_ABORTABLE, AbortableTransactionError),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, AbortableTransactionError),
        (ErrorCode.FENCED_INSTANCE_ID, FencedInstanceIdError),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, AuthorizationError),
        (ErrorCode.MESSAGE_TOO_LARGE, RecordTooLargeError),
        (ErrorCode.PRODUCER_FENCED, ProducerFencedError),
    ],
)
def test_commit_raises_abortable_only_for_write_errors_that_a_retry_may_avoid(code, kind):
    client = begun()
    client.refused_write(of_write(code), error_of(code))
    with pytest.raises(kind):
        client.request(Event.COMMIT)
    client.request(Event.ABORT)


def test_a_missing_right_to_the_transactional_id_is_fatal():
    client = begun()
    client.failed(error_of(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    for event in ASKED:
        with pytest.raises(AuthorizationError):
            client.request(event)


@pytest.mark.parametrize(
    ("state", "identity", "elapsed_ms", "reason"),
    [
        ("CompleteAbort", NEXT, 60_000, "transaction_timeout"),
        ("CompleteAbort", NEXT, 10, "admin_abort"),
        ("Empty", NEXT, 60_000, "newer_producer"),
        ("Ongoing", NEXT, 60_000, "newer_producer"),
        ("CompleteAbort", ProducerIdentity(7, 2), 60_000, "newer_producer"),
        ("CompleteAbort", ProducerIdentity(8, 0), 60_000, "newer_producer"),
    ],
)
def test_fenced_by_derives_the_reason_from_the_described_transaction(state, identity, elapsed_ms, reason):
    assert fenced_by(FIRST, Described(state, identity), elapsed_ms, 60_000) == reason
    assert fenced_by(FIRST, None, elapsed_ms, 60_000) == "unknown"


def test_fenced_by_returns_transaction_timeout_if_the_broker_reports_a_txn_too_old():
    assert fenced_by(FIRST, Described("CompleteAbort", NEXT, is_old=True), 10, 60_000) == "transaction_timeout"


# ---- bugs of other clients -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2])
def test_librdkafka_3575_after_an_out_of_order_error_only_an_abort_is_allowed(version):
    """librdkafka asked for a new epoch in mid-transaction, and committed only what it sent after that."""
    client = begun(version)
    client.failed(error_of(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
    assert (client.state, client.identity) == (State.ABORTABLE_ERROR, FIRST)
    with pytest.raises(AbortableTransactionError):
        client.request(Event.COMMIT)
    with pytest.raises(IllegalStateError):
        client.request(Event.INIT)


@pytest.mark.parametrize("version", [1, 2])
def test_librdkafka_1_7_a_commit_fails_if_a_record_was_never_sent(version):
    """Before librdkafka 1.7, the commit succeeded."""
    client = begun(version)
    client.failed(DeliveryTimeoutError("the cluster was down"))
    with pytest.raises(AbortableTransactionError):
        client.request(Event.COMMIT)


def test_a_record_that_fails_while_the_commit_waits_for_it_fails_the_commit():
    client = begun()
    client.request(Event.COMMIT)
    client.failed(DeliveryTimeoutError())
    assert client.state is State.ABORTABLE_ERROR


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.COORDINATOR_NOT_AVAILABLE, 9999])
def test_kgo_42b3d83_a_commit_given_up_after_an_unclear_error_has_unknown_outcome(code):
    """The Go client kgo did not send EndTxn again, and reported the transaction as committed."""
    client = committing()
    assert client.ended(code, NO_IDENTITY) is Verdict.PERHAPS
    assert client.state is State.COMMITTING
    client.gave_up(error_of(code))
    assert client.state is State.UNKNOWN_OUTCOME, "it may have been carried out all the same"


@pytest.mark.parametrize("version", [1, 2])
def test_kgo_6ecd2f9_after_an_unanswered_commit_writes_and_begin_are_refused(version):
    """In the Go client kgo, the next transaction began, and its records joined this one."""
    client = committing(version)
    client.end_unanswered()
    client.gave_up(RequestTimedOutError())
    assert not client.may_write_to(A)
    with pytest.raises(CommitOutcomeUnknownError):
        client.begin(version, 0)


@pytest.mark.parametrize("version", [1, 2])
def test_kgo_f25fe06_an_unanswered_abort_must_be_sent_again_before_the_next_begin(version):
    """In the Go client kgo, an abort after an error sent nothing and was reported as done."""
    client = aborting(version)
    client.end_unanswered()
    client.gave_up(RequestTimedOutError())
    with pytest.raises(AbortableTransactionError):
        client.begin(version, 0)
    client.request(Event.ABORT)
    assert not client.ends_without_request(), "it is sent again"


@pytest.mark.parametrize("version", [1, 2])
def test_a_failed_transaction_may_write_only_to_partitions_that_it_has_written_to(version):
    """So that batches that were sent before can be sent again, and each gets an answer."""
    client = begun(version)
    client.failed(error_of(ErrorCode.INVALID_RECORD_STATE))
    assert client.state is State.ABORTABLE_ERROR
    assert (client.may_write_to(A), client.may_write_to(B)) == (True, False)


def test_kgo_351dd40_a_partition_counts_as_added_only_after_the_brokers_success():
    """The Go client kgo took a partition for added although no AddPartitionsToTxn had been sent."""
    client = begun(1, wrote=False)
    assert not client.may_write_to(A)
    assert client.added({A: ErrorCode.CONCURRENT_TRANSACTIONS}) is Verdict.AGAIN
    assert not client.may_write_to(A)
    client.unanswered()
    assert not client.may_write_to(A)
    client.added({A: ErrorCode.OPERATION_NOT_ATTEMPTED, B: ErrorCode.TOPIC_AUTHORIZATION_FAILED})
    assert client.state is State.ABORTABLE_ERROR


@pytest.mark.parametrize("version", [1, 2])
def test_kgo_de5af46_an_abort_sends_end_txn_although_no_write_was_acknowledged(version):
    """The Go client kgo sent no EndTxn: the transaction stayed open, and the next one joined it."""
    client = begun(version, wrote=False)
    client.may_write_to(A)
    client.failed(DeliveryTimeoutError())
    client.request(Event.ABORT)
    assert not client.ends_without_request()


def test_kafka_13412_init_producer_id_may_be_sent_again_after_a_timeout():
    """Kafka's client could not send it again."""
    client = ClientTransaction("x", 60_000)
    client.request(Event.INIT)
    client.not_initialised(RequestTimedOutError())
    assert client.state is State.UNINITIALIZED
    client.request(Event.INIT)
    assert client.former_identity() == NO_IDENTITY
    client.initialised(0, NEXT)
    assert (client.state, client.identity) == (State.READY, NEXT)


def test_kafka_13782_only_a_partition_added_to_the_transaction_may_be_written_to():
    """Kafka's client could write to another partition than it had added."""
    client = begun(1, wrote=False)
    client.may_write_to(A)
    client.may_write_to(B)
    assert list(client.adding) == [A, B]
    client.added({A: 0})
    assert client.may_write_to(A)
    assert not client.may_write_to(B)


def test_kafka_14831_an_unrequested_init_producer_id_answer_is_fatal():
    """Kafka's client went on after an answer that its state does not allow."""
    client = begun()
    client.initialised(0, NEXT)  # nobody asked for it
    assert client.state is State.FATAL
    with pytest.raises(FatalError):
        client.request(Event.COMMIT)


def test_kafka_18227_the_transaction_version_changes_only_between_transactions():
    client = begun(1)
    with pytest.raises(IllegalStateError):
        client.begin(2, 0)
    assert (client.version, client.partitions) == (1, {A})
    client.request(Event.COMMIT)
    assert not client.ends_without_request()
    client.ended(0, NO_IDENTITY)
    client.begin(2, 0)
    assert (client.version, client.partitions) == (2, set())
    assert client.may_write_to(B), "with version 2 a partition is not added first"


def test_confluent_python_1125_librdkafka_3928_no_call_works_after_fenced():
    client = ready(1)
    client.state = State.STALE
    client.request(Event.INIT)
    assert client.initialised(ErrorCode.PRODUCER_FENCED, NO_IDENTITY) is Verdict.FENCED
    assert client.state is State.FATAL
    for event in ASKED:
        with pytest.raises(ProducerFencedError):
            client.request(event)


def test_an_invalid_identity_from_init_producer_id_is_fatal():
    client = ClientTransaction("x", 60_000)
    client.request(Event.INIT)
    client.initialised(0, NO_IDENTITY)
    assert client.state is State.FATAL


def test_a_version_2_end_answered_without_an_epoch_requires_init_producer_id():
    client = committing()
    client.ended(0, NO_IDENTITY)
    assert client.state is State.STALE
