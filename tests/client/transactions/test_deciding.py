"""What follows from a row and a ledger. That the table of steps suffices is shown by test_commit_model.py."""

import pytest
from fencepost.client.transactions.deciding import (
    NONE_YET,
    TABLE,
    Answer,
    Row,
    Standing,
    Step,
    Waiting,
    ledger_key,
    next_number,
    older_broker,
    older_database,
)
from fencepost.client.values import ProducerIdentity

WAITING = Waiting("sql:d:x", "x", ProducerIdentity(7, 1), 4)


def test_a_commit_with_a_database_has_a_next_step_for_every_answer_until_it_stops():
    assert set(TABLE) == {(step, answer) for step in Step if step is not Step.STOPPED for answer in Answer}


def test_each_unanswered_step_but_decide_and_commit_of_a_database_commit_is_repeated():
    again = {step for step in Step if TABLE.get((step, Answer.NONE)) is step}
    assert set(Step) - again == {Step.DECIDE, Step.COMMIT, Step.STOPPED}
    # Without an answer to COMMIT, the database is asked, and decides "not committed" if it has not committed.
    assert TABLE[Step.COMMIT, Answer.NONE] is TABLE[Step.COMMIT, Answer.NO] is Step.CLOSE_OWN


def test_the_ledger_key_names_the_database_and_the_transactional_id():
    assert ledger_key("d", "x") == "sql:d:x"


@pytest.mark.parametrize(("row", "ledger", "number"), [(NONE_YET, NONE_YET, 0), (3, 2, 4), (2, 3, 4)])
def test_the_next_transaction_number_is_above_the_last_of_database_and_ledger(row, ledger, number):
    assert next_number(Row(1, row, True), Standing(ledger, True, None)) == number


@pytest.mark.parametrize(
    ("row", "standing", "is_older"),
    [
        (Row(1, 4, True), Standing(3, True, None), True),
        (Row(1, 4, True), Standing(NONE_YET, False, None), True),
        (Row(1, 4, True), Standing(3, True, WAITING), False),
        (Row(1, 4, False), Standing(3, True, None), False),
        (Row(1, 4, True), Standing(4, True, None), False),
    ],
)
def test_a_committed_number_that_the_ledger_lacks_means_a_restored_broker(row, standing, is_older):
    """The broker was restored from a backup older than the database, unless a transaction waits for its decision."""
    assert (older_broker(row, standing) is not None) == is_older


@pytest.mark.parametrize(
    ("row", "ledger", "is_older"), [(3, 4, True), (NONE_YET, 0, True), (4, 4, False), (5, 4, False)]
)
def test_a_number_in_the_ledger_that_the_database_lacks_means_a_restored_database(row, ledger, is_older):
    """The database was restored from a backup that is older than the ledger's last decision."""
    assert (older_database(Row(1, row, True), Standing(ledger, True, None)) is not None) == is_older
