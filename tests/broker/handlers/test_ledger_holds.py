"""PrepareTxn with `hold`: until its decision nothing else ends the transaction. Through a whole broker."""

from collections.abc import Iterator

import pytest
from fencepost.broker.config.settings import BrokerSettings
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.ledger import DescribeLedgerRequest
from fencepost.protocol.messages.monitoring import DescribeMetricsRequest
from fencepost.protocol.messages.topics import CreateTopicsRequest, DeleteTopicsRequest
from fencepost.protocol.messages.transactions import InitProducerIdRequest, WriteTxnMarkersRequest
from ledger_client import CONFLICT, decide, held, last_number, prepare, prepared, remove, topics, written
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient
from txn_client import Txn, state, values

WAIT, BAD_STATE = ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.INVALID_TXN_STATE
FENCED, LIMIT = ErrorCode.PRODUCER_FENCED, ErrorCode.POLICY_VIOLATION


@pytest.fixture
def broker() -> Iterator[SimulatedBroker]:
    with SimulatedBroker() as broker:
        yield topics(broker)


def mark(broker, txn, *, commit=False, epoch=None):
    """Ask for a marker in partition 0 of topic a, as an admin does. Returns the error code."""
    topic = WriteTxnMarkersRequest.Marker.Topic(name="a", partition_indexes=[0])
    marker = WriteTxnMarkersRequest.Marker(
        producer_id=txn.producer_id,
        producer_epoch=txn.epoch if epoch is None else epoch,
        transaction_result=commit,
        topics=[topic],
        coordinator_epoch=0,
    )
    (answer,) = broker.ask(WriteTxnMarkersRequest(markers=[marker])).markers
    return answer.topics[0].partitions[0].error_code


def delete_b(broker):
    request = DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name="b")], timeout_ms=1000)
    assert broker.ask(request).responses[0].error_code == 0


def pairs(answer):
    """Return (transactional id, next producer id, next epoch) of each transaction that a decision has ended."""
    return [(each.transactional_id, each.producer_id, each.producer_epoch) for each in answer.ended]


# What may end a held transaction -------------------------------------------------------------------------------------


INITS = [(version, False) for version in range(7)] + [(version, True) for version in range(3, 7)]


@pytest.mark.slow
@pytest.mark.parametrize(("version", "keep"), INITS)
def test_init_producer_id_on_a_held_transaction_gets_an_error_and_does_not_end_it(version, keep):
    """The error asks the client to wait (CONCURRENT_TRANSACTIONS) in every request version.

    keep: the request names the producer id and epoch that the transaction has (KIP-360). Version 6 is served with
    two-phase commit only.
    """
    with SimulatedBroker(BrokerSettings(transaction_two_phase_commit_enable=True)) as broker:
        txn = held(topics(broker))
        units = broker.broker.store.last_unit
        pair = {"producer_id": txn.producer_id, "producer_epoch": txn.epoch} if keep else {}
        request = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000, **pair)
        for client in (txn.client, SimulatedClient(broker)):
            assert client.ask(request, version).error_code == WAIT
        assert broker.broker.store.last_unit == units
        assert decide(broker, txn).error_code == 0
        assert values(broker, "a") == [b"t"]


@pytest.mark.parametrize("pair", ["before", "old", "to come", "another"])
def test_init_producer_id_with_a_wrong_epoch_or_id_does_not_end_a_held_transaction(broker, pair):
    txn = Txn(broker, "t")
    for _ in range(3):
        txn.init()
    txn.write("a", b"t")
    prepare(txn, hold=True)
    producer_id, epoch = {
        "before": (txn.producer_id, txn.epoch - 1),
        "old": (txn.producer_id, 0),
        "to come": (txn.producer_id, txn.epoch + 1),
        "another": (txn.producer_id + 1, txn.epoch),
    }[pair]
    request = InitProducerIdRequest(
        transactional_id="t", transaction_timeout_ms=60_000, producer_id=producer_id, producer_epoch=epoch
    )
    assert broker.ask(request, 4).error_code == WAIT
    assert decide(broker, txn).error_code == 0


@pytest.mark.parametrize("commit", [False, True])
@pytest.mark.parametrize("later", [0, 1])
def test_write_txn_markers_of_an_admin_is_refused_for_a_held_transaction(broker, commit, later):
    txn = held(broker)
    assert mark(broker, txn, commit=commit, epoch=txn.epoch + later) == BAD_STATE
    assert decide(broker, txn).error_code == 0
    assert values(broker, "a") == [b"t"]


@pytest.mark.parametrize("commit", [False, True])
@pytest.mark.parametrize("version", [1, 2])
def test_end_txn_ends_a_held_transaction_only_with_its_exact_producer_epoch(broker, commit, version):
    txn = held(broker, version=version)
    right = txn.epoch
    for wrong in (right - 1, right + 1):
        txn.epoch = wrong
        assert txn.end(commit) == FENCED
    txn.epoch = right
    assert txn.end(commit) == 0
    assert values(broker, "a") == ([b"t"] if commit else [])


def test_a_held_transaction_is_aborted_at_the_timeout_given_in_its_prepare(broker):
    txn = held(broker, timeout_ms=90_000)
    broker.wait(80)  # beyond the timeout of the transaction itself
    assert state(broker, "t") == "Ongoing"
    broker.wait(25)
    assert state(broker, "t") == "CompleteAbort"
    assert decide(broker, txn).error_code == BAD_STATE


def test_a_held_transaction_without_a_timeout_survives_a_power_cut_undecided():
    with SimulatedBroker(BrokerSettings(transaction_two_phase_commit_enable=True)) as broker:
        txn = held(topics(broker), timeout_ms=-1)
        broker.wait(200)
        assert txn.init() == WAIT
        with broker.after_power_cut() as again:
            assert Txn(again, "t").init() == WAIT
            assert decide(again, txn).error_code == 0
            assert values(again, "a") == [b"t"]


def test_a_ledger_decision_that_omits_a_held_transaction_is_refused_entirely(broker):
    """This also holds for a decision with an empty list or a higher number: afterwards the held transaction could
    never be decided.
    """
    txn, other = held(broker, "t", 5), prepared(broker, "other", 5, partition=1)
    units = broker.broker.store.last_unit
    for number, listed in ((5, ()), (6, ()), (5, (other,))):
        answer = decide(broker, *listed, number=number, committed=False)
        assert answer.error_code == BAD_STATE
        assert [(each.transactional_id, each.error_code) for each in answer.refused] == [("t", WAIT)]
        assert "held" in answer.error_message
    assert broker.broker.store.last_unit == units
    assert decide(broker, number=4, committed=False).error_code == 0
    assert decide(broker, txn, number=5).aborted == 1
    assert [state(broker, name) for name in ("t", "other")] == ["CompleteCommit", "CompleteAbort"]


@pytest.mark.parametrize("wrong", [{"epoch": 1}, {"epoch": -1}, {"producer_id": 1}, {"number": 1}])
def test_a_ledger_decision_with_a_wrong_producer_id_epoch_or_number_is_refused(broker, wrong):
    txn = held(broker, "t", 5)
    listed = Txn(broker, "t")
    listed.producer_id, listed.epoch = txn.producer_id + wrong.get("producer_id", 0), txn.epoch + wrong.get("epoch", 0)
    for commit in (True, False):
        answer = decide(broker, listed, number=5 + wrong.get("number", 0), committed=commit)
        assert answer.error_code == BAD_STATE
    assert state(broker, "t") == "Ongoing"
    assert decide(broker, txn, number=5).error_code == 0


def test_a_repeated_prepare_succeeds_only_with_the_same_hold_flag(broker):
    txn = held(broker)
    assert prepare(txn, hold=True).error_code == 0
    assert prepare(txn).error_code == BAD_STATE
    plain = prepared(broker, "plain", partition=1)
    assert prepare(plain, hold=True).error_code == BAD_STATE


def test_a_prepare_that_asks_to_hold_after_a_decision_is_refused_and_its_txn_aborted(broker):
    decide(broker, committed=False)
    late = written(broker, "late")
    assert prepare(late, hold=True).error_code == CONFLICT
    assert state(broker, "late") == "CompleteAbort"
    assert late.init() == 0


def test_a_held_transaction_can_be_decided_after_a_restart_from_a_snapshot(broker):
    txn = held(broker)
    with broker.again() as again:
        assert Txn(again, "t").init() == WAIT
        assert mark(again, txn) == BAD_STATE
        assert decide(again, txn).error_code == 0
        assert values(again, "a") == [b"t"]
        assert Txn(again, "t").init() == 0


# The answer to a decision --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_a_ledger_decision_returns_the_producers_next_id_and_epoch(broker, commit):
    txn = held(broker, version=2)
    before = txn.producer_id, txn.epoch
    answer = decide(broker, txn, committed=commit)
    assert pairs(answer) == [("t", before[0], before[1] + 1)]
    assert pairs(decide(broker, txn, committed=commit)) == pairs(answer)  # the first answer was lost
    txn.goes_on_as(*pairs(answer)[0][1:])
    txn.write("a", b"next")
    assert prepare(txn, 2, hold=True).error_code == 0
    assert decide(broker, txn, number=2).error_code == 0
    assert values(broker, "a") == ([b"t", b"next"] if commit else [b"next"])


def test_a_repeated_decision_returns_no_producer_id_after_a_new_init_producer_id(broker):
    txn = held(broker)
    decide(broker, txn)
    assert Txn(broker, "t").init() == 0
    answer = decide(broker, txn)
    assert (answer.already_decided, answer.ended) == (True, [])


def test_a_repeated_decision_returns_no_producer_id_once_the_next_txn_is_open(broker):
    txn = held(broker, version=2)
    next_pair = pairs(decide(broker, txn))[0][1:]
    listed = Txn(broker, "t")
    listed.producer_id, listed.epoch = txn.producer_id, txn.epoch
    txn.goes_on_as(*next_pair)
    txn.write("a", b"next")
    assert decide(broker, listed).ended == []


def test_a_decision_returns_no_next_producer_id_for_an_ephemeral_transactional_id(broker):
    txn = held(broker, "fencepost.once.t")
    assert decide(broker, txn).ended == []


def test_a_decision_at_the_last_epoch_returns_a_new_producer_id_with_epoch_0(broker):
    txn = Txn(broker, "t")
    txn.init()
    coordinator = broker.broker.transactions
    worn = coordinator.transactions["t"]._replace(producer_epoch=32766)
    coordinator.apply("t", worn)
    txn.goes_on_as(txn.producer_id, 32766)
    txn.write("a", b"t")
    prepare(txn, hold=True)
    answer = decide(broker, txn)
    ((_, producer_id, epoch),) = pairs(answer)
    assert (producer_id != txn.producer_id, epoch) == (True, 0)
    assert pairs(decide(broker, txn)) == pairs(answer)


# The limit of ledger entries -----------------------------------------------------------------------------------------


def test_max_ledger_entries_refuses_new_keys_but_no_decision_on_a_held_transaction():
    """Another transaction may be prepared under a key that has an entry already."""
    with SimulatedBroker(BrokerSettings(max_ledger_entries=2)) as broker:
        topics(broker)
        txn = held(broker, "t", key="one")
        assert decide(broker, key="two").error_code == 0
        over = written(broker, "over", partition=1)
        assert prepare(over, key="three", hold=True).error_code == LIMIT
        assert decide(broker, key="three").error_code == LIMIT
        assert prepare(over, key="one", hold=True).error_code == 0  # the key has an entry already
        with broker.after_power_cut() as again:
            assert decide(again, key="three").error_code == LIMIT
            assert decide(again, txn, over, key="one").error_code == 0
            assert last_number(again, "one") == 1


def test_ending_a_held_transaction_by_end_txn_frees_its_ledger_entry():
    with SimulatedBroker(BrokerSettings(max_ledger_entries=1)) as broker:
        txn = held(topics(broker), "t", key="one")
        assert decide(broker, key="two").error_code == LIMIT
        assert txn.abort() == 0
        assert decide(broker, key="two").error_code == 0


def test_removing_a_ledger_key_with_a_held_transaction_is_refused(broker):
    assert decide(broker, committed=False).error_code == 0
    held(broker, "t", 2)
    assert remove(broker, "sink") == [BAD_STATE]


# Deleted topics ------------------------------------------------------------------------------------------------------


def test_committing_a_held_transaction_names_its_deleted_partitions(broker, caplog):
    """The partitions that still exist are committed; answer and log name those that were deleted before."""
    txn = held(broker)
    txn2 = written(broker, "u", topic="b", partition=1)
    txn2.write("b", b"u", 2)
    txn2.write("a", b"u", 1)
    assert prepare(txn2, hold=True).error_code == 0
    delete_b(broker)
    broker.ask(CreateTopicsRequest(topics=[CreateTopicsRequest.Topic(name="b", num_partitions=3)]))
    answer = decide(broker, txn, txn2)
    assert answer.error_code == 0
    assert [(each.name, each.partitions) for each in answer.deleted] == [("b", [1, 2])]
    assert "b-1, b-2 (2 partitions), deleted before" in caplog.text
    assert [values(broker, "a"), values(broker, "a", 1), values(broker, "b", 1)] == [[b"t"], [b"u"], []]


def test_aborting_a_held_transaction_names_no_deleted_partitions(broker):
    txn = held(broker, topic="b")
    delete_b(broker)
    assert decide(broker, txn, committed=False).deleted == []


def test_a_held_transaction_whose_topics_are_all_deleted_can_be_committed(broker):
    txn = held(broker, topic="b")
    delete_b(broker)
    answer = decide(broker, txn)
    assert (answer.error_code, [each.name for each in answer.deleted]) == (0, ["b"])
    assert last_number(broker) == 1


def test_committing_a_not_held_transaction_with_a_deleted_topic_is_refused(broker):
    txn, plain = held(broker), prepared(broker, "plain", topic="b")
    delete_b(broker)
    answer = decide(broker, txn, plain)
    assert [(each.transactional_id, each.error_code) for each in answer.refused] == [
        ("plain", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    ]


# What is shown -------------------------------------------------------------------------------------------------------


def test_describe_ledger_by_prefix_returns_matching_keys_and_the_hold_flag(broker):
    held(broker, "t", key="sql:1:t")
    prepared(broker, "u", key="sql:2:u", partition=1)
    decide(broker, key="sql:1:done")
    decide(broker, key="sql")
    answer = broker.ask(DescribeLedgerRequest(prefix="sql:1:"))
    assert [each.key for each in answer.keys] == ["sql:1:done", "sql:1:t"]
    assert [each.held for key in answer.keys for each in key.waiting] == [True]
    everything = broker.ask(DescribeLedgerRequest(prefix=""))
    assert len(everything.keys) == 4
    assert [each.held for key in everything.keys for each in key.waiting] == [True, False]
    assert broker.ask(DescribeLedgerRequest(prefix="none")).keys == []


def test_describe_ledger_with_both_keys_and_a_prefix_is_an_invalid_request(broker):
    assert broker.ask(DescribeLedgerRequest(keys=["k"], prefix="k")).error_code == ErrorCode.INVALID_REQUEST


def held_seconds(broker):
    families = {each.name: each for each in broker.ask(DescribeMetricsRequest()).families}
    return families["fencepost_oldest_held_transaction_seconds"].samples[0].value


def test_a_transaction_held_for_a_minute_is_logged_with_its_database_and_counted(broker, caplog):
    txn = held(broker, "slow one", key="sql:db1:slow one")
    broker.wait(30)
    assert broker.broker.metrics.prepared_for_long == 0
    broker.wait(100)
    assert broker.broker.metrics.prepared_for_long == 1
    assert held_seconds(broker) >= 130
    (message,) = [record.getMessage() for record in caplog.records if "slow one" in record.getMessage()]
    assert "for decision 1 of database 'db1' (fencepost txn resolve --db URL)" in message
    decide(broker, txn, key="sql:db1:slow one")
    broker.wait(61)
    assert held_seconds(broker) == 0
