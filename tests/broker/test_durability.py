"""Nobody is told, and nobody sees, what a power cut could still take back.

The journal's sync takes a second here, so that there is time to look.
"""

import pytest
from acl_client import creating, deleting, describing
from broker_lives import EARLIEST, LATEST, offset_at, read_all, slow, small, unplug
from fencepost.broker.config.security_settings import STANDARD_AUTHORIZER
from fencepost.broker.requests.dispatch import load_handlers
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.cluster import (
    DescribeLogDirsRequest,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
)
from fencepost.protocol.messages.configs import DescribeConfigsRequest
from fencepost.protocol.messages.topics import CreatePartitionsRequest, DeleteRecordsRequest, DeleteTopicsRequest
from fencepost.protocol.messages.transactions import DescribeProducersRequest, InitProducerIdRequest
from produce_requests import (
    EARLY_MS,
    answers,
    batch,
    bytes_of,
    create,
    fetch,
    fetched,
    idempotent,
    list_offsets,
    produce,
)
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient

OK = ErrorCode.NONE
FAST, GENERAL = 11, 3  # versions of Produce: the first takes the fast path, the other the general path
SYNC_S = 1.0

READS = [
    DescribeConfigsRequest(resources=[DescribeConfigsRequest.Resource(resource_type=2, resource_name="t")]),
    DescribeLogDirsRequest(topics=None),
    DescribeTopicPartitionsRequest(topics=[DescribeTopicPartitionsRequest.Topic(name="t")]),
    DescribeProducersRequest(topics=[DescribeProducersRequest.Topic(name="t", partition_indexes=[0])]),
    describing(),
]
CHANGES = [
    create("new"),
    CreatePartitionsRequest(topics=[CreatePartitionsRequest.Topic(name="t", count=3)], timeout_ms=1000),
    DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name="t")], timeout_ms=1000),
    DeleteRecordsRequest(
        topics=[
            DeleteRecordsRequest.Topic(
                name="t", partitions=[DeleteRecordsRequest.Topic.Partition(partition_index=1, offset=1)]
            )
        ],
        timeout_ms=1000,
    ),
    InitProducerIdRequest(transaction_timeout_ms=0),
    creating("allow User:alice READ TOPIC = t"),
    deleting({}),
]


@pytest.fixture
def broker():
    """A broker with topic t, one record in its second partition, and nothing on its way to disk."""
    disk = SimulatedDisk()
    delays = slow(disk)
    settings = small(authorizer_class_name=STANDARD_AUTHORIZER, super_users="User:ANONYMOUS")
    with SimulatedBroker(settings, disk=disk) as broker:
        broker.broker.topics.skip_producer_ids(1_000)  # with an authorizer only ids that were given out may be used
        broker.ask(create("t", 2))
        broker.ask(creating("deny User:bob ALL TOPIC = *"))
        broker.ask(produce("t", batch(), partition=1), FAST)
        broker.wait(1)
        delays["journal"] = SYNC_S
        yield broker


def on_its_way(broker, *, sequence=0, version=FAST):
    """Send a batch, and return its client. The batch is then in the journal's open round, which is synced within a
    second.
    """
    client = SimulatedClient(broker)
    client.send(produce("t", idempotent(sequence)), version)
    broker.wait(0.1)
    return client


def comes_when_durable(client):
    """Check that the answer to the client comes only after the sync, and return it."""
    assert client.quiet(SYNC_S * 0.8)
    return client.receive()


@pytest.mark.requirement("S-21", "S-23")
@pytest.mark.parametrize("version", [FAST, GENERAL])
def test_a_produce_retried_on_another_connection_waits_until_the_first_is_durable(broker, version):
    first = on_its_way(broker, version=version)
    retry = SimulatedClient(broker)
    retry.send(produce("t", idempotent(0)), version)
    assert retry.quiet(SYNC_S * 0.8)
    assert first.quiet(0)
    assert answers(retry.receive()) == answers(first.receive()) == [(OK, 0)]
    assert offset_at(broker, "t", LATEST) == 1


def test_a_retry_after_a_disconnect_is_answered_once_the_first_attempt_is_durable(broker):
    on_its_way(broker).close()
    retry = SimulatedClient(broker)
    retry.send(produce("t", idempotent(0)))
    assert answers(comes_when_durable(retry)) == [(OK, 0)]
    assert len(read_all(broker, "t")) == 1


def test_a_refusal_caused_by_an_undurable_batch_waits_until_it_is_durable(broker):
    """The error depends on that batch: if a power cut took it, the refused batch might be in order."""
    on_its_way(broker)
    other = SimulatedClient(broker)
    other.send(produce("t", idempotent(5)))
    assert answers(comes_when_durable(other)) == [(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)]


def test_five_produces_in_flight_are_answered_in_order(broker):
    client = SimulatedClient(broker)
    for sequence in range(5):
        client.send(produce("t", idempotent(sequence)))
    assert [answers(client.receive()) for _ in range(5)] == [[(OK, sequence)] for sequence in range(5)]


@pytest.mark.parametrize("request_", READS, ids=lambda one: type(one).__name__)
def test_a_read_only_admin_answer_waits_for_earlier_undurable_changes(broker, request_):
    on_its_way(broker)
    admin = SimulatedClient(broker)
    admin.send(request_)
    assert comes_when_durable(admin)


@pytest.mark.parametrize("request_", READS, ids=lambda one: type(one).__name__)
def test_answers_leave_at_once_when_all_journal_units_are_durable(broker, request_):
    admin = SimulatedClient(broker)
    admin.send(request_)
    assert not admin.quiet(0.01)


@pytest.mark.parametrize("request_", CHANGES, ids=lambda one: type(one).__name__)
def test_an_admin_change_is_not_answered_before_it_is_durable(broker, request_):
    admin = SimulatedClient(broker)
    admin.send(request_)
    assert comes_when_durable(admin)


def test_only_apis_that_show_no_undurable_state_are_answered_without_waiting():
    """The complete list of such APIs; fetch and the offset APIs read only durable state."""
    exempt = {handler.api.name for handler in load_handlers().values() if not handler.waits}
    views = {"Fetch", "ListOffsets", "OffsetForLeaderEpoch"}
    constants = {"ApiVersions", "DescribeCluster", "FindCoordinator", "ListPartitionReassignments", "DescribeQuorum"}
    constants |= {"UpdateFeatures"}
    refusals = {"SaslHandshake", "SaslAuthenticate"}
    timers = {"Heartbeat"}  # it tells of a membership, which is in memory only
    memory = {"DescribeMetrics", "DescribeClients", "DescribeTransactionOwners"}  # state of this process only
    told = "leave out waits=False, except of an API that shows nothing of the logs or that shows durable state only"
    assert exempt == views | constants | refusals | timers | memory | {"Metadata"}, told


def test_metadata_is_answered_without_waiting_for_undurable_changes(broker):
    on_its_way(broker)
    other = SimulatedClient(broker)
    other.send(MetadataRequest(topics=None))
    assert not other.quiet(0.1)


@pytest.mark.requirement("S-16")
def test_no_producer_id_is_given_out_before_its_block_is_durable(broker):
    clients = [SimulatedClient(broker) for _ in range(2)]
    for client in clients:
        client.send(InitProducerIdRequest(transaction_timeout_ms=0))
    assert all(client.quiet(SYNC_S * 0.4) for client in clients)
    ids = [client.receive().producer_id for client in clients]
    assert ids[1] == ids[0] + 1
    again = SimulatedClient(broker)
    again.send(InitProducerIdRequest(transaction_timeout_ms=0))
    assert not again.quiet(0.01), "the block is durable, nothing is on its way"


@pytest.mark.requirement("S-16")
def test_no_producer_id_is_assigned_twice_after_a_power_cut(broker):
    given = [broker.ask(InitProducerIdRequest(transaction_timeout_ms=0)).producer_id for _ in range(3)]
    disk = unplug(broker)
    with SimulatedBroker(broker.settings, disk=disk) as later:
        assert later.ask(InitProducerIdRequest(transaction_timeout_ms=0)).producer_id > max(given)


# ---- readers -------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S-11")
def test_a_fetch_never_shows_a_record_that_is_not_durable(broker):
    producer = on_its_way(broker)
    consumer = SimulatedClient(broker)
    part = fetched(consumer.ask(fetch("t"), 11))
    assert (bytes_of(part), part.high_watermark, part.last_stable_offset) == (b"", 0, 0)
    producer.receive()
    part = fetched(consumer.ask(fetch("t"), 11))
    assert (len(bytes_of(part)) > 0, part.high_watermark, part.last_stable_offset) == (True, 1, 1)


def test_a_waiting_fetch_is_woken_once_records_are_durable_not_when_appended(broker):
    consumer = SimulatedClient(broker)
    consumer.send(fetch("t", max_wait_ms=10_000), 11)
    assert consumer.quiet(0.1)
    on_its_way(broker)
    part = fetched(comes_when_durable(consumer))
    assert part.high_watermark == 1
    assert bytes_of(part)


def test_a_fetch_returns_durable_records_but_not_an_undurable_one_behind_them(broker):
    for sequence in range(3):
        broker.ask(produce("t", idempotent(sequence)), FAST)
    on_its_way(broker, sequence=3)
    part = fetched(SimulatedClient(broker).ask(fetch("t"), 11))
    assert part.high_watermark == 3
    assert max(record.offset for record in read_all(broker, "t")) == 2


def test_list_offsets_never_returns_a_record_that_is_not_durable(broker):
    producer = on_its_way(broker)
    reader = SimulatedClient(broker)

    def asked(timestamp, committed=False):
        (found,) = reader.ask(list_offsets("t", timestamp, committed=committed)).topics[0].partitions
        return found.offset

    by_time, latest_time = EARLY_MS - 1, -3
    assert [asked(LATEST), asked(LATEST, committed=True), asked(EARLIEST)] == [0, 0, 0]
    assert [asked(by_time), asked(latest_time)] == [-1, -1]
    producer.receive()
    assert [asked(LATEST), asked(by_time), asked(latest_time)] == [1, 0, 0]


def test_records_shown_or_acknowledged_survive_a_power_cut(broker):
    producer = SimulatedClient(broker)
    for sequence in range(10):
        producer.send(produce("t", idempotent(sequence)))
        broker.wait(0.3)
    shown = read_all(broker, "t")
    assert 0 < len(shown) < 10  # some of the ten are durable, and not all
    disk = unplug(broker)
    with SimulatedBroker(broker.settings, disk=disk) as later:
        assert read_all(later, "t")[: len(shown)] == shown
        first_missing = len(read_all(later, "t"))
        for sequence in range(first_missing, 10):
            assert answers(later.ask(produce("t", idempotent(sequence)), FAST)) == [(OK, sequence)]


@pytest.mark.slow
def test_a_topic_creation_is_answered_only_once_a_power_cut_would_keep_the_topic(broker):
    admin = SimulatedClient(broker)
    admin.send(create("slow"))
    broker.wait(SYNC_S / 2)
    disk = unplug(broker)
    with SimulatedBroker(broker.settings, disk=disk) as later:
        names = [topic.name for topic in later.ask(MetadataRequest(topics=None)).topics]
        assert names == ["t"]
        assert later.ask(create("slow")).topics[0].error_code == OK
        after = unplug(later)
    with SimulatedBroker(broker.settings, disk=after) as last:
        assert sorted(topic.name for topic in last.ask(MetadataRequest(topics=None)).topics) == ["slow", "t"]


@pytest.mark.slow
def test_with_durability_os_a_record_is_answered_before_its_sync(broker):
    """A power cut before the sync loses the record."""
    assert broker.ask(create("weak", durability_mode="os")).topics[0].error_code == OK
    broker.wait(2)
    client = SimulatedClient(broker)
    client.send(produce("weak", batch()))
    assert not client.quiet(SYNC_S / 2)
    disk = unplug(broker)
    with SimulatedBroker(broker.settings, disk=disk) as later:
        assert read_all(later, "weak") == []


def start_seen(broker):
    """Return where partition 1 begins for another client: the offsets that ListOffsets finds for EARLIEST and for a
    time, and the error code and the log start offset of a Fetch at offset 0.
    """
    part = fetched(broker.ask(fetch("t", 0, partition=1), 11))
    by_time = broker.ask(list_offsets("t", EARLY_MS, partition=1)).topics[0].partitions[0].offset
    return offset_at(broker, "t", EARLIEST, partition=1), by_time, part.error_code, part.log_start_offset


def deletion_on_its_way(broker):
    """Send a DeleteRecords, and return its client. The change is then in the journal's open round, which is synced
    within a second.
    """
    client = SimulatedClient(broker)
    client.send(CHANGES[3])
    broker.wait(0.1)
    return client


def test_a_log_start_moved_by_delete_records_is_visible_once_durable(broker):
    client = deletion_on_its_way(broker)
    assert start_seen(broker) == (0, 0, OK, 0)
    assert len(read_all(broker, "t", partition=1)) == 1
    assert comes_when_durable(client).topics[0].partitions[0].low_watermark == 1
    assert start_seen(broker) == (1, -1, ErrorCode.OFFSET_OUT_OF_RANGE, -1)


def test_a_log_start_undone_by_a_power_cut_was_never_returned(broker):
    """ListOffsets and Fetch return a log start that DeleteRecords moved only once it is durable."""
    deletion_on_its_way(broker)
    before = start_seen(broker)
    with broker.after_power_cut() as again:
        assert start_seen(again) == before == (0, 0, OK, 0)


@pytest.fixture
def expiring():
    """A broker whose retention has just moved the log start of t's second partition past the first record. The change
    is in the journal's open round.
    """
    disk = SimulatedDisk()
    delays = slow(disk)
    settings = small(log_retention_check_interval_ms=500, log_checkpoint_interval_ms=100)
    with SimulatedBroker(settings, disk=disk) as broker:
        broker.ask(create("t", 2, retention_ms=5_000, segment_ms=1_000))
        for _ in range(2):
            broker.ask(produce("t", batch(), partition=1), FAST)
            broker.wait(2)
        delays["journal"] = SYNC_S
        log = broker.broker.topics.by_name["t"].partitions[1].log
        while not log.start_offset:
            broker.wait(0.01)
        yield broker


def test_a_log_start_moved_by_retention_is_visible_once_durable(expiring):
    assert start_seen(expiring) == (0, 0, OK, 0)
    expiring.wait(SYNC_S * 0.8)
    assert start_seen(expiring) == (0, 0, OK, 0)
    expiring.wait(SYNC_S * 0.3)
    assert start_seen(expiring) == (1, 1, ErrorCode.OFFSET_OUT_OF_RANGE, -1)


def test_a_retention_undone_by_a_power_cut_was_never_visible(expiring):
    """ListOffsets and Fetch return a log start that retention moved only once it is durable."""
    before = start_seen(expiring)
    with SimulatedBroker(small(), disk=unplug(expiring)) as again:
        assert start_seen(again) == before == (0, 0, OK, 0)


def test_a_checkpoint_removes_no_segment_above_the_visible_log_start(broker):
    """DeleteRecords moves the log start, which is visible once it is durable. `manifest()`, which a checkpoint calls,
    removes segments below it.
    """
    broker.ask(produce("t", batch(), partition=1), FAST)
    broker.wait(25)  # flushed, and in a checkpoint
    part = DeleteRecordsRequest.Topic.Partition(partition_index=1, offset=-1)
    everything = DeleteRecordsRequest(topics=[DeleteRecordsRequest.Topic(name="t", partitions=[part])], timeout_ms=1000)
    client = SimulatedClient(broker)
    client.send(everything)
    broker.wait(0.1)
    log = broker.broker.topics.by_name["t"].partitions[1].log
    log.manifest()
    assert len(read_all(broker, "t", partition=1)) == 2
    assert comes_when_durable(client).topics[0].partitions[0].low_watermark == 2
    log.manifest()
    assert log.segments == []
