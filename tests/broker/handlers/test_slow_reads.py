"""Reads so slow that DeleteRecords deletes the records before they are read. Two checkpoints later, the files of the
deleted records are removed.
"""

import pytest
from acl_client import ActingUser, creating, deleting, guarded
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.net.connection import WAITING_BYTES
from fencepost.broker.requests.running_fetch import WAITING_FETCH_BYTES
from fencepost.protocol import records
from fencepost.protocol.batches import walk
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.topics import DeleteRecordsRequest, DeleteTopicsRequest
from produce_requests import batch, bytes_of, create, fetch, fetched, list_offsets, produce
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient
from txn_client import Txn

pytestmark = pytest.mark.slow

NAMED = 12  # the newest version that names topics
BEGUN_S = 0.1
CHECKPOINTED_S = 200  # after this time, two checkpoints are written and the files of deleted records removed


def fill(broker):
    """Write one record into each segment: aborted, aborted, committed, and so on; after each comes its marker."""
    broker.ask(create("t", segment_bytes=1 << 20))
    txn = Txn(broker, "x", 2)
    assert txn.init() == ErrorCode.NONE
    for number in range(9):
        txn.write("t", (b"live " if number % 3 == 2 else b"dead ") * 120_000, 0)
        assert txn.end(number % 3 == 2) == ErrorCode.NONE
    broker.wait(CHECKPOINTED_S)


@pytest.fixture
def client():
    with SimulatedBroker(BrokerSettings(log_segment_bytes=1 << 20)) as broker:
        fill(broker)
        yield SimulatedClient(broker)


@pytest.fixture
def acting():
    """A user of a broker with an authorizer: root, until a test makes it alice, who may only read topic t."""
    with SimulatedBroker(guarded(super_users="User:root", log_segment_bytes=1 << 20)) as broker:
        found = ActingUser(broker.broker, "root")
        fill(broker)
        broker.ask(creating("allow User:alice READ TOPIC = t"))
        found.client = SimulatedClient(broker)
        yield found


def delete_below(client, offset):
    asked = DeleteRecordsRequest.Topic.Partition(partition_index=0, offset=offset)
    topics = [DeleteRecordsRequest.Topic(name="t", partitions=[asked])]
    response = client.broker.ask(DeleteRecordsRequest(topics=topics, timeout_ms=1000))
    assert response.topics[0].partitions[0].error_code == ErrorCode.NONE


def slowly(client, request, version, meanwhile, until=None):
    """Send a request and delay its read from disk: first `meanwhile` is called, then CHECKPOINTED_S pass, or less if
    `until` returns true before. Returns the answer.
    """
    files, executor = client.broker.broker.store.open_files, client.broker.broker.read_executor
    for path in list(files._entries):
        files.forget(path)
    files.indexes.clear()
    held, submit = [], executor.submit
    executor.submit = lambda job, done, **how: held.append((job, done))
    client.send(request, version)
    client.broker.wait(BEGUN_S)
    assert len(held) == 1
    meanwhile()
    for _ in range(CHECKPOINTED_S):
        client.broker.wait(1)
        if until is not None and until():
            break
    del executor.submit
    submit(*held[0])
    return client.receive()


def seen(part):
    """Return the first four bytes of each record that a read_committed consumer would deliver."""
    found = []
    named = [(each.producer_id, each.first_offset) for each in part.aborted_transactions]
    for each in walk(memoryview(bytes_of(part))):
        dead = any(producer == each.producer_id and first == each.base_offset for producer, first in named)
        if not each.is_control and not dead:
            found += [record.value[:4] for record in records.records(each)]
    return found


def test_a_slow_fetch_of_dropped_segments_lists_their_aborted_transactions(client):
    """DeleteRecords drops the segments while a worker reads them; the log does not count them any more, but their
    files still exist.
    """
    log = client.broker.broker.topics.by_name["t"].partitions[0].log
    first = f"{log.directory}/{log.segments[0].stem}.log"
    request, dropped = fetch("t", 0, committed=True), lambda: log.segments[0].base_offset > 0
    part = fetched(slowly(client, request, NAMED, lambda: delete_below(client, 9), dropped))
    assert dropped()
    assert client.broker.disk.exists(first)
    assert part.error_code == ErrorCode.NONE
    assert bytes_of(part)
    assert b"dead" not in seen(part)


@pytest.mark.parametrize("committed", [False, True])
def test_a_fetch_from_below_a_log_start_moved_during_its_read_is_out_of_range(client, committed):
    part = fetched(slowly(client, fetch("t", 0, committed=committed), NAMED, lambda: delete_below(client, 9)))
    assert part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert client.broker.broker.topics.by_name["t"].partitions[0].log.offline is None


def test_a_fetch_above_a_log_start_moved_during_its_read_lists_aborted_transactions(client):
    """The index files of aborted transactions are gone, so the broker has to derive them from segments while earlier
    segments disappear.
    """
    log = client.broker.broker.topics.by_name["t"].partitions[0].log
    for name in client.broker.disk.list(log.directory):
        if name.endswith(".txnindex"):
            client.broker.disk.unlink(f"{log.directory}/{name}")
    part = fetched(slowly(client, fetch("t", 12, committed=True), NAMED, lambda: delete_below(client, 7)))
    assert part.error_code == ErrorCode.NONE
    assert bytes_of(part)
    assert b"dead" not in seen(part)
    assert log.offline is None


def test_a_fetch_whose_topic_is_deleted_during_its_read_is_refused(client):
    request = DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name="t")], timeout_ms=1000)
    part = fetched(slowly(client, fetch("t", 0), NAMED, lambda: client.broker.ask(request)))
    assert part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def read_by_alice(acting, offset, version, meanwhile, **more):
    """Fetch as alice; root does `meanwhile` before the read from disk. Returns the partition of the answer."""
    topic = acting.client.broker.broker.topics.by_name["t"]

    def by_root():
        acting.user = "root"
        meanwhile()

    acting.user = "alice"
    named = {"topic_id": topic.id} if version > NAMED else {"topic": "t"}
    return fetched(slowly(acting.client, fetch(**named, offset=offset, **more), version, by_root))


def forbid(client):
    client.broker.ask(deleting({"principal_filter": "User:alice"}))


@pytest.mark.parametrize("version", [NAMED, NAMED + 1])
@pytest.mark.parametrize("may_still", [True, False])
def test_a_slow_fetch_checks_the_right_to_read_again_before_it_answers(acting, version, may_still):
    """The first read has to be repeated because segments disappeared; the repeated read must not return records after
    the right was removed.
    """
    client = acting.client
    log = client.broker.broker.topics.by_name["t"].partitions[0].log
    for name in client.broker.disk.list(log.directory):
        if name.endswith(".txnindex"):
            client.broker.disk.unlink(f"{log.directory}/{name}")

    def meanwhile():
        delete_below(client, 7)
        if not may_still:
            forbid(client)

    part = read_by_alice(acting, 12, version, meanwhile, committed=True)
    assert part.error_code == (ErrorCode.NONE if may_still else ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert (bool(bytes_of(part)), part.high_watermark >= 0) == (may_still, may_still)


@pytest.mark.parametrize("version", [NAMED, NAMED + 1])
def test_a_reader_that_loses_its_right_does_not_learn_the_log_start(acting, version):
    def meanwhile():
        delete_below(acting.client, 9)
        forbid(acting.client)

    part = read_by_alice(acting, 0, version, meanwhile)
    assert (part.error_code, part.log_start_offset) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)


def test_a_reader_that_loses_its_right_does_not_learn_of_a_deletion(acting):
    def meanwhile():
        acting.client.broker.ask(DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name="t")], timeout_ms=1000))
        forbid(acting.client)

    part = read_by_alice(acting, 0, NAMED, meanwhile)
    assert part.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize("timestamp", [0, -3])
def test_list_offsets_by_time_skips_records_deleted_during_the_lookup(client, timestamp):
    response = slowly(client, list_offsets("t", timestamp), 11, lambda: delete_below(client, 9))
    part = response.topics[0].partitions[0]
    direct = client.ask(list_offsets("t", timestamp), 11).topics[0].partitions[0]
    assert part.error_code == ErrorCode.NONE
    assert (part.offset, part.timestamp) == (direct.offset, direct.timestamp)
    assert part.offset >= 9


def test_the_broker_prepares_few_answers_ahead_for_a_pipelining_client(client):
    """Each answer may take about 1 MiB of memory and none can be sent while the client does not read, so a second cold
    read does not begin.
    """
    files, executor = client.broker.broker.store.open_files, client.broker.broker.read_executor
    for path in list(files._entries):
        files.forget(path)
    files.indexes.clear()
    held, submit = [], executor.submit
    executor.submit = lambda job, done, **how: held.append((job, done, how))
    for _ in range(100):
        client.send(fetch("t", 0, partition_max_bytes=8 << 20, max_wait_ms=60_000), NAMED)
    client.broker.wait(BEGUN_S)
    assert len(held) == 1
    del executor.submit
    submit(held[0][0], held[0][1], **held[0][2])
    for _ in range(100):
        assert bytes_of(fetched(client.receive()))


def test_of_100_pipelined_fetches_only_a_limited_number_waits_at_a_time(client):
    for _ in range(100):
        client.send(fetch("t", 18, max_wait_ms=10_000), NAMED)
    client.broker.wait(BEGUN_S)
    assert len(client.broker.broker.waiting) == WAITING_BYTES // WAITING_FETCH_BYTES + 1
    client.broker.ask(produce("t", batch()))
    for _ in range(100):
        assert bytes_of(fetched(client.receive()))
