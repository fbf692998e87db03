"""Commits and fetches of offsets: not answered before the commit is durable, refused while the offsets are offline."""

import pytest
from broker_lives import slow, small, unplug
from fencepost.broker.config.settings import BrokerSettings
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.offsets import OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest
from fencepost.protocol.messages.transactions import EndTxnRequest
from offset_requests import Producer, commit, fetch
from produce_requests import create
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient

pytestmark = pytest.mark.slow

SYNC_S = 1.0
ONE = OffsetFetchRequest(groups=[OffsetFetchRequest.Group(group_id="g", topics=None)])


def committing(offset: int) -> OffsetCommitRequest:
    made = OffsetCommitRequest.Topic
    part = made.Partition(partition_index=0, committed_offset=offset)
    return OffsetCommitRequest(group_id="g", topics=[made(name="t", partitions=[part])])


def reported(answer):
    """Return the committed offsets in an answer to OffsetFetch."""
    return [part.committed_offset for topic in answer.groups[0].topics for part in topic.partitions]


@pytest.fixture
def slowly():
    """A broker with an offset committed, whose journal then takes a second for each sync."""
    disk = SimulatedDisk()
    delays = slow(disk)
    with SimulatedBroker(small(), disk=disk) as broker:
        broker.ask(create("t"))
        broker.ask(committing(1), 9)
        broker.wait(1)
        delays["journal"] = SYNC_S
        yield broker


def on_its_way(broker, request, version):
    """Send a request on a new connection, and let the broker handle it. Returns the client, which has to receive."""
    client = SimulatedClient(broker)
    client.send(request, version)
    broker.wait(0.1)
    return client


def test_offset_fetch_returns_no_offset_before_its_commit_is_durable(slowly):
    first, reader = on_its_way(slowly, committing(5), 9), on_its_way(slowly, ONE, 9)
    assert reader.quiet(SYNC_S * 0.7)
    assert first.quiet(0)
    assert reported(reader.receive()) == [5]
    assert first.receive().topics[0].partitions[0].error_code == 0


def test_a_retried_offset_commit_is_not_answered_before_the_first_is_durable(slowly):
    first, again = on_its_way(slowly, committing(5), 9), on_its_way(slowly, committing(5), 9)
    assert again.quiet(SYNC_S * 0.7)
    assert first.quiet(0)
    assert [client.receive().topics[0].partitions[0].error_code for client in (first, again)] == [0, 0]


def test_offset_fetch_never_returns_an_offset_that_a_power_cut_undoes(slowly):
    first, reader = on_its_way(slowly, committing(5), 9), on_its_way(slowly, ONE, 9)
    assert first.quiet(0)
    assert reader.quiet(0)
    with SimulatedBroker(small(), disk=unplug(slowly)) as later:
        assert fetch(later, "g") == {("t", 0): 1}


@pytest.mark.requirement("S-85")
def test_offset_fetch_waits_until_the_commit_of_a_transaction_is_durable(slowly):
    producer = Producer(slowly, "x")
    assert producer.send_offsets("g", "t", {0: 7}) == [0]
    ending = on_its_way(slowly, EndTxnRequest(**producer.who, committed=True), 4)
    reader = on_its_way(slowly, ONE, 9)
    assert ending.quiet(0)
    assert reader.quiet(SYNC_S * 0.5)
    assert reported(reader.receive()) == [7]


def test_offset_requests_get_coordinator_not_available_while_their_log_is_offline():
    with SimulatedBroker(BrokerSettings(offsets_topic_num_partitions=1)) as broker:
        broker.ask(create("t"))
        commit(broker, "g", "t", {0: 1})
        broker.broker.group_offsets.topic.log(0).offline = "a test"
        gone = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert commit(broker, "g", "t", {0: 2}) == [gone]
        assert broker.ask(ONE, 9).groups[0].error_code == gone
        assert broker.ask(OffsetFetchRequest(group_id="g", topics=None), 7).error_code == gone
        old = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequest.Topic(name="t", partition_indexes=[0])])
        assert broker.ask(old, 1).topics[0].partitions[0].error_code == gone
        made = OffsetDeleteRequest.Topic
        asked = made(name="t", partitions=[made.Partition(partition_index=0)])
        assert broker.ask(OffsetDeleteRequest(group_id="g", topics=[asked]), 0).error_code == gone


def test_one_commit_and_one_fetch_can_carry_thousands_of_offsets():
    with SimulatedBroker() as broker:
        broker.ask(create("t", 5_000))
        expected = {index: index + 1 for index in range(5_000)}
        assert set(commit(broker, "g", "t", expected)) == {0}
        assert fetch(broker, "g") == {("t", index): offset for index, offset in expected.items()}
