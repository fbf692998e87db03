"""Scripts of transactions for crash tests: between them they make every kind of unit that transactions have."""

from fencepost.broker.transactions.states.transaction import Decision
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.topics import DeleteTopicsRequest
from fencepost.protocol.messages.transactions import WriteTxnMarkersRequest
from produce_requests import create
from simulated_client import SimulatedClient
from txn_client import Txn
from txn_oracle import EPHEMERAL, TOPICS, WAIT, Ended, Ending, Given, Gone, Script

OK = ErrorCode.NONE


def one_record_committed_by_tv1(s: Script) -> None:
    txn = s.producer()
    txn.write()
    assert txn.commit() == OK


def one_record_aborted_by_tv1(s: Script) -> None:
    txn = s.producer()
    txn.write()
    assert txn.abort() == OK


def several_partitions_committed_by_tv1(s: Script) -> None:
    txn = s.producer()
    txn.write("a", 0, 1)
    txn.write("b")
    txn.write("a", 1)
    assert txn.commit() == OK


def several_partitions_committed_by_tv2(s: Script) -> None:
    txn = s.producer(version=2)
    txn.write("a", 0, 1)
    txn.write("b")
    assert txn.commit() == OK


def several_partitions_aborted_by_tv2(s: Script) -> None:
    txn = s.producer(version=2)
    txn.write("a", 0, 1)
    txn.write("b")
    assert txn.abort() == OK


def consume_transform_produce_by_tv1(s: Script) -> None:
    txn = s.producer()
    for offset in (3, 6):
        txn.write("b")
        txn.write_offset("a", offset)
        assert txn.commit() == OK


def consume_transform_produce_by_tv2(s: Script) -> None:
    txn = s.producer(version=2)
    for offset in (3, 6):
        txn.write("b")
        txn.write_offset("a", offset)
        assert txn.commit() == OK


def offsets_of_two_groups_and_nothing_else(s: Script) -> None:
    txn = s.producer(version=2)
    txn.write_offset("a", 4, "g")
    txn.write_offset("a", 5, "h")
    assert txn.commit() == OK


def offsets_aborted_and_then_committed(s: Script) -> None:
    txn = s.producer()
    txn.write("b")
    txn.write_offset("a", 4)
    assert txn.abort() == OK
    txn.write("b")
    txn.write_offset("a", 2)
    assert txn.commit() == OK


def one_after_the_other_by_tv1(s: Script) -> None:
    txn = s.producer()
    for number in range(4):
        txn.write("a", 0, 1)
        assert txn.end(commit=number != 1) == OK


def one_after_the_other_by_tv2(s: Script) -> None:
    txn = s.producer(version=2)
    for number in range(4):
        txn.write("a", 0, 1)
        assert txn.end(commit=number != 1) == OK


def two_producers_in_one_partition(s: Script) -> None:
    one, two = s.producer("one", 1), s.producer("two", 2)
    one.write("a", 0)
    two.write("a", 0, 1)
    one.write("a", 0)
    assert two.commit() == OK
    two.write("b")
    assert one.abort() == OK
    assert two.commit() == OK


def a_successor_ends_what_was_open(s: Script) -> None:
    txn = s.producer()
    txn.write("a", 0, 1)
    txn.write_offset("b", 3)
    txn.begin()
    txn.write("a", 1)
    assert txn.commit() == OK


def empty_transactions(s: Script) -> None:
    old, new = s.producer("old", 1), s.producer("new", 2)
    assert old.add("a", 0, 1) == [0, 0]
    assert old.commit() == OK
    assert new.abort() == OK
    new.write()
    assert new.commit() == OK


def a_transaction_that_takes_too_long(s: Script) -> None:
    txn = s.producer(timeout_ms=1_000)
    txn.write("a", 0, 1)
    s.disk.note(Ending(txn.number, False))
    s.wait(4)
    s.disk.note(Ended(txn.number, False))
    txn.number = 0
    txn.begin(keep=True)
    txn.write()
    assert txn.commit() == OK


def a_commit_asked_for_twice(s: Script) -> None:
    txn = s.producer(version=2)
    txn.write("a", 0, 1)
    pair, number = (txn.producer_id, txn.epoch), txn.number
    assert txn.commit() == OK
    txn.goes_on_as(*pair)
    txn.number = number
    assert txn.commit() == OK
    txn.write()
    assert txn.commit() == OK


def everything_sent_ahead(s: Script) -> None:
    """Send the request that adds partitions and the one that ends the transaction without waiting between them: each
    sees what the one before has done.
    """
    txn = s.producer()
    s.disk.note(Ending(txn.number, True))
    client = SimulatedClient(s.broker)
    client.send(txn.adding("a", 0, 1), 3)
    client.send(txn.ending(True), 3)
    assert client.receive().results_by_topic_v3_and_below
    assert client.receive().error_code == OK
    txn.client = SimulatedClient(s.broker)
    txn.ended(True)
    txn.write()
    assert txn.commit() == OK


def from_the_old_protocol_to_the_new_and_back(s: Script) -> None:
    txn = s.producer(version=2)
    for number in range(4):
        txn.version = 2 - number % 2
        txn.write("a", number % 2)
        assert txn.commit() == OK


def segments_and_checkpoints_in_between(s: Script) -> None:
    txn, other = s.producer(version=2), s.producer("other", timeout_ms=600_000)
    other.write("a", 1)
    txn.write("a", 0, 1)
    s.wait(12)
    assert txn.commit() == OK
    s.wait(12)
    txn.write("b", size=60_000)
    assert other.commit() == OK


def a_topic_deleted_inside(s: Script) -> None:
    txn = s.producer()
    txn.write("a", 0, 1)
    txn.write("b")
    _delete(s, "b")
    assert txn.commit() == OK


def a_topic_made_again_inside(s: Script) -> None:
    txn = s.producer(version=2)
    txn.write("a", 0, 1)
    txn.write("b")
    _delete(s, "b")
    s.broker.ask(create("b", TOPICS["b"]))
    assert txn.commit() == OK


def an_admin_aborts_one_partition(s: Script) -> None:
    txn = s.producer()
    txn.write("a", 0, 1)
    marker = WriteTxnMarkersRequest.Marker(
        producer_id=txn.producer_id,
        producer_epoch=txn.epoch,
        transaction_result=False,
        topics=[WriteTxnMarkersRequest.Marker.Topic(name="a", partition_indexes=[1])],
        coordinator_epoch=0,
    )
    s.disk.note(Ending(txn.number, False))
    (answer,) = s.broker.ask(WriteTxnMarkersRequest(markers=[marker])).markers
    assert answer.topics[0].partitions[0].error_code == OK
    s.disk.note(Ended(txn.number, False))


def epochs_used_up_by_tv2(s: Script) -> None:
    txn = s.producer(version=2)
    _at_epoch(s, txn, 32_765)
    for _ in range(3):
        txn.write("a", 0, 1)
        assert txn.commit() == OK


def epochs_used_up_by_beginning_anew(s: Script) -> None:
    txn = s.producer()
    _at_epoch(s, txn, 32_765)
    for _ in range(3):
        txn.write("a", 0, 1)
        txn.begin()
    txn.write()
    assert txn.commit() == OK


def ids_for_one_transaction(s: Script) -> None:
    for number in range(3):
        txn = s.producer(f"{EPHEMERAL}{number}")
        txn.write("a", 0, 1)
        txn.write_offset("b", number)
        assert txn.end(commit=number != 1) == OK


def ids_for_one_transaction_between_flushes_and_checkpoints(s: Script) -> None:
    """Write with ids that are used for one transaction each, and wait before each end, so that a checkpoint finds data
    in segments and its marker not, when the producer is not remembered any more.
    """
    for number in range(8):
        txn = s.producer(f"{EPHEMERAL}{number}")
        txn.write("a", 0)
        s.wait(2.3)
        assert txn.end(commit=number % 3 == 1) == OK
        s.wait(1.1)


def held_and_decided(s: Script) -> None:
    """Hold and decide three transactions of TV2, each with the producer id and epoch that the decision before
    returned.
    """
    txn = s.producer(version=2)
    for number in range(3):
        txn.write("a", 0, 1)
        txn.write_offset("b", number)
        txn.hold()
        txn.decide(commit=number != 1)


def held_while_successors_ask(s: Script) -> None:
    txn = s.producer()
    txn.write("a", 0, 1)
    txn.hold()
    for version in (0, 4, 5):
        assert Txn(s.broker, txn.name).init(version=version) == WAIT
    s.wait(12)
    txn.decide(commit=True)
    txn.begin()
    txn.write("b")
    assert txn.commit() == OK


def held_with_a_topic_deleted_inside(s: Script) -> None:
    txn = s.producer(version=2)
    txn.write("a", 0, 1)
    txn.write("b")
    txn.hold()
    _delete(s, "b")
    txn.decide(commit=True)
    txn.write("a")
    txn.hold()


def held_when_epochs_are_used_up(s: Script) -> None:
    txn = s.producer(version=2)
    _at_epoch(s, txn, 32_765)
    s.disk.note(Given(txn.name, txn.producer_id, txn.epoch))
    for _ in range(3):
        txn.write("a", 0, 1)
        txn.hold()
        txn.decide(commit=True)


def held_until_its_outage_is_too_long(s: Script) -> None:
    txn = s.producer()
    txn.write("a", 0, 1)
    txn.hold(timeout_ms=2_000)
    s.disk.note(Ending(txn.number, False))
    s.wait(5)
    s.disk.note(Ended(txn.number, False))
    txn.number = 0
    txn.begin()
    txn.write()
    assert txn.commit() == OK


def _delete(s: Script, topic: str) -> None:
    s.disk.note(Gone(topic))
    request = DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name=topic)], timeout_ms=1000)
    assert s.broker.ask(request).responses[0].error_code == OK


def _at_epoch(s: Script, txn, epoch: int) -> None:
    """Set the epoch of a transactional id, as if it had begun that many transactions."""
    coordinator = s.broker.broker.transactions
    state = coordinator.transactions[txn.name]._replace(producer_epoch=epoch)
    coordinator.log(txn.name, Decision(states=(state,)), coordinator.inputs(txn.name))
    s.wait(0.1)
    txn.goes_on_as(txn.producer_id, epoch)


SCRIPTS = [
    one_record_committed_by_tv1,
    one_record_aborted_by_tv1,
    several_partitions_committed_by_tv1,
    several_partitions_committed_by_tv2,
    several_partitions_aborted_by_tv2,
    consume_transform_produce_by_tv1,
    consume_transform_produce_by_tv2,
    offsets_of_two_groups_and_nothing_else,
    offsets_aborted_and_then_committed,
    one_after_the_other_by_tv1,
    one_after_the_other_by_tv2,
    two_producers_in_one_partition,
    a_successor_ends_what_was_open,
    empty_transactions,
    a_transaction_that_takes_too_long,
    a_commit_asked_for_twice,
    everything_sent_ahead,
    from_the_old_protocol_to_the_new_and_back,
    segments_and_checkpoints_in_between,
    a_topic_deleted_inside,
    a_topic_made_again_inside,
    an_admin_aborts_one_partition,
    epochs_used_up_by_tv2,
    epochs_used_up_by_beginning_anew,
    ids_for_one_transaction,
    ids_for_one_transaction_between_flushes_and_checkpoints,
    held_and_decided,
    held_while_successors_ask,
    held_with_a_topic_deleted_inside,
    held_when_epochs_are_used_up,
    held_until_its_outage_is_too_long,
]
