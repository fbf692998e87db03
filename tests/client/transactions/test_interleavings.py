"""The client's machine runs against the broker's machine with no loop between, over all interleavings of scenarios.

Lost and late requests, lost answers, copies, time-outs of the broker, a second producer with the same id: no success
without an answer, a commit that succeeded is exactly the transaction's writes, nothing bleeds into the next
transaction, and no abort goes out on the epoch of a commit that was not answered (kgo 6ecd2f9; KAFKA-17754).
"""

import pytest
from fencepost.client.transactions.machine import ClientTransaction
from fencepost.client.transactions.table import Event, State
from txn_interleavings import Choices, Run, every_run

pytestmark = pytest.mark.slow

SCENARIOS = {
    "two commits to one partition": [([0], False, True), ([0], False, True)],
    "an abort, then a commit": [([0], False, False), ([0], False, True)],
    "a commit, then an abort": [([0], True, True), ([0], False, False)],
    "two partitions, then another": [([0, 1], False, True), ([1], False, True)],
    "offsets twice": [([], True, True), ([], True, True)],
    "copying": [([0], True, True), ([0], True, True)],
}


def play(version, transactions, rivals):
    def run(choices: Choices) -> None:
        world = Run(version, choices, rivals=rivals)
        world.init()
        for number, (partitions, offsets, commit) in enumerate(transactions):
            world.transaction(number, partitions, offsets=offsets, commit=commit)
        world.check()
        endings.add(tuple(outcome for outcome, _ in world.outcomes))

    endings: set[tuple[str, ...]] = set()
    return run, endings


def explore(version, name, faults, rivals):
    run, endings = play(version, SCENARIOS[name], rivals)
    tried = sum(1 for _ in every_run(run, faults))
    return tried, endings


@pytest.mark.requirement("S-138")
@pytest.mark.parametrize("version", [pytest.param(1, marks=pytest.mark.long), 2])
@pytest.mark.parametrize("name", SCENARIOS)
def test_with_at_most_two_faults_a_transaction_ends_as_its_client_was_told(version, name):
    """In every run of a scenario with at most two faults, the outcome that the client reports is the broker's."""
    tried, endings = explore(version, name, 2, rivals=True)
    assert tried > 500, "too few for all orders and faults to have been tried"
    assert len(endings) > 3, "the runs were meant to end in different ways"


@pytest.mark.long
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", SCENARIOS)
def test_with_at_most_three_faults_a_transaction_ends_as_its_client_was_told(version, name):
    """In every run of a scenario with at most three faults, the outcome that the client reports is the broker's."""
    tried, _ = explore(version, name, 3, rivals=True)
    assert tried > 10_000, "too few for all orders and faults to have been tried"


@pytest.mark.parametrize("version", [1, 2])
def test_without_faults_every_transaction_commits(version):
    tried, endings = explore(version, "copying", 0, rivals=False)
    assert (tried, endings) == (1, {("committed", "committed")})


# ---- the exploration itself: machines with a bug are caught ----------------------------------------------------------


def never_stale(patch):
    """Plant a bug: with version 1 the next transaction begins on the same epoch, though requests may arrive late."""
    patch.setattr(ClientTransaction, "end_unanswered", lambda self: setattr(self, "maybe_ended", True))
    patch.setattr(ClientTransaction, "unanswered", lambda self: None)


def unanswered_is_success(patch):
    """Plant a bug: an EndTxn without an answer is taken for carried out."""

    def gave_up(self, error):
        self.outcome = "committed" if self.state is State.COMMITTING else "aborted"
        self._apply(Event.ENDED)

    patch.setattr(ClientTransaction, "gave_up", gave_up)


def unanswered_is_aborted(patch):
    """Plant a bug that kgo (6ecd2f9) and aiokafka had: a commit without an answer may be followed by an abort."""

    def gave_up(self, error):
        self.error = error
        self._apply(Event.REFUSED)

    patch.setattr(ClientTransaction, "gave_up", gave_up)


def fenced_is_aborted(patch):
    """Plant a bug: "fenced", the answer to a commit that was sent again, is taken for an abort."""
    real = ClientTransaction._commit_refused

    def refused(self, verdict, code):
        self.maybe_ended = False
        real(self, verdict, code)

    patch.setattr(ClientTransaction, "_commit_refused", refused)


def failures_are_forgotten(patch):
    """Plant a bug that librdkafka had before 1.7: a transaction can be committed although one of its batches failed."""
    patch.setattr(ClientTransaction, "refused_write", lambda self, verdict, error: None)


def nothing_acknowledged_is_nothing_attempted(patch):
    """Plant a bug that kgo had (de5af46): if all writes failed, no EndTxn is sent. A transaction that they opened at
    the broker stays open, and the records of the next one join it.
    """
    real = ClientTransaction.ends_without_request

    def without(self):
        if self.state is State.ABORTING and self.error is not None:
            self.attempted = self.maybe_ended = self._may_arrive_late = False
        return real(self)

    patch.setattr(ClientTransaction, "ends_without_request", without)


BUGS = {
    "never stale": (never_stale, 1, "offsets twice"),
    "unanswered is success": (unanswered_is_success, 2, "two commits to one partition"),
    "unanswered is aborted": (unanswered_is_aborted, 2, "two commits to one partition"),
    "fenced is aborted": (fenced_is_aborted, 2, "two commits to one partition"),
    "failures are forgotten": (failures_are_forgotten, 2, "two commits to one partition"),
    "nothing acknowledged": (nothing_acknowledged_is_nothing_attempted, 2, "two commits to one partition"),
}


@pytest.mark.parametrize("name", BUGS)
def test_exploring_all_runs_detects_each_bug_planted_in_transaction_states(name, monkeypatch):
    break_it, version, scenario = BUGS[name]
    break_it(monkeypatch)
    with pytest.raises(AssertionError):
        explore(version, scenario, 3, rivals=True)
