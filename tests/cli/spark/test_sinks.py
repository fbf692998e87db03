"""`fencepost spark list|abort|reset`: sinks as their operator sees them."""

from collections.abc import Iterator
from typing import Any

import pytest
from fencepost.protocol.messages.ledger import EndTxnsRequest
from fencepost.protocol.messages.ledger import PrepareTxnRequest as Prepare
from fencepost.protocol.messages.transactions import AddPartitionsToTxnRequest, InitProducerIdRequest, TxnTopic
from served_broker import ServedBroker
from terminal import Terminal


@pytest.fixture(scope="module")
def broker() -> Iterator[ServedBroker]:
    with ServedBroker() as broker:
        yield broker


@pytest.fixture(scope="module")
def terminal(broker: ServedBroker) -> Terminal:
    made = Terminal(broker)
    made.run("topic create t")
    return made


def opened(broker: ServedBroker, name: str) -> dict[str, int]:
    """Begin a transaction with a partition under this id, as a sink's task does. Return its producer id and epoch."""
    client = broker.connect()
    given = client.call(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000), 4)
    pair = {"producer_id": given.producer_id, "producer_epoch": given.producer_epoch}
    client.call(
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=given.producer_id,
            v3_and_below_producer_epoch=given.producer_epoch,
            v3_and_below_topics=[TxnTopic(name="t", partitions=[0])],
        ),
        3,
    )
    broker.close_clients()
    return pair


def prepared(broker: ServedBroker, name: str, key: str, number: int) -> Any:
    """Prepare such a transaction, so that it waits for this decision of the ledger. Return it as EndTxns names it."""
    pair = opened(broker, name)
    asked = Prepare(transactional_id=name, **pair, ledger_key=key, number=number, prepared_timeout_ms=3_600_000)
    assert broker.connect().call(asked, 0).error_code == 0
    broker.close_clients()
    return EndTxnsRequest.Transaction(transactional_id=name, **pair)


def decided(broker: ServedBroker, key: str, number: int, *items: Any) -> None:
    request = EndTxnsRequest(
        ledger_key=key, number=number, owner="q1", digest=b"d", committed=True, transactions=list(items)
    )
    assert broker.connect().call(request, 0).error_code == 0
    broker.close_clients()


def test_spark_list_shows_each_sinks_batch_number_and_waiting_transactions(
    broker: ServedBroker, terminal: Terminal
) -> None:
    decided(broker, "orders", 7, prepared(broker, "once-a", "orders", 7))
    decided(broker, "fencepost.write.1", 0)
    decided(broker, "orders#writes", 3)
    prepared(broker, "once-b", "orders", 8)
    (row,) = terminal.objects("spark list")
    assert (row["sink"], row["batch"], row["query"], row["waiting"]) == ("orders", 7, "q1", 1)
    assert (row["committed"], row["waiting_for_batches"]) == (True, [8])
    assert 0 < row["left_ms"] <= 3_600_000
    assert len(terminal.objects("spark list --all")) == 3
    assert terminal.run("spark list").splitlines()[1].startswith("orders")


def test_a_sink_with_prepared_transactions_is_reset_only_after_an_abort(
    broker: ServedBroker, terminal: Terminal
) -> None:
    decided(broker, "handed", 7)
    prepared(broker, "once-c", "handed", 8)
    code, cause, hint = terminal.refused("spark reset handed")
    assert (code, cause) == (5, "1 transaction of sink handed wait for a decision")
    assert "fencepost spark abort handed" in hint
    assert terminal.run("spark abort handed") == "aborted 1 transaction that waited for sink handed\n"
    assert terminal.run("spark reset handed") == "sink handed is reset: it was at batch 7 of query q1\n"
    for command in ("abort", "reset"):
        assert terminal.refused(f"spark {command} handed")[:2] == (3, "there is no sink handed")


def test_spark_abort_also_ends_open_transactions_of_the_sinks_dead_tasks(
    broker: ServedBroker, terminal: Terminal
) -> None:
    opened(broker, "fencepost.once.dead.0.a77e.1.7.0")
    opened(broker, "fencepost.once.dead.er.0.a77e.1.7.0")  # of another sink
    prepared(broker, "fencepost.once.dead.0.a77e.2.8.0", "dead", 0)
    expected = terminal.run("spark abort dead")
    assert expected == "aborted 1 transaction that waited for sink dead, and 1 that its tasks had open\n"
    assert terminal.refused("spark abort dead")[:2] == (3, "there is no sink dead")
    (row,) = terminal.objects("spark abort dead.er")
    assert (row["aborted"], row["aborted_open"]) == ([], ["fencepost.once.dead.er.0.a77e.1.7.0"])
