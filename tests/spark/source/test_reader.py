"""The readers against a real broker, without a JVM: planned offsets, rows, errors and warnings."""

import asyncio
import json
import logging
import time
from types import SimpleNamespace

import pytest
from fencepost.client import sync
from fencepost.client.errors import InvalidConfigurationError, UnknownTopicError
from fencepost.client.values import TopicPartition
from fencepost.spark import client_thread
from fencepost.spark.source import reader, reading, survey
from fencepost.spark.source.offsets import DataLost
from fencepost.testing.served import ObservedBroker
from pyspark.sql.types import ArrayType, BinaryType, LongType, StringType, StructField, StructType, TimestampType
from spark_source import Source, places, values


@pytest.fixture(scope="module")
def source():
    with ObservedBroker() as broker:
        made = Source(broker.bootstrap_servers)
        yield made
        made.close()
        client_thread.close_all()


@pytest.fixture
def topic(source, request):
    return source.create(f"t{abs(hash(request.node.name))}", 2)


def put(source, topic, first, last, partition=0):
    source.write(topic, *[b"%d" % number for number in range(first, last)], partition=partition)


def numbers(rows):
    return sorted(int(each) for each in values(rows))


# ---- batches -------------------------------------------------------------------------------------------------------


def test_a_batch_reads_all_records_and_the_same_rows_when_run_again(source, topic):
    put(source, topic, 0, 50)
    put(source, topic, 50, 60, partition=1)
    reader = source.batch(subscribe=topic)
    parts = reader.partitions()
    assert [part.value.size for part in parts] == [50, 10], "the largest first"
    found = source.rows(subscribe=topic)
    assert numbers(found) == list(range(60))
    assert source.rows(subscribe=topic) == found


def test_a_split_returns_exactly_the_records_of_its_offset_range(source, topic):
    put(source, topic, 0, 100)
    for split in (1, 7, 50):
        found = source.rows(subscribe=topic, maxRecordsPerPartition=split)
        assert sorted(places(found)) == [(topic, 0, offset) for offset in range(100)]
    some = f'{{"{topic}":{{"0":13,"1":-2}}}}', f'{{"{topic}":{{"0":17,"1":-1}}}}'
    found = source.rows(subscribe=topic, startingOffsets=some[0], endingOffsets=some[1])
    assert numbers(found) == [13, 14, 15, 16]


def test_max_bytes_per_partition_and_min_partitions_split_a_batch_read(source, topic):
    source.write(topic, *[b"v" * 1000 for _ in range(200)])
    parts = source.batch(subscribe=topic, maxBytesPerPartition="20k").partitions()
    assert 8 <= len(parts) <= 13, "ten of 20 KB, where the size of a record is estimated"
    assert len(source.batch(subscribe=topic, minPartitions=4).partitions()) == 4


def test_many_small_kafka_batches_become_fewer_arrow_batches_in_order(source, topic, monkeypatch):
    monkeypatch.setattr(reading, "ROWS", 30)
    for first in range(0, 100, 5):
        put(source, topic, first, first + 5)
    reader = source.batch(subscribe=topic)
    (part,) = reader.partitions()
    sizes = [batch.num_rows for batch in reader.read(part)]
    assert sum(sizes) == 100
    assert all(size >= 30 for size in sizes[:-1])
    assert [int(row["value"]) for batch in reader.read(part) for row in batch.to_pylist()] == list(range(100))


def test_a_batch_read_with_a_small_max_partition_fetch_bytes_has_all_records(source, topic):
    source.write(topic, *[b"%05d" % number * 100 for number in range(300)])
    found = source.rows(subscribe=topic, kafka__max__partition__fetch__bytes=1000)
    assert len(found) == 300


def test_rows_have_only_the_columns_of_the_given_schema(source, topic):
    source.write(topic, b"v", key=b"k", headers={"a": b"1"}, timestamp_ms=1_700_000_000_123)
    pair = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    schema = StructType([StructField("headers", ArrayType(pair)), StructField("timestamp", TimestampType())])
    (row,) = source.rows(schema, subscribe=topic)
    assert row["headers"] == [{"key": "a", "value": b"1"}]
    assert round(row["timestamp"].timestamp() * 1000) == 1_700_000_000_123
    assert source.rows(StructType([StructField("offset", LongType())]), subscribe=topic) == [{"offset": 0}]


def test_starting_and_ending_timestamps_select_the_records(source, topic):
    for at in (1000, 2000, 3000):
        source.write(topic, b"%d" % at, timestamp_ms=at)
    put(source, topic, 9, 10, partition=1)
    assert numbers(source.rows(subscribe=topic, startingTimestamp=2000)) == [9, 2000, 3000]
    assert numbers(source.rows(subscribe=topic, endingTimestamp=3000)) == [1000, 2000]
    each = f'{{"{topic}":{{"0":2500,"1":0}}}}'
    assert numbers(source.rows(subscribe=topic, startingOffsetsByTimestamp=each)) == [9, 3000]
    late = {"subscribe": topic, "startingTimestamp": 2**42}
    with pytest.raises(InvalidConfigurationError, match="no record with timestamp"):
        source.rows(**late)
    assert source.rows(**late, startingOffsetsByTimestampStrategy="latest") == []


def test_records_written_while_a_batch_is_planned_are_not_lost(source, topic, monkeypatch):
    for partition in (0, 1):
        source.write(topic, b"%d" % partition, timestamp_ms=1000, partition=partition)
    look = survey.look

    def write() -> None:
        for partition in (0, 1):
            source.write(topic, b"2", timestamp_ms=2000, partition=partition)
            source.write(topic, b"3", timestamp_ms=3000, partition=partition)

    async def look_and_write(*given):
        found = await look(*given)
        await asyncio.to_thread(write)
        return found

    monkeypatch.setattr(survey, "look", look_and_write)
    assert numbers(source.rows(subscribe=topic, endingTimestamp=3000)) == [0, 1]


def test_a_batch_that_starts_after_the_end_of_the_log_raises_data_lost(source, topic, caplog):
    put(source, topic, 0, 3)
    given = {"subscribe": topic, "startingOffsets": f'{{"{topic}":{{"0":4,"1":0}}}}'}
    with pytest.raises(DataLost, match="ends at offset 3"):
        source.rows(**given)
    assert source.rows(**given, failOnDataLoss=False) == []
    assert "the query continues" in caplog.text
    assert source.rows(**given | {"startingOffsets": f'{{"{topic}":{{"0":3,"1":0}}}}'}) == []


def test_starting_offsets_that_do_not_list_exactly_all_partitions_are_refused(source, topic):
    with pytest.raises(InvalidConfigurationError, match=f"does not list {topic}-1"):
        source.rows(subscribe=topic, startingOffsets=f'{{"{topic}":{{"0":0}}}}')
    with pytest.raises(InvalidConfigurationError, match="which does not exist"):
        source.rows(subscribe=topic, startingOffsets=f'{{"{topic}":{{"0":0,"1":0,"2":0}}}}')


def test_starting_offsets_of_an_unselected_topic_are_refused_saying_so(source, topic):
    source.create("beside-it")
    offsets = json.dumps({topic: {"0": 0, "1": 0}, "beside-it": {"0": 0}})
    with pytest.raises(InvalidConfigurationError, match="lists beside-it-0, which is not selected"):
        source.rows(subscribe=topic, startingOffsets=offsets)


def test_assign_selects_partitions_and_subscribe_pattern_selects_topics(source, topic):
    put(source, topic, 0, 3)
    put(source, topic, 3, 5, partition=1)
    assert numbers(source.rows(assign=f'{{"{topic}":[1]}}')) == [3, 4]
    assert numbers(source.rows(subscribePattern=f"{topic[:-2]}.*")) == [0, 1, 2, 3, 4]
    assert source.rows(subscribePattern="nothing-like-it.*") == []
    assert source.rows(subscribePattern="__.*") == [], "internal topics are not found by a pattern"


def test_a_topic_that_does_not_exist_raises_an_error_naming_it(source, monkeypatch):
    monkeypatch.setattr(reading, "_GONE_AFTER_MS", 100)
    monkeypatch.setattr("fencepost.spark.source.survey.MISSING_MS", 100)
    with pytest.raises(UnknownTopicError, match="'nowhere'") as caught:
        source.rows(subscribe="nowhere")
    assert any("create the topic" in note for note in caught.value.__notes__)


@pytest.mark.requirement("S-100")
def test_records_of_aborted_transactions_are_read_only_with_read_uncommitted(source, topic):
    with sync.Producer(source.bootstrap, transactional_id=topic) as producer:
        for number in range(6):
            transaction = producer.transaction()
            try:
                with transaction as tx:
                    for step in range(4):
                        tx.send(topic, b"%d" % (number * 10 + step), partition=0)
                    if number % 2:
                        raise ValueError
            except ValueError:
                pass
    kept = [number * 10 + step for number in (0, 2, 4) for step in range(4)]
    for split in (1, 3, 100):
        assert numbers(source.rows(subscribe=topic, maxRecordsPerPartition=split)) == kept, "also in splits inside one"
    everything = source.rows(subscribe=topic, isolationLevel="read_uncommitted")
    assert len(everything) == 24


def test_records_of_an_open_transaction_are_read_only_with_read_uncommitted(source, topic):
    put(source, topic, 0, 3)
    with sync.Producer(source.bootstrap, transactional_id=topic) as producer, producer.transaction() as tx:
        tx.send_and_wait(topic, b"3", partition=0)
        assert numbers(source.rows(subscribe=topic)) == [0, 1, 2]
        assert numbers(source.rows(subscribe=topic, kafka__isolation__level="read_uncommitted")) == [0, 1, 2, 3]
    assert numbers(source.rows(subscribe=topic)) == [0, 1, 2, 3]


def test_starting_at_deleted_records_raises_data_lost_unless_it_is_tolerated(source, topic, caplog):
    put(source, topic, 0, 10)
    source.admin.delete_records({TopicPartition(topic, 0): 4})
    assert numbers(source.rows(subscribe=topic)) == list(range(4, 10)), "earliest means the first record that is left"
    given = {"subscribe": topic, "startingOffsets": f'{{"{topic}":{{"0":2,"1":0}}}}'}
    with pytest.raises(DataLost, match=f"{topic}-0 from offset 2 to 3 were deleted") as caught:
        source.rows(**given)
    assert "failOnDataLoss" in caught.value.hint
    with caplog.at_level(logging.WARNING, "fencepost.spark"):
        assert numbers(source.rows(**given, failOnDataLoss="false")) == list(range(4, 10))
    assert "from offset 2 to 3 were deleted" in caplog.text


def test_records_deleted_between_planning_and_reading_raise_data_lost(source, topic):
    put(source, topic, 0, 10)
    for lenient in (False, True):
        reader = source.batch(subscribe=topic, failOnDataLoss=str(not lenient))
        parts = reader.partitions()
        source.admin.delete_records({TopicPartition(topic, 0): 3 + 3 * lenient})
        if lenient:
            found = [row["offset"] for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
            assert found == [6, 7, 8, 9], "also where one batch of records was cut"
        else:
            with pytest.raises(DataLost, match="from offset 0 to 2 were deleted"):
                list(reader.read(parts[0]))


def test_a_topic_recreated_after_planning_raises_data_lost_and_is_not_read(source, topic):
    put(source, topic, 0, 10)
    reader = source.batch(subscribe=topic)
    (part,) = reader.partitions()
    source.admin.delete_topics([topic])
    source.create(topic, 2)
    put(source, topic, 100, 130)
    with pytest.raises(DataLost, match="created again"):
        list(reader.read(part))
    assert len(source.rows(subscribe=topic)) == 30


# ---- streams -------------------------------------------------------------------------------------------------------


def test_a_stream_reads_each_record_once_and_plans_no_batch_without_new_records(source, topic):
    put(source, topic, 0, 5)
    query = source.stream(subscribe=topic, startingOffsets="earliest")
    assert numbers(query.batch()) == list(range(5))
    assert query.batch() is None
    put(source, topic, 5, 8, partition=1)
    assert numbers(query.batch()) == [5, 6, 7]
    query.restart()
    assert query.batch() is None
    put(source, topic, 8, 9)
    assert numbers(query.batch()) == [8]


def test_a_first_batch_run_again_after_a_restart_reads_its_planned_records(source, topic):
    put(source, topic, 0, 5)
    query = source.stream(subscribe=topic)
    query._where()  # asks for the starting offset now: 5, the end of the log
    put(source, topic, 5, 8)
    assert query.plan()
    for more in (8, 11):
        put(source, topic, more, more + 3)
        query.restart()
        assert numbers(query.run()) == [5, 6, 7], "the planned records, not those written since"
    query.done = 1
    assert numbers(query.batch()) == list(range(8, 14))


def test_max_offsets_per_trigger_is_divided_among_partitions_by_their_lag(source, topic):
    put(source, topic, 0, 90)
    put(source, topic, 90, 100, partition=1)
    query = source.stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=10)
    sizes, found = [], []
    while (rows := query.batch()) is not None:
        sizes.append(len(rows))
        found += rows
    assert sorted(places(found)) == sorted({*places(found)})
    assert numbers(found) == list(range(100))
    assert sizes[0] == 10
    assert max(sizes) <= 12, "each of the two partitions may give one record more than its part of the ten"
    fresh = source.stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=10)
    assert len(fresh.everything()) == 100, "a trigger that wants everything gets it"


def test_max_bytes_per_trigger_limits_a_batch(source, topic):
    source.write(topic, *[b"v" * 1000 for _ in range(100)])
    query = source.stream(subscribe=topic, startingOffsets="earliest", maxBytesPerTrigger="20k")
    # 20 records of 1,000 bytes are 20k; how many bytes a record takes is estimated.
    assert 15 <= len(query.batch()) <= 22


def test_a_batch_waits_for_min_offsets_but_not_beyond_max_trigger_delay(source, topic, monkeypatch):
    moved_s = 0.0
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + moved_s)
    monkeypatch.setattr(reader, "time", clock)
    put(source, topic, 0, 1)
    options = {"startingOffsets": "earliest", "minOffsetsPerTrigger": 10, "maxTriggerDelay": "1h"}
    query = source.stream(subscribe=topic, **options)
    assert len(query.batch()) == 1, "the first does not wait"
    put(source, topic, 1, 3)
    assert query.batch() is None
    moved_s = 3_600
    assert len(query.batch()) == 2
    put(source, topic, 3, 13)
    assert len(query.batch()) == 10


def test_available_now_reads_up_to_the_ends_at_its_start_in_limited_batches(source, topic):
    put(source, topic, 0, 25)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 10, "minOffsetsPerTrigger": 10}
    query = source.stream(subscribe=topic, **options)
    query.reader.prepareForTriggerAvailableNow()
    put(source, topic, 25, 30)
    found = []
    while (rows := query.batch()) is not None:
        found += rows
    assert numbers(found) == list(range(25))
    query.restart()
    assert numbers(query.available_now()) == list(range(25, 30))
    query.restart()
    assert query.available_now() == []


def test_partitions_that_are_added_are_read_from_their_beginning(source, topic):
    put(source, topic, 0, 2)
    query = source.stream(subscribe=topic)
    assert query.batch() == []
    source.admin.create_partitions({topic: 3})
    put(source, topic, 2, 5, partition=2)
    assert query.plan()
    put(source, topic, 5, 6, partition=2)
    query.restart()
    assert numbers(query.run()) == [2, 3, 4]


def test_topics_that_a_pattern_finds_later_are_read_from_their_beginning(source, topic):
    query = source.stream(subscribePattern=f"{topic}.*")
    assert query.batch() == []
    source.create(f"{topic}-more")
    put(source, f"{topic}-more", 0, 4)
    assert numbers(query.batch()) == [0, 1, 2, 3]


def test_a_topic_recreated_during_a_stream_is_loss_and_read_from_its_start(source, topic, caplog):
    put(source, topic, 0, 5)
    strict = source.stream(subscribe=topic, startingOffsets="earliest")
    lenient = source.stream(subscribe=topic, startingOffsets="earliest", failOnDataLoss="false")
    assert len(strict.batch()) == len(lenient.batch()) == 5
    source.admin.delete_topics([topic])
    source.create(topic, 2)
    put(source, topic, 100, 120)  # more records than before, so that the offsets alone do not show the loss
    with pytest.raises(DataLost, match="deleted and created again"):
        strict.batch()
    with caplog.at_level(logging.WARNING, "fencepost.spark"):
        assert numbers(lenient.batch()) == list(range(100, 120))
    assert "deleted and created again" in caplog.text
    assert lenient.batch() is None


def test_deleting_a_streams_topic_raises_data_lost(source, topic, monkeypatch):
    monkeypatch.setattr("fencepost.spark.source.survey.MISSING_MS", 300)
    put(source, topic, 0, 5)
    query = source.stream(subscribe=topic, startingOffsets="earliest")
    assert len(query.batch()) == 5
    source.admin.delete_topics([topic])
    with pytest.raises(DataLost, match="does not exist any more"):
        query.batch()


@pytest.mark.parametrize("by", ["subscribe", "assign"])
def test_a_partition_that_a_query_no_longer_selects_raises_data_lost_saying_so(source, topic, by, monkeypatch, caplog):
    # If the reader waited for the topic that is not selected any more, the test would not end.
    monkeypatch.setattr("fencepost.spark.source.survey.MISSING_MS", 10**9)
    other = source.create(f"{topic}-{by}")
    put(source, topic, 0, 1)
    source.write(other, b"9")
    query = source.stream(subscribe=f"{topic},{other}", startingOffsets="earliest")
    assert numbers(query.batch()) == [0, 9]
    fewer = topic if by == "subscribe" else json.dumps({topic: [0, 1]})
    for fails in (True, False):
        query._make = source.stream(**{by: fewer}, failOnDataLoss=fails)._make
        query.restart()
        if fails:
            with pytest.raises(DataLost, match=f"{other}-0 is not selected any more"):
                query.batch()
    assert query.batch() == []
    assert query.batch() is None
    assert caplog.text.count("is not selected any more") == 1


def test_records_deleted_before_a_stream_read_them_raise_data_lost(source, topic):
    put(source, topic, 0, 5)
    strict = source.stream(subscribe=topic, startingOffsets="earliest")
    lenient = source.stream(subscribe=topic, startingOffsets="earliest", failOnDataLoss="false")
    assert len(strict.batch()) == len(lenient.batch()) == 5
    put(source, topic, 5, 10)
    source.admin.delete_records({TopicPartition(topic, 0): 7})
    with pytest.raises(DataLost, match="from offset 5 to 6 were deleted"):
        strict.batch()
    assert numbers(lenient.batch()) == [7, 8, 9]


def test_a_streams_progress_report_has_high_watermarks_and_lag(source, topic):
    put(source, topic, 0, 5)
    query = source.stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=2)
    assert query.reader.reportLatestOffset() is None
    with sync.Producer(source.bootstrap, transactional_id=topic) as producer, producer.transaction() as tx:
        tx.send_and_wait(topic, b"5", partition=0)
        query.batch()
        report = query.reader.reportLatestOffset()
    assert report[topic] == {"0": 6, "1": 0}
    own = report["@fencepost"]
    assert (own["behindHighWatermark"], own["behindReadable"]) == (4, 3)
    assert own["readable"][topic] == {"0": 5, "1": 0}


def test_the_warning_about_a_blocked_stream_names_the_transaction(source, topic, caplog, monkeypatch):
    monkeypatch.setattr("fencepost.spark.source.blocked_reads.WAITED_MS", 0)
    query = source.stream(subscribe=topic, startingOffsets="earliest")
    query.batch()
    with (
        caplog.at_level(logging.WARNING, "fencepost.spark"),
        sync.Producer(source.bootstrap, transactional_id=f"id-{topic}") as producer,
        producer.transaction() as tx,
    ):
        tx.send_and_wait(topic, b"x", partition=0)
        for _ in range(3):
            assert query.batch() is None
        messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 1, "once a minute"
    assert f"{topic}-0 is blocked at offset 0" in messages[0]
    assert f"transaction 'id-{topic}', open for" in messages[0]


def test_with_commit_group_a_streams_offsets_are_committed_to_that_group(source, topic):
    put(source, topic, 0, 5)
    query = source.stream(subscribe=topic, startingOffsets="earliest", commitGroup=f"g-{topic}")
    query.batch()
    query.reader.commit(query.log[-1])
    found = source.admin.list_group_offsets(f"g-{topic}")
    assert found[TopicPartition(topic, 0)].offset == 5


def test_reading_an_empty_input_partition_gives_no_rows(source, topic):
    from pyspark.sql.datasource import InputPartition

    assert list(source.batch(subscribe=topic).read(InputPartition(None))) == []
