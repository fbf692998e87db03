"""A byte of a segment is not what was written: no consumer reads past it, whether it checks CRCs itself or not."""

import logging

import pytest
from fencepost.protocol.batches import walk
from fencepost.protocol.errors import ErrorCode
from produce_requests import batch, bytes_of, create, fetch, fetched, produce
from simulated_client import SimulatedClient

NAMED = 12  # the newest version that names topics


@pytest.fixture
def client(broker):
    """A client, and a topic with two partitions, each with 20 batches of three records, in segments."""
    broker.ask(create("t", 2))
    client = SimulatedClient(broker)
    for _ in range(20):
        for partition in range(2):
            client.ask(produce("t", batch(3, value=b"as it was written"), partition=partition), 9)
    broker.wait(30)  # long enough to be flushed and checkpointed
    return client


def log_of(client, partition=0):
    log = client.broker.broker.topics.by_name["t"].partitions[partition].log
    assert log.flushed_offset == 60
    return log


def damage(client, number):
    """Flip one bit in the last byte of batch `number`. Returns the file, and the position at which the batch begins."""
    log = log_of(client)
    path = f"{log.directory}/{log.segments[0].stem}.log"
    file = client.broker.broker.store.disk.open(path)
    sizes = [found.size for found in walk(memoryview(file.read(file.size(), 0)))]
    position = sum(sizes[: number + 1]) - 1
    file.write([bytes([file.read(1, position)[0] ^ 4])], position)
    file.close()
    return path, sum(sizes[:number])


@pytest.mark.parametrize("offset", [0, 30, 31])
@pytest.mark.parametrize("loaded", [True, False])
def test_a_fetch_that_meets_a_flipped_bit_gets_a_storage_error_and_logs_its_position(client, caplog, offset, loaded):
    """The partition is offline then: later fetches and produces get KAFKA_STORAGE_ERROR, too. loaded: the segment's
    index is in memory.
    """
    path, position = damage(client, 10)
    log = log_of(client)
    if not loaded:
        client.broker.broker.store.open_files.indexes.drop(f"{log.directory}/{log.segments[0].stem}")
    with caplog.at_level(logging.ERROR):
        part = fetched(client.ask(fetch("t", offset), NAMED))
    assert part.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert bytes_of(part) == b""
    assert log.offline == f"{path}: at byte {position}: the CRC of the batch does not match"
    assert log.offline in caplog.text
    assert fetched(client.ask(fetch("t", 0), NAMED)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    produced = client.ask(produce("t", batch(1)), 9)
    assert produced.responses[0].partition_responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_damaged_partition_does_not_affect_others_in_the_same_fetch(client):
    damage(client, 0)
    request = fetch("t")
    request.topics[0].partitions.append(fetch("t", partition=1).topics[0].partitions[0])
    (topic,) = client.ask(request, NAMED).responses
    assert [part.error_code for part in topic.partitions] == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]
    assert len(list(walk(memoryview(bytes_of(topic.partitions[1]))))) == 20
    assert log_of(client, 1).offline is None


def test_a_fetch_that_ends_before_damaged_bytes_succeeds(client):
    damage(client, 10)
    part = fetched(client.ask(fetch("t", 0, max_bytes=200), NAMED))
    assert part.error_code == ErrorCode.NONE
    assert log_of(client).offline is None
