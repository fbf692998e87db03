"""max.producer.ids bounds what partitions remember, and never turns an honest producer away for good."""

from types import SimpleNamespace

import pytest
from broker_lives import end, small, unplug
from fencepost.broker.topics.producer_limit import ProducerLimit
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.topics import DeleteTopicsRequest
from fencepost.protocol.messages.transactions import InitProducerIdRequest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from long_runs import share_of
from one_partition import OnePartition
from produce_requests import answers, batch, create, idempotent, one, produce
from simulated_broker import SimulatedBroker
from txn_client import begun

OK, REFUSED, UNKNOWN = ErrorCode.NONE, ErrorCode.POLICY_VIOLATION, ErrorCode.UNKNOWN_PRODUCER_ID
FAST, GENERAL = 11, 3  # versions of Produce: the first takes the fast path, the other the general path
BOTH = pytest.mark.parametrize("version", [FAST, GENERAL])


def begin(disk=None, **settings):
    return SimulatedBroker(small(**settings), disk=disk or SimulatedDisk(history=False))


def new_producer(broker):
    """Return a new producer id."""
    return broker.ask(InitProducerIdRequest(transaction_timeout_ms=0)).producer_id


def write(broker, producer_id, sequence=0, topic="t", partition=0, version=FAST):
    request = produce(topic, idempotent(sequence, producer_id=producer_id), partition=partition)
    return answers(broker.ask(request, version))[0][0]


def remembered(broker):
    """Return (topic, partition, producer id) of every producer that partitions remember."""
    return {
        (log.topic, log.partition, each.producer_id)
        for log in broker.broker.store.logs.values()
        for each in log.producers.describe()
    }


@pytest.mark.slow
@BOTH
def test_a_new_producer_id_at_max_producer_ids_evicts_the_longest_idle_one(version):
    with begin(max_producer_ids=4) as broker:
        broker.ask(create("t", 2))
        ids = [new_producer(broker) for _ in range(8)]
        for number, producer_id in enumerate(ids):
            broker.wait(1)
            assert write(broker, producer_id, 0, "t", number % 2, version) == OK
            assert write(broker, ids[0], number + 1, "t", 0, version) == OK, "the first is never silent for long"
        assert remembered(broker) == {("t", 0, ids[0]), ("t", 1, ids[5]), ("t", 0, ids[6]), ("t", 1, ids[7])}


@pytest.mark.slow
def test_a_sink_that_uses_new_transactional_ids_is_never_refused():
    """Each id is used for one transaction and leaves an entry in every partition that it wrote to; such idle entries
    are evicted.
    """
    with begin(max_producer_ids=10) as broker:
        broker.ask(create("t", 4))
        for number in range(30):
            txn = begun(broker, 2, f"checkpoint-{number}")
            txn.write("t", b"x", 0, 1, 2, 3)
            assert txn.commit() == OK
            assert len(remembered(broker)) <= 10


def test_producers_with_an_open_transaction_are_never_evicted_only_idle_ones():
    with begin(max_producer_ids=3) as broker:
        broker.ask(create("t", 2))
        txn = begun(broker, 2, "x")
        txn.write("t", b"x", 0, 1)
        broker.wait(1)
        for _ in range(5):
            assert write(broker, new_producer(broker)) == OK
        assert {("t", 0, txn.producer_id), ("t", 1, txn.producer_id)} < remembered(broker)
        assert txn.commit() == OK


def test_a_new_producer_gets_policy_violation_while_all_others_are_in_transactions():
    """max.producer.ids limits how many producers a broker remembers; one in an open transaction cannot be evicted."""
    with begin(max_producer_ids=2) as broker:
        broker.ask(create("t", 2))
        txn = begun(broker, 2, "x")
        txn.write("t", b"x", 0, 1)
        newcomer = new_producer(broker)
        refused = one(broker.ask(produce("t", idempotent(0, producer_id=newcomer))))
        assert refused.error_code == REFUSED
        assert "max.producer.ids" in refused.error_message
        assert write(broker, newcomer, 1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, (
            "a batch after the refused one is not accepted before it"
        )
        assert answers(broker.ask(produce("t", batch()))) == [(OK, 1)], "without an id there is nothing to remember"
        assert txn.commit() == OK
        assert write(broker, newcomer) == OK


def test_a_restart_with_a_lower_max_producer_ids_evicts_the_longest_idle_ones():
    broker = begin(SimulatedDisk(), max_producer_ids=10)
    broker.ask(create("t"))
    ids = [new_producer(broker) for _ in range(6)]
    for producer_id in ids:
        broker.wait(1)
        write(broker, producer_id)
    later = begin(unplug(broker), max_producer_ids=3)
    assert remembered(later) == {("t", 0, each) for each in ids[3:]}
    assert write(later, new_producer(later)) == OK
    assert write(later, ids[5], 1) == OK
    assert len(remembered(later)) == 3
    end(later)


def test_producers_that_wrote_no_records_do_not_count_towards_max_producer_ids():
    with begin(max_producer_ids=3) as broker:
        broker.ask(create("t", 8))
        for number in range(5):
            txn = begun(broker, 1, f"x{number}")
            assert txn.add("t", *range(8)) == [OK] * 8
            assert txn.abort() == OK
        assert remembered(broker) == set()


def test_at_max_producer_ids_an_id_never_assigned_is_refused_and_evicts_no_other():
    with begin(max_producer_ids=2) as broker:
        broker.ask(create("t"))
        ids = [new_producer(broker) for _ in range(2)]
        assert [write(broker, each) for each in ids] == [OK, OK]
        refused = one(broker.ask(produce("t", idempotent(0, producer_id=ids[1] + 1))))
        assert (refused.error_code, "max.producer.ids" in refused.error_message) == (UNKNOWN, True)
        assert remembered(broker) == {("t", 0, each) for each in ids}
        assert write(broker, new_producer(broker)) == OK, "the same id, given out by now"


def test_below_max_producer_ids_an_id_that_was_never_assigned_is_accepted():
    with begin(max_producer_ids=2) as broker:
        broker.ask(create("t"))
        assert write(broker, 1 << 40, 17) == OK


def test_deleted_and_expired_producer_entries_make_room_without_an_eviction():
    with begin(
        max_producer_ids=4, producer_id_expiration_ms=10_000, producer_id_expiration_check_interval_ms=1_000
    ) as broker:
        for topic in ("t", "gone", "silent"):
            broker.ask(create(topic))
        write(broker, new_producer(broker), topic="silent")
        broker.wait(9)
        write(broker, new_producer(broker), topic="gone")
        kept = [new_producer(broker) for _ in range(2)]
        assert [write(broker, each) for each in kept] == [OK, OK]
        broker.wait(3)
        broker.ask(DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name="gone")], timeout_ms=1000))
        kept += [new_producer(broker) for _ in range(2)]
        assert [write(broker, each) for each in kept[2:]] == [OK, OK]
        assert remembered(broker) == {("t", 0, each) for each in kept}
        assert broker.broker.producer_limit.evicted == 0


# ---- against a reference that sorts everything -----------------------------------------------------------------------

LOGS = 3
producers = st.integers(0, 9)
logs = st.integers(0, LOGS - 1)


class LimitMachine(RuleBasedStateMachine):
    """Compares a ProducerLimit with a reference, `heard`: all producers in the order in which they were last heard."""

    @initialize(most=st.integers(1, 8))
    def begin(self, most):
        self.most = most
        self.age_ms = 0
        self.next_log_id = 0
        self.store = SimpleNamespace(logs={}, drops=0)
        for _ in range(LOGS):
            self.make_log()
        self.limit = ProducerLimit(self.store, lambda: self.most)
        self.heard: dict[tuple[int, int], int] = {}  # (log id, producer) → when, the longest silent first
        self.open: set[tuple[int, int]] = set()
        self.moved: set[int] = set()

    def make_log(self):
        partition = OnePartition()
        log = SimpleNamespace(log_id=self.next_log_id, producers=partition.states, partition=partition)
        self.store.logs[self.next_log_id] = log
        self.next_log_id += 1

    def log(self, number):
        return list(self.store.logs.values())[number]

    def hear(self, log, who):
        self.age_ms += 1
        self.heard.pop((log.log_id, who), None)
        self.heard[log.log_id, who] = self.age_ms
        self.moved.add(log.log_id)
        log.partition.age_ms = self.age_ms

    @rule(number=logs, who=producers, transactional=st.booleans())
    def a_batch_comes(self, number, who, transactional):
        log = self.log(number)
        key = log.log_id, who
        known = {each.producer_id: each.last_sequence for each in log.producers.describe()}
        self.hear(log, who)
        send = log.partition.send_in_transaction if transactional or key in self.open else log.partition.send
        assert not isinstance(send(who, 0, known.get(who, -1) + 1), ErrorCode)
        if transactional:
            self.open.add(key)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def a_transaction_ends(self, data):
        key = data.draw(st.sampled_from(sorted(self.open)))
        log = self.store.logs[key[0]]
        self.hear(log, key[1])
        log.partition.end(key[1], 0)
        self.open.discard(key)

    @rule(number=logs)
    def a_log_is_deleted_and_another_made(self, number):
        log_id = self.log(number).log_id
        del self.store.logs[log_id]
        self.store.drops += 1
        self.heard = {key: since for key, since in self.heard.items() if key[0] != log_id}
        self.open = {key for key in self.open if key[0] != log_id}
        self.make_log()

    @rule(number=logs, silence=st.integers(0, 5))
    def the_silent_expire(self, number, silence):
        log = self.log(number)
        log.producers.expire(self.age_ms, silence)
        for key, since in list(self.heard.items()):
            if key[0] == log.log_id and key not in self.open and self.age_ms - since >= silence:
                del self.heard[key]
        self.limit.look([log])
        self.check_evictions(exact=False)

    @rule(most=st.integers(1, 8))
    def the_setting_changes(self, most):
        self.most = most

    @rule()
    def a_round_is_released(self):
        moved, self.moved = self.moved, set()
        self.limit.look([self.store.logs[log_id] for log_id in moved if log_id in self.store.logs])
        self.check_evictions(exact=True)
        idle = [key for key in self.heard if key not in self.open]
        assert self.limit.count == len(self.heard)
        assert self.limit.count <= self.most or not idle
        assert self.limit.full == (len(self.heard) >= self.most)
        assert self.limit.may_evict == bool(idle)

    def check_evictions(self, *, exact):
        """Check the evictions since the last check, and remove the evicted producers from the reference (`heard`).

        exact: after a round of the journal. As many producers as are above the limit must be evicted, if that many are
        idle: those silent longest. Between rounds the limit's count is not exact: it must have evicted only idle ones.
        """
        known = {
            (log.log_id, each.producer_id) for log in self.store.logs.values() for each in log.producers.describe()
        }
        if exact:
            idle = [key for key in self.heard if key not in self.open]
            for key in idle[: max(0, len(self.heard) - self.most)]:
                del self.heard[key]
            assert known == set(self.heard)
        else:
            gone = [key for key in self.heard if key not in known]
            assert not self.open.intersection(gone)
            for key in gone:
                del self.heard[key]

    @invariant()
    def the_open_are_known(self):
        if hasattr(self, "open"):
            for log_id, who in self.open:
                assert who in self.store.logs[log_id].producers


@pytest.mark.slow
class TestLimit(LimitMachine.TestCase):
    settings = settings(max_examples=share_of(60), stateful_step_count=60, deadline=None)
