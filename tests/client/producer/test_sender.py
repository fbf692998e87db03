"""What a sender sends, and what it makes of every answer, on virtual time; the brokers say what they are told."""

import asyncio

import pytest
from fencepost.client.errors import (
    AbortableTransactionError,
    DeliveryTimeoutError,
    RecordTooLargeError,
    UnsupportedVersionError,
)
from fencepost.client.values import ProducerIdentity
from fencepost.effects.simulated.loop import SimulatedLoop
from fencepost.protocol.errors import ErrorCode, KafkaError
from scripted_cluster import ScriptedCluster

BUSY = ErrorCode.NOT_ENOUGH_REPLICAS
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
UNKNOWN_PRODUCER = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.PRODUCER_FENCED)
HANDLED_OTHERWISE = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER, OUT_OF_ORDER, *UNKNOWN_PRODUCER)
TOPIC_ID = bytes(range(16))


@pytest.fixture
def world():
    loop = SimulatedLoop()
    yield lambda **more: ScriptedCluster(loop, **more)
    loop.close()


def test_records_of_one_loop_turn_are_sent_in_one_request_to_each_broker(world):
    cluster = world(leaders=(1, 2, 1))
    cluster.inside(lambda: [cluster.append(partition) for partition in (0, 1, 2)])
    cluster.turn()
    assert [(sent.node_id, sorted(sent.bytes)) for sent in cluster.sent] == [
        (1, [("t", 0), ("t", 2)]),
        (2, [("t", 1)]),
    ]
    for sent in cluster.sent:
        sent.answer(offset=9)
    cluster.turn()
    assert not cluster.accumulator.incomplete
    assert cluster.sender.in_flight == 0


@pytest.mark.parametrize("version", range(3, 14))
def test_the_sender_uses_any_produce_version_the_broker_offers(world, version):
    cluster = world(version=version, topic_id=TOPIC_ID)
    delivery = cluster.put()
    sent = cluster.next()
    assert sent.version == version
    assert sent.request.topic_data[0].topic_id == (TOPIC_ID if version >= 13 else bytes(16))
    sent.answer(offset=4)
    assert cluster.result(delivery) == ("t", 0, 4, 5)


def test_the_sender_uses_produce_12_without_a_topic_id_and_11_with_transactions_v1(world):
    cluster = world(version=13)
    cluster.put()
    assert cluster.next().version == 12
    cluster = world(version=13, topic_id=TOPIC_ID)
    cluster.permission.cap = 11
    cluster.put()
    assert cluster.next().version == 11


@pytest.mark.requirement("S-40", "S-42")
def test_no_batch_is_sent_without_a_producer_id_or_while_sending_is_paused(world):
    cluster = world()
    identity, cluster.permission.given = cluster.permission.given, None
    cluster.put()
    assert not cluster.sent
    cluster.permission.given, cluster.permission.open = identity, False
    cluster.inside(cluster.sender.wake)
    cluster.turn()
    assert not cluster.sent
    assert not cluster.topic.partitions[0].entry.window, "it gets no sequence number before it may be sent"
    cluster.permission.open = True
    cluster.inside(cluster.sender.wake)
    assert cluster.next().batch().producer_id == 7
    assert cluster.permission.attempts == [("t", 0)]


def test_at_most_five_requests_are_on_their_way_to_a_broker(world):
    cluster = world(max_batch_size=1)
    cluster.introduce()
    deliveries = [cluster.put(b"%d" % n) for n in range(7)]
    assert [sent.batch().base_sequence for sent in cluster.sent] == [1, 2, 3, 4, 5]
    cluster.next().answer()
    assert len(cluster.sent) == 4
    cluster.turn()
    assert [sent.batch().base_sequence for sent in cluster.sent] == [2, 3, 4, 5, 6]
    assert [delivery.done() for delivery in deliveries] == [True] + [False] * 6


def test_a_request_does_not_exceed_max_request_size(world):
    cluster = world(leaders=(1, 1, 1), max_request_size=1000)
    cluster.inside(lambda: [cluster.append(partition, bytes(600)) for partition in range(3)])
    cluster.turn()
    assert [len(sent.bytes) for sent in cluster.sent] == [1, 1, 1]


@pytest.mark.requirement("S-43", "S-46")
def test_a_retriable_error_is_retried_with_the_same_bytes_after_a_back_off(world):
    cluster = world()
    delivery = cluster.put()
    waits, bytes_sent = [], set()
    for _ in range(6):
        sent = cluster.next()
        bytes_sent.add(sent.bytes["t", 0])
        sent.answer(BUSY)
        began = cluster.loop.time()
        while not cluster.sent:
            cluster.wait(0.01)
        waits.append(cluster.loop.time() - began)
    assert len(bytes_sent) == 1
    assert waits[0] >= 0.07
    assert waits[0] < waits[2] < waits[4] <= 1.25
    cluster.next().answer(offset=3)
    assert cluster.result(delivery).offset == 3


@pytest.mark.requirement("S-46")
def test_an_out_of_order_sequence_error_is_retried_until_the_delivery_timeout(world):
    cluster = world(delivery_timeout_ms=5_000)
    delivery = cluster.put()
    epochs = []
    while not delivery.done():
        while cluster.sent:
            sent = cluster.next()
            epochs.append((sent.batch().producer_epoch, sent.batch().base_sequence))
            sent.answer(OUT_OF_ORDER)
        cluster.wait(0.01)
    with pytest.raises(DeliveryTimeoutError) as failed:
        cluster.result(delivery)
    assert not failed.value.maybe_written
    assert epochs == [(n, 0) for n in range(len(epochs))], "each retry has a new epoch and begins at sequence 0"
    assert 5 <= len(epochs) <= 12  # in 5 s, with a back-off that grows to 1 s


@pytest.mark.requirement("S-44")
def test_if_the_second_of_five_requests_fails_the_rest_is_sent_again_in_order(world):
    cluster = world(max_batch_size=1)
    cluster.introduce()
    for n in range(5):
        cluster.put(b"%d" % n)
    requests = [cluster.next() for _ in range(5)]
    requests[0].answer()
    requests[1].answer(BUSY)
    for late in requests[2:]:
        late.answer(OUT_OF_ORDER)
    landed = []
    cluster.put(b"5")
    while len(landed) < 4:
        while not cluster.sent:
            cluster.wait(0.01)
        assert len(cluster.sent) == (1 if len(landed) < 3 else 2), "with the last retry, new ones go again"
        sent = cluster.next()
        landed += sent.values()
        sent.answer()
    assert [*landed, *cluster.next().values()] == [b"1", b"2", b"3", b"4", b"5"]


def test_librdkafka_4438_4736_after_a_cut_connection_the_same_bytes_are_sent_again(world):
    """librdkafka counted a batch without an answer as written (#4438), or rebuilt it with other records (#4736)."""
    cluster = world(max_batch_size=1)
    cluster.introduce()
    for n in range(3):
        cluster.put(b"%d" % n)
    first = [cluster.next() for _ in range(3)]
    for sent in first:
        sent.fail()
    again = []
    while len(again) < 3:
        while not cluster.sent:
            cluster.wait(0.01)
        again.append(cluster.next())
        again[-1].answer(ErrorCode.DUPLICATE_SEQUENCE_NUMBER if len(again) == 1 else 0)
    assert [sent.bytes for sent in again] == [sent.bytes for sent in first]


def test_a_duplicate_counts_as_delivered_at_an_unknown_offset(world):
    cluster = world()
    delivery = cluster.put()
    cluster.next().answer(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    assert cluster.result(delivery).offset == -1


@pytest.mark.requirement("S-07", "S-41")
@pytest.mark.parametrize("maybe", [True, False])
def test_maybe_written_of_a_delivery_timeout_says_if_a_request_was_sent(world, maybe):
    """The memory of the batch is free afterwards, and the next batch has a new epoch."""
    cluster = world(delivery_timeout_ms=1_000)
    delivery = cluster.put()
    while cluster.loop.time() < 0.9:
        while cluster.sent:
            cluster.sent.pop().fail(sent=maybe)
        cluster.wait(0.01)
    cluster.wait(0.5)
    with pytest.raises(DeliveryTimeoutError) as failed:
        cluster.result(delivery)
    assert failed.value.maybe_written is maybe
    assert ("may have been written" in str(failed.value)) is maybe
    assert cluster.accumulator.free_bytes == cluster.accumulator.memory_bytes
    cluster.sent.clear()
    after = cluster.put(b"after")
    sent = cluster.next().batch()
    assert (sent.producer_epoch, sent.base_sequence) == (1, 0)
    assert not after.done()


def test_a_success_after_the_delivery_timeout_makes_a_new_epoch_unnecessary(world):
    """The batch's error stays, but its sequence is known to be written: the next batch continues it."""
    cluster = world(delivery_timeout_ms=1_000)
    delivery = cluster.put()
    late = cluster.next()
    cluster.wait(1.5)
    with pytest.raises(DeliveryTimeoutError):
        cluster.result(delivery)
    late.answer(offset=77)
    cluster.put(b"after")
    sent = cluster.next().batch()
    assert (sent.producer_epoch, sent.base_sequence) == (0, 1)


def test_a_batch_that_is_too_large_is_split_and_every_record_delivered_once(world):
    cluster = world()
    placed = cluster.inside(lambda: [cluster.append(0, b"%d" % n) for n in range(4)])
    cluster.next().answer(ErrorCode.MESSAGE_TOO_LARGE)
    parts = []
    for offset in (10, 12):
        sent = cluster.next()
        parts.append((sent.batch().base_sequence, sent.values()))
        sent.answer(offset=offset)
    cluster.turn()
    assert parts == [(0, [b"0", b"1"]), (2, [b"2", b"3"])]
    assert [batch.metadata(index).offset for batch, index in placed] == [10, 11, 12, 13]


def test_a_single_too_large_record_fails_without_affecting_others(world):
    cluster = world()
    delivery = cluster.put()
    cluster.next().answer(ErrorCode.MESSAGE_TOO_LARGE)
    with pytest.raises(RecordTooLargeError):
        cluster.result(delivery)


@pytest.mark.slow
@pytest.mark.parametrize("code", [code for code in ErrorCode if not code.retriable and code not in HANDLED_OTHERWISE])
def test_a_permanent_error_fails_only_its_own_batch(world, code):
    cluster = world()
    delivery = cluster.put()
    cluster.next().answer(code)
    with pytest.raises(KafkaError) as failed:
        cluster.result(delivery)
    assert failed.value.code is code
    assert [partition for partition, _ in cluster.permission.failures] == [("t", 0)]
    after = cluster.put(b"after")
    sent = cluster.next()
    assert (sent.batch().producer_epoch, sent.batch().base_sequence) == (1, 0)
    sent.answer(offset=1)
    assert cluster.result(after).offset == 1


@pytest.mark.parametrize("code", [code for code in ErrorCode if code.retriable])
def test_a_batch_is_sent_again_after_a_retriable_error_and_metadata_is_marked_stale(world, code):
    cluster = world()
    delivery = cluster.put()
    cluster.next().answer(code)
    cluster.wait(0.3)
    cluster.next().answer(offset=2)
    assert cluster.result(delivery).offset == 2
    assert cluster.stale_codes == [code]


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED])
def test_an_idempotent_producer_whose_epoch_is_refused_asks_for_a_new_id(world, code):
    cluster = world()
    delivery = cluster.put()
    cluster.next().answer(code)
    cluster.wait(0.3)
    assert cluster.permission.renewed == 1
    assert not cluster.sent
    cluster.permission.given = ProducerIdentity(8, 0)
    cluster.inside(cluster.sender.wake)
    sent = cluster.next()
    assert (sent.batch().producer_id, sent.batch().base_sequence) == (8, 0)
    sent.answer()
    cluster.result(delivery)


def test_a_retry_goes_to_the_partitions_new_leader(world):
    cluster = world(leaders=(1,))
    cluster.put()
    cluster.next().answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    cluster.lead((None,))
    cluster.wait(0.3)
    assert not cluster.sent
    assert cluster.refreshes
    cluster.lead((2,))
    assert cluster.next().node_id == 2


def test_librdkafka_1_9_a_retry_to_a_recreated_topic_keeps_its_sequence(world):
    """Before librdkafka 1.9, sequences began again at 0, and the broker took new batches for duplicates."""
    cluster = world(version=13, topic_id=TOPIC_ID)
    cluster.put()
    cluster.next().answer()
    cluster.put()
    cluster.next().answer(ErrorCode.UNKNOWN_TOPIC_ID)
    cluster.lead((1,), bytes(reversed(TOPIC_ID)))
    cluster.wait(0.3)
    sent = cluster.next()
    assert sent.request.topic_data[0].topic_id == bytes(reversed(TOPIC_ID))
    assert sent.batch().base_sequence == 1


def test_requests_to_an_unreachable_broker_are_retried_until_it_is_reachable(world):
    cluster = world()
    cluster.up = False
    cluster.put()
    cluster.wait(3)
    assert not cluster.sent
    cluster.up = True
    cluster.wait(1.5)
    assert cluster.next().values() == [b"v"]


@pytest.mark.requirement("S-07")
def test_with_retries_1_a_delivery_raises_the_error_of_the_second_attempt(world):
    cluster = world(retries=1)
    delivery = cluster.put()
    cluster.next().answer(BUSY)
    cluster.wait(0.3)
    cluster.next().answer(BUSY)
    with pytest.raises(KafkaError) as failed:
        cluster.result(delivery)
    assert failed.value.code is BUSY


def test_a_throttle_time_pauses_requests_to_that_broker_only(world):
    cluster = world(leaders=(1, 2))
    cluster.put(partition=0)
    cluster.next().answer(throttle_ms=500)
    cluster.put(partition=0)
    cluster.put(partition=1)
    assert [sent.node_id for sent in cluster.sent] == [2]
    cluster.wait(0.4)
    assert len(cluster.sent) == 1
    cluster.wait(0.2)
    assert [sent.node_id for sent in cluster.sent] == [2, 1]


def test_a_batch_whose_partition_is_missing_in_the_answer_is_sent_again(world):
    cluster = world()
    cluster.put()
    sent = cluster.next()
    sent.request.topic_data.clear()
    sent.answer()
    cluster.wait(0.3)
    assert cluster.next().bytes == sent.bytes


def test_acks_0_deliveries_have_no_offset(world):
    cluster = world(acks=0, enable_idempotence=False)
    delivery = cluster.put()
    sent = cluster.next()
    assert (sent.request.acks, sent.batch().producer_id) == (0, -1)
    assert cluster.result(delivery).offset == -1


def test_acks_1_without_idempotence_has_no_sequences(world):
    cluster = world(acks=1, enable_idempotence=False)
    delivery = cluster.put()
    sent = cluster.next()
    assert (sent.request.acks, sent.batch().base_sequence) == (1, -1)
    sent.answer(offset=5)
    assert cluster.result(delivery).offset == 5


def test_zstd_on_a_broker_without_it_raises_an_error_naming_zstd(world):
    cluster = world(version=6)
    cluster.accumulator._codec = 4
    delivery = cluster.put()
    with pytest.raises(UnsupportedVersionError, match="zstd"):
        cluster.result(delivery)


def test_records_within_linger_ms_share_a_batch_and_flush_sends_it_at_once(world):
    cluster = world(linger_ms=50)
    cluster.put(b"1")
    cluster.put(b"2")
    assert not cluster.sent
    cluster.wait(0.06)
    first = cluster.next()
    assert first.values() == [b"1", b"2"]
    first.answer()
    cluster.put(b"3")
    flushing = cluster.loop.create_task(cluster.sender.flush())
    cluster.turn()
    assert not flushing.done()
    cluster.next().answer()
    cluster.turn()
    assert flushing.done()


def test_in_a_transaction_batches_refused_as_out_of_order_fail_without_a_retry(world):
    """The next transaction begins at sequence 0 of a new epoch."""
    cluster = world(transactional_id="x", max_batch_size=1)
    first, second = cluster.put(b"1"), cluster.put(b"2")
    requests = [cluster.next(), cluster.next()]
    assert requests[0].request.transactional_id == "x"
    assert requests[0].batch().is_transactional
    requests[1].answer(OUT_OF_ORDER)
    cluster.turn()
    requests[0].answer(OUT_OF_ORDER)
    for delivery in (first, second):
        with pytest.raises(AbortableTransactionError):
            cluster.result(delivery)
    assert len(cluster.permission.failures) == 2
    assert cluster.sender.sequences.is_broken
    cluster.loop.run_until_complete(asyncio.wait_for(cluster.sender.settle(), 1))
    cluster.permission.given = ProducerIdentity(7, 1)
    cluster.put(b"next transaction")
    assert (cluster.sent[-1].batch().producer_epoch, cluster.sent[-1].batch().base_sequence) == (1, 0)


def test_an_unanswered_batch_of_an_ended_transaction_is_not_sent_in_the_next(world):
    cluster = world(transactional_id="x")
    delivery = cluster.put(b"old")
    late = cluster.next()
    cluster.permission.given = ProducerIdentity(7, 1)
    cluster.put(b"new")
    with pytest.raises(DeliveryTimeoutError):
        cluster.result(delivery)
    late.fail()
    cluster.wait(1)
    assert [sent.values() for sent in cluster.sent] == [[b"new"]]
    assert not cluster.permission.failures


def test_dropping_unsent_batches_keeps_those_in_flight(world):
    cluster = world()
    on_its_way = cluster.put(b"sent")
    sent = cluster.next()
    cluster.permission.open = False
    waiting = cluster.put(b"waiting")
    cluster.sender.drop_unsent(KafkaError(ErrorCode.TRANSACTION_ABORTABLE))
    with pytest.raises(KafkaError, match="TRANSACTION_ABORTABLE"):
        cluster.result(waiting)
    assert not on_its_way.done()
    settling = cluster.loop.create_task(cluster.sender.settle())
    cluster.turn()
    assert not settling.done()
    sent.answer()
    cluster.result(on_its_way)
    cluster.turn()
    assert settling.done()


def test_cve_2026_35554_bytes_of_an_expired_request_are_not_overwritten(world):
    """CVE-2026-35554: after an expiry, memory that was still being written to the socket was given to another batch."""
    cluster = world(delivery_timeout_ms=1_000, leaders=(1, 1), buffer_memory=1 << 16)
    cluster.put(b"first" * 100, partition=0)
    request = cluster.next()
    view = request.request.topic_data[0].partition_data[0].records
    before = bytes(view)
    cluster.wait(1.5)
    for _ in range(20):
        cluster.put(b"other" * 100, partition=1)
        cluster.next().answer()
    assert bytes(view) == before
    assert request.values() == [b"first" * 100]


def test_cancelling_one_awaiter_of_a_delivery_does_not_affect_another(world):
    cluster = world()
    delivery = cluster.put()

    async def wait():
        return await delivery

    tasks = [cluster.loop.create_task(wait()) for _ in range(2)]
    cluster.turn()
    tasks[0].cancel()
    cluster.turn()
    cluster.next().answer(offset=1)
    cluster.turn()
    assert tasks[1].result().offset == 1


def test_closing_the_sender_fails_unanswered_deliveries_at_once(world):
    cluster = world()
    delivery = cluster.put()
    cluster.sender.close(KafkaError(ErrorCode.NETWORK_EXCEPTION, "closed"))
    with pytest.raises(KafkaError, match="closed"):
        cluster.result(delivery)
    cluster.next().answer()  # a late answer raises nothing
    cluster.turn()
