"""A retry that meets its own first attempt, not durable yet, is not answered before that is; a power cut comes between.

The journal's sync takes a second here. Each test sends a request, and again on another connection while the first is
on its way; nobody is told anything. Then the power goes, and the next broker knows nothing of it: no answer was a lie.
"""

import pytest
from broker_lives import slow, small, unplug
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.offsets import OffsetFetchRequest
from fencepost.protocol.messages.share_fetch import AcknowledgementBatch
from fencepost.protocol.messages.share_transactions import TxnShareAcknowledgeRequest
from fencepost.protocol.messages.transactions import InitProducerIdRequest
from produce_requests import answers, create, list_offsets
from share_transactions import acquire, begin, states
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient
from txn_client import Txn, offset_of, state, values

OK = ErrorCode.NONE
UNKNOWN = str(int(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND))
BOTH = pytest.mark.parametrize("version", [1, 2])


@pytest.fixture
def broker():
    disk = SimulatedDisk()
    delays = slow(disk, journal=0.001)
    with SimulatedBroker(small(transaction_v1_policy="allow"), disk=disk) as broker:
        broker.ask(create("t", 2))
        begun = Txn(broker, "before", 1)
        begun.init()
        begun.write_offset("t", 1)  # so that both internal topics are there
        begun.commit()
        delays["journal"] = 1.0
        yield broker


def again(left: SimulatedDisk) -> SimulatedBroker:
    return SimulatedBroker(small(), disk=left, seed=9)


def neither_is_answered(broker: SimulatedBroker, first, second) -> SimulatedDisk:
    """Send both requests, each on its own connection. Check that neither is answered. Return the disk after a power
    cut.
    """
    clients = SimulatedClient(broker), SimulatedClient(broker)
    for client, (request, version) in zip(clients, (first, second), strict=True):
        client.send(request, version)
        assert client.quiet(0.1)
    return unplug(broker)


def both_are_answered(broker: SimulatedBroker, first, second):
    """Send both requests, each on its own connection. Return both answers."""
    clients = SimulatedClient(broker), SimulatedClient(broker)
    for client, (request, version) in zip(clients, (first, second), strict=True):
        client.send(request, version)
    return [client.receive() for client in clients]


@pytest.fixture(params=[1, 2])
def open_txn(request, broker):
    """A producer with an open transaction, all of it durable."""
    txn = Txn(broker, "x", request.param)
    assert txn.init() == OK
    txn.write("t", b"x")
    return txn


@pytest.mark.slow
@pytest.mark.parametrize("version", [3, 9, 12])
def test_a_transactional_batch_and_its_duplicate_are_answered_only_once_durable(broker, open_txn, version):
    request = open_txn.producing("t", b"y", sequence=1)
    with again(neither_is_answered(broker, (request, version), (request, version))) as after:
        assert values(after, "t", committed=False) == [b"x"]


def test_a_duplicate_gets_the_first_batchs_offset_once_that_is_durable(broker, open_txn):
    request = open_txn.producing("t", b"y", sequence=1)
    first, second = both_are_answered(broker, (request, 12), (request, 12))
    assert answers(first) == answers(second) == [(OK, 1)]


@pytest.mark.requirement("S-69", "S-65")
def test_neither_end_txn_nor_its_retry_is_answered_before_it_is_durable(broker, open_txn):
    asked = open_txn.ending(True), 3 if open_txn.version == 1 else 5
    with again(neither_is_answered(broker, asked, asked)) as after:
        assert (state(after), values(after, "t")) == ("Ongoing", [])


def test_end_txn_and_its_retry_get_equal_answers_once_durable(broker, open_txn):
    asked = open_txn.ending(True), 3 if open_txn.version == 1 else 5
    first, second = both_are_answered(broker, asked, asked)
    assert first == second
    assert first.error_code == OK
    assert values(broker, "t") == [b"x"]


@BOTH
@pytest.mark.requirement("S-69", "S-60")
@pytest.mark.requirement("S-125")
def test_neither_init_producer_id_nor_its_retry_is_answered_before_it_is_durable(broker, version):
    asked = InitProducerIdRequest(transactional_id="new", transaction_timeout_ms=1000), 3 + version
    with again(neither_is_answered(broker, asked, asked)) as after:
        assert state(after, "new") == UNKNOWN


def test_init_producer_id_with_the_current_identity_waits_for_durability(broker, open_txn):
    pair = {"producer_id": open_txn.producer_id, "producer_epoch": open_txn.epoch}
    asked = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000, **pair), 4
    with again(neither_is_answered(broker, asked, asked)) as after:
        assert (state(after), values(after, "t", committed=False)) == ("Ongoing", [b"x"])


@pytest.mark.requirement("S-69", "S-77")
@pytest.mark.requirement("S-126")
def test_neither_adding_partitions_nor_its_retry_is_answered_before_it_is_durable(broker):
    txn = Txn(broker)
    txn.init()
    asked = txn.adding("t", 0, 1), 3
    with again(neither_is_answered(broker, asked, asked)) as after:
        assert state(after) == "Empty"


@pytest.mark.requirement("S-128", "S-69")
def test_an_acknowledgement_in_a_transaction_is_not_answered_before_it_is_durable(broker):
    """A retry finds the records pending in memory, and is not answered before that either."""
    (key,) = begin(broker, "t")
    txn = Txn(broker, version=2)
    txn.init()
    acquire(broker, key, 0, 1)
    Topic = TxnShareAcknowledgeRequest.Topic
    ranges = [AcknowledgementBatch(first_offset=0, last_offset=1, acknowledge_types=[1])]
    part = Topic.Partition(partition_index=0, acknowledgement_batches=ranges)
    request = TxnShareAcknowledgeRequest(
        transactional_id="x",
        producer_id=txn.producer_id,
        producer_epoch=txn.epoch,
        group_id="g",
        member_id="m",
        topics=[Topic(topic_id=key.topic_id, partitions=[part])],
    )
    with again(neither_is_answered(broker, (request, 0), (request, 0))) as after:
        assert (state(after), states(after, key)) == ("Empty", "0")


def test_offset_fetch_after_a_commit_waits_until_the_commit_is_durable(broker, open_txn):
    open_txn.write_offset("t", 5)
    group = OffsetFetchRequest.Group(
        group_id="g", topics=[OffsetFetchRequest.Group.Topic(name="t", partition_indexes=[0])]
    )
    fetch_offsets = OffsetFetchRequest(groups=[group]), 8
    commit = open_txn.ending(True), 3 if open_txn.version == 1 else 5
    with again(neither_is_answered(broker, commit, fetch_offsets)) as after:
        assert offset_of(after, "t") == 1, "the offset that the fixture has committed"


def test_neither_sending_offsets_nor_its_retry_is_answered_before_it_is_durable(broker, open_txn):
    if open_txn.version == 1:
        assert open_txn.add_offsets() == OK
    asked = open_txn.committing("t", 5), 3 if open_txn.version == 1 else 5
    with again(neither_is_answered(broker, asked, asked)) as after:
        assert offset_of(after, "t", stable=True) == 1, "the offset that the fixture has committed"


def test_the_last_stable_offset_moves_only_once_the_commit_is_durable(broker, open_txn):
    client, reader = SimulatedClient(broker), SimulatedClient(broker)
    client.send(open_txn.ending(True), 3 if open_txn.version == 1 else 5)
    assert client.quiet(0.1)
    (latest,) = reader.ask(list_offsets("t", -1, committed=True)).topics[0].partitions
    assert latest.offset == 0
    assert values(broker, "t") == []
    assert client.receive().error_code == OK
    assert values(broker, "t") == [b"x"]
