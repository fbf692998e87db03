"""What a decision carries beside its error: pairs, markers, times."""

import pytest
from fencepost.broker.transactions import records
from fencepost.broker.transactions.states import machine
from fencepost.broker.transactions.states.init_producer_id import Initialisation, Limits, init_producer_id
from fencepost.broker.transactions.states.transaction import (
    NO_ID,
    RETIRED_EPOCH,
    TWO_PHASE_TIMEOUT_MS,
    MarkerOrder,
    Prepared,
    Status,
)
from fencepost.protocol.errors import ErrorCode
from transaction_states import (
    ENDED,
    EPOCH,
    NEW,
    NEXT_PRODUCER,
    PARTITIONS,
    PRODUCER,
    add,
    begin,
    end,
    pair,
    prepared,
    summary,
    transaction,
)

FENCED = ErrorCode.PRODUCER_FENCED
BAD_STATE = ErrorCode.INVALID_TXN_STATE
UNKNOWN = ErrorCode.INVALID_PRODUCER_ID_MAPPING


# InitProducerId ------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S-60", "S-14")
def test_the_first_producer_of_an_id_gets_a_new_producer_id_at_epoch_0(environment):
    decision = begin(None, environment)
    assert pair(decision) == (NEXT_PRODUCER, 0)
    (state,) = decision.states
    assert (state.status, state.timeout_ms, state.updated_age_ms) == (Status.EMPTY, 60_000, environment.age_ms)


@pytest.mark.requirement("S-61")
def test_a_second_init_producer_id_keeps_the_producer_id_and_increments_the_epoch(environment):
    assert pair(begin(transaction(), environment)) == (PRODUCER, EPOCH + 1)
    assert environment.ids_given == 0


@pytest.mark.requirement("S-63")
def test_init_producer_id_aborts_the_open_transaction_in_the_same_journal_unit(environment):
    decision = begin(transaction(Status.ONGOING), environment, timeout_ms=30_000)
    assert [state.status for state in decision.states] == [Status.PREPARE_ABORT, Status.COMPLETE_ABORT, Status.EMPTY]
    assert decision.marker == MarkerOrder(False, PRODUCER, EPOCH + 1, PARTITIONS)
    assert pair(decision) == (PRODUCER, EPOCH + 1)
    last = decision.states[-1]
    assert (last.timeout_ms, last.partitions, last.start_ms, last.last_producer_epoch) == (30_000, {}, -1, -1)


@pytest.mark.requirement("S-71", "S-67")
@pytest.mark.parametrize("status", [Status.PREPARE_COMMIT, Status.PREPARE_ABORT])
def test_init_producer_id_during_an_unfinished_end_gets_concurrent_transactions(environment, status):
    assert begin(transaction(status), environment) == (ErrorCode.CONCURRENT_TRANSACTIONS, (), None, -1, -1, False)


@pytest.mark.requirement("S-109")
@pytest.mark.parametrize("timeout_ms", [900_001, 0, -1])
def test_a_transaction_timeout_above_the_limit_or_not_positive_is_refused(environment, timeout_ms):
    assert begin(None, environment, timeout_ms=timeout_ms).error is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert begin(None, environment, timeout_ms=900_000).error is ErrorCode.NONE
    assert begin(None, environment, timeout_ms=1).error is ErrorCode.NONE


def test_init_with_an_empty_id_or_only_producer_id_or_epoch_is_an_invalid_request(environment):
    for request in (Initialisation("", 1000), Initialisation("id", 1000, 5, -1), Initialisation("id", 1000, -1, 5)):
        decision = init_producer_id(None, request, Limits(), environment.inputs())
        assert decision == (ErrorCode.INVALID_REQUEST, (), None, -1, -1, False)
    assert environment.ids_given == 0


def test_a_producer_of_an_expired_id_gets_a_new_producer_id(environment):
    """The producer comes back after more than transactional.id.expiration.ms, with its former producer id and epoch."""
    assert pair(begin(None, environment, (PRODUCER, EPOCH))) == (NEXT_PRODUCER, 0)


def test_init_producer_id_repeated_after_a_lost_answer_does_not_bump_the_epoch_again(environment):
    """KIP-360."""
    bumped = begin(transaction(), environment, (PRODUCER, EPOCH)).states[-1]
    assert (bumped.producer_epoch, bumped.last_producer_epoch) == (EPOCH + 1, EPOCH)
    again = begin(bumped, environment, (PRODUCER, EPOCH))
    assert pair(again) == (PRODUCER, EPOCH + 1)
    assert begin(again.states[-1], environment, (PRODUCER, EPOCH - 1)).error is FENCED


def test_init_producer_id_that_gave_a_new_producer_id_gives_it_again_when_repeated(environment):
    worn = transaction(epoch=32766)
    rotated = begin(worn, environment, (PRODUCER, 32766))
    assert pair(rotated) == (NEXT_PRODUCER, 0)
    again = begin(rotated.states[-1], environment, (PRODUCER, 32766))
    assert pair(again) == (NEXT_PRODUCER, 0)
    assert environment.ids_given == 1
    assert begin(rotated.states[-1], environment, (NEXT_PRODUCER, 32766)).error is FENCED


def test_a_producer_replaced_by_another_is_fenced_when_it_repeats_init(environment):
    bumped = begin(transaction(), environment, (PRODUCER, EPOCH)).states[-1]
    taken_over = begin(bumped, environment).states[-1]
    assert begin(taken_over, environment, (PRODUCER, EPOCH)).error is FENCED
    assert begin(taken_over, environment, (PRODUCER, EPOCH + 1)).error is FENCED


@pytest.mark.requirement("S-62")
def test_init_producer_id_by_a_fenced_producer_aborts_no_transaction_of_the_new_one(environment):
    """Kafka first aborts the open transaction, and refuses the request when it is retried."""
    decision = begin(transaction(Status.ONGOING), environment, (PRODUCER, EPOCH - 1))
    assert decision == (FENCED, (), None, -1, -1, False)
    worn = transaction(Status.ONGOING, 0, previous_producer_id=3, last_producer_epoch=32766)
    assert begin(worn, environment, (3, 32766)).error is FENCED


def test_a_transaction_with_two_phase_commit_never_times_out(environment):
    """KIP-939: in the log, the timeout 2**31 - 1 means two-phase commit."""
    allowed = Limits(two_phase_commit=True)
    state = begin(None, environment, enable_2pc=True, timeout_ms=-1, limits=allowed).states[-1]
    assert state.enable_2pc
    assert state.timeout_ms == TWO_PHASE_TIMEOUT_MS
    opened = machine.add_partitions(state, NEXT_PRODUCER, 0, NEW, 0, environment.inputs()).states[-1]
    assert machine.deadline_age_ms(opened) is None
    environment.passes(10**9)
    assert machine.expire(opened, environment.inputs()).states == ()


def test_two_phase_commit_needs_the_brokers_consent_and_ends_with_the_next_init(environment):
    """Keeping a prepared transaction over InitProducerId, a part of KIP-939, is not supported."""
    refused = begin(None, environment, enable_2pc=True)
    assert refused.error is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    allowed = Limits(two_phase_commit=True)
    kept = begin(None, environment, keep_prepared_txn=True, limits=allowed)
    assert kept.error is ErrorCode.UNSUPPORTED_VERSION
    state = begin(None, environment, enable_2pc=True, limits=allowed).states[-1]
    assert not begin(state, environment, limits=allowed).states[-1].enable_2pc


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [0, 2])
def test_an_id_with_two_phase_commit_keeps_it_after_a_commit_or_abort(environment, version, commit):
    allowed = Limits(two_phase_commit=True)
    state = begin(None, environment, enable_2pc=True, timeout_ms=-1, limits=allowed).states[-1]
    opened = machine.add_partitions(state, NEXT_PRODUCER, 0, NEW, version, environment.inputs()).states[-1]
    ended = machine.end(opened, commit, NEXT_PRODUCER, 0, version, environment.inputs())
    assert [each.enable_2pc for each in ended.states] == [True, True]


def test_a_timeout_of_2_to_the_31_minus_1_ms_without_two_phase_commit_does_elapse(environment):
    allowed = Limits(max_timeout_ms=TWO_PHASE_TIMEOUT_MS)
    state = begin(None, environment, timeout_ms=TWO_PHASE_TIMEOUT_MS, limits=allowed).states[-1]
    opened = machine.add_partitions(state, NEXT_PRODUCER, 0, NEW, 0, environment.inputs()).states[-1]
    assert machine.deadline_age_ms(opened) == opened.started_age_ms + TWO_PHASE_TIMEOUT_MS


# Adding --------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S-76", "S-77", "C-12")
def test_the_first_added_partition_begins_the_transaction_and_its_timeout(environment):
    state = add(transaction(), environment).states[-1]
    assert (state.status, state.partitions) == (Status.ONGOING, NEW)
    assert (state.start_ms, state.started_age_ms) == (environment.now_ms, environment.age_ms)
    environment.passes(500)
    more = add(state, environment, {("orders", 1): 12}).states[-1]
    assert more.partitions == {**NEW, ("orders", 1): 12}
    assert (more.start_ms, more.started_age_ms) == (state.start_ms, state.started_age_ms)
    assert (more.last_update_ms, more.updated_age_ms) == (environment.now_ms, environment.age_ms)


def test_adding_partitions_again_succeeds_and_logs_nothing(environment):
    txn = transaction(Status.ONGOING)
    assert add(txn, environment, {("orders", 0): 11}) == (ErrorCode.NONE, (), None, -1, -1, False)
    # Nor does adding no partition at all, which begins no transaction.
    assert machine.add_partitions(transaction(), PRODUCER, EPOCH, {}, 2, environment.inputs()).states == ()


def test_a_topic_recreated_inside_a_transaction_counts_as_another_topic(environment):
    txn = add(transaction(Status.ONGOING), environment, {("orders", 0): 99}).states[-1]
    assert txn.partitions["orders", 0] == 99
    assert machine.verify(transaction(Status.ONGOING), PRODUCER, EPOCH, ("orders", 0), 99) is BAD_STATE


def test_adding_partitions_does_not_modify_the_earlier_state_object(environment):
    txn = transaction(Status.ONGOING)
    add(txn, environment)
    assert txn.partitions == PARTITIONS


def test_a_transaction_never_grows_so_large_that_one_unit_cannot_end_it(environment):
    """A unit has room for 50,000 parts. With more, no end could be written, and readers would wait for ever."""
    many = {("orders", index): 100 + index for index in range(machine.MAX_PARTITIONS)}
    full = add(transaction(), environment, many).states[-1]
    refused = add(full, environment, {("payments", 0): 21})
    assert (refused.error, refused.states) == (ErrorCode.POLICY_VIOLATION, ())
    assert add(full, environment, {("orders", 5): 105}).error is ErrorCode.NONE
    assert len(end(full, True, environment).marker.partitions) == machine.MAX_PARTITIONS


# Ending --------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S-65", "S-88", "S-72")
@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_ending_a_transaction_logs_prepare_and_complete_and_writes_markers_at_once(environment, commit, version):
    decision = end(transaction(Status.ONGOING), commit, environment, version=version)
    bumped = EPOCH + (version == 2)
    prepare, complete = decision.states
    assert prepare.status is (Status.PREPARE_COMMIT if commit else Status.PREPARE_ABORT)
    assert (prepare.partitions, prepare.producer_epoch) == (PARTITIONS, bumped)
    assert complete.status is (Status.COMPLETE_COMMIT if commit else Status.COMPLETE_ABORT)
    assert (complete.partitions, complete.producer_epoch, complete.start_ms) == ({}, bumped, prepare.start_ms)
    assert decision.marker == MarkerOrder(commit, PRODUCER, bumped, PARTITIONS)
    assert pair(decision) == ((PRODUCER, bumped) if version == 2 else (-1, -1))
    assert {state.client_version for state in decision.states} == {version}


@pytest.mark.requirement("S-71")
@pytest.mark.parametrize("commit", [True, False])
def test_end_txn_repeated_gets_its_first_answer_and_the_other_outcome_is_refused(environment, commit):
    for version in (0, 2):
        txn = end(transaction(Status.ONGOING), commit, environment, version=version).states[-1]
        again = end(txn, commit, environment, version=version)
        assert again == (ErrorCode.NONE, (), None, *((PRODUCER, EPOCH + 1) if version else (-1, -1)), False)
        assert end(txn, not commit, environment, version=version).error is BAD_STATE


@pytest.mark.parametrize("commit", [True, False])
def test_with_tv2_the_epoch_after_32766_is_epoch_0_of_a_new_producer_id(environment, commit):
    """A retry of the end gets the same pair; the other outcome, or an older epoch, is refused."""
    txn = transaction(Status.ONGOING, 32766)
    decision = end(txn, commit, environment, epoch=32766)
    prepare, complete = decision.states
    assert (prepare.producer_id, prepare.producer_epoch, prepare.next_producer_id) == (PRODUCER, 32767, NEXT_PRODUCER)
    assert decision.marker.producer_epoch == RETIRED_EPOCH
    assert pair(decision) == (complete.producer_id, complete.producer_epoch) == (NEXT_PRODUCER, 0)
    assert (complete.previous_producer_id, complete.last_producer_epoch) == (PRODUCER, 32766)
    again = end(complete, commit, environment, epoch=32766)
    assert (again.error, pair(again)) == (ErrorCode.NONE, (NEXT_PRODUCER, 0))
    assert end(complete, not commit, environment, epoch=32766).error is BAD_STATE
    assert end(complete, commit, environment, epoch=32765).error is UNKNOWN
    opened = machine.add_partitions(complete, NEXT_PRODUCER, 0, NEW, 2, environment.inputs()).states[-1]
    assert end(opened, commit, environment, epoch=32766).error is FENCED


def test_with_tv1_an_end_at_the_last_epoch_keeps_the_producer_id_until_the_next_init(environment):
    txn = end(transaction(Status.ONGOING, 32766), True, environment, version=0, epoch=32766).states[-1]
    assert (txn.producer_id, txn.producer_epoch) == (PRODUCER, 32766)
    assert pair(begin(txn, environment)) == (NEXT_PRODUCER, 0)


@pytest.mark.requirement("S-110", "S-111")
def test_a_transaction_is_aborted_when_it_is_older_than_its_timeout_and_not_before(environment):
    txn = transaction(Status.ONGOING)
    environment.age_ms = machine.deadline_age_ms(txn)
    assert machine.expire(txn, environment.inputs()).states == ()
    environment.passes(1)
    decision = machine.expire(txn, environment.inputs())
    assert summary(decision) == "CompleteAbort@6 abort@6"
    after = decision.states[-1]
    for version in (0, 2):
        # With TV2 the commit counts as a retry of the end, which was an abort.
        assert end(after, True, environment, version=version).error is (BAD_STATE if version else FENCED)
    assert add(after, environment).error is FENCED


def test_a_jump_of_the_wall_clock_ends_no_transaction(environment):
    environment.now_ms += 10**9
    assert machine.expire(transaction(Status.ONGOING), environment.inputs()).states == ()


def test_a_producer_that_timed_out_may_go_on_with_its_next_epoch(environment):
    """KIP-588."""
    environment.passes(10**6)
    after = machine.expire(transaction(Status.ONGOING), environment.inputs()).states[-1]
    assert pair(begin(after, environment, (PRODUCER, EPOCH))) == (PRODUCER, EPOCH + 1)


@pytest.mark.parametrize("path", ["init", "end", "timeout", "forced", "decided"])
def test_any_end_at_epoch_32766_leads_to_a_new_producer_id_at_epoch_0(environment, path):
    txn = transaction(Status.ONGOING, 32766)
    environment.passes(10**6)
    decision = {
        "init": lambda: begin(txn, environment),
        "end": lambda: end(txn, False, environment, epoch=32766),
        "timeout": lambda: machine.expire(txn, environment.inputs()),
        "forced": lambda: machine.force_abort(txn, environment.inputs()),
        "decided": lambda: machine.settle_prepared(prepared(32766), False, environment.inputs()),
    }[path]()
    assert decision.marker.producer_epoch == RETIRED_EPOCH
    last = decision.states[-1]
    assert (last.producer_id, last.producer_epoch, last.previous_producer_id) == (NEXT_PRODUCER, 0, PRODUCER)
    assert last.next_producer_id == NO_ID
    assert environment.ids_given == 1


@pytest.mark.requirement("S-113")
def test_only_ids_without_open_or_prepared_transaction_expire_after_long_disuse():
    idle = {status for status in Status if machine.may_expire(transaction(status), 1000, 5000)}
    assert idle == {Status.EMPTY, *ENDED, Status.DEAD}
    # transaction() was last used at age 4000. Unused ids expire after 1000 ms here, so not yet at age 4999.
    assert [machine.may_expire(transaction(), 1000, age_ms) for age_ms in (4999, 8000, 10**9)] == [False, True, True]
    assert not machine.may_expire(prepared(), 0, 10**9)


# What an admin does --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "error"), [(0, FENCED), (2, BAD_STATE)])
def test_an_admins_abort_of_one_partition_aborts_the_rest_and_a_commit_is_refused(environment, version, error):
    decision = part_aborted(transaction(Status.ONGOING), environment)
    assert decision.marker == MarkerOrder(False, PRODUCER, EPOCH + 1, PARTITIONS)
    assert end(decision.states[-1], True, environment, version=version).error is error


def test_an_admins_marker_for_another_transaction_changes_no_coordinator_state(environment):
    for spoken_of in [
        {"partition": ("payments", 0)},
        {"producer": 9},
        {"epoch": EPOCH - 1},
        {"log_id": 99},  # of a topic made again
    ]:
        assert part_aborted(transaction(Status.ONGOING), environment, **spoken_of).states == ()
    assert part_aborted(None, environment).states == ()
    assert part_aborted(transaction(), environment).states == ()


def test_an_admins_marker_with_a_future_epoch_aborts_the_whole_transaction(environment):
    """Such a marker fences the partition, so what the producer writes to other partitions must not be committed."""
    decision = part_aborted(transaction(Status.ONGOING), environment, epoch=EPOCH + 3)
    assert decision.marker == MarkerOrder(False, PRODUCER, EPOCH + 1, PARTITIONS)


def part_aborted(
    txn, environment, producer=PRODUCER, epoch=EPOCH, partition=("orders", 0), log_id=PARTITIONS["orders", 0]
):
    return machine.part_aborted(txn, producer, epoch, partition, log_id, environment.inputs())


# Prepared ------------------------------------------------------------------------------------------------------------


def test_a_prepared_transaction_times_out_by_the_timeout_of_its_prepare_request(environment):
    asked = Prepared("sink", 3, 5_000, since_age_ms=0)
    txn = machine.prepare(transaction(Status.ONGOING), PRODUCER, EPOCH, asked, 2, environment.inputs()).states[-1]
    assert txn.status is Status.ONGOING
    assert machine.deadline_age_ms(txn) == environment.age_ms + 5_000
    never = txn._replace(prepared=txn.prepared._replace(timeout_ms=-1))
    assert machine.deadline_age_ms(never) is None


def test_repeating_a_prepare_succeeds_and_a_different_one_is_refused(environment):
    txn = prepared()
    same = txn.prepared._replace(since_age_ms=0)
    again = machine.prepare(txn, PRODUCER, EPOCH, same, None, environment.inputs())
    assert again == (ErrorCode.NONE, (), None, -1, -1, False)
    keys, numbers, timeouts_ms = ("sinj", "sinl"), (2, 4), (1, 2**40)  # neighbours of "sink" and 3
    others = [*({"ledger_key": key} for key in keys), *({"number": number} for number in numbers)]
    for other in (*others, *({"timeout_ms": timeout_ms} for timeout_ms in timeouts_ms), {"hold": True}):
        asked = same._replace(**other)
        decision = machine.prepare(txn, PRODUCER, EPOCH, asked, None, environment.inputs())
        assert decision == (BAD_STATE, (), None, -1, -1, False)


@pytest.mark.parametrize("producer", [PRODUCER - 1, PRODUCER + 1])
def test_requests_with_another_producer_id_are_refused(environment, producer):
    txn = transaction(Status.ONGOING)
    assert machine.add_partitions(txn, producer, EPOCH, NEW, 0, environment.inputs()).error is UNKNOWN
    assert machine.verify(txn, producer, EPOCH, ("orders", 0), 11) is UNKNOWN
    assert machine.end(txn, True, producer, EPOCH, 0, environment.inputs()).error is UNKNOWN
    asked = Prepared("sink", 3, 5_000, 0)
    assert machine.prepare(txn, producer, EPOCH, asked, None, environment.inputs()).error is UNKNOWN


def test_a_prepare_after_the_decision_is_refused_and_the_transaction_aborted(environment):
    for decided in (3, 4):
        asked = Prepared("sink", 3, 5_000, 0)
        decision = machine.prepare(transaction(Status.ONGOING), PRODUCER, EPOCH, asked, decided, environment.inputs())
        assert decision.error is BAD_STATE
        assert decision.states[-1].status is Status.COMPLETE_ABORT
        assert decision.marker == MarkerOrder(False, PRODUCER, EPOCH + 1, PARTITIONS)


def test_a_transaction_without_partitions_cannot_be_prepared_and_ends_without_marker(environment):
    txn = transaction(Status.ONGOING, partitions={})
    decision = machine.prepare(txn, PRODUCER, EPOCH, Prepared("sink", 3, 5_000, 0), None, environment.inputs())
    assert decision == (BAD_STATE, (), None, -1, -1, False)
    assert end(txn, True, environment).marker is None


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [0, 2])
def test_a_prepared_transaction_always_ends_with_the_next_epoch(environment, commit, version):
    assert end(prepared(), commit, environment, version=version).states[-1].producer_epoch == EPOCH + 1
    state = machine.settle_prepared(prepared(), commit, environment.inputs()).states[-1]
    assert (state.producer_epoch, state.prepared) == (EPOCH + 1, None)


# Ephemeral ids -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("txn", [transaction(Status.ONGOING), prepared()], ids=["ongoing", "prepared"])
def test_an_ephemeral_id_and_its_producer_id_end_with_its_transaction(environment, txn, version):
    decision = end(txn, True, environment, version=version, ephemeral=True)
    assert decision.gone
    assert decision.marker == MarkerOrder(True, PRODUCER, RETIRED_EPOCH, PARTITIONS)  # this epoch is the id's last
    assert [state.status for state in decision.states] == [Status.PREPARE_COMMIT]
    assert environment.ids_given == 0
    assert end(None, True, environment, version=version).error is UNKNOWN


def test_an_ephemeral_id_that_is_initialised_again_gets_a_new_producer_id(environment):
    decision = begin(transaction(Status.ONGOING), environment, ephemeral=True)
    assert decision.marker == MarkerOrder(False, PRODUCER, RETIRED_EPOCH, PARTITIONS)
    assert pair(decision) == (NEXT_PRODUCER, 0)
    assert not decision.gone


# What is found in the log --------------------------------------------------------------------------------------------


@pytest.mark.requirement("S-67", "S-112", "S-71")
@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_a_prepare_record_in_the_log_is_completed_with_its_own_outcome(environment, commit, version):
    prepare, complete = end(transaction(Status.ONGOING), commit, environment, version=version).states
    _, found = records.read(records.key("id"), records.value(prepare))
    assert machine.owed_markers(found) == MarkerOrder(commit, PRODUCER, prepare.producer_epoch, PARTITIONS)
    decision = machine.finish(found, environment.inputs())
    assert decision.states == (complete,)
    assert decision.marker == machine.owed_markers(found)
    assert machine.owed_markers(complete) is None
    assert machine.finish(complete, environment.inputs()).states == ()


@pytest.mark.requirement("S-68")
def test_an_open_transaction_read_back_has_its_deadline_and_owes_no_marker():
    txn = transaction(Status.ONGOING)
    _, found = records.read(records.key("id"), records.value(txn))
    assert machine.deadline_age_ms(found) == machine.deadline_age_ms(txn)
    assert machine.owed_markers(found) is None
