"""Random lives of a transactional id beside a small model: both protocols, lost answers, crashes.

Never: two pairs accepted, a decided outcome changed, a transaction decided twice or with another's partitions, an epoch
going back, a producer id given twice.
"""

import pytest
from fencepost.broker.transactions import records
from fencepost.broker.transactions.states import machine
from fencepost.broker.transactions.states.init_producer_id import Initialisation, Limits, init_producer_id
from fencepost.broker.transactions.states.transaction import Inputs, Prepared, Status
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from long_runs import share_of
from transaction_model import LAST, Model

pytestmark = pytest.mark.slow

WORDS = {0: "ok", 49: "refused", 90: "refused", 48: "state", 51: "wait"}
TIMEOUT_MS = 60_000
LIVING = 3
PRODUCERS = st.sampled_from([LIVING, LIVING, LIVING, 0, 1, 2])
TOPICS = st.dictionaries(st.tuples(st.sampled_from("ab"), st.integers(0, 1)), st.integers(1, 3), min_size=1, max_size=2)


class Life(RuleBasedStateMachine):
    """Producers 0 to 2 share one id. Each knows the pair (producer id, epoch) that it was told last, if any. Producer
    LIVING always knows the present pair.
    """

    def __init__(self):
        super().__init__()
        self.model = Model()
        self.txn = None
        self.known = [None, None, None, None]
        self.age_ms = 1000
        self.fresh = 1000  # the next new producer id
        self.logged = 0  # states, so the offset of the next one
        self.ended = []  # outcome and partitions, by the markers and states that were written
        self.coming = None  # a decision whose unit is about to be written, or lost in a crash

    @initialize(epoch=st.sampled_from([0, 7, LAST - 4, LAST - 1]))
    def it_begins(self, epoch):
        """Begin with no producer, or with one at this epoch, which is mostly near the last one."""
        if epoch:
            self.begins(0, None, lost=False)
            self.txn = self.txn._replace(producer_epoch=epoch)
            self.model.issued = [(self.txn.producer_id, epoch)]
            self.known[0] = self.model.alive

    def new_producer_id(self):
        self.fresh += 1
        return self.fresh - 1

    def next_offset(self, transactional_id):
        assert transactional_id == "id"
        return self.logged

    def inputs(self):
        return Inputs(10**12 + self.age_ms, self.age_ms, self.new_producer_id, self.next_offset)

    def written(self, decision):
        """Note that the decision's unit is in the log. Check that its states are read back as they are, and that its
        markers end exactly what was open.
        """
        before = self.txn
        self.check_opened_at(decision.states)
        for state in decision.states:
            name, self.txn = records.read(records.key("id"), records.value(state))
            assert (name, self.txn) == ("id", state)
            if state.status in (Status.COMPLETE_COMMIT, Status.COMPLETE_ABORT):
                self.ended.append((state.status is Status.COMPLETE_COMMIT, dict(before.partitions)))
        order = decision.marker
        if order is not None:
            assert order.partitions == before.partitions
            assert order.producer_id == before.producer_id
            assert before.producer_epoch <= order.producer_epoch <= 32767
            assert order.commit is self.ended[-1][0]
        elif decision.states:
            assert not (before and before.partitions) or self.txn.status is Status.ONGOING

    def check_opened_at(self, states):
        """Check that a transaction keeps the offset of the state that opened it until InitProducerId begins another
        life.
        """
        before = self.txn
        for state in states:
            if state.status is Status.ONGOING and (before is None or before.status is not Status.ONGOING):
                assert state.opened_at == self.logged
            elif state.partitions or (before is not None and before.partitions):
                assert state.opened_at == before.opened_at >= 0
            else:
                assert state.opened_at == -1
            before, self.logged = state, self.logged + 1

    def does(self, decision, expected):
        assert WORDS[int(decision.error)] == expected
        self.written(decision)
        return decision

    def pair_of(self, who):
        return (self.model.alive if who == LIVING else self.known[who]) or (5, 0)

    # What producers ask. A lost answer: it happened, but the producer does not know.

    @rule(who=PRODUCERS, given=st.sampled_from([None, LIVING, 0, 1, 2]), lost=st.booleans())
    def begins(self, who, given, lost):
        """Call InitProducerId without a pair, with the pair that a producer knows, or (LIVING) with the pair before the
        present one. If the answer is lost, the caller does not learn its new pair.
        """
        pair = None if given is None else self.model.before if given == LIVING else self.known[given]
        request = Initialisation("id", TIMEOUT_MS, *(pair or (-1, -1)))
        decision = init_producer_id(self.txn, request, Limits(), self.inputs())
        self.does(decision, self.model.init(pair))
        if not decision.error:
            assert (decision.producer_id, decision.producer_epoch) == self.model.alive
            if not lost:
                self.known[who] = self.model.alive

    @rule(partitions=TOPICS)
    def the_living_one_adds(self, partitions):
        self.adds(LIVING, partitions, 2)

    @rule(who=PRODUCERS, partitions=TOPICS, version=st.sampled_from([0, 2]))
    def adds(self, who, partitions, version):
        pair = self.pair_of(who)
        decision = machine.add_partitions(self.txn, *pair, partitions, version, self.inputs())
        self.does(decision, self.model.add(pair, partitions))

    @rule(who=PRODUCERS, commit=st.booleans(), version=st.sampled_from([0, 2]), lost=st.booleans())
    def ends(self, who, commit, version, lost):
        self.ends_with(version, self.pair_of(who), commit)
        if not lost and version == 2 and self.model.before == self.known[who]:
            self.known[who] = self.model.alive

    def ends_with(self, version, pair, commit):
        decision = machine.end(self.txn, commit, *pair, version, self.inputs())
        self.does(decision, (self.model.end_v2 if version else self.model.end_v1)(pair, commit))
        if version and not decision.error:
            assert (decision.producer_id, decision.producer_epoch) == self.model.alive

    @rule(who=PRODUCERS, number=st.integers(1, 2), hold=st.booleans())
    def prepares(self, who, number, hold):
        pair = self.pair_of(who)
        prepared = Prepared("sink", number, TIMEOUT_MS, 0, hold)
        decision = machine.prepare(self.txn, *pair, prepared, None, self.inputs())
        self.does(decision, self.model.prepare(pair, ("sink", number, hold)))

    # What happens to them

    @precondition(lambda self: self.txn is not None)
    @rule(ms=st.sampled_from([0, 1000, TIMEOUT_MS + 1]))
    def time_passes(self, ms):
        self.age_ms += ms
        deadline = machine.deadline_age_ms(self.txn)
        if deadline is not None and deadline < self.age_ms:
            self.model.time_out()
        self.does(machine.expire(self.txn, self.inputs()), "ok")

    @rule(partition=st.none() | st.tuples(st.sampled_from("ab"), st.integers(0, 1)))
    def an_admin_aborts(self, partition):
        if partition is None:
            expected = self.model.abort()
            self.does(machine.force_abort(self.txn, self.inputs()), expected)
        elif self.model.alive is not None:
            log_id = self.txn.partitions.get(partition, 0)
            decision = machine.part_aborted(self.txn, *self.model.alive, partition, log_id, self.inputs())
            self.does(decision, self.model.abort() if partition in (self.model.open or {}) else "ok")

    @rule(commit=st.booleans())
    def the_ledger_decides(self, commit):
        decision = machine.settle_prepared(self.txn, commit, self.inputs())
        assert WORDS[int(decision.error)].replace("refused", "state") == self.model.settle(commit)
        self.written(decision)

    @rule(commit=st.booleans(), version=st.sampled_from([0, 2]), retries=st.lists(st.booleans(), max_size=2))
    def the_living_one_ends_and_asks_again(self, commit, version, retries):
        pair = self.pair_of(LIVING)
        for again in (commit, *retries):
            self.ends_with(version, pair, again)

    @rule(who=PRODUCERS, commit=st.booleans(), version=st.sampled_from([0, 2]))
    def a_unit_is_lost_in_a_crash(self, who, commit, version):
        """Make decisions that are never written. They change nothing, but the producer ids given out are used up."""
        pair = self.pair_of(who)
        machine.end(self.txn, commit, *pair, version, self.inputs())
        init_producer_id(self.txn, Initialisation("id", TIMEOUT_MS), Limits(), self.inputs())
        self.model.fresh = self.fresh

    @invariant()
    def it_is_as_the_model_says(self):
        assert self.ended == self.model.decided
        if self.txn is None:
            assert self.model.alive is None
            return
        assert (self.txn.producer_id, self.txn.producer_epoch) == self.model.alive
        assert dict(self.txn.partitions) == (self.model.open or {})
        assert (self.txn.prepared is not None) == (self.model.prepared is not None)
        assert machine.owed_markers(self.txn) is None

    @invariant()
    def only_the_living_pair_may_write(self):
        for partition in (("a", 0), ("b", 1)) if self.model.alive else ():
            held = (self.model.open or {}).get(partition) if self.model.prepared is None else None
            verdict = machine.verify(self.txn, *self.model.alive, partition, held or 1)
            assert WORDS[int(verdict)] == ("ok" if held else "state")
        for pair in {*self.model.issued[-4:], *filter(None, self.known)} - {self.model.alive}:
            for partition, log_id in (self.model.open or {("a", 0): 1}).items():
                assert WORDS[int(machine.verify(self.txn, *pair, partition, log_id))] == "refused"

    @invariant()
    def pairs_only_go_forward(self):
        issued = self.model.issued
        assert len(set(issued)) == len(issued)
        assert issued == sorted(issued)


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=share_of(300), stateful_step_count=40)


@pytest.mark.long
def test_a_transaction_keeps_its_invariants_in_many_long_random_histories():
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(Life, settings=settings(max_examples=5000, stateful_step_count=60))
