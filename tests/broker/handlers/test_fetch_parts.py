"""Fetch answers with parts of files, on simulated connections: each part is released, whatever becomes of the fetch."""

import gc

import pytest
from fencepost.broker.net.connection import WAITING_BYTES
from fencepost.broker.requests import running_fetch
from fencepost.protocol.batches import walk
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.fetch import FetchRequest
from fencepost.storage.log.file_parts import FilePart
from produce_requests import batch, bytes_of, create, fetch, fetched, produce
from simulated_client import SimulatedClient
from small_parts import leave_small_parts, uses
from txn_client import Txn

pytestmark = pytest.mark.slow

NAMED = 12  # the newest version that names topics
VALUE = b"a value that takes some room" * 3
Topic, Part = FetchRequest.Topic, FetchRequest.Topic.Partition


@pytest.fixture
def found(monkeypatch):
    """The file parts that fetches have read, in order."""
    parts, look = [], running_fetch.read_as_file_part

    def read_as_file_part(*asked):
        slice_ = look(*asked)
        if slice_ is not None:
            parts.extend(one for one in slice_.buffers if isinstance(one, FilePart))
        return slice_

    monkeypatch.setattr(running_fetch, "read_as_file_part", read_as_file_part)
    return parts


@pytest.fixture
def client(broker, monkeypatch, found):
    """A client, and a topic with two partitions, each with 20 batches of three records, in segments that were read
    once, so that their indexes are in memory. At the end, every file part must be released, and no file in use.
    """
    leave_small_parts(monkeypatch)
    broker.ask(create("t", 2))
    client = SimulatedClient(broker)
    for number in range(20):
        for partition in range(2):
            client.ask(produce("t", batch(3, value=b"%d" % number + VALUE), partition=partition), 9)
    broker.wait(30)  # long enough to be flushed and checkpointed
    client.ask(both(), NAMED)
    assert not found
    yield client
    gc.collect()
    assert all(part._opened is None for part in found)
    assert uses(files_of(client)) == 0


def files_of(client):
    return client.broker.broker.store.open_files


def both(**more):
    parts = [Part(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in range(2)]
    return fetch(topics=[Topic(topic="t", partitions=parts)], **more)


def released(found):
    """Return whether each file part is released."""
    return [part._opened is None for part in found]


@pytest.mark.parametrize("version", range(4, NAMED + 1))
def test_a_fetch_from_file_parts_returns_the_segments_bytes_in_every_version(client, found, version):
    file = files_of(client)
    log = client.broker.broker.topics.by_name["t"].partitions[0].log
    with file.use(f"{log.directory}/{log.segments[0].stem}.log") as segment:
        whole = segment.read(segment.size(), 0)
    part = fetched(client.ask(fetch("t"), version))
    assert bytes_of(part) == whole
    assert released(found) == [True]


def test_file_parts_of_two_partitions_go_in_one_fetch_answer_and_are_then_released(client, found):
    (topic,) = client.ask(both(), NAMED).responses
    first, second = (bytes_of(part) for part in topic.partitions)
    assert [batch.last_offset for batch in walk(memoryview(first))][-1] == 59
    assert len(second) == len(first)
    assert released(found) == [True, True]


def test_a_waiting_fetch_releases_the_file_parts_it_has_read(client, found):
    client.send(fetch("t", max_wait_ms=5_000, min_bytes=1 << 20), NAMED)
    client.broker.wait(1)
    assert released(found) == [True]
    client.broker.ask(produce("t", batch(3)), 9)
    part = fetched(client.receive())
    assert [batch.base_offset for batch in walk(memoryview(bytes_of(part)))][:2] == [0, 3]
    assert released(found) == [True, True]


def test_a_fetch_that_is_woken_and_waits_again_releases_its_file_parts(client, found):
    client.send(fetch("t", committed=True, max_wait_ms=5_000, min_bytes=1 << 20), NAMED)
    client.broker.wait(1)
    broker = client.broker.broker
    broker.waiting.wake([broker.topics.by_name["t"].partitions[0].log])  # as records of an open transaction do
    assert released(found) == [True, True]


def test_a_client_that_disconnects_during_its_fetch_leaves_no_open_file_part(client, found):
    client.send(fetch("t", max_wait_ms=60_000, min_bytes=1 << 20), NAMED)
    client.close()
    client.broker.wait(1)
    assert released(found) == [True]


def test_a_disconnect_releases_the_file_parts_of_unfinished_and_unsent_fetches(client, found, monkeypatch):
    broker = client.broker.broker
    read = []
    monkeypatch.setattr(broker.read_executor, "submit", lambda run, done, **_: read.append((run, done)))
    monkeypatch.setattr(broker.store.disk, "is_cold", lambda path: "t-1" in path)
    client.send(both(max_bytes=WAITING_BYTES // 2), NAMED)  # with more, the second fetch would not begin
    client.send(fetch("t"), NAMED)
    client.broker.wait(1)
    assert released(found) == [False, False]
    client.close()
    client.broker.wait(1)
    assert released(found) == [False, True]
    ((run, done),) = read
    done(run())
    assert released(found) == [True, True]


def test_a_worker_reads_a_cold_partition_while_another_is_sent_from_a_file_part(client, found):
    broker = client.broker
    disk = broker.broker.store.disk
    disk.is_cold = lambda path: "t-1" in path
    before = broker.broker.metrics.cold_reads
    (topic,) = client.ask(both(), NAMED).responses
    assert broker.broker.metrics.cold_reads == before + 1
    assert len(found) == 1
    first, second = (bytes_of(part) for part in topic.partitions)
    assert len(first) == len(second)
    disk.is_cold = lambda path: False


def test_a_fetch_session_without_new_records_answers_empty_and_keeps_no_file_open(client, found):
    opened = client.ask(both(epoch=0), NAMED)
    assert [len(bytes_of(part)) > 1_000 for part in opened.responses[0].partitions] == [True, True]
    moved = [Part(partition=index, fetch_offset=60, partition_max_bytes=1 << 20) for index in range(2)]
    request = fetch(session_id=opened.session_id, epoch=1, topics=[Topic(topic="t", partitions=moved)])
    assert client.ask(request, NAMED).responses == []
    assert released(found) == [True, True]


def test_a_read_committed_fetch_from_a_file_part_has_an_empty_list_of_aborted_txns(client, found):
    part = fetched(client.ask(fetch("t", committed=True), NAMED))
    assert part.aborted_transactions == []
    assert len(found) == 1


def test_an_unreadable_file_part_closes_the_connection_and_takes_the_log_offline(client, found):
    broker = client.broker
    disk = broker.broker.store.disk
    struck = disk.fail(lambda one: "t-0" in one.path and type(one).__name__ == "Read", times=1)
    with pytest.raises(ConnectionError):
        client.ask(fetch("t"), NAMED)
    assert struck.hits == 1
    assert released(found) == [True]
    assert fetched(broker.ask(fetch("t"), NAMED)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert fetched(broker.ask(fetch("t", partition=1), NAMED)).error_code == ErrorCode.NONE


def test_a_file_part_of_a_lost_fetch_answer_is_released_at_the_next_use_of_a_file(client, found, monkeypatch):
    def broken(*_):
        raise RuntimeError("a bug")

    monkeypatch.setattr("fencepost.broker.requests.dispatch.encode_response", broken)
    # A logged exception would keep the file part alive.
    monkeypatch.setattr("fencepost.broker.requests.dispatch.log.disabled", True)
    with pytest.raises(ConnectionError):
        client.ask(fetch("t"), NAMED)
    monkeypatch.undo()
    client.broker.broker.metrics.failures.clear()
    found.clear()
    gc.collect()
    assert len(files_of(client)._abandoned) == 1
    with files_of(client).use("/anything", create=True):
        pass  # the fixture `client` checks afterwards that no file is in use


def test_a_file_part_is_released_when_its_aborted_transactions_are_unreadable(client, found):
    """The file part is in the first segment, the aborted transaction in the second, whose index is not in memory any
    more.
    """
    broker = client.broker
    broker.ask(create("long", segment_bytes=1 << 20))
    txn = Txn(broker, "x", 2)
    assert txn.init() == ErrorCode.NONE
    for number in range(20):
        client.ask(produce("long", batch(value=b"%02d" % number * 30_000)), 9)
    txn.write("long", b"y", 0)
    assert txn.end(False) == ErrorCode.NONE
    broker.wait(30)
    for offset in (0, 18):
        client.ask(fetch("long", offset), NAMED)
    log = broker.broker.topics.by_name["long"].partitions[0].log
    second = log.segments[1].stem
    files_of(client).indexes._loaded.pop(f"{log.directory}/{second}")
    struck = broker.broker.store.disk.fail(lambda one: second in one.path and type(one).__name__ == "Read", times=None)
    found.clear()
    part = fetched(client.ask(fetch("long", committed=True), NAMED))
    assert part.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert struck.hits, "neither the index nor the segment was read"
    assert released(found) == [True]
