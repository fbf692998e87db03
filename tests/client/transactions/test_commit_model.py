"""One commit over broker and database in every order of steps; and fourteen bugs, which have to be found that way."""

import pytest
from commit_model import Model, Variant, Violated, look_at_all
from fencepost.client.transactions.deciding import Answer, Step


def traits(*names: str, operator: int = 0) -> Variant:
    return Variant(frozenset(names), operator=operator)


AFTER_RECORDS = "waits for records first"
"""PrepareTxn is only sent when the row and the records are there, as where it cannot follow the records."""
TO_OTHERS = "leaves it to others"
"""A writer that stops before COMMIT does not abort. That halves the states."""
HOLD = {
    "as it is": Variant(),
    "PrepareTxn after the answers to the records": traits(AFTER_RECORDS),
    "no generation": traits("no generation", TO_OTHERS),
    "no ledger check at PrepareTxn, which comes after the row": traits("no ledger", AFTER_RECORDS),
    "an operator's InitProducerId": traits(TO_OTHERS, operator=1),
}


@pytest.mark.slow
def test_in_the_commit_model_with_one_fault_database_rows_equal_committed_records():
    """The model of a transaction over a database and a broker: every order of steps, with the faults at every place."""
    states, _ = look_at_all(Model(traits(TO_OTHERS)))
    assert states > 60_000, "too few for the model to have looked at all orders"


@pytest.mark.long
@pytest.mark.parametrize("name", HOLD)
def test_in_all_orders_of_commit_steps_with_two_faults_rows_equal_committed_records(name: str):
    states, _ = look_at_all(Model(HOLD[name], faults=2))
    assert states > 80_000, "too few for the model to have looked at all orders"


@pytest.mark.long
def test_in_all_orders_of_steps_of_three_commits_rows_equal_committed_records():
    states, _ = look_at_all(Model(traits(AFTER_RECORDS, TO_OTHERS), faults=2, transactions=(2, 1)))
    assert states > 200_000, "too few for the model to have looked at all orders"


@pytest.mark.long
def test_in_all_orders_of_commit_steps_with_3_faults_rows_equal_committed_records():
    states, _ = look_at_all(Model(traits(AFTER_RECORDS, TO_OTHERS), faults=3))
    assert states > 150_000, "too few for the model to have looked at all orders"


MUTANTS = {
    "who finds no row aborts, without a lock and a trace": traits("no tombstone"),
    "the resolver aborts without asking": Variant(resolver={(Step.LOOK, Answer.NO): Step.END}),
    "the broker aborts a Prepared transaction after a time": traits("timeout"),
    "the database commits before PrepareTxn is answered": Variant(
        cells={
            (Step.DECIDE, Answer.OK): Step.COMMIT,
            (Step.COMMIT, Answer.OK): Step.PREPARE,
            (Step.PREPARE, Answer.OK): Step.END_OWN,
        }
    ),
    "COMMIT without an answer is taken for a rollback": Variant(cells={(Step.COMMIT, Answer.NONE): Step.END_OWN}),
    "COMMIT without an answer is taken for a commit": Variant(
        frozenset({"takes no answer for a commit"}), {(Step.COMMIT, Answer.NONE): Step.END_OWN}
    ),
    "a restarted database has lost its last commit": traits("loses commits"),
    "InitProducerId aborts what is Prepared": traits("no hold"),
    "an operator's InitProducerId aborts what is Prepared": traits("operator passes the hold", operator=1),
    "prepared at any time, and the row has no condition": traits("no row check"),
    "the database commits before the records are taken": traits("does not wait for records"),
    "the row has a transaction of its own": traits("row outside"),
    "EndTxns ends whatever is Prepared": traits("ends any"),
    "PrepareTxn is accepted for a number that the ledger has decided": traits("no ledger"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_the_commit_model_finds_each_bug_planted_in_a_commit_with_a_database(name: str):
    with pytest.raises(Violated):
        look_at_all(Model(MUTANTS[name]))
