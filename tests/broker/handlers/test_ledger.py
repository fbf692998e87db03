"""PrepareTxn, EndTxns, DescribeLedger, RemoveLedgerEntries: every row of docs/apis.md, through a whole broker."""

import logging
from collections.abc import Iterator

import pytest
from fencepost.broker.config.settings import BrokerSettings
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.ledger import DescribeLedgerRequest
from fencepost.protocol.messages.topics import DeleteTopicsRequest
from ledger_client import CONFLICT, HOUR_MS, decide, last_number, prepare, prepared, remove, topics, waiting, written
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient
from txn_client import Txn, offset_of, state, values

BAD_STATE, FENCED = ErrorCode.INVALID_TXN_STATE, ErrorCode.PRODUCER_FENCED
UNKNOWN, INVALID = ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_REQUEST
LIMIT, UNAVAILABLE = ErrorCode.POLICY_VIOLATION, ErrorCode.COORDINATOR_NOT_AVAILABLE
NOT_FOUND = ErrorCode.RESOURCE_NOT_FOUND


@pytest.fixture
def broker() -> Iterator[SimulatedBroker]:
    with SimulatedBroker() as broker:
        yield topics(broker)


def test_prepared_transactions_become_visible_together_with_the_decision(broker):
    txns = [prepared(broker, f"t{n}", topic=topic, partition=n) for n, topic in enumerate("aab")]
    assert values(broker, "a") == values(broker, "a", 1) == values(broker, "b", 2) == []
    answer = decide(broker, *txns)
    assert (answer.error_code, answer.already_decided, answer.aborted, answer.refused) == (0, False, 0, [])
    entry = answer.entry
    assert (entry.number, entry.owner, entry.digest, entry.committed) == (1, "driver", b"d", True)
    assert [values(broker, "a"), values(broker, "a", 1), values(broker, "b", 2)] == [[b"t0"], [b"t1"], [b"t2"]]
    assert [state(broker, txn.name) for txn in txns] == ["CompleteCommit"] * 3


def test_a_ledger_decision_to_abort_discards_the_prepared_transactions(broker):
    txn = prepared(broker, "t")
    assert decide(broker, txn, committed=False).error_code == 0
    assert values(broker, "a") == []
    assert last_number(broker) == 1
    assert decide(broker, committed=True).error_code == CONFLICT


def test_a_ledger_decision_and_the_transactions_it_ended_survive_a_power_cut(broker):
    txn = prepared(broker, "t")
    other = prepared(broker, "u", partition=1)
    decide(broker, txn)
    with broker.after_power_cut() as again:
        assert last_number(again) == 1
        assert (values(again, "a"), values(again, "a", 1)) == ([b"t"], [])
        assert decide(again, txn).already_decided
        assert state(again, other.name) == "CompleteAbort"


def test_a_prepared_transaction_survives_a_power_cut_and_can_then_be_decided(broker):
    txn = prepared(broker, "t")
    with broker.after_power_cut() as again:
        assert waiting(again) == [("t", 1)]
        txn.client = SimulatedClient(again)
        assert decide(again, txn).error_code == 0
        assert values(again, "a") == [b"t"]


def test_prepared_transactions_left_out_of_a_decision_are_aborted_in_the_same_unit(broker):
    listed = prepared(broker, "listed", 5)
    for name, number in (("left", 5), ("older", 3)):
        prepared(broker, name, number, partition=1)
    prepared(broker, "next", 6, partition=2)
    prepared(broker, "elsewhere", 5, key="other", partition=2)
    units = broker.broker.store.last_unit
    answer = decide(broker, listed, number=5)
    assert broker.broker.store.last_unit == units + 1
    assert answer.aborted == 2
    names = ("listed", "left", "older", "next", "elsewhere")
    assert [state(broker, name) for name in names] == [
        "CompleteCommit",
        "CompleteAbort",
        "CompleteAbort",
        "Ongoing",
        "Ongoing",
    ]
    assert waiting(broker) == [("next", 6)]


@pytest.mark.slow
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_offsets_of_a_prepared_transaction_become_committed_with_the_decision(broker, version, commit):
    """With a decision to abort they are dropped."""
    txn = written(broker, "t", version=version)
    txn.write_offset("b", 7)
    assert prepare(txn).error_code == 0
    assert offset_of(broker, "b") == -1
    assert offset_of(broker, "b", stable=True) == -ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert decide(broker, txn, committed=commit).error_code == 0
    assert offset_of(broker, "b", stable=True) == (7 if commit else -1)
    with broker.after_power_cut() as again:
        assert offset_of(again, "b", stable=True) == (7 if commit else -1)
        assert values(again, "a") == ([b"t"] if commit else [])


# Each row of the tables in docs/apis.md -------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 0])
def test_a_prepare_for_a_number_already_decided_gets_a_conflict_and_aborts_its_txn(broker, number):
    decide(broker, prepared(broker, "t"))
    late = written(broker, "late", partition=1)
    answer = prepare(late, number)
    assert (answer.error_code, answer.ledger_number) == (CONFLICT, 1)
    assert state(broker, "late") == "CompleteAbort"
    assert late.end(True) == FENCED
    assert values(broker, "a", 1) == []


def test_repeating_a_ledger_decision_succeeds_and_writes_nothing(broker):
    txn = prepared(broker, "t")
    decide(broker, txn)
    units = broker.broker.store.last_unit
    answer = decide(broker, txn)
    assert (answer.error_code, answer.already_decided, answer.entry.number) == (0, True, 1)
    assert broker.broker.store.last_unit == units


@pytest.mark.parametrize(
    "other",
    [{"digest": b"other"}, {"owner": "somebody"}, {"owner": "somebody", "takeover": True}, {"committed": False}],
    ids=str,
)
def test_a_different_decision_with_the_same_number_conflicts_and_names_the_first(broker, other):
    decide(broker, prepared(broker, "t"))
    txn = prepared(broker, "u", 2, partition=1)
    answer = decide(broker, txn, **other)
    assert (answer.error_code, answer.entry.number, answer.entry.digest) == (CONFLICT, 1, b"d")
    assert state(broker, "u") == "Ongoing"


def test_a_ledger_decision_with_a_lower_number_is_a_conflict(broker):
    decide(broker, number=7)
    assert decide(broker, number=6).error_code == CONFLICT
    assert last_number(broker) == 7


def test_a_new_ledger_owner_is_refused_until_it_takes_over_and_fences_the_first(broker):
    decide(broker, number=1)
    assert decide(broker, number=2, owner="successor").error_code == CONFLICT
    assert decide(broker, number=2, owner="successor", takeover=True).error_code == 0
    assert decide(broker, number=3).error_code == CONFLICT
    assert decide(broker, number=3, owner="successor").error_code == 0


def test_a_decision_that_lists_an_unprepared_transaction_is_refused_with_its_name(broker):
    good = prepared(broker, "good")
    open_ = written(broker, "open", partition=1)
    other_number = prepared(broker, "other number", 2, partition=1)
    other_key = prepared(broker, "other key", 1, key="else", partition=1)
    stale = prepared(broker, "stale", partition=2)
    stale.epoch -= 1
    stranger = Txn(broker, "stranger")
    units = broker.broker.store.last_unit
    answer = decide(broker, good, open_, other_number, other_key, stale, stranger)
    assert answer.error_code == BAD_STATE
    assert [(each.transactional_id, each.error_code) for each in answer.refused] == [
        ("open", BAD_STATE),
        ("other number", BAD_STATE),
        ("other key", BAD_STATE),
        ("stale", FENCED),
        ("stranger", UNKNOWN),
    ]
    assert (broker.broker.store.last_unit, last_number(broker), state(broker, "good")) == (units, -1, "Ongoing")
    assert decide(broker, good).error_code == 0


def test_a_transaction_whose_topic_was_deleted_can_be_aborted_but_not_committed(broker):
    lost = prepared(broker, "lost", topic="b")
    kept = prepared(broker, "kept")
    broker.ask(DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name="b")], timeout_ms=1000))
    topics(broker)  # creates b again: a new topic with the old name
    answer = decide(broker, lost, kept)
    assert [(each.transactional_id, each.error_code) for each in answer.refused] == [
        ("lost", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    ]
    assert decide(broker, kept).aborted == 1
    assert state(broker, "lost") == "CompleteAbort"
    assert values(broker, "b", committed=False) == []


def test_init_producer_id_aborts_the_prepared_txn_and_its_later_decision_is_fenced(broker):
    txn = prepared(broker, "t")
    pair = txn.producer_id, txn.epoch
    assert Txn(broker, "t").init() == 0
    assert waiting(broker) == []
    assert (txn.producer_id, txn.epoch) == pair  # so the decision names the old epoch; another Txn sent the init
    answer = decide(broker, txn)
    assert [each.error_code for each in answer.refused] == [FENCED]


@pytest.mark.parametrize("version", [1, 2])
def test_a_prepared_transaction_accepts_no_records_and_no_partitions(broker, version):
    txn = prepared(broker, "t", version=version)
    assert txn.send("a", b"more") == BAD_STATE
    assert txn.send("a", b"elsewhere", 1) == BAD_STATE
    assert txn.add("a", 2) == [BAD_STATE]
    assert txn.add_offsets() == BAD_STATE
    assert txn.send_offset("a", 1) == BAD_STATE
    decide(broker, txn)
    assert values(broker, "a") == [b"t"]


@pytest.mark.parametrize("version", [1, 2])
def test_a_batch_repeated_in_a_prepared_transaction_succeeds_and_is_written_once(broker, version):
    """A client sends PrepareTxn right behind a batch, loses the connection, and sends both again."""
    txn = written(broker, "t", version=version)
    first = txn.offset
    assert prepare(txn).error_code == 0
    units = broker.broker.store.last_unit
    for _ in range(2):
        assert (txn.send("a", b"t", sequence=0), txn.offset) == (0, first)
    assert txn.send("a", b"more") == BAD_STATE
    txn.epoch -= 1
    assert txn.send("a", b"t", sequence=0) != 0
    txn.epoch += 1
    assert broker.broker.store.last_unit == units
    decide(broker, txn)
    assert values(broker, "a") == [b"t"]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_a_producer_may_end_its_own_prepared_transaction(broker, version, commit):
    txn = prepared(broker, "t", version=version)
    pair = txn.producer_id, txn.epoch + 1
    assert txn.end(commit) == 0
    assert values(broker, "a") == ([b"t"] if commit else [])
    assert broker.broker.transactions.transactions["t"][1:3] == pair
    # It does not wait for a decision any more. A client of TV1 was not told the new epoch, and names the old one.
    assert decide(broker, txn).refused[0].error_code == (FENCED if version == 1 else BAD_STATE)


def test_repeating_a_prepare_succeeds_and_a_different_prepare_is_refused(broker):
    txn = prepared(broker, "t")
    units = broker.broker.store.last_unit
    assert prepare(txn).error_code == 0
    assert broker.broker.store.last_unit == units
    assert prepare(txn, 2).error_code == BAD_STATE
    assert prepare(txn, key="else").error_code == BAD_STATE
    assert prepare(txn, timeout_ms=5).error_code == BAD_STATE


def test_prepare_is_refused_without_an_open_transaction_or_with_a_fenced_producer(broker):
    txn = Txn(broker, "t")
    assert prepare(txn).error_code == UNKNOWN
    txn.init()
    assert prepare(txn).error_code == BAD_STATE
    txn.write("a", b"v")
    txn.epoch += 1
    assert prepare(txn).error_code == FENCED


@pytest.mark.parametrize(
    "wrong", [{"key": ""}, {"key": "k" * 1001}, {"number": -1}, {"timeout_ms": 0}, {"timeout_ms": -2}], ids=str
)
def test_a_malformed_prepare_is_an_invalid_request(broker, wrong):
    txn = written(broker, "t")
    assert prepare(txn, **wrong).error_code == INVALID
    assert state(broker, "t") == "Ongoing"


def test_a_malformed_ledger_decision_is_an_invalid_request(broker):
    txn = prepared(broker, "t")
    for wrong in ({"key": ""}, {"number": -1}, {"digest": bytes(257)}, {"owner": "o" * 1001}):
        assert decide(broker, txn, **wrong).error_code == INVALID
    assert decide(broker, txn, txn).error_code == INVALID
    assert state(broker, "t") == "Ongoing"


@pytest.mark.slow
def test_a_prepared_transaction_is_aborted_after_its_prepared_timeout():
    settings = BrokerSettings(
        transaction_abort_timed_out_transaction_cleanup_interval_ms=1000, transaction_two_phase_commit_enable=True
    )
    with SimulatedBroker(settings) as broker:
        topics(broker)
        short = prepared(broker, "short", timeout_ms=90_000)
        never = prepared(broker, "never", timeout_ms=-1, partition=1)
        broker.wait(80)  # beyond the timeout of the transactions themselves
        assert state(broker, "short") == "Ongoing"
        broker.wait(20)
        assert state(broker, "short") == "CompleteAbort"
        broker.wait(4_000)
        assert [each.error_code for each in decide(broker, short, never).refused] == [FENCED]
        assert decide(broker, never).error_code == 0


@pytest.mark.parametrize("timeout_ms", [-1, 86_400_001, 2**31 - 1])
def test_a_prepared_timeout_that_is_unlimited_or_above_the_maximum_is_refused(broker, timeout_ms):
    """-1 means unlimited, and needs transaction.two.phase.commit.enable, which is off here."""
    txn = written(broker, "t")
    refused = prepare(txn, timeout_ms=timeout_ms)
    assert refused.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert (
        "transaction.two.phase.commit.enable" if timeout_ms < 0 else "transaction.prepared.max.timeout.ms"
    ) in refused.error_message
    assert waiting(broker) == []
    broker.wait(80)
    assert state(broker, "t") == "CompleteAbort", "it was not prepared, so its own timeout ends it"


def test_the_maximum_prepared_timeout_is_configurable():
    with SimulatedBroker(BrokerSettings(transaction_prepared_max_timeout_ms=90_000)) as broker:
        topics(broker)
        txn = written(broker, "t")
        assert prepare(txn, timeout_ms=90_001).error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
        assert prepare(txn, timeout_ms=90_000).error_code == 0
        assert waiting(broker) == [("t", 1)]


def test_a_prepared_timeout_goes_on_after_a_restart_whatever_the_wall_clock_says():
    """60 s before a restart and 40 s after it exceed 90 s. A simulated broker that is started again has new clocks, so
    the wall clock goes back by a minute.
    """
    settings = BrokerSettings(transaction_abort_timed_out_transaction_cleanup_interval_ms=1000)
    with SimulatedBroker(settings) as broker:
        topics(broker)
        prepared(broker, "t", timeout_ms=90_000)
        broker.wait(60)
        with broker.again() as again:
            again.wait(20)
            assert state(again, "t") == "Ongoing"
            again.wait(20)
            assert state(again, "t") == "CompleteAbort"


def test_a_prepare_beyond_max_prepared_transactions_is_refused():
    with SimulatedBroker(BrokerSettings(max_prepared_transactions=2)) as broker:
        topics(broker)
        txns = [prepared(broker, f"t{n}", partition=n) for n in range(2)]
        third = written(broker, "third", partition=2)
        assert prepare(third).error_code == LIMIT
        assert prepare(txns[0]).error_code == 0
        assert state(broker, "third") == "Ongoing"
        decide(broker, *txns)
        assert prepare(third, 2).error_code == 0


def test_a_new_key_beyond_max_ledger_entries_is_refused():
    with SimulatedBroker(BrokerSettings(max_ledger_entries=1)) as broker:
        assert decide(broker, key="one").error_code == 0
        assert decide(broker, key="two").error_code == LIMIT
        assert decide(broker, key="one", number=2).error_code == 0


def test_a_transaction_that_is_prepared_for_long_is_logged_once_and_counted(caplog):
    settings = BrokerSettings(transaction_prepared_alert_ms=120_000)
    with SimulatedBroker(settings) as broker, caplog.at_level(logging.WARNING, "fencepost.broker"):
        topics(broker)
        txn = prepared(broker, "slow one")
        broker.wait(100)
        assert broker.broker.metrics.prepared_for_long == 0
        broker.wait(200)
        assert broker.broker.metrics.prepared_for_long == 1
        (message,) = [record.getMessage() for record in caplog.records if "slow one" in record.getMessage()]
        assert "'sink'" in message
        assert "a-0" in message
        decide(broker, txn)
        broker.wait(61)
        assert broker.broker.metrics.prepared_for_long == 0


def test_a_decision_succeeds_although_the_marker_of_an_offline_partition_is_owed(broker):
    txns = [prepared(broker, f"t{n}", partition=n) for n in range(2)]
    log = broker.broker.topics.by_name["a"].partitions[1].log
    log.offline = "damaged"
    assert decide(broker, *txns).error_code == 0
    debts = broker.broker.topics.catalogue.marker_debts
    assert {key: debt.commit for key, debt in debts.items()} == {(log.log_id, txns[1].producer_id): True}
    assert values(broker, "a") == [b"t0"]


def test_ledger_requests_get_coordinator_not_available_while_its_log_is_offline(broker):
    txn, open_ = prepared(broker, "t"), written(broker, "open", partition=1)
    log = broker.broker.topics.by_name["__fencepost_ledger"].partitions[0].log
    log.offline = "damaged"
    assert decide(broker, txn).error_code == prepare(open_).error_code == UNAVAILABLE
    assert broker.ask(DescribeLedgerRequest(keys=["sink"])).error_code == UNAVAILABLE
    assert remove(broker, "sink") == [UNAVAILABLE]
    log.offline = None
    assert decide(broker, txn).error_code == 0


# Describing and removing ----------------------------------------------------------------------------------------------


def test_describe_ledger_returns_keys_with_numbers_and_prepared_transactions(broker):
    decide(broker, prepared(broker, "done"))
    prepared(broker, "t", 2, partition=1)
    prepared(broker, "u", 1, key="new", partition=2)
    broker.wait(5)
    new, sink = broker.ask(DescribeLedgerRequest(keys=None)).keys
    assert (new.key, new.error_code, new.entry) == ("new", 0, None)
    assert (sink.key, sink.entry.number, sink.entry.owner) == ("sink", 1, "driver")
    (one,) = sink.waiting
    assert (one.transactional_id, one.number, one.timeout_ms) == ("t", 2, HOUR_MS)
    assert 5_000 <= one.waits_for_ms < 6_000
    (missing,) = broker.ask(DescribeLedgerRequest(keys=["nope"])).keys
    assert (missing.key, missing.error_code) == ("nope", NOT_FOUND)


def test_an_admin_can_delete_a_ledger_key_without_prepared_transactions(broker):
    txn = prepared(broker, "t")
    decide(broker, number=0)
    assert remove(broker, "sink", "nope") == [BAD_STATE, NOT_FOUND]
    decide(broker, txn)
    assert remove(broker, "sink") == [0]
    assert last_number(broker) == -1
    with broker.after_power_cut() as again:
        assert last_number(again) == -1
        assert decide(again, number=0).error_code == 0


def test_ledger_entries_do_not_expire():
    short = {"transactional_id_expiration_ms": 1000, "log_retention_ms": 1000, "log_retention_check_interval_ms": 1000}
    often = {"transaction_remove_expired_transaction_cleanup_interval_ms": 1000}
    with SimulatedBroker(BrokerSettings(**short, **often)) as broker:
        topics(broker)
        decide(broker, prepared(broker, "t"))
        broker.wait(600)
        assert state(broker, "t") == "105"  # TRANSACTIONAL_ID_NOT_FOUND: the id has expired
        with broker.again() as again:
            assert last_number(again) == 1


def test_a_decision_without_transactions_advances_the_ledger_entry(broker):
    assert decide(broker).error_code == 0
    assert last_number(broker) == 1


def test_ledger_apis_are_announced_by_a_feature_and_not_in_the_list_of_apis(broker):
    from fencepost.protocol.messages.cluster import ApiVersionsRequest

    answer = broker.ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 4)
    assert max(each.api_key for each in answer.api_keys) < 20_000  # the ledger's keys are higher: OWN_APIS_FROM
    assert "fencepost.version" in {each.name for each in answer.finalized_features}
