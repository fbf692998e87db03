"""Batches that take long to look into: a worker does it, the connection keeps its order, everybody else goes on."""

import math
from itertools import count

import pytest
from fencepost.broker.topics.decompression_budget import FAILURE_COSTS_BYTES, LEAST_BYTES, RATIO
from fencepost.broker.topics.partition import BYTES_LIKE_A_RECORD, FEW_RECORDS, Partition
from fencepost.protocol.batches import walk
from fencepost.protocol.compression import Codec, compress
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.configs import IncrementalAlterConfigsRequest
from fencepost.protocol.messages.topics import DeleteTopicsRequest
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
from raw_batches import batch as raw_batch
from raw_batches import record
from simulated_client import SimulatedClient
from slow_workers import SlowWorkers

OK = ErrorCode.NONE
MANY = FEW_RECORDS + 1
HOUR_MS = 3_600_000


@pytest.fixture
def workers(broker):
    broker.ask(create("keys", 2, cleanup_policy="compact"))
    broker.broker.records_executor = SlowWorkers()
    return broker.broker.records_executor


@pytest.fixture
def client(broker, workers):
    return SimulatedClient(broker)


def long(sequence: int | None = None, count: int = MANY, **more) -> bytes:
    """Return a batch with more records than the loop looks into itself."""
    return batch(count, key=b"k", **more) if sequence is None else idempotent(sequence, count, key=b"k", **more)


def begun(client: SimulatedClient, workers: SlowWorkers, *requests) -> None:
    """Send the requests, and check that a worker has the first."""
    for request in requests:
        client.send(request)
    client.broker.wait(0.1)
    assert len(workers.waiting) == 1


def finish(client: SimulatedClient, workers: SlowWorkers) -> None:
    workers.run_one()
    client.broker.wait(0.1)


def offsets(broker, topic: str = "keys") -> list[tuple[int, int]]:
    sent = bytes_of(fetched(SimulatedClient(broker).ask(fetch(topic, partition_max_bytes=8 << 20), 11)))
    return [(found.base_offset, found.record_count) for found in walk(memoryview(sent))]


@pytest.mark.slow
def test_produce_requests_of_a_connection_are_appended_in_the_order_sent(broker, client, workers):
    begun(client, workers, *(produce("keys", sent) for sent in (long(0), idempotent(MANY, key=b"k"), long(MANY + 1))))
    client.send(list_offsets("keys", -1))
    assert client.quiet()
    finish(client, workers)
    assert len(workers.waiting) == 1  # the third, after the second was answered
    assert [answers(client.receive()) for _ in range(2)] == [[(OK, 0)], [(OK, MANY)]]
    assert client.quiet()
    finish(client, workers)
    assert answers(client.receive()) == [(OK, MANY + 1)]
    assert client.receive().topics[0].partitions[0].error_code == OK
    assert offsets(broker) == [(0, MANY), (MANY, 1), (MANY + 1, MANY)]


def test_a_retry_pipelined_after_its_first_attempt_is_answered_as_duplicate(broker, client, workers):
    begun(client, workers, produce("keys", long(0)), produce("keys", long(0)))
    finish(client, workers)
    finish(client, workers)
    assert [answers(client.receive()) for _ in range(2)] == [[(OK, 0)], [(OK, 0)]]
    assert offsets(broker) == [(0, MANY)]


def test_other_clients_are_served_while_a_worker_checks_records(broker, client, workers):
    begun(client, workers, produce("keys", long()))
    other = SimulatedClient(broker)
    assert answers(other.ask(produce("keys", batch(key=b"k")))) == [(OK, 0)]
    finish(client, workers)
    assert answers(client.receive()) == [(OK, 1)]


def test_each_partition_of_a_produce_checked_by_a_worker_gets_its_own_error_code(client, workers):
    begun(client, workers, produce("keys", long(), batch(MANY), long()))
    finish(client, workers)
    (response,) = client.receive().responses
    assert [part.error_code for part in response.partition_responses] == [
        OK,
        ErrorCode.INVALID_RECORD,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    named = response.partition_responses[1]
    assert [error.batch_index for error in named.record_errors] == list(range(100))
    assert named.error_message.startswith(f"{MANY} records, of which 100 are listed, are refused")


@pytest.mark.parametrize(("acks", "written"), [(0, [(0, MANY)]), (1, []), (-1, [])])
def test_a_produce_of_a_disconnected_client_is_appended_only_with_acks_0(broker, client, workers, acks, written):
    begun(client, workers, produce("keys", long(), acks=acks))
    client.close()
    finish(client, workers)
    assert offsets(broker) == written
    assert not broker.broker.metrics.failures


def test_a_disconnect_stops_the_remaining_work_of_its_produce_request(broker, client, workers, monkeypatch):
    """The client disconnects while the first of two batches is checked: the second is not checked, and none is
    appended.
    """
    seen = []

    def accept(self, *arguments):
        seen.append(self.index)
        client.close()
        return real(self, *arguments)

    real = Partition.accept
    monkeypatch.setattr(Partition, "accept", accept)
    begun(client, workers, produce("keys", long(), long()))
    finish(client, workers)
    assert seen == [0]
    assert offsets(broker) == []


def test_record_checks_of_two_connections_are_queued_for_workers_separately(broker, client, workers):
    other = SimulatedClient(broker)
    begun(client, workers, produce("keys", long()))
    other.send(produce("keys", long()))
    broker.wait(0.1)
    assert len(set(workers.owners)) == 2
    finish(client, workers)
    finish(client, workers)
    assert answers(client.receive()) + answers(other.receive()) == [(OK, 0), (OK, MANY)]


def test_acks_0_requests_keep_their_order_and_get_no_reply(client, workers):
    client.send_unanswered(produce("keys", long(), acks=0))
    begun(client, workers, produce("keys", batch(key=b"k")))
    finish(client, workers)
    assert answers(client.receive()) == [(OK, MANY)]


def test_an_error_with_acks_0_closes_the_connection_and_drops_later_requests(broker, client, workers):
    client.send_unanswered(produce("keys", batch(MANY), acks=0))
    begun(client, workers, produce("keys", batch(key=b"k")))
    finish(client, workers)
    assert client.closed()
    assert offsets(broker) == []


def delete(name: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name=name)], timeout_ms=1000)


def test_a_topic_deleted_while_a_worker_checks_its_records_is_unknown(broker, client, workers):
    begun(client, workers, produce("keys", long()))
    broker.ask(delete("keys"))
    finish(client, workers)
    assert answers(client.receive()) == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]


def test_records_are_checked_again_if_their_topic_is_recreated_during_their_check(broker, client, workers):
    begun(client, workers, produce("keys", batch(MANY)))
    broker.ask(delete("keys"))
    broker.ask(create("keys"))
    finish(client, workers)
    assert answers(client.receive()) == [(OK, 0)]


def test_records_are_checked_again_if_topic_settings_change_during_their_check(broker, client, workers):
    begun(client, workers, produce("keys", long(timestamp=EARLY_MS - HOUR_MS)))
    change = IncrementalAlterConfigsRequest.Resource.Config(
        name="message.timestamp.before.max.ms", config_operation=0, value="1000"
    )
    topic = IncrementalAlterConfigsRequest.Resource(resource_type=2, resource_name="keys", configs=[change])
    broker.ask(IncrementalAlterConfigsRequest(resources=[topic]))
    finish(client, workers)
    assert client.quiet()
    finish(client, workers)  # once more, by the new rules
    assert answers(client.receive()) == [(ErrorCode.INVALID_TIMESTAMP, -1)]


def test_a_halt_while_a_worker_checks_records_leaves_the_request_unanswered(broker, client, workers):
    begun(client, workers, produce("keys", long()))
    broker.broker.rounds.halt(OSError(5, "gone"))
    finish(client, workers)
    with pytest.raises(ConnectionError):
        client.receive()
    assert broker.broker.topics.by_name["keys"].partitions[0].log.end_offset == 0
    assert not broker.broker.metrics.failures


def test_a_broker_stopped_while_a_worker_checks_records_does_not_append_them(broker, client, workers):
    begun(client, workers, produce("keys", long()))
    with broker.again() as successor:
        assert successor.broker.halted is None
        assert offsets(successor) == []


def test_an_exception_in_a_worker_is_reported_as_a_bug(broker, client, workers, monkeypatch):
    begun(client, workers, produce("keys", long()), produce("keys", batch(key=b"k")))
    partition = broker.broker.topics.by_name["keys"].partitions[0]
    monkeypatch.setattr(type(partition), "_accept_by_rules", lambda *_: 1 / 0)
    # Only the worker's job raises; what the loop does with its result does not.
    workers_job, done = workers.waiting[0]
    workers.waiting[0] = (workers_job, lambda result: (monkeypatch.undo(), done(result)))
    finish(client, workers)
    ((part,),) = (topic.partition_responses for topic in client.receive().responses)
    assert part.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert answers(client.receive()) == [(OK, 0)]
    assert [type(each) for each in broker.broker.metrics.failures] == [ZeroDivisionError]


def packed(number: int, **more) -> bytes:
    """Return a compressed batch of `number` keyed records, which is small because they are alike."""
    payload = b"".join(record(index, 0, key=b"k", **more) for index in range(number))
    return zstd_batch(compress(Codec.ZSTD, payload), number)


def zstd_batch(payload: bytes, number: int = 1) -> bytes:
    return raw_batch(payload, records=number, attributes=Codec.ZSTD, base_timestamp=EARLY_MS, max_timestamp=EARLY_MS)


ONE_RECORD = packed(1)
ENOUGH_BYTES = bytes(BYTES_LIKE_A_RECORD * FEW_RECORDS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "sent", "is_long"),
    [
        ({"cleanup_policy": "compact"}, long(), True),
        ({"cleanup_policy": "compact"}, long(count=FEW_RECORDS), False),
        ({"cleanup_policy": "compact"}, batch(key=b"k", value=ENOUGH_BYTES), False),
        ({"cleanup_policy": "compact"}, ONE_RECORD, True),
        ({"compression_type": "gzip"}, batch(value=ENOUGH_BYTES), True),
        ({"compression_type": "gzip"}, batch(value=ENOUGH_BYTES, codec=1), False),
        ({"compression_type": "gzip"}, ONE_RECORD, True),
        ({"compression_type": "gzip"}, batch(), False),
        ({"compression_type": "uncompressed"}, batch(value=bytes(400_000), codec=4), True),
        ({"message_timestamp_before_max_ms": HOUR_MS}, long(), True),
        ({"message_timestamp_before_max_ms": HOUR_MS}, ONE_RECORD, True),
        ({"message_timestamp_type": "LogAppendTime"}, long(), False),
        ({"message_timestamp_type": "LogAppendTime"}, ONE_RECORD, False),
        ({}, long(), False),
        ({}, ONE_RECORD, False),
        ({}, long(timestamp=EARLY_MS + 2 * HOUR_MS), True),
        ({}, batch(timestamp=EARLY_MS + 2 * HOUR_MS, codec=4), True),
        ({"message_timestamp_type": "LogAppendTime"}, long(timestamp=EARLY_MS + 2 * HOUR_MS), False),
        ({"cleanup_policy": "compact"}, b"short", False),
    ],
    ids=count(),
)
def test_only_batches_whose_check_takes_long_are_given_to_a_worker(broker, config, sent, is_long):
    """Long are: looking into many records (for keys or timestamps), compressing many bytes, and anything inside a batch
    that comes compressed, because its size is not known. A batch of which only the header is checked is never long.
    """
    broker.ask(create("t", **config))
    partition = broker.broker.topics.by_name["t"].partitions[0]
    work = partition.work_inside(memoryview(sent), broker.broker.clock.now_ms())
    assert (work > FEW_RECORDS) is is_long


def test_many_small_batches_of_one_request_together_are_given_to_a_worker(broker, client, workers):
    broker.ask(create("many", 3, cleanup_policy="compact"))
    part = batch(FEW_RECORDS // 2, key=b"k")
    assert answers(client.ask(produce("many", part, part))) == [(OK, 0)] * 2
    begun(client, workers, produce("many", part, part, part))
    finish(client, workers)
    assert answers(client.receive()) == [(OK, FEW_RECORDS // 2)] * 2 + [(OK, 0)]


def test_a_negative_record_count_does_not_reduce_the_work_of_other_batches(client, workers):
    """The batch header has a record count below zero; the sum of the counts still sends the other batch to a worker."""
    negative = bytearray(batch(key=b"k"))
    negative[57:61] = (-MANY).to_bytes(4, "big", signed=True)
    begun(client, workers, produce("keys", bytes(negative), long()))
    finish(client, workers)
    assert [error for error, _ in answers(client.receive())] == [ErrorCode.CORRUPT_MESSAGE, OK]


# ---- how much one request may have decompressed ------------------------------------------------------------------


def test_a_request_of_many_small_batches_that_decompress_to_much_is_refused_in_part(broker, client, workers):
    """Ten batches of 6 KB decompress to 6 MB each: two are accepted, eight get MESSAGE_TOO_LARGE."""
    broker.ask(create("many", 10, cleanup_policy="compact"))
    sent = packed(1, value=bytes(6_000_000))
    assert len(sent) < 10_000
    begun(client, workers, produce("many", *[sent] * 10))
    finish(client, workers)
    (parts,) = (topic.partition_responses for topic in client.receive().responses)
    assert [part.error_code for part in parts] == [OK] * 2 + [ErrorCode.MESSAGE_TOO_LARGE] * 8
    assert f"{RATIO * LEAST_BYTES} bytes" in parts[-1].error_message
    assert "batch.size" in parts[-1].error_message
    assert broker.broker.topics.by_name["many"].partitions[2].log.end_offset == 0


def test_a_batch_whose_header_claims_millions_of_records_is_refused_undecompressed(client, workers, monkeypatch):
    sent = zstd_batch(b"small", LEAST_BYTES + 1)
    name = "fencepost.broker.topics.decompression_budget.payload_of"
    monkeypatch.setattr(name, lambda *_: pytest.fail("decompressed"))
    begun(client, workers, produce("keys", sent))
    finish(client, workers)
    (part,) = client.receive().responses[0].partition_responses
    assert part.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert f"{LEAST_BYTES} records" in part.error_message


def test_corrupt_batches_use_up_the_decompression_budget_and_the_rest_are_too_large(broker, client, workers):
    broker.ask(create("many", 40, cleanup_policy="compact"))
    broken = zstd_batch(b"no zstd")
    begun(client, workers, produce("many", *[broken] * 40))
    finish(client, workers)
    found = [error for error, _ in answers(client.receive())]
    refused = found.index(ErrorCode.MESSAGE_TOO_LARGE)
    assert refused == math.ceil(RATIO * LEAST_BYTES / FAILURE_COSTS_BYTES)
    assert found == [ErrorCode.CORRUPT_MESSAGE] * refused + [ErrorCode.MESSAGE_TOO_LARGE] * (40 - refused)


@pytest.mark.slow
def test_a_batch_that_compresses_well_is_accepted(client, workers):
    """15 MB of records in one batch that is far smaller when compressed are within the decompression budget."""
    sent = packed(15_000, value=bytes(range(256)) * 4)
    assert len(sent) < LEAST_BYTES // 4
    begun(client, workers, produce("keys", sent))
    finish(client, workers)
    assert answers(client.receive()) == [(OK, 0)]
