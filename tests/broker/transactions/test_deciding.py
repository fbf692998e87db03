"""How a decision of the ledger is made: in slices, with others served in between, and then all of it or nothing."""

from collections.abc import Iterator

import pytest
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.ledger import PrepareTxnRequest
from fencepost.protocol.messages.topics import CreateTopicsRequest, DeleteTopicsRequest
from ledger_client import CONFLICT, HOUR_MS, decide, deciding, last_number, prepared, topics, waiting, written
from lines_run import lines_run
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient
from txn_client import Txn, state, values


@pytest.fixture
def broker() -> Iterator[SimulatedBroker]:
    with SimulatedBroker() as broker:
        yield topics(broker)


def fill(broker, count, key="sink", number=1, partitions=3, topic="a"):
    """Have the coordinator prepare this many transactions directly, without requests of producers. Return them."""
    from fencepost.broker.transactions.states import machine
    from fencepost.broker.transactions.states.transaction import Prepared, Transaction

    coordinator, store = broker.broker.transactions, broker.broker.store
    coordinator.topic.ensure()
    logs = {(topic, each.index): each.log.log_id for each in broker.broker.topics.by_name[topic].partitions}
    chosen = list(logs.items())[:partitions]
    waits = Prepared(key, number, HOUR_MS, store.age_ms())
    txns = []
    for index in range(count):
        name = f"many-{index}"
        given = coordinator.inputs(name)
        begun = Transaction(name, 1_000_000 + index, 0, 60_000, updated_age_ms=given.age_ms)
        opened = machine.add_partitions(begun, begun.producer_id, 0, dict(chosen), 0, given).states[-1]
        decision = machine.prepare(opened, begun.producer_id, 0, waits, None, given)
        coordinator.log(name, decision, given)
        txn = Txn.__new__(Txn)
        txn.name, txn.producer_id, txn.epoch = name, begun.producer_id, 0
        txns.append(txn)
    return txns


@pytest.mark.slow
def test_a_ledger_decision_about_1000_transactions_is_one_unit_of_the_journal(broker):
    txns = fill(broker, 1000)
    before = broker.broker.store.last_unit
    answer = decide(broker, *txns)
    assert answer.error_code == 0
    assert broker.broker.store.last_unit == before + 1
    assert len(broker.broker.transactions.prepared) == 0
    assert {state(broker, txn.name) for txn in txns[::97]} == {"CompleteCommit"}


@pytest.mark.slow
def test_a_repeated_decision_aborts_120_late_prepared_transactions_in_three_units(broker):
    first = fill(broker, 1)
    assert decide(broker, *first).error_code == 0
    late = fill(broker, 120)
    before = broker.broker.store.last_unit
    answer = decide(broker, *late)
    assert (answer.error_code, answer.already_decided, answer.aborted) == (0, True, 120)
    assert broker.broker.store.last_unit == before + 3
    assert len(broker.broker.transactions.prepared) == 0
    assert decide(broker, *late).aborted == 0


@pytest.mark.slow
def test_a_decision_of_10_000_markers_executes_at_most_60_lines_per_marker(broker):
    """The last step makes all markers at once, before any other request is served."""
    from fencepost.broker.transactions.deciding import Deciding
    from fencepost.broker.transactions.ledger import Item, Proposal, Verdict

    broker.ask(CreateTopicsRequest(topics=[CreateTopicsRequest.Topic(name="wide", num_partitions=100)]))
    txns = fill(broker, 100, partitions=100, topic="wide")
    items = tuple(Item(txn.name, txn.producer_id, txn.epoch) for txn in txns)
    made = Deciding(broker.broker.ledger, Proposal("sink", 1, "driver", b"", True, False, items))
    outcomes = []
    lines = [lines_run(lambda step=step: outcomes.append(step())) for step in (*made.steps(), made.finish)]
    assert outcomes[-1].verdict is Verdict.DECIDE
    assert max(lines[:-1]) < 500, "each step but the last is about one transaction"
    assert lines[-1] < 60 * 10_000


def test_a_decision_is_refused_if_a_transaction_ended_after_it_was_checked(broker):
    """A decision is made in steps, and t1 ends after the last check. A decision about the two others is then made; it
    also aborts a transaction prepared late, whose topic was deleted. Repeating the first decision changes nothing.
    """
    from fencepost.broker.transactions.deciding import Deciding
    from fencepost.broker.transactions.ledger import Item, Proposal, Verdict

    txns = [prepared(broker, f"t{n}", partition=n) for n in range(3)]
    items = tuple(Item(txn.name, txn.producer_id, txn.epoch) for txn in txns)
    ledger = broker.broker.ledger
    made = Deciding(ledger, Proposal("sink", 1, "driver", b"d", True, False, items))
    broker.broker.ledger.topic.ensure()
    for step in made.steps():
        step()
    assert txns[1].end(True) == 0
    outcome = made.finish()
    assert [name for name, _ in outcome.refused] == ["t1"]
    assert last_number(broker) == -1
    again = Deciding(ledger, Proposal("sink", 1, "driver", b"d", True, False, (items[0], items[2])))
    for step in again.steps():
        step()
    prepared(broker, "late one", topic="b")
    broker.ask(DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name="b")], timeout_ms=1000))
    outcome = again.finish()
    assert (outcome.verdict, outcome.aborted) == (Verdict.DECIDE, 1)
    assert state(broker, "late one") == "CompleteAbort"
    assert made.finish().verdict is Verdict.ALREADY_DECIDED  # a decision is known by its digest, not by its list


def test_a_decision_with_more_markers_than_one_journal_unit_may_have_is_refused(broker, monkeypatch):
    monkeypatch.setattr("fencepost.broker.transactions.deciding.MAX_MARKERS", 5)
    txns = [prepared(broker, f"t{n}", partition=0) for n in range(2)]
    assert decide(broker, *txns).error_code == 0
    txns = fill(broker, 2, number=2)
    assert decide(broker, *txns, number=2).error_code == ErrorCode.INVALID_REQUEST
    assert len(waiting(broker)) == 2


def test_a_ledger_decision_without_room_in_the_journal_gets_a_retriable_error(broker, monkeypatch):
    txn = prepared(broker, "t")
    with monkeypatch.context() as full:
        full.setattr(broker.broker.store, "admits", lambda *_, **__: False)
        assert decide(broker, txn).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (last_number(broker), waiting(broker)) == (-1, [("t", 1)])
    assert decide(broker, txn).error_code == 0


def test_a_prepare_a_decision_and_a_late_prepare_pipelined_are_processed_in_order(broker):
    """The decision finds the transaction prepared before it; the prepare after it gets a conflict."""
    txn, late = written(broker, "t"), written(broker, "late", partition=1)
    client = SimulatedClient(broker)

    def preparing(one):
        return PrepareTxnRequest(
            transactional_id=one.name,
            producer_id=one.producer_id,
            producer_epoch=one.epoch,
            ledger_key="sink",
            number=1,
        )

    for request in (preparing(txn), deciding(txn), preparing(late)):
        client.send(request)
    assert [client.receive().error_code for _ in range(3)] == [0, 0, CONFLICT]


@pytest.mark.slow
def test_a_repeated_decision_is_not_answered_before_its_first_attempt_is_durable(broker):
    txn = prepared(broker, "t")
    first, second = SimulatedClient(broker), SimulatedClient(broker)
    first.send(deciding(txn))
    second.send(deciding(txn))
    for client in (first, second):
        assert client.receive().error_code == 0
        assert broker.broker.store.synced_unit == broker.broker.store.last_unit
    with broker.after_power_cut() as again:
        assert last_number(again) == 1


@pytest.mark.slow
@pytest.mark.parametrize("point", range(12))
def test_a_power_cut_at_any_moment_of_a_decision_leaves_all_of_it_or_nothing(broker, point):
    """The power is cut `point` steps of the event loop after the request was sent."""
    listed = [prepared(broker, f"t{n}", topic=topic, partition=n) for n, topic in enumerate("aab")]
    left_over = prepared(broker, "left", topic="b")
    client = SimulatedClient(broker)
    client.send(deciding(*listed))
    for _ in range(point):
        broker.loop.call_soon(broker.loop.stop)
        broker.loop.run_forever()
    with broker.after_power_cut() as again:
        seen = [values(again, "a"), values(again, "a", 1), values(again, "b", 2)]
        if last_number(again) == 1:
            assert seen == [[b"t0"], [b"t1"], [b"t2"]]
            assert state(again, "left") == "CompleteAbort"
        else:
            assert seen == [[], [], []]
            assert sorted(waiting(again)) == sorted((txn.name, 1) for txn in (*listed, left_over))
            assert decide(again, *listed).error_code == 0
