"""Bugs that other coordinators had in their decisions, by the number of their report: the pure machine has none."""

import pytest
from fencepost.broker.transactions import records
from fencepost.broker.transactions.states import machine
from fencepost.broker.transactions.states.transaction import RETIRED_EPOCH, Status
from fencepost.protocol.errors import ErrorCode, KafkaError
from transaction_states import (
    ENDED,
    EPOCH,
    NEW,
    NEXT_PRODUCER,
    PRODUCER,
    Environment,
    add,
    begin,
    end,
    pair,
    transaction,
)

FENCED = ErrorCode.PRODUCER_FENCED
BAD_STATE = ErrorCode.INVALID_TXN_STATE


def test_kafka_18660_retried_ends_across_the_last_epoch_return_the_new_producer_id(environment):
    """In Kafka, the answer at the last epoch had a wrong producer id and epoch, so that the producer fenced itself."""
    txn, at = transaction(epoch=32761), (PRODUCER, 32761)
    seen = []
    for _ in range(10):
        opened = machine.add_partitions(txn, *at, NEW, 2, environment.inputs())
        assert opened.error is ErrorCode.NONE
        ended = machine.end(opened.states[-1], True, *at, 2, environment.inputs())
        assert ended.error is ErrorCode.NONE
        assert machine.end(ended.states[-1], True, *at, 2, environment.inputs())[3:5] == pair(ended)
        txn, at = ended.states[-1], pair(ended)
        seen.append(at)
    assert seen == [(PRODUCER, 32762 + n) for n in range(5)] + [(NEXT_PRODUCER, n) for n in range(5)]


def test_kafka_18464_an_empty_abort_after_a_commit_does_not_fence_its_own_producer(environment):
    committed = end(transaction(Status.ONGOING), True, environment)
    aborted = machine.end(committed.states[-1], False, *pair(committed), 2, environment.inputs())
    assert (aborted.error, pair(aborted), aborted.marker) == (ErrorCode.NONE, (PRODUCER, EPOCH + 2), None)
    assert machine.add_partitions(aborted.states[-1], *pair(aborted), NEW, 2, environment.inputs()).states


@pytest.mark.parametrize("status", [Status.EMPTY, *ENDED])
def test_kafka_18401_an_empty_transaction_can_be_aborted_but_not_committed(environment, status):
    assert end(transaction(status), True, environment) == (BAD_STATE, (), None, -1, -1, False)
    aborted = end(transaction(status), False, environment)
    assert (pair(aborted), aborted.states[-1].status) == ((PRODUCER, EPOCH + 1), Status.COMPLETE_ABORT)
    assert aborted.states[-1].start_ms == environment.now_ms


def test_kafka_19367_init_repeated_from_the_same_state_bumps_the_epoch_once(environment):
    """In Kafka, the epoch was incremented twice if an open transaction was aborted."""
    txn = transaction(Status.ONGOING)
    first, second = begin(txn, environment), begin(txn, environment)
    assert pair(first) == pair(second) == (PRODUCER, EPOCH + 1)
    assert txn == transaction(Status.ONGOING)


def test_kafka_18227_a_client_that_changes_to_tv2_or_back_begins_without_partitions(environment):
    """In Kafka, partitions could be added to the last transaction of the older protocol."""
    done = end(transaction(Status.ONGOING), True, environment, version=0).states[-1]
    opened = add(done, environment, version=2).states[-1]
    assert opened.partitions == NEW
    decision = end(opened, True, environment, version=2)
    assert decision.marker.partitions == NEW
    back = machine.add_partitions(decision.states[-1], *pair(decision), {("orders", 0): 11}, 0, environment.inputs())
    assert back.states[-1].partitions == {("orders", 0): 11}
    assert (
        machine.end(back.states[-1], True, *pair(decision), 0, environment.inputs()).marker.producer_epoch == EPOCH + 1
    )


@pytest.mark.parametrize("version", [0, 2])
def test_kafka_9600_an_end_with_an_epoch_that_was_never_issued_is_fenced(environment, version):
    """In Kafka, an epoch above the producer's was accepted."""
    for epoch in (EPOCH + 1, EPOCH + 2, 32767):
        assert end(transaction(Status.ONGOING), True, environment, epoch=epoch, version=version).error is FENCED


@pytest.mark.slow
def test_kafka_9666_epochs_are_not_used_up_while_the_log_cannot_be_written(environment):
    """In Kafka, each attempt used up an epoch. Here an unwritten decision changes nothing: after 40,000 of them the
    epoch is the same.
    """
    txn = transaction(epoch=32000)
    assert {pair(begin(txn, environment)) for _ in range(40_000)} == {(PRODUCER, 32001)}

    def no_id():
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    # At the last epoch a new producer id is needed. If that cannot be logged, the decision fails.
    worn = transaction(Status.ONGOING, 32766)
    for decide in (begin, lambda txn, given: end(txn, True, given, epoch=32766)):
        failing = Environment()
        failing.new_producer_id = no_id
        with pytest.raises(KafkaError) as refused:
            decide(worn, failing)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_kafka_14880_an_id_without_an_epoch_may_expire_or_begin_at_epoch_0(environment):
    """In Kafka, the expiry of such an id raised an exception."""
    never = transaction(epoch=-1)
    assert machine.may_expire(never, 1000, 10_000)
    assert pair(begin(never, environment)) == (PRODUCER, 0)
    assert pair(begin(never, environment, (3, 9))) == (PRODUCER, 0)


def test_kafka_7519_an_id_whose_expiry_could_not_be_written_stays_usable(environment):
    """In Kafka, such an id could be neither used nor removed. Here asking whether it may expire does not change it."""
    txn = transaction()
    assert machine.may_expire(txn, 0, 10**9)
    assert pair(begin(txn, environment)) == (PRODUCER, EPOCH + 1)


@pytest.mark.slow
def test_kafka_13099_exactly_the_ids_idle_for_the_expiration_time_may_expire():
    """In Kafka, ids that expired together did not fit into one batch of tombstones, so that all of them stayed."""
    ids = [transaction(Status.COMPLETE_COMMIT, updated_age_ms=n) for n in range(100_000)]
    assert sum(machine.may_expire(txn, 1000, 51_000) for txn in ids) == 50_001


def test_kafka_19999_a_prepared_state_read_back_from_the_log_gets_the_same_marker(environment):
    """In Kafka, the partition refused the marker if it had it already, so that the commit never completed. Here the
    state in the log gives the same marker again, which partitions accept (test_producers_history.py).
    """
    prepare = end(transaction(Status.ONGOING), True, environment).states[0]
    found = records.read(records.key("id"), records.value(prepare))[1]
    assert machine.finish(found, environment.inputs()).marker == machine.finish(prepare, environment.inputs()).marker


def test_kafka_20090_an_id_aborted_at_the_last_epoch_gets_marker_32767_and_goes_on(environment):
    """In Kafka, the abort of a timed-out transaction at the last epoch never completed."""
    environment.passes(10**6)
    for epoch in (32766, 32767):
        decision = machine.expire(transaction(Status.ONGOING, epoch), environment.inputs())
        last = decision.states[-1]
        assert (last.status, last.producer_epoch) == (Status.COMPLETE_ABORT, 0)
        assert last.producer_id != PRODUCER
        assert decision.marker.producer_epoch == RETIRED_EPOCH
    stuck = transaction(Status.PREPARE_ABORT, 32767)
    done = machine.finish(stuck, environment.inputs()).states[-1]
    assert begin(done, environment).error is ErrorCode.NONE


def test_kafka_20310_the_previous_and_next_producer_id_are_read_back_from_the_log(environment):
    """In Kafka, they were not in the record, and were lost with the coordinator's memory."""
    prepare, complete = end(transaction(Status.ONGOING, 32766), True, environment, epoch=32766).states
    for state in (prepare, complete):
        assert records.read(records.key("id"), records.value(state)) == ("id", state)
    found = records.read(records.key("id"), records.value(complete))[1]
    assert pair(end(found, True, environment, epoch=32766)) == (NEXT_PRODUCER, 0)


def test_kafka_6119_the_producer_of_a_timed_out_transaction_is_fenced(environment):
    """In Kafka, the timeout did not increment the epoch, so the producer continued."""
    environment.passes(10**6)
    after = machine.expire(transaction(Status.ONGOING), environment.inputs()).states[-1]
    assert machine.verify(after, PRODUCER, EPOCH, ("orders", 0), 11) is FENCED
    assert add(after, environment).error is FENCED


def test_kafka_17754_with_tv2_a_late_end_of_one_transaction_does_not_end_the_next(environment):
    """In Kafka, both transactions had the same epoch: the late EndTxn ended the next one."""
    done = end(transaction(Status.ONGOING), True, environment)
    opened = machine.add_partitions(done.states[-1], *pair(done), NEW, 2, environment.inputs()).states[-1]
    for commit in (True, False):
        assert end(opened, commit, environment).error is FENCED


def test_kafka_18575_with_tv2_the_next_transaction_begins_at_once_after_the_end(environment):
    done = end(transaction(Status.ONGOING), True, environment)
    assert machine.add_partitions(done.states[-1], *pair(done), NEW, 2, environment.inputs()).error is ErrorCode.NONE


def test_redpanda_51f42c1_an_ended_transaction_cannot_get_the_other_outcome(environment):
    for commit in (True, False):
        done = end(transaction(Status.ONGOING), commit, environment, version=0).states[-1]
        assert end(done, commit, environment, version=0).error is ErrorCode.NONE
        assert end(done, not commit, environment, version=0).error is BAD_STATE


def test_redpanda_1a301657_partitions_read_back_from_the_log_are_committed_too(environment):
    """In Redpanda, added partitions were in memory only: the commit after a restart left them out."""
    first = add(transaction(), environment).states[-1]
    found = records.read(records.key("id"), records.value(first))[1]
    second = add(found, environment, {("__consumer_offsets", 3): 13}).states[-1]
    assert set(end(second, True, environment).marker.partitions) == {("payments", 0), ("__consumer_offsets", 3)}


def test_redpanda_30003_a_transaction_without_data_is_aborted_at_its_timeout(environment):
    """In Redpanda, a snapshot left such a transaction out: readers waited for its end for ever."""
    opened = add(transaction(), environment).states[-1]
    found = records.read(records.key("id"), records.value(opened))[1]
    environment.passes(10**6)
    assert machine.expire(found, environment.inputs()).marker.partitions == NEW
