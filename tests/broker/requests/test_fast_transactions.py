"""The same bytes in every transaction: remembered, and carried out as the general path would."""

import pytest
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.requests import fast_transactions as fast_transactions
from fencepost.broker.requests.fast_transactions import FastTransactions
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.topics import DeleteTopicsRequest
from produce_requests import create
from simulated_broker import SimulatedBroker
from txn_client import Txn, begun, state, values

pytestmark = pytest.mark.slow

OK = ErrorCode.NONE


def history(version: int) -> tuple[list[object], list[bytes], dict[int, int]]:
    """Run transactions with AddPartitionsToTxn and EndTxn of this version. Returns (the error codes, the records, how
    many answers had which error).
    """
    with SimulatedBroker() as broker:
        broker.ask(create("t", 2))
        broker.ask(create("gone"))
        txn = begun(broker)

        def add(topic: str, *partitions: int) -> list[int]:
            response = txn.client.ask(txn.adding(topic, *partitions), version)
            topics = response.results_by_topic_v3_and_below
            return [part.partition_error_code for each in topics for part in each.results_by_partition]

        def end(commit: bool) -> int:
            return int(txn.client.ask(txn.ending(commit), version).error_code)

        found: list[object] = []
        for number in range(6):
            found += [
                add("t", 0),
                add("t", 0),
                add("t", 0, 1),
                add("t", 7),
                add("gone", 0),
                add("__consumer_offsets", 0),
            ]
            txn.send("t", b"%d" % number, number % 2)
            found += [end(number != 3), end(number != 3), end(number == 3), state(broker)]
            if number == 4:
                broker.ask(DeleteTopicsRequest(topic_names=["gone"], timeout_ms=1000), 5)
        successor = begun(broker)
        found += [add("t", 0), end(True)]
        txn.goes_on_as(successor.producer_id, successor.epoch)
        txn.client = successor.client
        found += [end(True), add("t", 0), end(True)]
        metrics = broker.broker.metrics
        assert not metrics.failures
        assert [metrics.requests[24], metrics.requests[26]] == [6 * 6 + 2, 6 * 3 + 3]
        return found, values(broker, "t") + values(broker, "t", 1), dict(metrics.errors)


def in_older_words(found: list[object]) -> list[list[object]]:
    """Return the codes as versions below 2 answer: INVALID_PRODUCER_EPOCH instead of PRODUCER_FENCED."""
    older = {ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH}
    return [
        [older.get(code, code) for code in each] if isinstance(each, list) else older.get(each, each) for each in found
    ]


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_the_fast_path_of_transactions_gives_the_same_answers_and_state(version, monkeypatch):
    fast = history(version)
    monkeypatch.setattr(FastTransactions, "_carry_out", lambda self, asked, connection: False)
    assert history(version) == fast
    assert in_older_words(history(3)[0]) == in_older_words(fast[0])


def test_fast_transactions_use_the_time_of_the_current_turn():
    """With a stale time a new transaction would look as old as the first one and time out at once."""
    with SimulatedBroker() as broker:
        broker.ask(create("t"))
        txn = begun(broker)
        for _ in range(3):
            broker.wait(50)
            now_ms, age_ms = broker.broker.clock.now_ms(), broker.broker.store.age_ms()
            assert txn.add("t", 0) == [OK]
            found = broker.broker.transactions.transactions["x"]
            assert found.start_ms - now_ms in range(100)
            assert found.started_age_ms - age_ms in range(100)
            broker.wait(50)
            now_ms = broker.broker.clock.now_ms()
            assert txn.end(True) == OK
            assert broker.broker.transactions.transactions["x"].last_update_ms - now_ms in range(100)


def test_transaction_answers_do_not_depend_on_how_many_requests_the_cache_holds(monkeypatch):
    monkeypatch.setattr(fast_transactions, "REMEMBERED", 2)
    fast = history(1)
    monkeypatch.undo()
    assert history(1) == fast


def test_transaction_v1_policy_refuse_gives_unsupported_version_on_the_fast_path():
    with SimulatedBroker(BrokerSettings(transaction_v1_policy="allow")) as broker:
        broker.ask(create("t"))
        txn = begun(broker)
        assert [txn.add("t", 0), txn.end(True)] == [[OK], OK]
        broker.broker.live_settings.now = BrokerSettings(transaction_v1_policy="refuse")
        assert txn.client.ask(txn.ending(True), 3).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_a_false_length_in_a_transaction_request_closes_only_its_connection():
    with SimulatedBroker() as broker:
        broker.ask(create("t"))
        txn, other = begun(broker), begun(broker, name="y")
        for api in (24, 26):
            client = Txn(broker, "z").client
            client.send_raw(bytes([0, 0, 0, 12, 0, api, 0, 1, 0, 0, 0, 1, 0xFF, 0xFF, 0x7F, 0xFF]))
            assert client.closed()
        assert [txn.add("t", 0), other.add("t", 0)] == [[OK], [OK]]
