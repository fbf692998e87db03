"""Produce as clients see it: what is written, what is refused with which error, and when a request is answered."""

import pytest
import raw_batches
from fencepost.broker.config.settings import BrokerSettings
from fencepost.protocol.batches import read, walk
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.protocol.records import Record, build, records
from produce_requests import (
    EARLY_MS,
    answers,
    batch,
    bytes_of,
    code,
    create,
    fetch,
    fetched,
    idempotent,
    list_offsets,
    one,
    produce,
)
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient
from txn_client import begun

OK = ErrorCode.NONE
HOUR_MS = 3_600_000


@pytest.fixture
def client(broker):
    broker.ask(create("t", 3))
    return SimulatedClient(broker)


def end_offset(client, topic="t", partition=0):
    return client.ask(list_offsets(topic, -1, partition=partition)).topics[0].partitions[0].offset


def stored(client, topic="t", version=11):
    return list(walk(memoryview(bytes_of(fetched(client.ask(fetch(topic), version))))))


@pytest.mark.slow
@pytest.mark.parametrize("version", range(3, 12))
@pytest.mark.parametrize("acks", [-1, 1])
def test_every_produce_version_returns_the_offset_of_the_first_record(client, version, acks):
    assert answers(client.ask(produce("t", batch(3), acks=acks), version)) == [(OK, 0)]
    assert answers(client.ask(produce("t", batch(2), acks=acks), version)) == [(OK, 3)]
    assert end_offset(client) == 5


@pytest.mark.requirement("S-23", "S-21", "C-1")
def test_a_duplicate_is_a_success_with_the_original_offset_and_is_not_written(client):
    first = produce("t", idempotent(0, 3))
    assert answers(client.ask(first)) == [(OK, 0)]
    assert answers(client.ask(produce("t", idempotent(3)))) == [(OK, 3)]
    assert answers(client.ask(first)) == [(OK, 0)]
    assert end_offset(client) == 4
    assert client.broker.broker.metrics.duplicates_refused == 1


@pytest.mark.requirement("S-22", "S-30")
def test_the_last_five_batches_are_recognised_as_duplicates_and_older_ones_are_not(client):
    for sequence in range(6):
        assert answers(client.ask(produce("t", idempotent(sequence)))) == [(OK, sequence)]
    assert [code(client.ask(produce("t", idempotent(sequence)))) for sequence in range(1, 6)] == [OK] * 5
    assert code(client.ask(produce("t", idempotent(0)))) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert end_offset(client) == 6


@pytest.mark.requirement("S-20", "S-34")
def test_a_sequence_gap_is_refused_and_nothing_is_written(client):
    client.ask(produce("t", idempotent(0)))
    assert code(client.ask(produce("t", idempotent(2)))) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert end_offset(client) == 1
    assert client.broker.broker.metrics.out_of_order == 1


@pytest.mark.requirement("S-29")
def test_after_the_highest_sequence_number_comes_zero(client):
    highest = 2**31 - 1
    assert code(client.ask(produce("t", idempotent(highest)))) == OK
    assert code(client.ask(produce("t", idempotent(0)))) == OK


@pytest.mark.requirement("S-28", "S-27", "C-3")
def test_a_newer_producer_epoch_starts_at_sequence_0_and_an_older_epoch_is_refused(client):
    client.ask(produce("t", idempotent(0)))
    assert code(client.ask(produce("t", idempotent(1, epoch=1)))) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code(client.ask(produce("t", idempotent(0, epoch=1)))) == OK
    assert code(client.ask(produce("t", idempotent(1, epoch=0)))) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert client.broker.broker.metrics.stale_epochs == 1


@pytest.mark.requirement("S-25", "C-2")
def test_an_unknown_producer_may_start_at_any_sequence_number(client):
    assert code(client.ask(produce("t", idempotent(500)))) == OK
    assert code(client.ask(produce("t", idempotent(501)))) == OK


@pytest.mark.requirement("S-26")
def test_a_strict_broker_refuses_an_unknown_producer_with_a_nonzero_sequence():
    with SimulatedBroker(BrokerSettings(producer_unknown_id_refuse=True)) as broker:
        broker.ask(create("t"))
        assert code(broker.ask(produce("t", idempotent(5)))) == ErrorCode.UNKNOWN_PRODUCER_ID
        assert code(broker.ask(produce("t", idempotent(0)))) == OK
        assert code(broker.ask(produce("t", idempotent(1)))) == OK


@pytest.mark.requirement("S-44", "S-32")
def test_batches_after_a_lost_batch_are_refused_and_retries_are_stored_in_order(client):
    for sequence in (0, 2, 3, 4):
        client.send(produce("t", idempotent(sequence)))
    got = [code(client.receive()) for _ in range(4)]
    assert got == [OK] + [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER] * 3
    for sequence in (1, 2, 3, 4):
        client.send(produce("t", idempotent(sequence)))
    assert [answers(client.receive()) for _ in range(4)] == [[(OK, offset)] for offset in (1, 2, 3, 4)]


@pytest.mark.requirement("S-04", "S-01")
def test_acks_0_gets_no_reply_and_the_next_request_gets_its_own_reply(client):
    client.send_unanswered(produce("t", batch(2), acks=0))
    assert client.quiet()
    assert end_offset(client) == 2


@pytest.mark.parametrize(("topic", "sent"), [("none", batch()), ("t", b"junk"), ("t", None)])
def test_an_error_with_acks_0_closes_the_connection(client, topic, sent):
    client.send_unanswered(produce(topic, sent, acks=0))
    assert client.closed()


def test_acks_other_than_minus_1_0_and_1_are_refused(client):
    assert code(client.ask(produce("t", batch(), acks=2))) == ErrorCode.INVALID_REQUIRED_ACKS
    assert end_offset(client) == 0


def test_produce_data_other_than_one_batch_of_magic_2_is_refused(client):
    assert code(client.ask(produce("t", batch() + batch()))) == ErrorCode.INVALID_RECORD
    assert code(client.ask(produce("t", b""))) == ErrorCode.INVALID_RECORD
    assert code(client.ask(produce("t", None))) == ErrorCode.INVALID_RECORD
    old = bytearray(batch())
    old[16] = 1
    assert code(client.ask(produce("t", bytes(old)))) == ErrorCode.INVALID_RECORD
    assert end_offset(client) == 0


def test_a_batch_with_a_wrong_checksum_is_refused(client):
    damaged = bytearray(batch())
    damaged[-1] ^= 1
    assert code(client.ask(produce("t", bytes(damaged)))) == ErrorCode.CORRUPT_MESSAGE


def test_zstd_is_refused_below_produce_version_7(client):
    packed = batch(5, codec=4)
    assert code(client.ask(produce("t", packed), 6)) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert code(client.ask(produce("t", packed), 7)) == OK


def test_clients_may_not_write_control_batches(client):
    marker = batch(producer_id=7, producer_epoch=0, base_sequence=0, control=True)
    assert code(client.ask(produce("t", marker))) == ErrorCode.INVALID_RECORD


def test_a_batch_above_max_message_bytes_is_refused_as_too_large(client):
    client.ask(create("small", max_message_bytes=200))
    assert code(client.ask(produce("small", batch(value=bytes(130))))) == OK
    assert code(client.ask(produce("small", batch(value=bytes(131))))) == ErrorCode.MESSAGE_TOO_LARGE


def test_a_batch_larger_than_a_segment_is_refused(client):
    client.ask(create("short", max_message_bytes=3_000_000, segment_bytes=1_048_576))
    assert code(client.ask(produce("short", batch(value=bytes(1_100_000))))) == ErrorCode.RECORD_LIST_TOO_LARGE


@pytest.mark.requirement("S-37")
def test_an_unknown_partition_is_refused_and_the_others_are_written(client):
    response = client.ask(produce("t", batch(), batch(), batch(), batch()))
    unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert answers(response) == [(OK, 0)] * 3 + [unknown]
    assert answers(client.ask(produce("none", batch()))) == [unknown]
    assert answers(client.ask(produce("t", batch(), partition=-1))) == [unknown]


@pytest.mark.requirement("S-35", "C-11")
def test_a_request_with_transactional_records_but_no_transactional_id_is_refused(client):
    in_transaction = idempotent(0, transactional=True)
    refused = (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)
    assert answers(client.ask(produce("t", batch(), in_transaction))) == [refused, refused]


def test_produce_with_a_transactional_id_never_initialized_is_refused(client):
    in_transaction = idempotent(0, transactional=True)
    assert code(client.ask(produce("t", in_transaction, transactional_id="x"))) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert end_offset(client) == 0


def test_produce_with_an_empty_transactional_id_is_refused(client):
    in_transaction = idempotent(0, transactional=True)
    assert code(client.ask(produce("t", in_transaction, transactional_id=""))) == ErrorCode.INVALID_REQUEST
    assert end_offset(client) == 0


@pytest.mark.requirement("S-24")
def test_a_batch_without_a_producer_id_is_never_deduplicated(client):
    same = produce("t", batch())
    assert [answers(client.ask(same)) for _ in range(3)] == [[(OK, 0)], [(OK, 1)], [(OK, 2)]]


# Timestamps, keys, codecs.


def test_a_timestamp_over_an_hour_ahead_is_refused_and_the_answer_names_its_record(client):
    now = client.broker.broker.clock.now_ms()
    ahead = build([Record(0, now, None, b""), Record(1, now + HOUR_MS + 60_000, None, b"")])
    refused = one(client.ask(produce("t", ahead)))
    assert refused.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in refused.record_errors] == [1]
    assert code(client.ask(produce("t", batch(timestamp=now + HOUR_MS - 1000)))) == OK


def test_records_older_than_message_timestamp_before_max_ms_are_refused(client):
    client.ask(create("fresh", message_timestamp_before_max_ms=60_000))
    now = client.broker.broker.clock.now_ms()
    old = build([Record(0, now, None, b""), Record(1, now - 120_000, None, b"")])
    refused = one(client.ask(produce("fresh", old)))
    assert refused.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in refused.record_errors] == [1]
    assert code(client.ask(produce("fresh", batch(timestamp=now)))) == OK
    assert code(client.ask(produce("fresh", batch(timestamp=-1)))) == OK


def test_a_produce_error_lists_the_first_100_records_with_bad_timestamps(client):
    """If there are more than 100, the error message says how many they are."""
    ahead = client.broker.broker.clock.now_ms() + 2 * HOUR_MS
    few, many = (one(client.ask(produce("t", batch(count, timestamp=ahead)))) for count in (100, 250))
    assert len(few.record_errors) == len(many.record_errors) == 100
    assert "named" not in few.error_message
    assert "250 of them, of which the first 100 are named" in many.error_message


@pytest.mark.slow
@pytest.mark.parametrize("claimed", [-1, EARLY_MS, 2**63 - 1])
@pytest.mark.parametrize("delta", [0, 5])
def test_a_base_timestamp_in_the_future_is_refused_even_if_the_maximum_is_valid(client, claimed, delta):
    """Kafka does the same: it trusts neither header field and looks at the records."""
    sent = raw_batches.batch(raw_batches.record(0, delta), base_timestamp=2**63 - 1, max_timestamp=claimed)
    refused = one(client.ask(produce("t", sent)))
    assert refused.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in refused.record_errors] == [0]


@pytest.mark.parametrize("claimed", [-1, EARLY_MS - 5])
def test_a_max_timestamp_below_the_records_timestamps_is_accepted(client, claimed):
    """Kafka accepts it too, because some clients leave the field at -1."""
    sent = raw_batches.batch(raw_batches.record(0, 0), base_timestamp=EARLY_MS, max_timestamp=claimed)
    assert code(client.ask(produce("t", sent))) == OK


def test_after_the_wall_clock_went_back_timestamps_are_checked_against_the_new_time(client):
    clock = client.broker.broker.clock
    now = clock.now_ms()
    assert code(client.ask(produce("t", batch(timestamp=now + HOUR_MS - 1000)))) == OK
    clock.jump_wall(-HOUR_MS)
    assert code(client.ask(produce("t", batch(timestamp=now + HOUR_MS - 1000)))) == ErrorCode.INVALID_TIMESTAMP
    assert code(client.ask(produce("t", batch(timestamp=now)))) == OK


def test_log_append_time_stamps_the_batch_and_is_in_the_answer(client):
    client.ask(create("stamped", message_timestamp_type="LogAppendTime"))
    now = client.broker.broker.clock.now_ms()
    part = one(client.ask(produce("stamped", batch(2, timestamp=5))))
    assert now <= part.log_append_time_ms <= now + 1000
    (found,) = stored(client, "stamped")
    assert found.is_log_append_time
    assert {record.timestamp for record in records(found)} == {part.log_append_time_ms}


def test_a_duplicate_with_log_append_time_returns_the_first_timestamp(client):
    client.ask(create("stamped", message_timestamp_type="LogAppendTime"))
    first = one(client.ask(produce("stamped", idempotent(0))))
    client.broker.wait(5)
    again = one(client.ask(produce("stamped", idempotent(0))))
    assert (again.base_offset, again.log_append_time_ms) == (first.base_offset, first.log_append_time_ms)


def test_a_batch_that_claims_log_append_time_is_refused_by_a_log_append_time_topic(client):
    client.ask(create("stamped", message_timestamp_type="LogAppendTime"))
    claimed = batch(log_append_time=EARLY_MS)
    assert code(client.ask(produce("stamped", claimed))) == ErrorCode.INVALID_TIMESTAMP
    assert code(client.ask(produce("t", claimed))) == OK
    assert not stored(client)[0].is_log_append_time


def test_a_record_without_a_key_is_refused_by_a_compacted_topic(client):
    client.ask(create("keys", cleanup_policy="compact"))
    keyless = build([Record(0, EARLY_MS, b"k", b""), Record(1, EARLY_MS, None, b"")])
    refused = one(client.ask(produce("keys", keyless)))
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in refused.record_errors] == [1]
    assert code(client.ask(produce("keys", batch(key=b"k")))) == OK


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "codec"), [("uncompressed", 0), ("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4)])
@pytest.mark.parametrize("sent", range(5))
def test_a_topic_with_compression_type_recompresses_batches(client, kind, codec, sent):
    client.ask(create("packed", compression_type=kind))
    assert code(client.ask(produce("packed", idempotent(0, 20, value=b"x" * 50, codec=sent)))) == OK
    (found,) = stored(client, "packed")
    assert found.codec == codec
    assert [record.value for record in records(found)] == [b"x" * 50] * 20
    assert answers(client.ask(produce("packed", idempotent(0, 20, value=b"x" * 50, codec=sent)))) == [(OK, 0)]


@pytest.mark.parametrize("codec", range(5))
def test_a_batch_is_stored_unchanged_except_for_offset_and_leader_epoch(client, codec):
    client.ask(produce("t", batch(3)))
    sent = batch(7, value=b"abc" * 30, codec=codec)
    client.ask(produce("t", sent))
    found = bytes(stored(client)[1].buffer)
    assert found[16:] == sent[16:]
    assert read(memoryview(found)).base_offset == 3


@pytest.mark.slow
def test_a_decompression_bomb_is_refused_if_the_topic_recompresses_batches(client):
    client.ask(create("packed", compression_type="lz4"))
    bomb = batch(value=bytes(64 << 20), codec=4)
    assert len(bomb) < 100_000
    assert code(client.ask(produce("packed", bomb))) == ErrorCode.MESSAGE_TOO_LARGE
    assert code(client.ask(produce("t", bomb))) == OK


# When a request is answered.


@pytest.mark.requirement("S-11")
def test_produce_is_answered_only_after_its_journal_entry_is_synced(client):
    client.ask(produce("t", batch()))
    before = client.broker.broker.store.synced_unit
    assert answers(client.ask(produce("t", batch()))) == [(OK, 1)]
    assert client.broker.broker.store.synced_unit > before


@pytest.mark.requirement("S-31")
def test_a_retried_batch_is_not_answered_before_its_first_attempt_is_durable(client):
    broker, other = client.broker.broker, SimulatedClient(client.broker, "other")
    rounds, held = broker.rounds, []
    executor, submit = rounds._executor, rounds._executor.submit
    executor.submit = lambda job, done: held.append((job, done))
    client.send(produce("t", idempotent(0)))
    assert client.quiet()
    other.send(produce("t", idempotent(0)))
    assert other.quiet()
    assert len(held) == 1
    executor.submit = submit
    submit(*held[0])
    assert answers(client.receive()) == [(OK, 0)]
    assert answers(other.receive()) == [(OK, 0)]
    assert end_offset(client) == 1


def test_an_out_of_order_error_waits_until_the_earlier_batches_are_durable(client):
    rounds, held = client.broker.broker.rounds, []
    executor, submit = rounds._executor, rounds._executor.submit
    executor.submit = lambda job, done: held.append((job, done))
    client.send(produce("t", idempotent(0)))
    client.send(produce("t", idempotent(5)))  # out of order only because the one before was accepted
    assert client.quiet()
    executor.submit = submit
    submit(*held[0])
    assert [code(client.receive()) for _ in range(2)] == [OK, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]


# Limits.


def test_a_nearly_full_disk_refuses_produce_with_not_enough_replicas(client):
    """A retriable error; records can be read, and written again once there is space."""
    store = client.broker.broker.store
    assert code(client.ask(produce("t", idempotent(0)))) == OK
    store.space_low = True
    refused = one(client.ask(produce("t", idempotent(1)), 8))
    assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert ErrorCode(refused.error_code).retriable
    assert "disk" in refused.error_message
    assert fetched(client.ask(fetch("t"), 11)).high_watermark == 1
    store.space_low = False
    assert answers(client.ask(produce("t", idempotent(1)))) == [(OK, 1)]
    assert client.broker.broker.store.space.refusals == 1


def test_a_refused_first_batch_cannot_be_overtaken_by_the_producers_next_batch(client):
    store = client.broker.broker.store
    store.space_low = True
    client.ask(produce("t", idempotent(0)))
    store.space_low = False
    assert code(client.ask(produce("t", idempotent(1)))) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code(client.ask(produce("t", idempotent(0)))) == OK


def test_a_batch_refused_at_the_limit_of_producers_is_not_overtaken_by_the_next():
    with SimulatedBroker(BrokerSettings(max_producer_ids=1)) as broker:
        broker.ask(create("t"))
        assert code(broker.ask(produce("t", idempotent(0)))) == OK
        assert code(broker.ask(produce("t", idempotent(0, producer_id=8)))) == ErrorCode.UNKNOWN_PRODUCER_ID
        broker.broker.live_settings.now = BrokerSettings()
        next_one = produce("t", idempotent(1, producer_id=8))
        assert code(broker.ask(next_one)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert code(broker.ask(produce("t", idempotent(0, producer_id=8)))) == OK
        assert code(broker.ask(next_one)) == OK


def test_a_batch_refused_for_its_transaction_is_not_overtaken_by_the_next_batch(broker, monkeypatch):
    def not_ready(*_):
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)

    broker.ask(create("t"))
    txn = begun(broker)
    assert txn.add("t", 0) == [OK]
    with monkeypatch.context() as turned_away:
        turned_away.setattr(broker.broker.admission, "admit_batch", not_ready)
        turned_away.setattr(broker.broker.admission, "goes_on", lambda *_: False)  # the fast path does not take it
        assert txn.send("t", b"first") == ErrorCode.CONCURRENT_TRANSACTIONS
    assert txn.send("t", b"second") == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [txn.send("t", b"first", sequence=0), txn.send("t", b"second")] == [OK, OK]


def test_a_full_log_tail_pauses_producers_but_not_readers_until_it_is_flushed():
    with SimulatedBroker(BrokerSettings(log_tail_max_bytes=1 << 20)) as broker:
        broker.ask(create("t"))
        producer, reader = SimulatedClient(broker), SimulatedClient(broker)
        executor, held = broker.broker._segments_executor, []
        submit, executor.submit = executor.submit, lambda job, done: held.append((job, done))
        sent = 0
        while not broker.broker.store.congested:
            producer.ask(produce("t", batch(value=bytes(100_000))))
            sent += 1
        producer.send(produce("t", batch()))
        assert producer.quiet(5)
        assert reader.ask(list_offsets("t", -1)).topics[0].partitions[0].offset == sent
        executor.submit = submit
        for job, done in held:
            submit(job, done)
        assert answers(producer.receive()) == [(OK, sent)]
        assert broker.broker.metrics.stalls >= 1
